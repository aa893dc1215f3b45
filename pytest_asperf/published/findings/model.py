"""Findings as frozen dataclasses, and their verdicts on published figures: guards first."""

from dataclasses import dataclass, replace
from typing import Final

from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict, guarded
from pytest_asperf.config.engines import GGUF_ENGINES, MLX_ENGINES, Engine
from pytest_asperf.errors import Advice, ConfigError, shown, suggest
from pytest_asperf.published.findings.checks import FindingCheck
from pytest_asperf.published.findings.evidence import Evidence
from pytest_asperf.published.findings.validity import RecordedGuard, estimated_figures
from pytest_asperf.published.records import Records

#: Parameters that no model has: an upper limit that is none.
_ANY: Final = 1e12


def count_text(parameters: float) -> str:
    """A number of parameters as models are named by it: 7B, 135M."""
    unit, letter = (1e9, "B") if parameters >= 1e9 else (1e6, "M")
    return f"{parameters / unit:.3g}{letter}"


@dataclass(frozen=True, slots=True)
class Across:
    """The assertion of a finding about the ratio of two machines' speeds."""

    machines: tuple[str, str]  #: profiles or chips; the first is the faster one
    workload: str  #: the prefix of its workloads' names, such as `tg`
    at_least: float | None  #: of the ratio; None is no limit
    at_most: float | None  #: the largest asserted ratio

    def text(self) -> str:
        """The assertion in words: `tg of m2ultra over m1max, at least 2x`."""
        low = f"at least {self.at_least:g}x" if self.at_least is not None else ""
        high = f"at most {self.at_most:g}x" if self.at_most is not None else ""
        limits = " and ".join(filter(None, (low, high)))
        return f"{self.workload} of {' over '.join(self.machines)}, {limits}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A published statement with its basis."""

    id: str
    statement: str  #: the finding in one sentence, in our words
    topic: str  #: its heading
    #: tables that state it, `source-id/table-id`, in addition to those of its figures
    sources: tuple[str, ...] = ()
    published: tuple[str, ...] = ()  #: ids of the figures that the documents give for it
    hardware: tuple[str, ...] = ()  #: profiles or chips that it is about; empty means any
    architecture: str = ""  #: dense, moe or hybrid; empty means any
    engine: str = ""  #: the engine that it is about; empty means any
    #: the least and the most that the model which it is about has; None means any
    parameters: tuple[float, float] | None = None
    check: FindingCheck
    across: Across | None  #: the check for reports of two machines; None if it is not about two
    guards: tuple[RecordedGuard, ...]  #: the guards that the figures must pass first
    live: str = ""  #: test of `pytest_asperf.findings` that measures it; empty if there is none
    instead: str = ""  #: that test's assertion, if it is not the statement itself
    unmeasured: str = ""  #: why no test measures it
    explanation: str  #: its meaning, for a newcomer
    expected: Outcome  #: the known verdict of the published figures
    because: str  #: why that one

    def suits_engine(self, engine: Engine) -> bool:
        """True if it is about an engine, or about any; a script counts as any of them."""
        about = {self.engine, engine}
        is_one = len(about) == 1 or about <= GGUF_ENGINES or about <= MLX_ENGINES
        return not self.engine or is_one or engine == "scripted"

    @property
    def sizes(self) -> str:
        """The models that it is about by their parameters; empty if it is about any."""
        if self.parameters is None:
            return ""
        least, most = self.parameters
        upper = f" to {count_text(most)}" if most < _ANY else " or more"
        return f"models of {count_text(least)}{upper} parameters"


@dataclass(frozen=True, slots=True)
class Findings:
    """All findings of a run, and their figures."""

    findings: tuple[Finding, ...]  #: the shipped ones first, then a project's own
    records: Records
    evidence: Evidence
    reference: tuple[tuple[str, str], ...]  #: by table or figure, the reason why it has no finding

    def find(self, id: str, *, where: str) -> Finding:  # noqa: A002  # it is what the field is called
        """A finding by its id, which `where` named."""
        by_id = {finding.id: finding for finding in self.findings}
        if id in by_id:
            return by_id[id]
        raise ConfigError(
            f"{where}: no finding is called {shown(id, 80)}{suggest(id, by_id)}",
            why="the finding has the test's statement and its published figures",
            remedy="asperf findings lists them",
        )


_OPEN: Final = Advice("more runs, published with n and spread, would decide it")
_FAILED: Final = "do not rely on the statement; `asperf findings --report md:-` shows the figures"


def judge_recorded(finding: Finding, evidence: Evidence) -> Verdict:
    """The verdict on the published figures; ConfigError if a guard cannot check them."""
    terms = list(finding.check.terms())
    figures = dict.fromkeys(cell.id for term in terms for cell in evidence.all_cells(term))
    subject = Subject(
        finding.id, "recorded", tuple(("figure", cell_id) for cell_id in figures), if_failed=_FAILED
    )
    verdict = finding.check.judge(evidence, subject)
    if verdict.outcome is Outcome.INCONCLUSIVE:
        verdict = replace(verdict, advice=(_OPEN,))
    declared = [
        guard_finding
        for guard in finding.guards
        if (guard_finding := guard.check(evidence)) is not None
    ]
    guard_findings = (*declared, *estimated_figures(terms, evidence))
    left = guarded(verdict, guard_findings)
    # The broken figures' result is left out.
    return replace(left, figures=()) if left.outcome is Outcome.INVALID else left


def published_text(finding: Finding, evidence: Evidence) -> str:
    """The figures that the documents give for a finding, as printed."""
    return ", ".join(str(evidence.cells[cell_id]) for cell_id in finding.published)
