"""The resolved model and context, from llama.cpp's log; and the line with the reason of its end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from .metal_log import metal_facts

#: Since 2026 lines begin with minutes, seconds, milli- and microseconds and a letter for their log
#: level, and those of a router's children with their port. They can begin in the middle of a line
#: of generated text.
LOG_PREFIX: Final = re.compile(r"(?:\[\d{1,6}\] )?\d{1,6}\.\d\d\.\d{3}\.\d{3} [A-Z] ")
_BUFFER: Final = re.compile(
    r"(\S+) (model|KV|RS|compute|output) buffer size += +(\d{1,12}(?:\.\d{1,6})?) MiB"
)
_OFFLOADED: Final = re.compile(r"offloaded (\d{1,6})/(\d{1,6}) layers to GPU")
_INFO: Final = re.compile(r"print_info: (n_layer|n_ctx_train|n_vocab) += (\d{1,9})\b")
_CONTEXT: Final = re.compile(r"llama_context: n_ctx +(?:=) (\d{1,9})")
_ADD_BOS: Final = re.compile(r"tokenizer\.ggml\.add_bos_token +bool += (true|false)")
_CACHE: Final = re.compile(r"K \((\w+)\): +[\d.]+ MiB, V \((\w+)\):")
_NEW_CONTEXT: Final = re.compile(r"constructing llama_context")
#: In words, in those of 2025, and as the switch that it was before.
_FLASH: Final = re.compile(
    r"Flash Attention (?:was auto, set to )?(enabled|disabled|not supported)"
    r"|flash_attn += (enabled|disabled|[01]\b)"
)


def model_counts(lines: Iterable[str]) -> dict[str, int]:
    """Those of `n_layer`, `n_ctx_train` and `n_vocab` that the log of a load has."""
    return {match[1]: int(match[2]) for line in lines if (match := _INFO.search(line))}


def context_length(lines: Sequence[str]) -> int | None:
    """The tokens that fit into the last context; None if the log has no such line."""
    match = _last(_CONTEXT, lines)
    return int(match[1]) if match else None


def adds_bos(lines: Sequence[str]) -> bool | None:
    """True if texts begin with BOS; None if the log has no such line."""
    match = _last(_ADD_BOS, lines)
    return match[1] == "true" if match else None


def buffers_mib(lines: Iterable[str]) -> dict[str, dict[str, float]]:
    """Buffer sizes in MiB by kind and device, as the library reported them."""
    found: dict[str, dict[str, float]] = {}
    for line in lines:
        if match := _BUFFER.search(line):
            device, kind, mib = match.groups()
            kinds = found.setdefault(kind, {})
            kinds[device] = round(kinds.get(device, 0.0) + float(mib), 2)
    return found


def layer_counts(lines: Sequence[str], n_layers: int) -> dict[str, int]:
    """How many layers there are, and how many went to a GPU, the output head counted as one.

    A build with a GPU backend and no GPU logs that it offloaded them all, so a buffer outside the
    CPU's must have been filled.

    Args:
        lines: the log of a load.
        n_layers: layers that the model computes. A GPU also has those of multi-token prediction, so
            the log's own count is used if it has one.
    """
    match = _last(_OFFLOADED, lines)
    weights = buffers_mib(lines).get("model", {})
    is_elsewhere = any(
        mib > 0 and not device.startswith("CPU") and not device.endswith("_Host")
        for device, mib in weights.items()
    )
    return {
        "n_layers": int(match[2]) - 1 if match else n_layers,
        "layers_offloaded": int(match[1]) if match and is_elsewhere else 0,
    }


def flash_attention(lines: Sequence[str]) -> str:
    """`on` or `off` as resolved, or `unknown` if the log has no such line."""
    match = _last(_FLASH, lines)
    if match is None:
        return "unknown"
    return "on" if {"enabled", "1"} & set(match.groups()) else "off"


def cache_types(lines: Sequence[str]) -> tuple[str, str] | tuple[None, None]:
    """The types of the K and V caches, if the log has them.

    A context for sliding windows has two caches, and one with an indexer has its cache in addition:
    types that differ between them are joined by `+`. If there are several contexts, the last one
    counts.
    """
    found: list[tuple[str, ...]] = []
    for line in lines:
        if _NEW_CONTEXT.search(line):
            found = []
        elif match := _CACHE.search(line):
            found.append(match.groups())
    if not found:
        return None, None
    type_k, type_v = ("+".join(dict.fromkeys(types)) for types in zip(*found, strict=True))
    return type_k, type_v


def memory_bytes(
    weights_mib: Mapping[str, Mapping[str, float]], context_mib: Mapping[str, Mapping[str, float]]
) -> dict[str, int]:
    """The bytes of weights, KV cache and compute buffers on all devices, by kind and device."""

    def nbytes(mib: Mapping[str, Mapping[str, float]], *kinds: str) -> int:
        return round(sum(sum(mib.get(kind, {}).values()) for kind in kinds) * 2**20)

    return {
        "weights": nbytes(weights_mib, "model"),
        "kv": nbytes(context_mib, "KV", "RS"),
        "compute": nbytes(context_mib, "compute", "output"),
    }


def context_facts(
    lines: Sequence[str], settings: Mapping[str, Any], weights_mib: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The log's facts of a context, otherwise cache types as they were set.

    The weights' buffers are those of the same log, or given.
    """
    type_k, type_v = cache_types(lines)
    buffers = buffers_mib(lines)
    metal = metal_facts(lines)
    return {
        "type_k": type_k or settings.get("type_k", "f16"),
        "type_v": type_v or settings.get("type_v", "f16"),
        "flash_attn": flash_attention(lines),
        "buffers_mib": buffers,
        "memory_bytes": memory_bytes(buffers if weights_mib is None else weights_mib, buffers),
        **({"metal": metal} if metal else {}),
    }


def _last(pattern: re.Pattern[str], lines: Sequence[str]) -> re.Match[str] | None:
    matches: Iterable[Any] = (pattern.search(line) for line in reversed(lines))
    return next((match for match in matches if match), None)


#: Lines that name the reason by themselves: the last words of libraries, languages and drivers.
_REASON: Final = re.compile(
    r"GGML_(?:ASSERT|ABORT)|\bwhat\(\):|\b(?:CUDA|HIP|MUSA|SYCL|Vulkan|Metal|MTL\w*) error: "
    r"|\bassert\w*\b.*\bfail|\bout of memory\b|\bbad_alloc\b|\bpanicked at\b|\buncaught\b"
    r"|\bFatal Python error\b|\bSanitizer:|\bruntime error: |\bcommand buffer\b.*\bfail"
    r"|\bfailed to allocate\b",
    re.IGNORECASE,
)
#: A message with its place in a source file, as ggml_abort prints it.
_PLACE: Final = re.compile(r"\.(?:c|cc|cpp|cu|cuh|h|hpp|m|mm|metal|rs|swift):\d+: ")
_END: Final = re.compile(r"\bterminat(?:e called|ing)\b|\babort(?:ed|ing)?\b", re.IGNORECASE)
_ERROR: Final = re.compile(r"\b(?:\w*error|fatal|failed|failure|\w*exception)\b", re.IGNORECASE)
_KINDS: Final = (_REASON, _PLACE, _END, _ERROR)
#: A line of a backtrace names functions such as ggml_abort; `0 errors` names none.
_NOTHING: Final = re.compile(
    r"^\s*#\d+ |\[0x[0-9a-f]+\]|\b(?:no|0|without) (?:error|fail)|error\w*\s*[=:]\s*(?:0|none)\b",
    re.IGNORECASE,
)
#: Lines after which a mere mention of an error is no longer about the end.
_NEAR: Final = 200


class LastWords:
    """The last of a log's lines that give most clearly the reason why the process ended."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all lines."""
        self._line, self._kind, self._n_since = "", len(_KINDS), 0

    def add(self, line: str) -> None:
        """Parse the next line."""
        self._n_since += 1
        if _NOTHING.search(line):
            return
        kind = next((i for i, said in enumerate(_KINDS) if said.search(line)), len(_KINDS))
        if kind < len(_KINDS) and (kind <= self._kind or not self.text):
            self._line, self._kind, self._n_since = line.strip(), kind, 0

    @property
    def text(self) -> str:
        """That line; empty if there is none."""
        is_far = _KINDS[self._kind : self._kind + 1] == (_ERROR,) and self._n_since > _NEAR
        return "" if is_far else self._line
