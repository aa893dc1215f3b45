"""Runs of one file are distinguished by the lines above them, and pooled otherwise."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.audit.lines import Layout
from pytest_asperf.audit.result import Audit
from pytest_asperf.audit.titles import TitleReader

FAST = (
    "total duration:       3s\nprompt eval count:    30 token(s)\nprompt eval duration: 500ms\n"
    "prompt eval rate:     60.00 tokens/s\neval count:           21 token(s)\n"
    "eval duration:        1s\neval rate:            21.00 tokens/s\n"
)
SLOW = FAST.replace("eval duration:        1s", "eval duration:        2s").replace(
    "21.00", "10.50"
)
CHAT = "[ Prompt: 640.5 t/s | Generation: 48.2 t/s ]\n"
SAMPLE = (
    "*** Sampled system activity (Mon Jan 12 10:00:00 2026 +0000) (1000ms elapsed) ***\n\n"
    "**** Processor usage ****\n\nCPU Power: 2000 mW\n\n"
)
ROWS = "| model | test | t/s |\n| --- | --- | --- |\n| a 1B Q4_0 | tg128 | 58.30 ± 0.21 |\n"
BATCHES = """
| PP  | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s   | S t/s  |
|-----|----|---|------|--------|----------|--------|----------|-------|--------|
| 256 | 64 | 1 | 320  | 0.320  | 800.00   | 1.280  | 50.00    | 1.600 | 200.00 |
"""
LOADED = (
    "llama_model_loader: loaded meta data with 20 key-value pairs and 201 tensors from /m/{}.gguf "
    "(version GGUF V3 (latest))\n"
)
PERF = (
    "llama_perf_context_print: prompt eval time =   400.00 ms /   200 tokens "
    "(    2.00 ms per token,   500.00 tokens per second)\n"
    "llama_perf_context_print:        eval time =  2000.00 ms /   100 runs   "
    "(   20.00 ms per token,    50.00 tokens per second)\n"
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"### v1\n{FAST}\n### v2\n{SLOW}", ["TG, v1", "TG, v2"]),
        (f"v1:\n```\n{FAST}```\nv2:\n```\n{SLOW}```\n", ["TG, v1", "TG, v2"]),
        (f"1. **v1**\n\n{FAST}\n2. **v2**\n\n{SLOW}", ["TG, v1", "TG, v2"]),
        (f"<summary>v1</summary>\n\n{FAST}\n<summary>v2</summary>\n{SLOW}", ["TG, v1", "TG, v2"]),
        (f"On v1\n\n{FAST}\nOn v2\n\n{SLOW}", ["TG, On v1", "TG, On v2"]),
        (f"v1\n==\n{FAST}\nv2\n---\n{SLOW}", ["TG, v1", "TG, v2"]),
        (f"=== v1 ===\n{FAST}=== v2 ===\n{SLOW}", ["TG, v1", "TG, v2"]),
        (f"$ ollama run a --verbose\n{FAST}u@h:~$ ollama run b --verbose\n{SLOW}",
         ["TG, ollama run a --verbose", "TG, ollama run b --verbose"]),
        (f"PS C:\\x> .\\llama-cli.exe -fa 0\n{CHAT}PS C:\\x> .\\llama-cli.exe -fa 1\n{CHAT}",
         ["TG, .\\llama-cli.exe -fa 0", "TG, .\\llama-cli.exe -fa 1"]),
        (f">>> /load a\n{FAST}>>> /load b\n{SLOW}", ["TG, /load a", "TG, /load b"]),
        (f"build: 1 (aaa) with cc\n{PERF}build: 2 (bbb) with cc\n{PERF}",
         ["TG, build 1 (aaa)", "TG, build 2 (bbb)"]),
        (LOADED.format("a") + PERF + LOADED.format("b") + PERF, ["TG, a.gguf", "TG, b.gguf"]),
        (f"# v1\n{SAMPLE}\n# v2\n{SAMPLE}", ["CPU energy, v1", "CPU energy, v2"]),
        (f"main\n\n{ROWS}\nPR\n\n{ROWS}", ["tg128 a 1B Q4_0, main", "tg128 a 1B Q4_0, PR"]),
        (f"main\n\n{BATCHES}\nPR\n\n{BATCHES}", ["tg64 B=1, main", "tg64 B=1, PR"]),
        # Nothing but repetitions.
        (f"{FAST}\n{SLOW}", ["TG"]),
        (f"$ ollama run a --verbose\n{FAST}$ ollama run a --verbose\n{SLOW}", ["TG"]),
        (f">>> Hi\n# Hello\nWell:\n```c\nint x;\n```\n\n{FAST}>>> Ho\n**Yes**\n\n{SLOW}", ["TG"]),
        (f"{LOADED.format('a')}\nHello world\n\n{PERF}{LOADED.format('a')}\nSo it is\n\n{PERF}",
         ["TG"]),
        (ROWS + ROWS, ["tg128 a 1B Q4_0", "tg128 a 1B Q4_0 (again, 2)"]),
    ],
)  # fmt: skip
def test_runs_are_named_by_what_stands_above_them(
    text: str, names: list[str], audit_of: Callable[..., Audit]
) -> None:
    """A heading, a command, a build or a model distinguishes runs; a model's own text does not."""
    (found,) = audit_of({"log": text}).files
    kept = ("TG", "CPU", "tg")
    assert [figure.name for figure in found.figures if figure.name.startswith(kept)] == names


WORDS = ["v1", "# v1", "```", "$ ls", "|", "| a |", ">>> a", "", "---", "**b**", "x: 1", FAST]


@given(st.lists(st.sampled_from(WORDS), max_size=12))
def test_any_lines_have_a_title(parts: list[str]) -> None:
    """Titles are bounded and of one line, for any text."""
    titles = TitleReader()
    for _ in Layout().lines("\n".join(parts).splitlines(), titles):
        assert len(titles.heading) <= 80
        assert "\n" not in titles.heading + titles.command
