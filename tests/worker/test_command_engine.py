"""External programs as an engine: their output is read, and contradictions raise."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.pipeline import READERS, Phase, Pipeline, Reader
from pytest_asperf.config.workload import parse_workload
from pytest_asperf.engine_process import EngineBuild, EngineRefusedError, Worker, WorkerError
from pytest_asperf.worker.command_engine import Printed, generated_text, read_printed
from tests.foreign import KEYS, Plan, foreign_program
from tests.processes import wait_for_end

_TEXT = "one two three four five six seven eight nine ten eleven twelve " * 20
_READER = Reader(keys=tuple(KEYS.items()))
#: As mlx_lm 0.32.2 printed them.
_MLX = """==========
m and positional and positional arg
second line
==========
Prompt: 129 tokens, 119.277 tokens-per-sec
Generation: 21 tokens, 24.574 tokens-per-sec
Peak memory: 0.019 GB"""
#: As ANE-LM's source prints them.
_ANE = """==========
some text
==========
Prompt: 422 tokens, 23.665 tokens-per-sec
Generation: 50 tokens, 23.500 tokens-per-sec"""
#: As llama-completion printed them, of a model that read its prompt from a file.
_LLAMA = """0.00.330.641 I common_perf_print:        load time =      58.11 ms
0.00.330.643 I common_perf_print: prompt eval time =     228.03 ms /   413 tokens (    0.55 ms per \
token,  1811.15 tokens per second)
0.00.330.651 I common_perf_print:        eval time =       4.04 ms /     1 runs   (    4.04 ms per \
token,   247.34 tokens per second)
0.00.330.658 I common_perf_print:       total time =     238.89 ms /   414 tokens"""


def printed(name: str, text: str) -> Printed | str:
    """Read a program's output with the reader of that name."""
    return read_printed(asdict(READERS[name]), text.splitlines())


def test_the_shipped_readers() -> None:
    """Each on output of the program: mlx_lm times n - 1 steps of n tokens, ANE-LM n of n."""
    assert printed("mlx_lm", _MLX) == Printed(
        129, round(129e9 / 119.277), 20, round(21e9 / 24.574),
        round(129e9 / 119.277) + round(21e9 / 24.574), memory_bytes=19_000_000,
    )  # fmt: skip
    ane = printed("ane_lm", _ANE)
    assert isinstance(ane, Printed)
    assert (ane.n_prompt, ane.n_steps, ane.generated_ns) == (422, 50, round(50e9 / 23.5))
    llama = printed("llama.cpp", _LLAMA)
    assert llama == Printed(413, 228_030_000, 1, 4_040_000, 238_890_000, has_total=True)


def test_a_line_that_is_missing_is_named() -> None:
    """Every pattern must match: a figure made of half the lines is another figure."""
    assert "total time" in str(printed("llama.cpp", _LLAMA.rpartition("\n")[0]))
    keys = asdict(Reader(keys=(("prompt_ms", "timings.ms"),)))
    assert read_printed(keys, ['{"timings": {"ms": "inf"}}', '{"timings": 3}']) == "no prompt_ms"
    read = read_printed(keys, ["noise", '{"timings": {"ms": 2.5}}'])
    assert isinstance(read, Printed)
    assert read.prompt_ns == 2_500_000


def test_the_text_that_was_generated() -> None:
    """Between mlx_lm's rules; all of the output if no pattern names a place."""
    marked = generated_text(asdict(READERS["mlx_lm"]), _MLX, "")
    assert marked == "m and positional and positional arg\nsecond line"
    assert generated_text(asdict(READERS["ane_lm"]), "", _ANE) == "some text"
    assert generated_text(asdict(READERS["llama.cpp"]), " text\n", _LLAMA) == "text"


#: Printed for any request.
_CONSTANT = (
    '{"prompt_tokens": 5, "prompt_us": 1, "generated_tokens": 9, "generated_us": 1, "total_us": 9}'
)


class Foreign:
    """A worker with programs, and their arguments."""

    def __init__(self, worker: Worker, folder: Path) -> None:
        self.worker, self.folder = worker, folder

    def load(self, *phases: Phase, settings: EngineSettings | None = None, **more: Any) -> None:
        """Load a pipeline."""
        file = self.folder / "pipeline.json"
        file.write_text(Pipeline(phases, self.folder, **more).as_json(None))
        self.worker.load("it", file, settings or EngineSettings())

    def timed(self, workload: str) -> Any:
        """Time a workload."""
        return self.worker.serve("it", _TEXT, parse_workload(workload, where="test"))

    def refused(self, workload: str = "ttft32") -> str:
        """The message about a workload that is rejected."""
        with pytest.raises(EngineRefusedError) as caught:
            self.timed(workload)
        return str(caught.value)

    def program(self, name: str = "program", reader: Reader | None = _READER, **plan: Any) -> Phase:
        """A phase of a program with a plan."""
        path = foreign_program(self.folder / name, Plan(**plan))
        return Phase((f"./{path.name}", "{prompt_file}", "{n_tokens}"), reader)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One worker for all: a program that failed is no reason to end it."""
    with Worker(EngineBuild("command", Path(sys.executable))) as running:
        yield running


@pytest.fixture
def foreign(worker: Worker, tmp_path: Path) -> Foreign:
    """Programs in a folder of their own."""
    worker.clear()
    return Foreign(worker, tmp_path)


def test_each_workload_is_timed_by_the_program_s_clock(foreign: Foreign) -> None:
    """Prompt, first token and generation each as printed, of as many tokens as requested."""
    foreign.load(foreign.program(prompt_us="$words * 10", step_us=7, handoff_us=50))
    prompt = foreign.timed("pp32")
    assert prompt.elapsed_ns == pytest.approx(320_000, rel=0.13)
    first = foreign.timed("ttft32")
    assert first.elapsed_ns == pytest.approx(370_000, rel=0.13)
    assert foreign.timed("tg20").elapsed_ns == 20 * 7000
    request = foreign.timed("pp32+tg11")
    assert request.elapsed_ns == request.step_ns[0] + 10 * 7000
    assert request.context.verbatim["output"] == " ".join(["ab"] * 11)
    assert 0 < first.peak_rss_bytes < 2**28


def test_whole_processes_are_timed_by_our_clock(foreign: Foreign) -> None:
    """The program's lines about its own times are no part of it."""
    foreign.load(foreign.program(), clock="wall")
    assert foreign.timed("ttft32").elapsed_ns > 300_000


def test_phases_hand_a_file_over(foreign: Foreign) -> None:
    """The second program finds the first one's file; the KV handoff is the time outside prompts."""
    first = foreign.program("first", prompt_us="$words * 5", handoff_us=100)
    second = foreign.program("second", handoff_us=200)
    phases = [
        Phase((*phase.run[:2], n, "{handoff}"), phase.reader, proof=proof)
        for phase, n, proof in (
            (first, "1", ()),
            (second, "{n_tokens}", (("file", "read (handoff)"),)),
        )
    ]
    foreign.load(*phases)
    run = foreign.timed("ttft32")
    assert run.context.handoff_ns == 300_000
    assert run.context.proof == "file handoff"
    words = (run.elapsed_ns - 300_000 - 1000) / 5000
    assert words == pytest.approx(32, abs=4)


def test_without_a_total_the_handoff_is_not_known(foreign: Foreign) -> None:
    """Prompt times of two programs are no TTFT."""
    keys = tuple((key, path) for key, path in KEYS.items() if key != "total_us")
    foreign.load(*(foreign.program(name, Reader(keys=keys)) for name in ("first", "second")))
    assert "several programs need `total` or `handoff`" in foreign.refused()


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ({"status": 3}, "program exited with status 3"),
        ({"prints": "no times today \x1b[31m"}, r"no-times: .*no times today \\x1b"),
        ({"prompt_us": "1000000000"}, "times-exceed-wall: printed 1000"),
        ({"most": 3}, "fewer-tokens: program generated 2 after the first, and 16"),
        ({"prints": _CONSTANT}, "the prompt had 5 tokens, and 16 were requested"),
        ({"prints": _CONSTANT.replace("9}", "-1}")}, "no total_us"),
    ],
)
def test_what_contradicts_a_measurement_is_refused(
    foreign: Foreign, plan: dict[str, Any], told: str
) -> None:
    """By name and with the program's last lines; such a result is broken."""
    foreign.load(foreign.program(**plan))
    with pytest.raises(EngineRefusedError, match=told) as caught:
        foreign.timed("tg16")
    assert caught.value.breaks_measurement


def test_what_must_be_proved_and_is_not_printed(foreign: Foreign) -> None:
    """A program that ran on another device, or in another build, is no result."""
    phase = foreign.program()
    foreign.load(Phase(phase.run, phase.reader, proof=(("device", "using (GPU)"),)))
    assert "path-mismatch: printed nothing that shows device" in foreign.refused()


def test_what_cannot_be_run_is_refused_before(foreign: Foreign) -> None:
    """A missing program, a setting without a place, and a place without a setting."""
    phase = foreign.program()
    with pytest.raises(EngineRefusedError, match=r"program-not-found: there is no program \./none"):
        foreign.load(Phase(("./none", "{prompt}", "{n_tokens}")))
    with pytest.raises(EngineRefusedError, match=r"no program's command line has \{threads\}"):
        foreign.load(phase, settings=EngineSettings(threads=2))
    with pytest.raises(EngineRefusedError, match=r"\{tools\}: name the folder"):
        foreign.load(Phase((*phase.run, "{tools}"), phase.reader))


@pytest.mark.parametrize("workload", ["itl16", "tg16@c2", "pp16@d16"])
def test_what_no_program_can_do_is_refused(foreign: Foreign, workload: str) -> None:
    """By name; the worker goes on."""
    foreign.load(foreign.program())
    assert "unsupported" in foreign.refused(workload)
    with pytest.raises(EngineRefusedError, match="neither tokens nor logits"):
        foreign.worker.score(["it"], [1, 2, 3], 1)


def test_a_hanging_program_ends_with_its_worker(tmp_path: Path) -> None:
    """A deadline ends both, as Ctrl-C does; the program is not left behind."""
    with Worker(EngineBuild("command", Path(sys.executable)), call_timeout_s=20) as worker:
        foreign = Foreign(worker, tmp_path)
        foreign.load(foreign.program(hang=str(tmp_path / "pid")))
        worker.call_timeout_s = 2
        with pytest.raises(WorkerError, match=r"no answer within 2 s"):
            foreign.timed("ttft32")
    wait_for_end(int((tmp_path / "pid").read_text()))


def test_a_prompt_by_argument_and_by_standard_input(foreign: Foreign) -> None:
    """However it is given, braces that are no placeholder are the program's own."""
    phase = foreign.program()
    foreign.load(Phase((phase.run[0], "-", "{n_tokens}"), phase.reader, stdin=True))
    assert foreign.timed("ttft32").n_tokens == 32
    script = """printf %s "$0" > out; printf '{"prompt_tokens": 32, "prompt_ms": 0.1}'"""
    shell = ("/bin/sh", "-c", script, "{prompt}", '{"a": 1}')
    keys = (("prompt_tokens", "prompt_tokens"), ("prompt_ms", "prompt_ms"))
    foreign.load(Phase(shell, Reader(keys=keys)))
    assert foreign.timed("ttft32").elapsed_ns == 100_000
    assert "one two three" in (foreign.folder / "out").read_text()
    assert json.loads((foreign.folder / "pipeline.json").read_text())["phases"][0]["run"][-1] == (
        '{"a": 1}'
    )
