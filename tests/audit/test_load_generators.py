"""Result files of load generators: figures by asperf's names, guards, and comparisons."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_asperf.audit.known import Options, parse_options
from pytest_asperf.audit.load_generators import TOOLS, load_runs_of_document
from pytest_asperf.audit.log import read_log
from pytest_asperf.audit.result import Audit, FileFindings

#: A file of each tool, and some of its figures by our names.
FILES = {
    "load_vllm_completions.json": ("vLLM bench serve", {
        "TTFT median": "43.94 ms (median_ttft_ms)",
        "TPOT p99": "4.524 ms (p99_tpot_ms)",
        "output rate": "346.9 tok/s (output_throughput)",
    }),
    "load_sglang.jsonl": ("SGLang bench_serving", {
        "run 1: E2E median": "184.1 ms (median_e2e_latency_ms)",
        "run 2: ITL p95": "4.76 ms (p95_itl_ms)",
    }),
    "load_guidellm.json": ("GuideLLM", {
        "TPOT median": "4.505 ms (inter_token_latency_ms.median)",
        "E2E per token mean": "5.752 ms (time_per_output_token_ms.mean)",
        "E2E median": "184.4 ms (request_latency.median)",
    }),
    "load_aiperf.json": ("AIPerf", {
        "TPOT median": "9.626 ms (inter_token_latency.p50)",
        "ITL median": "8.11 ms (inter_chunk_latency.p50)",
        "request throughput": "3.05 requests/s (request_throughput.avg)",
    }),
    "load_llama_cpp_bench.json": ("llama.cpp server bench", {
        "TTFT median": "45 ms (llamacpp_emit_first_token_second.med)",
        "user rate p95": "231.3 tok/s (llamacpp_tokens_second.p(95))",
    }),
    "load_aiperf_records.jsonl": ("AIPerf, records", {}),
}  # fmt: skip


def figures(found: FileFindings) -> dict[str, str]:
    """The figures by name."""
    return {figure.name: str(figure) for figure in found.figures}


def guards_of(found: FileFindings) -> list[str]:
    """The names of the guards that tripped."""
    return [guard_finding.guard for _, guard_finding in found.guard_findings]


@pytest.mark.parametrize("name", FILES)
def test_each_tools_figures_have_our_names(
    name: str, audit_of: Callable[..., Audit], recorded: Callable[[str], str]
) -> None:
    """A file of each tool is recognised, and its figures are shown with the tool's own field."""
    tool, expected = FILES[name]
    (found,) = audit_of({name: recorded(name)}).files
    assert found.format.removesuffix(", JSON") == tool
    assert expected.items() <= figures(found).items()
    assert {one for one in guards_of(found) if one != "coordinated-omission"} == set()


def test_requests_are_recomputed_with_intervals(
    audit_of: Callable[..., Audit], recorded: Callable[[str], str]
) -> None:
    """If a file has each request, TTFT and ITL have intervals of ours."""
    name = "load_vllm_completions.json"
    (found,) = audit_of({name: recorded(name)}).files
    assert figures(found)["TTFT p50, recomputed"] == "43.9 ms [42.6, 45.4]"
    assert figures(found)["TTFT p95, recomputed"].endswith(", -]")


def test_a_role_chunk_that_was_counted_is_found(
    audit_of: Callable[..., Audit], recorded: Callable[[str], str]
) -> None:
    """The chat client of vLLM ends TTFT at the role chunk; the first gap shows it."""
    (found,) = audit_of({"chat.json": recorded("load_vllm_chat.json")}).files
    assert guards_of(found) == ["tokens-per-chunk", "role-chunk"]


def test_replies_that_never_overlap_are_a_queue(
    audit_of: Callable[..., Audit], recorded: Callable[[str], str]
) -> None:
    """Two users of a closed loop whose requests run one after the other waited for each other."""
    document = json.loads(recorded("load_vllm_completions.json"))
    n = len(document["ttfts"])
    one_by_one = {"start_times": [100.0 * i for i in range(n)], "max_concurrency": 2}
    changed = {**document, **one_by_one, "request_rate": "inf"}
    (found,) = audit_of({"a.json": json.dumps(changed)}).files
    assert guards_of(found) == ["queueing"]


def test_waits_in_the_client_are_found(
    audit_of: Callable[..., Audit], recorded: Callable[[str], str]
) -> None:
    """A rate with a limit on requests under way leaves their wait out of the latency."""
    document = json.loads(recorded("load_vllm_completions.json")) | {"request_rate": 12.0}
    files = {"a.json": json.dumps(document), "b.json": recorded("load_guidellm.json")}
    for found in audit_of(files).files:
        assert guards_of(found) == ["coordinated-omission"]


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("load_vllm_completions.json", ["failed"], 2),
        ("load_guidellm.json", ["benchmarks", 0, "metrics", "request_totals", "errored"], 1),
        ("load_aiperf.json", ["is_complete"], False),
        ("load_llama_cpp_bench.json", ["metrics", "checks", "fails"], 3),
    ],
)
def test_failed_requests_are_found(
    name: str,
    path: list[Any],
    value: object,
    audit_of: Callable[..., Audit],
    recorded: Callable[[str], str],
) -> None:
    """A tool's own count of failures makes its figures INVALID."""
    document = json.loads(recorded(name))
    part = document
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    (found,) = audit_of({name: json.dumps(document)}).files
    assert "failed-requests" in guards_of(found)


def test_a_rate_above_the_bandwidth_is_found(
    audit_of: Callable[..., Audit],
    recorded: Callable[[str], str],
    draft_gguf: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model of 4 GB that gives a token each 4.5 ms would read 880 GB/s, and an M2 has 100."""
    monkeypatch.setattr("pytest_asperf.audit.known.bytes_per_token", lambda *_, **__: 4e9)
    options = parse_options("m2", [draft_gguf], None, None, 0.9)
    (found,) = audit_of({"v.json": recorded("load_vllm_completions.json")}, options).files
    assert guards_of(found) == ["roofline-high"]


def test_a_cached_prompt_in_records_is_found(
    audit_of: Callable[..., Audit], recorded: Callable[[str], str]
) -> None:
    """AIPerf's records have the part of a prompt that was in the server's cache."""
    lines = [json.loads(line) for line in recorded("load_aiperf_records.jsonl").splitlines()]
    for line in lines:
        line["metrics"]["usage_prompt_cache_read_tokens"]["value"] = 120
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (found,) = audit_of({"records.jsonl": text}).files
    assert guards_of(found) == ["cached-prompt"]


def test_only_figures_of_one_definition_are_compared(
    tmp_path: Path, audit_of: Callable[..., Audit], recorded: Callable[[str], str]
) -> None:
    """Against a baseline of another tool, each figure of another definition is rejected."""
    files = {"v.json": recorded("load_vllm_completions.json"), "s.json": ""}
    files["s.json"] = recorded("load_sglang.jsonl").splitlines()[0]
    (compared,) = audit_of(files, Options(baseline=tmp_path / "s.json")).together
    assert set(figures(compared)) == {
        "output rate: v.json vs s.json",
        "request throughput: v.json vs s.json",
    }
    assert guards_of(compared) == ["unequal-definition"] * 4
    (compared,) = audit_of(files).together
    assert guards_of(compared) == []
    assert any("TTFT has two definitions" in note for note in compared.notes)


def test_other_loads_are_not_compared(
    tmp_path: Path, audit_of: Callable[..., Audit], recorded: Callable[[str], str]
) -> None:
    """Two loads of one tool are compared if users, prompts and outputs are the same."""
    document = json.loads(recorded("load_vllm_completions.json"))
    files = {"a.json": json.dumps(document), "b.json": json.dumps(document)}
    assert "TTFT median: b.json vs a.json" in figures(audit_of(files).together[0])
    files["b.json"] = json.dumps(document | {"max_concurrency": 4})
    assert audit_of(files).together == ()
    (compared,) = audit_of(files, Options(baseline=tmp_path / "a.json")).together
    assert guards_of(compared) == ["unequal-work"]


def test_a_run_without_a_request_is_not_read(
    audit_of: Callable[..., Audit], recorded: Callable[[str], str]
) -> None:
    """A file whose figures are all missing is named, and not counted as sound."""
    document = json.loads(recorded("load_guidellm.json")) | {"benchmarks": []}
    result = audit_of({"g.json": json.dumps(document)})
    assert result.exit_code == 3


def test_definitions_that_differ_are_not_equal() -> None:
    """A quantity that differs from ours has another definition than one that does not."""
    definitions = {field.definition for tool in TOOLS.values() for field in tool.values()}
    texts = {(one.quantity, one.text) for one in definitions}
    assert len(texts) == len(definitions)


@settings(max_examples=40)
@given(st.data())
def test_no_file_is_too_broken_to_be_read(data: st.DataObject) -> None:
    """A value of any type instead of any other is no exception."""
    junk: st.SearchStrategy[Any] = (
        st.none() | st.integers() | st.text(max_size=3) | st.just([{}]) | st.just({"a": [0]})
    )
    telling = [
        {"benchmarks": [{"metrics": {"request_latency": {"successful": 1}}}], "metadata": 1},
        {"request_throughput": {"avg": 1}, "request_latency": {}, "input_config": {}},
        {"metrics": {"checks": {}, "vus_max": {}}, "root_group": {}},
        {"request_throughput": 1, "completed": 1, "endpoint_type": 1, "ttfts": [1], "itls": [[1]]},
    ]
    document: dict[str, Any] = {"config": 1, **data.draw(st.sampled_from(telling))}
    for key in list(document):
        if data.draw(st.booleans()):
            document[key] = data.draw(junk)
    load_runs_of_document(document)
    read_log([json.dumps(document), "{", ""])
