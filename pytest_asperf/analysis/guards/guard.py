"""Every guard, with its remedy and the assertions that it voids, and the finding if it trips."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from pytest_asperf.analysis.stats.estimate import number_text
from pytest_asperf.errors import Advice, advised


class Consequence(StrEnum):
    """The effect of a tripped guard on the verdict on an assertion that it voids."""

    INVALID = "INVALID"
    INCONCLUSIVE = "INCONCLUSIVE"
    WARNING = "WARNING"


class Voids(StrEnum):
    """The assertions that a tripped guard voids. For every other assertion it is a warning."""

    ALL = "every assertion"
    ALL_BUT_OUTPUT = "every assertion, except that the output is the target's own"
    #: `stats.reach` decides whether the spread reaches a limit.
    SPREAD_SENSITIVE = "rates and times, if the spread of the runs reaches the limit"
    #: Other load makes runs slower and less steady, and adds to the energy of shared rails.
    LOAD_SENSITIVE = "rates, times, energies and CVs, if an idle machine could change the outcome"


class Guard(StrEnum):
    """A guard, by its short name."""

    remedy: str | Advice  #: what to do if it trips
    consequence: Consequence  #: effect on the verdict, if the evidence is not weaker
    voids: Voids  #: the assertions that it voids

    def __new__(
        cls,
        name: str,
        remedy: str | Advice,
        consequence: Consequence = Consequence.INVALID,
        voids: Voids = Voids.ALL,
    ) -> Self:
        """A guard with all that it carries."""
        guard = str.__new__(cls, name)
        guard._value_ = name
        guard.remedy, guard.consequence, guard.voids = remedy, consequence, voids
        return guard

    # The run record.
    PATH_MISMATCH = (
        "path-mismatch",
        "use an engine build or a model that can do it (asperf doctor), or request its settings",
    )
    IDENTICAL_TO_BASELINE = "identical-to-baseline", "name two models or files that differ"
    UNEQUAL_WORK = (
        "unequal-work",
        "measure both variants again, with equal prompts and token counts",
    )
    UNEQUAL_DEFINITION = "unequal-definition", "compare two figures that have one definition"
    ESTIMATE = "estimate", "measure it, or name a measured figure", Consequence.INCONCLUSIVE
    DECODE_ERRORS = "decode-errors", "look for the reason in the engine's log, and measure again"
    BROKEN_LOGITS = (
        "broken-logits",
        "compare the model file with its source; if it is intact, measure another build",
    )
    CRASHED = "program-crashed", "read the end of the log for the reason, and measure again"
    TIMED_WORK = (
        "timed-work",
        "look for what the build skips, or keeps from earlier calls, when nobody reads its logits",
    )
    GPU_LIMITS = (
        "gpu-limits",
        "measure on a Mac's own GPU with a model that fits, or on the CPU (n_gpu_layers = 0)",
        Consequence.WARNING,
    )
    UNCHECKED_GAIN = (
        "unchecked-gain",
        "gate the same build with an engine that shows its logits: llama_cpp, or mlx",
        Consequence.INCONCLUSIVE,
    )
    # Bounds.
    ROOFLINE_HIGH = (
        "roofline-high",
        Advice("look for skipped steps in the engine's log, or name its hardware", "hardware"),
    )
    ROOFLINE_LOW = "roofline-low", "look for a fallback in the engine's log", Consequence.WARNING
    SD_BOUND = "sd-bound", "check the counts of drafted and accepted tokens, and measure again"
    PREDICTED_AGAINST_MEASURED = (
        "predicted-against-measured",
        "rely on the measurement instead of the prediction",
        Consequence.WARNING,
    )
    TOKEN_ACCOUNTING = "token-accounting", "divide only the generated tokens by their time"
    # Output.
    DIVERGENT_OUTPUT = (
        "divergent-output",
        "look for a cache that is not rolled back, or kernels with other logits for batches",
        Consequence.INVALID,
        Voids.ALL_BUT_OUTPUT,
    )
    DEGENERATE_OUTPUT = (
        "degenerate-output",
        "read the text, and measure with prompts that the model can answer",
        Consequence.WARNING,
    )
    # Scores.
    BASELINE_KNOWS_NOTHING = (
        "baseline-knows-nothing",
        "get the baseline's file again, and generate some text with it",
    )
    IMPOSSIBLE_GAIN = (
        "impossible-gain",
        "get a sound baseline (file or build); declare a fine-tuned model under a name of its own",
    )
    LOSSLESS_BY_CONSTRUCTION = (
        "lossless-by-construction",
        "name a quantization that can differ from its baseline",
        Consequence.WARNING,
    )
    BASELINE_DRIFTS = ("baseline-drifts", "gate another model, or name the checks without this one")
    # The machine.
    SPREAD = (
        "spread",
        Advice("quieten the machine (asperf doctor) and repeat, or accept it", "max_cv"),
        Consequence.INCONCLUSIVE,
        Voids.SPREAD_SENSITIVE,
    )
    HOST_BUSY = (
        "host-busy",
        "stop other programs on the machine (asperf doctor), and repeat",
        Consequence.INVALID,
        Voids.LOAD_SENSITIVE,
    )
    THROTTLED = (
        "throttled",
        "wait until the machine has cooled; check its fans and power limit (asperf doctor)",
    )
    # Energy.
    DEAD_COUNTER = "dead-counter", "check the counter with the system's own tool; update its driver"
    SHORT_WINDOW = "short-window", "run it again: the counter was published more rarely than before"
    IMPURE_WINDOW = "impure-window", "meter the phase alone, with a longer workload or larger model"
    COUNTER_AGAINST_POWER = (
        "counter-against-power",
        "update the driver, and compare with the system's own tool",
    )
    RAIL_COVERAGE = (
        "rail-coverage",
        "make the rail readable (asperf doctor), or assert on another one",
    )
    JOULES_PER_TOKEN = "joules-per-token", "compare J per token instead of W", Consequence.WARNING
    # Servers.
    CACHED_PROMPT = (
        "cached-prompt",
        "use llama-server --cache-ram 0 --no-cache-prompt, or mlx_lm.server --prompt-cache-size 0",
    )
    NOT_REUSED = (
        "not-reused",
        "have the server keep prompts (llama-server: --cache-prompt), or assert without @warm",
    )
    FALSE_ACCOUNT = (
        "false-account",
        "report it to the server with one of its replies: its figures contradict what it sent",
    )
    FAILED_REQUESTS = (
        "failed-requests",
        "read the server's log, and restart it if it has failed; or send fewer requests at once",
    )
    OTHER_LENGTH = "other-length", "use a server that stops at the requested length"
    TOKENS_PER_CHUNK = (
        "tokens-per-chunk",
        "assert on the rate (tg128) or TTFT: no single tokens arrive",
    )
    ROLE_CHUNK = "role-chunk", "check what the server sends first: TTFT would end before a token"
    CONTEXT_CUT = "context-cut", "give the server a longer context, or request a shorter prompt"
    NOT_TIMED = "not-timed", "measure again; a server must stream its replies"
    QUEUEING = "queueing", "request fewer users, or give each a slot (llama-server: parallel)"
    SERVER_RESTARTED = "server-restarted", "find out why the server restarted, and measure it again"
    CLIENT_BOUND = (
        "client-bound",
        "stop other programs, request fewer users, or run the client on another machine",
    )
    COORDINATED_OMISSION = (
        "coordinated-omission",
        "count latency from the schedule, or send without a limit on requests under way",
        Consequence.WARNING,
    )

    def finding(
        self, found: str, rule: str, consequence: Consequence | None = None
    ) -> GuardFinding:
        """The finding that it tripped."""
        return GuardFinding(self, consequence or self.consequence, found, rule)


@dataclass(frozen=True, slots=True)
class GuardFinding:
    """A guard that tripped."""

    guard: str  #: its name
    consequence: Consequence  #: effect on the verdict
    found: str  #: what happened, one sentence with its figures
    rule: str  #: the rule that it breaks, with its constant

    def __str__(self) -> str:
        return f"{self.guard}: {self.found} ({self.rule})"

    @property
    def advice(self) -> Advice:
        """The remedy, and the settings to change for it."""
        return advised(_NAMED[self.guard].remedy)

    @property
    def remedy(self) -> str:
        """The remedy in words."""
        return str(self.advice)

    @property
    def voids(self) -> Voids:
        """The assertions that it voids."""
        return _NAMED[self.guard].voids


#: Guards by their names.
_NAMED: Final = {str(guard): guard for guard in Guard}


def figure(value: float) -> str:
    """A number with at least four digits, without an exponent if it is large."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else number_text(value, 4)


def require_positive(**values: float) -> None:
    """Raise ValueError for figures that are not positive and finite."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} = {value} is not a positive number")
