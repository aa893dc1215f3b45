"""Workloads: `pp512`, `tg128@d1024`, `ttft512`, `itl128`, `pp512+tg128`, `tg128@c4`, `jtg128`.

With suffixes: `tg128@after20`, `tg128@topk0`, `ttft512@warm`, and in gates `ttft512@p95`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Literal

from pytest_asperf.errors import ConfigError, shown, suggest

LoadKind = Literal["load", "load@cold", "reload"]
WorkloadKind = Literal["pp", "tg", "itl", "ttft", "request", "sd", LoadKind]

#: The measured workload if none is named.
DEFAULT_WORKLOAD: Final = "tg128"

_KINDS: Final[dict[str, WorkloadKind]] = {"pp": "pp", "tg": "tg", "itl": "itl", "ttft": "ttft"}

#: Loads of a model until the first output token: of a fresh process with the model's file in the
#: file cache, the same with the file out of it, and again in one process.
_LOADS: Final[tuple[LoadKind, ...]] = ("load", "load@cold", "reload")

#: Prefix of a workload whose energy is judged.
_METERED: Final = "j"

#: Earlier requests, users, sampling, a prompt just read, and in gates a percentile.
_SUFFIXES: Final = (
    r"(@after(?P<after>[1-9]\d{0,3}))?(@c(?P<users>[1-9]\d{0,3}))?(@(?P<sampled>topk0|grammar))?"
    r"(?P<warm>@warm)?(@p(?P<percentile>[5-9]\d))?"
)

_WORKLOAD: Final = re.compile(
    rf"(?P<kind>pp|tg|itl|ttft)(?P<tokens>[1-9]\d{{0,6}})(@d(?P<depth>\d{{1,7}}))?{_SUFFIXES}"
)

#: A prompt and at least two tokens after it: TTFT times the first one.
_REQUEST: Final = re.compile(
    rf"pp(?P<prompt>[1-9]\d{{0,6}})\+tg(?P<tokens>[2-9]|[1-9]\d{{1,6}}){_SUFFIXES}"
)


@dataclass(frozen=True, slots=True)
class Workload:
    """One timed piece of work: `pp512`, `tg128`, `tg128@d1024`, `ttft512`, `pp512+tg128`."""

    #: `pp`, tokens of a prompt in batches; `tg`, tokens one at a time; `itl`, the same, judged by
    #: the time of each; `ttft`, a prompt until its first output token is chosen; `request`, a
    #: prompt and all output tokens; `sd`, tokens generated with a draft; `load`, `load@cold` and
    #: `reload`, a load
    kind: WorkloadKind
    n_tokens: int  #: tokens counted and timed; of a request, its output
    #: tokens of context in the KV cache beforehand, prefilled untimed; of a request, the prompt,
    #: which is timed
    depth: int = 0
    users: int = 1  #: number of users with simultaneous requests to a server
    metered: bool = False  #: whether its energy is judged, in J per token, and not its time
    #: whether the server has just read the prompts, so that they are in its cache
    warm: bool = False
    percentile: int = 0  #: of the requests, or tokens, of a pair that is judged; 0 for the median
    #: of `pp` and `tg`, whether the time of a prompt or a token is judged, and not the rate
    timed: bool = False
    after: int = 0  #: untimed requests that its process answers first; see `before`
    #: how a token is sampled after each, timed too: `topk0`, of the whole vocabulary, or `grammar`;
    #: empty for as its engine is used by default
    sampled: str = ""

    @property
    def name(self) -> str:
        """The name in a test's request."""
        if self.kind == "sd" or self.is_load:
            return self.kind
        suffixes = f"@after{self.after}" if self.after else ""
        suffixes += f"@c{self.users}" if self.users > 1 else ""
        suffixes += f"@{self.sampled}" if self.sampled else ""
        suffixes += "@warm" * self.warm + (f"@p{self.percentile}" if self.percentile else "")
        if self.kind == "request":
            return f"pp{self.depth}+tg{self.n_tokens}{suffixes}"
        depth = f"@d{self.depth}" if self.depth else ""
        return f"{_METERED if self.metered else ''}{self.kind}{self.n_tokens}{depth}{suffixes}"

    @property
    def is_rate(self) -> bool:
        """True if it is judged by tokens per second, or J per token; otherwise by a time."""
        return self.kind in {"pp", "tg"} and not self.timed

    @property
    def unit(self) -> str:
        """The unit of its judgement."""
        return "J/token" if self.metered else "tok/s" if self.is_rate else "ms"

    @property
    def is_load(self) -> bool:
        """True if a load is timed."""
        return self.kind in _LOADS

    @property
    def generates(self) -> bool:
        """True if tokens are timed one at a time, and no prompt."""
        return self.kind in {"tg", "itl"}

    @property
    def is_of_encoders(self) -> bool:
        """True if it has a meaning for an encoder, which computes the vector of a whole text."""
        return self.kind == "pp" and not self.depth and not self.after

    @property
    def is_prompt(self) -> bool:
        """True if only a prompt is timed."""
        return self.kind in {"pp", "ttft"}

    @property
    def is_judged_whole(self) -> bool:
        """True if the cost of a run is not divided by its tokens."""
        return bool(self.percentile) or not (self.is_rate or self.generates)

    def n_compared(self, n_tokens: int) -> int:
        """The tokens that the cost of a run of so many is divided by; 1 if it is judged whole.

        A rate is that of all users together, and the time of a token that of one user.
        """
        if self.is_judged_whole:
            return 1
        return n_tokens if self.is_rate else n_tokens // self.users

    @property
    def n_counted(self) -> int:
        """The tokens of a run, of all users together."""
        return self.n_tokens * self.users

    @property
    def n_ctx(self) -> int:
        """The tokens of a run, and those in the context beforehand."""
        return self.depth + self.n_tokens

    @property
    def before(self) -> tuple[Workload, ...]:
        """The untimed requests before it: a long prompt, and then short ones with a reply."""
        return (_LONG, *(_SHORT,) * (self.after - 1)) if self.after else ()

    @property
    def room(self) -> int:
        """The context that a run and the requests before it need, in tokens."""
        return max(request.n_ctx for request in (self, *self.before))


#: Names that a misspelt one is compared with.
EXAMPLES: Final = (
    "pp512",
    "tg128",
    "tg128@d4096",
    "tg128@after20",
    "tg128@topk0",
    "ttft512",
    "pp512+tg128",
)

#: The first request of those before a workload, and each further one.
_LONG: Final = Workload("ttft", 1024)
_SHORT: Final = Workload("request", 8, depth=64)


def _judged(in_test: str, name: str) -> str:
    """The remedy for a workload that another measurement accepts, in a test and in a command."""
    return f"write {in_test}; in a terminal `asperf gate --workload {name}`"


def is_workload(name: str) -> bool:
    """True if it is a workload's name, and not words."""
    return name in _LOADS or _WORKLOAD.fullmatch(name.removeprefix(_METERED)) is not None


def parse_workload(
    name: str, *, where: str, any_cost: bool = False, may_be_load: bool = False
) -> Workload:
    """Read a workload's name; a ConfigError shows the forms that there are.

    Energies and percentiles are names for callers that accept any cost, such as gates, and loads
    for those that allow them.
    """
    name = str(name)  # a test may give anything
    for kind in _LOADS:
        if name == kind and may_be_load:
            return Workload(kind, 1)
        if name == kind:
            raise ConfigError(
                f"{where}: {name} is the time of a load",
                remedy=_judged(f'in a test latency("{name}")', name),
            )
    if re.match(f"{_METERED}(pp|tg)", name):
        plain = name.removeprefix(_METERED)
        timed = metered(parse_workload(plain, where=where), where=where)
        if any_cost:
            return timed
        raise ConfigError(
            f"{where}: {timed.name} is an energy",
            why="J per token are read from counters over many runs",
            remedy=_judged(f'in a test energy("{plain}"), or gate("{timed.name}")', timed.name),
        )
    workload = _named(name)
    if workload is None:
        raise ConfigError(
            f"{where}: {shown(name, 80)} is not a workload{suggest(name, EXAMPLES)}",
            remedy="write a name such as tg128, pp512, ttft512 or tg128@d4096; docs/workloads.md "
            "lists all",
        )
    if workload.percentile and not any_cost:
        plain = replace(workload, percentile=0).name
        raise ConfigError(
            f"{where}: {workload.name} is a percentile, which is judged in pairs",
            why="a percentile of one server has an interval of its own kind",
            remedy=_judged(
                f'in a test gate("{name}"), or '
                f'latency("{plain}").percentile({workload.percentile})',
                name,
            ),
        )
    return workload


def _named(name: str) -> Workload | None:
    """The workload of a name; None if it is no such name."""
    match = _REQUEST.fullmatch(name) or _WORKLOAD.fullmatch(name)
    if match is None:
        return None
    found = match.groupdict()
    kind: WorkloadKind = _KINDS[found["kind"]] if "kind" in found else "request"
    workload = Workload(
        kind,
        int(found["tokens"]),
        int(found.get("prompt") or found.get("depth") or 0),
        int(found["users"] or 1),
        warm=found["warm"] is not None,
        sampled=found["sampled"] or "",
        after=int(found["after"] or 0),
        percentile=int(found["percentile"] or 0),
    )
    is_sound = (
        not (kind == "ttft" and workload.depth)
        and not (workload.warm and kind != "ttft")
        and not (workload.sampled and not workload.generates)
        and not (workload.percentile and workload.is_rate)
    )
    return workload if is_sound else None


def metered(timed: Workload, *, where: str, may_be_request: bool = False) -> Workload:
    """The energy of a workload, of one phase or, for its power, of a whole request."""
    if not (timed.is_rate or (may_be_request and timed.kind == "request")):
        raise not_one_phase(timed, where)
    return replace(timed, metered=True)


def not_one_phase(workload: Workload, where: str) -> ConfigError:
    """The error of J per token of a workload that is not of one phase."""
    return ConfigError(
        f"{where}: {replace(workload, metered=False).name} is not one phase, prefill or decoding",
        why="they differ in power, and J per token are those of one of them",
        remedy="measure pp512 and tg128 each by itself (in a gate jpp512 and jtg128); in a test a "
        'whole request has a mean power: energy("pp512+tg128").power',
    )
