import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.report.result_text import in_words
from tests.published.findings.conftest import Judge


def row(name: str, value: float, sd: float = 0.1, n: int = 5) -> str:
    """Return a row with a rate, its raw value and its spread."""
    return f"{name} = {{ tg = {{ value = 1.0, raw = {value:.9f}, sd = {sd:.9f}, n = {n} }} }}\n"


def check(kind: str, **keys: object) -> str:
    """Return a check of a kind as TOML."""
    told = ", ".join(f"{key} = {_toml(value)}" for key, value in {"kind": kind, **keys}.items())
    return f"{{ {told} }}"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


SIZE_A, SIZE_B = "r/t/a/size", "r/t/b/size"
A, B, C = (f"r/t/{name}/tg" for name in "abc")
LADDER = row("a", 10) + row("b", 20) + row("c", 40)


_TG = {"objectives": ["TG"], "better": ["higher"], "candidates": {"a": [A], "b": [B]}}


@pytest.mark.parametrize(
    ("claim", "outcome"),
    [
        (check("below", values=[A], limit=11), "PASS"),
        (check("below", values=[A], limit=9), "FAIL"),
        (check("below", values=[A], limit=10), "INCONCLUSIVE"),
        (check("above", values=[A, B], limit=9), "PASS"),
        (check("above", values=[A, B], limit=15), "FAIL"),
        (check("within", values=[A], at_least=9, at_most=11), "PASS"),
        (check("within", values=[A], at_most=9), "FAIL"),
        (check("monotonic", direction="rising", values=[A, B]), "PASS"),
        (check("monotonic", direction="falling", values=[A, B]), "FAIL"),
        (check("equal", values=[A], to=[A], within=20), "PASS"),
        (check("equal", values=[B], to=[A], within=20), "FAIL"),
        (check("proportional", values=[A, B], to=[B, C], within=20), "PASS"),
        (check("proportional", values=[A, B], to=[B, A], within=20), "FAIL"),
        (check("pareto", chosen="b", **_TG), "PASS"),
        (check("pareto", chosen="a", **_TG), "FAIL"),
    ],
)
def test_each_kind_of_check(judge: Judge, claim: str, outcome: str) -> None:
    """Each kind passes, fails and stays open where it should."""
    assert judge(LADDER, claim).outcome == outcome


def implication(judge: Judge, effect: float, where: float, spread: float = 0.01) -> str:
    """Return rows and the outcome of an assertion that an effect comes from 2.5 on."""
    rows = row("e", 100 + effect, spread) + row("o", 100, spread) + row("w", where, spread)
    gain = {"formula": "difference", "of": ["r/t/e/tg", "r/t/o/tg"]}
    claim = check("implication", at_least=2.5, where=["r/t/w/tg"], effect=[gain])
    return str(judge(rows, claim).outcome)


@pytest.mark.parametrize(
    ("effect", "where", "outcome"),
    [
        (5, 3, "PASS"),
        (-5, 3, "FAIL"),
        (-5, 2, "PASS"),
        (5, 2, "FAIL"),
        (0, 3, "INCONCLUSIVE"),
        (5, 2.5, "INCONCLUSIVE"),
    ],
)
def test_an_implication_needs_both_sides(
    judge: Judge, effect: float, where: float, outcome: str
) -> None:
    """An effect is asserted from the limit on, none below it, and neither at an open limit."""
    assert implication(judge, effect, where) == outcome


@given(
    values=st.lists(st.floats(1, 100), min_size=2, max_size=4),
    spreads=st.tuples(st.floats(0, 5), st.floats(0, 20)),
    limit=st.floats(1, 100),
    kind=st.sampled_from(["below", "above", "monotonic"]),
)
def test_worse_evidence_never_improves_a_verdict(
    judge: Judge, values: list[float], spreads: tuple[float, float], limit: float, kind: str
) -> None:
    """With more spread a verdict stays or becomes open: nothing passes and nothing is refuted."""
    names = "abcd"[: len(values)]
    rest = {"direction": "rising"} if kind == "monotonic" else {"limit": round(limit, 6)}
    claim = check(kind, values=[f"r/t/{name}/tg" for name in names], **rest)
    better, worse = (
        judge("".join(row(n, v, s) for n, v in zip(names, values, strict=True)), claim).outcome
        for s in (spreads[0], sum(spreads))
    )
    assert worse in {better, Outcome.INCONCLUSIVE}


@given(st.integers(0, 3))
def test_a_guard_comes_before_a_pass(judge: Judge, lines: int) -> None:
    """Broken evidence is INVALID however good it looks, with its guard's name."""
    rows = f"a = {{ tg = {{ value = 10.0, raw = 10.0, sd = 0.1, n = 5 }}, lines = {lines} }}\n"
    verdict = judge(
        rows,
        check("above", values=[A], limit=1),
        '[[finding.guard]]\nkind = "decode-errors"\nlines = "r/t/a/lines"\n',
    )
    assert (verdict.outcome is Outcome.INVALID) == (lines > 0)
    assert in_words(verdict).measured.startswith("decode-errors: ") == (lines > 0)
    assert (verdict.figures == ()) == (lines > 0)


def guard(kind: str, **terms: object) -> str:
    """Return a guard of a kind as TOML."""
    lines = [f"{key} = {_toml(value)}" for key, value in {"kind": kind, **terms}.items()]
    return "\n".join(["[[finding.guard]]", *lines])


SAME, OTHER = [SIZE_A, A], [SIZE_B, A]


@pytest.mark.parametrize(
    ("asked", "is_invalid"),
    [
        (guard("unequal-work", variant=[SIZE_A], baseline=[SIZE_B]), True),
        (guard("unequal-work", variant=[SIZE_A], baseline=[SIZE_A]), False),
        (guard("identical-to-baseline", variant=SAME, baseline=SAME), True),
        (guard("identical-to-baseline", variant=SAME, baseline=OTHER), False),
        (guard("roofline-high", rate=A, weights_gb=SIZE_A, bandwidth=SIZE_A), True),
        (guard("roofline-high", rate=SIZE_A, weights_gb=SIZE_A, bandwidth=A), False),
        (guard("impure-window", samples=A, period_s=SIZE_A, phase_s=SIZE_B), True),
        (guard("impure-window", samples=SIZE_A, period_s=SIZE_A, phase_s=SIZE_B), False),
    ],
)
def test_guards_ask_the_figures_they_name(
    judge: Judge,
    asked: str,
    is_invalid: bool,  # noqa: FBT001
) -> None:
    """Each guard gets its inputs by name, and trips by its own rule."""
    rows = "a = { tg = { value = 10, raw = 10, sd = 0, n = 3 }, size = 2 }\n"
    rows += "b = { tg = { value = 10, raw = 10, sd = 0, n = 3 }, size = 4 }\n"
    verdict = judge(rows, check("above", values=[A], limit=1), asked)
    assert (verdict.outcome is Outcome.INVALID) == is_invalid


def test_an_estimate_shows_nothing(judge: Judge) -> None:
    """A figure without a measurement leaves an assertion open, however clear it looks."""
    verdict = judge("a = { guess = 100 }", check("above", values=["r/t/a/guess"], limit=1))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "estimate" in in_words(verdict).measured
