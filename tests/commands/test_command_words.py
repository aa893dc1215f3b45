"""Advice names options that exist: pytest's in a session, a command's own in its output."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from filelock import FileLock

import pytest_asperf
from pytest_asperf.cli import app
from pytest_asperf.commands.command_words import reworded
from pytest_asperf.errors import BusyError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.commands.conftest import ScriptedCommand

_NAMED = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def _commands(group: Any, name: str = "asperf") -> Iterator[tuple[str, frozenset[str]]]:
    """Return every command with its options."""
    for word, command in getattr(group, "commands", {}).items():
        yield from _commands(command, f"{name} {word}")
    if not hasattr(group, "commands"):
        yield name, frozenset(option for param in group.params for option in param.opts)


COMMANDS = dict(_commands(typer.main.get_command(app)))


def _advice() -> set[str]:
    """Return every piece of the package's source that names one of pytest's options."""
    sources = Path(pytest_asperf.__file__).parent.rglob("*.py")
    pieces = re.compile(r"--asperf-[a-z-]*[a-z](?:=[\w%]+)?")
    return {piece for source in sources for piece in pieces.findall(source.read_text("utf-8"))}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_in_an_advice_is_one_of_the_commands(name: str) -> None:
    """A command's own option, or else the key of the configuration file."""
    for piece in _advice():
        text = reworded(f"take {piece}, or wait", COMMANDS[name])
        assert "--asperf" not in text
        assert set(_NAMED.findall(text)) <= COMMANDS[name]


def test_what_has_no_option_is_a_key() -> None:
    """The key is written as the configuration file takes it; pytest's own command stays."""
    text = "--asperf-chunks=all, --asperf-max-pairs; pytest -k x --asperf-model=m; --asperf-seed=7"
    assert reworded(text, {"--max-pairs"}) == (
        "chunks = 'all' in [tool.asperf], --max-pairs; pytest -k x --asperf-model=m; "
        "seed = 7 in [tool.asperf]"
    )


@pytest.mark.parametrize(
    ("words", "advised"),
    [
        (("--workload=tg8", "--max-pairs=5", "--tolerance=1%"), "--max-pairs"),
        (("--workload=ppl", "--chunks=4", "--max-ppl-delta=0.02%"), "--chunks=all"),
    ],
)
def test_a_gate_advises_its_own_options(
    scripted_command: ScriptedCommand, words: tuple[str, ...], advised: str
) -> None:
    """An undecided gate prints options that `asperf gate` has, in its output and its file."""
    gate = scripted_command("gate", "current", "current,type_k=q8_0", "--json=out.json")
    gate.script(noise_by_type_k={"q8_0": 0.1})
    done = gate(*words)
    assert done.exit_code == 2, done.output
    written = Path("out.json").read_text("utf-8")
    for text in (done.output, written):
        assert "--asperf" not in text
        assert advised in text
        # The workload is an option of `asperf calibrate`, which is named with it.
        assert set(_NAMED.findall(text)) <= COMMANDS["asperf gate"]


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("calibrate", "--model=fake:F16", "--workload=tg8"), "to wait longer, --wait=30min"),
        (("builds", "prune", "--all", "--yes"), "to wait longer, wait = '30min' in [tool.asperf]"),
    ],
)
def test_an_error_is_in_the_commands_words(
    scripted_command: ScriptedCommand, words: tuple[str, ...], advice: str
) -> None:
    """What is raised in a command names its own option, or the key."""
    command = scripted_command(*words, settings="wait = 0\n")
    with FileLock(command.folder / "lock"):
        error = command().exception
    assert isinstance(error, BusyError)
    assert advice in str(error)


def test_chunks_of_a_gate_that_are_none(scripted_command: ScriptedCommand) -> None:
    """The error names the option and what it takes."""
    done = scripted_command("gate", "current", "current")("--chunks=some")
    assert done.exit_code == 3
    assert "--chunks: 'some' is not usable" in done.output
    assert "chunks takes a whole number from 1 to 1000000000, or all" in done.output
