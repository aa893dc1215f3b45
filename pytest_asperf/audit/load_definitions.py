"""The definitions of each load generator's figures, read from its source.

Two figures are comparable if their definitions are equal. The first block is of ours
(`analysis.serving_metrics`); a definition with `differs` is another quantity under the same name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Definition:
    """A quantity by our name: what it is, and what differs from ours; empty if nothing does."""

    quantity: str
    text: str
    differs: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """One of a tool's figures: what it is, our unit, and the factor to it."""

    definition: Definition
    unit: str = "ms"
    factor: float = 1.0


_ITL = Definition("ITL", "gaps between chunks with output, of all requests")
_TPOT = Definition("TPOT", "(last - first chunk with output) / (n - 1)")
_USER_RATE = Definition("user rate", "1 / TPOT")
_OUTPUT_RATE = Definition("output rate", "output tokens of complete replies / duration")
_REQUESTS = Definition("request throughput", "complete replies / duration")
_GOODPUT = Definition("goodput", "replies within every limit / duration")

_BEGUN: Final = "the opening of a connection counts, ours begins when it is open"
_TTFT = Definition("TTFT", "request begun to first chunk with output", _BEGUN)
_TTFT_CHOICES = Definition(
    "TTFT", "request begun to first chunk with choices",
    "a first chunk that holds a role and no token counts, and the opening of a connection",
)  # fmt: skip
_TTFT_EVENT = Definition(
    "TTFT", "request begun to first event, in whole ms",
    "any event counts, with or without a token, on a clock of 1 ms",
)  # fmt: skip
_ITL_CHOICES = Definition(
    "ITL", "gaps between chunks with choices, of all requests",
    "a chunk without a token makes a gap: the role at the beginning, the reason at the end",
)  # fmt: skip
_TPOT_CHOICES = Definition(
    "TPOT", "(last - first chunk with choices) / (n - 1)",
    "the time of a role chunk before the first token, and of an empty last one, counts",
)  # fmt: skip
_TPOT_DONE = Definition(
    "TPOT", "(end of stream - first chunk with output) / (n - 1)",
    "time after the last token counts, and n is the number asked for where usage is not sent",
)  # fmt: skip
_E2E = Definition("E2E", "request begun to last chunk with output", _BEGUN)
_E2E_CHOICES = Definition(
    "E2E", "request begun to last chunk with choices",
    "an empty last chunk and the opening of a connection count",
)  # fmt: skip
_E2E_DONE = Definition("E2E", "request begun to end of stream", "time after the last token counts")
_E2E_QUEUED = Definition(
    "E2E from schedule", "intended time to end of stream", "time after the last token counts"
)
_E2E_PER_TOKEN = Definition(
    "E2E per token", "(last chunk with output - request begun) / n",
    "this is called TPOT there, and TTFT is in it",
)  # fmt: skip
_RATE_EVENT = Definition(
    "user rate", "n / (end - first event)",
    "n tokens are divided by the time of n - 1, of any event, on a clock of 1 ms",
)  # fmt: skip
_PP_EVENT = Definition(
    "prompt rate", "prompt tokens / TTFT",
    "queue, template and the first token count as time of the prompt",
)  # fmt: skip
_RATES_WEIGHTED = Definition(
    "output rate", "mean over time of the rate of output",
    "a mean over the run's own time, not tokens over the duration",
)  # fmt: skip
_REQUESTS_WEIGHTED = Definition(
    "request throughput", "mean over time of the rate of replies",
    "a mean over the run's own time, not replies over the duration",
)  # fmt: skip

_PER_S: Final = "tok/s"
_REQ_PER_S: Final = "requests/s"

#: vLLM `bench serve` (vllm/benchmarks/serve.py, lib/endpoint_request_func.py).
VLLM: Mapping[str, Field] = {
    "ttft": Field(_TTFT_CHOICES),
    "tpot": Field(_TPOT_CHOICES),
    "itl": Field(_ITL_CHOICES),
    "e2el": Field(_E2E_CHOICES),
    "output_throughput": Field(_OUTPUT_RATE, _PER_S),
    "request_throughput": Field(_REQUESTS, _REQ_PER_S),
    "request_goodput": Field(
        Definition(
            "goodput",
            "replies within every limit / duration, TPOT of one token is 0",
            "a reply of one token meets every limit on TPOT",
        ),
        _REQ_PER_S,
    ),
}
#: SGLang (python/sglang/bench_serving.py).
SGLANG: Mapping[str, Field] = {
    "ttft": Field(_TTFT),
    "tpot": Field(_TPOT_DONE),
    "itl": Field(_ITL),
    "e2e_latency": Field(_E2E_DONE),
    "output_throughput": Field(_OUTPUT_RATE, _PER_S),
    "request_throughput": Field(_REQUESTS, _REQ_PER_S),
}
#: GuideLLM 0.8 (guidellm/schemas/base/request_stats.py).
GUIDELLM: Mapping[str, Field] = {
    "time_to_first_token_ms": Field(_TTFT),
    "inter_token_latency_ms": Field(_TPOT),
    "time_per_output_token_ms": Field(_E2E_PER_TOKEN),
    "request_latency": Field(_E2E_DONE, factor=1e3),
    "request_scheduled_latency": Field(_E2E_QUEUED, factor=1e3),
    "output_tokens_per_second": Field(_RATES_WEIGHTED, _PER_S),
    "requests_per_second": Field(_REQUESTS_WEIGHTED, _REQ_PER_S),
}
#: AIPerf 0.13 (aiperf/metrics/types).
AIPERF: Mapping[str, Field] = {
    "time_to_first_token": Field(_TTFT),
    "inter_token_latency": Field(_TPOT),
    "inter_chunk_latency": Field(_ITL),
    "request_latency": Field(_E2E),
    "output_token_throughput": Field(_OUTPUT_RATE, _PER_S),
    "output_token_throughput_per_user": Field(_USER_RATE, _PER_S),
    "request_throughput": Field(_REQUESTS, _REQ_PER_S),
    "goodput": Field(_GOODPUT, _REQ_PER_S),
}
#: llama.cpp's tools/server/bench/script.js, the summary that k6 exports.
LLAMA_BENCH: Mapping[str, Field] = {
    "llamacpp_emit_first_token_second": Field(_TTFT_EVENT, factor=1e3),
    "llamacpp_tokens_second": Field(_RATE_EVENT, _PER_S),
    "llamacpp_prompt_processing_second": Field(_PP_EVENT, _PER_S),
}
