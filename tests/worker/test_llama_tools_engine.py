"""llama.cpp's real binaries: their times and scores equal the library's."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean

import pytest

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.engine_process import EngineBuild, EngineRefusedError, Worker
from pytest_asperf.modelfiles.hub_cache import shipped_corpus
from tests.broken_models import BREAKS, FLAT, broken_gguf
from tests.conftest import Draft

PYTHON = Path(sys.executable)
SETTINGS = EngineSettings(threads=1)
#: Half a step of llama-perplexity's saved values, in nats, plus the error of float32.
ROUNDING = 0.5 * 16 / 65535 + 1e-5
N_CTX = 64


@pytest.fixture(scope="module")
def text() -> str:
    """The first part of the corpus, without an end of line at its end."""
    return shipped_corpus().read_text("utf-8")[:4000].rstrip()


@pytest.fixture
def worker(tools: Path, draft: Draft) -> Iterator[Worker]:
    """A worker on the binaries, with the shipped draft loaded as F16 and Q4_0."""
    with Worker(EngineBuild("llama_tools", PYTHON, tools), call_timeout_s=60) as worker:
        worker.load("f16", draft("F16"), SETTINGS)
        worker.load("q4", draft("Q4_0"), SETTINGS)
        yield worker


def _chunks(tokens: list[int], n: int) -> list[list[int]]:
    return [tokens[at : at + N_CTX] for at in range(0, n * N_CTX, N_CTX)]


def test_tokens_and_scores_are_the_librarys(worker: Worker, draft: Draft, text: str) -> None:
    """Tokens are equal, each NLL within the rounding of saving, and PPL and KLD far closer."""
    with Worker(EngineBuild("llama_cpp", PYTHON)) as library:
        for name, level in (("f16", "F16"), ("q4", "Q4_0")):
            library.load(name, draft(level), SETTINGS)
        tokens = worker.tokenize("f16", text)
        assert tokens == library.tokenize("f16", text)
        for chunk in _chunks(tokens, 4):
            ours, theirs = (w.score(["f16", "q4"], chunk, N_CTX // 2) for w in (worker, library))
            for name in ("f16", "q4"):
                mine, expected = ours[name][0].nll, theirs[name][0].nll
                assert mine == pytest.approx(expected, abs=ROUNDING)
                assert fmean(mine) == pytest.approx(fmean(expected), abs=ROUNDING / 4)
            mine, expected = ours["q4"][0].kld, theirs["q4"][0].kld
            assert fmean(mine) == pytest.approx(fmean(expected), abs=1e-4)


def test_scores_can_be_asked_for_in_any_order(worker: Worker, text: str) -> None:
    """A gate draws chunks by chance: each has the same NLL as in the text's order."""
    chunks = _chunks(worker.tokenize("f16", text), 4)
    in_order = [worker.score(["f16"], chunk, N_CTX // 2)["f16"][0].nll for chunk in chunks]
    other = [worker.score(["f16"], chunks[i], N_CTX // 2)["f16"][0].nll for i in (3, 0, 2, 1)]
    assert other == [in_order[i] for i in (3, 0, 2, 1)]
    beside = worker.score(["f16", "q4"], chunks[1], N_CTX // 2)["f16"][0].nll
    assert beside == pytest.approx(in_order[1], abs=1e-6)


def test_tokens_of_no_text_are_refused(worker: Worker, text: str) -> None:
    """llama-perplexity accepts no tokens; the message names the engine that does."""
    tokens = worker.tokenize("f16", text)
    with pytest.raises(EngineRefusedError, match=r"unsupported.*the engine llama_cpp"):
        worker.score(["f16"], tokens[1 : 1 + N_CTX], N_CTX // 2)
    with pytest.raises(EngineRefusedError, match="second half of a chunk"):
        worker.score(["f16"], tokens[:N_CTX], 8)


def test_the_first_token_is_refused(worker: Worker) -> None:
    """No program times TTFT; the message names the engine that can."""
    with pytest.raises(EngineRefusedError, match=r"unsupported.*llama_cpp times TTFT"):
        worker.first_token("f16", [0] * 8)


@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_settings_are_those_that_ran(tools: Path, draft_gguf: Path, flash_attn: str) -> None:
    """Cache types, threads and flash attention are read from the log, for timing and scoring."""
    keys = {"type_k": "q8_0", "threads": 1, "flash_attn": flash_attn}
    settings = EngineSettings(**keys)  # type: ignore[arg-type]  # read back below
    text = "def area(width, height):\n    return width * height\n" * 30
    with Worker(EngineBuild("llama_tools", PYTHON, tools)) as worker:
        loaded = worker.load("model", draft_gguf, settings)
        timed = worker.generate("model", [0] * 8, 4).context
        tokens = worker.tokenize("model", text)
        _, scored = worker.score(["model"], tokens[:N_CTX], N_CTX // 2)["model"]
    assert (loaded.n_layers, loaded.layers_offloaded, loaded.tokens) == (2, 0, "random")
    for context in (timed, scored):
        assert {key: context.verbatim[key] for key in keys} == keys
        assert context.type_v == "f16"


def test_speculation_is_counted_and_lossless(
    worker: Worker, program: Callable[[str], Path]
) -> None:
    """A model that drafts for itself has all its drafts accepted, in any precision nearly all."""
    program("llama-speculative-simple")
    own = worker.speculate("f16", "f16", "def area(width, height):", n_new=48, k=4)
    assert own.n_accepted == own.n_drafted > 0
    assert own.n_emitted >= 48
    assert own.elapsed_ns > 0
    other = worker.speculate("f16", "q4", "def area(width, height):", n_new=48, k=4)
    assert 0 < (other.n_accepted or 0) < other.n_drafted
    assert other.text[:100] == own.text[:100]


def _log_through(command: str, tools: Path, name: str, folder: Path) -> None:
    """Write a folder of the binaries in which the log of one goes through a command."""
    for program in tools.iterdir():
        (folder / program.name).symlink_to(program)
    (folder / name).unlink()
    (folder / name).write_text(f'#!/bin/bash\nexec {tools / name} "$@" 2> >({command} >&2)\n')
    (folder / name).chmod(0o755)


def test_a_log_that_comes_late_is_waited_for(tools: Path, draft_gguf: Path, tmp_path: Path) -> None:
    """A chunk's scores may come before the lines about the context in which it was computed."""
    _log_through("sleep 0.1; exec cat", tools, "llama-perplexity", tmp_path)
    with Worker(EngineBuild("llama_tools", PYTHON, tmp_path)) as worker:
        worker.load("model", draft_gguf, EngineSettings(threads=1, flash_attn="on"))
        tokens = worker.tokenize("model", "def area(width, height): " * 30)
        _, scored = worker.score(["model"], tokens[:N_CTX], N_CTX // 2)["model"]
    assert scored.flash_attn == "on"


@pytest.mark.parametrize(
    "lost", ["", "/ statistics /,$d"], ids=["whole", "without an end at first"]
)
def test_an_acceptance_that_is_reported_too_high_is_an_error(
    program: Callable[[str], Path], draft: Draft, tmp_path: Path, lost: str
) -> None:
    """A program that counts more accepted tokens than its drafters' statistics is not believed.

    They are at the log's end, and without it the program runs again.
    """
    edit = "s/n_accept  = .*/n_accept  = 30/; s/n_drafted = .*/n_drafted = 40/"
    is_first = f"[[ $* != --help ]] && mkdir {tmp_path}/ran"
    real = program("llama-speculative-simple")
    command = f"{is_first} && exec sed -u '{edit}; {lost}' >&2; exec sed -u '{edit}'"
    _log_through(command, real.parent, real.name, tmp_path)
    with Worker(EngineBuild("llama_tools", PYTHON, tmp_path)) as worker:
        for model in ("F16", "Q4_K_M"):
            worker.load(model, draft(model), EngineSettings(threads=1))
        with pytest.raises(EngineRefusedError, match="30 accepted of 40 drafted tokens, and"):
            worker.speculate("F16", "Q4_K_M", "def area(width, height):", n_new=48, k=4)


def test_what_it_quantises_is_what_the_library_does(
    tools: Path, draft: Draft, tmp_path: Path
) -> None:
    """llama-quantize writes the file that llama-cpp-python writes."""
    with Worker(EngineBuild("llama_tools", PYTHON, tools)) as worker:
        worker.quantize(draft("F16"), tmp_path / "q8.gguf", {"ftype": 7})
    assert (tmp_path / "q8.gguf").read_bytes() == draft("Q8_0").read_bytes()


def test_what_is_no_model_is_refused(tools: Path, tmp_path: Path) -> None:
    """A file that cannot be loaded is an error of load, with the program's own words."""
    (tmp_path / "no.gguf").write_bytes(b"GGUF" + bytes(100))
    with Worker(EngineBuild("llama_tools", PYTHON, tools)) as worker:
        with pytest.raises(EngineRefusedError, match=r"\(load\).*failed to load model"):
            worker.load("model", tmp_path / "no.gguf", SETTINGS)
        with pytest.raises(EngineRefusedError, match=r"\(quantize\)"):
            worker.quantize(tmp_path / "no.gguf", tmp_path / "q8.gguf", {"ftype": 7})


@pytest.mark.parametrize("how", BREAKS)
def test_what_computes_no_numbers_is_refused(
    tools: Path, draft_gguf: Path, tmp_path: Path, how: str
) -> None:
    """llama-bench times such a file and exits with 0; llama-perplexity shows its results."""
    path = broken_gguf(draft_gguf, tmp_path / "broken.gguf", how)
    said = "2048 logits of a row are equal" if how in FLAT else "non-finite"
    with (
        Worker(EngineBuild("llama_tools", PYTHON, tools)) as worker,
        pytest.raises(EngineRefusedError, match=said) as caught,
    ):
        worker.load("m", path, SETTINGS)
    assert caught.value.breaks_measurement
