"""Hypothesis strategies for engines: prompts, workloads, settings, quantizations, sweeps.

A property is an assertion about every input, such as "any prompt: speculation is lossless".
Hypothesis draws inputs, and on a failure finds a small one. `bounded` limits their number and their
time. Needs `pip install 'pytest-asperf[properties]'`.
"""

import functools
import time
from typing import Any, Final, TypeVar

try:
    import hypothesis
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError(
        "pytest_asperf.strategies needs hypothesis, which is not installed: "
        "pip install 'pytest-asperf[properties]'"
    ) from error

from collections.abc import Callable

from hypothesis.strategies import SearchStrategy

from pytest_asperf.config.engines import LLAMA_FTYPES, Engine, level_engines, parse_engine
from pytest_asperf.errors import ConfigError, printable
from pytest_asperf.modelfiles.levels import NEED_IMPORTANCE
from pytest_asperf.modelfiles.sizes import bits_per_weight

__all__ = ["bits", "bounded", "ladders", "prompts", "quants", "settings", "workloads"]

Test = TypeVar("Test", bound="Callable[..., Any]")

#: Pieces of text in which tokenizers and kernels have differed: code, digits, spaces, scripts
#: without spaces, letters of several tokens.
_PIECES: Final = (
    "a", "0", " ", "\n", "the quick brown fox", "def area(width, height):\n    return width",
    "1234567890", "    ", "\t", "{}[]();", "Grüße", "日本語", "🙂", "e\u0301", "<|end|>", "\\n",
)  # fmt: skip
_LONG_PIECES: Final = tuple(piece for piece in _PIECES if len(piece) > 1)
_MLX_LEVELS: Final = ("8bit", "6bit", "5bit", "4bit-g32", "4bit", "3bit")
_BATCHES: Final = (512, 256, 128, 64, 32, 16)


def prompts(max_chars: int = 200) -> SearchStrategy[str]:
    """Texts of 2 characters or more: code, prose, digits, white space and several scripts.

    A failing prompt shrinks to few and simple characters.
    """
    letters = st.characters(codec="utf-8", exclude_characters="\0")
    pieces = st.one_of(st.sampled_from(_PIECES), st.text(letters, min_size=1, max_size=20))
    first = st.one_of(st.text(letters, min_size=2, max_size=20), st.sampled_from(_LONG_PIECES))

    @st.composite  # an error then shows the text, and not how it was put together
    def text(draw: st.DrawFn) -> str:
        return "".join([draw(first), *draw(st.lists(pieces, max_size=10))])[: max(2, max_chars)]

    return text()


def workloads(max_tokens: int = 64, max_depth: int = 128) -> SearchStrategy[str]:
    """Names of workloads, such as `pp48` and `tg16@d100`."""
    tokens, depths = st.integers(1, max_tokens), st.integers(0, max_depth)
    return st.builds(
        lambda kind, n, depth: f"{kind}{n}" + (f"@d{depth}" if depth else ""),
        st.sampled_from(("tg", "pp")),
        tokens,
        depths,
    )


def settings(engine: str) -> SearchStrategy[dict[str, Any]]:
    """Engine settings under which logits must stay the same: batches, threads, flash attention.

    Types of the KV cache change logits by their nature and are not drawn.
    """
    batch = st.one_of(st.sampled_from(_BATCHES), st.integers(1, 64))
    if _engine(engine) == "mlx":
        return st.fixed_dictionaries({}, optional={"n_batch": batch})
    drawn = {
        "n_ubatch": batch,
        "threads": st.integers(1, 4),
        "flash_attn": st.sampled_from(("on", "off")),
    }
    return st.fixed_dictionaries({}, optional=drawn)


def quants(engine: str) -> SearchStrategy[str]:
    """Quantizations that the engine makes without an importance matrix, most bits first."""
    known: tuple[str, ...] = _MLX_LEVELS
    if _engine(engine) != "mlx":
        kept = set(LLAMA_FTYPES) - NEED_IMPORTANCE
        known = tuple(name for name in kept if name[0] in "QI")
    return st.sampled_from(sorted(known, key=lambda name: (-bits(name), name)))


def ladders(engine: str, *, max_quants: int = 3) -> SearchStrategy[tuple[str, ...]]:
    """Two or more different quantizations in any order, for `ladder.of`."""
    return st.lists(quants(engine), min_size=2, max_size=max_quants, unique=True).map(tuple)


def bits(quant: str) -> float:
    """Bits per weight of a quantization, including its share of scales.

    Raises:
        ConfigError: no such quantization.
    """
    known = level_engines(quant)
    if known is None:
        raise ConfigError(
            f"bits: unknown quantization {printable(quant, 80)!r}",
            remedy="write a quantization such as Q4_K_M or 4bit",
        )
    return bits_per_weight(known[0])


def bounded(*, examples: int = 10, seconds: float = 60.0) -> Callable[[Test], Test]:
    """Limit a property: `@bounded(...)` above `@given(...)`.

    It allows fixtures, which keep models loaded from one example to the next, and has no deadline
    for one example.

    Args:
        examples: inputs that are drawn, at most.
        seconds: no further input is tried after this time (`--hypothesis-show-statistics` counts
            them); a failure found by then is reported, with the smallest input known.

    Raises:
        ConfigError: the test has no `@given`.
    """
    limits = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        report_multiple_bugs=False,
        # To explain a failure, Hypothesis traces every example and tries many more.
        phases=[phase for phase in hypothesis.Phase if phase is not hypothesis.Phase.explain],
        suppress_health_check=[
            hypothesis.HealthCheck.function_scoped_fixture,
            hypothesis.HealthCheck.too_slow,
        ],
    )

    def decorate(test: Test) -> Test:
        handle = getattr(test, "hypothesis", None)
        if handle is None:
            raise ConfigError(
                f"bounded: {printable(getattr(test, '__qualname__', test), 80)} has no @given",
                remedy="write @bounded(...) above @given(...)",
            )
        drawing, budget = handle.inner_test, _Budget(seconds)

        @functools.wraps(drawing)  # Hypothesis keeps failing examples by its name and source
        def tried(*args: Any, **kwargs: Any) -> None:
            budget.run(functools.partial(drawing, *args, **kwargs))

        handle.inner_test = tried
        limited = limits(test)

        @functools.wraps(limited)
        def run(*args: Any, **kwargs: Any) -> Any:
            budget.begin()
            return limited(*args, **kwargs)

        return run  # type: ignore[return-value]  # wrapped, it has the test's own signature

    return decorate


class _Budget:
    """Runs examples until a time; those that failed by then can be repeated."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.begin()

    def begin(self) -> None:
        """Start the clock of a new run of the test."""
        self._ends = time.monotonic() + self._seconds
        self._failed: set[str] = set()

    def run(self, example: functools.partial[object]) -> None:
        """Try one example."""
        # Hypothesis repeats the smallest failure before it reports it.
        name = repr((example.args, sorted(example.keywords.items())))
        if time.monotonic() > self._ends and name not in self._failed:
            hypothesis.event("not tried: the seconds of @bounded are over")
            return
        try:
            example()
        except Exception:
            self._failed.add(name)
            raise


def _engine(name: str) -> Engine:
    return parse_engine(name, where="pytest_asperf.strategies")
