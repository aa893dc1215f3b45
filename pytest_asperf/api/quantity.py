"""Measured quantities, and the verdicts that comparing them gives."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from types import CodeType, FrameType
from typing import ClassVar, Final, Literal, NoReturn, TypeAlias

from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.analysis.limit_verdict import judge_limits, limits_text, read_limit
from pytest_asperf.analysis.results import Limit, Limits, Operator, VariantValues, WithinLimits
from pytest_asperf.analysis.stats.estimate import CHANGE, RATIO, SHARE, Estimate
from pytest_asperf.analysis.stats.intervals import difference_apart, independent_change
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict, guarded
from pytest_asperf.api.measurement_context import NoTruthValue, Record
from pytest_asperf.errors import ConfigError, shown
from pytest_asperf.report.verdict_text import VerdictError, line
from pytest_asperf.verdicts.readings import GuardedRates, vetted

#: A number in the quantity's unit, or a text such as `"250 ms"` or `"1%"`.
LimitText: TypeAlias = "str | float"
#: First of a ratio, then of a difference.
Sign: TypeAlias = Literal["/", "-"]

#: The ratio, and the difference, of two quantities that are the same.
_SAME: Final = {True: 1.0, False: 0.0}


class Asserted(Verdict):
    """A verdict on a comparison: true if it is a PASS, and otherwise raised.

    A comparison whose verdict nobody reads is a forgotten `assert`; the test's record reports it.
    """

    __slots__ = ("_record", "_verdict")
    _record: Record
    _verdict: Verdict

    def __init__(self, record: Record) -> None:
        object.__setattr__(self, "_record", record)

    def take(self, judged: Judged) -> None:
        """Be this verdict, in the record too, instead of the one on a chain's first limit."""
        record = self._record
        record(judged.verdict, instead_of=getattr(self, "_verdict", None))
        self.become(judged.verdict)
        if judged.is_stopped:
            raise KeyboardInterrupt
        record.compared(self)

    @classmethod
    def of(cls, verdict: Verdict, record: Record) -> Asserted:
        """A verdict that its record has already."""
        one = verdict if isinstance(verdict, Asserted) else cls(record)
        one.become(verdict.plain())
        return one

    def become(self, verdict: Verdict) -> None:
        """Have the parts of a verdict."""
        for slot in fields(Verdict):  # the slots of a frozen dataclass
            getattr(Verdict, slot.name).__set__(self, getattr(verdict, slot.name))
        object.__setattr__(self, "_verdict", verdict)

    def __repr__(self) -> str:
        return f"<Verdict {line(self._verdict)}>"  # printing it does not assert it

    @property
    def outcome(self) -> Outcome:
        """The outcome, read without raising."""
        self._record.asserted(self)
        return self._verdict.outcome

    def __bool__(self) -> bool:
        __tracebackhide__ = True
        conclude(self, self._record)
        return True

    def plain(self) -> Verdict:
        """The verdict alone."""
        return self._verdict

    __eq__ = object.__eq__
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Found:
    """The measurement of a quantity."""

    estimate: Estimate  #: the quantity with its interval
    subject: Subject  #: its subject, with run record
    guard_findings: tuple[GuardFinding, ...] = ()  #: the guards' findings in the measurement
    #: the runs behind it, if a spread or a busy host can matter near a limit
    runs: GuardedRates | None = None
    per_rate: float = 1.0  #: the quantity for each unit of `runs`
    remarks: tuple[str, ...] = ()  #: on how it was measured, one line each
    #: the values that it was made of, such as the PPL of its change
    variants: VariantValues | None = None
    #: examines the verdict last, for conditions of some outcomes only
    check: Callable[[Verdict], Verdict] | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on a comparison."""

    verdict: Verdict  #: the verdict
    is_stopped: bool = False  #: whether Ctrl-C interrupted the measurement; the session ends then


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A comparison of a quantity with a limit, and its place in the code of a test."""

    limit: Limit  #: the limit
    asserted: Asserted  #: the verdict
    code: CodeType  #: of the function that compares
    #: the comparison's lines and columns there; a chain such as `a <= b <= c` has one
    place: tuple[int | None, ...]
    instruction: int  #: the instruction that compares

    @classmethod
    def in_frame(cls, frame: FrameType, limit: Limit, asserted: Asserted) -> _Comparison:
        """The comparison that a frame makes now."""
        code, at = frame.f_code, frame.f_lasti
        place = next(islice(code.co_positions(), at // 2, None))  # of two bytes each
        return cls(limit, asserted, code, place, at)

    def continues(self, earlier: _Comparison) -> bool:
        """True if this is the second half of a chain of which the other one is the first."""
        is_one = (self.code, self.place) == (earlier.code, earlier.place)
        is_later = self.instruction > earlier.instruction
        return is_one and is_later and self.limit.is_upper != earlier.limit.is_upper


@dataclass(frozen=True, eq=False, repr=False)
class Quantity(NoTruthValue, ABC):
    """A measured quantity: a comparison of it is a verdict, for `assert`.

    `<`, `<=`, `>` and `>=` compare it with a limit or with another quantity. `a / b` and `a - b`
    are quantities too. Nothing is measured before it is compared, read or printed.

    Attributes:
        name: the quantity and the model.
        unit: of its estimate and of limits that are numbers.
        record: collects the verdicts.
        about: the model with its settings, which two names may have in common.
    """

    name: str
    unit: str
    record: Record
    about: object = field(default=None, kw_only=True)
    _latest: _Comparison | None = field(default=None, init=False)

    example: ClassVar = 'assert throughput("tg128") >= "40 tok/s"'

    def __post_init__(self) -> None:
        self.record.measured(self.name)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def estimate(self) -> Estimate:
        """The value with its interval, measured if necessary; for your own code."""
        estimate = self.find().estimate
        self.record.used()
        return estimate

    @abstractmethod
    def find(self) -> Found:
        """Measure it; a session measures the same thing once."""

    def __lt__(self, other: LimitText | Quantity) -> Verdict:
        __tracebackhide__ = True
        return self._compared("<", other)

    def __le__(self, other: LimitText | Quantity) -> Verdict:
        __tracebackhide__ = True
        return self._compared("<=", other)

    def __gt__(self, other: LimitText | Quantity) -> Verdict:
        __tracebackhide__ = True
        return self._compared(">", other)

    def __ge__(self, other: LimitText | Quantity) -> Verdict:
        __tracebackhide__ = True
        return self._compared(">=", other)

    def __eq__(self, other: object) -> NoReturn:  # `!=` calls this too
        raise ConfigError(
            f"{self.name} is compared for equality",
            why="no measurement shows that two quantities are the same to the last digit",
            remedy="compare it with two limits, as in 0.98 <= a / b <= 1.02",
        )

    __hash__ = object.__hash__

    def __truediv__(self, other: Quantity) -> Quantity:
        """The ratio of this quantity to the other one; both are measured in run pairs."""
        return self._paired_with(other, "/")

    def __sub__(self, other: Quantity) -> Quantity:
        """The difference of this quantity and the other one; both are measured in run pairs."""
        return self._paired_with(other, "-")

    @property
    def is_signed(self) -> bool:
        """True if it can be 0 or less."""
        return self.unit == CHANGE

    @property
    def is_compared_by_ratio(self) -> bool:
        """True if two such quantities are compared by their ratio; otherwise by the difference."""
        return not self.is_signed and self.unit not in {SHARE, "nats"}

    def judge(self, limits: Limits) -> Judged:
        """The verdict on a comparison with limits."""
        __tracebackhide__ = True
        found, (limit, *_) = self.find(), limits
        estimate = found.estimate
        if limit.unit != estimate.unit:
            estimate = estimate.scaled(limit.factor, limit.unit)
        verdict = judge_limits(estimate, limits, found.subject)
        result = WithinLimits(limits=limits, variants=found.variants)
        verdict = replace(verdict, result=result, details=found.remarks)
        if found.runs is not None:
            unit = found.per_rate * limit.factor
            values = (limit.value for limit in limits)
            verdict = vetted(verdict, found.runs, values, unit=unit)
        verdict = guarded(verdict, found.guard_findings)
        return Judged(found.check(verdict) if found.check else verdict)

    @property
    def is_compound(self) -> bool:
        """True if its name has a sign of its own: it is a ratio or a difference."""
        return False

    def is_again(self, other: Quantity) -> bool:
        """True if the other one is this one again, so that comparing the two shows nothing."""
        return (self.name, self.about) == (other.name, other.about)

    def ratio_to(self, other: Quantity) -> Quantity:
        """The quantity of `self / other`, each measured by itself."""
        return Apart(joined_name(self, "/", other), RATIO, self.record, self, other, "/")

    def difference_from(self, other: Quantity) -> Quantity:
        """The quantity of `self - other`, both measured in run pairs."""
        return Apart(joined_name(self, "-", other), self.unit, self.record, self, other, "-")

    def _compared(self, operator: Operator, other: object) -> Verdict:
        __tracebackhide__ = True
        if isinstance(other, Quantity):
            by_ratio = self.is_compared_by_ratio and other.is_compared_by_ratio
            pair = self / other if by_ratio else self - other
            return noted(pair.judge((Limit(operator, _SAME[by_ratio], pair.unit),)), self.record)
        where = f"{self.name} {operator} {shown(other, 80)}"
        signed = self.is_signed
        limit = read_limit(operator, other, self.unit, where=where, may_be_negative=signed)
        frame = sys._getframe(2)  # noqa: SLF001  # the test's
        here = _Comparison.in_frame(frame, limit, Asserted(self.record))
        limits: Limits = (limit,)
        if self._latest is not None and here.continues(self._latest):
            first = self._latest.limit
            limits = tuple(sorted((first, limit.like(first)), key=lambda one: one.is_upper))
            here = replace(here, asserted=self._latest.asserted)
            if limits[0].value > limits[1].value:
                raise no_room(self.name, limits)
        here.asserted.take(self.judge(limits))
        object.__setattr__(self, "_latest", here)
        return here.asserted

    def _paired_with(self, other: object, sign: Sign) -> Quantity:
        if not isinstance(other, Quantity):
            raise ConfigError(
                f"{self.name} {sign} {shown(other, 80)}: this is no measured quantity",
                remedy=f"compare the quantity itself with a limit, as in {self.example}",
            )
        if self.unit != other.unit:
            units = " and ".join(unit or "no unit" for unit in (self.unit, other.unit))
            raise ConfigError(
                f"{self.name} {sign} {other.name}: these are in {units}",
                why="quantities of two kinds have no ratio and no difference",
                remedy="compare two rates, two times or two sizes",
            )
        if self.is_again(other):
            raise ConfigError(
                f"{self.name} is compared with itself",
                remedy="name two quantizations, models, workloads, engines or builds",
            )
        return self.ratio_to(other) if sign == "/" else self.difference_from(other)


@dataclass(frozen=True, eq=False, repr=False)
class Figure(Quantity):
    """A quantity with a measurement of its own."""

    measure: Callable[[], Found]

    def find(self) -> Found:
        """Measure it."""
        return self.measure()


@dataclass(frozen=True, eq=False, repr=False)
class Compound(Quantity):
    """A ratio or a difference of two quantities, by its sign."""

    first: Quantity
    second: Quantity
    sign: Sign

    @property
    def is_signed(self) -> bool:
        """True if it can be 0 or less: a difference can."""
        return self.sign == "-"

    @property
    def is_compound(self) -> bool:
        """True if its name has a sign of its own."""
        return True


@dataclass(frozen=True, eq=False, repr=False)
class Apart(Compound):
    """A ratio or a difference of two quantities, of which each has an interval of its own."""

    def find(self) -> Found:
        """Measure both."""
        one, other = self.first.find(), self.second.find()
        if self.is_signed:
            estimate = difference_apart(other.estimate, one.estimate)
        else:
            ratio = independent_change(other.estimate, one.estimate).as_ratio()
            estimate = replace(ratio, unit=RATIO)
        ran = tuple(dict.fromkeys((*one.subject.ran, *other.subject.ran)))
        name = f"{one.subject.name} {self.sign} {other.subject.name}"
        subject = replace(one.subject, name=name, brief="", ran=ran)
        # A guard's result for either one counts: neither has a limit of its own.
        findings = [
            finding
            for found in (one, other)
            for finding in (
                *found.guard_findings,
                *(found.runs.guard_findings if found.runs else ()),
            )
        ]
        remarks = (*one.remarks, *other.remarks)
        return Found(estimate, subject, tuple(findings), remarks=remarks)


def no_room(name: str, limits: Limits) -> ConfigError:
    """The error for two limits with no room between them."""
    return ConfigError(
        f"{name} {limits_text(limits)}: there is no room between these limits",
        why="no measurement could be shown to lie there",
        remedy="write a lower and a higher limit, as in 0.98 <= a / b <= 1.02",
    )


def joined_name(first: Quantity, sign: Sign, second: Quantity) -> str:
    """The name of the ratio, or of the difference, of two quantities."""
    names = (f"({one.name})" if one.is_compound else one.name for one in (first, second))
    return f" {sign} ".join(names)


def noted(judged: Judged, record: Record) -> Asserted:
    """Put a comparison's verdict into the test's record, for the test to assert."""
    asserted = Asserted(record)
    asserted.take(judged)
    return asserted


def settle(verdict: Verdict, record: Record, *, stopped: bool = False) -> Verdict:
    """Note a named assertion's verdict, and raise VerdictError unless it is a PASS.

    If Ctrl-C stopped the measurement, the session ends then.
    """
    __tracebackhide__ = True
    asserted = noted(Judged(verdict, is_stopped=stopped), record)
    conclude(asserted, record)
    return asserted


def conclude(verdict: Verdict, record: Record) -> None:
    """Raise VerdictError unless a verdict is a PASS, or is undecided and waits for the test's end.

    An assertion that follows an undecided one may be a FAIL, which must be seen.
    """
    __tracebackhide__ = True
    record.asserted(verdict)
    if verdict.plain().outcome is Outcome.PASS:
        return
    if verdict.plain().outcome is not Outcome.INCONCLUSIVE or not record.keeps(verdict):
        error = VerdictError(Asserted.of(verdict, record))
        record.raised(error)
        raise error
