"""Faults of llama.cpp's binaries are reported.

None of these runs the real binaries, which show no such fault: scripts print their saved output
(`fixtures/tools`, of the shipped draft), with only the numbers filled in that repeat the request,
and one fault. The real ones are in test_llama_tools_engine.py.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.engine_process import EngineBuild, EngineRefusedError, Worker, WorkerError
from pytest_asperf.worker import wire
from pytest_asperf.worker.tool_process import Toolbox
from tests.copied_build import copied_build
from tests.processes import wait_for_end

_RECORDED = Path(__file__).parents[2] / "fixtures" / "tools"

_SCRIPT = """#!{python} -IS
import json, os, signal, struct, sys, time
recorded, plan = {recorded!r}, json.loads({plan!r})
arguments = sys.argv[1:]

def read(name, mode="r"):
    with open(os.path.join(recorded, name), mode) as file:
        return file.read()

def option(name, default="0"):
    return arguments[arguments.index(name) + 1] if name in arguments else default

def harm(when):
    if plan.get("harm_when") != when:
        return
    sys.stdout.flush()
    with open(plan["pid_file"], "w") as file:
        file.write(str(os.getpid()))
    if plan["harm"] == "hang":
        time.sleep(3600)
    os.kill(os.getpid(), signal.SIGSEGV)

def bench():
    row = json.loads(read("bench.jsonl"))
    row |= {{"model_filename": option("-m"), "n_threads": int(option("-t", "2"))}}
    counts = {{"n_prompt": "-p", "n_gen": "-n", "n_depth": "-d"}}
    row |= {{cell: int(option(name)) for cell, name in counts.items()}}
    is_timed = "--no-warmup" not in arguments
    if is_timed:
        row |= plan.get("row", {{}})
        row = {{key: value for key, value in row.items() if key not in plan.get("without", [])}}
    log = read("bench.log")
    for line in plan.get("log_without", []):
        log = "\\n".join(one for one in log.split("\\n") if line not in one)
    sys.stderr.write(log + (plan.get("log", "") if is_timed else ""))
    if is_timed:
        harm("bench")
    text = json.dumps(row) + "\\n"
    sys.stdout.write(plan.get("prints", text) if is_timed else text)
    sys.exit(plan.get("status", 0) if is_timed else 0)

def perplexity():
    scores = read("scores.bin", "rb")
    n_ctx, head = int(option("-c")), 8 + 12
    n_tokens = 32
    tokens = scores[head : head + 4 * n_tokens]
    with open(option("--save-all-logits"), "wb", buffering=0) as out:
        if n_ctx == 1:
            out.write(scores[:8] + struct.pack("<iii", 1, 2048, n_tokens) + tokens)
            return
        sys.stderr.write(read("perplexity.log"))
        probed = plan["pid_file"] + ".probed"
        if not os.path.exists(probed):  # what is scored of a load, before anybody asked
            open(probed, "w").close()
            faults = plan.get("probe", {{}})
        else:
            faults = plan
        magic = faults.get("magic", "_logits_").encode()
        out.write(magic + scores[len(magic) : head + 4 * n_tokens])
        rows = scores[head + 4 * n_tokens:]
        chunks = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
        if "scale" in faults:
            chunks[0] = struct.pack("<f", float(faults["scale"])) + chunks[0][4:]
        says = faults.get("says", ["[1]5.4815,", "[2]4.4997,"])
        for rows, said in zip(chunks[: faults.get("chunks", 2)], says):
            sys.stdout.write(said)
            sys.stdout.flush()
            time.sleep(0.05)  # what is printed is there before what is saved
            out.write(rows)
    if faults is plan:
        harm("score")

if "--help" in arguments:
    print(read("bench_help.txt"))
elif "--version" in arguments:
    print(plan.get("version", read("version.txt")))
elif "--list-devices" in arguments:
    print(plan.get("devices", "Available devices:\\n  (none)"))
else:
    {{"llama-bench": bench, "llama-perplexity": perplexity}}[os.path.basename(sys.argv[0])]()
"""


def _replayed_tools(folder: Path, **plan: Any) -> Path:
    """Write a folder of such programs.

    Args:
        folder: where to.
        plan: the fault. For a timed llama-bench: `row` (columns over the saved ones), `without`
            (columns), `log` (more lines), `log_without`, `prints`, `status`; `version`, `devices`.
            For a scoring llama-perplexity: `magic`, `chunks` that it saves, `says` (its output),
            `scale` (of the first row); for the one that looks at logits, these keys in `probe`.
            `harm` (`crash` or `hang`) with `harm_when` (`bench` or `score`) and `pid_file`.
    """
    plan["pid_file"] = str(folder / "pid")
    text = _SCRIPT.format(python=sys.executable, recorded=str(_RECORDED), plan=json.dumps(plan))
    for name in ("llama-bench", "llama-perplexity"):
        path = folder / name
        path.write_text(text)
        path.chmod(0o755)
    return folder


THREADS = EngineSettings(threads=1)
ARGUMENTS = {"model": "model", "tokens": [0] * 16, "depth": 8, "n_ctx": 16}
TEXT = "def area(width, height):\n    return width * height\n" * 4


@contextmanager
def opened(folder: Path, *, call_timeout_s: float = 30.0, **plan: Any) -> Iterator[Worker]:
    """Give a worker on replayed programs, with a model loaded."""
    build = EngineBuild("llama_tools", Path(sys.executable), _replayed_tools(folder, **plan))
    with Worker(build, call_timeout_s=call_timeout_s) as worker:
        worker.load("model", folder / "model.gguf", THREADS)
        yield worker


def generate(folder: Path, **plan: Any) -> None:
    """Time a generation of 8 tokens at depth 8."""
    with opened(folder, **plan) as worker:
        worker.generate("model", [0] * 16, 8)


def score(folder: Path, **plan: Any) -> tuple[float, ...]:
    """Score both chunks of the saved text; return the NLL of all."""
    with opened(folder, **plan) as worker:
        tokens = worker.tokenize("model", TEXT)
        scored = [worker.score(["model"], tokens[at : at + 16], 8) for at in (0, 16)]
        return tuple(nll for one in scored for nll in one["model"][0].nll)


def test_a_sound_replay_is_believed(tmp_path: Path) -> None:
    """Without a fault, the replayed programs are timed and scored."""
    generate(tmp_path)
    assert len(score(tmp_path)) == 2 * 7


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ({"prints": ""}, "exited with 0 and printed 0 tests instead of 1"),
        ({"prints": '{"n_prompt": 0, "n_g'}, "printed a test that is cut off or not JSON"),
        ({"prints": '[["n_prompt"]]\n'}, "printed no test but other JSON"),
        ({"without": ["n_threads", "type_k"]}, "printed a test without n_threads, type_k"),
        ({"without": ["avg_ns"]}, "printed a test that is cut off or broken"),
        ({"without": ["samples_ns"]}, "timed 0 runs instead of 1"),
        ({"row": {"samples_ns": [0]}}, "has a time or rate that is none"),
        ({"row": {"samples_ns": [5, 6]}}, "timed 2 runs instead of 1"),
        ({"row": {"n_gen": 4}}, "was started with n_gen 8 and reports 4"),
        ({"row": {"n_depth": 0}}, "was started with n_depth 8 and reports 0"),
        ({"row": {"n_threads": 2}}, "was started with n_threads 1 and reports 2"),
        ({"status": 1}, "exited with status 1"),
        ({"log": "\ndecode: failed to decode, ret = -1"}, "exited with 0 and logged: .*ret = -1"),
        ({"harm": "crash", "harm_when": "bench"}, "was ended by SIGSEGV.*its log ends with: "),
    ],
)  # fmt: skip
def test_a_broken_bench_is_invalid(tmp_path: Path, plan: dict[str, Any], told: str) -> None:
    """Any fault of a timed run breaks the measurement, and its exit status is no help."""
    with pytest.raises(EngineRefusedError, match=told) as caught:
        generate(tmp_path, **plan)
    assert caught.value.breaks_measurement


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ({"chunks": 1}, "did not score all of the text"),
        ({"says": ["[1]5.4815,", "[2]4.9997,"]}, "printed PPL 4.9997 after chunk 2, .* 4.499"),
        ({"says": ["[1]nan,", "[2]nan,"]}, "PPL is nan after chunk 1"),
        ({"magic": "_Logits_"}, "in an unknown format"),
    ],
)
def test_broken_scores_are_invalid(tmp_path: Path, plan: dict[str, Any], told: str) -> None:
    """The saved scores must be whole, and give the printed PPL."""
    with pytest.raises(EngineRefusedError, match=told) as caught:
        score(tmp_path, **plan)
    assert caught.value.breaks_measurement


def test_a_hang_ends_the_program_too(tmp_path: Path) -> None:
    """At the deadline the worker ends, its last words are reported, and the program is gone."""
    with opened(tmp_path, harm="hang", harm_when="bench") as worker:
        program = _hanging(worker, tmp_path / "pid")
        with pytest.raises(WorkerError, match=r"no answer within 0\.1 s") as caught:
            worker._receive("generate", 0.1, time.monotonic() + 0.1)
    assert "llama-bench: " in str(caught.value)
    wait_for_end(program)


def test_a_parent_that_dies_takes_the_program_along(tmp_path: Path) -> None:
    """A closed pipe is all that the worker notices of its parent's death; it ends its program."""
    with opened(tmp_path, harm="hang", harm_when="bench") as worker:
        program = _hanging(worker, tmp_path / "pid")
        os.close(worker._requests)
        os.close(worker._replies)
        worker._requests = -1
        wait_for_end(program)
        assert worker._process.wait(timeout=60) == 0


def _hanging(worker: Worker, pid_file: Path) -> int:
    """Start a run; returns its program, once it hangs."""
    request = wire.encode({"id": 9, "op": "generate", "args": ARGUMENTS})
    worker._send(request, time.monotonic() + 60)
    while not pid_file.exists() or not pid_file.read_text():
        assert worker.alive
        time.sleep(0.02)
    return int(pid_file.read_text())


def test_what_is_not_resolved_is_unknown(tmp_path: Path) -> None:
    """A setting of which only the request is printed does not count as the actual one."""
    with opened(tmp_path, log_without=["Flash Attention"]) as worker:
        assert worker.generate("model", [0] * 16, 8).context.flash_attn == "unknown"


def test_a_build_that_does_not_know_its_commit_says_so(tmp_path: Path) -> None:
    """Neither a commit nor a number is made up."""
    tools = _replayed_tools(tmp_path, version="version: 0 (unknown)")
    with Worker(EngineBuild("llama_tools", Path(sys.executable), tools)) as worker:
        described = worker.describe()
    assert described.version == "0 (unknown)"
    assert described.verbatim["llama_commit"] is None


def test_devices_are_those_that_the_programs_list(tmp_path: Path) -> None:
    """GPUs come with their memory."""
    listed = "Available devices:\n  CUDA0: NVIDIA H100 (81559 MiB, 80000 MiB free)\n"
    tools = _replayed_tools(tmp_path, devices=listed)
    with Worker(EngineBuild("llama_tools", Path(sys.executable), tools)) as worker:
        gpus = [device for device in worker.describe().devices if device.type == "GPU"]
    assert [(gpu.name, gpu.memory_free_bytes) for gpu in gpus] == [("CUDA0", 80000 << 20)]


def test_a_copied_folder_is_run_with_its_own_libraries(tmp_path: Path) -> None:
    """It was linked in another folder, where the library is of another build by now."""
    assert Toolbox(copied_build(tmp_path)).run("llama-bench").output == "1\n"


def test_a_folder_without_programs_is_refused(tmp_path: Path) -> None:
    """The message names the missing program, and the setting of the folder."""
    with (
        Worker(EngineBuild("llama_tools", Path(sys.executable), tmp_path)) as worker,
        pytest.raises(EngineRefusedError, match="no program llama-bench in ") as caught,
    ):
        worker.describe()
    assert ": tools" in caught.value.remedy
    with pytest.raises(EngineRefusedError, match=r"no folder '' of llama\.cpp's binaries"):
        Worker(EngineBuild("llama_tools", Path(sys.executable)))


def test_what_it_cannot_do_names_what_can(tmp_path: Path) -> None:
    """A setting that has no counterpart raises, with an engine that has it."""
    tools = _replayed_tools(tmp_path)
    with (
        Worker(EngineBuild("llama_tools", Path(sys.executable), tools)) as worker,
        pytest.raises(EngineRefusedError, match=r"unsupported.*engines llama_cpp and") as caught,
    ):
        worker.load("model", tmp_path / "model.gguf", EngineSettings(slow_by=0.1))
    assert not caught.value.breaks_measurement


@pytest.mark.parametrize(
    ("probe", "kind"),
    [
        ({"scale": "nan"}, "non-finite"),
        ({"scale": "inf"}, "non-finite"),
        ({"says": ["[1]nan,"]}, "non-finite"),
        ({"scale": "0"}, "broken-logits"),
    ],
)
def test_a_model_that_computes_no_numbers(tmp_path: Path, probe: dict[str, Any], kind: str) -> None:
    """A load that llama-bench would time all the same is rejected."""
    with (
        pytest.raises(EngineRefusedError, match=kind) as caught,
        opened(tmp_path, probe=probe),
    ):
        pass
    assert caught.value.breaks_measurement
