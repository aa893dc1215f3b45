"""The rules of settings: the values that an option or a key accepts."""

import math
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeVar, get_args

from pytest_asperf.analysis.limit_verdict import parse_tolerance
from pytest_asperf.config.address import (
    REMOTE_ADDRESS,
    SLOTS,
    URL_RULE,
    Address,
    has_separator,
    parse_path,
)
from pytest_asperf.config.engines import ENGINES
from pytest_asperf.config.table import Rule, list_of, matching, one_of, whole
from pytest_asperf.errors import ConfigError, listing, suggest

T = TypeVar("T")
Source = Literal["auto", "live", "recorded"]
Scope = Literal["here", "all"]
Inconclusive = Literal["fail", "xfail", "skip"]
ReportFormat = Literal["json", "html", "md", "csv", "bencher", "github-benchmark"]

_MOST: Final = 10**9
_WEEK_S: Final = 7 * 24 * 3600
#: TOML has no larger integers.
_MOST_SEED: Final = 2**63 - 1
#: The nice values of a system.
_LEAST_NICE, _MOST_NICE = -20, 19
_UNITS_S: Final = {"s": 1.0, "min": 60.0, "h": 3600.0}
_POSTGRES: Final = re.compile(r"postgres(ql)?(\+psycopg)?://")
_DURATION: Final = re.compile(r"(?P<number>\d{1,7}(\.\d{1,3})?)\s*(?P<unit>s|min|h)?", re.ASCII)
_FORMATS: Final = get_args(ReportFormat)
_text: Final = matching(re.compile(r"[^\0]+"))


class ReportTarget(NamedTuple):
    """A report to write."""

    format: ReportFormat
    path: Path

    @property
    def is_terminal(self) -> bool:
        """True if it is written to the terminal, which commands call `-`."""
        return self.path == Path("-")


def _duration(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError
    match = _DURATION.fullmatch(str(value).strip())
    if match is None:
        raise ValueError
    return float(match["number"]) * _UNITS_S[match["unit"] or "s"]


def _share(value: object, *, most: float) -> float:
    try:
        share = parse_tolerance(value, where="")
    except ConfigError as error:
        raise ValueError(f": {error.remedy}") from None
    if share > most:
        raise ValueError
    return share


def _address(value: object, folder: Path) -> Address:
    address = Address.of(_text(value))
    if address.slot:
        raise ValueError(": it is a model slot, and no model")
    return address.anchored(folder)


def _slots(value: object, folder: Path) -> dict[str, Address]:
    if not isinstance(value, dict | list):
        raise ValueError
    pairs = [_text(text).partition("=")[::2] for text in value]
    table = value if isinstance(value, dict) else dict(pairs)
    if len(table) < len(value):
        raise ValueError(": a model slot is named twice")
    for slot in table:
        if slot not in SLOTS:
            raise ValueError(f": unknown model slot {slot!r}{suggest(slot, SLOTS)}")
    return {slot: _address(address, folder) for slot, address in table.items()}


def _interpreter(value: object, folder: Path) -> Path:
    name = _text(value)
    # Links are not resolved: a virtual environment is identified by the link's own place.
    program = shutil.which(parse_path(name, folder) if has_separator(name) else name)
    if program is None:
        raise ValueError(": no such program")
    return Path(program)


def _tools(value: object, folder: Path) -> Path:
    path = parse_path(value, folder)
    # A release has its binaries at the top, in bin, or in build/bin of its only folder.
    for place in (path, path / "bin", path / "build" / "bin", *path.glob("llama-b*")):
        if any((place / name).is_file() for name in ("llama-bench", "llama-server")):
            return place
    # A wheel's libraries are not marked as programs.
    has_library = any((path / name).is_file() for name in ("libllama.so", "libllama.dylib"))
    if not has_library and not any(f.is_file() and os.access(f, os.X_OK) for f in path.glob("*")):
        raise ValueError(
            ": neither llama-bench nor llama-server nor libllama is in it, nor any program"
        )
    return path


def _report(value: object, folder: Path) -> ReportTarget:
    name, _, path = _text(value).partition(":")
    for known in _FORMATS:
        if name == known:
            return ReportTarget(known, parse_path(path, folder))
    raise ValueError(suggest(name, _FORMATS))


def _store(value: object, folder: Path) -> str:
    text = _text(value)
    if "://" not in text:
        return str(parse_path(text, folder))
    if not _POSTGRES.match(text):
        raise ValueError(": it is a URL of another kind")
    return text


class Rules:
    """The rules that settings are declared with; relative paths start from `folder`."""

    count = whole(1, _MOST)
    count_or_all = Rule(
        lambda value: None if value == "all" else Rules.count.read(value),
        f"{count.accepts}, or all",
        is_whole=True,
    )
    seconds = whole(1, _WEEK_S)
    days = whole(1, 10**5)
    seed = whole(0, _MOST_SEED)
    nice = whole(_LEAST_NICE, _MOST_NICE)
    tolerance = Rule(partial(_share, most=1.0), 'a share such as "5%", above 0 and up to 100 %')
    max_cv = Rule(partial(_share, most=math.inf), 'a share such as "15%", above 0')
    duration = Rule(_duration, 'seconds, or text with a unit such as "90s" or "10min"')
    engine = one_of(ENGINES)
    remote = REMOTE_ADDRESS
    url = URL_RULE
    build = Rule(_text, "a build: NAME or PATH, then ,key=value")
    hardware = Rule(_text, "the name of a hardware profile, or auto")
    source = one_of(get_args(Source))
    scope = one_of(get_args(Scope))
    inconclusive = one_of(get_args(Inconclusive))
    variable = Rule(
        matching(re.compile(r"[A-Za-z_]\w*", re.ASCII)), "the name of a variable of the environment"
    )

    def __init__(self, folder: Path) -> None:
        def of(read: Callable[..., T], accepts: str) -> Rule[T]:
            return Rule(partial(read, folder=folder), accepts)

        self.path = of(parse_path, "the path of a file or folder")
        self.folder_path = replace(self.path, accepts="the path of a folder")
        self.files = list_of(self.path, "a list of paths of TOML files")
        self.address = of(_address, "a model spec: name, name:QUANT, or a path")
        written = "SLOT=MODEL, or in a configuration file a table of them; a slot is one of "
        self.slots = of(_slots, written + listing(SLOTS))
        self.interpreter = of(_interpreter, "the path of a Python interpreter, or its name on PATH")
        self.tools = of(_tools, "the path of a folder with llama.cpp's binaries")
        written = "FORMAT:PATH, or in a configuration file a list of them; FORMAT is one of "
        self.reports = list_of(of(_report, "FORMAT:PATH"), written + listing(_FORMATS))
        self.store = of(_store, "the path of a file, or postgresql://USER@HOST/DATABASE")
