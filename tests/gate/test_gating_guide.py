"""The samples of the guides: they parse, and every option that they use exists."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # comes with gguf, without types

from pytest_asperf.cli import every_command
from pytest_asperf.config.settings import OPTIONS

DOCS = Path(__file__).parents[2] / "docs"
COPIED = sorted((DOCS / "gating").iterdir())
PAGES = [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))]
WORKFLOWS = [path for path in COPIED if path.suffix == ".yml"]
#: A command up to its end in a shell.
_COMMAND = re.compile(r"(?<![-\w/])asperf (?P<name>[a-z]+)(?=\s)(?P<rest>(?:\\\n|[^\n|;&)`])*)")


def _commands(text: str) -> list[tuple[str, list[str]]]:
    """Return subcommand and options of each time that the command is run."""
    return [
        (match["name"], re.findall(r"(?<!\S)--[a-z-]+", match["rest"]))
        for match in _COMMAND.finditer(text)
    ]


def _known_options(command: str) -> set[str]:
    named = [one for words, one in every_command() if words.split()[1:2] == [command]]
    assert named, command
    return {option for one in named for param in one.params for option in param.opts}


@pytest.mark.parametrize("path", [*PAGES, *COPIED], ids=lambda path: path.name)
def test_every_option_exists(path: Path) -> None:
    """A page or a file to copy uses no command and no option that there is not."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        text = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    commands = _commands(text)
    assert commands or path not in {DOCS / "gating.md", DOCS / "nightly.md", *COPIED}
    for name, options in commands:
        assert set(options) <= _known_options(name), f"{path.name}: asperf {name}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_option_of_pytest_exists(path: Path) -> None:
    """Nor does it name an option of a session that there is not."""
    assert set(re.findall(r"--asperf-[a-z-]*[a-z]", path.read_text("utf-8"))) <= set(OPTIONS)


def test_the_readme_is_one_page() -> None:
    """A subject that needs more words has a page of its own."""
    assert len((DOCS.parent / "README.md").read_text("utf-8").splitlines()) <= 100


def test_the_search_finds_commands_and_their_options() -> None:
    """Across lines, and up to a command's end."""
    text = 'x asperf gate "$a" b --json c \\\n  --summary d\nasperf calibrate --pairs 3 || y'
    assert _commands(text) == [
        ("gate", ["--json", "--summary"]),
        ("calibrate", ["--pairs"]),
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_workflows(path: Path) -> None:
    """They parse, have jobs with steps of one kind each, may only read, and end at some time."""
    workflow = yaml.safe_load(path.read_text("utf-8"))
    # `on` is a boolean in YAML 1.1.
    assert {"name", True, "permissions", "jobs"} <= set(workflow)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] > 0
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])
        scripts = [step["run"] for step in job["steps"] if "run" in step]
        assert any("asperf gate" in script for script in scripts)
        for script in scripts:
            _require_shell(script)


def _require_shell(script: str) -> None:
    shell = shutil.which("sh")
    if shell is None:
        pytest.skip("there is no shell")
    done = subprocess.run(
        [shell, "-n"], input=script, text=True, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
