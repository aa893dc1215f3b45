"""llama-server itself, built from the sources that llama-cpp-python ships."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.workload import parse_workload
from pytest_asperf.engine_process import EngineBuild, Worker
from pytest_asperf.modelfiles.shipped import shipped_corpus
from pytest_asperf.testing import check_engine

if TYPE_CHECKING:
    from tests.conftest import Draft

TEXT = shipped_corpus().read_text("utf-8")[:8000]
TTFT = parse_workload("ttft256", where="test")


@pytest.fixture(scope="session")
def server() -> EngineBuild:
    """llama-server, of a folder that is named or built now."""
    named = os.environ.get("ASPERF_TEST_TOOLS")
    if not named:
        sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
        from build_tools import tools_folder  # only where it is built now
    return EngineBuild("llama_server", Path(sys.executable), Path(named or tools_folder()))


def test_it_conforms(server: EngineBuild, draft: Draft) -> None:
    """It answers every kind of request of one user and of two."""
    check_engine(server, draft("F16"), EngineSettings(threads=1, parallel=2))


def test_what_it_runs_is_said(server: EngineBuild, draft: Draft) -> None:
    """Slots, context, cache and speculation are its own words, device and KV types its log's."""
    settings = EngineSettings(
        threads=1, parallel=2, type_k="q8_0", flash_attn="on", server_args="--cache-ram 0 -c 1024"
    )
    with Worker(server) as worker:
        loaded = worker.load("m", draft("F16"), settings)
        run = worker.serve("m", TEXT, TTFT)
    assert loaded.served is not None
    for word in ("slots 2", "context of a slot 512", "prompt cache disabled", "speculation off"):
        assert word in loaded.served
    assert (loaded.threads, run.context.type_k, run.context.flash_attn) == (1, "q8_0", "on")
    assert loaded.weights_mib
    assert run.peak_rss_bytes > loaded.size_bytes


def test_a_prompt_that_it_has_seen_is_refused(
    server: EngineBuild, draft: Draft, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its prompt cache is on by default, and new prompts do not meet it."""
    from pytest_asperf.worker import served_prompts  # of another process otherwise
    from pytest_asperf.worker.engine import Asked  # as above
    from pytest_asperf.worker.llama_server_engine import LlamaServerEngine  # same
    from pytest_asperf.worker.served_model import ServedModel  # same

    model = LlamaServerEngine(str(server.tools)).load(str(draft("F16")), {"threads": 1})
    assert isinstance(model, ServedModel)
    asked = Asked("ttft", 256, 0, 1, TEXT)
    new = [model.serve(asked).requests[0]["n_cached"] for _ in range(2)]
    seen = model.new_prompt(TEXT, 256)
    monkeypatch.setattr(served_prompts.Prompts, "draw", lambda *_: seen)
    again = [model.serve(asked).requests[0]["n_cached"] for _ in range(2)]
    model.close()
    assert max(new) < 8
    assert again[0] < 8
    assert again[1] > 200
