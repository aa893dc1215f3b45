"""Two engines on one model: the quantizations that match, and the differences of their work.

Quantized weights of two engines are never equal: llama.cpp's K-quants have scales of scales and
mixed types, MLX's affine quantizations have a scale and a bias for each group. The bits per weight
can match, and they decide the bytes of a TG step.
"""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Final

from pytest_asperf.config.engines import (
    FLOAT_LEVELS,
    GGUF_ENGINES,
    MLX_ENGINES,
    Engine,
    level_engines,
    mlx_scheme,
    parse_level,
)
from pytest_asperf.errors import ConfigError, UnfitError
from pytest_asperf.measure.results import Provenance
from pytest_asperf.modelfiles.gguf_read import GgufInfo
from pytest_asperf.modelfiles.locate import LocatedModel
from pytest_asperf.modelfiles.mlx_read import MlxInfo
from pytest_asperf.modelfiles.sizes import bits_per_weight

#: Accepted difference of the bits per weight of two quantizations, a fraction.
BITS_WITHIN: Final = 0.1

#: Candidates for a match: quantizations in wide use.
_GGUF: Final = (
    *("Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_0"),
    *("Q3_K_M", "Q3_K_S", "Q2_K"),
)
_MLX: Final = tuple(f"{bits}bit{group}" for bits in (8, 6, 5, 4, 3, 2) for group in ("", "-g32"))
_CANDIDATES: Final[dict[Engine, tuple[str, ...]]] = {
    **dict.fromkeys(GGUF_ENGINES, _GGUF),
    **dict.fromkeys(MLX_ENGINES, _MLX),
}

#: Weights that share a scale, from the block structures in ggml-common.h.
_GROUP: Final[dict[str, int]] = {
    **dict.fromkeys(("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K"), 32),
    **dict.fromkeys(("Q2_K", "Q3_K", "Q6_K"), 16),
}


@dataclass(frozen=True, slots=True)
class Term:
    """One fact, in words for each of two variants, and True if it is equal or near enough."""

    what: str
    sides: tuple[str, str]
    is_matched: bool

    def text(self, names: tuple[str, str]) -> str:
        """Its words, with the names of the variants if they differ."""
        if self.sides[0] == self.sides[1]:
            return f"{self.what} {self.sides[0]}"
        sides = zip(names, self.sides, strict=True)
        return f"{self.what}: {', '.join(f'{name} {side}' for name, side in sides)}"


def matching_level(level: str, engine: Engine, *, where: str) -> str:
    """An engine's quantization that is nearest to another engine's in bits per weight.

    Its own quantizations stay unchanged; ConfigError if it has none within `BITS_WITHIN`.
    """
    level = parse_level(level, where=where)
    known = level_engines(level)
    if known is not None and engine in known[1]:
        return level
    bits = bits_per_weight(level)
    near = _nearest(bits, engine)
    if near is None or abs(math.log(bits_per_weight(near) / bits)) > math.log1p(BITS_WITHIN):
        nearest = f"; {near} has {bits_per_weight(near):.2f}" if near else ""
        raise ConfigError(
            f"{where}: {engine} has no quantization that matches {level} of {bits:.2f} bits per "
            f"weight{nearest}",
            why="on every engine, what a step reads decides how fast it can be",
            remedy="compare at another quantization, such as F16, Q8_0 or Q4_K_M",
            opt_out=_named(engine, near),
        )
    return near


def _nearest(bits: float, engine: Engine) -> str | None:
    """The engine's quantization nearest to a number of bits per weight."""
    return min(
        _CANDIDATES.get(engine, ()),
        key=lambda level: abs(math.log(bits_per_weight(level) / bits)),
        default=None,
    )


def file_bits_per_weight(model: LocatedModel) -> float | None:
    """The bits per weight of a model's file, scales and biases included."""
    info = model.info
    return None if info is None else 8 * sum(t.nbytes for t in info.tensors) / info.n_params


def require_matched_bits(models: tuple[LocatedModel, LocatedModel]) -> None:
    """Reject two files whose bits per weight differ by more than `BITS_WITHIN`."""
    first, second = models
    bits = file_bits_per_weight(first), file_bits_per_weight(second)
    if _are_near(*bits):
        return
    # MLX quantizes every matrix alike, so its file has the bits of its quantization.
    wanted = bits[1] if first.ref.spec.engine in MLX_ENGINES else bits[0]
    near = _nearest(wanted, "mlx") if wanted else None
    raise UnfitError(
        f"{first.ref.title} has {_bits_text(bits[0])} bits per weight in its file and "
        f"{second.ref.title} {_bits_text(bits[1])}: more than {100 * BITS_WITHIN:g} % apart",
        why="the engines would read different amounts for each token, and the faster quantization "
        "would look like the faster engine",
        remedy="compare at another quantization, such as F16, Q8_0 or Q4_K_M",
        opt_out=_named("mlx", near),
    )


def _named(engine: Engine, level: str | None) -> str:
    """How a test compares unmatched facts."""
    return (
        f'name the quantization of each engine, as in throughput("tg128", engine="{engine}", '
        f'quant="{level or "F16"}"); the report marks the bits as not matched'
    )


def terms_of(
    models: tuple[LocatedModel, LocatedModel],
    ran: tuple[Provenance, Provenance],
    *,
    same_tokens: bool,
    source_sha256: str | None,
) -> tuple[Term, ...]:
    """The common and the different facts of two variants.

    The hash is of the folder that both files were made from, None if they were published.
    """
    first, second = map(file_bits_per_weight, models)
    bits = _bits_text(first), _bits_text(second)
    return (
        _source(source_sha256),
        # A quantization that the test names may be farther apart.
        Term("bits per weight", bits, _are_near(first, second)),
        _alike("scheme", *map(_scheme, models)),
        _alike("group", *map(_group, models)),
        _alike("KV", *map(_kv_types, ran)),
        _alike("weights in memory", *map(_memory, ran)),
        _alike("device", *map(_device, ran)),
        _alike("threads", *(str(r.loaded.threads) for r in ran)),
        Term("tokens", ("the same" if same_tokens else "not the same",) * 2, same_tokens),
    )


def _alike(what: str, first: str, second: str) -> Term:
    return Term(what, (first, second), first == second)


def _source(sha256: str | None) -> Term:
    """True if both files were made from the same weights, and not only named alike."""
    if sha256 is None:
        return Term("source weights", ("not known to be the same",) * 2, is_matched=False)
    return Term("source weights", (f"sha256 {sha256[:12]}",) * 2, is_matched=True)


def _scheme(model: LocatedModel) -> str:
    info, level = model.info, model.level
    if level in FLOAT_LEVELS or info is None:
        return level
    if isinstance(info, GgufInfo):
        return f"{level} ({', '.join(_types(info)[:2])})"
    scheme = mlx_scheme(level)
    return f"{level} ({scheme.mode})" if scheme else level


def _group(model: LocatedModel) -> str:
    """How many weights share a scale, of the type that most of the file is in."""
    info = model.info
    if isinstance(info, MlxInfo):
        scheme = mlx_scheme(model.level)
        return str(scheme.group_size) if scheme else "none"
    held = _types(info)[0] if info is not None else "unknown"
    return "none" if held in FLOAT_LEVELS else str(_GROUP.get(held, "unknown"))


def _types(info: GgufInfo) -> list[str]:
    """The types of a file's weights, the most frequent first."""
    held: Counter[str] = Counter()
    for tensor in info.tensors:
        held[tensor.type] += tensor.nbytes
    return [name for name, _ in held.most_common()]


def _memory(ran: Provenance) -> str:
    nbytes, n_params = ran.loaded.size_bytes, ran.loaded.n_params
    return f"{8 * nbytes / n_params:.1f} bits" if nbytes and n_params else "unknown"


def _kv_types(ran: Provenance) -> str:
    return f"{ran.context.type_k}/{ran.context.type_v}" if ran.context else "unknown"


def _device(ran: Provenance) -> str:
    return "GPU" if ran.loaded.layers_offloaded else "CPU"


def _are_near(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return False
    return max(first, second) <= (1 + BITS_WITHIN) * min(first, second)


def _bits_text(bits: float | None) -> str:
    return "an unknown number of" if bits is None else f"{bits:.2f}"
