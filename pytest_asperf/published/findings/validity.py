"""Guards on published figures: the closed set that a findings file may name."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import Guard, GuardFinding
from pytest_asperf.config.table import CheckedTable
from pytest_asperf.errors import ConfigError
from pytest_asperf.published.findings.evidence import Evidence
from pytest_asperf.published.findings.terms import FormulaTerm, Term, ids_of, parse_term

#: Published values by their input names.
_Values: TypeAlias = "Mapping[str, float]"
_Check: TypeAlias = "Callable[[_Values], GuardFinding | None]"
#: By how much a theoretical bandwidth may exceed the advertised one of a document: 800 is 819.2.
ROUNDED_BANDWIDTH: Final = 1.024


@dataclass(frozen=True, slots=True)
class RecordedGuard:
    """A guard that published figures must pass: `inputs` by name, or a build and its baseline."""

    kind: str
    inputs: tuple[tuple[str, Term], ...]
    variant: tuple[Term, ...] = ()
    baseline: tuple[Term, ...] = ()

    def terms(self) -> Iterator[Term]:
        """The figures that it checks."""
        yield from (term for _, term in self.inputs)
        yield from (*self.variant, *self.baseline)

    def check(self, evidence: Evidence) -> GuardFinding | None:
        """Its finding about the figures, None if they pass.

        A ConfigError means that the guard cannot use the figures, such as a rate of 0.
        """
        values = {name: evidence.value(term) for name, term in self.inputs}
        try:
            if self.variant:
                return _COMPARISONS[self.kind](
                    self._named(self.variant, evidence), self._named(self.baseline, evidence)
                )
            return _GUARDS[self.kind][0](values)
        except ValueError as error:
            figures = ", ".join(id for term in self.terms() for id in ids_of(term))  # noqa: A001
            raise ConfigError(
                f"guard {self.kind} cannot check {figures}: {error}",
                why="a guard that cannot check protects nothing",
                remedy="name figures of the quantity that it needs",
            ) from error

    def _named(self, terms: Iterable[Term], evidence: Evidence) -> dict[str, float]:
        """Values by metric and unit, in a reader's words."""
        named = {}
        for own, term in zip(self.variant, terms, strict=True):
            metric = "" if isinstance(own, FormulaTerm) else f"{evidence.cell(own.id).metric} "
            value = evidence.value(term)
            named[f"{metric}{evidence.unit(own)}".strip()] = (
                int(value) if value.is_integer() else value
            )
        return named


def parse_guard(place: CheckedTable) -> RecordedGuard:
    """The guard that a table means; a ConfigError names file, finding and key."""
    kind = place.choice("kind", (*_GUARDS, *_COMPARISONS))
    if kind in _COMPARISONS:
        place.only(("kind", "variant", "baseline"))
        variant, baseline = _list(place, "variant"), _list(place, "baseline")
        if len(variant) != len(baseline):
            place.refuse("baseline", f"name {len(variant)} figures, one for each of `variant`")
        return RecordedGuard(kind, (), variant, baseline)
    _, needed, possible = _GUARDS[kind]
    place.only(("kind", *needed, *possible))
    for key in needed:
        if key not in place.values:
            place.refuse(key, f"name a figure; {kind} needs {', '.join(needed)}")
    inputs = (
        (key, parse_term(place.values[key], place, key)) for key in place.values if key != "kind"
    )
    return RecordedGuard(kind, tuple(inputs))


def estimated_figures(terms: Iterable[Term], evidence: Evidence) -> Iterator[GuardFinding]:
    """The guard of any published figure: one that is no measurement shows nothing."""
    reported = set()
    for term in terms:
        for cell in evidence.all_cells(term):
            if cell.kind in {"estimated", "stated"} and cell.id not in reported:
                reported.add(cell.id)
                guard_finding = guards.estimate(f"{cell.id} ({cell.kind})", 0)
                if guard_finding is not None:
                    yield guard_finding


def _list(place: CheckedTable, key: str) -> tuple[Term, ...]:
    value = place.values.get(key)
    if not isinstance(value, list) or not value:
        place.refuse(key, "write a list of figures")
    return tuple(parse_term(term, place, key) for term in value)


def _step(values: _Values) -> tuple[float, float]:
    """Steps per second and bytes per step; with a draft, a step is a round."""
    k = values.get("k", 0.0)
    emitted = 1.0
    if k:
        emitted += values["accepted"] * k / values["drafted"]
    n_bytes = (values["weights_gb"] + k * values.get("draft_gb", 0.0)) * 1e9
    return values["rate"] / emitted, n_bytes


def _roofline_high(values: _Values) -> GuardFinding | None:
    steps, n_bytes = _step(values)
    return guards.roofline_high(steps, n_bytes, values["bandwidth"] * ROUNDED_BANDWIDTH)


def _roofline_low(values: _Values) -> GuardFinding | None:
    steps, n_bytes = _step(values)
    return guards.roofline_low(steps, n_bytes, values["bandwidth"])


def _sd_bound(values: _Values) -> GuardFinding | None:
    return guards.sd_bound(
        values["rate"],
        values["alone"],
        k=round(values["k"]),
        drafted=round(values["drafted"]),
        accepted=round(values["accepted"]),
    )


_ENERGY: Final = ("watts", "joules", "baseline_watts", "baseline_joules")
_LINES: Final = ("lines",)
_ROOFLINE: Final = ("rate", "weights_gb", "bandwidth")
_SD: Final = ("k", "drafted", "accepted")
#: By name: the guard, the figures that it needs, and its optional ones.
_GUARDS: Final[Mapping[str, tuple[_Check, tuple[str, ...], tuple[str, ...]]]] = {
    Guard.ROOFLINE_HIGH: (_roofline_high, _ROOFLINE, (*_SD, "draft_gb")),
    Guard.ROOFLINE_LOW: (_roofline_low, _ROOFLINE, ()),
    Guard.SD_BOUND: (_sd_bound, ("rate", "alone", *_SD), ()),
    Guard.DECODE_ERRORS: (lambda v: guards.counted_decode_errors(round(v["lines"])), _LINES, ()),
    Guard.PATH_MISMATCH: (lambda v: guards.counted_remote_errors(round(v["lines"])), _LINES, ()),
    Guard.IMPURE_WINDOW: (
        lambda v: guards.impure_window(round(v["samples"]), v["period_s"], v["phase_s"]),
        ("samples", "period_s", "phase_s"),
        (),
    ),
    Guard.PREDICTED_AGAINST_MEASURED: (
        lambda v: guards.predicted_against_measured(v["predicted"], v["measured"]),
        ("predicted", "measured"),
        (),
    ),
    Guard.JOULES_PER_TOKEN: (
        lambda v: guards.joules_per_token(*(v[name] for name in _ENERGY)),
        _ENERGY,
        (),
    ),
}
_COMPARISONS: Final[Mapping[str, Callable[[_Values, _Values], GuardFinding | None]]] = {
    Guard.IDENTICAL_TO_BASELINE: guards.identical_to_baseline,
    Guard.UNEQUAL_WORK: guards.unequal_work,
}
