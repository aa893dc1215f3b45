"""`asperf predict`: its output for the shipped models on named hardware and on this machine."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pytest_asperf.cli import app
from pytest_asperf.modelfiles.hub_cache import shipped_models

TARGET, DRAFT = "--model=asperf-target:Q8_0", "--draft=asperf-draft:Q8_0"
M4_MAX = "--hardware=m4max-40"


@pytest.fixture
def predict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command, in an empty project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASPERF_CACHE", str(tmp_path / "cache"))
    return lambda *words: CliRunner().invoke(app, ["predict", *words])


def facts(result: Result) -> dict[str, Any]:
    """Return the facts of an answer in JSON."""
    found: dict[str, Any] = json.loads(result.stdout)["facts"]
    return found


def test_a_model_that_fits_ends_with_0_and_says_on_what_each_number_rests(
    predict: Callable[..., Result], tmp_path: Path
) -> None:
    """Sizes, memory and bandwidth each name their source, and nothing is made for it."""
    done = predict(TARGET, M4_MAX, "--memory=64")
    assert done.exit_code == 0, done.output
    assert "64 GiB; shared by CPU and GPU, --memory" in done.stdout
    assert "546 GB/s advertised; github.com/" in done.stdout
    assert "at 8.5 bits per weight, Q8_0's published average" in done.stdout
    assert "compute buffers are not modelled" in done.stdout
    assert "the 60 % rule allows 38.4 GiB" in done.stdout
    assert not (tmp_path / "cache").exists()


def test_what_does_not_fit_ends_with_1(predict: Callable[..., Result]) -> None:
    """A KV cache that does not fit into memory, and more context than was trained."""
    done = predict(TARGET, "--hardware=m4", "--memory=16", "--context=3000000")
    assert done.exit_code == 1
    assert "FAIL fits" in done.stdout
    assert "more than it was trained on" in done.stdout
    smaller = ("--kv=q8_0",)
    assert predict(TARGET, "--hardware=m4", "--context=3000000", *smaller).exit_code == 0


def test_what_perhaps_exceeds_a_macs_working_set_ends_with_1(
    predict: Callable[..., Result], tmp_path: Path
) -> None:
    """A script must not read it as a fit, and a model on the processor has no such limit."""
    (target,) = (one.hf_folder for one in shipped_models() if one.name == "asperf-target")
    (tmp_path / "asperf.toml").write_text(
        f"[models.cpu]\nhf = '{target}'\nsettings = {{ n_gpu_layers = 0 }}\n"
    )
    asked = ("--hardware=m4-10", "--memory=16", "--context=1400000")
    done = predict("--model=asperf-target:F16", "--model=asperf-draft:F16", *asked)
    assert done.exit_code == 1
    assert [row.split()[4] for row in done.stdout.splitlines()[1:3]] == ["perhaps", "yes"]
    assert "warn fits      yes, perhaps not on the GPU" in done.stdout
    done = predict("--model=cpu:F16", *asked)
    assert (done.exit_code, "perhaps" in done.stdout) == (0, False), done.output


def test_weights_above_the_rule_do_not_fit_in_shared_memory(
    predict: Callable[..., Result], tmp_path: Path
) -> None:
    """15 GB of weights are 59 % of a card's 24 GB and 87 % of a Mac's 16."""
    folder = tmp_path / "large"
    folder.mkdir()
    tensors = {"model.embed_tokens.weight": (937_500, 8000), "self_attn.k_proj.weight": (8, 8)}
    header, end = {}, 0
    for name, (rows, columns) in tensors.items():
        begin, end = end, end + 2 * rows * columns
        header[name] = {"dtype": "F16", "shape": [rows, columns], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    (folder / "config.json").write_text("{}")
    no = predict("--model=./large", "--hardware=m4", "--memory=16")
    assert no.exit_code == 1
    assert "FAIL weights   14 GiB: 87.3% of memory" in no.stdout
    assert "FAIL fits      no" in no.stdout
    yes = predict("--model=./large", "--hardware=rtx4090")
    assert yes.exit_code == 0
    assert "24 GiB; the card's own" in yes.stdout
    ceiling = facts(predict("--model=./large", "--hardware=rtx4090", "--report=json:-"))[
        "forecasts"
    ][0]
    assert ceiling["ceilings"][0] == pytest.approx(1008 / 15, rel=1e-6)
    assert ceiling["reached"] == pytest.approx([0.6 * 67.2, 0.8 * 67.2], rel=1e-6)


@pytest.mark.usefixtures("quick_bandwidth")
def test_this_machine_is_predicted_by_what_was_measured_on_it(
    predict: Callable[..., Result],
) -> None:
    """`auto` uses its own memory and bandwidth; a small model fits into its cache."""
    done = predict(TARGET, "--report=json:-")
    assert done.exit_code == 0, done.output
    found = facts(done)
    assert found["memory"]["basis"].startswith("this machine's")
    assert found["ceiling"]["gbs"] > 1
    assert found["forecasts"][0]["reached"] is None


def test_several_models_give_a_table(predict: Callable[..., Result]) -> None:
    """One row each, then each in full."""
    done = predict(TARGET, "--model=asperf-draft", M4_MAX)
    head, *rows = done.stdout.splitlines()[:3]
    assert head.split() == ["model", "GiB", "KV", "GiB", "share", "fits", "ceiling", "tok/s"]
    assert [row.split()[0] for row in rows] == ["asperf-target:Q8_0", "asperf-draft"]
    assert done.stdout.count("  ok   fits") == 2


def test_speculation_by_what_was_measured(predict: Callable[..., Result]) -> None:
    """Ratio, cost and acceptance as given: the gain of each k by hand, and the best of them."""
    words = ("--draft-ratio=4", "--verify=2:1.6,5:2.1", "--acceptance=80%")
    done = predict(TARGET, M4_MAX, *words)
    gains = {1: 1.8 / (0.25 + 1.6) - 1, 4: 3.3616 / (4 * 0.25 + 2.1) - 1}
    assert gains[4] > gains[1]
    assert f"{gains[4]:+.0%} at best, with k = 4; pays from 3.17x (k = 4)" in done.stdout
    assert "the 2.5x rule: it pays" in done.stdout
    (row,) = facts(predict(TARGET, M4_MAX, *words, "--report=json:-"))["forecasts"][0][
        "speculation"
    ]["rows"]
    assert row[1][0]["gain"] == pytest.approx(gains[4])


def test_a_draft_alone_is_judged_by_bytes_under_stated_assumptions(
    predict: Callable[..., Result],
) -> None:
    """Ideal and reported costs, over several acceptance rates; the draft needs memory as well."""
    done = predict(TARGET, M4_MAX, DRAFT)
    assert "of asperf-draft:Q8_0" in done.stdout
    assert "bytes per token of both" in done.stdout
    for basis in ("ideal, assumed: C = 1", "C(2) = 1.59", "C(2) = 1.81"):
        assert basis in done.stdout
    assert done.stdout.count("acceptance 0.7") == 3
    assert "no draft is fast enough" in done.stdout
    answer = predict(TARGET, M4_MAX, DRAFT, "--report=json:-").stdout
    assert "Infinity" not in answer


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--hardware=m4max"], "m4max-32 (410 GB/s), m4max-40 (546 GB/s)"),
        (["--hardware=m4max"], "--hardware=m4max-40"),
        (["--hardware=m4mxa"], "did you mean 'm4max'?"),
        (["--hardware=m4", "--memory=64"], "'m4' is not sold with 64 GB"),
        (["--memory=64"], "--memory is given for this machine"),
        (["--acceptance=60"], '"60%" or 0.6'),
        (["--kv=q9_0"], "--kv: unknown type of KV cache 'q9_0'"),
        (["--model=asperf-target:Q4KM"], "--model: unknown quantization 'Q4KM'"),
        (["--verify=2=1.6"], "--verify: '2=1.6' is not POSITIONS:COST"),
        (["--verify=2:1.6,2:1.7"], "'2:1.7' is not"),
        (["--verify=1:1"], "'1:1' is not"),
        (["--verify=2:inf"], "'2:inf' is not"),
        (["--draft=asperf-darft"], "--draft: unknown model 'asperf-darft'; did you mean"),
        (["--model=./no.gguf"], "there is no such file"),
        (["--model=."], "config.json: it cannot be read"),
    ],
)
def test_what_is_not_usable_is_named(
    predict: Callable[..., Result], words: list[str], message: str
) -> None:
    """An option, a value and a name each with the accepted ones."""
    done = predict("--model=asperf-target", *words)
    assert done.exit_code == 3, done.output
    assert message in done.output


def test_the_memory_size_tells_bins_apart(predict: Callable[..., Result]) -> None:
    """Only the larger M4 Max is sold with 64 GB, only one M6 with 32."""
    larger = predict(TARGET, "--hardware=m4max", "--memory=64")
    assert "m4max-40" in larger.stdout
    assert "546 GB/s" in larger.stdout
    assert "170 GB/s" in predict(TARGET, "--hardware=m6", "--memory=32").stdout
