"""A draft that a real RPC server computes, on loopback.

The library that pip installs has no RPC. The binaries' own libraries have it and are of the same
sources, so they replace it in a copy of the package.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.engine_process import (
    EngineBuild,
    EngineRefusedError,
    Worker,
    WorkerError,
    WorkerPair,
)
from pytest_asperf.worker import rpc_remote
from pytest_asperf.worker.engine import RefusalError
from pytest_asperf.worker.llama_tools_engine import speculate
from pytest_asperf.worker.printed.speculation_log import SpeculationReader
from pytest_asperf.worker.rpc_remote import Placement, Remote
from pytest_asperf.worker.tool_process import Toolbox
from tests.rpc_library import rpc_python
from tests.scripted_rpc import scripted_rpc, served

pytestmark = pytest.mark.live

SERVER = "ggml-rpc-server"


@pytest.fixture(scope="module")
def build(program: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> EngineBuild:
    """An interpreter whose llama.cpp has RPC."""
    tools = program(SERVER).parent
    return EngineBuild("llama_cpp", rpc_python(tools, tmp_path_factory.mktemp("rpc")))


@pytest.fixture
def loopback(program: Callable[[str], Path]) -> Iterator[Remote]:
    """A server that runs with the test, and counts its graphs."""
    remote = Remote("loopback", str(program(SERVER).parent))
    yield remote
    remote.close()


def _drafted(worker: Worker, model: Path, remote: str | None) -> list[int]:
    """The tokens of a model that drafts for itself, here or on the server."""
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
    """The server would leave it hanging; a request does not end the server, as SIGPIPE would."""
    settings = EngineSettings(remote=loopback.endpoint)
    with Worker(build, call_timeout_s=60) as second:
        with Worker(build, call_timeout_s=60) as first:
            first.load("draft", draft_gguf, settings)
            with pytest.raises(EngineRefusedError, match="serves another client"):
                second.load("draft", draft_gguf, settings)
        assert second.load("draft", draft_gguf, settings).remote
    assert not loopback.has_ended


def test_a_server_that_dies_ends_the_measurement(
    build: EngineBuild, draft_gguf: Path, loopback: Remote
) -> None:
    """llama.cpp ends its own process: an error with this reason, and no rate."""
    with Worker(build, call_timeout_s=60) as worker:
        worker.load("draft", draft_gguf, EngineSettings(remote=loopback.endpoint))
        worker.generate("draft", [5] * 9, 1)
        loopback.close()
        with pytest.raises(WorkerError, match="SIGABRT"):
            worker.generate("draft", [5] * 9, 1)


@pytest.fixture
def ssh(program: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has the binaries on its PATH, and is reached with a private configuration."""
    (tmp_path / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {tmp_path}/ssh_config "$@"\n')
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{program(SERVER).parent}:{os.environ['PATH']}")


def test_a_server_is_started_over_ssh(
    ssh: None,  # noqa: ARG001  # before sshd, which passes PATH on
    sshd: Path,  # noqa: ARG001
    programs: Worker,
    draft_gguf: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It computes through a tunnel, its log is counted, and it ends with the connection."""
    remote = Remote("ssh:there")
    programs.load("far", draft_gguf, _far(remote))
    assert programs.generate("far", [0] * 8, 0).n_tokens == 8
    assert (remote.work_so_far().n_graphs or 0) >= 8
    remote.close()
    with pytest.raises(EngineRefusedError, match="cannot be reached"):
        programs.generate("far", [0] * 8, 0)
    monkeypatch.setattr(rpc_remote, "_PROGRAMS", ("no-such-server",))
    with pytest.raises(RefusalError, match=r"does not serve: .*no-such-server"):
        Remote("ssh:there")


@pytest.mark.usefixtures("own_interpreters")
def test_a_build_without_rpc_says_so(draft_gguf: Path, tmp_path: Path) -> None:
    """As pip compiles it by default; a library that has RPC does not find it here."""
    source, library, python = (tmp_path / name for name in ("none.c", "none.so", "python"))
    source.write_text("void * ggml_backend_rpc_reg(void) { return 0; }\n")
    subprocess.run(["/usr/bin/cc", "-shared", "-fPIC", "-o", library, source], check=True)
    python.write_text(f'#!/bin/sh\nLD_PRELOAD={library} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    settings = EngineSettings(remote="127.0.0.1:50052")
    with (
        Worker(EngineBuild("llama_cpp", python)) as worker,
        pytest.raises(EngineRefusedError, match="GGML_RPC=ON"),
    ):
        worker.load("draft", draft_gguf, settings)


@pytest.fixture
def programs(tools: Path) -> Iterator[Worker]:
    """A worker on llama.cpp's binaries."""
    with Worker(EngineBuild("llama_tools", Path(sys.executable), tools), call_timeout_s=60) as own:
        yield own


def _far(remote: Remote, n_gpu_layers: int | None = None) -> EngineSettings:
    return EngineSettings(threads=1, remote=remote.endpoint, n_gpu_layers=n_gpu_layers)


def test_programs_draft_on_a_server(programs: Worker, draft_gguf: Path, loopback: Remote) -> None:
    """llama-speculative-simple computes the draft there, with equal output; locally none."""
    prompt, here = "def area(width, height):", EngineSettings(threads=1)
    programs.load("target", draft_gguf, here)
    programs.load("near", draft_gguf, here)
    local = programs.speculate("target", "near", prompt, n_new=32, k=4)
    assert loopback.work_so_far().n_graphs == 0
    loaded = programs.load("far", draft_gguf, _far(loopback))
    assert loaded.remote
    assert (loaded.remote.bandwidth_mbs or 0) > 0
    begun = loopback.work_so_far().n_graphs or 0
    remote = programs.speculate("target", "far", prompt, n_new=32, k=4)
    counts = ("n_emitted", "n_drafted", "n_accepted", "text")
    assert [getattr(remote, name) for name in counts] == [getattr(local, name) for name in counts]
    assert (loopback.work_so_far().n_graphs or 0) - begun >= remote.n_drafted
    after = programs.unload("far")
    assert after
    assert after.endpoint == loopback.endpoint


def test_a_run_without_counts_is_repeated(
    tools: Path, draft_gguf: Path, loopback: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama-speculative-simple may lose its log; its connection must end before it runs again."""
    lost = iter([True])
    runs = SpeculationReader.runs
    monkeypatch.setattr(SpeculationReader, "runs", lambda self: () if next(lost, 0) else runs(self))
    models = ("-m", str(draft_gguf), "-md", str(draft_gguf), "-t", "1")
    placed = Placement(Toolbox(tools), draft=loopback)
    done = speculate(placed, models, "def area(", n_new=8, k=2, n_vocab=2048)
    assert done["n_drafted"] > 0


def test_programs_that_compute_here_are_found_out(
    programs: Worker, draft_gguf: Path, loopback: Remote
) -> None:
    """llama-bench lists the server's device, exits with 0 and computed all of it here."""
    with pytest.raises(EngineRefusedError, match="no weights are on"):
        programs.load("far", draft_gguf, _far(loopback, n_gpu_layers=0))


def test_a_server_outlives_a_text_that_is_not_scored_to_its_end(
    programs: Worker, draft_gguf: Path, loopback: Remote
) -> None:
    """Ended while the server computes its next chunk, llama-perplexity would end the server too."""
    programs.load("far", draft_gguf, _far(loopback))
    tokens = programs.tokenize("far", "def area(width, height): " * 500)
    for _ in range(3):
        assert programs.score(["far"], tokens[:512], 256)["far"][0].nll
        assert programs.generate("far", [0] * 8, 0).n_tokens == 8
    assert not loopback.has_ended


def test_programs_whose_server_dies_or_is_busy(
    programs: Worker, build: EngineBuild, draft_gguf: Path, loopback: Remote
) -> None:
    """A busy client, and a server that ends between two runs: each is named."""
    programs.load("far", draft_gguf, _far(loopback))
    with Worker(build, call_timeout_s=60) as other:
        other.load("draft", draft_gguf, EngineSettings(remote=loopback.endpoint))
        with pytest.raises(EngineRefusedError, match="serves another client"):
            programs.generate("far", [0] * 8, 0)
    assert programs.generate("far", [0] * 8, 0).n_tokens == 8
    begun = loopback.work_so_far().n_graphs or 0

    def end_in_between() -> None:
        while (loopback.work_so_far().n_graphs or 0) < begun + 20:
            time.sleep(0.005)
        loopback.close()

    ending = threading.Thread(target=end_in_between)
    ending.start()
    with pytest.raises(EngineRefusedError, match=r"cannot be reached: .*SIG(ABRT|PIPE)"):
        programs.generate("far", [0] * 500, 0)
    ending.join()


def test_a_server_of_another_version_is_named(
    programs: Worker, build: EngineBuild, draft_gguf: Path
) -> None:
    """llama.cpp ends its process; the error has the reason, and there is no rate."""
    with served(scripted_rpc(6)) as port, Worker(build, call_timeout_s=60) as library:
        settings = EngineSettings(threads=1, remote=f"127.0.0.1:{port}")
        with pytest.raises(EngineRefusedError, match="version mismatch: 6"):
            programs.load("far", draft_gguf, settings)
        with pytest.raises(WorkerError) as crash:
            library.load("far", draft_gguf, settings)
    assert "version mismatch: 6" in str(crash.value)
