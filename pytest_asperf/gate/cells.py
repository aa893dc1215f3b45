"""The checks of a gate: one model, with its engine settings, and one workload, under two builds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal, get_args

from pytest_asperf.analysis.outcome import NOT_RUN
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.config.spec import ModelRef, Pairing
from pytest_asperf.config.workload import EXAMPLES, Workload, parse_workload
from pytest_asperf.errors import AsperfError, ConfigError, shown, suggest

CheckKind = Literal["ppl", "kld", "logits", "embeddings", "memory", "sd"]


@dataclass(frozen=True, slots=True)
class GateCheck:
    """A check of a gate that is not the time of one model."""

    #: `ppl`; `kld`, the candidate's distribution against the baseline's; `logits`, prefill against
    #: decoding; `embeddings`, the vectors of texts; `memory`, allocations of both builds; or `sd`,
    #: speculation
    kind: CheckKind
    depth: int = 0  #: tokens of context before those that are scored; 0 for as few as usual
    users: int = 1  #: sequences that are computed together, if each is compared with itself alone
    #: True if the replies of conversations are compared with equal prompts on their own
    turns: bool = False

    PPL: ClassVar[GateCheck]
    KLD: ClassVar[GateCheck]
    LOGITS: ClassVar[GateCheck]
    EMBEDDINGS: ClassVar[GateCheck]
    MEMORY: ClassVar[GateCheck]
    SPECULATION: ClassVar[GateCheck]

    def __str__(self) -> str:
        """The name that a user gives it."""
        depth = f"@d{self.depth}" if self.depth else ""
        users = f"@c{self.users}" if self.users > 1 else ""
        return f"{self.kind}{depth}{users}{'@turns' * self.turns}"

    @property
    def scores_chunks(self) -> bool:
        """True if it scores chunks of a text, which serve all such checks of a model at a depth."""
        return self.kind in {"ppl", "kld"}


_CHECKS: Final = tuple(map(GateCheck, get_args(CheckKind)))
(
    GateCheck.PPL,
    GateCheck.KLD,
    GateCheck.LOGITS,
    GateCheck.EMBEDDINGS,
    GateCheck.MEMORY,
    GateCheck.SPECULATION,
) = _CHECKS

#: The checks that may be made after a context.
_PLACED: Final = frozenset({"ppl", "kld", "logits", "memory"})
_AT: Final = re.compile(r"(?P<kind>[a-z]+)@d(?P<depth>[1-9]\d{0,6})")
_TOGETHER: Final = re.compile(r"logits@c(?P<users>[2-9]|[1-5]\d|6[0-4])")
_EXAMPLES: Final = (
    *get_args(CheckKind),
    "ppl@d1024",
    "kld@d1024",
    "logits@d1024",
    "logits@c4",
    "logits@turns",
    *EXAMPLES,
    "jtg128",
)


@dataclass(frozen=True, slots=True)
class GateCell:
    """One thing that a gate decides."""

    ref: ModelRef  #: the model, with the engine settings that it runs with
    workload: Workload | GateCheck  #: the timed or checked work
    #: of speculation, the model as the target and its draft; None for lookup in the text
    pairing: Pairing | None = None

    @property
    def name(self) -> str:
        """The workload's name."""
        return self.workload.name if isinstance(self.workload, Workload) else str(self.workload)

    @property
    def what(self) -> str:
        """The model, with the settings that its title leaves out."""
        if self.workload == GateCheck.SPECULATION:
            return (self.pairing or Pairing(self.ref, None)).label
        flash = self.ref.spec.settings.flash_attn
        return f"{self.ref.title}{f' flash attention {flash}' if flash else ''}"

    @property
    def shares_error(self) -> bool:
        """True if its verdict shares the error of a FAIL with others.

        A value that is computed once cannot be wrong by chance, and `kld` has an error of its own.
        """
        return not isinstance(self.workload, GateCheck) or self.workload.kind in {"ppl", "sd"}


@dataclass(frozen=True, slots=True)
class Outlook:
    """The remaining need of an undecided check, as far as its measurements show."""

    n: int  #: how many units were measured
    counted: str  #: their unit, such as ``pairs``
    spent_s: float  #: seconds of these pairs
    units_left: int | None  #: units that would decide it, None if more would not
    #: robust standard deviation of log ratios from pair to pair; None of other units
    spread: float | None = None
    once_s: float = 0.0  #: of the seconds, those that no further unit needs

    @property
    def unit_s(self) -> float:
        """Seconds per pair."""
        return (self.spent_s - self.once_s) / max(1, self.n)

    @property
    def expected_s(self) -> float | None:
        """Seconds that would decide it."""
        return None if self.units_left is None else self.units_left * self.unit_s


@dataclass(frozen=True, slots=True)
class CellResult:
    """The result of a check."""

    cell: GateCell  #: the check
    elapsed_s: float  #: its duration, loads included
    verdict: Verdict | None = None  #: the verdict, None if it could not be measured
    #: the reason why it could not, or the fault of the measurement
    error: AsperfError | None = None
    note: str = ""  #: remarks on the machine, for any verdict, one a line
    interrupted: bool = False  #: whether it was stopped from outside
    outlook: Outlook | None = None  #: the remaining need; None once it is decided
    #: the change of PPL, the KLD, or the change of the total time for any deciding cost, so that
    #: gates can be compared; None if nothing was measured, or several things were
    effect: Estimate | None = None

    @property
    def word(self) -> str:
        """The verdict in a word."""
        return NOT_RUN if self.verdict is None else str(self.verdict.outcome)

    @property
    def counted(self) -> str:
        """The number of pairs, chunks or prompts behind the verdict."""
        figures = () if self.verdict is None else self.verdict.figures
        # Figures that were decided one after the other count the same chunks.
        counts = sorted((one.estimate for one in figures), key=lambda estimate: estimate.n)
        most = {one.counted: one.basis for one in counts if one.basis}
        return ", ".join(sorted(most.values()))

    def unbroken(self) -> Verdict:
        """The verdict, unless the measurement broke; AsperfError if it did, or there was none."""
        if self.error is not None:
            raise self.error
        if self.verdict is None:
            raise ValueError(f"{self.cell.name} has neither a verdict nor an error")
        return self.verdict


def parse_gated(name: str, *, where: str) -> Workload | GateCheck:
    """Read the name of a gate's check; ConfigError if it names nothing that a gate can decide."""
    name = str(name)  # a test may give anything
    for check in _CHECKS:
        if name == str(check):
            return check
        if (match := _AT.fullmatch(name)) and match["kind"] == check.kind in _PLACED:
            return replace(check, depth=int(match["depth"]))
    if match := _TOGETHER.fullmatch(name):
        return replace(GateCheck.LOGITS, users=int(match["users"]))
    if name == "logits@turns":
        return replace(GateCheck.LOGITS, turns=True)
    try:
        return parse_workload(name, where=where, any_cost=True, may_be_load=True)
    except ConfigError as error:
        raise ConfigError(
            f"{where}: {shown(name, 80)} is not a workload{suggest(name, _EXAMPLES)}",
            why=error.why,
            remedy="write names such as tg128,pp512,ttft512,ppl,kld; docs/workloads.md lists all",
        ) from None


def shared_by(cells: Iterable[GateCell]) -> int:
    """The number of checks that share the error."""
    return max(1, sum(cell.shares_error for cell in cells))
