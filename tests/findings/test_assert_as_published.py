"""`assert_as_published` on a Mac of `fixtures/hardware`, with the scripted engine."""

from collections.abc import Callable

import pytest

from pytest_asperf.hardware.machine import Machine
from tests.plugin.conftest import Project

RECORDS = """
schema = 1
[source]
id = "own"
title = "our report"
[[table]]
id = "runs"
title = "runs"
where = "Table 1"
[table.columns]
tg = { metric = "TG", unit = "tok/s", kind = "measured", workload = "tg512" }
words = { metric = "TG", unit = "tok/s", kind = "measured", workload = "generation" }
pp = { metric = "PP", unit = "tok/s", kind = "measured" }
minutes = { metric = "TG", unit = "tok/min", kind = "measured" }
guess = { metric = "TG", unit = "tok/s", kind = "estimated" }
dppl = { metric = "PPL increase", unit = "%", kind = "measured" }
[table.rows]
exact = { hardware = "m2ultra-76", tg = { value = 1010, sd = 1, n = 5 }, words = 1000 }
guess = { hardware = "m2ultra-76", guess = 1000 }
chip = { hardware = "m2ultra", model = "M", tg = 1000, pp = "900+", minutes = 1000 }
higher = { hardware = "m2ultra-76", tg = { value = 1200, sd = 1, n = 5 } }
spread = { hardware = "m2ultra-76", tg = { value = 1010, sd = 200, n = 3 } }
max = { hardware = "m1max-32", tg = 1000 }
mlx = { hardware = "m2ultra-76", engine = "MLX", tg = 1000 }
drafted = { hardware = "m2ultra-76", draft = "D", tg = 1000 }
nowhere = { tg = 1000 }
none = { hardware = "m2ultra", tg = 0 }
level = { dppl = -0.10 }
other = { dppl = 3.0 }
"""
RATE = """
@pytest.mark.quant("F16")
def test_it(throughput):
    assert_as_published(throughput("tg512"), {})
"""
LEVEL = """
@pytest.mark.quant("Q8_0")
def test_it(perplexity):
    assert_as_published(perplexity.delta, {})
"""
SPREAD = [1_000_000, 1_010_000, 1_005_000, 995_000, 990_000]


@pytest.fixture
def ultra(
    project: Project, mac: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch
) -> Project:
    """The project on an M2 Ultra with 76 GPU cores, with its own records."""
    monkeypatch.setattr("pytest_asperf.plugin.session.detect", lambda: mac("m2ultra-76"))
    (project.path / "report.toml").write_text(RECORDS)
    project.config(published_figures=["report.toml"])
    project.script("f16", tg_ns_per_token=SPREAD)
    return project


def test_the_four_verdicts(ultra: Project) -> None:
    """Both intervals decide: near is a PASS, far a FAIL, a wide published spread is neither."""
    claims = {
        '"own/runs/exact/tg"': ".",
        '"own/runs/chip/tg", within=0.05': ".",
        '"own/runs/exact/words"': ".",
        '"own/runs/higher/tg"': "F",
        '"own/runs/higher/tg", within="25%"': ".",
        '"own/runs/spread/tg"': "I",
        '"own/runs/exact/tg", within="1%"': "I",
        '"own/runs/guess/guess"': "I",
    }
    assert ultra.judged(RATE, claims) == "".join(claims.values())


def test_a_broken_measurement_is_invalid(ultra: Project) -> None:
    """An engine that crashes is compared with no figure."""
    ultra.script("f16", faults={"generate": "crash"})
    ultra.test(RATE.format('"own/runs/exact/tg"'))
    ultra.run().stdout.fnmatch_lines(["test_it.py V *"])


def test_a_failure_names_both_figures(ultra: Project) -> None:
    """The note has the change, both figures with their spread, and the document's scope."""
    ultra.test(RATE.format('"own/runs/higher/tg"'))
    ultra.run("-v").stdout.fnmatch_lines(
        [
            "*FAIL: the assertion is shown false",
            "*assertion:*tg512 fake:F16 against own/runs/higher/tg at least -5 % and at most 5 %",
            "*measured:* -16.67 % [[]*",
            "*measured 1000 tok/s [[]*",
            "*published 1200 tok/s, spread sd 1 (n = 5): 1200* tok/s [[]*",
            "*published of tg512, m2ultra-76",
        ]
    )


def test_an_uncertain_figure_asks_for_no_more_runs(ultra: Project) -> None:
    """If the published spread alone leaves it open, the advice is another limit or figure."""
    ultra.test(RATE.format('"own/runs/spread/tg"'))
    ultra.run().stdout.fnmatch_lines(["E   do *more runs here would not decide it*"])


def test_another_machine_or_engine_is_skipped(ultra: Project) -> None:
    """A figure of another chip, chip variant or engine is skipped here; the reason names both."""
    for number, row in enumerate(("max", "mlx")):
        ultra.test(RATE.format(f'"own/runs/{row}/tg"'), name=f"test_{number}")
    result = ultra.run("-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(
        [
            "SKIPPED*: own/runs/max/tg is a figure of m1max-32, this is m2ultra-76",
            "SKIPPED*: own/runs/mlx/tg is a figure of MLX, this is scripted",
        ]
    )


def test_what_cannot_be_compared_is_an_error(ultra: Project) -> None:
    """A dead address, another quantity, unit or workload, words, and no machine: each is named."""
    claims = {
        '"own/runs/exat/tg"': "no published figure is called 'own/runs/exat/tg'; did you mean "
        "'own/runs/exact/tg'?",
        '"own/runs/level/dppl"': "dppl is PPL increase in %, the measurement is TG in tok/s",
        '"own/runs/chip/minutes"': "minutes is TG in tok/min, the measurement is TG in tok/s",
        '"own/runs/chip/pp"': "'900+' is not one number",
        '"own/runs/drafted/tg"': "TG in tok/s with the draft D, the measurement is TG in tok/s",
        '"own/runs/nowhere/tg"': "not name its hardware, so it is not a rate of a machine",
        '"own/runs/none/tg"': "is not above 0, so it is not a rate of a machine",
        '"own/runs/exact/tg", within=0': "within=0 cannot be shown",
        '"own/runs/exact/tg", within="5"': "within: '5' is not a usable limit",
    }
    tail = '"own/runs/exact/tg"'
    ultra.rejects(RATE, claims)
    ultra.rejects(RATE.replace("tg512", "tg64"), {tail: "is of tg512, the measurement is of tg64"})
    uncalled = RATE.replace('("tg512")', "")
    ultra.rejects(uncalled, {tail: "was not called"})
    ultra.rejects(uncalled, {tail: 'assert_as_published(throughput("tg128")'})


def test_a_loss_of_quality_is_compared_on_any_machine(ultra: Project) -> None:
    """ΔPPL is compared in percentage points, and needs no hardware."""
    claims = ['"own/runs/level/dppl", within="0.3%"', '"own/runs/other/dppl", within="0.5%"']
    assert ultra.judged(LEVEL, claims) == ".F"
