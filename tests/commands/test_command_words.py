"""Advice names options that exist: pytest's in a session, a command's own in its output."""

import re
from pathlib import Path

import click
import pytest
from filelock import FileLock

from pytest_asperf.cli import every_command
from pytest_asperf.commands.options import named
from pytest_asperf.config.settings import DECLARED, named_in_session
from tests.commands.conftest import ScriptedCommand

_NAMED = re.compile(r"(?<![\w-])--[a-z][a-z-]*")

COMMANDS = {name: one for name, one in every_command() if not isinstance(one, click.Group)}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_setting_is_named_by_an_option_of_the_command(name: str) -> None:
    """A command names its own option of a setting, `--set`, or the key of the file."""
    options = frozenset(option for param in COMMANDS[name].params for option in param.opts)
    for key in DECLARED:
        for text in (named(options, key, ""), named(options, key, "7")):
            assert "--asperf" not in text
            assert key in text.lower() or "--" in text  # the argument URL
            assert set(_NAMED.findall(text)) <= options


def test_a_session_names_its_own_option() -> None:
    """A setting without an option is named by its key."""
    assert named_in_session("max_pairs", "7") == "--asperf-max-pairs=7"
    assert named_in_session("chunks", "") == "--asperf-chunks"
    assert named_in_session("cache", "x") == "cache = x in [tool.asperf]"


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
    gate = scripted_command("gate", "current", "current,type_k=q8_0", "--report=json:out.json")
    gate.script(noise_by_type_k={"q8_0": 0.1})
    done = gate(*words)
    assert done.exit_code == 2, done.output
    written = Path("out.json").read_text("utf-8")
    for text in (done.output, written):
        assert "--asperf" not in text
        assert advised in text
        # The workload is an option of `asperf calibrate`, which is named with it.
        own = {option for param in COMMANDS["asperf gate"].params for option in param.opts}
        assert set(_NAMED.findall(text)) <= own


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("calibrate", "--model=fake:F16", "--workload=tg8"), "or wait longer: --set wait=30min"),
        (("builds", "prune", "--all", "--yes"), "or wait longer: --set wait=30min"),
    ],
)
def test_an_error_is_in_the_commands_words(
    scripted_command: ScriptedCommand, words: tuple[str, ...], advice: str
) -> None:
    """An error in a command names its own option, or the key."""
    command = scripted_command(*words, settings="wait = 0\n")
    with FileLock(command.folder / "lock"):
        done = command()
    assert done.exit_code == 4
    assert advice in done.output


def test_chunks_of_a_gate_that_are_none(scripted_command: ScriptedCommand) -> None:
    """The error names the option and its accepted values."""
    done = scripted_command("gate", "current", "current")("--chunks=some")
    assert done.exit_code == 3
    assert "--chunks: 'some' is not usable" in done.output
    assert "chunks takes a whole number from 1 to 1000000000, or all" in done.output
