"""Quantities of scored text: PPL, its change, KLD, compared chunk by chunk; the NLL of one text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Final, Literal

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.analysis.metrics import ChunkScore
from pytest_asperf.analysis.results import VariantValues
from pytest_asperf.analysis.stats.chunk_intervals import (
    chunk_mean_interval,
    chunk_ratio_interval,
    paired_differences,
)
from pytest_asperf.analysis.stats.estimate import CHANGE, RATIO, Chunks, Estimate
from pytest_asperf.analysis.verdict import Subject, Verdict
from pytest_asperf.api.measurement_context import (
    MeasurementContext,
    ModelUnderTest,
    NoTruthValue,
    Record,
)
from pytest_asperf.api.quantity import Figure, Found, Quantity, joined_name
from pytest_asperf.config.catalogue import at_level
from pytest_asperf.config.engine_settings import parse_settings
from pytest_asperf.errors import Advice, ConfigError, shown
from pytest_asperf.measure.results import LevelResult
from pytest_asperf.measure.texts import ScoresExperiment
from pytest_asperf.measure.validity import level_trips, require_valid, twin_trips
from pytest_asperf.records.taken import quant_record
from pytest_asperf.verdicts.gate import LARGEST_HEALTHY_KLD, MEAN_HEALTHY_KLD


@dataclass(frozen=True)
class TokenScores(NoTruthValue):
    """The scores of one text's tokens.

    Attributes:
        tokens: the text's token ids.
        ran: the run record, as a verdict states it.
    """

    tokens: tuple[int, ...]
    ran: tuple[tuple[str, str], ...]
    _score: ChunkScore = field(repr=False)
    _record: Record = field(repr=False, compare=False)

    example: ClassVar = "assert model.scores(text, n_ubatch=1).agrees"

    @property
    def nll(self) -> tuple[float, ...]:
        """NLL of each scored token, nats."""
        self._record.used()
        return self._score.nll

    @property
    def kld(self) -> tuple[float, ...]:
        """KLD of each scored token's distribution from the test's own model, nats.

        Empty without a quantization or settings.
        """
        self._record.used()
        return self._score.kld

    @property
    def mean_kld(self) -> float:
        """Mean KLD, nats."""
        return sum(self.kld) / max(1, len(self.kld))

    @property
    def agrees(self) -> bool:
        """True if the logits are the same within the bounds that healthy builds keep.

        A mean KLD below 0.02 nats, and no token above 1 nat: the bounds of `gate("logits")`.
        """
        return (
            self.mean_kld < MEAN_HEALTHY_KLD and max(self.kld, default=0.0) <= LARGEST_HEALTHY_KLD
        )


def score(
    variant: ModelUnderTest,
    text: str | Sequence[int],
    after: int,
    quant: str | None,
    settings: Mapping[str, object],
) -> TokenScores:
    """Score a text's tokens under a quantization and settings; as of `model.scores`."""
    measurement, ref = variant.measurement, variant.ref
    measurement.require_live()
    measurement.at_end(measurement.runner.close)
    other = ref
    if quant is not None:
        other = at_level(replace(ref, level=None), quant, where="scores: quant")
    changed = parse_settings(settings, where="scores")
    other = replace(other, spec=other.spec.with_settings(changed))
    given = text if isinstance(text, str) else _token_ids(text)
    first, refs = _position(after), (ref, other)
    found = measurement.runner.measure(tuple(dict.fromkeys(refs)), ScoresExperiment(given, first))
    measurement.record.measured(f"a text's NLL of {other.title}")
    return TokenScores(found.tokens, found.ran.rows(), found.score, measurement.record)


def _token_ids(given: object) -> tuple[int, ...]:
    tokens: tuple[int, ...] = ()
    if isinstance(given, Sequence):
        tokens = tuple(token for token in given if type(token) is int and token >= 0)
    if not isinstance(given, Sequence) or len(tokens) != len(given):
        raise ConfigError(
            f"scores: {shown(given, 80)} is not a text",
            why="a model reads texts and token ids",
            remedy="give a str, or the tokens of an earlier call",
        )
    return tokens


def _position(after: object) -> int:
    if type(after) is not int or after < 0:
        raise ConfigError(
            f"scores: after={shown(after, 80)} is not a position",
            why="tokens from there on are scored",
            remedy="give a whole number from 0",
        )
    return after


#: How the mean of tokens' values becomes the quantity: as it is, or by its exponential, which is a
#: PPL or the change of one.
Kind = Literal["mean", "ppl", "change"]
_UNITS: Final = {"mean": "nats", "ppl": "", "change": CHANGE}


@dataclass(frozen=True)
class ScoredRung:
    """The scores of one quantization against its baseline, measured when first needed."""

    title: str  #: names it before it was scored
    baseline: str  #: names its baseline
    measurement: MeasurementContext = field(compare=False)
    #: scores it, once a session; gives a remark on how, too
    score: Callable[[], tuple[LevelResult, str]] = field(compare=False)
    is_other_model: bool = False  #: whether it is of another model than its baseline
    #: the most chunks that the test's marker allows; None for the session's number
    at_most: int | None = None

    def result(self) -> LevelResult:
        """The scores, noted for the report.

        Raises:
            AsperfError: it could not be measured, or a guard found it, or its baseline, broken.
        """
        result, remark = self.score()
        found = self._guard_findings(result)
        what = f"{result.ran.model} vs {self.baseline}"
        self.measurement.record(quant_record(result, self.baseline, found, remark))
        require_valid(what, found)
        return result

    def guard_findings(self) -> tuple[GuardFinding, ...]:
        """The guard findings on it, none of them INVALID."""
        return self._guard_findings(self.score()[0])

    def subject(self, metric: str) -> Subject:
        """The subject of a comparison of one of its quantities."""
        result = self.result()
        name = f"{metric} {result.ran.model} vs {self.baseline}"
        if_failed = "name a quantization that loses less, or accept this loss with another limit"
        return Subject(name, "live", result.rows(), if_failed=if_failed)

    def _guard_findings(self, result: LevelResult) -> tuple[GuardFinding, ...]:
        return level_trips(result, is_other_model=self.is_other_model)


@dataclass(frozen=True, eq=False, repr=False)
class Scored(Quantity):
    """A quantity that is a mean over scored tokens, or the exponential of one."""

    metric: str  #: its name in a table
    kind: Kind  #: how the mean becomes the quantity
    rungs: tuple[ScoredRung, ...]  #: the quantizations or other variants to score
    values: Callable[[], Chunks]  #: gives a value of each token, by chunk

    def find(self) -> Found:
        """Score it."""
        subjects = [rung.subject(self.metric) for rung in self.rungs]
        subject = subjects[0]
        if len(self.rungs) > 1:
            ran = tuple(dict.fromkeys(row for one in subjects for row in one.ran))
            subject = replace(subject, name=self.name, ran=ran)
        findings = tuple(f for rung in self.rungs for f in rung.guard_findings())
        if len(self.rungs) > 1:
            findings += _incomparable([rung.result() for rung in self.rungs])
        variants = None
        if self.kind == "change" and len(self.rungs) == 1:
            variants = VariantValues(values=(self.rungs[0].result().comparison.ppl.value,))
        estimate = self._estimate(self.values())
        check = partial(_within_marker, at_most=self.rungs[0].at_most)
        return Found(estimate, subject, findings, variants=variants, check=check)

    def ratio_to(self, other: Quantity) -> Quantity:
        """The quantity of `self / other`, of the same tokens."""
        if not isinstance(other, Scored) or self.kind != other.kind:
            return super().ratio_to(other)
        name, pair = joined_name(self, "/", other), self._minus(other)
        if self.kind == "ppl":
            return replace(pair, name=name, unit=RATIO)

        def measure() -> Found:
            found = pair.find()
            ratio = chunk_ratio_interval(self.values(), other.values())
            return replace(found, estimate=ratio, subject=replace(found.subject, name=name))

        return _RatioOfMeans(name, RATIO, self.record, measure)

    def difference_from(self, other: Quantity) -> Quantity:
        """The quantity of `self - other`, of the same tokens; of changes of PPL, the change."""
        if not isinstance(other, Scored) or self.kind != other.kind or self.kind == "ppl":
            return super().difference_from(other)
        return self._minus(other)

    @property
    def is_signed(self) -> bool:
        """True if it can be 0 or less."""
        return self.kind == "change" or (self.kind == "mean" and len(self.rungs) > 1)

    @property
    def is_compound(self) -> bool:
        """True if its name has a sign of its own."""
        return len(self.rungs) > 1

    def _minus(self, other: Scored) -> Scored:
        rungs = tuple(dict.fromkeys((*self.rungs, *other.rungs)))
        name = joined_name(self, "-", other)

        def values() -> Chunks:
            return paired_differences(other.values(), self.values())

        return Scored(name, self.unit, self.record, self.metric, self.kind, rungs, values)

    def _estimate(self, values: Chunks) -> Estimate:
        if self.kind == "mean":
            return chunk_mean_interval(values, unit=self.unit)
        method = "Student's t on paired NLL differences of chunks"
        if self.kind == "ppl" and len(self.rungs) == 1:
            method = "Student's t on the NLL of chunks"
        change = chunk_mean_interval(values, unit="", method=method).change_of_log()
        return change if self.kind == "change" else replace(change.as_ratio(), unit=self.unit)


def _within_marker(verdict: Verdict, *, at_most: int | None) -> Verdict:
    """The verdict, with advice that names the marker's `chunks` if more are needed."""
    advice = tuple(
        Advice(f"{one.text} (write chunks={number} in the marker)", settings=one.settings)
        if (number := dict(one.settings).get("chunks")) and at_most and int(number) > at_most
        else one
        for one in verdict.advice
    )
    return replace(verdict, advice=advice)


@dataclass(frozen=True, eq=False, repr=False)
class _RatioOfMeans(Figure):
    """The ratio of two means over chunks, of which either may be 0 or less."""

    @property
    def is_signed(self) -> bool:
        """True: it can be 0 or less."""
        return True

    @property
    def is_compound(self) -> bool:
        """True: its name has a sign of its own."""
        return True


def change_of(rung: ScoredRung) -> Scored:
    """The relative change of PPL from the baseline, a share."""

    def values(result: LevelResult) -> Chunks:
        return paired_differences([c.nll for c in result.baseline_chunks], result.nll)

    return quantity_of(rung, "ΔPPL", "change", values)


def quantity_of(
    rung: ScoredRung, metric: str, kind: Kind, of: Callable[[LevelResult], Chunks]
) -> Scored:
    """The mean over chunks of a score, by its tokens."""
    name = f"{metric} {rung.title}"
    return Scored(
        name,
        _UNITS[kind],
        rung.measurement.record,
        metric,
        kind,
        (rung,),
        lambda: of(rung.result()),
    )


def _incomparable(results: Sequence[LevelResult]) -> tuple[GuardFinding, ...]:
    """Why quantizations cannot be compared: other tokens, or the same weights."""
    first, *others = results
    unequal = [guards.unequal_work(first.work, other.work) for other in others]
    return (*filter(None, unequal), *twin_trips(results))
