"""A draft that a real RPC server computes, on loopback.

The library that pip installs has no RPC. The programs' own libraries have it and are of the same
sources, so they take its place in a copy of the package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import llama_cpp
import pytest

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.engine_process import EngineBuild, EngineRefusedError, Worker, WorkerPair
from pytest_asperf.engine_process.process import WorkerError
from pytest_asperf.worker.rpc_remote import Remote

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.live

SERVER = "ggml-rpc-server"


@pytest.fixture(scope="module")
def build(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> EngineBuild:
    """An interpreter whose llama.cpp has RPC."""
    if not (tools / SERVER).is_file():
        pytest.skip(f"{tools} has no {SERVER}")
    folder = tmp_path_factory.mktemp("rpc")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    package = Path(llama_cpp.__file__).parent
    shutil.copytree(package, site / "llama_cpp", ignore=shutil.ignore_patterns("lib"))
    (site / "llama_cpp" / "lib").mkdir()
    for library in tools.glob("lib*.so*"):
        (site / "llama_cpp" / "lib" / library.name).symlink_to(library.resolve())
    (site / "rest.pth").write_text(f"{package.parent}\n")
    return EngineBuild("llama_cpp", folder / "bin" / "python")


@pytest.fixture
def loopback(tools: Path) -> Iterator[Remote]:
    """A server that runs beside the test, and counts its graphs."""
    path, os.environ["PATH"] = os.environ["PATH"], str(tools)
    try:
        remote = Remote("loopback")
    finally:
        os.environ["PATH"] = path
    yield remote
    remote.close()


def _drafted(worker: Worker, model: Path, remote: str | None) -> list[int]:
    """The tokens of a model that drafts for itself, here or elsewhere."""
    worker.load("target", model, EngineSettings())
    loaded = worker.load("draft", model, EngineSettings(remote=remote))
    assert (loaded.remote is not None) == (remote is not None)
    pair = WorkerPair(worker, "pair", "target", "draft")
    pair.open(n_ctx=128, k=5, rollback="auto")
    tokens = pair.generate([5, 9, 17, 33], n_new=16, k=4, temperature=0.0, seed=1).tokens
    worker.clear()
    return list(tokens)


def test_a_remote_draft_gives_the_same_tokens(
    build: EngineBuild, draft_gguf: Path, loopback: Remote
) -> None:
    """The server computes graphs for a remote draft, and none for a local one."""
    with Worker(build, call_timeout_s=60) as worker:
        local = _drafted(worker, draft_gguf, None)
        assert loopback.work_so_far().n_graphs == 0
        assert _drafted(worker, draft_gguf, loopback.endpoint) == local
    assert (loopback.work_so_far().n_graphs or 0) >= 16


def test_a_second_client_is_named(build: EngineBuild, draft_gguf: Path, loopback: Remote) -> None:
    """The server serves one client at a time, and would leave the second one hanging."""
    settings = EngineSettings(remote=loopback.endpoint)
    with Worker(build, call_timeout_s=60) as first, Worker(build, call_timeout_s=60) as second:
        first.load("draft", draft_gguf, settings)
        with pytest.raises(EngineRefusedError, match="serves another client"):
            second.load("draft", draft_gguf, settings)


def test_a_server_that_dies_ends_the_measurement(
    build: EngineBuild, draft_gguf: Path, loopback: Remote
) -> None:
    """llama.cpp ends its own process: an error that says so, and no rate."""
    with Worker(build, call_timeout_s=60) as worker:
        worker.load("draft", draft_gguf, EngineSettings(remote=loopback.endpoint))
        worker.generate("draft", [5] * 9, 1)
        loopback.close()
        with pytest.raises(WorkerError, match="SIGABRT"):
            worker.generate("draft", [5] * 9, 1)


def test_a_build_without_rpc_says_so(draft_gguf: Path) -> None:
    """The wheel's library has none."""
    with Worker(EngineBuild("llama_cpp", Path(sys.executable))) as worker:
        if any(device.type == "RPC" for device in worker.describe().devices):
            pytest.skip("this library has RPC")
        with pytest.raises(EngineRefusedError, match="GGML_RPC=ON"):
            worker.load("draft", draft_gguf, EngineSettings(remote="127.0.0.1:50052"))
