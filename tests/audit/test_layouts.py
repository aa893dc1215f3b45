"""Text around and between a tool's lines changes no figure, and a cut one is none."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from pytest_asperf.audit.result import Audit
from tests.audit.conftest import RECORDED
from tests.audit.test_field import guards_of, judged

#: One file of each way of writing: tables, lines, blocks, JSON, JSON lines, chunks.
FILES = [
    "sweep_bench.md", "bench.md", "mlx_trials.txt", "kld_two.txt", "aiperf_console.txt",
    "serving_vllm_sweep.txt", "speculative_sweep.log", "vllm_mlx.json", "bench_stderr.jsonl",
    "ppl_F16.txt", "bench_killed.md", "bench_stderr.csv", "speculative_checkpoints.txt",
]  # fmt: skip
STDERR = [
    "load_backend: loaded CPU backend from /x/libggml-cpu.so",
    "ggml_vulkan: 0 = Some GPU (driver) | uma: 1 | fp16: 1 | warp size: 64 | int dot: 1",
    "system_info: n_threads = 8 | CPU : SSE3 = 1 | AVX = 1 | AVX2 = 1 | F16C = 1 | FMA = 1 |",
]


def _before(prefix: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [f"{prefix}{line}" for line in lines]


#: Prefixes without a complete list: a name, a rank or a number, and times of every service.
AROUND: dict[str, Callable[[list[str]], list[str]]] = {
    "quote": _before("> > "),
    "indent and quote": _before("  >"),
    "comment": _before("// "),
    "diff": _before("+"),
    "docker -t": _before("2026-01-12T10:00:00.123456789Z "),
    "compose": _before("llama  | "),
    "compose -t": _before("llama-1  | 2026-01-12T10:00:00.123456789Z "),
    "containerd": _before("2026-01-12T10:00:00.123456789Z stdout F "),
    "kubectl": _before("[pod/llm-0/server] 2026-01-12T10:00:00.1Z "),
    "stern": _before("llm-0 server "),
    "journalctl": _before("Jan 12 10:00:00 host llama[123]: "),
    "journalctl precise": _before("Jan 12 10:00:00.123456 host run.sh[123]: "),
    "journalctl iso": _before("2026-01-12T10:00:00+0000 host llama[123]: "),
    "journalctl unix": _before("1768212000.123456 host llama[123]: "),
    "journalctl full": _before("Mon 2026-01-12 10:00:00 UTC host llama[123]: "),
    "syslog": _before("<14>1 2026-01-12T10:00:00.1Z host llama 123 - - "),
    "no process id": _before("Jan 12 10:00:00 host llama: "),
    "gitlab": _before("2026-01-12T10:00:00.123456Z 00O "),
    "jenkins": _before("[2026-01-12T10:00:00.123Z] "),
    "logging": _before("2026-01-12 10:00:00,123 - INFO - "),
    "loguru": _before("2026-01-12 10:00:00.123 | INFO     | bench:run:12 - "),
    "vllm": _before("(APIServer pid=12) INFO 01-12 10:00:00 [serve.py:12] "),
    "srun": _before("0: "),
    "mpirun": _before("[1,0]<stdout>:"),
    "torchrun": _before("[rank0]: "),
    "grep -n": lambda lines: [f"run.log:{n}:{line}" for n, line in enumerate(lines, 1)],
    "cat -n": lambda lines: [f"{n:6d}\t{line}" for n, line in enumerate(lines, 1)],
    "json-file": lambda lines: [json.dumps({"log": f"{s}\n", "stream": "a"}) for s in lines],
    "journalctl json": lambda lines: [json.dumps({"_PID": "1", "MESSAGE": line}) for line in lines],
    "code fence": lambda lines: ["Here it is:", "```sh", "$ ./run -m m.gguf", *lines, "```", "Hm."],
    "details": lambda lines: ["<details><pre>", *lines, "</pre></details>"],
    "colors": lambda lines: [f"\x1b[0;32m{line}\x1b[0m" for line in lines],
    "trailing blanks": lambda lines: [f"{line}   " for line in lines],
    "web page": lambda lines: [line.replace("±", "&plusmn;") + "<br>" for line in lines],
    "progress": lambda lines: [f"\rload: 10%\rload: 99% |##| 9/10\r{line}" for line in lines],
    **{
        f"stderr {number}": lambda lines, noise=noise: [  # type: ignore[misc]
            part for line in lines for part in (line, noise)
        ]
        for number, noise in enumerate(STDERR)
    },
}


def shown(path: Path) -> tuple[dict[str, str], list[str], str]:
    """Return the figures, guards and problem of a file."""
    found = judged(path)
    return {figure.name: str(figure) for figure in found.figures}, guards_of(found), found.problem


@cache
def _by_itself(name: str) -> tuple[dict[str, str], list[str], str]:
    return shown(RECORDED / name)


@pytest.mark.parametrize("around", AROUND)
def test_what_stands_around_lines_changes_no_figure(around: str, tmp_path: Path) -> None:
    """A file reads as it does without other text before, between and behind its lines."""
    for name in FILES:
        lines = (RECORDED / name).read_text(encoding="utf-8").splitlines()
        path = tmp_path / name
        path.write_text("\n".join(AROUND[around](lines)) + "\n", encoding="utf-8")
        assert (name, shown(path)) == (name, _by_itself(name))


HEADER = "| model | ngl | test | t/s |\n"
RULE = "| --- | --: | --: | --: |\n"
ROWS = "| a 1B Q4_0 | 99 | pp512 | 800.00 ± 3.00 |\n| a 1B Q4_0 | 99 | tg128 | 58.30 ± 0.21 |\n"
OTHER = HEADER.replace("ngl", "fa ")
SETTINGS = {
    "pp512 a 1B Q4_0 ngl=99 fa=-", "tg128 a 1B Q4_0 ngl=99 fa=-",
    "pp512 a 1B Q4_0 ngl=- fa=99", "tg128 a 1B Q4_0 ngl=- fa=99",
}  # fmt: skip
BOTH = """
| model     | test  | t/s (Before)  | t/s (after)   | diff |
| --------- | ----- | ------------- | ------------- | ---- |
| a 1B Q4_0 | pp512 | 800.00 ± 3.00 | 900.00 ± 3.00 | +12% |
| a 1B Q4_0 | tg128 | -             |               |      |
"""
PLAIN = {"pp512 a 1B Q4_0", "tg128 a 1B Q4_0"}


@pytest.mark.parametrize(
    ("text", "names", "note"),
    [
        (HEADER + RULE + ROWS + OTHER + RULE + ROWS, SETTINGS, ""),
        (HEADER + RULE + ROWS + OTHER + ROWS, SETTINGS, ""),
        (HEADER + ROWS, PLAIN, ""),
        (BOTH, {"pp512 a 1B Q4_0 (Before)", "pp512 a 1B Q4_0 (after)"}, ""),
        (HEADER.replace("model", "Model").replace("test", "Test") + RULE + ROWS, PLAIN, ""),
        (HEADER + RULE + ROWS.replace("58.30 ± 0.21", "**58.30 ± 0.21**"), PLAIN, ""),
        (HEADER + RULE + ROWS.replace(".30 ± 0.", ",30 ± 0,"), PLAIN, ""),
        (HEADER + RULE + ROWS[:-10], {"pp512 a 1B Q4_0"}, "1 rows with figures were not read"),
        (HEADER + RULE + ROWS[:-18], {"pp512 a 1B Q4_0"}, "1 rows with figures were not read"),
        (HEADER + RULE + ROWS[:-26], {"pp512 a 1B Q4_0"}, "1 rows with figures were not read"),
    ],
)
def test_rows_have_the_columns_above_them(
    text: str, names: set[str], note: str, audit_of: Callable[..., Audit]
) -> None:
    """Each table has its own header, with or without its rule; a row that is cut is counted."""
    (found,) = audit_of({"bench.md": text}).files
    assert {figure.name for figure in found.figures} == names
    assert any(note in one for one in found.notes) or not note
    assert not any("none of its tests" in one for one in found.notes)


def test_rows_without_a_header_are_named(audit_of: Callable[..., Audit]) -> None:
    """A text with rows only is not read, and is reported."""
    (found,) = audit_of({"bench.md": ROWS}).files
    assert found.problem.startswith("2 rows with figures were not read")


TRIALS = "Trial 1: prompt_tps=10.000, generation_tps=30.100\n"
SERVING = "==== Serving Benchmark Result ====\nSuccessful requests:   4\n"


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        (TRIALS + "Trial 2: prompt_tps=10.000, generation_tps=3", {"TG": "30.1", "PP": "10 tok/s"}),
        ("[1]5.1000,[2]5.3000,[3]5", {"PPL": "5.3"}),
        ("Final estimate: PPL = 5", {}),
        ("Mean    KLD:   0.004130 ± 0.000130\n99.0%   Δp:  5.5", {"Mean KLD": "0.00413 ± 0.00013"}),
        ("Perplexity: 7.250 ± 0.061\nPerplexity: 7.2", {"PPL": "7.25 ± 0.061"}),
        (SERVING + "Mean TTFT (ms): 310.00\nMedian TTFT (ms): 29", {"TTFT mean": "310 ms"}),
        ("n_draft = 4\nn_predict = 101\nn_drafted = 100\nn_accept = 8", {}),
        ("eval rate: 24.23 tokens/s\n", {"TG": "24.23 tok/s (too few"}),
    ],
)  # fmt: skip
def test_a_number_that_is_cut_off_is_no_figure(
    text: str, figures: dict[str, str], audit_of: Callable[..., Audit]
) -> None:
    """The end of a file may be within a number, which is then left out."""
    (found,) = audit_of({"log": text}).files
    got = {figure.name: str(figure) for figure in found.figures}
    assert got.keys() == figures.keys()
    assert all(got[name].startswith(start) for name, start in figures.items())


def test_equal_figures_show_no_spread(audit_of: Callable[..., Audit]) -> None:
    """Two runs that print one rate have no interval, and equal PPL differs by its decimals."""
    chat = "[ Prompt: 640.5 t/s | Generation: 48.2 t/s ]\n"
    chunks = "[1]4.5000,[2]4.6000,[3]4.5500,[4]4.5600,[5]4.5700,[6]4.5600,\n"
    result = audit_of({"chat": chat * 2, "a": chunks, "b": chunks})
    rates = {figure.name: str(figure) for figure in result.files[0].figures}
    assert rates["TG"] == "48.2 tok/s (2 equal requests show no spread)"
    (change,) = result.together[0].figures
    assert change.value is not None
    assert change.value.low < 0 < change.value.high
    tasks = "hellaswag_score : calculating hellaswag score over selected tasks.\n9\t100.00000000\n"
    (share,) = audit_of({"t": tasks}).files[0].figures
    assert share.value is not None
    assert (share.value.point, share.value.high) == (100, 100)
    assert share.value.low < 90


def test_tables_of_ones_own_are_read_among_other_lines(audit_of: Callable[..., Audit]) -> None:
    """CSV and JSON of one's own are found in prose; rows of another length are counted."""
    rows = "machine,model,n_gen,avg_tps\nbox,A,128,60\nwarning: hot\nbox,B,128,50\nbox,C,128\n"
    array = json.dumps([{"quant": "Q4", "tg_tps": 40.0}, {"quant": "Q8", "tg_tps": 30.0}])
    (found,) = audit_of({"t": f"Results of today:\n{rows}And then:\n{array}\n"}).files
    got = {figure.name: str(figure) for figure in found.figures}
    assert got == {
        "tg128 box A": "60 tok/s", "tg128 box B": "50 tok/s", "Q4": "40 tok/s", "Q8": "30 tok/s",
    }  # fmt: skip
    assert any(note.startswith("1 rows with figures were not read") for note in found.notes)
