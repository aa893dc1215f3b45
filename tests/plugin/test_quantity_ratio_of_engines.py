"""Two engines on one model at matched quantizations, both of them real."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.records.report import read
from pytest_asperf.store.figures import figures_of
from tests.conftest import Draft
from tests.plugin.conftest import Project
from tests.store.documents import night

pytestmark = pytest.mark.usefixtures("mlx")

#: An engine that is four times as slow is distinguished in a few pairs, for any faster one on this
#: machine.
SLOWED = """
[models.slow-mlx]
hf = "{draft}"
settings = {{ mlx = {{ slow_by = 3 }}, llama_cpp = {{ threads = 1 }} }}

[models.slow-llama]
hf = "{draft}"
settings = {{ llama_cpp = {{ threads = 1, slow_by = 3 }} }}
"""
BUDGET = ("--asperf-max-seconds=60", "--asperf-seed=1")
#: If only the verdict's printed remarks matter.
ONE_PAIR = "--asperf-max-pairs=1"
HEAD = """@pytest.mark.model("slow-mlx")
def test_it(throughput):
    def of(engine, work="tg2", quant=None):
        return throughput(work, engine=engine, quant=quant)
    """


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
    from pytest_asperf.modelfiles.hub_cache import shipped_models

    (draft,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    assert draft.hf_folder is not None
    return draft.hf_folder


def test_faster_and_not(both: Project, rows: Callable[..., list[dict[str, Any]]]) -> None:
    """The engine that is not slowed is faster by far; the slowed one is shown not to be."""
    claims = {
        'assert of("llama_cpp") / of("mlx") >= 1.5': "PASS",
        'assert of("mlx") > of("llama_cpp")': "FAIL",
        'assert 1 / 1.1 <= of("mlx") / of("llama_cpp") <= 1.1': "FAIL",
    }
    both.claims(HEAD, claims)
    passed, failed, unlike, *_ = found = rows(*BUDGET)
    assert [row["outcome"] for row in found][:3] == list(claims.values())
    assert passed["subject"] == "llama_cpp / mlx in tg2 of slow-mlx:F16 / slow-mlx:F16 on mlx"
    assert (passed["threshold"], failed["threshold"]) == ("at least 1.5x", "above 1x")
    assert unlike["threshold"] == "at least 0.909091x and at most 1.1x"
    assert re.match(r"0\.\d+x \[", failed["measured"])
    assert failed["figures"][0]["estimate"]["high"] <= 1
    # A history keeps it as the time of the candidate, llama.cpp, over that of MLX.
    kept = figures_of(read(night(passed), "report"), "report")
    (logs,) = (one for one in kept if one.key.metric == "tg2 ratio")
    assert (logs.value < math.log(1 / 1.5), logs.key.engine) == (True, "mlx / llama_cpp")
    ran = dict(passed["facts"])
    assert "mlx-lm" in ran["mlx engine"]
    assert "llama-cpp-python" in ran["llama_cpp engine"]
    # By default at F16, at which everything can be matched except MLX's compute type on this
    # device.
    matched, unmatched = passed["note"].splitlines()
    for term in ("source weights sha256", "bits per weight: ", "scheme F16", "tokens the same"):
        assert term in matched
    assert matched.startswith("matched: ")
    assert unmatched.startswith("not matched: ")


def test_matched_and_named_quantizations(
    both: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """The nearest is chosen, or one is named; the report lists differences; one pair is open."""
    both.claims(
        HEAD.replace('"slow-mlx"', '"slow-mlx:Q8_0"'),
        [
            'assert of("llama_cpp", "pp32") > of("mlx", "pp32")',
            'assert of("llama_cpp", quant="Q4_0") > of("mlx", quant="8bit")',
        ],
    )
    nearest, named = rows(ONE_PAIR)
    assert (nearest["outcome"], named["outcome"]) == ("INCONCLUSIVE", "INCONCLUSIVE")
    assert nearest["subject"].endswith(" in pp32 of slow-mlx:Q8_0 / slow-mlx:8bit on mlx")
    matched, unmatched = nearest["note"].splitlines()
    assert "bits per weight: llama_cpp 8.5" in matched
    assert "scheme: llama_cpp Q8_0 (Q8_0" in unmatched
    assert "group: llama_cpp 32, mlx 64" in unmatched
    assert "bits per weight: llama_cpp 5." in named["note"].splitlines()[1]


def test_bad_input(both: Project, draft: Draft) -> None:
    """Each is an error of its own test, with the fault, its reason and the remedy."""
    (both.path / "sound.gguf").write_bytes(draft("F16").read_bytes())
    messages = {
        'assert of("mxl") > of("llama_cpp")': "unknown engine 'mxl'; did you mean 'mlx'?",
        'assert of("mlx") > of("mlx")': "tg2 slow-mlx:F16 on mlx is compared with itself",
        'assert of("mlx", "tg") > of("llama_cpp", "tg")': "'tg' is not a workload",
        'assert of("mlx", quant="Q4_K_M") > 1': "mlx has no quantization Q4_K_M; did you "
        "mean '4bit'?",
        'assert of("mlx", quant="") > 1': "unknown quantization ''",
        'assert of("") > 1': "unknown engine ''",
    }
    both.rejects(HEAD, messages, *BUDGET)
    for model, message in {
        "slow-mlx:IQ1_S": "no quantization that matches IQ1_S of 2.00 bits per weight; 2bit "
        "has 2.50",
        "slow-mlx:Q4_0": 'as in throughput("tg128", engine="mlx", quant="5bit")',
        "./sound.gguf": "sound.gguf is a file, and MLX measures folders",
    }.items():
        claim = {'assert of("mlx") < of("llama_cpp")': message}
        both.rejects(HEAD.replace("slow-mlx", model), claim)


def test_an_engine_that_is_not_installed(both: Project, bare_python: Path) -> None:
    """The error names it, with the package to install; nothing is timed."""
    claim = {'assert of("mlx") > of("llama_cpp")': "start: the engine reported an error (import): "}
    both.rejects(HEAD, claim, f"--asperf-python={bare_python}")


def test_recorded_numbers_hold_none(both: Project) -> None:
    """If nothing is measured, the test is skipped."""
    both.claims(HEAD, ['assert of("mlx") > of("llama_cpp")'])
    both.run("--asperf-source=recorded").assert_outcomes(skipped=1)
