"""Comparisons between files, and the audit of all files as sections of checks.

PPL is paired over one text, and runs are found that should differ and do not.
"""

import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import Consequence
from pytest_asperf.analysis.stats.chunk_intervals import delta_ppl
from pytest_asperf.audit.judge import judge_file, widened
from pytest_asperf.audit.judge_load import compare_loads
from pytest_asperf.audit.known import Known, Options
from pytest_asperf.audit.read import FileReading, read_file
from pytest_asperf.audit.result import Audit, FileFindings
from pytest_asperf.errors import printable
from pytest_asperf.report.sections import CheckLine, Section, State
from pytest_asperf.worker.printed.model_facts import ModelFacts
from pytest_asperf.worker.printed.perplexity_log import PerplexityRun
from pytest_asperf.worker.printed.speculation_log import SpeculationRun

#: Chunk by chunk, models that read one text agree about which parts are hard. Published logs of one
#: text, from F16 to Q2_K, correlate by 0.93 and more; two texts do by chance.
_LEAST_CORRELATION: Final = 0.5
_LEAST_CHUNKS: Final = 5
# Logs of recent releases do not name the model; people's names for them often do.
_LEVEL: Final = re.compile(
    r"(?<![a-z0-9])(?:b?f(16|32)|i?q(\d)(?:_\w+)?)(?![a-z0-9])", re.IGNORECASE
)


def audit(
    paths: Sequence[Path], options: Options, *, on_file: Callable[[Path], None] = lambda _: None
) -> Audit:
    """Read files and apply the guards; the baseline among the options is read with them."""
    readings = []
    for path in dict.fromkeys([*paths, *([options.baseline] if options.baseline else [])]):
        on_file(path)
        readings.append(read_file(path))
    known = Known.of(readings, options)
    files = tuple(judge_file(reading, known) for reading in readings)
    return Audit(files, tuple(_together(readings, options)))


def _together(readings: Sequence[FileReading], options: Options) -> Iterable[FileFindings]:
    pairs = FileFindings("ΔPPL, paired by chunk", "llama-perplexity")
    _pair_perplexity(readings, options, pairs)
    arms = FileFindings("runs with and without a remote device", "llama-speculative")
    _compare_arms(readings, arms)
    counts = FileFindings("rates in a table and the logs they come from", "llama-speculative")
    _account_tokens(readings, counts)
    loads = FileFindings("load generators, figures of one definition", "load generators")
    compare_loads(readings, options, loads)
    return [
        found for found in (pairs, arms, counts, loads) if found.figures or found.guard_findings
    ]


@dataclass(frozen=True, slots=True)
class _Scored:
    """A run over a text; `number` is its place in a log of several, otherwise 0."""

    path: Path
    model: ModelFacts | None
    run: PerplexityRun
    number: int = 0

    @property
    def label(self) -> str:
        level = self.model.level if self.model else None
        name = f"{self.path.name}, run {self.number}" if self.number else self.path.name
        return f"{level} ({name})" if level else name

    @property
    def bits(self) -> float:
        """Bits per weight, by the log, otherwise by the file's name; 0 if neither has them."""
        logged = self.model.bits_per_weight if self.model else None
        named = _LEVEL.search(self.path.stem)
        return logged or (float(named[1] or named[2]) if named else 0.0)

    @property
    def work(self) -> Mapping[str, object]:
        known = {
            "n_ctx": self.run.n_ctx,
            "chunks": len(self.run.running_ppl),
            "vocabulary": self.model.n_vocab if self.model else None,
        }
        return {name: value for name, value in known.items() if value is not None}


def _pair_perplexity(
    readings: Sequence[FileReading], options: Options, findings: FileFindings
) -> None:
    groups: dict[object, list[_Scored]] = {}
    for reading in readings:
        runs = reading.log.perplexities if reading.log else []
        for number, (run, model) in enumerate(runs, start=1):
            if not run.running_ppl or run.not_finite or run.lacks_chunks:
                continue
            scored = _Scored(reading.path, model, run, number * (len(runs) > 1))
            # A named baseline is compared with every log, so that a mismatch is reported.
            key = None if options.baseline else tuple(scored.work.items())
            groups.setdefault(key, []).append(scored)
    for group in groups.values():
        base = _baseline_of(group, options.baseline)
        for other in group:
            if base is not None and other is not base:
                _pair(base, other, options, findings)


def _baseline_of(group: Sequence[_Scored], named: Path | None) -> _Scored | None:
    """The named log, otherwise the first with the most bits per weight."""
    if named is not None:
        return next((scored for scored in group if scored.path == named), None)
    return max(group, key=lambda scored: scored.bits)  # the first of equals


def _pair(base: _Scored, other: _Scored, options: Options, findings: FileFindings) -> None:
    name = f"{other.label} vs {base.label}"
    unequal = guards.unequal_work(other.work, base.work)
    findings.add(name, unequal)
    if unequal is not None:
        return
    base_nll, nll = base.run.chunk_nll, other.run.chunk_nll
    change = delta_ppl([[v] for v in base_nll], [[v] for v in nll], options.confidence)
    change = widened(change, base.run.rounding + other.run.rounding)
    correlation = _correlation(base_nll, nll)
    if correlation is not None and correlation < _LEAST_CORRELATION:
        findings.notes.append(
            f"{name}: NLL by chunk correlates by {correlation:.2f}; logs of one text do so by 0.9 "
            "and more, so these may be two texts"
        )
    basis = f"{options.confidence:.0%} two-sided over {change.n} chunks"
    findings.measured(name, change, basis)


def _correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Pearson's correlation; None for few or equal values."""
    if len(a) < _LEAST_CHUNKS or len(set(a)) == 1 or len(set(b)) == 1:
        return None
    return statistics.correlation(a, b)


def _compare_arms(readings: Sequence[FileReading], findings: FileFindings) -> None:
    """Find runs with a remote device that equal a run without one."""
    runs = [
        (reading.path.name, reading.log.remote, [model.file_name for model in models], run)
        for reading in readings
        if reading.log
        for run, models in reading.log.speculations
    ]
    for name, remote, models, run in runs:
        for local, its_remote, its_models, its_run in runs:
            if remote and not its_remote and models == its_models:
                guard_finding = guards.identical_to_baseline(_figures(run), _figures(its_run))
                findings.add(f"{name} and {local}", guard_finding)


def _account_tokens(readings: Sequence[FileReading], findings: FileFindings) -> None:
    """Find rates in a table that include the prompt, by the log with the same token counts."""
    logs = {
        (run.n_drafted, run.n_accept): (reading.path.name, run)
        for reading in readings
        if reading.log
        for run, _ in reading.log.speculations
        if run.n_predict
    }
    for row in (row for reading in readings for row in reading.table):
        rate, numbers = row.numbers.get("rate"), row.numbers
        counts = int(numbers.get("drafted", -1)), int(numbers.get("accepted", -1))
        if not rate or counts not in logs:
            continue
        name, run = logs[counts]
        n_prompt = run.prompt[0] if run.prompt else 0
        if n_prompt and run.total_s:
            guard_finding = guards.token_accounting(
                rate, n_prompt=n_prompt, n_generated=run.n_predict, elapsed_s=run.total_s
            )
            findings.add(f"{row.label} and {name}", guard_finding)


def _figures(run: SpeculationRun) -> Mapping[str, float]:
    """Figures that differ between runs with and without a remote device."""
    if not run.n_drafted:
        return {}
    draft, prompt = run.draft_decodes, run.prompt
    figures = {
        "acceptance": run.n_accept / run.n_drafted,
        "TG tok/s": run.rate,
        "draft tok/s": draft.rate if draft else None,
        "prompt s": prompt[1] if prompt else None,
    }
    return {name: figure for name, figure in figures.items() if figure}


_STATES: Final[dict[Consequence, State]] = {
    Consequence.INVALID: "invalid",
    Consequence.INCONCLUSIVE: "inconclusive",
    Consequence.WARNING: "warning",
}
_NAME: Final = 100
_TEXT: Final = 300
#: Lines of each kind that one file is shown with; JSON has all.
_MOST: Final = 40


def sections(audit: Audit) -> tuple[Section, ...]:
    """A section for each file, and for files compared with one another."""
    return tuple(
        Section(_title(findings), tuple(_checks(findings)))
        for findings in (*audit.files, *audit.together)
    )


def _title(findings: FileFindings) -> str:
    kind = f": {printable(findings.format, _TEXT)}" if findings.format else ""
    return f"{printable(findings.title, _TEXT)}{kind}"


def _checks(findings: FileFindings) -> Iterator[CheckLine]:
    if findings.problem:
        yield CheckLine("not read", "unknown", printable(findings.problem, _TEXT))
    for name, text in findings.ran:
        yield CheckLine(name, "measured", printable(text, _TEXT))
    for figure in findings.figures[:_MOST]:
        yield CheckLine(printable(figure.name, _NAME), "measured", printable(figure, _TEXT))
    for about, guard_finding in findings.guard_findings[:_MOST]:
        detail = f"{printable(about, _NAME)}: {printable(guard_finding.found, _TEXT)}"
        yield CheckLine(
            guard_finding.guard,
            _STATES[guard_finding.consequence],
            f"{detail} (rule: {guard_finding.rule})",
            guard_finding.remedy,
        )
    for note in findings.notes[:_MOST]:
        yield CheckLine("note", "measured", printable(note, _TEXT))
    left = sum(
        max(len(kind) - _MOST, 0)
        for kind in (findings.figures, findings.guard_findings, findings.notes)
    )
    if left:
        yield CheckLine("note", "measured", f"{left} more lines are in --report json:FILE")
