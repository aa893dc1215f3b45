"""Workloads: `pp512`, `tg128@d1024`, `ttft512`, `pp512+tg128`, `jtg128`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Literal

from pytest_asperf.errors import ConfigError, shown

WorkloadKind = Literal["pp", "tg", "ttft", "request", "sd"]

#: What is measured where none is named.
DEFAULT_WORKLOAD: Final = "tg128"

#: Begins the name of a workload whose energy is judged.
_METERED: Final = "j"

_KINDS: Final[dict[str, WorkloadKind]] = {"pp": "pp", "tg": "tg", "ttft": "ttft"}

_WORKLOAD: Final = re.compile(
    r"(?P<kind>pp|tg|ttft)(?P<tokens>[1-9]\d{0,6})(@d(?P<depth>\d{1,7}))?"
)

#: A prompt and at least two tokens after it: the first one is what TTFT times.
_REQUEST: Final = re.compile(r"pp(?P<prompt>[1-9]\d{0,6})\+tg(?P<tokens>[2-9]|[1-9]\d{1,6})")


@dataclass(frozen=True, slots=True)
class Workload:
    """One timed piece of work: `pp512`, `tg128`, `tg128@d1024`, `ttft512`, `pp512+tg128`.

    Attributes:
        kind: `pp`, tokens of a prompt in batches; `tg`, tokens one at a time; `ttft`, a prompt
            until its first output token is chosen; `request`, a prompt and all output tokens;
            `sd`, tokens generated with a draft.
        n_tokens: tokens counted and timed; of a request, its output.
        depth: tokens of context in the KV cache beforehand, prefilled untimed; of a request, the
            prompt, which is timed.
        metered: whether its energy is judged, in J per token, and not its time.
    """

    kind: WorkloadKind
    n_tokens: int
    depth: int = 0
    metered: bool = False

    @property
    def name(self) -> str:
        """The name that a test asks for."""
        if self.kind == "sd":
            return self.kind
        if self.kind == "request":
            return f"pp{self.depth}+tg{self.n_tokens}"
        metered = _METERED if self.metered else ""
        return f"{metered}{self.kind}{self.n_tokens}" + (f"@d{self.depth}" if self.depth else "")

    @property
    def is_rate(self) -> bool:
        """Whether it is judged by a token's cost; else by the time of a run."""
        return self.kind in {"pp", "tg"}

    @property
    def n_ctx(self) -> int:
        """The context it needs, in tokens."""
        return self.depth + self.n_tokens


def is_workload(name: str) -> bool:
    """Whether it is a workload's name, and not words."""
    return _WORKLOAD.fullmatch(name.removeprefix(_METERED)) is not None


def parse_workload(name: str, *, where: str, may_be_energy: bool = False) -> Workload:
    """Read a workload's name; a ConfigError shows the forms that there are.

    An energy is one too, but for those that allow it.
    """
    if re.match(f"{_METERED}(pp|tg)", name):
        timed = metered(parse_workload(name.removeprefix(_METERED), where=where), where=where)
        if may_be_energy:
            return timed
        raise ConfigError(
            f"{where}: {timed.name} is an energy",
            why="J per token are read from counters over many runs",
            remedy=f'take the energy fixture, or gate("{timed.name}")',
        )
    if request := _REQUEST.fullmatch(name):
        return Workload("request", int(request["tokens"]), int(request["prompt"]))
    match = _WORKLOAD.fullmatch(name)
    if match is None or (match["kind"] == "ttft" and match["depth"]):
        raise ConfigError(
            f"{where}: {shown(name, 80)} is not a workload",
            why="the name says what is timed: prompt or generation, how many tokens, at what depth",
            remedy="write pp512, tg128, tg128@d1024 (generation after 1024 tokens of context), or "
            "ttft512 (a prompt of 512 tokens until the first output token), pp512+tg128 (a whole "
            "request); jtg128 for its energy",
        )
    kind: WorkloadKind = _KINDS[match["kind"]]
    return Workload(kind, int(match["tokens"]), int(match["depth"] or 0))


def metered(timed: Workload, *, where: str) -> Workload:
    """The energy of a workload, which must hold one phase; else a ConfigError."""
    if not timed.is_rate:
        raise ConfigError(
            f"{where}: {timed.name} is not one phase, prefill or decoding",
            why="they differ in power, and J per token are those of one of them",
            remedy="measure pp512 and tg128 each by itself (in a gate jpp512 and jtg128)",
        )
    return replace(timed, metered=True)
