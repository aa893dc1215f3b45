"""What a test's markers ask for: each marker's arguments to one frozen mark, by a pure function.

Every function takes the marker's `args` and `kwargs` and `where`, the test and marker that a
message names.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, get_args

from pytest_asperf.config.engine_settings import EngineSettings, parse_kv_type, parse_settings
from pytest_asperf.config.engines import parse_engine, parse_level
from pytest_asperf.config.settings import split_address
from pytest_asperf.config.spec import NGRAM_DRAFT, Rollback
from pytest_asperf.errors import ConfigError, listing, shown, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pytest_asperf.config.engines import Engine


@dataclass(frozen=True, slots=True)
class ModelMark:
    """`model(address, engine=..., **settings)`: the model, its engine, settings over its own."""

    address: str
    settings: EngineSettings
    engine: Engine | None = None


@dataclass(frozen=True, slots=True)
class QuantMark:
    """`quant(level)`: the level to measure the model at."""

    level: str


@dataclass(frozen=True, slots=True)
class LadderMark:
    """`quant_ladder(*levels, baseline="F16", chunks=None)`: levels, each against the baseline.

    Attributes:
        levels: a level of the test's model, or `name:LEVEL` of another one.
        baseline: a level of the test's model.
        chunks: the most that PPL is taken over, None for the session's number.
    """

    levels: tuple[str, ...]
    baseline: str
    chunks: int | None = None


@dataclass(frozen=True, slots=True)
class KvLadderMark:
    """`kv_ladder(*types, chunks=None)`: types of KV cache, each against F16 and the same weights.

    Attributes:
        types: the settings that make each type, by its name.
        chunks: the most that PPL is taken over, None for the session's number.
    """

    types: dict[str, EngineSettings]
    chunks: int | None = None


@dataclass(frozen=True, slots=True)
class HardwareMark:
    """`hardware(*names, ...)`: where a test runs; it is skipped elsewhere.

    Attributes:
        names: profiles, any of which will do; none means any hardware.
        min_memory_gb: least memory, in GB.
        min_cpu_cores: least CPU cores of all kinds.
        min_gpu_cores: least GPU cores.
    """

    names: tuple[str, ...]
    min_memory_gb: float | None = None
    min_cpu_cores: int | None = None
    min_gpu_cores: int | None = None


@dataclass(frozen=True, slots=True)
class SpeculativeMark:
    """`speculative(draft=..., target=..., k=4, ...)`: the pair whose speculation is measured.

    Attributes:
        draft: address of the draft, or `ngram` for lookup in the text.
        target: address of the target.
        k: tokens drafted per round.
        temperature: 0 for greedy decoding.
        n_tokens: tokens generated after each prompt.
        rollback: `auto`, or the one way that rejected tokens may be forgotten in.
        prompts: path of a file of prompts, None for the shipped ones.
    """

    draft: str
    target: str
    k: int = 4
    temperature: float = 0.0
    n_tokens: int = 64
    rollback: Rollback = "auto"
    prompts: str | None = None


@dataclass(frozen=True, slots=True)
class Marks:
    """The closest marker of each kind that a test carries, or None."""

    model: ModelMark | None = None
    quant: QuantMark | None = None
    ladder: LadderMark | None = None
    kv_ladder: KvLadderMark | None = None
    hardware: HardwareMark | None = None
    speculative: SpeculativeMark | None = None

    @property
    def addresses(self) -> set[str]:
        """The addresses of models that they name; a level without a model is none."""
        named = {self.model.address} if self.model else set()
        if self.speculative is not None:
            named |= {self.speculative.draft, self.speculative.target}
        levels = (*self.ladder.levels, self.ladder.baseline) if self.ladder else ()
        return named | {level for level in levels if ":" in level}


_LEAST: Final = ("min_memory_gb", "min_cpu_cores", "min_gpu_cores")


def parse_model(args: tuple[Any, ...], kwargs: Mapping[str, Any], *, where: str) -> ModelMark:
    """Read `model(address, engine=..., **settings)`.

    Raises:
        ConfigError: no address, more than one, an unknown engine or setting, or an unusable value.
    """
    address, rest = _single("address", args, kwargs, where=where)
    engine = parse_engine(rest.pop("engine"), where=where) if "engine" in rest else None
    return ModelMark(address, parse_settings(rest, where=where), engine)


def parse_quant(args: tuple[Any, ...], kwargs: Mapping[str, Any], *, where: str) -> QuantMark:
    """Read `quant(level)`.

    Raises:
        ConfigError: no level, more than one, an unknown level or argument.
    """
    level, rest = _single("level", args, kwargs, where=where)
    _refuse_unknown(rest, ("level",), where=where)
    return QuantMark(parse_level(level, where=where))


def parse_ladder(args: tuple[Any, ...], kwargs: Mapping[str, Any], *, where: str) -> LadderMark:
    """Read `quant_ladder(*levels, baseline="F16", chunks=None)`.

    Raises:
        ConfigError: no level, an unknown or repeated one, the baseline among them, an unknown
            argument, or a number of chunks that gives no interval.
    """
    _refuse_unknown(kwargs, ("baseline", "chunks"), where=where)
    baseline = _level(kwargs.get("baseline", "F16"), where=where)
    levels = tuple(_rung(arg, where=where) for arg in args)
    if not levels:
        raise _unusable("no level", 'name at least one, as in quant_ladder("Q8_0")', where=where)
    for position, level in enumerate(levels):
        if level == baseline:
            raise _unusable(
                f"{level} is the baseline too", "leave it out of the levels", where=where
            )
        if level in levels[:position]:
            raise _unusable(f"{level} stands twice", "name each level once", where=where)
    return LadderMark(levels, baseline, _chunks(kwargs, where=where))


def _chunks(kwargs: Mapping[str, Any], *, where: str) -> int | None:
    chunks: object = kwargs.get("chunks")
    if chunks is None or (type(chunks) is int and chunks >= 2):
        return chunks
    remedy = "chunks takes a whole number from 2"
    raise _unusable(f"chunks={shown(chunks)}", remedy, where=where)


def parse_kv_ladder(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], *, where: str
) -> KvLadderMark:
    """Read `kv_ladder(*types, chunks=None)`; the baseline is always F16.

    Raises:
        ConfigError: no type, an unknown or repeated one, the baseline among them, an unknown
            argument, or a number of chunks that gives no interval.
    """
    _refuse_unknown(kwargs, ("chunks",), where=where)
    types: dict[str, EngineSettings] = {}
    for arg in args:
        settings = parse_kv_type(_text(arg, "a type of KV cache", where=where), where=where)
        name = settings.kv_name
        if not name:
            raise _unusable("f16 is the baseline too", "leave it out of the types", where=where)
        if name in types:
            raise _unusable(f"{name} stands twice", "name each type once", where=where)
        types[name] = settings
    if not types:
        raise _unusable("no type", 'name at least one, as in kv_ladder("q8_0")', where=where)
    return KvLadderMark(types, _chunks(kwargs, where=where))


def parse_hardware(args: tuple[Any, ...], kwargs: Mapping[str, Any], *, where: str) -> HardwareMark:
    """Read `hardware(*names, min_memory_gb=..., min_cpu_cores=..., min_gpu_cores=...)`.

    Raises:
        ConfigError: nothing is asked for, an unknown argument or an unusable value.
    """
    _refuse_unknown(kwargs, _LEAST, where=where)
    names = tuple(_text(arg, "the name of a hardware profile", where=where) for arg in args)
    least = {key: value for key, value in kwargs.items() if value is not None}
    if not names and not least:
        raise _unusable(
            "nothing is asked for", f"name a profile, or one of {listing(_LEAST)}", where=where
        )
    for key, value in least.items():
        _check_least(key, value, where=where)
    return HardwareMark(names, **least)


def parse_speculative(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], *, where: str
) -> SpeculativeMark:
    """Read `speculative(draft=..., target=..., k=4, temperature=0, n_tokens=64, ...)`.

    Raises:
        ConfigError: no draft or target, arguments without a name, an unknown argument or an
            unusable value.
    """
    names = tuple(field.name for field in fields(SpeculativeMark))
    if args:
        raise _unusable(
            "arguments without a name", "write draft=..., target=..., k=...", where=where
        )
    _refuse_unknown(kwargs, names, where=where)
    for key in ("draft", "target"):
        if key not in kwargs:
            raise _unusable(f"no {key}", f'name it, as in {key}="asperf-{key}:Q8_0"', where=where)
    for key, value in kwargs.items():
        accepted, ok = _SPECULATIVE[key]
        if not ok(value):
            raise _unusable(f"{key}={shown(value)}", f"{key} takes {accepted}", where=where)
    return SpeculativeMark(**kwargs)


def _is_count(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _is_address(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_temperature(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value <= 10  # type: ignore[operator]  # a number, as just seen


#: By argument of `speculative`, what it takes, and whether a value is that.
_SPECULATIVE: Final[Mapping[str, tuple[str, Callable[[object], bool]]]] = {
    "draft": (f"the address of a model, or {NGRAM_DRAFT!r}", _is_address),
    "target": ("the address of a model", _is_address),
    "k": ("a whole number from 1 to 64", lambda value: _is_count(value, 64)),
    "temperature": ("a number from 0, which is greedy, to 10", _is_temperature),
    "n_tokens": ("a whole number from 1 to 100000", lambda value: _is_count(value, 100_000)),
    "rollback": (
        f"one of {listing(get_args(Rollback))}",
        lambda value: isinstance(value, str) and value in get_args(Rollback),
    ),
    "prompts": (
        "the path of a JSON file",
        lambda value: value is None or (isinstance(value, str) and bool(value)),
    ),
}


def _check_least(key: str, value: object, *, where: str) -> None:
    kinds, accepted = (
        ((int, float), "a number above 0")
        if key == "min_memory_gb"
        else ((int,), "a whole number from 1")
    )
    usable = isinstance(value, kinds) and not isinstance(value, bool)
    if not usable or not 0 < value < math.inf:  # type: ignore[operator]  # a number if usable
        raise _unusable(f"{key}={shown(value)}", f"{key} takes {accepted}", where=where)


def _single(
    name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, where: str
) -> tuple[str, dict[str, Any]]:
    """Return the one argument that may be named or not, and the other keywords."""
    rest = dict(kwargs)
    given = [*args, *([rest.pop(name)] if name in rest else [])]
    if len(given) != 1:
        raise _unusable(f"{len(given)} arguments for {name}", "give exactly one", where=where)
    return _text(given[0], f"the {name}", where=where), rest


def _rung(value: object, *, where: str) -> str:
    """Read a level, or the address of another model at a level."""
    text = _text(value, "a quantisation level", where=where)
    if ":" not in text:
        return parse_level(text, where=where)
    name, level = split_address(text)
    if not name or level is None:
        raise _unusable(
            shown(text), 'name another model with its level, as in "name:LEVEL"', where=where
        )
    return f"{name}:{parse_level(level, where=where)}"


def _level(value: object, *, where: str) -> str:
    return parse_level(_text(value, "a quantisation level", where=where), where=where)


def _text(value: object, meaning: str, *, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise _unusable(shown(value), f"write {meaning} as a string", where=where)
    return value


def _refuse_unknown(kwargs: Collection[str], valid: tuple[str, ...], *, where: str) -> None:
    for key in kwargs:
        if key not in valid:
            raise ConfigError(
                f"{where}: unknown argument {shown(key)}{suggest(key, valid)}",
                why="an argument that is silently ignored asks for something else than was meant",
                remedy=f"use one of {listing(valid)}",
            )


def _unusable(what: str, remedy: str, *, where: str) -> ConfigError:
    return ConfigError(
        f"{where}: {what}", why="the marker decides what the test measures", remedy=remedy
    )
