"""MLX on real models: llama.cpp's definitions, quantizations, settings, errors."""

import json
import math
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.engines import Engine, level_recipe
from pytest_asperf.config.spec import ModelRef
from pytest_asperf.engine_process import EngineBuild, EngineFacts, EngineRefusedError, Worker
from pytest_asperf.measure.ladder import PPL_N_CTX, score_ladder, split_chunks
from pytest_asperf.modelfiles.hub_cache import shipped_corpus, shipped_models
from pytest_asperf.modelfiles.locate import ModelLocator
from pytest_asperf.modelfiles.mlx_read import inspect_mlx

_, DRAFT, _ = shipped_models()
DRAFT_FOLDER = DRAFT.hf_folder or Path()
TEXT = shipped_corpus().read_text("utf-8")
N_CHUNKS = 1
BEGINS_WITH_BOS = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "<|bos|>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
    "special_tokens": {"<|bos|>": {"id": "<|bos|>", "ids": [0], "tokens": ["<|bos|>"]}},
}

#: Gives tokens and NLL of each, of the shipped draft in F16 on an engine.
Scored = Callable[["Engine"], tuple[list[int], list[float]]]


@pytest.fixture(scope="module")
def worker(mlx: EngineBuild) -> Iterator[Worker]:
    """A worker with the shipped draft loaded as `draft`."""
    with Worker(mlx) as worker:
        worker.load("draft", DRAFT_FOLDER, EngineSettings())
        yield worker


@pytest.fixture(scope="module")
def tokens(worker: Worker) -> list[int]:
    """Tokens of real text."""
    return worker.tokenize("draft", TEXT[:4000])


@pytest.fixture(scope="module")
def scored(session_cache: Path) -> Scored:
    """Return a function that scores the draft's first chunks on an engine."""

    def score(engine: Engine) -> tuple[list[int], list[float]]:
        build = EngineBuild(engine, Path(sys.executable))
        ref = ModelRef(DRAFT.on(engine), "F16")
        locator = ModelLocator(build, cache=session_cache, call_timeout_s=120)
        with Worker(build) as worker:
            worker.load("m", locator.locate(ref).path, ref.spec.settings)
            ids = worker.tokenize("m", TEXT[:20_000])
            chunks = split_chunks(ids, n_ctx=PPL_N_CTX, at_most=N_CHUNKS, corpus="heldout")
            rows, _ = score_ladder(worker, ["m"], chunks, concurrency=1, progress=lambda _: None)[
                "m"
            ]
        return ids, [nll for row in rows for nll in row.nll]

    return score


@pytest.mark.usefixtures("mlx")
def test_both_engines_give_the_same_perplexity(scored: Scored) -> None:
    """Same tokens, BOS and chunks: PPL of the F16 draft agrees within 0.1 %."""
    (theirs, other_nll), (ours, nll) = scored("llama_cpp"), scored("mlx")
    assert ours == theirs
    difference = math.expm1(fmean(nll) - fmean(other_nll))
    worst = sorted(zip(nll, other_nll, range(len(nll)), strict=True), key=_apart)[-10:]
    shown = "\n".join(f"position {i}: mlx {a:.4f}, llama.cpp {b:.4f}" for a, b, i in worst)
    assert abs(difference) < 0.001, f"PPL differs by {difference:+.3%}\n{shown}"


def _apart(pair: tuple[float, float, int]) -> float:
    return abs(pair[0] - pair[1])


def test_it_says_what_ran(worker: Worker) -> None:
    """Versions, device and a hash of the libraries."""
    engine = worker.describe()
    assert (engine.engine, engine.library) == ("mlx", "mlx-lm")
    assert (engine.mlx_version or "").count(".") >= 2
    assert engine.verbatim["metal_is_available"] == (sys.platform == "darwin")
    assert str(engine.verbatim["default_device"]).startswith("Device(")
    assert len(engine.library_sha256 or "") == 64


@pytest.mark.usefixtures("mlx")
def test_mlx_describes_itself_with_metal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a Mac has Metal is no description of its GPU, which only llama.cpp's log has."""
    import mlx.core

    from pytest_asperf.worker.mlx_engine import MlxEngine

    monkeypatch.setattr(mlx.core.metal, "is_available", lambda: True)
    facts = EngineFacts.parse(MlxEngine().describe())
    assert (facts.metal, facts.verbatim["metal_is_available"]) == (None, True)


def test_a_run_says_what_it_used(worker: Worker, tokens: list[int]) -> None:
    """The cache's type, and MLX's own peak of memory, which is at least the weights."""
    context = worker.generate("draft", tokens[:24], 16).context
    assert (context.type_k, context.n_ctx) == ("f16", 24)
    assert context.memory is not None
    assert context.memory.weights > 2_000_000


@pytest.mark.parametrize(
    ("configured", "begins", "adds"),
    [
        (None, None, True),
        ({}, None, False),
        ({"bos_token": "<|bos|>"}, None, False),
        ({"bos_token": "<|bos|>"}, BEGINS_WITH_BOS, True),
    ],
)
def test_a_text_begins_with_bos_where_its_tokenizer_says_so(
    worker: Worker, tmp_path: Path, configured: dict[str, Any] | None, begins: object, *, adds: bool
) -> None:
    """A folder without a tokenizer's configuration leaves it to the model's; a copy keeps it."""
    folder = Path(shutil.copytree(DRAFT_FOLDER, tmp_path / "hf"))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer | {"post_processor": begins}))
    if configured is not None:
        known = {"tokenizer_class": "PreTrainedTokenizerFast", **configured}
        (folder / "tokenizer_config.json").write_text(json.dumps(known))
    worker.quantize(folder, tmp_path / "made", level_recipe("8bit", "mlx"))
    for one in (folder, tmp_path / "made"):
        worker.load("told", one, EngineSettings())
        assert (worker.tokenize("told", "") == [0]) is adds
        assert (worker.tokenize("told", "def f")[0] == 0) is adds
        worker.unload("told")


@pytest.mark.parametrize(
    ("wide", "computed"), [("", "bf16"), ("layernorm", "f32"), ("model.norm", "bf16")]
)
def test_weights_of_several_types_are_computed_in_the_widest(
    worker: Worker, tmp_path: Path, wide: str, computed: str
) -> None:
    """The type is that of the layers' results, which the norms' type decides, not most weights'."""
    import mlx.core as mx  # it may not be installed

    folder = Path(shutil.copytree(DRAFT_FOLDER, tmp_path / "hf"))
    (file,) = folder.glob("*.safetensors")
    weights = mx.load(str(file))
    for name, value in weights.items():
        weights[name] = value.astype(mx.float32 if wide and wide in name else mx.bfloat16)
    mx.save_safetensors(str(file), weights, metadata={"format": "mlx"})
    loaded = worker.load("mixed", folder, EngineSettings())
    worker.unload("mixed")
    assert loaded.dtype == computed


def test_a_depth_is_reached_from_wherever_the_cache_is(worker: Worker, tokens: list[int]) -> None:
    """Longer, shorter, other and empty prefixes follow each other, and each token is counted."""
    for depth, n in ((0, 4), (16, 8), (8, 8), (24, 2), (0, 3)):
        assert worker.generate("draft", tokens[: depth + n], depth).n_tokens == n
        assert worker.prompt("draft", tokens[5 : depth + n + 5], depth).n_tokens == n


def test_a_slowed_run_takes_longer_by_that_share(mlx: EngineBuild) -> None:
    """The steps are as long as the run, the time added to them with it."""
    with Worker(mlx) as worker:
        worker.load("draft", DRAFT_FOLDER, EngineSettings(slow_by=5.0))
        run = worker.generate("draft", list(range(2, 10)), 0)
    assert sum(run.step_ns[:-1]) < 0.3 * run.elapsed_ns
    assert sum(run.step_ns) <= run.elapsed_ns


@pytest.mark.parametrize(
    "settings",
    [
        EngineSettings(threads=2),
        EngineSettings(n_gpu_layers=0),
        EngineSettings(flash_attn="on"),
        EngineSettings(type_k="q8_0"),
        EngineSettings(n_ubatch=64),
    ],
)
def test_a_setting_it_does_not_have_is_refused(worker: Worker, settings: EngineSettings) -> None:
    """By its name, and with the remedy: nothing is ignored in silence."""
    (name,) = settings.as_dict()
    with pytest.raises(EngineRefusedError, match=f"MLX has no {name}") as caught:
        worker.load("other", DRAFT_FOLDER, settings)
    assert "settings.llama_cpp" in caught.value.remedy


def test_a_prompt_is_read_in_pieces_of_the_batch(mlx: EngineBuild) -> None:
    """`n_batch` is mlx-lm's prefill step."""
    with Worker(mlx) as worker:
        worker.load("draft", DRAFT_FOLDER, EngineSettings(n_batch=8))
        assert len(worker.prompt("draft", [5] * 20, 0).step_ns) == 3


def test_a_text_is_scored_in_pieces_of_the_batch(mlx: EngineBuild) -> None:
    """One token at a time, or some, gives the positions and the logits of all at once."""
    with Worker(mlx) as worker:
        for n_batch in (1, 30, 2048):
            worker.load(str(n_batch), DRAFT_FOLDER, EngineSettings(n_batch=n_batch))
        tokens = worker.tokenize("1", TEXT[:4000])[:64]
        for first in (0, 40):
            row = worker.score(["1", "30", "2048"], tokens, first)
            scores = [row[name][0] for name in ("1", "30", "2048")]
            assert {len(score.nll) for score in scores} == {63 - first}
            assert max(kld for score in scores[1:] for kld in score.kld) < 1e-6


@pytest.mark.parametrize(
    ("level", "most_kld"),
    [
        ("8bit", 0.1),
        ("6bit", 0.2),
        ("4bit-g32", 2.0),
        ("3bit", 8.0),
        ("mxfp4", 4.0),
        ("BF16", 0.01),
    ],
)
def test_levels_are_made_as_they_are_called(
    worker: Worker, tokens: list[int], tmp_path: Path, level: str, most_kld: float
) -> None:
    """The folder's own configuration names the quantization, and it scores near the original."""
    worker.quantize(DRAFT_FOLDER, tmp_path / "made", level_recipe(level, "mlx"))
    info = inspect_mlx(tmp_path / "made")
    assert info.level == level
    assert info.tokenizer_sha256 == inspect_mlx(DRAFT_FOLDER).tokenizer_sha256
    worker.load("made", tmp_path / "made", EngineSettings())
    score, _ = worker.score(["draft", "made"], tokens[:64], 32)["made"]
    worker.unload("made")
    assert 0 < fmean(score.kld) < most_kld


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        ({"bits": 7, "group_size": 64, "mode": "affine"}, "bits"),
        ({"bits": 4, "group_size": 128, "mode": "nofp4"}, "nofp4"),
    ],
)
def test_what_mlx_cannot_make_is_refused_in_its_words(
    worker: Worker, tmp_path: Path, recipe: dict[str, Any], told: str
) -> None:
    """The worker lives on."""
    with pytest.raises(EngineRefusedError, match=told):
        worker.quantize(DRAFT_FOLDER, tmp_path / "made", recipe)
    assert worker.alive
