"""`asperf bisect`: finds the release or commit at which a gate begins to fail."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from rich.console import Console

from pytest_asperf import __version__
from pytest_asperf.analysis.outcome import ExitCode
from pytest_asperf.bisect.search import Answer, Ending, GateStep, Probe
from pytest_asperf.commands.console import (
    CommandNotify,
    print_priority,
    print_sections,
    print_table,
    print_text,
    stderr_console,
)
from pytest_asperf.commands.options import (
    build_argument,
    command,
    end,
    max_kld,
    max_ppl_delta,
    model_option,
    settings,
    workload_option,
)
from pytest_asperf.commands.project import open_project
from pytest_asperf.config.text_file import UnreadableTextError, read_text
from pytest_asperf.errors import ConfigError, printable

if TYPE_CHECKING:
    from pytest_asperf.bisect.candidates import Candidate
    from pytest_asperf.bisect.run import BisectRecord, BisectRequest, JudgedGate
    from pytest_asperf.config.spec import Build
    from pytest_asperf.measure.runner import MeasurementRunner
    from pytest_asperf.measure.workspace import Workspace

_EXIT_CODES: Final = {
    Ending.CULPRIT: ExitCode.DONE,
    Ending.NO_REGRESSION: ExitCode.FAIL,
    Ending.RANGE: ExitCode.INCONCLUSIVE,
    Ending.MAP: ExitCode.INCONCLUSIVE,
    Ending.BROKEN: ExitCode.INVALID,
}
_OWN: Final = {"max_seconds": "600"}

_SETTING: Final = re.compile(r"\s*[A-Za-z_]\w*\s*=(?!=)")
_LIST: Final = ".txt"


@command()
@build_argument("base")
@build_argument("cand")
@workload_option(
    "--workload",
    metavar="NAME",
    default="tg128",
    help="Check to bisect by: tg128, ttft512, ppl, kld, logits (default: tg128).",
)
@model_option("--model", metavar="MODEL", help="Model to gate on.")
@click.option(
    "--builds",
    metavar="LIST",
    help="Builds between the two in their order: A,B,C, or a .txt file with one a line.",
)
@click.option("--fresh", is_flag=True, help="Ignore the results of an interrupted run.")
@max_ppl_delta
@max_kld
@settings("tolerance", "max_pairs", "max_seconds", "engine", own=_OWN)
def bisect(fresh: bool, **words: Any) -> None:  # noqa: FBT001  # click calls it by name
    """Find the release or commit at which a gate begins to fail.

    BASE is the build that was good enough, CAND a later one, which is not. Exits with 0 if a
    culprit is named, with 1 if there is none, with 2 if there is no single one.
    """
    bisect_builds(BisectOptions(**words), fresh=fresh)


class BisectOptions(NamedTuple):
    """The words for the bisected values."""

    base: str
    cand: str
    workload: str
    model: str | None = None
    builds: str | None = None
    max_ppl_delta: str = "1%"
    max_kld: float | None = None
    tolerance: str | None = None


def bisect_builds(options: BisectOptions, *, fresh: bool = False) -> None:
    """Bisect, and exit with the result's code."""
    # Twice a gate's: the test may last any time, and a probe left undecided costs others.
    project = open_project(
        defaults={"max_seconds": int(_OWN["max_seconds"])}, tolerance=options.tolerance
    )
    answer = _bisect(_request(options, project), project, fresh=fresh)
    end(_EXIT_CODES[answer.ending])


def split_builds(text: str, folder: Path) -> list[str]:
    """The builds that `--builds` names, as written.

    A word such as `slow_by=0.1` is a setting of the build before it. A file has a build a line;
    text after a # is a remark.
    """
    if text.endswith(_LIST):
        try:
            lines = read_text(folder / text).splitlines()
        except UnreadableTextError as error:
            raise ConfigError(
                f"--builds: {printable(text)} {error}",
                remedy="name a file with one build a line, or the builds themselves: A,B,C",
            ) from None
        builds = [line.partition("#")[0].strip() for line in lines]
    else:
        builds = []
        for word in text.split(","):
            if builds and _SETTING.match(word):
                builds[-1] += f",{word}"
            else:
                builds.append(word.strip())
    named = [build for build in builds if build]
    if not named:
        raise ConfigError(
            f"--builds: {printable(text)} names none",
            remedy="write --builds=A,B,C, or a .txt file with one build a line",
        )
    return named


def _request(options: BisectOptions, project: Workspace) -> BisectRequest:
    """The request, all of it checked before anything is measured."""
    from pytest_asperf.analysis.limit_verdict import parse_tolerance
    from pytest_asperf.bisect.run import BisectRequest
    from pytest_asperf.gate.cells import GateCell, GateCheck, parse_gated
    from pytest_asperf.gate.judge import GateLimits
    from pytest_asperf.gate.plan import engine_of
    from pytest_asperf.measure.ab_speed import Budget

    settings, catalogue = project.settings, project.catalogue
    named = settings.engine if "engine" in project.typed else None
    find = partial(catalogue.find_build, engine=named)
    ends = find(options.base, where="BASE"), find(options.cand, where="CAND")
    engine = engine_of(named, ends, settings.engine)
    ref = catalogue.find(options.model or settings.default_model, where="--model", engine=engine)
    workload = parse_gated(options.workload, where="--workload")
    if workload == GateCheck.SPECULATION:
        raise ConfigError(
            "--workload: sd needs a draft, and a bisection has one model",
            remedy="gate each: `asperf gate BASE CAND --draft DRAFT --workload sd`",
        )
    between = None
    if options.builds is not None:
        texts = split_builds(options.builds, catalogue.folder)
        between = [find(text, where="--builds") for text in texts]
    budget = Budget(settings.tolerance, settings.max_pairs, settings.max_seconds, seed=0)
    limit = parse_tolerance(options.max_ppl_delta, where="--max-ppl-delta")
    limits = GateLimits(budget, limit, options.max_kld)
    cell = GateCell(ref, workload)
    return BisectRequest(_candidates(ends, between), cell, limits, is_listed=between is not None)


def _candidates(ends: tuple[Build, Build], between: list[Build] | None) -> tuple[Candidate, ...]:
    from pytest_asperf.bisect.candidates import Candidate, builds_between

    if between is None:
        return builds_between(ends, where="BASE, CAND")
    base, last = ends
    named = between[1:] if between[0] == base else between
    if named[-1:] == [last]:
        named = named[:-1]
    return tuple(map(Candidate, (base, *named, last)))


def _bisect(request: BisectRequest, project: Workspace, *, fresh: bool) -> Answer:
    """Run it, and print each result at once."""
    import platform

    from pytest_asperf.bisect.run import bisect, kept_bisection
    from pytest_asperf.bisect.text import announcement, known_so_far
    from pytest_asperf.hardware.in_force import detect

    out = Console(highlight=False)
    for line in announcement(request):
        print_text(out, line)
    console = stderr_console()
    engine = request.cell.ref.spec.engine or project.settings.engine
    print_priority(console, engine, project.settings.nice)
    with CommandNotify(console) as notify, project.runner(engine, notify) as runner:
        contents = _contents(request, runner, project.cache)
        decided_by = {
            **request.decided_by(__version__, detect(), platform.node(), contents),
            "chunks": project.settings.chunks,
            "seed": project.settings.seed,
        }
        kept = kept_bisection(project.cache, decided_by, seed=project.seed, fresh=fresh)
        with kept as (record, note):
            if note:
                print_text(console, note)
            watcher = _Printer(request, record, notify, out)
            try:
                answer = bisect(request, runner, record, watcher)
            except KeyboardInterrupt:
                print_text(console, known_so_far(request, record))
                raise
    _print_answer(request, record, answer)
    return answer


def _contents(
    request: BisectRequest, runner: MeasurementRunner, cache: Path
) -> dict[str, str | None]:
    """The hashes of the files that decide a result: packages, weights, the corpus."""
    from pytest_asperf.config.build_sources import Archive, Packages, ToolsFolder
    from pytest_asperf.modelfiles.cache import file_sha256

    ref = request.cell.ref
    weights = dict(ref.spec.files).get(ref.level or "", ref.spec.gguf)
    sources = [candidate.build.source for candidate in request.candidates]
    packages = (path for source in sources if isinstance(source, Packages) for path in source.files)
    releases = (source.path for source in sources if isinstance(source, Archive))
    folders = {source.folder for source in sources if isinstance(source, ToolsFolder)}
    paths = [
        *packages,
        *releases,
        *(path for folder in folders if folder.is_dir() for path in folder.iterdir()),
        *(path for path in (weights, ref.spec.corpus) if path is not None),
    ]
    hashes = {
        str(path): file_sha256(path, cache=cache) if path.is_file() else None for path in paths
    }
    return {**hashes, "folder": runner.source_sha256(ref.spec)}


class _Printer:
    """Prints each gate when it is over, those of an earlier run first."""

    def __init__(
        self, request: BisectRequest, record: BisectRecord, notify: CommandNotify, out: Console
    ) -> None:
        self._request = request
        self._notify = notify
        self._out = out
        for gate, found in record.gates.items():
            self.ends(gate, found)

    def begins(self, probe: Probe, number: int) -> None:
        """Print a gate's name."""
        name = self._request.candidates[probe.gate.candidate].build.name
        self._notify.progress(f"gate {number}: {name}", 0, 0)

    def ends(self, gate: GateStep, found: JudgedGate) -> None:
        """Print its verdict."""
        from pytest_asperf.bisect.text import gate_line

        self._notify.done()
        print_text(self._out, gate_line(self._request, gate, found))


def _print_answer(request: BisectRequest, record: BisectRecord, answer: Answer) -> None:
    from pytest_asperf.bisect.text import answer_sections, map_rows, map_sections

    print_text(Console(highlight=False), "")
    sections = answer_sections(request, record, answer)
    if answer.ending is Ending.MAP:
        print_table(map_rows(request, record))
        sections += map_sections(request, record)
    print_sections(sections)
