"""External programs as a model: their command lines, and the way to read their times.

A pipeline has one phase or several. Each is a program that is run to its end. Its output is read by
regular expressions with named groups, or as JSON lines; `FIELDS` are their names.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.table import (
    BOOLEAN,
    TABLE,
    TEXTS,
    CheckedTable,
    Rule,
    list_of,
    one_of,
    unusable,
)
from pytest_asperf.errors import ConfigError, listing, shown, suggest

_UNITS: Final = ("s", "ms", "us", "ns")
#: The values that a program may print, by the name of a pattern's group or of a key of `json`.
FIELDS: Final = (
    *("prompt_tokens", "prompt_tps", "generated_tokens", "generated_tps"),
    *(f"{of}_{unit}" for of in ("prompt", "generated", "total", "handoff") for unit in _UNITS),
    *("memory_gb", "memory_gib", "memory_mb", "memory_mib"),
)
#: Settings that a command line may use by their names; the others are about asperf.
_SETTINGS: Final = tuple(
    field.name
    for field in fields(EngineSettings)
    if field.name not in {"slow_by", "remote", "parallel", "server_args"}
)
#: The placeholders of a command line.
PLACEHOLDERS: Final = (
    *("prompt", "prompt_file", "n_tokens", "handoff", "model", "tools", "python"),
    *_SETTINGS,
)
_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)\}")
_MAX_PHASES: Final = 8
_KEYS: Final = (
    *("run", "reads", "patterns", "json", "counts_first", "text", "stdin", "proof"),
)  # fmt: skip
_NUMBER: Final = r"\d{1,12}(?:\.\d{1,9})?"
_TOKENS: Final = r"\d{1,9}"
_MLX_FORM: Final = (
    rf"^Prompt: (?P<prompt_tokens>{_TOKENS}) tokens, (?P<prompt_tps>{_NUMBER}) tokens-per-sec",
    rf"^Generation: (?P<generated_tokens>{_TOKENS}) tokens, (?P<generated_tps>{_NUMBER}) ",
)
_BETWEEN_RULES: Final = r"={10}\n(?P<text>.*)\n={10}\nPrompt: "


@dataclass(frozen=True, slots=True)
class Reader:
    """How a program's output is read."""

    #: regular expressions, each searched in every line; the last match counts
    patterns: tuple[str, ...] = ()
    #: of JSON lines: the dotted path of a value, by the field that it is
    keys: tuple[tuple[str, str], ...] = ()
    #: whether `generated_tokens` has the first token too, which the time does not
    counts_first: bool = False
    text: str = ""  #: pattern of the generated text, as the group `text`; empty for all of stdout


#: Readers by the programs with that output. ANE-LM prints mlx_lm's lines, of as many steps as
#: tokens.
READERS: Final[Mapping[str, Reader]] = {
    "mlx_lm": Reader(
        (*_MLX_FORM, rf"^Peak memory: (?P<memory_gb>{_NUMBER}) GB"),
        counts_first=True,
        text=_BETWEEN_RULES,
    ),
    "ane_lm": Reader(_MLX_FORM, text=_BETWEEN_RULES),
    "llama.cpp": Reader(
        (
            rf"prompt eval time = +(?P<prompt_ms>{_NUMBER}) ms / +(?P<prompt_tokens>{_TOKENS}) ",
            rf": +eval time = +(?P<generated_ms>{_NUMBER}) ms / +(?P<generated_tokens>{_TOKENS}) ",
            rf"total time = +(?P<total_ms>{_NUMBER}) ms",
        )
    ),
}


@dataclass(frozen=True, slots=True)
class Phase:
    """One program of a pipeline."""

    run: tuple[str, ...]  #: the program and its arguments, with placeholders
    reader: Reader | None = None  #: how its times are read; None if it prints none
    stdin: bool = False  #: whether the prompt is its standard input
    #: patterns that must match its output, by the fact that they prove, such as `device`
    proof: tuple[tuple[str, str], ...] = ()

    @property
    def placeholders(self) -> set[str]:
        """The names in braces of its command line."""
        return {name for word in self.run for name in _PLACEHOLDER.findall(word)}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Programs that run one after the other for each request."""

    phases: tuple[Phase, ...]
    folder: Path  #: where they run, and where relative paths begin
    #: `program` for the times that they print, `wall` for those of whole processes
    clock: str = "program"

    @property
    def takes_model(self) -> bool:
        """True if a command line names the model's file."""
        return any("model" in phase.placeholders for phase in self.phases)

    def as_json(self, model: Path | None) -> str:
        """The pipeline as its worker reads it, with the file of the model."""
        phases = [asdict(phase) for phase in self.phases]
        described = {"clock": self.clock, "folder": str(self.folder), "phases": phases}
        return json.dumps({**described, "model": str(model) if model else None}, sort_keys=True)


def parse_pipeline(table: CheckedTable, folder: Path) -> Pipeline | None:
    """The pipeline of a model's table; None if it has no `phases`."""
    if "phases" not in table.values:
        if "clock" in table.values:
            table.refuse("clock", "write `phases` too: clock is about the times of programs")
        return None
    entries = table.entries("phases")
    if len(entries) > _MAX_PHASES:
        table.refuse("phases", f"write at most {_MAX_PHASES} phases")
    phases = tuple(
        _phase(table.inner(f"phases[{number}]", entry, separator="."))
        for number, entry in enumerate(entries, 1)
    )
    pipeline = Pipeline(phases, folder, table.choice("clock", ("program", "wall"), "program"))
    _require_whole(pipeline, table)
    return pipeline


def _require_whole(pipeline: Pipeline, table: CheckedTable) -> None:
    """Reject a pipeline that could not be timed."""
    phases, given = pipeline.phases, set[str]()
    for phase in phases:
        given |= phase.placeholders
    first = phases[0]
    if not (first.stdin or first.placeholders & {"prompt", "prompt_file"}):
        table.refuse("phases", "give the first program the prompt: {prompt}, {prompt_file} in "
                     "`run`, or stdin = true")  # fmt: skip
    if "n_tokens" not in phases[-1].placeholders:
        table.refuse(
            "phases", "write {n_tokens} for the last program's number of tokens to generate"
        )
    if len([p for p in phases if "handoff" in p.placeholders]) == 1:
        table.refuse("phases", "write {handoff} in the program that reads that file, too")
    if pipeline.clock == "program" and not all(phase.reader for phase in phases):
        table.refuse("phases", "give each program `reads`, `patterns` or `json` for its times, "
                     'or time whole processes with clock = "wall"')  # fmt: skip


def _phase(table: CheckedTable) -> Phase:
    table.only(_KEYS)
    run = table.need("run", _COMMAND)
    for word in run:
        for name in _PLACEHOLDER.findall(word):
            if name not in PLACEHOLDERS:
                raise ConfigError(
                    f"{table.at('run')}: unknown placeholder {shown('{' + name + '}')}"
                    f"{suggest(name, PLACEHOLDERS)}",
                    why="the program would be given the braces",
                    remedy=f"use one of {listing(PLACEHOLDERS)}, each in braces",
                )
    proof = table.inner("proof", table.values.get("proof", {}), separator=".")
    return Phase(
        run,
        _reader(table),
        table.get("stdin", BOOLEAN) or False,
        tuple((what, proof.need(what, _PATTERN)) for what in proof.values),
    )


def _reader(table: CheckedTable) -> Reader | None:
    """How the times of a phase are read, by one of three keys."""
    ways = [key for key in ("reads", "patterns", "json") if key in table.values]
    if len(ways) > 1:
        table.refuse(ways[1], f"keep {' or '.join(ways)}: each is a way to read the output")
    if ways == ["reads"]:
        return READERS[table.need("reads", one_of(READERS))]
    text = table.get("text", _PATTERN) or ""
    if text and "text" not in re.compile(text).groupindex:
        table.refuse("text", "name the group of the generated text: (?P<text>...)")
    if not ways:
        return Reader(text=text) if text else None
    keys = table.inner("json", table.need("json", TABLE)).values if ways == ["json"] else {}
    patterns = table.need("patterns", _PATTERNS) if ways == ["patterns"] else ()
    named = {*keys, *(name for pattern in patterns for name in re.compile(pattern).groupindex)}
    unknown = sorted(named - {*FIELDS})
    if unknown or not named:
        name = unknown[0] if unknown else "no group"
        raise ConfigError(
            f"{table.at(ways[0])}: {shown(name)} is not a quantity{suggest(name, FIELDS)}",
            why="a name means a quantity and its unit",
            remedy=f"name groups (?P<prompt_ms>...), or keys of json: {listing(FIELDS)}",
        )
    for key, path in keys.items():
        if not isinstance(path, str):
            raise unusable(table.at(key), path, 'write the path of a value, such as "timings.ms"')
    first = table.get("counts_first", BOOLEAN) or False
    return Reader(patterns, tuple(keys.items()), first, text)


def _command(value: object) -> tuple[str, ...]:
    words = TEXTS.read(value)
    if not words or not words[0] or any("\0" in word for word in words):
        raise ValueError
    return words


def _pattern(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f": {error}") from None
    return value


_COMMAND: Final = Rule(_command, "a list of texts: the program and its arguments, without a shell")
_PATTERN: Final[Rule[str]] = Rule(_pattern, "a regular expression")
_PATTERNS: Final[Rule[tuple[str, ...]]] = list_of(_PATTERN, "a list of regular expressions")
