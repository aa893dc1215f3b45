"""Files in the forms that people paste, each with the answer that follows from its figures."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.audit.judge import judge_file
from pytest_asperf.audit.known import Known, Options
from pytest_asperf.audit.lines import Layout, Lines
from pytest_asperf.audit.read import DEFECT, read_file
from pytest_asperf.audit.result import Audit, FileFindings
from tests.audit.conftest import RECORDED

#: By file: how some of its figures begin, the guards that trip, and a part of a note.
FIELD: dict[str, tuple[dict[str, str], list[str], str]] = {
    "aiperf_console.txt": ({"TTFT mean": "120 ms", "E2E median": "1388 ms"}, [], ""),
    "batched.jsonl": ({"pp128 B=2": "1024 tok/s", "tg64 B=2": "100 tok/s"}, [], ""),
    "bench.tsv": ({"pp512 q.gguf": "1024.0 tok/s [1022.1"}, [], ""),
    "bench_before_after.md": (
        {"tg128 qwen3 4B Q4_K - Medium, Master": "58.30", "pp512 qwen3 4B Q4_K - Medium, PR": "9"},
        [], "",
    ),
    "bench_cp1252.md": ({"pp512 qwen3 4B Q4_K - Medium": "802.2 tok/s"}, [], ""),
    "bench_github.html": ({"tg128 qwen3 4B Q4_K - Medium": "58.30 tok/s [58.10"}, [], ""),
    "bench_killed.md": ({"pp512 qwen3 4B Q4_K - Medium": "801.2"}, ["program-crashed"], ""),
    "bench_no_deviation.md": (
        {"tg128 qwen3 4B Q4_K - Medium": "58.3 tok/s (too few"}, ["spread", "spread"], "",
    ),
    "bench_powershell.md": ({"tg128 qwen3 4B Q4_K - Medium": "58.30 tok/s [58.10"}, [], ""),
    "bench_r1.csv": ({"tg128 m.gguf": "100 tok/s (too few"}, ["spread"], "one run (-r 1)"),
    "bench_semicolon.csv": ({"pp512 q.gguf": "1024.0 tok/s [1022.1"}, [], ""),
    "bench_stderr.csv": (
        {"tg128 phi.Q4_0.gguf build=7000 (abc12345) backends=ROCm flash_attn=True": "50.0"},
        [], "2 builds",
    ),
    "bench_stderr.json": ({"tg128 phi.Q4_0.gguf flash_attn=True": "52.0"}, [], ""),
    "bench_stderr.jsonl": (
        {"tg128 phi.Q4_0.gguf build=7100 (def67890) backends=Vulkan flash_attn=False": "47.41"},
        [], "1 JSON objects are cut off or broken",
    ),
    "bench_two_builds.md": (
        {"tg128 qwen3 4B Q4_K - Medium build=7100 (def67890), After": "49.10 tok/s"},
        [], "1 rows with figures were not read",
    ),
    "bench_unreachable.md": ({}, ["path-mismatch"], ""),
    "bench_wrapped.md": ({"tg128 qwen3 4B Q4_K - Medium": "58.30 tok/s"}, [], ""),
    "benchy.json": ({"tg32 @ d4096": "40.00 tok/s ["}, [], "not llama-bench"),
    "benchy.md": (
        {"ctx_pp @ d4096 some/model": "1100.00 ± 30.00 tok/s", "tg32 @ d4096 some/model": "40.00"},
        [], "not llama-bench",
    ),
    "compare_bench.md": ({"tg128 llama 8B Q4_0": "0.95 x (57.00 and 60.00"}, [], ""),
    "decode_errors_only.log": ({}, ["decode-errors"], ""),
    "genai_perf_console.txt": ({"TPOT mean": "12 ms", "E2E p99": "950 ms"}, [], ""),
    "guidellm_console.txt": (
        {"run 1: TTFT median": "206.4 ms", "run 2: output rate": "1800 tok/s"}, ["not-timed"], "",
    ),
    "guidellm_console_2025.txt": (
        {"run 1: E2E median": "4100 ms", "run 2: TTFT p99": "1380 ms", "run 2: output rate": "990"},
        [], "",
    ),
    "guidellm_stderr.txt": (
        {"run 1: TTFT median": "206.4 ms", "run 2: output rate": "1800 tok/s"}, ["not-timed"], "",
    ),
    "hellaswag.txt": (
        {"HellaSwag accuracy": "74.0 % [70", "Winogrande accuracy": "60.0 %"}, [], "",
    ),
    "kld_two.txt": (
        {"run 1: Median KLD": "0.001", "run 1: RMS Δp": "2.1% ± 0.05%", "run 2: Mean KLD": "0.05"},
        [], "",
    ),
    "llama_cli_2025.txt": ({"TG": "48.0 tok/s [", "PP": "630 tok/s"}, [], ""),
    "llama_cli_and_server.txt": (
        {"TG, llama-cli": "50 tok/s", "TG, llama-server": "40 tok/s"}, [], "",
    ),
    "llama_cli_before_after.md": (
        {"TG, CPU": "50 tok/s (too few", "TG, GPU": "60 tok/s (too few"}, [], "",
    ),
    "llama_cli_oldest.txt": ({"TG": "10 tok/s", "PP": "10 tok/s"}, [], ""),
    "mlx_averages.txt": ({"TG, average": "80.13 tok/s (too few"}, [], "sizes are not in these"),
    "mlx_perplexity.txt": ({"run 1: PPL": "7.25 ± 0.061"}, ["broken-logits"], ""),
    "mlx_trials.txt": ({"TG": "30.20 tok/s", "PP": "166.7 tok/s"}, [], "sizes are not in these"),
    "mtp_bench.json": ({"tg192 story": "39 tok/s, acceptance 50.00%"}, [], ""),
    "ollama_api.json": ({"TG": "50 tok/s", "PP": "500 tok/s"}, [], ""),
    "ollama_before_after.md": (
        {"TG, With version 0.1.29 I get this output": "29.5 tok/s (too few"}, [],
        "n tokens by the time of n - 1 steps",
    ),
    "ollama_verbose.txt": ({"TG": "9.0 tok/s ["}, [], "n tokens by the time of n - 1 steps"),
    "own_table.md": ({"PPL Q4_0": "5.44 ± 0.11, unpaired"}, [], "only what its author kept"),
    "powermetrics_2020.txt": ({"GPU energy": "5.000 J, 3.33 W", "CPU energy": "2.500 J"}, [], ""),
    "ppl_rows.txt": (
        {"run 1: PPL": "4.90 [4.27, 5.62]", "run 2: PPL": "4.90 [4.27, 5.62]"}, [], "",
    ),
    "ppl_wrapped.txt": ({"PPL": "5.265 [5.1"}, [], ""),
    "server_timings.json": ({"TG": "50 tok/s", "PP": "500 tok/s"}, [], ""),
    "server_truncated.log": ({"TG": "40 tok/s"}, ["context-cut"], ""),
    "serving_before_after.txt": (
        {"vllm bench serve --x: TTFT mean": "310 ms", "vllm bench serve --y: TTFT mean": "210 ms"},
        [], "",
    ),
    "serving_sglang.txt": (
        {"E2E median": "1940 ms", "ITL p95": "60 ms", "acceptance": "3.2 tokens in each step"},
        ["tokens-per-chunk"], "",
    ),
    "serving_table.md": ({"A: TPOT median": "20 ms", "B: TTFT mean": "210 ms"}, [], ""),
    "serving_vllm_sweep.txt": (
        {"run 1: TPOT median": "14.9 ms", "run 2: TTFT median": "0 ms"},
        ["tokens-per-chunk", "not-timed"], "",
    ),
    "speculative_sweep.log": (
        {"run 1: TG": "10 tok/s", "run 2: TG": "20 tok/s", "run 3: acceptance": "60.00%"}, [], "",
    ),
    "sweep_bench.md": ({"tg128@d512": "95.03 tok/s in one run"}, [], ""),
    "vllm_2024.json": ({"ITL p99": "30 ms", "output rate": "200 tok/s"}, [], ""),
    "vllm_mlx.json": ({"pp128 tg64 short 1": "100 tok/s"}, [], ""),
    "vllm_sweep.json": (
        {"run 2: acceptance": "60.00% of drafted tokens, 2.8 tokens"}, ["tokens-per-chunk"], "",
    ),
}  # fmt: skip


def guards_of(found: FileFindings) -> list[str]:
    """Return the names of the guards that tripped."""
    return [str(guard_finding.guard) for _, guard_finding in found.guard_findings]


def judged(path: Path) -> FileFindings:
    """Return a file's figures."""
    reading = read_file(path)
    return judge_file(reading, Known.of([reading], Options()))


@pytest.mark.parametrize("name", FIELD)
def test_what_people_paste_is_read(name: str) -> None:
    """Each file gives its figures, and trips the guards that it should and no other."""
    figures, guards, note = FIELD[name]
    found = judged(RECORDED / name)
    assert found.problem == ""
    shown = {figure.name: str(figure) for figure in found.figures}
    assert {n: shown.get(n, "-")[: len(start)] for n, start in figures.items()} == figures
    assert guards_of(found) == guards
    assert any(note in one for one in found.notes) or not note


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("machine,model_label,n_gen,avg_tps\n", "without a row: nothing was measured"),
        ("| model | test | t/s |\n| --- | --- | --- |\n", "without a test"),
        ("build: 9000 (0badcafe) with cc\n", "without a measurement"),
        ("perplexity: calculating perplexity over 0 chunks, n_ctx=512\n", "without a measurement"),
    ],
)
def test_a_file_that_measured_nothing_is_said_to(
    text: str, reason: str, audit_of: Callable[..., Audit]
) -> None:
    """A header, a build or a plan alone is no measurement, and is named."""
    found = audit_of({"a.csv": text})
    assert reason in found.files[0].problem
    assert found.exit_code == 3


@pytest.mark.parametrize(
    "line",
    [
        "/x/ggml/src/ggml-cuda/fattn.cu:585: fatal error",
        "ggml-cuda.cu:99: CUDA error",
        "/x/ggml.c:3210: GGML_ASSERT(a->ne[2] == b->ne[0]) failed",
        "Segmentation fault (core dumped)",
        "libc++abi: terminating due to uncaught exception",
    ],
)
def test_a_crash_is_invalid(line: str, audit_of: Callable[..., Audit]) -> None:
    """Figures of a program that ended before it was done are INVALID; a compiler's note is none."""
    chat = "[ Prompt: 640.5 t/s | Generation: 48.2 t/s ]\n"
    (crashed, sound) = audit_of(
        {"a": chat + line + "\n", "b": chat + "x.cpp:12:3: warning: unused\n"}
    ).files
    assert guards_of(crashed) == ["program-crashed"]
    assert guards_of(sound) == []


PLAN = "perplexity: calculating perplexity over 3 chunks, n_ctx=512, batch_size=512, n_seq=1\n"


@pytest.mark.parametrize(
    ("text", "guards", "shown"),
    [
        ("perplexity : calculating perplexity over 9 chunks, batch_size=512\n[1]4.5,[2]4.6,",
         ["path-mismatch"], "4.6"),
        (PLAN + "[1]4.5,[2]4.6,[3]4.7,\nFinal estimate: PPL = 5.9 +/- 0.1\n",
         ["path-mismatch"], "5.9 ± 0.1"),
        (PLAN + "[1]4.5,[3]4.7,\nFinal estimate: PPL = 4.7 +/- 0.1\n", [], "4.7 ± 0.1"),
        (PLAN + "[1]nan,[2]nan,[3]nan,\nUnexpected negative standard deviation of log(prob)\n",
         ["broken-logits", "path-mismatch"], ""),
        (PLAN + "Final estimate: PPL = nan +/- nan\n", ["broken-logits", "path-mismatch"], ""),
        ("Final estimate: PPL over 8 chunks for n_ctx=512 = 1.1 +/- 0.02\n", [], "1.1 ± 0.02"),
    ],
)  # fmt: skip
def test_final_estimates_are_used_and_checked(
    text: str, guards: list[str], shown: str, audit_of: Callable[..., Audit]
) -> None:
    """Cut runs and NaN are INVALID in every age of log; lost chunk lines leave the final figure."""
    (found,) = audit_of({"log": text}).files
    assert guards_of(found) == guards
    assert [str(figure)[: len(shown)] for figure in found.figures] == [shown] * bool(shown)


def test_runs_of_one_log_are_paired(audit_of: Callable[..., Audit]) -> None:
    """Three quantizations appended to one log are three runs, compared by chunk with the first."""
    chunks = "[1]{0}00,[2]{0}20,[3]{0}10,\nFinal estimate: PPL = {0}10 +/- 0.1\n"
    log = "".join(PLAN + chunks.format(ppl) for ppl in ("4.50", "4.51", "4.70"))
    result = audit_of({"ppl.log": log})
    assert [figure.name for figure in result.files[0].figures] == [
        "run 1: PPL", "run 2: PPL", "run 3: PPL",
    ]  # fmt: skip
    (pairs,) = result.together
    assert [figure.name for figure in pairs.figures] == [
        "ppl.log, run 2 vs ppl.log, run 1", "ppl.log, run 3 vs ppl.log, run 1",
    ]  # fmt: skip


PREFIXES = ["", "> ", "# ", "    ", "2026-01-12T10:00:00.1234567Z ", "server-1  | ", "[10:00:01] "]
PREFIXES += ["build\tRun llama-bench\t2026-01-12T10:00:00.1234567Z "]
PREFIXES += ["Jan 12 10:00:00 host llama[123]: ", "\x1b[32m", "0.01.002.003 I "]


@given(
    st.sampled_from(PREFIXES),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["±", "┬▒", "Â±", "卤"]),
)
def test_no_shell_or_collector_changes_a_line(
    prefix: str, encoding: str, end: str, sign: str
) -> None:
    """Prefixes, encodings, line ends and misread signs leave the line as the tool printed it."""
    line = "| qwen3 | 2.32 GiB | pp512 | 801.20 ± 3.10 |"
    text = end.join([prefix + line.replace("±", sign)] * 3)
    data = text.encode(encoding, errors="replace")
    if sign != "±" and encoding == "cp1252":
        return  # the sign that was misread is not of that page
    read = [*Layout().lines(Lines(io.BytesIO(data)))]
    assert read == [line] * 3


@given(st.integers(60, 130))
def test_what_a_terminal_broke_is_joined(width: int) -> None:
    """Chunks and timings come back whole from any width."""
    timing = "eval time =  2000.00 ms /  100 runs  ( 20.00 ms per token,  50.00 tokens per second)"
    text = [
        "".join(f"[{i}]{5 + i / 100:.4f}," for i in range(1, 60)),
        f"{'llama_print:':40}{timing}",
    ]
    broken = [line[i : i + width] for line in text for i in range(0, len(line), width)]
    layout, *_ = Layout.candidates(broken)
    assert [*layout.lines(broken)] == [line.strip() for line in text]


@given(st.sampled_from(sorted(FIELD)), st.data())
def test_no_damage_to_a_file_is_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    """For any cut and any insertion, a file is read and judged, or rejected."""
    raw = (RECORDED / name).read_bytes()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(raw)))
        end = data.draw(st.integers(start, min(len(raw), start + 200)))
        put = data.draw(st.sampled_from([b"", b"\n", b"9" * 400, b"nan", b"-1", b"|", b"{", b"\0"]))
        raw = raw[:start] + put + raw[end:]
    path = tmp_path_factory.mktemp("field") / name
    path.write_bytes(raw)
    found = judged(path)
    assert not found.problem.startswith(DEFECT)
    assert found.figures or found.guard_findings or found.problem
