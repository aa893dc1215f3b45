"""The speculative marker, the speculation fixture and its assertions, live."""

from collections.abc import Callable
from typing import Any

import pytest

from pytest_asperf.modelfiles.convert import hf_to_gguf
from pytest_asperf.modelfiles.hub_cache import shipped_models
from tests.modelfiles.gguf_files import write_padded
from tests.plugin.conftest import Project

#: A model and its own smaller quantization: a pair that needs only the smallest shipped model.
_MARK = '@pytest.mark.speculative(draft="asperf-draft:Q4_0", target="asperf-draft:F16", {})\n'
_SHORT = 'k=2, n_tokens=8, prompts="prompts.json"'


def _test(settings: str, body: str, mark: str = _MARK) -> str:
    return mark.format(settings) + f"def test_it(speculation):\n    {body}\n"


def test_a_gain_is_judged_and_explained(
    pair: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """The verdict and the measurement are rows, with every round's counts and times behind."""
    pair.test(_test(_SHORT, "assert_sd_gain(speculation, when_ratio=1000)"))
    found = {row["subject"]: row for row in rows("--asperf-max-pairs=5", "--asperf-seed=3")}
    verdict = next(row for row in found.values() if row["outcome"])
    gain = verdict["figures"][0]["estimate"]
    assert verdict["outcome"] == ("FAIL" if gain["low"] > 0 else "PASS")
    assert "compared with the rule's 1000 x" in verdict["measured"]
    raw = found["SD gain"]
    assert {"acceptance", "mean_length", "ratio", "predicted_gain"} <= raw.keys()
    assert set(raw["acceptance_by_category"]) == {"code", "text"}
    assert set(raw["verify"]) == {str(size) for size in range(1, 10)}
    assert raw["seed"] == 3
    assert len(raw["prompts"]) == 5
    for done in (run for runs in raw["prompts"] for run in runs):
        drafted, accepted, emitted = map(sum, list(zip(*done["rounds"], strict=True))[:3])
        assert done["n_tokens"] == emitted == 8
        assert accepted <= drafted


def test_greedy_and_sampled_output_are_lossless(pair: Project) -> None:
    """Both ways of decoding give the target's own output."""
    pair.test(_test(_SHORT, "assert_lossless(speculation)"), name="test_greedy")
    sampled = f"{_SHORT}, temperature=1.0"
    pair.test(_test(sampled, "assert_lossless(speculation)"), name="test_sampled")
    pair.run("--asperf-max-pairs=5", "--asperf-seed=4").assert_outcomes(passed=2)


def _padded(pair: Project, n_padding: int) -> None:
    """Write the shipped draft, and the same with unused tokens."""
    spec = next(spec for spec in shipped_models() if spec.name == "asperf-draft")
    assert spec.hf_folder is not None
    hf_to_gguf(spec.hf_folder, pair.path / "draft-F16.gguf")
    write_padded(pair.path / "draft-F16.gguf", pair.path / "padded-F16.gguf", n_padding)


@pytest.mark.parametrize("padded", ["target", "draft"])
def test_models_of_a_family_with_other_padding_are_a_pair(pair: Project, padded: str) -> None:
    """Up to 128 unused tokens behind the same ones are llama.cpp's own rule."""
    _padded(pair, 64)
    own = "asperf-draft:F16" if padded == "target" else "asperf-draft:Q4_0"
    mark = _MARK.replace(own, "padded-F16.gguf")
    pair.test(_test(_SHORT, "assert_lossless(speculation)", mark))
    pair.run("--asperf-max-pairs=5", "--asperf-seed=4").assert_outcomes(passed=1)


def test_a_target_with_other_tokens_is_refused(pair: Project) -> None:
    """129 tokens more are another vocabulary."""
    _padded(pair, 129)
    mark = _MARK.replace("asperf-draft:F16", "padded-F16.gguf")
    pair.test(_test(_SHORT, "assert speculation.acceptance > 0", mark))
    pair.run("--asperf-max-pairs=5").stdout.fnmatch_lines(["*have different tokenizers*"])


def test_what_cannot_be_rolled_back_is_invalid(pair: Project) -> None:
    """A hybrid whose only way back is denied is a broken measurement, with the reason."""
    mark = _MARK.replace("asperf-draft:F16", "asperf-draft+hybrid:F16")
    settings = f'{_SHORT}, rollback="trim"'
    pair.test(_test(settings, "assert_sd_gain(speculation)", mark))
    result = pair.run("--asperf-max-pairs=5")
    result.stdout.fnmatch_lines(["*INVALID*", "*hybrid and cannot be rolled back*"])
    result.assert_outcomes(failed=0, passed=0)


@pytest.mark.parametrize(
    ("draft", "lookup"),
    [("ngram", "speculation"), ("asperf-draft:Q4_0", 'speculation.drafted_by("ngram")')],
)
def test_lookup_needs_no_draft_model(pair: Project, draft: str, lookup: str) -> None:
    """The draft may be the text itself, in the marker or in a comparison."""
    mark = _MARK.replace("asperf-draft:Q4_0", draft)
    body = (
        f"found = {lookup}\n    assert found.gain.estimate.n == 5\n"
        "    assert 0 < found.acceptance.estimate.point < 1"
    )
    pair.test(_test(_SHORT, body, mark))
    pair.run("--asperf-max-pairs=5").assert_outcomes(passed=1)


def test_bad_input(pair: Project) -> None:
    """An impossible value is rejected by name, with the possible ones, before anything runs."""
    settings = {
        "k=0": "k takes a whole number from 1 to 64",
        "ks=3": "unknown argument 'ks'; did you mean 'k'?",
        "temperature=-1": "temperature takes a number from 0",
        'rollback="trimm"': "rollback takes one of auto, checkpoint, trim",
    }
    taken = _MARK + "def test_it(speculation):\n    pass\n"
    pair.rejects(taken, settings, in_setup=True)
    unfit = {
        'prompts="nowhere.json"': "nowhere.json: it cannot be read",
        'prompts="asperf.toml"': "asperf.toml: it is not JSON",
        "n_tokens=3000": "3000 tokens leave no room for a prompt",
    }
    pair.rejects(taken.replace("pass", "assert_sd_gain(speculation)"), unfit)
    claims = {
        "when_ratio='fast'": "when_ratio: 'fast' is not a speed ratio",
        "at_least='5'": "at_least: '5' is not a usable limit",
        "only='abov'": "did you mean 'above'?",
    }
    head = _MARK.format(_SHORT) + "def test_it(speculation):\n    assert_sd_gain(speculation, {})\n"
    pair.rejects(head, claims)
    alone = {
        "speculation): pass": "the speculation fixture needs a speculative marker",
    }
    pair.rejects("def test_it({}\n", alone, in_setup=True)
    unused = {_SHORT: "without its fixture"}
    pair.rejects(taken.replace("(speculation)", "()"), unused, in_setup=True)


def test_a_variant_is_not_measured_under_another_engine(pair: Project) -> None:
    """If no variant can be made, the model itself must not replace it."""
    mark = _MARK.replace("asperf-draft:F16", "asperf-draft+layers=2")
    pair.config(engine="scripted")
    pair.test(_test(_SHORT, "assert_sd_gain(speculation)", mark))
    pair.run().stdout.fnmatch_lines(["*variants are made of models, and this is a script*"])
