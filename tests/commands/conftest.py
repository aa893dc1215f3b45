"""The command, in this process; projects of scripted models, measured under a lock of their own."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import pytest
from click.testing import CliRunner, Result

from pytest_asperf.cli import app, main
from pytest_asperf.testing import write_script
from tests.conftest import time_pairs_quickly

_TINY_LLAMA: Final = Path(__file__).parents[1] / "modelfiles" / "conftest.py"
_CONFIG: Final = """
engine = "scripted"
call_timeout_s = 20
default_model = "fake:F16"
[models.fake]
files = { F16 = "f16.json" }
corpus = "corpus.txt"
"""
#: From run to run 1 %. None of the time passes, and of runs so long a pair has one.
_NOISE: Final = [1000 * n for n in (30_000, 30_300, 29_850, 30_120, 29_700, 30_210, 30_030)]
_TIMINGS: Final = {"tg_ns_per_token": _NOISE, "pp_ns_per_token": [n // 100 for n in _NOISE]}


class Ended(NamedTuple):
    """The exit status of a command, and its output."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run_asperf(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Return a function that runs `asperf` by its words, as a shell would, but in this process."""

    def run(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["asperf", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return Ended(int(ended.value.code or 0), *capsys.readouterr())

    return run


class Command:
    """Runs a command of `asperf` in a project whose model's timings are chosen.

    Args:
        folder: the project.
        words: the command, and options that every run of it has.

    Attributes:
        folder: the project.
    """

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self._words = words

    def script(self, **script: Any) -> None:
        """Write the model's file: timings that vary by 1 %, and the given keys."""
        write_script(self.folder / "f16.json", **(_TIMINGS | script))

    def __call__(self, *words: str) -> Result:
        """Run it to its end."""
        typed = [*self._words, *words]
        with mock.patch.object(sys, "argv", ["asperf", *typed]):  # reports have the typed text
            return CliRunner().invoke(app, typed)


#: Gives a command, by its words, in a project of settings in addition to the common ones.
ScriptedCommand = Callable[..., Command]


@pytest.fixture
def scripted_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedCommand:
    """Return a function that gives a command in a new project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASPERF_CACHE", str(tmp_path / "cache"))
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(
        "pytest_asperf.hardware.machine_lock.machine_lock_path", lambda: tmp_path / "lock"
    )
    time_pairs_quickly(monkeypatch)
    (tmp_path / "corpus.txt").write_text("def area(width):\n    return width\n" * 400)

    def make(*words: str, settings: str = "") -> Command:
        (tmp_path / "asperf.toml").write_text(settings + _CONFIG)
        command = Command(tmp_path, *words)
        command.script()
        return command

    return make


@pytest.fixture(scope="session")
def write_llama() -> Callable[[Path], Any]:
    """Return the function of the model files' tests that writes a random Llama."""
    spec = importlib.util.spec_from_file_location("tiny_llama", _TINY_LLAMA)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    write: Callable[[Path], Any] = module._write_llama
    return write
