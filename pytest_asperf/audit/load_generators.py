"""Result files of load generators: vLLM, SGLang, GuideLLM, AIPerf and llama.cpp's server bench.

Two figures are comparable if their definitions (`data/load-generators.toml`) are equal; ours are in
`analysis.serving_metrics`.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, zip_longest
from typing import Any, Final

from pytest_asperf.analysis.serving_metrics import ServedRequest
from pytest_asperf.config.text_file import shipped_table
from pytest_asperf.worker.printed import number_of
from pytest_asperf.worker.serving.payload import as_dict

Stats = Callable[[Mapping[str, Any]], Iterator[tuple[str, str, str, object]]]


@dataclass(frozen=True, slots=True)
class Definition:
    """A quantity by asperf's name: its meaning, and the differences from it; empty without any."""

    quantity: str
    text: str
    differs: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """One of a tool's figures: its meaning, asperf's unit, and the factor to it."""

    definition: Definition
    unit: str = "ms"
    factor: float = 1.0


def _shipped() -> tuple[dict[str, dict[str, Field]], dict[str, dict[str, str]]]:
    """The figures of each tool, by its own names; and by their names on its console."""
    tools = shipped_table("load-generators")
    definitions = {name: Definition(**words) for name, words in tools.pop("definitions").items()}
    consoles = tools.pop("consoles")
    figures = {
        tool: {
            name: Field(**{**field, "definition": definitions[field["definition"]]})
            for name, field in fields.items()
        }
        for tool, fields in tools.items()
    }
    return figures, consoles


TOOLS, CONSOLES = _shipped()

_MAX_RUNS: Final = 100
_MAX_REQUESTS: Final = 10_000
_GAPS: Final = "inter_chunk_latency"
_FLAT: Final = re.compile(r"(mean|median|p\d{1,2}(?:\.\d+)?)_(\w+)_ms")
_STATISTICS: Final = {
    "avg": "mean", "mean": "mean", "med": "median", "median": "median", "p50": "median",
    "p95": "p95", "p99": "p99", "p(95)": "p95",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoadFigure:
    """One figure of a run, in our unit. `statistic` is empty for a rate of the whole run."""

    field: str
    statistic: str
    value: float
    unit: str
    definition: Definition

    @property
    def name(self) -> str:
        """Our name of it."""
        return f"{self.definition.quantity} {self.statistic}".rstrip()


@dataclass(frozen=True, slots=True)
class LoadRun:
    """One run of a load generator."""

    tool: str
    figures: tuple[LoadFigure, ...]
    #: the load, the prompts and the outputs, as far as the file has them
    work: Mapping[str, object]
    #: each one's chunks by the tool's own clock, where the file has them
    requests: tuple[ServedRequest, ...] = ()
    n_requests: int = 0
    n_failed: int = 0  #: requests that the tool counts as failed
    #: share of drafted tokens that was accepted; None without speculation
    acceptance: float | None = None
    accepted_length: float | None = None  #: tokens that a step emits with speculation
    title: str = ""  #: the line above it that is not above other runs of the file

    def value(self, quantity: str, statistic: str = "mean") -> float | None:
        """One of its figures by our name; None if the file does not have it, or it is no number."""
        named = (f for f in self.figures if f.definition.quantity == quantity)
        figures = (f for f in named if not math.isnan(f.value))
        return next((f.value for f in figures if f.statistic == statistic), None)


def load_runs_of_document(document: object, depth: int = 2) -> tuple[LoadRun, ...]:
    """The runs in a JSON document, one or a sweep's; none if no load generator wrote it."""
    if isinstance(document, list):
        runs = (run for part in document[:_MAX_RUNS] for run in load_runs_of_document(part, depth))
        return tuple(runs)[:_MAX_RUNS]
    if not isinstance(document, dict):
        return ()
    for telling, read in _TOOLS:
        if telling <= document.keys():
            return read(document)
    # A sweep, by its names or in a list.
    parts = [(str(name), part) for name, part in document.items() if isinstance(part, dict | list)]
    named = [
        replace(run, title=run.title or name)
        for name, part in parts[:_MAX_RUNS]
        if depth
        for run in load_runs_of_document(part, depth - 1)
    ]
    return tuple(named[:_MAX_RUNS])


def run_of_records(requests: Sequence[ServedRequest]) -> LoadRun:
    """The run of AIPerf's records."""
    n_failed = sum(bool(request.failure) for request in requests)
    return LoadRun("AIPerf, records", (), {}, tuple(requests), len(requests), n_failed)


def flat_run(tool: str, fields: Mapping[str, Field], document: Mapping[str, Any]) -> LoadRun:
    """A run of vLLM or SGLang, which write one flat object."""
    completed, failed = _number(document.get("completed")), _number(document.get("failed"))
    errors = [error for error in _list(document.get("errors")) if error]
    sent = _number(document.get("num_prompts"))
    lost = sent - completed if sent and completed is not None else 0
    n_failed = int(failed if failed is not None else max(len(errors), lost))
    work = {
        "users": document.get("max_concurrency"),
        "requests/s": _number(document.get("request_rate")),  # or "inf"
        "prompt tokens": document.get("total_input_tokens"),
        "output tokens": document.get("total_output_tokens"),
        "model": document.get("model_id"),
    }
    share = _number(document.get("spec_decode_acceptance_rate"))
    lengths = (document.get(key) for key in ("spec_decode_acceptance_length", "accept_length"))
    return LoadRun(
        tool,
        _figures(fields, _flat_stats, document),
        _known(work),
        tuple(_requests(document)),
        int(completed or 0) + n_failed,
        n_failed,
        acceptance=share / 100 if share is not None else None,
        accepted_length=next((n for length in lengths if (n := _number(length))), None),
        title=str(document.get("title", "")),
    )


def _flat_stats(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str, object]]:
    for key, value in document.items():
        statistic = _FLAT.fullmatch(str(key))
        yield (key, statistic[2], statistic[1], value) if statistic else (key, key, "", value)


def _requests(document: Mapping[str, Any]) -> Iterator[ServedRequest]:
    """Requests as vLLM's --save-detailed and SGLang's --output-details keep them, in seconds."""
    names = ("ttfts", "start_times", "itls", "output_lens", "input_lens", "errors")
    columns = [_list(document.get(name)) for name in names]
    n_requests = min(len(columns[0]), _MAX_REQUESTS)
    for row in islice(zip_longest(*columns), n_requests):
        ttft, start, gaps, n_output, n_prompt, error = row
        steps = [_number(step) for step in (start or 0.0, ttft, *_list(gaps))]
        at_ns = [round(1e9 * at) for at in accumulate(step for step in steps if step is not None)]
        has_output = bool(ttft) and None not in steps
        yield ServedRequest(
            start_ns=at_ns[0],
            event_ns=tuple(at_ns[1:]) if has_output else (),
            closed_ns=at_ns[-1],
            n_output=_integer(n_output),
            n_prompt=_integer(n_prompt),
            failure=str(error)[:200] if error else "",
        )


def _guidellm(document: Mapping[str, Any]) -> tuple[LoadRun, ...]:
    benchmarks = [b for b in _list(document["benchmarks"]) if isinstance(b, dict)]
    return tuple(map(_guidellm_run, benchmarks[:_MAX_RUNS]))


def _guidellm_run(benchmark: Mapping[str, Any]) -> LoadRun:
    metrics = as_dict(benchmark.get("metrics"))
    totals = as_dict(metrics.get("request_totals"))
    strategy = as_dict(as_dict(benchmark.get("config")).get("strategy"))
    lost = [int(_number(totals.get(name)) or 0) for name in ("errored", "incomplete")]
    work = {
        "strategy": strategy.get("type_"),
        "users": strategy.get("streams"),
        "requests/s": strategy.get("rate"),
        **{
            name: as_dict(as_dict(metrics.get(field)).get("successful")).get("total_sum")
            for name, field in (
                ("prompt tokens", "prompt_token_count"),
                ("output tokens", "output_token_count"),
            )
        },
    }
    return LoadRun(
        "GuideLLM",
        guidellm_figures(metrics),
        _known(work),
        n_requests=int(_number(totals.get("total")) or 0),
        n_failed=sum(lost),
    )


def guidellm_figures(metrics: Mapping[str, Any]) -> tuple[LoadFigure, ...]:
    """The figures of a run from its metrics, each by status."""
    return _figures(TOOLS["guidellm"], _guidellm_stats, metrics)


def _guidellm_stats(metrics: Mapping[str, Any]) -> Iterator[tuple[str, str, str, object]]:
    for name, by_status in metrics.items():
        summary = as_dict(as_dict(by_status).get("successful"))
        for statistic, value in {**summary, **as_dict(summary.get("percentiles"))}.items():
            yield f"{name}.{statistic}", name, statistic, value


def aiperf_run(document: Mapping[str, Any], tool: str = "AIPerf") -> LoadRun | None:
    """A run of AIPerf from its metrics, each with its statistics; None without a figure."""
    counts = {
        name: int(_number(as_dict(document.get(name)).get("avg")) or 0)
        for name in ("request_count", "error_request_count")
    }
    is_whole = document.get("is_complete") is not False and not document.get("was_cancelled")
    work = {
        **{
            name: as_dict(document.get(field)).get("avg")
            for name, field in (
                ("prompt tokens each", "input_sequence_length"),
                ("output tokens each", "output_sequence_length"),
            )
        },
        "users": _find(as_dict(document.get("input_config")), "concurrency"),
        "requests/s": _find(as_dict(document.get("input_config")), "request_rate"),
    }
    n_failed = counts["error_request_count"] + (not is_whole)
    figures = _figures(TOOLS["aiperf"], _nested_stats, document)
    if not figures:
        return None
    n_requests = counts["request_count"] + n_failed
    return LoadRun(tool, figures, _known(work), n_requests=n_requests, n_failed=n_failed)


def request_of_record(record: object) -> ServedRequest | None:
    """The request of a line of AIPerf's `profile_export.jsonl`; times are in ms there."""
    metrics = as_dict(as_dict(record).get("metrics"))
    if not metrics or "benchmark_phase" not in as_dict(as_dict(record).get("metadata")):
        return None
    value = {name: as_dict(metric).get("value") for name, metric in metrics.items()}
    steps = [_number(s) for s in (value.get("time_to_first_token"), *_list(value.get(_GAPS)))]
    at_ns = [round(1e6 * at) for at in accumulate(step for step in steps if step is not None)]
    error = as_dict(record).get("error")
    return ServedRequest(
        start_ns=0,
        event_ns=() if None in steps else tuple(at_ns),
        closed_ns=max(at_ns, default=0),
        n_output=_integer(value.get("output_sequence_length")),
        n_prompt=_integer(value.get("input_sequence_length")),
        n_cached=_integer(value.get("usage_prompt_cache_read_tokens")),
        failure=str(error)[:200] if error else "",
    )


def _llama_bench(document: Mapping[str, Any]) -> tuple[LoadRun, ...]:
    metrics = as_dict(document["metrics"])
    checks = as_dict(metrics.get("checks"))
    n_failed = int(_number(checks.get("fails")) or 0)
    totals = ("llamacpp_prompt_tokens_total_counter", "llamacpp_completion_tokens_total_counter")
    prompt, output = (as_dict(metrics.get(name)).get("count") for name in totals)
    users = as_dict(metrics.get("vus_max")).get("max")
    run = LoadRun(
        "llama.cpp server bench",
        _figures(TOOLS["llama_bench"], _nested_stats, metrics),
        _known({"users": users, "prompt tokens": prompt, "output tokens": output}),
        n_requests=int(_number(checks.get("passes")) or 0) + n_failed,
        n_failed=n_failed,
    )
    return (run,)


def _nested_stats(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str, object]]:
    for name, summary in document.items():
        for statistic, value in as_dict(summary).items():
            yield f"{name}.{statistic}", name, statistic, value


def _figures(
    fields: Mapping[str, Field], stats: Stats, document: Mapping[str, Any]
) -> tuple[LoadFigure, ...]:
    figures: dict[str, LoadFigure] = {}
    for own_name, stem, statistic, value in stats(document):
        is_nan = isinstance(value, float) and math.isnan(value)
        field, number = fields.get(stem), math.nan if is_nan else _number(value)
        name = _STATISTICS.get(statistic, "" if not statistic else None)
        if field is None or number is None or name is None:
            continue
        if field.unit.endswith("/s") and stem not in _SPREAD_RATES:
            if name not in {"mean", ""}:
                continue
            name = ""
        figure = LoadFigure(own_name, name, number * field.factor, field.unit, field.definition)
        figures.setdefault(figure.name, figure)
    return tuple(figures.values())


#: Rates that are one for each request, so that their mean is no rate of the run.
_SPREAD_RATES: Final = {
    "output_token_throughput_per_user",
    "llamacpp_tokens_second",
    "llamacpp_prompt_processing_second",
}
_TOOLS: Final[tuple[tuple[set[str], Callable[[Mapping[str, Any]], tuple[LoadRun, ...]]], ...]] = (
    ({"benchmarks", "metadata", "config"}, _guidellm),
    (
        {"request_throughput", "request_latency", "input_config"},
        lambda document: tuple(filter(None, [aiperf_run(document)])),
    ),
    ({"metrics", "root_group"}, _llama_bench),
    (
        {"median_ttft_ms", "median_e2e_latency_ms", "completed"},
        lambda document: (flat_run("SGLang bench_serving", TOOLS["sglang"], document),),
    ),
    (
        {"request_throughput", "completed", "mean_ttft_ms"},
        lambda document: (flat_run("vLLM bench serve", TOOLS["vllm"], document),),
    ),
)


def _find(config: Mapping[str, Any], name: str) -> object:
    """A setting at any place of a configuration."""
    if name in config:
        return config[name]
    parts = (part for value in config.values() for part in (value, *_list(value)[:8]))
    found = (_find(part, name) for part in parts if isinstance(part, dict))
    return next((value for value in found if value is not None), None)


def _known(work: Mapping[str, object]) -> dict[str, object]:
    return {k: v for k, v in work.items() if isinstance(v, str) or _number(v) is not None}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> float | None:
    return None if isinstance(value, str) else number_of(value)
