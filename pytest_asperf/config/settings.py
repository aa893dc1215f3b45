"""How a run measures: every setting, each declared once.

A declaration has the default, the rule, and the words of a setting. pytest's options, flags of
`asperf`, keys of `[tool.asperf]`, comments of `asperf init` and pages of the documentation all come
from it. This module is loaded in every pytest run of its user's environment, so it imports nothing
of asperf: rules are found by name when a value is read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, dataclass_transform

if TYPE_CHECKING:
    from pytest_asperf.config.address import Address
    from pytest_asperf.config.engines import Engine
    from pytest_asperf.config.setting_rules import Inconclusive, ReportTarget, Scope, Source
    from pytest_asperf.config.table import Rule

#: The nice value of engines: before other work, and still leaving it a share.
NICE: Final = -5
#: Mean KLD of a candidate's distributions from the baseline's that is accepted, nats
#: (docs/benchmarks.md).
MOST_KLD: Final = 0.01
_PREFIX: Final = "--asperf-"
_SHIPPED: Final = "asperf-target"


class Setting(NamedTuple):
    """The declaration of a setting, without its name, type and default."""

    rule: str  #: the name of its rule in `setting_rules.Rules`
    help: str  #: its meaning, in a line
    metavar: str = ""  #: its value's name; empty if only a configuration file has it
    why: str = ""  #: why its value matters, for errors
    word: str = ""  #: its name in options, if that is not its key
    shown: str = ""  #: its default as a user types it, if the value does not show it
    is_list: bool = False  #: whether its option may be repeated


def setting(*, default: Any, rule: str, text: str, **words: Any) -> Any:
    """Declare a setting; a default that is a function is called for each session."""
    declared = {"setting": Setting(rule, text, **words)}
    if callable(default):
        return field(default_factory=default, metadata=declared)
    return field(default=default, metadata=declared)


def _shipped() -> Address:
    from pytest_asperf.config.address import Address  # noqa: PLC0415  # as the docstring says

    return Address(_SHIPPED)


@dataclass_transform(frozen_default=True, field_specifiers=(setting,))
def _late_dataclass(cls: type[Any]) -> type[Any]:
    """The class as it is: it becomes a dataclass when its first object is made.

    That costs 2 ms, which a pytest run that measures nothing does not need.
    """
    return cls


@_late_dataclass
class Settings:
    """The settings of a whole session."""

    hardware: str = setting(
        default="auto",
        rule="hardware",
        text="hardware profile to compare numbers with; auto is this machine",
        metavar="NAME|auto",
        why="the profile gives the limits of this machine",
    )
    engine: Engine = setting(
        default="llama_cpp",
        rule="engine",
        text="engine: llama_cpp, llama_tools, mlx, command; or a server: llama_server, "
        "llama_cpp_server, mlx_server, openai",
        metavar="NAME",
    )
    source: Source = setting(
        default="auto",
        rule="source",
        text="measure or replay; auto measures where the profile is this machine",
        metavar="auto|live|recorded",
        why="published figures must never pass for measured ones",
    )
    inconclusive: Inconclusive = setting(
        default="fail",
        rule="inconclusive",
        text="result of a test whose verdict is INCONCLUSIVE",
        metavar="fail|xfail|skip",
    )
    default_model: Address = setting(
        default=_shipped,
        rule="address",
        text="model of tests without a marker: name, name:QUANT or a path",
        metavar="MODEL",
        word="model",
        shown=_SHIPPED,
    )
    slots: Mapping[str, Address] = setting(
        default=dict,
        rule="slots",
        text="model for a slot of the findings, as in target=PATH or draft=NAME:QUANT; repeatable",
        metavar="SLOT=MODEL",
        word="role",
        is_list=True,
    )
    findings_scope: Scope = setting(
        default="here",
        rule="scope",
        text="findings to run: those about this machine and model, or all",
        metavar="here|all",
        word="findings",
    )
    repetitions: int = setting(
        default=10,
        rule="count",
        text="repetitions of a throughput workload",
        metavar="N",
        why="the interval around a throughput rests on them",
    )
    chunks: int | None = setting(
        default=40,
        rule="count_or_all",
        text="chunks for perplexity",
        metavar="N|all",
        why="PPL and its interval rest on them",
    )
    python: Path = setting(
        default=lambda: Path(sys.executable),
        rule="interpreter",
        text="interpreter that the engine runs in",
        metavar="PATH",
        shown="this one",
    )
    tools: Path | None = setting(
        default=None,
        rule="tools",
        text="folder of binaries, for llama_tools, llama_server and command",
        metavar="PATH",
    )
    remote: str | None = setting(
        default=None,
        rule="remote",
        text="llama.cpp RPC server of another machine, for speculation.overhead_on()",
        metavar="HOST:PORT",
    )
    url: str | None = setting(
        default=None,
        rule="url",
        text="server of the engine openai; it must be running",
        metavar="URL",
    )
    api_key_variable: str = setting(
        default="OPENAI_API_KEY",
        rule="variable",
        text="environment variable with the key of the server",
        metavar="NAME",
        why="a key belongs neither in a file nor on a command line",
    )
    baseline: str = setting(
        default="current",
        rule="build",
        text="build that a gate compares with: NAME or PATH[,key=value]",
        metavar="BUILD",
    )
    candidate: str | None = setting(
        default=None, rule="build", text="build that a gate judges", metavar="BUILD"
    )
    tolerance: float = setting(
        default=0.05,
        rule="tolerance",
        text="slowdown that a gate accepts; a FAIL shows one near it or above",
        metavar="SHARE",
        shown="5%",
    )
    max_pairs: int = setting(
        default=120,
        rule="count",
        text="pairs of one check after which a gate gives up",
        metavar="N",
    )
    max_seconds: int = setting(
        default=600,
        rule="seconds",
        text="seconds after which a gate, all checks together, or a comparison in pairs gives up",
        metavar="S",
    )
    max_cv: float = setting(
        default=0.15,
        rule="max_cv",
        text="if the CV (SD / mean) of runs is above this, a limit within two SD is INCONCLUSIVE",
        metavar="SHARE",
        shown="15%",
    )
    seed: int | None = setting(
        default=None,
        rule="seed",
        text="seed of every random order",
        metavar="N",
        why="the same seed replays the same orders",
        shown="drawn, and printed",
    )
    self_check: int | None = setting(
        default=None,
        rule="count",
        text="compare the baseline with itself before every K-th gate of this machine",
        metavar="K",
        why="it shows how often this machine FAILs equal builds",
        shown="never",
    )
    nice: int = setting(
        default=NICE,
        rule="nice",
        text="nice value of engines: -20 puts other work last, 0 leaves it alone",
        metavar="N",
        why="it decides how much other work has to wait",
    )
    wait: float = setting(
        default=600.0,
        rule="duration",
        text="longest wait for another measurement on this machine, such as 90s",
        metavar="S",
        why="a measurement that never ends would block every other",
        shown="10min",
    )
    report: tuple[ReportTarget, ...] = setting(
        default=(),
        rule="reports",
        text="write a report, such as html:FILE, json:FILE, md:FILE or csv:FILE; repeatable",
        metavar="FORMAT:PATH",
        is_list=True,
    )
    store: str | None = setting(
        default=None,
        rule="store",
        text="history that keeps the reports: an SQLite file, or postgresql://USER@HOST/DATABASE",
        metavar="PATH|URL",
    )
    store_keep: int | None = setting(
        default=None,
        rule="days",
        text="days after which sessions are removed, except those that a state is based on",
        metavar="DAYS",
        shown="never",
    )
    machine_timeout: float | None = setting(
        default=None,
        rule="duration",
        text="longest time of one of several machines, such as 30min",
        metavar="S",
        why="a slow machine would block all others",
        shown="no limit",
    )
    cache: Path | None = setting(
        default=None,
        rule="folder_path",
        text="folder of model files and builds; it overrides the environment's `ASPERF_CACHE`",
        shown="your user cache folder",
    )
    call_timeout_s: int = setting(
        default=600,
        rule="seconds",
        text="seconds after which a call to the engine, or its start, is given up",
        why="a hang would block every measurement behind it",
    )
    findings: tuple[Path, ...] = setting(
        default=(),
        rule="files",
        text="files of your own findings, in addition to the shipped ones",
        why="nobody would notice findings that are left out",
    )
    published_figures: tuple[Path, ...] = setting(
        default=(), rule="files", text="files of your own published figures"
    )

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """An object, of a dataclass from the first one on."""
        if not is_dataclass(cls):
            dataclass(frozen=True)(cls)
        return super().__new__(cls)

    def tools_of(self, engine: Engine) -> Path | None:
        """The folder of binaries that an engine consists of; None for a library."""
        from pytest_asperf.config.engines import FOLDER_ENGINES  # noqa: PLC0415

        return self.tools if engine in FOLDER_ENGINES else None

    def url_of(self, engine: Engine) -> str | None:
        """The URL of an engine that is a server which we do not start."""
        return self.url if engine == "openai" else None

    def updated(self, values: Mapping[str, Any]) -> Settings:
        """These settings with other values; models are named slot by slot."""
        target = {"target": values["default_model"]} if "default_model" in values else {}
        slots = {**self.slots, **target, **values.get("slots", {})}
        return replace(self, **{**values, "slots": slots})


_FIELDS: Final = {key: one for key, one in vars(Settings).items() if isinstance(one, Field)}
_DEFAULTS: Final = {key: one.default for key, one in _FIELDS.items()}
#: Each setting by its key.
DECLARED: Final[Mapping[str, Setting]] = {
    key: one.metadata["setting"] for key, one in _FIELDS.items()
}


def flag(key: str, prefix: str = "--") -> str:
    """The option of a setting."""
    return prefix + (DECLARED[key].word or key).replace("_", "-")


def session_option(key: str) -> str:
    """The option of a setting in a session of pytest."""
    return flag(key, _PREFIX)


def in_file(key: str, value: str) -> str:
    """A setting as an advice names it if no option changes it."""
    return f"{f'{key} = {value}' if value else key} in [tool.asperf]"


def named_in_session(key: str, value: str) -> str:
    """A setting as an advice in a session of pytest names it."""
    option = session_option(key)
    if OPTIONS.get(option) != key:
        return in_file(key, value)
    separator = " " if DECLARED[key].is_list else "="
    marker = f', or @pytest.mark.model("{value or "NAME"}")' if key == "default_model" else ""
    return (f"{option}{separator}{value}" if value else option) + marker


#: The keys of settings that have options, by pytest's option.
OPTIONS: Final = {session_option(key): key for key, one in DECLARED.items() if one.metavar}


def help_text(key: str) -> str:
    """The effect of a setting, with its default."""
    default = default_text(key)
    return DECLARED[key].help + (f" (default: {default})" if default else "")


def default_text(key: str) -> str:
    """The default as a user writes it; empty if there is none."""
    value = _DEFAULTS[key]
    return DECLARED[key].shown or (str(value) if isinstance(value, str | int) else "")


def rule_of(key: str, folder: Path) -> Rule[Any]:
    """The values that a setting accepts."""
    from pytest_asperf.config.setting_rules import Rules  # noqa: PLC0415  # as the docstring says

    rule: Rule[Any] = getattr(Rules(folder), DECLARED[key].rule)
    return rule.because(DECLARED[key].why)


def parse_values(
    table: Mapping[str, object], *, where: Callable[[str], str], folder: Path
) -> dict[str, Any]:
    """Check settings value by value, as arguments of `Settings`.

    `where` gives the place of a key for a message (`asperf.toml: chunks`, or an option).
    """
    return {
        key: rule_of(key, folder).checked(value, where(key), key) for key, value in table.items()
    }


def parse_typed(
    table: Mapping[str, object], *, where: Callable[[str], str], folder: Path
) -> dict[str, Any]:
    """Check settings that were typed as options: digits are numbers there, as they are in TOML."""
    given = {
        key: as_number(value) if rule_of(key, folder).is_whole else value
        for key, value in table.items()
        if value is not None
    }
    return parse_values(given, where=where, folder=folder)


def as_number(text: object) -> object:
    """Digits as a number, all other text unchanged."""
    if not isinstance(text, str):
        return text
    # Python cannot convert thousands of digits, and a seed has 19 at most.
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 20 else text
