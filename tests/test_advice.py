"""Advice names options of its own program: pytest's in a session, a command's in its output."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click

import pytest_asperf
from pytest_asperf.cli import every_command
from pytest_asperf.config.settings import OPTIONS
from tests.syntax import nodes_of

ROOT = Path(pytest_asperf.__file__).parent
#: A command to type, with the options that are its own.
_PROGRAM = re.compile(
    r"(?<![\w-])(pytest(?= -|$)|asperf [a-z]+|git |cmake|llama-[a-z-]+|(\S+ -m )?pip|xcode-select|"
    r"llama-gguf-split|mlx_lm\.server|systemctl|loginctl)(?P<words>[^;,`]*)"
)
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
#: Other programs' arguments, tests that a user owns, and the pattern of such texts itself.
_NOT_PRINTED = (
    "worker/",
    "findings/",
    "examples/",
    "commands/starter_files.py",
    "report/wrapping.py",
)


COMMANDS = {
    name: frozenset(option for param in one.params for option in param.opts)
    for name, one in every_command()
    if not isinstance(one, click.Group)
}


def _texts(path: Path) -> Iterator[str]:
    """Every text of a module for readers: no docstring, and no argument of a program."""
    inside = {
        id(part)
        for node in nodes_of(path)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    docstrings = {id(node.value) for node in nodes_of(path) if isinstance(node, ast.Expr)}
    unread = inside | docstrings
    for node in nodes_of(path):
        if id(node) in unread:
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
            # A word that begins with an option is an argument, or names its option.
            yield from ((name, text) for text in texts if " " in text and text[:2] != "--")


def test_no_sentence_names_an_option_of_a_session() -> None:
    """An advice names settings, and the program that prints it knows its own options."""
    for module, text in _sources():
        assert "--asperf" not in text, (module, text)


def test_a_command_to_type_has_its_options() -> None:
    """If advice names `asperf COMMAND --option`, or pytest's, the command has that option."""
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


#: Rooms that only tests use, or only commands.
_OF_TESTS = ("api/", "plugin/", "published/", "testing.py", "verdicts/engine_matching.py")
_OF_COMMANDS = ("audit/", "bisect/", "commands/", "cli.py", "forecast/", "nightly/")
_MEASURED = re.compile(r"\b(latency|throughput|energy|gate|perplexity|memory)\(\"")


def test_a_room_of_both_says_which_of_them_it_advises() -> None:
    """A fixture is named as a test's, and an option only within its command."""
    wrong = [
        (module, text)
        for module, text in _sources()
        if (not module.startswith(_OF_TESTS) and _MEASURED.search(text) and "test" not in text)
        or (
            not module.startswith((*_OF_TESTS, *_OF_COMMANDS))
            and _OPTION.search(_PROGRAM.sub("", text))
        )
    ]
    assert not wrong, wrong
