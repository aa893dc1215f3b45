"""Advice names options of what prints it: pytest's in a session, a command's own in its output."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import pytest_asperf
from pytest_asperf.cli import app
from pytest_asperf.config.settings import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(pytest_asperf.__file__).parent
#: A command to type, with the options that are its own.
_PROGRAM = re.compile(
    r"(?<![\w-])(pytest(?= -|$)|asperf [a-z]+|git |cmake|llama-[a-z-]+|(\S+ -m )?pip|xcode-select|"
    r"llama-gguf-split|mlx_lm\.server|systemctl|loginctl)(?P<words>[^;,`]*)"
)
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
#: Rooms whose texts one command prints alone.
_PRINTED_BY = {
    "audit/": "asperf audit",
    "bisect/": "asperf bisect",
    "forecast/": "asperf predict",
    "gate/plan.py": "asperf gate",
    "nightly/": "asperf nightly",
}


#: Other programs' arguments, tests that a user owns, and the pattern of such texts itself.
_NOT_PRINTED = (
    "worker/",
    "findings/",
    "examples/",
    "commands/starter_files.py",
    "commands/command_words.py",
)


def _commands(group: Any, name: str = "asperf") -> Iterator[tuple[str, frozenset[str]]]:
    for word, command in getattr(group, "commands", {}).items():
        yield from _commands(command, f"{name} {word}")
    if not hasattr(group, "commands"):
        yield name, frozenset(option for param in group.params for option in param.opts)


COMMANDS = dict(_commands(typer.main.get_command(app)))


def _texts(path: Path) -> Iterator[str]:
    """Every text of a module that somebody may read: no docstring, and no argument of a program."""
    tree = ast.parse(path.read_text("utf-8"))
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in inside | docstrings:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@cache
def _sources() -> tuple[tuple[str, str], ...]:
    return tuple(_printed())


def _printed() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(_NOT_PRINTED):
            texts = _texts(path)
            # What begins with an option is an argument, or says which option is read.
            yield from ((name, text) for text in texts if " " in text and text[:2] != "--")


def _may_name(module: str) -> frozenset[str]:
    """The options that a module's advice may name without a command before them."""
    for room, command in _PRINTED_BY.items():
        if module.startswith(room):
            return COMMANDS[command] | OPTIONS.keys()
    if module.startswith(("commands/", "cli.py")):
        return frozenset().union(*COMMANDS.values())
    return frozenset(OPTIONS)


def test_every_option_that_is_named_can_be_typed() -> None:
    """A session names pytest's options, and a command its own; another program is named first."""
    wrong = []
    named = 0
    for module, text in _sources():
        bare = _PROGRAM.sub("", text)
        named += len(_OPTION.findall(bare))
        unknown = set(_OPTION.findall(bare)) - _may_name(module)
        wrong += [f"{module}: {option} in {text!r}" for option in sorted(unknown)]
    assert named > 20
    assert not wrong, "\n".join(wrong)


def test_a_command_to_type_has_its_options() -> None:
    """Where advice names `asperf COMMAND --option`, or pytest's, the command has that option."""
    wrong = []
    for module, text in _sources():
        for match in _PROGRAM.finditer(text):
            program, options = match[1].strip(), set(_OPTION.findall(match["words"]))
            if program.startswith("asperf "):
                known = [words for name, words in COMMANDS.items() if name.startswith(program)]
                known += [] if known else [frozenset()]
                if not any(options <= words | {"--help"} for words in known):
                    wrong.append(f"{module}: {match[0]!r}")
            ours = {option for option in options if option.startswith("--asperf")}
            if program == "pytest" and not ours <= OPTIONS.keys():
                wrong.append(f"{module}: {match[0]!r}")
    assert not wrong, "\n".join(wrong)


def test_pytests_options_are_no_commands() -> None:
    """The sources of the commands name pytest's options only in a command of pytest's."""
    for module, text in _sources():
        if module.startswith(("commands/", "cli.py")):
            assert "--asperf" not in _PROGRAM.sub("", text), (module, text)
