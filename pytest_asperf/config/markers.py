"""Markers' arguments, each parsed into one frozen mark.

Every function gets the marker's `args` and `kwargs`, and `where`: test and marker, which a
ConfigError names.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, get_args

from pytest_asperf.config.address import Address
from pytest_asperf.config.engine_settings import EngineSettings, parse_kv_type, parse_settings
from pytest_asperf.config.engines import Engine, parse_engine, spelt_level
from pytest_asperf.config.spec import NGRAM_DRAFT, Rollback
from pytest_asperf.config.table import CheckedTable, Rule, matching, number, one_of, whole
from pytest_asperf.errors import ConfigError, listing, shown

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ModelMark:
    """`model(name, engine=..., **settings)`: the model, its engine, settings over its own."""

    address: Address
    settings: EngineSettings
    engine: Engine | None = None


@dataclass(frozen=True, slots=True)
class QuantMark:
    """`quant(name)`: the quantization of the measured model."""

    level: str


@dataclass(frozen=True, slots=True)
class LadderMark:
    """`quant_ladder(*quants, baseline="F16", chunks=None)`: quantizations against a baseline."""

    levels: tuple[str, ...]  #: a quantization of the test's model, or `name:QUANT` of another one
    baseline: str  #: a quantization of the test's model
    chunks: int | None = None  #: the maximum for PPL, None for the session's number


@dataclass(frozen=True, slots=True)
class KvLadderMark:
    """`kv_ladder(*types, chunks=None)`: types of KV cache, each against F16 and the same weights.

    `types` has the settings that make each type, by its name; `chunks` is as in `LadderMark`.
    """

    types: dict[str, EngineSettings]
    chunks: int | None = None


@dataclass(frozen=True, slots=True)
class HardwareMark:
    """`hardware(*names, ...)`: the machines of a test; others skip it. No name: any machine."""

    names: tuple[str, ...]
    min_memory_gb: float | None = None
    min_cpu_cores: int | None = None
    min_gpu_cores: int | None = None


@dataclass(frozen=True, slots=True)
class SpeculativeMark:
    """`speculative(draft=..., target=..., k=4, ...)`: a `Pairing`, its models by spec."""

    draft: Address
    target: Address
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
    def addresses(self) -> set[Address]:
        """The model specs among them; a quantization without a model is none."""
        named = {self.model.address} if self.model else set()
        if self.speculative is not None:
            named |= {self.speculative.draft, self.speculative.target}
        rungs = self.ladder.levels if self.ladder else ()
        return named | {Address.of(rung) for rung in rungs if is_address(rung)}

    @property
    def levels(self) -> dict[str, tuple[str, ...]]:
        """The measured model's quantizations in markers, by marker; model specs are left out."""
        levels: dict[str, tuple[str, ...]] = {}
        if self.quant is not None:
            levels["quant"] = (self.quant.level,)
        if self.ladder is not None:
            rungs = [rung for rung in self.ladder.levels if not is_address(rung)]
            levels["quant_ladder"] = (*rungs, self.ladder.baseline)
        return levels


def is_address(rung: str) -> bool:
    """True if a sweep's entry names a model, and not a quantization of the test's own."""
    address = Address.of(rung)
    return address.level is not None or bool(address.slot)


def _or_none(rule: Rule[Any]) -> Rule[Any]:
    return Rule(lambda value: None if value is None else rule.read(value), rule.accepts)


_string: Final = matching(re.compile(r".+", re.DOTALL))
_ADDRESS: Final = Rule(lambda value: Address.of(_string(value)), "a model spec, as a string")
_LEVEL: Final = Rule(_string, "a quantization, as a string")
_KV_TYPE: Final = Rule(_string, "a type of KV cache, as a string")
_PROFILE: Final = Rule(_string, "the name of a hardware profile, as a string")
_CHUNKS: Final = _or_none(whole(2, 10**9))
_LEAST: Final[Mapping[str, Rule[Any]]] = {
    "min_memory_gb": number("a number above 0", usable=lambda gb: gb > 0),
    "min_cpu_cores": whole(1, 10**9),
    "min_gpu_cores": whole(1, 10**9),
}
_SPECULATIVE: Final[Mapping[str, Rule[Any]]] = {
    "draft": Rule(_ADDRESS.read, f"a model spec, or {NGRAM_DRAFT!r}"),
    "target": _ADDRESS,
    "k": whole(1, 64),
    "temperature": number(
        "a number from 0, which is greedy, to 10", usable=lambda temperature: 0 <= temperature <= 10
    ),
    "n_tokens": whole(1, 100_000),
    "rollback": one_of(get_args(Rollback)),
    "prompts": _or_none(Rule(_string, "the path of a JSON file")),
}


def parse_model(args: tuple[Any, ...], kwargs: Mapping[str, Any], *, where: str) -> ModelMark:
    """Read `model(name, engine=..., **settings)`."""
    address, rest = _single("name", _ADDRESS, args, kwargs, where=where)
    engine = parse_engine(rest.pop("engine"), where=where) if "engine" in rest else None
    return ModelMark(address, parse_settings(rest, where=where), engine)


def parse_quant(args: tuple[Any, ...], kwargs: Mapping[str, Any], *, where: str) -> QuantMark:
    """Read `quant(name)`."""
    level, rest = _single("name", _LEVEL, args, kwargs, where=where)
    _arguments(rest, ("name",), where=where)
    return QuantMark(spelt_level(level))


def parse_ladder(args: tuple[Any, ...], kwargs: Mapping[str, Any], *, where: str) -> LadderMark:
    """Read `quant_ladder(*quants, baseline="F16", chunks=None)`, without duplicates."""
    table = _arguments(kwargs, ("baseline", "chunks"), where=where)
    baseline = _LEVEL.checked(kwargs.get("baseline", "F16"), table.at("baseline"), "baseline")
    baseline = spelt_level(baseline)
    named = [_rung(arg, where=where) for arg in args]
    if repeated := [level for level in named if named.count(level) > 1]:
        raise _unusable(f"{repeated[0]} is named twice", "name each quantization once", where=where)
    # The baseline may be named among them: it is in every sweep, and compared with none.
    levels = tuple(level for level in named if level != baseline)
    if not levels:
        raise _unusable(
            f"no quantization other than the baseline {baseline}" if named else "no quantization",
            'name at least one, as in quant_ladder("Q8_0")',
            where=where,
        )
    return LadderMark(levels, baseline, table.get("chunks", _CHUNKS))


def parse_kv_ladder(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], *, where: str
) -> KvLadderMark:
    """Read `kv_ladder(*types, chunks=None)`; the baseline is always F16."""
    table = _arguments(kwargs, ("chunks",), where=where)
    types: dict[str, EngineSettings] = {}
    for arg in args:
        settings = parse_kv_type(_KV_TYPE.checked(arg, where), where=where)
        name = settings.kv_name
        if not name:  # the baseline, which is in every sweep
            continue
        if name in types:
            raise _unusable(f"{name} is named twice", "name each type once", where=where)
        types[name] = settings
    if not types:
        lack = "no type other than the baseline f16" if args else "no type"
        raise _unusable(lack, 'name at least one, as in kv_ladder("q8_0")', where=where)
    return KvLadderMark(types, table.get("chunks", _CHUNKS))


def parse_hardware(args: tuple[Any, ...], kwargs: Mapping[str, Any], *, where: str) -> HardwareMark:
    """Read `hardware(*names, min_memory_gb=..., min_cpu_cores=..., min_gpu_cores=...)`."""
    table = _arguments(kwargs, _LEAST, where=where)
    names = tuple(_PROFILE.checked(arg, where) for arg in args)
    required = [key for key, value in kwargs.items() if value is not None]
    if not names and not required:
        raise _unusable(
            "it has no condition", f"name a profile, or one of {listing(_LEAST)}", where=where
        )
    return HardwareMark(names, **{key: table.need(key, _LEAST[key]) for key in required})


def parse_speculative(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], *, where: str
) -> SpeculativeMark:
    """Read `speculative(draft=..., target=..., k=4, temperature=0, n_tokens=64, ...)`."""
    if args:
        raise _unusable(
            "arguments without a name", "write draft=..., target=..., k=...", where=where
        )
    table = _arguments(kwargs, _SPECULATIVE, where=where)
    for key in ("draft", "target"):
        if key not in kwargs:
            raise _unusable(f"no {key}", f'name it, as in {key}="asperf-{key}:Q8_0"', where=where)
    return SpeculativeMark(**{key: table.need(key, _SPECULATIVE[key]) for key in kwargs})


def _single(
    name: str, rule: Rule[T], args: tuple[Any, ...], kwargs: Mapping[str, Any], *, where: str
) -> tuple[T, dict[str, Any]]:
    """The one argument that may be named or not, and the other keywords."""
    rest = dict(kwargs)
    given = [*args, *([rest.pop(name)] if name in rest else [])]
    if len(given) != 1:
        raise _unusable(f"{len(given)} arguments for {name}", "give exactly one", where=where)
    return rule.checked(given[0], where, name), rest


def _rung(value: object, *, where: str) -> str:
    """Read a quantization, or the spec of another model with one; a slot has its own."""
    text = _LEVEL.checked(value, where)
    if not is_address(text):
        return spelt_level(text)
    address = Address.of(text)
    if address.slot and address.level is None:
        return text
    if not address.name or address.level is None:
        raise _unusable(
            shown(text), 'name another model with its quantization, as in "name:QUANT"', where=where
        )
    return f"{address.name}:{spelt_level(address.level)}"


def _arguments(kwargs: Mapping[str, Any], valid: Collection[str], *, where: str) -> CheckedTable:
    table = CheckedTable(where, kwargs, "argument")
    table.only(valid)
    return table


def _unusable(what: str, remedy: str, *, where: str) -> ConfigError:
    return ConfigError(f"{where}: {what}", remedy=remedy)
