"""The output of pytest itself about the plugin: `--help`, `--markers`, `--fixtures`."""

import pytest

from pytest_asperf.config.engines import ENGINES
from pytest_asperf.config.settings import DECLARED, OPTIONS, help_text
from pytest_asperf.plugin import fixtures
from pytest_asperf.plugin.registration import MARKERS
from tests.plugin.conftest import Project
from tests.test_public_names import public_fixtures

#: It replaces an engine in tests of the plugin and is no choice of a user's.
_FOR_TESTS = "scripted"


def _words(result: pytest.RunResult) -> str:
    """Return a successful run's output with its line breaks undone."""
    assert result.ret == pytest.ExitCode.OK
    return " ".join(result.stdout.str().split())


def test_help_names_every_option(project: Project) -> None:
    """`pytest --help` lists every option with its metavar and its text."""
    text = _words(project.run("--help"))
    for option, key in OPTIONS.items():
        assert f"{option}={DECLARED[key].metavar} {help_text(key)}" in text


def test_help_of_the_engine_option_lists_every_engine() -> None:
    """The help names each engine that a user can choose."""
    assert all(engine in help_text("engine") for engine in ENGINES if engine != _FOR_TESTS)


def test_markers_are_listed(project: Project) -> None:
    """`pytest --markers` shows every marker with its arguments."""
    text = _words(project.run("--markers"))
    assert all(f"@pytest.mark.{' '.join(line.split())}" in text for line in MARKERS)


def test_fixtures_are_listed(project: Project) -> None:
    """`pytest --fixtures` shows every fixture with its value."""
    text = _words(project.run("--fixtures"))
    names = public_fixtures()
    assert names
    for name in names:
        first_line = str(getattr(fixtures, name).__doc__).partition("\n")[0]
        assert f"{name} " in text, name
        assert first_line in text, name
