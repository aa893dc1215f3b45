"""The rules of settings: the values that an option or a key accepts."""

import math
import os
import re
import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, Literal, NamedTuple, get_args

from pytest_asperf.analysis.limit_verdict import parse_percent
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


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that settings are declared with; relative paths start from `folder`."""

    folder: Path
    count: ClassVar[Rule[int]] = whole(1, _MOST)
    seconds: ClassVar[Rule[int]] = whole(1, _WEEK_S)
    days: ClassVar[Rule[int]] = whole(1, 10**5)
    seed: ClassVar[Rule[int]] = whole(0, _MOST_SEED)
    nice: ClassVar[Rule[int]] = whole(_LEAST_NICE, _MOST_NICE)
    engine: ClassVar[Rule[str]] = one_of(ENGINES)
    remote: ClassVar[Rule[str]] = REMOTE_ADDRESS
    url: ClassVar[Rule[str]] = URL_RULE
    build: ClassVar[Rule[str]] = Rule(_text, "a build: NAME or PATH, then ,key=value")
    hardware: ClassVar[Rule[str]] = Rule(_text, "the name of a hardware profile, or auto")
    source: ClassVar[Rule[str]] = one_of(get_args(Source))
    scope: ClassVar[Rule[str]] = one_of(get_args(Scope))
    inconclusive: ClassVar[Rule[str]] = one_of(get_args(Inconclusive))

    @property
    def count_or_all(self) -> Rule[int | None]:
        """A number, or all, which is None."""

        def read(value: object) -> int | None:
            return None if value == "all" else self.count.read(value)

        return Rule(read, f"{self.count.accepts}, or all", is_whole=True)

    @property
    def tolerance(self) -> Rule[float]:
        """A share of more than 0, up to all."""
        accepts = 'a share such as "5%", above 0 and up to 100 %'
        return Rule(partial(_share, most=1.0), accepts)

    @property
    def max_cv(self) -> Rule[float]:
        """A share of more than 0."""
        return Rule(partial(_share, most=math.inf), 'a share such as "15%", above 0')

    @property
    def duration(self) -> Rule[float]:
        """Seconds, plain or with a unit."""
        return Rule(_duration, 'seconds, or text with a unit such as "90s" or "10min"')

    @property
    def variable(self) -> Rule[str]:
        """The name of a variable of the environment."""
        named = matching(re.compile(r"[A-Za-z_]\w*", re.ASCII))
        return Rule(named, "the name of a variable of the environment")

    @property
    def path(self) -> Rule[Path]:
        """A path."""
        return Rule(partial(parse_path, folder=self.folder), "the path of a file or folder")

    @property
    def folder_path(self) -> Rule[Path]:
        """The path of a folder."""
        return replace(self.path, accepts="the path of a folder")

    @property
    def files(self) -> Rule[tuple[Path, ...]]:
        """Several paths of TOML files."""
        return list_of(self.path, "a list of paths of TOML files")

    @property
    def address(self) -> Rule[Address]:
        """The model spec."""
        accepts = "a model spec: name, name:QUANT, or a path"
        return Rule(partial(_address, folder=self.folder), accepts)

    @property
    def slots(self) -> Rule[dict[str, Address]]:
        """Models by their slots: a table, or the typed text."""
        return Rule(
            partial(_slots, folder=self.folder),
            f"SLOT=MODEL, or in a configuration file a table of them; a slot is one of "
            f"{listing(SLOTS)}",
        )

    @property
    def interpreter(self) -> Rule[Path]:
        """A Python interpreter."""
        accepts = "the path of a Python interpreter, or its name on PATH"
        return Rule(partial(_interpreter, folder=self.folder), accepts)

    @property
    def tools(self) -> Rule[Path]:
        """A folder of binaries."""
        accepts = "the path of a folder with llama.cpp's binaries"
        return Rule(partial(_tools, folder=self.folder), accepts)

    @property
    def reports(self) -> Rule[tuple[ReportTarget, ...]]:
        """Several reports to write."""
        target = Rule(partial(_report, folder=self.folder), "FORMAT:PATH")
        accepts = "FORMAT:PATH, or in a configuration file a list of them; FORMAT is one of "
        return list_of(target, accepts + listing(_FORMATS))

    @property
    def store(self) -> Rule[str]:
        """The place of a history."""
        accepts = "the path of a file, or postgresql://USER@HOST/DATABASE"
        return Rule(partial(_store, folder=self.folder), accepts)


def _duration(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError
    match = _DURATION.fullmatch(str(value).strip())
    if match is None:
        raise ValueError
    return float(match["number"]) * _UNITS_S[match["unit"] or "s"]


def _share(value: object, *, most: float) -> float:
    try:
        share = parse_percent(value, where="")
    except ConfigError as error:
        raise ValueError(f": {error.remedy}") from None
    if not 0 < share <= most:
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
