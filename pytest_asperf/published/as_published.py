"""`assert_as_published`: asserts that a quantity still equals a published figure."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pytest_asperf.analysis import metrics
from pytest_asperf.analysis.limit_verdict import judge_within, parse_percent
from pytest_asperf.analysis.stats.estimate import CHANGE, Estimate
from pytest_asperf.analysis.stats.intervals import independent_change
from pytest_asperf.analysis.verdict import Outcome, Verdict, guarded
from pytest_asperf.api.measurement_context import MeasurementContext, Record, require_kind
from pytest_asperf.api.quantity import Found, LimitText, settle
from pytest_asperf.api.scored import Scored
from pytest_asperf.api.throughput import Rate
from pytest_asperf.config.workload import is_workload
from pytest_asperf.errors import Advice, ConfigError, suggest
from pytest_asperf.plugin.stash import Notebook
from pytest_asperf.published.findings import load_findings
from pytest_asperf.published.findings.evidence import Evidence, published_estimate
from pytest_asperf.published.findings.terms import PrintedTerm
from pytest_asperf.published.findings.validity import estimated_figures
from pytest_asperf.published.records import RecordedCell
from pytest_asperf.published.session import findings_of
from pytest_asperf.verdicts.readings import GuardedRates, vetted

_WHERE: Final = "assert_as_published"
#: By the name of an engine in a document, the engines here that are it.
_ENGINES: Final = {"llama.cpp": ("llama_cpp", "llama_tools"), "MLX": ("mlx",)}
_TOO_WIDE: Final = Advice(
    "more runs here would not decide it: the published figure is too uncertain; allow a larger "
    "difference with within=, or name a figure with a smaller spread"
)
_IF_FAILED: Final = "compare the run record with the document's"


def assert_as_published(measured: Rate | Scored, figure: str, within: LimitText = "5%") -> Verdict:
    """Assert that a quantity still equals a published figure, on the document's machine.

    Both intervals count: the measured one, and that of the published figure if its spread is
    published. Otherwise the figure is used as printed. On other hardware, or on another engine than
    the document's, the test is skipped.

    Args:
        measured: TG or PP, `throughput("tg128")`; or `perplexity.delta`.
        figure: its path, `"atom-paper/three-machines/m2ultra-76/tg"`.
        within: accepted difference from the figure, `"5%"` or a fraction of it; for a ΔPPL in
            percentage points.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no such figure, or one of another quantity or workload.
        HardwareError: the record names unknown hardware.
    """
    __tracebackhide__ = True
    require_kind(measured, (Rate, Scored), f'{_WHERE}(throughput("tg128"), "{figure}")')
    limit = parse_percent(within, where=f"{_WHERE}: within")
    if not limit:
        raise ConfigError(
            f"{_WHERE}: within=0 cannot be shown",
            why="no number of runs shows that two measurements are the same to the last digit",
            remedy='allow a difference that does not matter, such as within="5%"',
        )
    live = _live(measured)
    evidence = _evidence(live.measurement.record)
    cell = evidence.find(figure, where=_WHERE)
    _require_same_quantity(live, cell, evidence)
    if elsewhere := _elsewhere(live, cell):
        live.measurement.skip(f"{figure} is a figure of {elsewhere}")
    verdict = _judge(live, cell, limit)
    guard_findings = estimated_figures([PrintedTerm(cell.id)], evidence)
    verdict = guarded(verdict, guard_findings)
    return settle(verdict, measured.record)


def _evidence(record: Record) -> Evidence:
    """The figures that ship, and in a test those of its project."""
    findings = findings_of(record.item.config) if isinstance(record, Notebook) else load_findings()
    return findings.evidence


@dataclass(frozen=True, slots=True)
class _Live:
    """A measured figure, with its metric and unit as documents write them.

    `runs` is None for a quantity that does not depend on the machine.
    """

    found: Found
    measurement: MeasurementContext
    engine: str
    metric: str
    unit: str
    what: str
    runs: GuardedRates | None

    @property
    def figure(self) -> Estimate:
        """The figure with its interval."""
        return self.found.estimate


def _live(measured: Rate | Scored) -> _Live:
    if isinstance(measured, Rate):
        variant, workload = measured.variant, measured.workload
        metric = metrics.TG if workload.generates else metrics.PP
        found = measured.find()
        return _Live(
            found, variant.measurement, variant.engine, metric.name, found.estimate.unit,
            workload.name, found.runs,
        )  # fmt: skip
    if measured.kind != "change" or len(measured.rungs) > 1:
        require_kind(measured, Rate, f'{_WHERE}(perplexity.delta, "...")')
    (rung,) = measured.rungs
    engine = rung.result().ran.engine.engine
    found = measured.find()
    return _Live(found, rung.measurement, engine, "PPL increase", "%", measured.metric, None)


def _require_same_quantity(live: _Live, cell: RecordedCell, evidence: Evidence) -> None:
    cell.value  # noqa: B018  # a word or a bound raises
    wanted, scope = (live.metric, live.unit), cell.scope
    if (cell.metric, cell.unit) != wanted or scope.draft:
        drafted = f" with the draft {scope.draft}" if scope.draft else ""
        alike = [
            other.id
            for other in evidence.cells.values()
            if (other.metric, other.unit) == wanted and not other.scope.draft
        ]
        raise ConfigError(
            f"{_WHERE}: {cell.id} is {cell.metric} in {cell.unit or 'no unit'}{drafted}, the "
            f"measurement is {live.metric} in {live.unit}",
            remedy=f"name a figure of {live.metric} in {live.unit}{suggest(cell.id, alike)}",
        )
    if live.runs is not None:
        _require_same_work(live, cell)


def _require_same_work(live: _Live, cell: RecordedCell) -> None:
    scope = cell.scope
    if is_workload(scope.workload) and scope.workload != live.what:
        raise ConfigError(
            f"{_WHERE}: {cell.id} is of {scope.workload}, the measurement is of {live.what}",
            why="a rate depends on the workload",
            remedy=f'measure throughput("{scope.workload}")',
        )
    if not scope.hardware or published_estimate(cell).point <= 0:
        lacks = "is not above 0" if scope.hardware else "does not name its hardware"
        raise ConfigError(
            f"{_WHERE}: {cell.id} {lacks}, so it is not a rate of a machine",
            why="a rate is compared on the machine that it was measured on",
            remedy="name a figure of a machine; in your own records, give the table `hardware`",
        )


def _elsewhere(live: _Live, cell: RecordedCell) -> str:
    """The scope of the figure that this session is out of; empty if it is in scope."""
    scope, engine = cell.scope, live.engine
    if scope.engine and engine not in _ENGINES.get(scope.engine, (scope.engine,)):
        return f"{scope.engine}, this is {engine}"
    hardware = live.measurement.bounds.hardware.measured_on
    if live.runs is not None and not hardware.is_one_of((scope.hardware,)):
        return f"{scope.hardware}, this is {hardware.name}"
    return ""


def _judge(live: _Live, cell: RecordedCell, within: float) -> Verdict:
    published = published_estimate(cell)
    base = published.scaled(0.01, CHANGE) if live.figure.unit == CHANGE else published
    judge = partial(judge_within, at_least=-within, at_most=within)
    subject = live.found.subject
    subject = replace(subject, name=f"{subject.name} against {cell.id}", if_failed=_IF_FAILED)
    scope = cell.scope
    words = (scope.model, scope.quant, scope.engine, scope.workload, scope.hardware, scope.machine)
    verdict = judge(independent_change(base, live.figure), subject)
    exactly = Estimate.exact(live.figure.point, live.figure.unit)
    if judge(independent_change(base, exactly), subject).outcome is Outcome.INCONCLUSIVE:
        verdict = replace(verdict, advice=(_TOO_WIDE,))
    verdict = replace(
        verdict,
        details=(
            f"measured {live.figure.text()}",
            f"published {cell}, spread {cell.spread}: {published.text()}",
            f"published of {', '.join(filter(None, words)) or 'no machine or model by name'}",
        ),
    )
    if live.runs is None:
        return verdict
    return vetted(verdict, live.runs, (published.point * (1 + end) for end in (-within, within)))
