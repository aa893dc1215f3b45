"""The times of servers as engines, and the fate of one that fails.

A program in llama-server's place speaks as it does; the real servers are in test_llama_server.py.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.workload import parse_workload
from pytest_asperf.engine_process import EngineBuild, EngineRefusedError, Worker, WorkerError
from pytest_asperf.errors import EngineError, MeasurementError
from pytest_asperf.gate.judge import shows_a_build
from pytest_asperf.measure.validity import require_sound
from tests.processes import wait_for_end
from tests.served import write_llama_server

TEXT = "def area ( width , height ) : return width * height\n" * 40
MODEL = Path("/models/some.gguf")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for programs, after which no server is left."""
    yield tmp_path
    if (tmp_path / "pid").exists():
        wait_for_end(int((tmp_path / "pid").read_text()))


def server(folder: Path) -> Worker:
    """A worker that runs the server in a folder."""
    build = EngineBuild("llama_server", Path(sys.executable), folder)
    return Worker(build, call_timeout_s=120.0)


def hurry(worker: Worker, harm: str) -> None:
    """Give a call without an answer 2 s; everything else has the time that a busy machine needs."""
    if harm in {"hang", "loading"}:
        worker.call_timeout_s = 2.0


def test_each_workload_is_one_request_of_each_user(folder: Path) -> None:
    """Counts are the workload's, prompts differ, and requests of several users overlap."""
    write_llama_server(folder)
    with server(folder) as worker:
        loaded = worker.load("m", MODEL, EngineSettings(parallel=4, server_args="--cache-ram 0"))
        assert loaded.served is not None
        assert "slots 4" in loaded.served
        assert (loaded.n_layers, loaded.n_params) == (2, 7)
        for name in ("pp64", "ttft64", "tg16", "itl16", "pp64+tg16", "tg16@c3", "ttft64@c2"):
            workload = parse_workload(name, where="test")
            run = require_sound(name, worker.serve("m", TEXT, workload), workload)
            assert (run.n_tokens, len(run.requests)) == (workload.n_counted, workload.users)
            assert sum(run.step_ns) <= run.elapsed_ns
            if not workload.generates:
                prompt = workload.depth or workload.n_tokens
                assert {request.n_prompt for request in run.requests} == {prompt}
            firsts = [request.event_ns[0] for request in run.requests]
            lasts = [request.event_ns[-1] for request in run.requests]
            assert max(firsts) < min(lasts)


def test_a_log_that_comes_late_is_waited_for(folder: Path) -> None:
    """A thread of its own writes it: a busy llama-server was ready before its number of threads."""
    write_llama_server(folder, logs_late=0.5)
    with server(folder) as worker:
        assert worker.load("m", MODEL, EngineSettings(threads=1)).threads == 1


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        ("die", "SIGKILL"),
        ("hang", "no answer within 2 s"),
        ("short", "before 17 tokens"),
    ],
)
def test_a_server_that_fails_is_a_named_result(folder: Path, harm: str, says: str) -> None:
    """The error has the reason and the server's last lines; nothing of it is left."""
    write_llama_server(folder, harm)
    workload = parse_workload("tg16", where="test")
    with server(folder) as worker:
        worker.load("m", MODEL, EngineSettings())
        hurry(worker, harm)
        with pytest.raises(EngineError, match=says) as error:
            worker.serve("m", TEXT, workload)
        assert error.value.breaks_measurement
        assert not worker.alive
    log = f"{error.value} {error.value.detail}"
    assert harm != "die" or "GGML_ASSERT failed" in log


@pytest.mark.parametrize(
    ("harm", "kind", "says"),
    [
        ("exit", EngineRefusedError, "exited with status 1 before it was ready.*model is broken"),
        ("package", EngineRefusedError, r"'uvicorn'.*such as llama-cpp-python\[server\]"),
        ("loading", WorkerError, "no answer within 2 s"),
    ],
)
def test_a_server_that_does_not_start_is_a_named_result(
    folder: Path, harm: str, kind: type[EngineError], says: str
) -> None:
    """One that ends has its reason, one that never becomes ready is given up."""
    write_llama_server(folder, harm)
    with server(folder) as worker:
        hurry(worker, harm)
        with pytest.raises(kind, match=f"(?s){says}") as error:
            worker.load("m", MODEL, EngineSettings())
    assert shows_a_build(error.value) is (harm != "package")


def test_a_prompt_from_the_cache_is_no_measurement(folder: Path) -> None:
    """The server reports that it had most of the prompt; the generation after it still counts."""
    write_llama_server(folder, cached=60)
    prompt, output = (parse_workload(name, where="test") for name in ("ttft64", "tg16"))
    with server(folder) as worker:
        worker.load("m", MODEL, EngineSettings())
        run = worker.serve("m", TEXT, prompt)
        with pytest.raises(MeasurementError, match=r"cached-prompt: .* 60 of 64 tokens"):
            require_sound("ttft64", run, prompt)
        require_sound("tg16", worker.serve("m", TEXT, output), output)


@pytest.mark.parametrize(
    ("cached", "says"), [(60, ""), (40, "with 40 of 64 tokens from its cache"), (0, "with 0 of 64")]
)
def test_a_warm_prompt_must_come_from_the_cache(folder: Path, cached: int, says: str) -> None:
    """Each prompt is sent twice; the server must report that it had the second one."""
    write_llama_server(folder, cached=cached)
    warm = parse_workload("ttft64@warm", where="test")
    with server(folder) as worker:
        worker.load("m", MODEL, EngineSettings())
        run = worker.serve("m", TEXT, warm)
    prompts = (folder / "prompts").read_text().splitlines()
    assert len(run.requests) == 1
    assert len(prompts) == 2 * len(set(prompts)) == 2
    if not says:
        require_sound("ttft64@warm", run, warm)
    else:
        with pytest.raises(MeasurementError, match=f"not-reused: .* {says}"):
            require_sound("ttft64@warm", run, warm)


def test_what_a_server_cannot_do_is_refused_by_name(folder: Path) -> None:
    """It cannot be stepped, and has only settings of its own."""
    write_llama_server(folder)
    with server(folder) as worker:
        assert {"generate", "step", "slow_by"} <= worker.describe().cannot.keys()
        worker.load("m", MODEL, EngineSettings())
        refused = (
            lambda: worker.generate("m", [1, 2], 0),
            lambda: worker.load("n", MODEL, EngineSettings(slow_by=0.1)),
        )
        for ask in refused:
            with pytest.raises(EngineRefusedError, match="unsupported"):
                ask()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_server_outlives_the_session(folder: Path, number: signal.Signals) -> None:
    """It ends with its parent process, for any end of that."""
    pid_file = write_llama_server(folder)
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from pytest_asperf.config.engine_settings import EngineSettings\n"
        "from pytest_asperf.engine_process import EngineBuild, Worker\n"
        f"build = EngineBuild('llama_server', Path(sys.executable), Path({str(folder)!r}))\n"
        "worker = Worker(build)\nworker.load('m', Path('/m.gguf'), EngineSettings())\n"
        "print('loaded', flush=True)\ntime.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "loaded\n"
    os.kill(process.pid, number)
    process.communicate()
    wait_for_end(int(pid_file.read_text()))
