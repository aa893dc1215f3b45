"""The models a run may name, and the settings it starts from: TOML to specs.

Read from `[tool.asperf]` in pyproject.toml or from asperf.toml in the same folder. Only the text is
checked here, with ConfigError; a missing file fails only the test that uses it, so that no other
test is disturbed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pytest_asperf.config.address import (
    Address,
    distinct_names,
    is_path,
    model_of,
    parse_path,
    paths_of,
)
from pytest_asperf.config.build_sources import (
    Interpreter,
    ServerUrl,
    Source,
    ToolsFolder,
    parse_source,
    parse_table,
    split_build,
)
from pytest_asperf.config.engine_settings import EngineSettings, parse_settings
from pytest_asperf.config.engines import ENGINES, MLX_ENGINES, Engine, parse_engine, parse_level
from pytest_asperf.config.pipeline import parse_pipeline
from pytest_asperf.config.setting_rules import Rules
from pytest_asperf.config.settings import DECLARED, Settings, parse_values
from pytest_asperf.config.spec import Build, ModelRef, ModelSpec, parse_variant
from pytest_asperf.config.table import CheckedTable, Rule, unusable
from pytest_asperf.config.text_file import find_document
from pytest_asperf.errors import ConfigError, UnfitError, listing, printable, shown, suggest

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_SOURCES: Final = ("hf", "gguf", "files")
_MODEL_KEYS: Final = (*_SOURCES, "corpus", "engine", "settings", "phases", "clock")
#: The model that a running server names first, where the user names none.
SERVED: Final = "served"
#: A model of the Hugging Face hub, `owner/name`.
_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Every model that has a name, and the settings of the configuration file."""

    folder: Path  #: the root of the project; relative paths in model specs start here
    models: tuple[ModelSpec, ...]  #: shipped models first, then the project's own
    #: defaults, the configuration file's values over them, and options over both
    settings: Settings
    builds: tuple[Build, ...] = ()
    #: names of models that are given by their paths, by path; otherwise the file's name
    names: Mapping[Path, str] = field(default_factory=dict)

    def check_named(
        self, values: Mapping[str, Any], *, where: Callable[[str], str], engine: Engine | None
    ) -> None:
        """Reject unknown models among the values of settings, whose places `where` gives."""
        if "default_model" in values:
            self.find(values["default_model"], where=where("default_model"), engine=engine)
        for slot, address in values.get("slots", {}).items():
            self.find(address, where=f"{where('slots')}: {slot}", engine=engine)

    def telling_apart(self, addresses: Iterable[str | Address]) -> Catalogue:
        """This catalogue with distinct names for all model specs, of these and earlier ones."""
        return replace(self, names=distinct_names([*self.names, *paths_of(addresses, self.folder)]))

    def find(self, address: str | Address, *, where: str, engine: Engine | None = None) -> ModelRef:
        """The model of a spec, on `engine`, or the model's own, or the session's.

        On MLX a path may be that of a folder, or a hub's `owner/name`.
        """
        address = self.resolved(Address.of(address), where=where)
        if (engine or self.settings.engine) == "openai":
            # Settings read a name with a slash as a path, and it may be the server's own name.
            return ModelRef(_served(str(address).removeprefix(f"{self.folder}/")))
        if address.is_path:
            engine = engine or self.settings.engine
            spec = self._from_path(address.name, engine, where=where)
        else:
            spec = self._named(address.name, where)
        ref = ModelRef(spec.on(engine or spec.engine or self.settings.engine))
        return ref if address.level is None else at_level(ref, address.level, where=where)

    def resolved(self, address: Address, *, where: str, at: bool = False) -> Address:
        """A spec with the model instead of a slot; the slot's own quantization is the default.

        With `at`, a quantization that is named separately, the slot's own is left out.
        """
        if not address.slot:
            return address
        model = model_of(address.slot, self.settings.slots, where=where)
        return model if address.level is None and not at else replace(model, level=address.level)

    def find_build(self, text: str, *, where: str, engine: Engine | None = None) -> Build:
        """The build that `BUILD,key=value,...` means; settings alone are settings over `current`.

        BUILD is `current`, the name of a build, or a text for `parse_source`.
        """
        name, words = split_build(text, where=where)
        pairs = (word.partition("=") for word in words)
        settings = parse_settings(
            {key.strip(): _value(value.strip()) for key, _, value in pairs}, where=where
        )
        engine = engine or self.settings.engine
        tools, url = self.settings.tools_of(engine), self.settings.url_of(engine)
        current: Source = Interpreter(self.settings.python)
        if tools is not None:
            current = ToolsFolder(tools)
        elif url is not None:
            current = ServerUrl(url)
        known = {"current": Build("current", current), **{b.name: b for b in self.builds}}
        build = known.get(name) or Build(
            name, parse_source(name, self.folder, where=where, known=known, engine=engine)
        )
        label = ",".join([build.name, *words])
        return replace(build, name=label, settings=build.settings.merged(settings))

    def _named(self, name: str, where: str) -> ModelSpec:
        names = {spec.name: spec for spec in self.models}
        base, plus, change = name.partition("+")
        if base in names:
            if not plus:
                return names[base]
            return replace(names[base], name=name, variant=parse_variant(change, where=where))
        raise ConfigError(
            f"{where}: unknown model {shown(name)}{suggest(name, names)}",
            remedy=f"use one of {listing(names)}, the path of a .gguf file, or declare the model"
            " in [tool.asperf.models.NAME] of pyproject.toml",
        )

    def _from_path(self, text: str, engine: Engine, *, where: str) -> ModelSpec:
        try:
            path = parse_path(text, self.folder)
        except ValueError:
            raise unusable(where, text, "write the path of a file") from None
        name = self.names.get(path, path.name)
        name = re.sub(r"[^A-Za-z0-9._/-]", "_", name).lstrip(".-")[-64:] or "_"
        if engine in MLX_ENGINES and not text.lower().endswith(".gguf"):
            return ModelSpec(name=name, hf_folder=path, hub_id=_hub_id(text))
        return ModelSpec(name=name, gguf=path)


def _served(address: str) -> ModelSpec:
    """The model that a running server lists by a name of its own, colons and slashes included."""
    is_default = address == str(Settings().default_model)
    return ModelSpec(name=SERVED if is_default else printable(address, 200), engine="openai")


def at_level(ref: ModelRef, level: str, *, where: str) -> ModelRef:
    """A model at the quantization that a marker or a spec requests.

    Raises if the model has no file of that quantization, or the spec already named another one.
    """
    level = parse_level(level, where=where, engine=ref.spec.engine)
    levels = [have for have, _ in ref.spec.files]
    if levels and level not in levels:
        raise UnfitError(
            f"{where}: model {ref.spec.name!r} has no file for quantization {level}",
            why="a model declared by `files` is measured as published; no quantization is "
            "made of another",
            remedy=f"use one of {listing(levels)}, or add {level} to its `files`",
        )
    if ref.level not in {None, level}:
        raise ConfigError(
            f"{where}: quantization {level} is requested, but the model spec is {ref.label}",
            why="only one of the two can be measured",
            remedy="name the quantization once: in the model spec, or by itself",
        )
    return replace(ref, level=level)


def load_catalogue(
    rootdir: Path, shipped: Sequence[ModelSpec], defaults: Settings | None = None
) -> Catalogue:
    """Read the configuration file of a project, if any; `shipped` models are always there."""
    document = find_document(rootdir)
    document.only((*DECLARED, "models", "builds"))
    models = _models(document, rootdir, shipped)
    builds = _builds(document, rootdir)
    given = {key: value for key, value in document.values.items() if key in DECLARED}
    values = parse_values(given, where=document.at, folder=rootdir)
    settings = (defaults or Settings()).updated(values)
    catalogue = Catalogue(rootdir, (*shipped, *models), settings, builds)
    # An option may name another engine later; a script has every quantization.
    catalogue.check_named(values, where=document.at, engine="scripted")
    return catalogue


def _entries(document: CheckedTable, key: str) -> Iterator[tuple[str, CheckedTable]]:
    """The tables of `models` or `builds` by their names."""
    tables = document.inner(key, document.values.get(key, {}), separator=".")
    for name, entry in tables.values.items():
        yield name, tables.inner(name if _NAME.fullmatch(name) else shown(name, 80), entry)


def _models(document: CheckedTable, folder: Path, shipped: Sequence[ModelSpec]) -> list[ModelSpec]:
    models: list[ModelSpec] = []
    for name, table in _entries(document, "models"):
        _check_name(name, shipped=shipped, others=models, where=str(table))
        models.append(_model(name, table, folder))
    return models


def _builds(document: CheckedTable, folder: Path) -> tuple[Build, ...]:
    builds = []
    for name, table in _entries(document, "builds"):
        if not _NAME.fullmatch(name) or name == "current":
            raise unusable(str(table), name, "write another name of A-Z a-z 0-9 . _ -")
        keys = {key: value for key, value in table.values.items() if key != "settings"}
        source = parse_table(keys, folder, where=str(table))
        builds.append(Build(name, source, _engine_settings(table)))
    return tuple(builds)


def _value(text: str) -> object:
    """A setting's value as TOML would read it: a number if it is one, otherwise a word."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _check_name(
    name: str, *, shipped: Sequence[ModelSpec], others: Sequence[ModelSpec], where: str
) -> None:
    if not _NAME.fullmatch(name) or is_path(name):
        raise ConfigError(
            f"{where}: not a usable model name",
            why="names are parts of model specs (name:QUANT) and of file names",
            remedy="use 1 to 64 of A-Z a-z 0-9 . _ - and neither begin with . or -"
            " nor end in .gguf",
        )
    # File systems that ignore case would keep both models' files in one place.
    for spec in (*shipped, *others):
        if spec.name.casefold() == name.casefold():
            kind = "a shipped model" if spec in shipped else "another model here"
            raise ConfigError(
                f"{where}: {spec.name!r} is already the name of {kind}",
                why="one name must mean the same weights everywhere",
                remedy="choose another name",
            )


def _model(name: str, table: CheckedTable, folder: Path) -> ModelSpec:
    table.only(_MODEL_KEYS)
    pipeline = parse_pipeline(table, folder)
    n_sources = len([key for key in _SOURCES if key in table.values])
    if n_sources != 1 and (n_sources or pipeline is None):
        raise ConfigError(
            f"{table}: a model has exactly one of {', '.join(_SOURCES)}",
            remedy="keep `hf` for a Hugging Face folder, `gguf` for one file to quantize from, or"
            " `files` for published files by quantization; a model with `phases` may do without",
        )
    path = Rules(folder).path
    engine = table.values.get("engine", "command" if pipeline else None)
    return ModelSpec(
        name=name,
        hf_folder=table.get("hf", path),
        hub_id=_hub_id(table.values.get("hf")),
        gguf=table.get("gguf", path),
        files=_files(table, path) if "files" in table.values else (),
        engine=parse_engine(engine, where=table.at("engine")) if engine is not None else None,
        settings=_engine_settings(table, without=ENGINES),
        own_settings=_own_settings(table),
        corpus=table.get("corpus", path),
        pipeline=pipeline,
    )


def _hub_id(text: object) -> str | None:
    return text if isinstance(text, str) and _HUB_ID.fullmatch(text) else None


def _files(model: CheckedTable, path: Rule[Path]) -> tuple[tuple[str, Path], ...]:
    table = model.inner("files", model.values["files"])
    files: dict[str, Path] = {}
    for key in table.values:
        level = parse_level(key, where=str(table))
        if level in files:
            raise ConfigError(
                f"{table}: quantization {level} is named twice, in different spellings",
                remedy="keep one of them",
            )
        files[level] = table.need(key, path)
    if not files:
        model.refuse("files", "write at least one QUANT = path")
    return tuple(files.items())


def _engine_settings(table: CheckedTable, *, without: Collection[str] = ()) -> EngineSettings:
    settings = table.inner("settings", table.values.get("settings", {}))
    values = {
        key: value
        for key, value in settings.values.items()
        if key not in without or not isinstance(value, dict)
    }
    return parse_settings(values, where=str(settings), separator=".")


def _own_settings(table: CheckedTable) -> tuple[tuple[Engine, EngineSettings], ...]:
    """A model's settings for single engines: `settings.mlx.kv_bits`."""
    settings = table.inner("settings", table.values.get("settings", {}))
    return tuple(
        (engine, parse_settings(value, where=settings.at(engine), separator="."))
        for engine in ENGINES
        if isinstance(value := settings.values.get(engine), dict)
    )
