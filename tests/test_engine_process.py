"""A worker that goes wrong is a result; one that goes right answers requests."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.engine_process import (
    ContextFacts,
    EngineBuild,
    EngineFacts,
    EngineRefusedError,
    LoadedFacts,
    Worker,
    WorkerError,
    core_times_ns,
    usable_cores,
)
from pytest_asperf.engine_process.process import died
from pytest_asperf.testing import write_script
from pytest_asperf.worker import wire
from pytest_asperf.worker.printed.engine_log import LastWords
from tests.conftest import Draft
from tests.harmful_interpreter import write_interpreter

pytestmark = pytest.mark.usefixtures("own_interpreters")

SCRIPTED = EngineBuild("scripted", Path(sys.executable))


def _generate(tmp_path: Path, **script: Any) -> None:
    path = write_script(tmp_path / "model.json", **script)
    with Worker(SCRIPTED) as worker:
        worker.load("model", path, EngineSettings())
        worker.generate("model", [0] * 8, 0)


def test_a_crash_names_the_signal_and_the_last_words(tmp_path: Path) -> None:
    """A segmentation fault becomes an error with the signal and the engine's log."""
    with pytest.raises(WorkerError, match="SIGSEGV") as caught:
        _generate(tmp_path, faults={"generate": "crash"})
    assert "scripted: about to crash" in str(caught.value)


def test_the_peak_of_a_worker_is_its_own(tmp_path: Path) -> None:
    """The memory of the process that started it does not count."""
    of_parent = bytearray(2**28)
    path = write_script(tmp_path / "model.json")
    with Worker(SCRIPTED) as worker:
        worker.load("model", path, EngineSettings())
        assert 0 < worker.generate("model", [0] * 8, 0).peak_rss_bytes < len(of_parent)


#: An engine's last lines: the line that explains its end, and the lines before and after.
LAST_WORDS = {
    "an assertion of ggml": (
        ["load_tensors: tensor 'a' cannot be used with preferred buffer type, using CPU instead"],
        "/src/ggml/src/ggml.c:3042: GGML_ASSERT(ggml_can_mul_mat(a, b)) failed",
        [
            "[New LWP 4711]",
            "#1  0x00007f3a in ggml_print_backtrace () from libggml-base.so",
            "libggml-base.so(ggml_abort+0x152)[0x7f3a]",
        ],
    ),
    "ggml_abort": ([], "/src/ggml-metal.m:88: fatal: unsupported op 'SCALE'", ["graph of 7 nodes"]),
    "a card without memory": (
        ["ggml_cuda_init: found 1 CUDA devices, 0 errors"],
        "CUDA error: out of memory",
        [
            "  current device: 0, in function alloc at ggml-cuda.cu:500",
            "ggml-cuda.cu:88: CUDA error",
        ],
    ),
    "an exception of C++": (
        ["terminate called after throwing an instance of 'std::runtime_error'"],
        "what():  [METAL] Command buffer execution failed: Insufficient Memory",
        ["Aborted"],
    ),
    "libc++": ([], "libc++abi: terminating due to uncaught exception of type std::bad_alloc", []),
    "Python": ([], "Fatal Python error: Segmentation fault", ["Current thread 0x7f (first):"]),
    "an allocation": ([], "llama_kv_cache: failed to allocate buffer for kv cache", []),
    "any error": (["error: an old one"], "decode_batch: error 3 in layer 7", ["done 0 of 3"]),
}


@pytest.mark.parametrize("n_after", [0, 7, 150])
@pytest.mark.parametrize("case", LAST_WORDS)
def test_the_line_that_explains_a_crash_is_shown(tmp_path: Path, case: str, n_after: int) -> None:
    """For any later logging, it is in the error's first line, and above the log."""
    before, explains, after = LAST_WORDS[case]
    lines = [*before, explains, *after, *(f"  frame {n} of the stack" for n in range(n_after))]
    code = (
        "def chosen(request):\n"
        "    if request['op'] != 'generate':\n        return ''\n"
        f"    os.write(2, {chr(10).join(lines)!r}.encode() + b'\\n')\n    return 'aborts'"
    )
    path = write_script(tmp_path / "model.json")
    build = EngineBuild("scripted", write_interpreter(tmp_path / "python", code))
    with Worker(build) as worker:
        worker.load("model", path, EngineSettings())
        with pytest.raises(WorkerError, match="SIGABRT") as caught:
            worker.generate("model", [0] * 8, 0)
    assert caught.value.what.endswith(f"SIGABRT; its log has: {explains}")
    text = str(caught.value)
    assert explains in text.partition("what to do")[2]
    assert lines[-1] in text


_GGML_ABORT = """
def chosen(request):
    if request["op"] == "generate":
        import pathlib, llama_cpp
        os.environ.pop("GGML_NO_BACKTRACE", None)
        name = "libggml-base.dylib" if sys.platform == "darwin" else "libggml-base.so"
        path, = pathlib.Path(llama_cpp.__file__).parent.rglob(name)
        ctypes.CDLL(str(path)).ggml_abort(b"ops.cpp", 42, b"GGML_ASSERT(%s) failed", b"ne0 == 1")
    return ""
"""


def test_an_assertion_of_the_real_engine_is_shown(tmp_path: Path, draft: Draft) -> None:
    """Below it ggml prints a backtrace, or a debugger's threads."""
    build = EngineBuild("llama_cpp", write_interpreter(tmp_path / "python", _GGML_ABORT))
    with Worker(build) as worker:
        worker.load("model", draft("Q8_0"), EngineSettings())
        with pytest.raises(WorkerError) as caught:
            worker.generate("model", [1] * 8, 0)
    assert "SIGABRT; its log has: " in caught.value.what
    assert caught.value.what.endswith("ops.cpp:42: GGML_ASSERT(ne0 == 1) failed")


def test_a_log_without_an_explanation_is_only_quoted() -> None:
    """A line that mentions an error long before the end, or none, explains nothing."""
    words = LastWords()
    for line in ["error: a file is missing", *["decoding"] * 201, "0 errors", "#3 ggml_abort ()"]:
        words.add(line)
    assert words.text == ""
    words.add("error: another")
    assert words.text == "error: another"


def test_a_crash_of_llama_cpp_speaks_of_its_compilation() -> None:
    """It is compiled if it is installed, for the processor there; MLX comes compiled."""
    for number in (signal.SIGSEGV, signal.SIGILL):
        assert "-DGGML_NATIVE=OFF" in died("llama_cpp", "prompt", -number, "").remedy
        assert "GGML" not in died("mlx", "prompt", -number, "").remedy


def test_a_kill_speaks_of_memory(tmp_path: Path) -> None:
    """SIGKILL, which the kernel sends when memory runs out, is named."""
    with pytest.raises(WorkerError, match="SIGKILL") as caught:
        _generate(tmp_path, faults={"generate": "killed"})
    assert "memory" in caught.value.remedy


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count it")
def test_the_wait_for_a_core_is_counted() -> None:
    """A thread that shares its core with a loop waits for about half of the time."""
    loop = subprocess.Popen([sys.executable, "-IS", "-c", "while True: pass"])
    usual = os.sched_getaffinity(0)
    core = {min(usual)}
    try:
        os.sched_setaffinity(loop.pid, core)
        os.sched_setaffinity(0, core)
        before_ns, ends = core_times_ns(os.getpid())[1], time.monotonic() + 0.5
        while time.monotonic() < ends:
            pass
        assert core_times_ns(os.getpid())[1] - before_ns > 50_000_000
    finally:
        os.sched_setaffinity(0, usual)
        loop.kill()
        loop.wait()
    assert core_times_ns(2**30) == (0, 0)


def test_a_hang_ends_at_the_deadline(tmp_path: Path) -> None:
    """A worker that never answers is ended, and its process is gone."""
    path = write_script(tmp_path / "model.json", faults={"generate": "hang"})
    worker = Worker(SCRIPTED)
    worker.load("model", path, EngineSettings())
    with pytest.raises(WorkerError, match=r"no answer within 0\.3 s"):
        worker.call("generate", model="model", tokens=[0] * 8, depth=0, n_ctx=8, timeout_s=0.3)
    assert not worker.alive
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)


def test_junk_on_the_pipe_is_not_believed(tmp_path: Path) -> None:
    """Bytes that are no message end the worker."""
    with pytest.raises(WorkerError, match="an unreadable answer"):
        _generate(tmp_path, faults={"generate": "garbage"})


def test_a_refusal_leaves_the_worker_alive(tmp_path: Path) -> None:
    """After a rejected request the same worker answers the next one."""
    path = write_script(tmp_path / "model.json", faults={"prompt": "refuse"})
    with Worker(SCRIPTED) as worker:
        worker.load("model", path, EngineSettings())
        with pytest.raises(EngineRefusedError, match="the script cannot prompt"):
            worker.prompt("model", [0] * 8, 0)
        assert worker.generate("model", [0] * 8, 0).n_tokens == 8


def test_a_start_that_hangs_ends_at_the_deadline_of_a_call(tmp_path: Path) -> None:
    """The start of a process has a deadline, and its error names the setting."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 3600\n")
    python.chmod(0o755)
    with pytest.raises(WorkerError, match=r"start: no answer within 0\.3 s") as caught:
        Worker(EngineBuild("scripted", python), call_timeout_s=0.3)
    assert "raise `call_timeout_s`" in (caught.value.opt_out or "")


def test_a_missing_interpreter_is_named() -> None:
    """An interpreter that does not exist is a four-part error."""
    with pytest.raises(WorkerError, match="/nowhere/python") as caught:
        Worker(EngineBuild("scripted", Path("/nowhere/python")))
    assert ": python" in caught.value.remedy


def test_an_engine_that_cannot_be_imported_is_refused() -> None:
    """An interpreter without the engine raises with the packages to install."""
    with pytest.raises(EngineRefusedError, match="import") as caught:
        Worker(EngineBuild("nonesuch", Path(sys.executable)))  # type: ignore[arg-type]  # is none
    assert "pip install" in caught.value.remedy


def test_closing_twice_is_harmless() -> None:
    """A worker can be closed by its user and by its context manager."""
    with Worker(SCRIPTED) as worker:
        worker.close()
    assert not worker.alive


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    """A distribution with NaN is rejected by name, not passed on."""
    path = write_script(tmp_path / "model.json", noise=float("inf"))
    with Worker(SCRIPTED) as worker:
        worker.load("model", path, EngineSettings())
        with pytest.raises(EngineRefusedError, match="non-finite"):
            worker.score(["model"], list(range(64)), 32)


def test_a_stopped_process_ends_at_the_deadline(tmp_path: Path) -> None:
    """A process that reads nothing cannot block a request that is longer than the pipe."""
    path = write_script(tmp_path / "model.json")
    worker = Worker(SCRIPTED)
    worker.load("model", path, EngineSettings())
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(WorkerError, match="tokenize model: no answer within"):
        worker.call("tokenize", model="model", text="x" * 10**6, timeout_s=0.3)
    assert not worker.alive


def test_a_worker_ends_when_its_pipe_is_closed_in_the_middle_of_a_call(tmp_path: Path) -> None:
    """A worker that hangs needs no signal when its parent is gone: its own watch ends it."""
    log = tmp_path / "log"
    path = write_script(tmp_path / "model.json", faults={"generate": "hang"}, log=str(log))
    with Worker(SCRIPTED) as worker:
        worker.load("model", path, EngineSettings())
        args = {"model": "model", "tokens": [0] * 8, "depth": 0, "n_ctx": 8}
        request = wire.encode({"id": 9, "op": "generate", "args": args})
        worker._send(request, time.monotonic() + 60)
        deadline = time.monotonic() + 60
        while not log.exists() or "generate" not in log.read_text():
            assert worker.alive
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.close(worker._requests)
        os.close(worker._replies)
        worker._requests = -1
        assert worker._process.wait(timeout=60) == 0


def test_a_bug_in_an_engine_is_one_sentence_with_its_traceback(tmp_path: Path) -> None:
    """An unforeseen error of an engine is named first, and its place below."""
    path = tmp_path / "model.json"
    path.write_text("no script")
    with Worker(SCRIPTED) as worker, pytest.raises(EngineRefusedError, match="internal") as caught:
        worker.load("model", path, EngineSettings())
    assert "JSONDecodeError" in caught.value.what
    assert "\n" not in caught.value.what
    assert "scripted_engine.py" in (caught.value.detail or "")


def test_a_refusal_names_its_model(tmp_path: Path) -> None:
    """The message names the one of several loaded models."""
    path = write_script(tmp_path / "model.json", faults={"prompt": "refuse"})
    with Worker(SCRIPTED) as worker:
        worker.load("fake:Q8_0", path, EngineSettings())
        with pytest.raises(EngineRefusedError, match="scripted prompt fake:Q8_0: "):
            worker.prompt("fake:Q8_0", [0] * 8, 0)


@pytest.mark.live
@pytest.mark.skipif(sys.platform != "linux", reason="a process can choose its cores on Linux only")
def test_a_worker_keeps_to_the_cores_it_is_confined_to() -> None:
    """Every thread of the process moves, and one that it starts later inherits the choice."""
    last = usable_cores()[-1]
    with Worker(EngineBuild("llama_cpp", Path(sys.executable))) as worker:
        worker.confine([last])
        threads = list(Path(f"/proc/{worker.pid}/task").iterdir())
        assert threads
        assert all(os.sched_getaffinity(int(thread.name)) == {last} for thread in threads)


def test_a_load_that_resolves_to_nonsense_names_the_field(tmp_path: Path) -> None:
    """A fact of another type ends the worker, and the message has its name and value."""
    path = write_script(tmp_path / "model.json", n_params="many")
    with Worker(SCRIPTED) as worker:
        with pytest.raises(
            WorkerError, match=r"load m: .* `n_params` is 'many', not a whole number"
        ):
            worker.load("m", path, EngineSettings())
        assert not worker.alive


def _answers() -> list[tuple[Callable[[dict[str, Any]], object], dict[str, Any]]]:
    """Each parser with an answer that has all that it requires."""
    engine: dict[str, Any] = {
        **dict.fromkeys(("engine", "library", "version"), "x"),
        "devices": [],
        "default_threads": None,
    }
    counts = ("n_params", "size_bytes", "n_vocab", "n_layers", "n_ctx_train")
    loaded = {
        **dict.fromkeys((*counts, "layers_offloaded", "threads", "load_ns"), 1),
        "description": "x",
        "add_bos": None,
    }
    context = {
        **dict.fromkeys(("type_k", "type_v", "flash_attn"), "x"),
        "n_ctx": None,
        "threads": None,
    }
    return [
        (EngineFacts.parse, engine),
        (LoadedFacts.parse, loaded),
        (ContextFacts.parse, context),
    ]


@pytest.mark.parametrize(("parse", "answer"), _answers(), ids=["engine", "loaded", "context"])
def test_a_fact_that_is_missing_or_mistyped_is_named(
    parse: Callable[[dict[str, Any]], object], answer: dict[str, Any]
) -> None:
    """Every required field is looked for, and no field has a value of another type."""
    parse(answer)
    for key in answer:
        with pytest.raises(ValueError, match=f"`{key}` is missing"):
            parse({name: value for name, value in answer.items() if name != key})
        for value in (object(), [object()], float("nan"), -1):
            with pytest.raises(ValueError, match=r"is .*, not "):
                parse({**answer, key: value})


def test_facts_of_an_engine_are_escaped_and_kept_verbatim_beside() -> None:
    """Text for terminals has no control characters; the JSON report has the answer itself."""
    answer = {**_answers()[0][1], "library": "x\x1b[2J"}
    facts = EngineFacts.parse(answer)
    assert "\x1b" not in facts.release
    assert facts.verbatim == answer
