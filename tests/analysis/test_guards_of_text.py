"""The guards on logs and on generated text."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import Consequence


def test_lines_are_read_once_and_one_at_a_time() -> None:
    """A log may be longer than memory, and its text is data: bounded, escaped, escape codes too."""
    seen = []

    def log() -> Iterator[str]:
        for number in range(3):
            seen.append(number)
            yield "\x1b[2J llama_decode: failed to decode " + "x" * 10**6

    guard_finding = guards.decode_errors(log())
    assert guard_finding is not None
    assert seen == [0, 1, 2]
    assert "\x1b" not in str(guard_finding)
    assert len(str(guard_finding)) < 400


@pytest.mark.parametrize(
    "line",
    [
        "Failed to connect to 192.168.0.103:50052",
        "ggml-rpc.cpp:669: Remote RPC server crashed or returned malformed response",
        "E5RT: ANECCompile() FAILED",
    ],
)
def test_a_remote_that_did_not_answer(line: str) -> None:
    """The logs of ggml-rpc and Core ML before they go on without the device."""
    guard_finding = guards.remote_errors(["using device RPC0", line])
    assert guard_finding is not None
    assert (guard_finding.guard, guard_finding.consequence) == (
        "path-mismatch",
        Consequence.INVALID,
    )
    assert guards.remote_errors(["connected", "using device MTL0"]) is None


PROSE = """The Pythagorean theorem states that in a right triangle, the square of the hypotenuse
equals the sum of the squares of the other two sides. To apply it, we first identify the known
values; here one leg measures 12 units, and the hypotenuse measures 15 units, so that the other
leg measures the root of 225 - 144 = 81, which is 9 units."""


def test_prose_code_and_tables_are_not_degenerate() -> None:
    """People's texts repeat themselves, but not three times on the spot."""
    table = "| model | 1000 | 2000 |\n|---|---|---|\n" + "| Q8_0 | 12.5 | 13.5 |\n" * 2
    code = "for i in range(10):\n    total[i] = weights[i][0] * inputs[i][0]\n" * 2
    for text in (PROSE, PROSE + table, PROSE + code):
        assert guards.degenerate_output(text.splitlines()) is None


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(20, 60))
def test_any_short_loop_is_degenerate(loop: list[int], copies: int) -> None:
    """For any repeated text, up to eight tokens long."""
    tokens = loop * copies
    assert (guards.degenerate_tokens(tokens) is not None) == (len(tokens) >= 40)


@pytest.mark.parametrize(
    ("alone", "other", "position"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([1, 2, 3], [1, 9, 3], 1),
        ([1, 2], [1, 2, 3], 2),
        ([], [], None),
    ],
)
def test_where_outputs_part(alone: list[int], other: list[int], position: int | None) -> None:
    """At the first token that differs, or where one goes on and the other has ended."""
    assert guards.first_divergence(alone, other) == position
