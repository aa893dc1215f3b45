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
    """The limit that a quantity is compared with."""

    operator: Operator  #: compares the quantity with it
    value: float  #: in `unit`
    unit: str  #: that the verdict is shown in
    factor: float = 1.0  #: of the quantity's own unit in `unit`

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
    """The values that a figure was made of, in the order that they are shown."""

    #: of the first and the second variant, or one value before its change
    values: tuple[float, ...]
    unit: str = ""  #: of the values
    is_change: bool = True  #: True if the second variant replaces the first


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinLimits:
    """One figure, compared with limits; no figure if nothing was finished."""

    kind: ClassVar[str] = "limits"

    limits: Limits  #: one, or a lower and an upper one
    variants: VariantValues | None = None  #: the values behind the figure, if they are shown
    counted: str = ""  #: a unit of the measurement, such as `chunk`
    out_of: int | None = None  #: the number of such units that there are
    baseline: float | None = None  #: the baseline's own value of the same quantity
    where: Estimate | None = None  #: the quantity that decides if there should be an effect
    faster_by: float | None = None  #: the gain that the limit is made of, a fraction
    metered: bool = False  #: whether the gain is one of energy


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinTolerance:
    """A cost that may grow by a tolerance."""

    kind: ClassVar[str] = "tolerance"

    tolerance: float  #: accepted growth, a fraction
    fails_above: float  #: smallest growth that can FAIL, a fraction
    #: that is compared; of several run pairs, their total time if it decides
    cost: Literal["time", "total time", "energy"] = "time"
    #: of baseline and candidate; None if no pair was finished
    variants: VariantValues | None = None
    mean: float | None = None  #: the mean growth over the pairs, if it leaves the verdict open
    #: the change that is not compared: of the median pair, or of the total time
    other: Estimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One of several conditions."""

    label: str  #: its name
    outcome: Outcome  #: its own verdict
    result: AnyResult | None = None  #: the condition; None if nothing was asserted
    n_figures: int = 1  #: how many of the verdict's figures are the next part of this condition
    problem: str = ""  #: why there is no figure, or a guard's finding that overruled it


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """Several conditions that must all be true."""

    kind: ClassVar[str] = "every"

    parts: tuple[Part, ...] = ()  #: the conditions
    #: there should be an effect from this limit on, and none below it
    from_limit: Limit | None = None
    #: one limit on several figures, a limit for each of several quantities, a gate's checks of one
    #: workload, or evidence that a model ran on a device
    of: Literal["figures", "quantities", "checks", "evidence"] = "figures"
    further: tuple[Part, ...] = ()  #: evidence that does not count
    #: of each build, the accepted and the drafted tokens of a draft
    accepted: tuple[tuple[int, int], ...] = ()
    operations: int | None = None  #: the number of operations in a plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """A quantity that rises, or falls, along labels; a figure is the step to the next one."""

    kind: ClassVar[str] = "order"

    direction: Literal["rising", "falling"]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoFront:
    """A candidate that no other one dominates."""

    kind: ClassVar[str] = "pareto"

    objectives: tuple[str, ...]  #: names of the quantities
    others: tuple[str, ...]  #: names of the other candidates; each has a figure for each objective
    against: tuple[str, ...] = ()  #: those that dominate it, or that may


RatioDirection = Literal["above", "below"]
Answer = Literal["gain", "no gain", "not shown", "too few pairs", "not gated"]


@dataclass(frozen=True, slots=True)
class GainAnswer:
    """The answer above, or below, a rule's speed ratio."""

    direction: RatioDirection
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class GainRule:
    """A gain of speculation from a speed ratio on, and none below it."""

    when_ratio: float  #: the speed ratio
    at_least: float  #: the gain to exceed, a fraction
    only: RatioDirection | None = None  #: the direction of the ratio that is gated; None for both
    #: above or below the ratio; both if the measured ratio may be either
    answers: tuple[GainAnswer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationGain:
    """The gain of speculation, with the speed ratio."""

    kind: ClassVar[str] = "speculation"

    rule: GainRule | None = None  #: what is asserted; None if the measurement was stopped
    rates: VariantValues  #: of the target alone and with the draft, tok/s
    break_even: float | None = None  #: the ratio from which the pair gains; None if there is none
    mean_length: float  #: tokens that a round emits
    verifying: float  #: cost of verifying a round, in steps of the target


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The first difference of two outputs for a prompt."""

    prompt: int  #: its index
    category: str  #: of the prompt
    position: int  #: of the token
    tokens: tuple[int, int]  #: of the target alone and with the draft
    #: by how much each token's logit is below the likeliest one's, in the batch
    batched: tuple[float, float]
    single: tuple[float, float]  #: the same differences in a single step
    is_tie: bool  #: whether this is a near-tie


@dataclass(frozen=True, slots=True, kw_only=True)
class SameTokens:
    """Output with a draft that is the target's own, up to near-ties."""

    kind: ClassVar[str] = "tokens"

    n_prompts: int  #: that were generated after
    parted: tuple[Parting, ...] = ()  #: where outputs differ
    near_tie: float  #: largest difference of logits in a near-tie
    n_pairs: int | None = None  #: pairs of runs behind it, if there are several


@dataclass(frozen=True, slots=True)
class TextParting:
    """The first difference of two texts: prompt and character, from 1, and how both continue."""

    prompt: int
    character: int
    texts: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SameTexts:
    """Texts of two models that are equal."""

    kind: ClassVar[str] = "texts"

    n_prompts: int = 0  #: that were generated after; 0 if the baseline does not repeat itself
    n_same: int = 0  #: after how many the texts are equal
    n_tokens: int = 0  #: of each text
    parted: tuple[TextParting, ...] = ()  #: the first of those that differ


@dataclass(frozen=True, slots=True, kw_only=True)
class FitsMemory:
    """Models that fit in a memory."""

    kind: ClassVar[str] = "fit"

    fit: Fit  #: the sizes, and the memory
    is_predicted: bool = False  #: whether the sizes are not an engine's allocations
    #: predicted and allocated bytes of the weights and of the KV cache, if known
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
    """The memory of two builds, which may grow by a tolerance and a difference of equal builds."""

    kind: ClassVar[str] = "memory"

    tolerance: float  #: accepted growth, a fraction
    counted_slack: int  #: bytes that the engine's count may differ by
    process_slack: int  #: bytes that a process's memory may differ by
    left_slack: int = 0  #: bytes that its requests may leave behind
    parts: tuple[Growth, ...]  #: by the engine's count, then by the process


@dataclass(frozen=True, slots=True, kw_only=True)
class SameVectors:
    """Vectors of texts: the candidate's against the baseline's, and alone against in a batch."""

    kind: ClassVar[str] = "vectors"

    drift: float  #: the baseline's largest cosine distance of a text alone from it in a batch
    between: float  #: the baseline's median cosine distance of two texts


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
    """A candidate that can do what the baseline does."""

    kind: ClassVar[str] = "runs"

    failures: tuple[EngineFailure, ...] = ()  #: of the candidate; the baseline ran in between
    max_seconds: float | None = None  #: the budget, if it was spent before the check began


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A result in words, as reports print any result."""

    kind: ClassVar[str] = "words"

    threshold: str = ""  #: the assertion's limit, such as `below 1 %`
    bound: str = ""  #: the limit in a table: `< 1 %`
    measured: str = ""  #: the result, in one phrase
    brief: str = ""  #: the result in a table
    why: str = ""  #: why it is not decided, in a few words
    rests_on: str = ""  #: the basis of the result, if it is no number of observations
    details: tuple[str, ...] = ()  #: further remarks, one line each


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
