"""How a run measures: one frozen object, from `[tool.asperf]` keys and command-line options alike.

Both have the same keys, read by the same rules; only the place that a message names differs.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from pytest_asperf.analysis.guards.surroundings import CV_LIMIT
from pytest_asperf.analysis.limit_verdict import parse_percent
from pytest_asperf.config.engines import ENGINES, FOLDER_ENGINES, Engine, level_engines
from pytest_asperf.config.remote_address import REMOTE_ADDRESS
from pytest_asperf.config.roles import ROLES, is_role
from pytest_asperf.config.server_url import URL_RULE
from pytest_asperf.config.table import Rule, list_of, matching, one_of, whole
from pytest_asperf.errors import ConfigError, listing, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Source = Literal["auto", "live", "recorded"]
Scope = Literal["here", "all"]
Inconclusive = Literal["fail", "xfail", "skip"]
ReportFormat = Literal["json", "html", "md", "csv", "bencher", "github-benchmark", "plots"]

#: Where the key of a server is looked for.
API_KEY_VARIABLE: Final = "OPENAI_API_KEY"

#: The nice value of engines: before other work, and still leaving it a share.
NICE: Final = -5
#: The values that a system knows.
_LEAST_NICE, _MOST_NICE = -20, 19
_MOST: Final = 10**9
_WEEK_S: Final = 7 * 24 * 3600
#: TOML has no larger integers.
_MOST_SEED: Final = 2**63 - 1

_text: Final = matching(re.compile(r"[^\0]+"))
_COUNTS: Final = frozenset(
    {"repetitions", "chunks", "max_pairs", "max_seconds", "nice", "seed", "self_check"}
    | {"store_keep"}
)
_UNITS_S: Final = {"s": 1.0, "min": 60.0, "h": 3600.0}
_POSTGRES: Final = re.compile(r"postgres(ql)?(\+psycopg)?://")
_DURATION: Final = re.compile(r"(?P<number>\d{1,7}(\.\d{1,3})?)\s*(?P<unit>s|min|h)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReportTarget:
    """A report to write at the end of the session: a file, or a folder of plots."""

    format: ReportFormat
    path: Path


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line and the configuration file decide for a whole session.

    Attributes:
        hardware: name of a hardware profile, or `auto` for this machine.
        engine: the engine that measures models which name none.
        source: measure, replay recorded numbers, or whichever fits the declared hardware.
        inconclusive: what becomes of a test whose interval straddles its threshold.
        roles: addresses by role of the models that the user named, `default_model` as the target.
        findings_scope: which findings are tried: those about this machine and model, or all.
        chunks: chunks of the corpus that PPL is taken over, or None for all of them.
        baseline: build that a gate compares the candidate with.
        candidate: build that a gate judges, None where there is none.
        tolerance: slowdown that a gate accepts, a fraction.
        max_pairs: pairs after which a gate gives up.
        max_seconds: seconds of all its workloads after which a gate begins no further pair.
        max_cv: coefficient of variation of a throughput's runs, a fraction, above which a limit
            that the spread reaches is not decided.
        seed: of every random order, None for one drawn and logged.
        self_check: gates of a machine of which one is preceded by a gate of the baseline against
            itself, None for none.
        nice: the nice value that engines take as far as the system allows it, 0 for none; one that
            the user gave to this process stays.
        call_timeout_s: seconds after which a call to the engine, or its start, is given up.
        wait: seconds after which waiting for another measurement on this machine is given up.
        cache: folder for files that are made once, or None for the platform's own.
        tools: folder of llama.cpp's programs, for the engines that run those.
        url: of the server that the engine `openai` asks.
        api_key_variable: the environment's variable that holds its key.
        remote: llama.cpp RPC server of another machine, for tests that draft there.
        store: path or URL of the history that reports are kept in, None for none.
        store_keep: days after which they are removed from it, None for never.
        machine_timeout: seconds after which a machine of a fleet is given up, None for never.
        findings: a project's own files of findings, beside the shipped ones.
        records: its own files of recorded figures.
    """

    hardware: str = "auto"
    engine: Engine = "llama_cpp"
    source: Source = "auto"
    inconclusive: Inconclusive = "fail"
    default_model: str = "asperf-target"
    roles: Mapping[str, str] = field(default_factory=dict)
    findings_scope: Scope = "here"
    repetitions: int = 10
    chunks: int | None = 40
    baseline: str = "current"
    candidate: str | None = None
    tolerance: float = 0.05
    max_pairs: int = 120
    max_seconds: int = 300
    max_cv: float = CV_LIMIT
    seed: int | None = None
    self_check: int | None = None
    nice: int = NICE
    call_timeout_s: int = 600
    wait: float = 600.0
    cache: Path | None = None
    python: Path = field(default_factory=lambda: Path(sys.executable))
    tools: Path | None = None
    remote: str | None = None
    url: str | None = None
    api_key_variable: str = API_KEY_VARIABLE
    report: tuple[ReportTarget, ...] = ()
    store: str | None = None
    store_keep: int | None = None
    machine_timeout: float | None = None
    findings: tuple[Path, ...] = ()
    records: tuple[Path, ...] = ()

    def updated(self, values: Mapping[str, Any]) -> Settings:
        """These settings with other values; models are named role by role."""
        target = {"target": values["default_model"]} if "default_model" in values else {}
        roles = {**self.roles, **target, **values.get("roles", {})}
        return replace(self, **{**values, "roles": roles})

    def tools_of(self, engine: Engine) -> Path | None:
        """The folder of programs that an engine consists of; None for a library."""
        return self.tools if engine in FOLDER_ENGINES else None

    def url_of(self, engine: Engine) -> str | None:
        """The URL of an engine that is a server which we do not start."""
        return self.url if engine == "openai" else None


def parse_path(value: object, folder: Path) -> Path:
    """A path as written in a file or option, relative ones from `folder`; ValueError otherwise."""
    try:
        return folder / Path(_text(value)).expanduser()
    except RuntimeError as error:  # `~nobody`
        raise ValueError from error


def has_separator(text: str) -> bool:
    """Whether a text is a path with folders, on any platform."""
    return "/" in text or "\\" in text


def is_path(name: str) -> bool:
    """Whether an address without its level is a path and not a model's name."""
    return name.lower().endswith(".gguf") or has_separator(name)


def distinct_names(paths: Iterable[Path]) -> dict[Path, str]:
    """For each path its shortest end that no other one has."""
    every = set(paths)
    return {path: _shortest_end(path, every - {path}) for path in every}


def _shortest_end(path: Path, others: Iterable[Path]) -> str:
    for n in range(1, len(path.parts)):
        end = path.parts[-n:]
        if all(other.parts[-n:] != end for other in others):
            return "/".join(end)
    return str(path)


def split_address(address: str) -> tuple[str, str | None]:
    """Split a model's address into its name or path, and its level as written.

    A path may hold colons of its own (a drive, a blob named by its hash). So a level is split off
    a path only behind `.gguf`, or where it is one.
    """
    head, colon, tail = address.rpartition(":")
    if not colon:
        return address, None
    if is_path(address):
        after_gguf = head.lower().endswith(".gguf") and not is_path(tail)
        if not after_gguf and level_engines(tail) is None:
            return address, None
    return head, tail


def read_word(key: str, text: Any) -> Any:
    """Read digits as the number they would be in TOML, so that both are checked alike."""
    if key not in _COUNTS or not isinstance(text, str):
        return text
    # Python refuses to convert thousands of digits, and a seed has 19 at most.
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 20 else text


def parse_values(
    table: Mapping[str, object], *, where: Callable[[str], str], folder: Path
) -> dict[str, Any]:
    """Check settings value by value, as arguments of `Settings`.

    `where` gives the place of a key for a message (`asperf.toml: chunks`, `--asperf-chunks`).
    """
    rules = setting_rules(folder)
    return {key: rules[key].checked(value, where(key), key) for key, value in table.items()}


def path_rule(folder: Path) -> Rule[Path]:
    """What a key accepts that names a file or folder; relative paths start from `folder`."""
    return Rule(partial(parse_path, folder=folder), "the path of a file or folder")


def _duration(value: object) -> float:
    """Read seconds, plain or with a unit."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError
    match = _DURATION.fullmatch(str(value).strip())
    if match is None:
        raise ValueError
    return float(match["number"]) * _UNITS_S[match["unit"] or "s"]


def _share(accepts: str, most: float, why: str) -> Rule[float]:
    def read(value: object) -> float:
        try:
            share = parse_percent(value, where="")
        except ConfigError as error:
            raise ValueError(f": {error.remedy}") from None
        if not 0 < share <= most:
            raise ValueError
        return share

    return Rule(read, f"a share such as {accepts}", why)


def _address(value: object, folder: Path) -> str:
    name, level = split_address(_text(value))
    if is_role(name):
        raise ValueError(": it is a role, and no model")
    if is_path(name):
        name = str(parse_path(name, folder))
    return name if level is None else f"{name}:{level}"


def _roles(value: object, folder: Path) -> dict[str, str]:
    """Read `[tool.asperf.roles]`, or the `ROLE=ADDRESS` of several options."""
    if not isinstance(value, dict | list):
        raise ValueError
    pairs = [_text(text).partition("=")[::2] for text in value]
    table = value if isinstance(value, dict) else dict(pairs)
    if len(table) < len(value):
        raise ValueError(": a role is named twice")
    for role in table:
        if role not in ROLES:
            raise ValueError(f": unknown role {role!r}{suggest(role, ROLES)}")
    return {role: _address(address, folder) for role, address in table.items()}


def _interpreter(value: object, folder: Path) -> Path:
    name = _text(value)
    # Links are not resolved: a virtual environment is known by the link's own place.
    program = shutil.which(parse_path(name, folder) if has_separator(name) else name)
    if program is None:
        raise ValueError(": no such program")
    return Path(program)


def _tools(value: object, folder: Path) -> Path:
    path = parse_path(value, folder)
    llama = any((path / name).is_file() for name in ("llama-bench", "llama-server"))
    if not llama and not any(f.is_file() and os.access(f, os.X_OK) for f in path.glob("*")):
        raise ValueError(": neither llama-bench nor llama-server is in it, nor any program")
    return path


def _report(value: object, folder: Path) -> ReportTarget:
    name, _, path = _text(value).partition(":")
    for known in get_args(ReportFormat):
        if name == known:
            return ReportTarget(known, parse_path(path, folder))
    raise ValueError(suggest(name, get_args(ReportFormat)))


def _store(value: object, folder: Path) -> str:
    text = _text(value)
    if "://" not in text:
        return str(parse_path(text, folder))
    if not _POSTGRES.match(text):
        raise ValueError(": it is a URL of another kind")
    return text


def _or_all(rule: Rule[int]) -> Rule[int | None]:
    return Rule(
        lambda value: None if value == "all" else rule.read(value), f"{rule.accepts}, or all"
    )


def setting_rules(folder: Path) -> dict[str, Rule[Any]]:
    """What each key of `Settings` accepts; relative paths start from `folder`."""
    path = partial(parse_path, folder=folder)
    build = Rule(_text, "a build: NAME or PATH, then ,key=value")
    files = list_of(path_rule(folder), "a list of paths of TOML files")
    report = Rule(partial(_report, folder=folder), "FORMAT:PATH")
    count, seconds = whole(1, _MOST), whole(1, _WEEK_S)
    duration = Rule(_duration, 'seconds, or text with a unit such as "90s" or "10min"')
    return {
        "hardware": Rule(
            _text,
            "the name of a hardware profile, or auto",
            "the profile gives the limits of this machine",
        ),
        "engine": one_of(ENGINES).because("the engine decides what is measured"),
        "source": one_of(get_args(Source)).because(
            "recorded numbers must never pass for live ones"
        ),
        "inconclusive": one_of(get_args(Inconclusive)).because(
            "it decides what becomes of a test that could not be decided"
        ),
        "default_model": Rule(
            partial(_address, folder=folder),
            "an address: name, name:LEVEL, or a path",
            "tests without a model marker measure this model",
        ),
        "roles": Rule(
            partial(_roles, folder=folder),
            f"ROLE=ADDRESS, or in a configuration file a table of them; a role is one of "
            f"{listing(ROLES)}, and an address names a model",
            "tests measure the models that are named by role",
        ),
        "findings_scope": one_of(get_args(Scope)).because("it decides what is measured"),
        "repetitions": count.because("the interval around a throughput rests on them"),
        "chunks": _or_all(count).because("PPL and its interval rest on them"),
        "baseline": build.because("a gate compares with it"),
        "candidate": build.because("a gate judges it"),
        "tolerance": _share('"5%", above 0 and up to 100 %', 1.0, "a gate accepts up to it"),
        "max_pairs": count.because("a gate gives up after it"),
        "max_seconds": seconds.because("a gate gives up after it"),
        "max_cv": _share('"15%", above 0', math.inf, "limits near noisier runs are not decided"),
        "seed": whole(0, _MOST_SEED).because("the same seed replays the same orders"),
        "self_check": count.because("it shows how often this machine FAILs equal builds"),
        "nice": whole(_LEAST_NICE, _MOST_NICE).because(
            "it decides how much other work has to wait"
        ),
        "call_timeout_s": seconds.because("a hang would hold up every test behind it"),
        "wait": duration.because("a measurement that never ends would hold up every other"),
        "cache": Rule(path, "the path of a folder", "quantised models are kept there"),
        "python": Rule(
            partial(_interpreter, folder=folder),
            "the path of a Python interpreter, or its name on PATH",
            "the engine runs in that interpreter",
        ),
        "findings": files.because("nobody would notice findings that are left out"),
        "records": files.because("findings rest on the figures in them"),
        "remote": REMOTE_ADDRESS.because("a draft runs there"),
        "tools": Rule(
            partial(_tools, folder=folder),
            "the path of a folder that has llama.cpp's programs",
            "llama_tools, llama_server and command run the programs in it",
        ),
        "url": URL_RULE.because("the engine openai asks that server"),
        "api_key_variable": Rule(
            matching(re.compile(r"[A-Za-z_]\w*", re.ASCII)),
            "the name of a variable of the environment",
            "a key belongs neither in a file nor on a command line",
        ),
        "report": list_of(
            report,
            "FORMAT:PATH, or in a configuration file a list of them; "
            f"FORMAT is one of {listing(get_args(ReportFormat))}",
        ).because("a report that cannot be written is noticed only after everything was measured"),
        "store": Rule(
            partial(_store, folder=folder),
            "the path of a file, or postgresql://USER@HOST/DATABASE",
            "what is measured is kept there",
        ),
        "store_keep": Rule(
            whole(1, 10**5).read, "a whole number of days, at least 1", "older sessions are removed"
        ),
        "machine_timeout": duration.because("a slow machine would hold up the whole fleet"),
    }
