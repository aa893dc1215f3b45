"""`assert_faster`: two engines on one model at matched levels, both of them real."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import pytest

from pytest_asperf.store.figures import figures_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Draft
    from tests.plugin.conftest import Project

pytestmark = pytest.mark.usefixtures("mlx")

#: One that takes four times its time can be told from the other in a few pairs, whichever is the
#: faster on this machine.
SLOWED = """
[models.slow-mlx]
hf = "{draft}"
settings = {{ mlx = {{ slow_by = 3 }}, llama_cpp = {{ threads = 1 }} }}

[models.slow-llama]
hf = "{draft}"
settings = {{ llama_cpp = {{ threads = 1, slow_by = 3 }} }}
"""
MINI = {
    "time": "2026-11-22T19:00:00+00:00",
    "host": "mini",
    "version": "1",
    "machine": {"hardware": "m4", "os": "macOS"},
}
BUDGET = ("--asperf-max-seconds=60", "--asperf-seed=1")
#: Where only what is told beside the verdict matters.
ONE_PAIR = "--asperf-max-pairs=1"


@pytest.fixture
def both(live: Project, shipped_draft: Path) -> Project:
    """A project with a model that is slowed on one engine, and with one slowed on the other."""
    live.config(
        SLOWED.format(draft=shipped_draft), engine="llama_cpp", default_model="asperf-draft"
    )
    return live


@pytest.fixture(scope="session")
def shipped_draft() -> Path:
    """The folder of the shipped draft."""
    from pytest_asperf.modelfiles.shipped import shipped_models

    (draft,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    assert draft.hf_folder is not None
    return draft.hf_folder


@pytest.mark.serial
def test_faster_and_not(both: Project, rows: Callable[..., list[dict[str, Any]]]) -> None:
    """The engine that is not slowed is faster by far; the slowed one is shown not to be."""
    both.test("""
@pytest.mark.model("slow-mlx")
def test_pass(engines):
    verdict = assert_faster(engines, "llama_cpp", than="mlx", on="tg8", by="50%")
    (_, ratio), = verdict.figures
    assert ratio.low >= 1.5

@pytest.mark.model("slow-mlx")
def test_fail(engines):
    assert_faster(engines, "mlx", than="llama_cpp", on="tg8")

@pytest.mark.model("slow-mlx")
def test_not_alike(engines):
    assert_equivalent(engines, "mlx", "llama_cpp", "tg8", within="10%")
""")
    passed, failed, unlike = rows(*BUDGET)
    assert (unlike["outcome"], unlike["subject"]) == ("FAIL", failed["subject"])
    assert unlike["threshold"] == "at least 0.909091x and at most 1.1x"
    assert (passed["outcome"], failed["outcome"]) == ("PASS", "FAIL")
    assert passed["subject"] == "tg8 slow-mlx:F16 / slow-mlx:F16 on mlx"
    assert passed["threshold"] == "faster by 50 % or more"
    assert failed["threshold"] == "faster"
    assert re.match(r"0\.\d+x \[", failed["measured"])
    assert failed["figures"][0]["estimate"]["high"] <= 1
    # A history keeps it as the time of the candidate, llama.cpp, over that of MLX.
    kept = figures_of({"meta": MINI, "rows": [passed]}, "report")
    (logs,) = (one for one in kept if one.key.metric == "tg8 ratio")
    assert (logs.value < math.log(1 / 1.5), logs.key.engine) == (True, "mlx / llama_cpp")
    ran = dict(passed["facts"])
    assert "mlx-lm" in ran["mlx engine"]
    assert "llama-cpp-python" in ran["llama_cpp engine"]
    # By default at F16, where all of it can be matched but what MLX computes in on this device.
    matched, unmatched = passed["note"].splitlines()
    for term in ("source weights sha256", "bits per weight: ", "scheme F16", "tokens the same"):
        assert term in matched
    assert matched.startswith("matched: ")
    assert unmatched.startswith("not matched: ")


def test_matched_levels(both: Project, rows: Callable[..., list[dict[str, Any]]]) -> None:
    """A level of one engine has its match in bits per weight; what differs is told."""
    both.test("""
@pytest.mark.model("slow-mlx:Q8_0")
def test_it(engines):
    assert_faster(engines, "llama_cpp", than="mlx", on="pp32")
""")
    (row,) = rows(ONE_PAIR)
    assert row["subject"] == "pp32 slow-mlx:Q8_0 / slow-mlx:8bit on mlx"
    matched, unmatched = row["note"].splitlines()
    assert "bits per weight: mlx 8.5" in matched
    assert "scheme: mlx 8bit (affine), llama_cpp Q8_0 (Q8_0" in unmatched
    assert "group: mlx 64, llama_cpp 32" in unmatched


def test_named_levels_and_an_opt_out(both: Project) -> None:
    """A level may be named with its engine; bits that are far apart have to be accepted."""
    both.test("""
@pytest.mark.model("slow-mlx")
def test_refused(engines):
    assert_faster(engines, "llama_cpp:Q4_0", than="mlx:8bit", on="tg8")

@pytest.mark.model("slow-mlx")
def test_accepted(engines):
    assert_faster(engines, "llama_cpp:Q4_0", than="mlx:8bit", on="tg8", bits_within="120%")
""")
    result = both.run(ONE_PAIR, "--asperf-report=json:rows.json")
    result.assert_outcomes(failed=1)  # and one is inconclusive
    result.stdout.fnmatch_lines(
        [
            "slow-mlx:Q4_0 has 5.* bits per weight in its file and slow-mlx:8bit on mlx 8.5*apart",
            '  what to do: *as in "mlx:5bit"',
            '  to opt out: *bits_within="50%"*',
        ]
    )
    (row,) = json.loads((both.path / "rows.json").read_text())["rows"]
    # Accepted is not matched.
    assert "bits per weight: mlx 8." in row["note"].splitlines()[1]


def test_a_spent_budget_is_inconclusive(both: Project) -> None:
    """Fewer pairs than could show anything show nothing, and the note says how many more would."""
    both.test("""
@pytest.mark.model("slow-llama")
def test_it(engines):
    assert_faster(engines, "mlx", than="llama_cpp", on="tg8")
""")
    result = both.run(ONE_PAIR)
    result.stdout.fnmatch_lines(["E   INCONCLUSIVE *", "note: matched: source weights*"])


TESTS = """
def test_unknown_engine(engines):
    assert_faster(engines, "mxl", than="llama_cpp", on="tg8")

def test_same_engine(engines):
    assert_faster(engines, "mlx:4bit", than="mlx:8bit", on="tg8")

def test_without_the_fixture():
    assert_faster("mlx", than="llama_cpp", on="tg8")

def test_workload(engines):
    assert_faster(engines, "mlx", than="llama_cpp", on="tg")

def test_limit(engines):
    assert_faster(engines, "mlx", than="llama_cpp", on="tg8", by=-0.1)

def test_level_of_the_other(engines):
    assert_faster(engines, "mlx:Q4_K_M", than="llama_cpp", on="tg8")

def test_no_level(engines):
    assert_faster(engines, "mlx:", than="llama_cpp", on="tg8")

@pytest.mark.quant("IQ1_S")
def test_no_match(engines):
    assert_faster(engines, "mlx", than="llama_cpp", on="tg8")

@pytest.mark.model("asperf-draft", engine="mlx")
def test_engine_in_the_marker(engines):
    pass

@pytest.mark.model("./sound.gguf")
def test_gguf(engines):
    assert_faster(engines, "mlx", than="llama_cpp", on="tg8")
"""
TOLD = {
    "test_unknown_engine": "unknown engine 'mxl'; did you mean 'mlx'?",
    "test_same_engine": "assert_faster: mlx is named twice",
    "test_without_the_fixture": "assert_faster needs the fixture engines",
    "test_workload": "'tg' is not a workload",
    "test_limit": "assert_faster: by: -0.1 is not a usable limit",
    "test_level_of_the_other": "mlx has no level Q4_K_M; did you mean '4bit'?",
    "test_no_level": "assert_faster: unknown quantisation level ''",
    "test_no_match": "mlx has no level that matches IQ1_S of 2.00 bits per weight; 2bit has 2.50",
    "test_engine_in_the_marker": "the model marker names the engine mlx",
    "test_gguf": "sound.gguf is a file, and MLX measures folders",
}


def test_bad_input(both: Project, draft: Draft) -> None:
    """Each is an error of its own test, with what is wrong, why that matters and what to do."""
    (both.path / "sound.gguf").write_bytes(draft("F16").read_bytes())
    both.test(TESTS)
    result = both.run(*BUDGET)
    result.assert_outcomes(failed=len(TOLD) - 1, errors=1)
    text = result.stdout.str()
    for told in TOLD.values():
        assert told in text
    assert text.count("\n  why it matters: ") == text.count("\n  what to do:     ") == len(TOLD)
    assert "Traceback" not in text


def test_an_engine_that_is_not_installed(both: Project, bare_python: Path) -> None:
    """It is named, with what to install; nothing is timed."""
    both.test("""
@pytest.mark.quant("8bit")
def test_it(engines):
    assert_faster(engines, "mlx", than="llama_cpp", on="tg8")
""")
    result = both.run(f"--asperf-python={bare_python}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["mlx start: the engine refused (import): *", "  what to do: *"])


def test_recorded_numbers_hold_none(both: Project) -> None:
    """Where nothing is measured, the test is skipped."""
    both.test(
        'def test_it(engines):\n    assert_faster(engines, "mlx", than="llama_cpp", on="tg8")'
    )
    both.run("--asperf-source=recorded").assert_outcomes(skipped=1)
