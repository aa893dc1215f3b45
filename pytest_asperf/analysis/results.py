"""Results of judging as facts, a type for each kind of assertion; `report/` puts them into words.

Types that a field names are imported at run time: `records.codec` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal, TypeAlias

from pytest_asperf.analysis.capacity import Fit
from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.stats.estimate import Estimate

Operator = Literal["<", "<=", ">", ">="]
BELOW: Final = frozenset({"<", "<="})


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit that a quantity is compared with.

    Attributes:
        operator: compares the quantity with it.
        value: in `unit`.
        unit: that the verdict is shown in.
        factor: of the quantity's own unit in `unit`.
    """

    operator: Operator
    value: float
    unit: str
    factor: float = 1.0

    @property
    def is_upper(self) -> bool:
        """True if the quantity must be below it."""
        return self.operator in BELOW

    def like(self, other: Limit) -> Limit:
        """This limit in the unit of another one."""
        value = self.value / self.factor * other.factor
        return replace(self, value=value, unit=other.unit, factor=other.factor)


#: The operands of a comparison: one limit, or a lower and an upper one in one unit.
Limits: TypeAlias = tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class JudgedFigure:
    """A judged estimate, with its accepted limits; None is no limit, or an unknown one."""

    label: str
    estimate: Estimate
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantValues:
    """The values that a figure was made of, in the order that they are shown.

    Attributes:
        values: of the first and the second variant, or one value before its change.
        unit: of the values.
        is_change: True if the second variant replaces the first.
    """

    values: tuple[float, ...]
    unit: str = ""
    is_change: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinLimits:
    """One figure, compared with limits; no figure if nothing was finished.

    Attributes:
        limits: one, or a lower and an upper one.
        variants: the values behind the figure, if they are shown.
        counted: a unit of the measurement, such as `chunk`.
        out_of: the number of such units that there are.
        baseline: the baseline's own value of the same quantity.
        where: the quantity that decides if there should be an effect.
        faster_by: the gain that the limit is made of, a fraction.
        metered: whether the gain is one of energy.
    """

    kind: ClassVar[str] = "limits"

    limits: Limits
    variants: VariantValues | None = None
    counted: str = ""
    out_of: int | None = None
    baseline: float | None = None
    where: Estimate | None = None
    faster_by: float | None = None
    metered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinTolerance:
    """A cost that may grow by a tolerance.

    Attributes:
        tolerance: accepted growth, a fraction.
        cost: that is compared; of several run pairs, their total time if it decides.
        variants: of baseline and candidate; None if no pair was finished.
        mean: the mean growth over the pairs, if it leaves the verdict open.
        fails_above: smallest growth that can FAIL, a fraction.
        other: the change that is not compared: of the median pair, or of the total time.
    """

    kind: ClassVar[str] = "tolerance"

    tolerance: float
    fails_above: float
    cost: Literal["time", "total time", "energy"] = "time"
    variants: VariantValues | None = None
    mean: float | None = None
    other: Estimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One of several conditions.

    Attributes:
        label: its name.
        outcome: its own verdict.
        result: the condition; None if nothing was asserted.
        n_figures: how many of the verdict's figures are the next part of this condition.
        problem: why there is no figure, or a guard's finding that overruled it.
    """

    label: str
    outcome: Outcome
    result: AnyResult | None = None
    n_figures: int = 1
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """Several conditions that must all be true.

    Attributes:
        parts: the conditions.
        from_limit: there should be an effect from this limit on, and none below it.
        of: one limit on several figures, a limit for each of several quantities, a gate's checks of
            one workload, or evidence that a model ran on a device.
        further: evidence that does not count.
        accepted: of each build, the accepted and the drafted tokens of a draft.
        operations: the number of operations in a plan.
    """

    kind: ClassVar[str] = "every"

    parts: tuple[Part, ...] = ()
    from_limit: Limit | None = None
    of: Literal["figures", "quantities", "checks", "evidence"] = "figures"
    further: tuple[Part, ...] = ()
    accepted: tuple[tuple[int, int], ...] = ()
    operations: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """A quantity that rises, or falls, along labels; a figure is the step to the next one."""

    kind: ClassVar[str] = "order"

    direction: Literal["rising", "falling"]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoFront:
    """A candidate that no other one dominates.

    Attributes:
        objectives: names of the quantities.
        others: names of the other candidates; each has a figure for each objective.
        against: those that dominate it, or that may.
    """

    kind: ClassVar[str] = "pareto"

    objectives: tuple[str, ...]
    others: tuple[str, ...]
    against: tuple[str, ...] = ()


RatioDirection = Literal["above", "below"]
Answer = Literal["gain", "no gain", "not shown", "too few pairs", "not gated"]


@dataclass(frozen=True, slots=True)
class GainAnswer:
    """The answer above, or below, a rule's speed ratio."""

    direction: RatioDirection
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class GainRule:
    """A gain of speculation from a speed ratio on, and none below it.

    Attributes:
        when_ratio: the speed ratio.
        at_least: the gain to exceed, a fraction.
        only: the direction of the ratio that is gated; None for both.
        answers: above or below the ratio; both if the measured ratio may be either.
    """

    when_ratio: float
    at_least: float
    only: RatioDirection | None = None
    answers: tuple[GainAnswer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationGain:
    """The gain of speculation, with the speed ratio.

    Attributes:
        rule: what is asserted; None if the measurement was stopped.
        rates: of the target alone and with the draft, tok/s.
        break_even: the ratio from which the pair gains; None if there is none.
        mean_length: tokens that a round emits.
        verifying: cost of verifying a round, in steps of the target.
    """

    kind: ClassVar[str] = "speculation"

    rule: GainRule | None = None
    rates: VariantValues
    break_even: float | None = None
    mean_length: float
    verifying: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The first difference of two outputs for a prompt.

    Attributes:
        prompt: its index.
        category: of the prompt.
        position: of the token.
        tokens: of the target alone and with the draft.
        batched: by how much each token's logit is below the likeliest one's, in the batch.
        single: the same differences in a single step.
        is_tie: whether this is a near-tie.
    """

    prompt: int
    category: str
    position: int
    tokens: tuple[int, int]
    batched: tuple[float, float]
    single: tuple[float, float]
    is_tie: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SameTokens:
    """Output with a draft that is the target's own, up to near-ties.

    Attributes:
        n_prompts: that were generated after.
        parted: where outputs differ.
        near_tie: largest difference of logits in a near-tie.
        n_pairs: pairs of runs behind it, if there are several.
    """

    kind: ClassVar[str] = "tokens"

    n_prompts: int
    parted: tuple[Parting, ...] = ()
    near_tie: float
    n_pairs: int | None = None


@dataclass(frozen=True, slots=True)
class TextParting:
    """The first difference of two texts: prompt and character, from 1, and how both continue."""

    prompt: int
    character: int
    texts: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SameTexts:
    """Texts of two models that are equal.

    Attributes:
        n_prompts: that were generated after; 0 if the baseline does not repeat itself.
        n_same: after how many the texts are equal.
        n_tokens: of each text.
        parted: the first of those that differ.
    """

    kind: ClassVar[str] = "texts"

    n_prompts: int = 0
    n_same: int = 0
    n_tokens: int = 0
    parted: tuple[TextParting, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FitsMemory:
    """Models that fit in a memory.

    Attributes:
        fit: the sizes, and the memory.
        is_predicted: whether the sizes are not an engine's allocations.
        expected: predicted and allocated bytes of the weights and of the KV cache, if known.
    """

    kind: ClassVar[str] = "fit"

    fit: Fit
    is_predicted: bool = False
    expected: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Growth:
    """A part of the memory in both builds, bytes, and whether it grew too much."""

    label: str
    baseline: int
    candidate: int
    is_too_much: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGrowth:
    """The memory of two builds, which may grow by a tolerance and a difference of equal builds.

    Attributes:
        tolerance: accepted growth, a fraction.
        counted_slack: bytes that the engine's count may differ by.
        process_slack: bytes that a process's memory may differ by.
        left_slack: bytes that its requests may leave behind.
        parts: by the engine's count, then by the process.
    """

    kind: ClassVar[str] = "memory"

    tolerance: float
    counted_slack: int
    process_slack: int
    left_slack: int = 0
    parts: tuple[Growth, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SameVectors:
    """Vectors of texts: the candidate's against the baseline's, and alone against in a batch.

    Attributes:
        drift: the baseline's largest cosine distance of a text alone from it in a batch.
        between: the baseline's median cosine distance of two texts.
    """

    kind: ClassVar[str] = "vectors"

    drift: float
    between: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Differs:
    """A figure that differs from another device's by more than a share."""

    kind: ClassVar[str] = "differs"

    share: float
    device: str


@dataclass(frozen=True, slots=True)
class EngineFailure:
    """The way in which an engine failed, and the manner of its end if it is known."""

    did: str
    manner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsAsBaseline:
    """A candidate that can do what the baseline does.

    Attributes:
        failures: of the candidate; the baseline ran in between.
        max_seconds: the budget, if it was spent before the check began.
    """

    kind: ClassVar[str] = "runs"

    failures: tuple[EngineFailure, ...] = ()
    max_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A result in words: as reports print any result, and as earlier reports keep it.

    Attributes:
        threshold: the assertion's limit, such as `below 1 %`.
        bound: the limit in a table: `< 1 %`.
        measured: the result, in one phrase.
        brief: the result in a table.
        why: why it is not decided, in a few words.
        rests_on: the basis of the result, if it is no number of observations.
        details: further remarks, one line each.
    """

    kind: ClassVar[str] = "words"

    threshold: str = ""
    bound: str = ""
    measured: str = ""
    brief: str = ""
    why: str = ""
    rests_on: str = ""
    details: tuple[str, ...] = ()


AnyResult: TypeAlias = (
    WithinLimits
    | WithinTolerance
    | Every
    | Ordered
    | ParetoFront
    | SpeculationGain
    | SameTokens
    | SameTexts
    | FitsMemory
    | MemoryGrowth
    | SameVectors
    | Differs
    | RunsAsBaseline
    | Words
)
