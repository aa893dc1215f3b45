"""Output as people put it together: side by side, on one line, as tables, and cut off."""

import re
from collections.abc import Callable

import pytest

from pytest_asperf.audit.result import Audit
from tests.audit.conftest import RECORDED
from tests.audit.test_field import guards_of

HEADER = "| model | ngl | test | t/s |\n"
RULE = "| --- | --: | --: | --: |\n"
PP = "| a 1B Q4_0 | 99 | pp512 | 800.00 ± 3.00 |\n"
TG = "| a 1B Q4_0 | 99 | tg128 | 58.30 ± 0.21 |\n"
TABLE = HEADER + RULE + PP + TG
READ = {"pp512 a 1B Q4_0": "800.0 tok/s", "tg128 a 1B Q4_0": "58.30 tok/s"}
CSV = (RECORDED / "bench.csv").read_text(encoding="utf-8")
NO_HEADER = "rows with figures were not read"
REPLY = (
    "total duration:       2.4s\n"
    "prompt eval count:    20 token(s)\n"
    "prompt eval duration: 200ms\n"
    "prompt eval rate:     100.00 tokens/s\n"
    "eval count:           60 token(s)\n"
    "eval duration:        2s\n"
    "eval rate:            30.00 tokens/s\n"
)
REPLIES = {"TG": "29.5 tok/s", "PP": "100 tok/s"}
RATES = "| model | prompt eval rate | eval rate (tokens/s) |\n| - | - | - |\n"
PROMPT = "prompt_tps=9.000, generation_tps="
BENCHY = "| model | test | t/s | ttfr (ms) |\n| - | - | - | - |\n"
COMPARED = (
    "| Model | Threads | Test | t/s a | t/s b | Speedup |\n| - | - | - | - | - | - |\n"
    "| a | 8 | tg8 | 10.00 | 11.00 | 1.10 |\n| a | 16 | tg8 | 10.00 | 9.00 | 0.90 |\n"
    "| a | 16 | tg9 | 10.00 | nan | nan |\n"
)
VLLM = (RECORDED / "vllm_2024.json").read_text(encoding="utf-8").strip()
GENAI = (
    "Metric,avg,min,p99\nTime To First Token (ms),80.00,70.00,90.00\n\n"
    "Metric,Value\nOutput Token Throughput (per sec),101.00\n"
)
GENAI_CONSOLE = (RECORDED / "genai_perf_console.txt").read_text(encoding="utf-8")
GUIDE = (RECORDED / "guidellm_console.txt").read_text(encoding="utf-8")
KLD = (RECORDED / "kld_two.txt").read_text(encoding="utf-8")
JSON = (RECORDED / "bench.json").read_text(encoding="utf-8")
TASKS = (RECORDED / "hellaswag.txt").read_text(encoding="utf-8")
CELLS = "<table>\n<tr>\n<td>model</td>\n<td>test</td>\n<td>t/s</td>\n</tr>\n<tr>\n"
CELLS += "<td>a</td>\n<td>tg8</td>\n<td>9.00 ± 0.01</td>\n</tr>\n</table>\n"
POWERS = "*** Sampled system activity (now) (1000.00ms elapsed) ***\n"
POWERS += "CPU Power: 1.5 W\nGPU Power: 0.9 W\n"
BLOCK = ["===== Serving Benchmark Result =====", "Successful requests:   4"]
BLOCK += ["Mean TTFT (ms):   {}", "P99 TTFT (ms):   {}", "=" * 30]


def beside(between: str, *columns: list[str]) -> str:
    """Return the lines of texts that are side by side."""
    return "\n".join(between.join(lines) for lines in zip(*columns, strict=True))


def block(mean: str, p99: str) -> list[str]:
    """Return a console with two figures."""
    return "\n".join(BLOCK).format(mean, p99).splitlines()


TWO = {"run 1: TTFT mean": "310 ms", "run 2: TTFT mean": "210 ms", "run 2: TTFT p99": "410 ms"}
BLOCKS = block("310.00", "510.00"), block("210.00", "410.00")


@pytest.mark.parametrize(
    ("text", "figures", "guards", "said"),
    [
        (TABLE[1:], READ, [], ""),
        (TABLE.replace("\n|", "\n")[1:], READ, [], ""),
        ("||model||ngl||test||t/s||\n" + PP + TG, READ, [], ""),
        (TABLE.replace("58.30 ± 0.21", "nan ± nan"), {"pp512 a 1B Q4_0": "800"}, ["not-timed"], ""),
        (HEADER + RULE + TG.replace("58.30 ± 0.21", "0.00 ± 0.00"), {}, ["not-timed"], ""),
        (CSV.partition("\n")[2], {}, [], NO_HEADER),
        (TABLE + CSV.partition("\n")[2], READ, [], NO_HEADER),
        ("box,A,128,60.1\nbox,B,128,50.2\n", {}, [], "CSV without its header"),
        (CSV.replace("6937.445453", "nan"), {"tg32 asperf-target-F16.gguf": "2733"},
         ["not-timed"], ""),
        ("Averages: prompt_tps=nan, generation_tps=0.000\n", {}, ["not-timed"], ""),
        (f"### a\nAverages: {PROMPT}8.000\n### b\nAverages: {PROMPT}6.000\n",
         {"TG, average, a": "8 tok/s", "TG, average, b": "6 tok/s"}, [], ""),
        ("Averages: prompt_tps=1500,733, generation_tps=80,127\n", {}, [], "decimal commas"),
        ("Prompt: 9 tokens, 1500,733 tokens-per-sec\n", {}, [], f"1 {NO_HEADER}"),
        ("model,tg_tps,ttft_ms\nA,nan,5\nB,30,0\n", {"B": "30 tok/s, TTFT 0 ms"},
         ["not-timed", "not-timed"], ""),
        ('{"r": [{"name": "a", "gen_tps": 9, "draft_n": 2, "draft_n_accepted": 3}]}',
         {"a": "9 tok/s"}, ["sd-bound"], ""),
        (BENCHY + "| m | pp512 | 1,234.50 ± 9.00 | 1,100.00 ± 1.00 |\n| m | tg8 | nan ± nan | |\n",
         {"pp512 m": "1,234.50 ± 9.00 tok/s", "pp512 m, ttfr": "1,100.00"}, ["not-timed"], ""),
        (f'{{"low": {VLLM}, "high": {VLLM}}}'.replace("80.0,", "NaN,", 1),
         {"low: TTFT mean": "nan ms", "high: TTFT mean": "80 ms"}, ["not-timed"], ""),
        (f"[[{VLLM}]]", {"TTFT mean": "80 ms"}, [], ""),
        (f"[{VLLM}, {VLLM.replace('mean_ttft_ms', 'ttft')}]", {"TTFT mean": "80 ms"}, [],
         f"1 {NO_HEADER}"),
        (VLLM.replace('"completed": 10', '"completed": 8'), {}, ["failed-requests"], ""),
        (COMPARED.replace("11.00 | 1.10", "11.00 | 1.30"), {"tg8 a Threads=8": "1.3 x"},
         ["not-timed", "unequal-definition"], ""),
        (COMPARED.replace("| 1.10", "| 1,100"), {"tg8 a": "0.9 x"}, ["not-timed"],
         f"1 {NO_HEADER}"),
        (COMPARED, {"tg8 a Threads=8": "1.1 x", "tg8 a Threads=16": "0.9 x"}, ["not-timed"], ""),
        ("CPU Power: 1500 mW\nGPU Power: 900 mW\n", {}, [], "without the duration"),
        (POWERS, {"CPU energy": "1.5", "GPU energy": "0.9"}, [], ""),
        (POWERS.replace("0.9", "0,9"), {"CPU energy": "1.5"}, [], f"1 {NO_HEADER}"),
        (GENAI_CONSOLE + "Output token throughput (per sec): 1,101.00\n",
         {"TTFT p99": "90 ms", "output rate": "1101 tok/s"}, [], ""),
        (GUIDE.replace("|||", "|").replace("||", "|"), {}, [], f"4 {NO_HEADER}"),
        (GUIDE.replace("\n  | ", "\n  | loading | 50% |\n  | "),
         {"run 1: E2E median": "5000 ms", "run 2: output rate": "1800 tok/s"}, ["not-timed"],
         NO_HEADER),
        (GUIDE.replace("84.2 |", "84.2~ |"), {"run 1: E2E p95": "5400 ms"}, ["not-timed"],
         f"1 {NO_HEADER}"),
        (KLD.replace("0.004130", "0.00~4130"), {}, [], NO_HEADER),
        (TABLE.replace("t/s", "rate") + "\n" + TABLE, READ, [], f"2 {NO_HEADER}"),
        (JSON.replace('"avg_ns"', '"ns"', 1), {"tg32 asperf-target-F16.gguf": "13"}, [],
         "has no avg_ns"),
        (GENAI, {"TTFT p99": "90 ms", "output rate": "101 tok/s"}, [], ""),
        ("hellaswag_score : calculating\n400\t74,25000000%\t[69%, 78%]\n",
         {"HellaSwag accuracy": "74.2 %"}, [], ""),
        ("\n".join(f"{n}:{row}" for n, row in enumerate(TASKS.splitlines(), 1)),
         {"HellaSwag accuracy": "74.0 %"}, [], ""),
        (re.sub(r"\t[\d.]+%", "\tnan%", TASKS[: TASKS.index("winogrande")]), {}, ["not-timed"], ""),
        ("".join(f"web-1  | {row}\n" for row in CELLS.splitlines()), {"tg8 a": "9.0000 tok/s"},
         [], ""),
        (" ".join(REPLY.split()), REPLIES, [], ""),
        (REPLY.replace("\n", ", "), REPLIES, [], ""),
        (REPLY[: REPLY.index("eval rate:            30")], REPLIES, [], ""),
        (REPLY[:-17], REPLIES, [], ""),
        (REPLY[: REPLY.index("s\neval rate:            30")], {}, [], "cut off before the time"),
        ("| a | b |\n| - | - |\n| " + REPLY.replace("\n", " |\n| ").replace(": ", " | "), REPLIES,
         [], ""),
        (RATES + "| x | 100.00 | 30.00 |\n| y | 90.00 tokens/s | 20.00 tokens/s |\n",
         {"TG, x": "30 tok/s", "PP, y": "90 tok/s"}, [], ""),
        (beside("      ", *BLOCKS), TWO, [], ""),
        (beside("\t", *BLOCKS), TWO, [], ""),
        ("\n".join(block("nan", "510.00")), {"TTFT mean": "nan ms", "TTFT p99": "510 ms"},
         ["not-timed"], ""),
        (beside("    | ", *BLOCKS), TWO, [], ""),
        (beside("  ", BLOCKS[0], [*BLOCKS[1][:2], "", *BLOCKS[1][3:]]),
         {"run 1: TTFT p99": "510 ms", "run 2: TTFT p99": "410 ms"}, [], f"1 {NO_HEADER}"),
    ],
)  # fmt: skip
def test_what_people_put_together(
    text: str,
    figures: dict[str, str],
    guards: list[str],
    said: str,
    audit_of: Callable[..., Audit],
) -> None:
    """The figures are those of the tool's own form, or the reason why there are none is given."""
    (found,) = audit_of({"x": text}).files
    shown = {figure.name: str(figure) for figure in found.figures}
    assert {name: shown.get(name, "-")[: len(start)] for name, start in figures.items()} == figures
    assert found.figures or not figures
    assert guards_of(found) == guards
    assert any(said in one for one in (found.problem, *found.notes))
    assert found.problem or not said or found.notes
