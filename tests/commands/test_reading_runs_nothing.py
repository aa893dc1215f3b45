"""Commands that read and list start nothing that the files of a folder name."""

import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any, Final

import click
import pytest

from pytest_asperf.cli import COMMANDS, app, every_command
from pytest_asperf.testing import write_script
from tests.commands.conftest import Ended
from tests.report import sample_reports as samples

#: Every command that reads or lists, with the words that are typed.
READS: Final = {
    "audit": ["audit log.txt"],
    "builds": ["builds", "builds list --report=json:-"],
    "builds list": ["builds list"],
    "builds prune": ["builds prune --all --yes"],
    "compare": ["compare r.json r.json"],
    "doctor": ["doctor", "doctor --report=json:-"],
    "history": ["history --store h.db"],
    "history import": ["history --store h.db import r.json"],
    "history list": ["history --store h.db list"],
    "history show": ["history --store h.db show tg"],
    "history sessions": ["history --store h.db sessions"],
    "history export": ["history --store h.db export out.json"],
    "history prune": ["history --store h.db prune --older-than 1"],
    "history send": ["history --store h.db send"],
    "init": ["init"],
    "models": ["models", "models list --report=json:-"],
    "models list": ["models list"],
    "models verify": ["models verify"],
    "predict": ["predict --model asperf-target --hardware m2ultra --memory 192"],
    "report": ["report r.json --report md:out.md"],
}
if "findings" in COMMANDS:  # a plugin's
    READS["findings"] = ["findings", "findings q8-near-lossless", "findings --report=json:-"]
#: Commands that measure or make something may run the interpreters of a project's file.
RUNS: Final = {
    *("bisect", "builds make", "calibrate", "demo", "gate", "history confirm", "load"),
    *("models build", "nightly"),
}
#: The words that only list.
LISTS: Final = [
    "gate current current --list",
    "gate nasty current --list",
    "gate current current --list --model fresh",
    "gate nasty-made nasty-tools --list --engine llama_tools",
]

_EVIL: Final = '#!/bin/sh\necho "$0 $*" >> {mark}\nexit 1\n'
_PROGRAMS: Final = ("llama-bench", "llama-perplexity", "llama-quantize", "llama-server")
_BUILDS: Final = """
[builds.nasty]
python = "./evil"
[builds.nasty-tools]
tools = "./tools"
[builds.nasty-packages]
requirements = ["llama-cpp-python==0.3.35"]
python = "./evil"
env = { CC = "./evil", CMAKE_C_COMPILER = "./evil" }
[builds.nasty-made]
checkout = "."
commit = "b1"
cmake = ["-DCMAKE_C_COMPILER=./evil"]
[models.piped]
phases = [{ run = ["./evil", "{prompt}", "{n_tokens}"], reads = "mlx_lm" }]
[models.fake]
files = { F16 = "f16.json" }
[models.fresh]
hf = "fresh"
"""
#: Keys that a project's file may set as defaults, by their names here.
KEYS: Final = {
    "python": 'python = "./evil"\n',
    "tools": 'tools = "./tools"\nengine = "llama_tools"\n',
    "tools beside": 'tools = "./tools"\n',
    "phases": 'engine = "command"\ndefault_model = "piped"\n',
    "phases of tools": 'engine = "command"\ndefault_model = "piped"\ntools = "./tools"\n',
    "server": 'engine = "mlx_server"\npython = "./evil"\n',
    "URL": 'engine = "openai"\nurl = "http://127.0.0.1:{port}/v1"\n',
    "remote": 'remote = "127.0.0.1:{port}"\n',
    "store": 'store = "postgresql://127.0.0.1:{port}/history"\n',
    "builds": 'baseline = "nasty-packages"\ncandidate = "nasty-made"\n',
}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, write_llama: Callable[[Path], Any]) -> Path:
    """A folder with a model."""
    folder = tmp_path_factory.mktemp("models") / "fresh"
    write_llama(folder)
    return folder


@pytest.fixture(scope="module")
def report() -> str:
    """A report as JSON."""
    return json.dumps(samples.whole())


@pytest.fixture
def mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: Path, report: str
) -> Iterator[Path]:
    """The file in which the folder's executables, git among them, leave a mark."""
    marked = tmp_path.with_name(f"{tmp_path.name}.mark")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASPERF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "pytest_asperf.hardware.machine_lock.machine_lock_path", lambda: tmp_path / "lock"
    )
    for name in ("tools", "path", ".git"):
        (tmp_path / name).mkdir()
    evil = [tmp_path / "evil", tmp_path / "path" / "git"]
    for path in [*evil, *(tmp_path / "tools" / name for name in _PROGRAMS)]:
        path.write_text(_EVIL.format(mark=shlex.quote(str(marked))))
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}{os.pathsep}{os.environ['PATH']}")
    write_script(tmp_path / "f16.json")
    shutil.copytree(fresh, tmp_path / "fresh")
    (tmp_path / "r.json").write_text(report)
    (tmp_path / "log.txt").write_text("llama_print_timings: eval time = 1 ms\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        (tmp_path / "port").write_text(str(server.getsockname()[1]))
        Thread(target=_note_contacts, args=(server, marked), daemon=True).start()
        yield marked
        server.shutdown(socket.SHUT_RDWR)
    marked.unlink(missing_ok=True)


def _note_contacts(server: socket.socket, marked: Path) -> None:
    """Leave a mark for each program that contacts the server."""
    with contextlib.suppress(OSError):  # it was shut down
        while True:
            contact, _ = server.accept()
            marked.write_text("contacted")
            contact.close()


def _configure(folder: Path, settings: str, *, file: str = "asperf.toml") -> None:
    settings = settings.replace("{port}", (folder / "port").read_text())
    if file == "asperf.toml":
        (folder / file).write_text(settings + _BUILDS)
        return
    tables = _BUILDS.replace("[builds.", "[tool.asperf.builds.")
    tables = tables.replace("[models.", "[tool.asperf.models.")
    (folder / file).write_text(f"[tool.asperf]\n{settings}{tables}")


def test_every_command_reads_or_runs() -> None:
    """A new command has to be put among those that run nothing, or among those that do."""
    platform_only = {"placement"}
    names = {words.removeprefix("asperf ") for words, _ in every_command()} - {"asperf"}
    assert names == {*READS, *RUNS, *platform_only}


@pytest.mark.parametrize(
    ("key", "file"), [*((key, "asperf.toml") for key in KEYS), ("python", "pyproject.toml")]
)
def test_reading_runs_nothing(
    tmp_path: Path, mark: Path, run_asperf: Callable[..., Ended], key: str, file: str
) -> None:
    """None of these commands starts an interpreter, program, compiler or git, or opens a URL."""
    _configure(tmp_path, KEYS[key], file=file)
    for words in [words for typed in READS.values() for words in typed] + LISTS:
        done = run_asperf(*shlex.split(words))
        assert not mark.exists(), f"asperf {words}: {mark.read_text()}"
        assert "Traceback" not in done.stderr


def test_a_list_says_that_no_request_was_sent(
    tmp_path: Path, mark: Path, run_asperf: Callable[..., Ended]
) -> None:
    """The project's file names the server, and a variable that has its key."""
    _configure(tmp_path, KEYS["URL"])
    done = run_asperf("gate", "current", "current", "--list")
    assert "no request was sent" in done.stdout + done.stderr
    assert not mark.exists()


def test_lists_say_what_would_be_run(
    tmp_path: Path, mark: Path, run_asperf: Callable[..., Ended]
) -> None:
    """The interpreters, folders, compilers and commands that the project's file names."""
    _configure(tmp_path, KEYS["python"])
    builds = " ".join(run_asperf("builds").stdout.split())
    for told in (
        f"the interpreter {tmp_path}/evil",
        f"the programs in {tmp_path}/tools",
        f"made by {tmp_path}/evil, CC=./evil, CMAKE_C_COMPILER=./evil; not made yet",
        f"{tmp_path} at b1, -DCMAKE_C_COMPILER=./evil; not made yet",
    ):
        assert told in builds
    assert "phases  runs ./evil '{prompt}' '{n_tokens}'" in run_asperf("models").stdout
    listed = " ".join(run_asperf("gate", "current", "nasty", "--list").stdout.split())
    assert f"not started: current, the interpreter {tmp_path}/evil" in listed
    words = ("gate", "current", "current", "--list", "--engine", "command", "--model", "piped")
    assert run_asperf(*words).stdout.count("not started: ./evil '{prompt}'") == 1
    assert not mark.exists()


def test_removing_leaves_the_files_of_others(
    tmp_path: Path, mark: Path, run_asperf: Callable[..., Ended]
) -> None:
    """A project's file may name any folder as the cache: only what asperf made there is removed."""
    own = tmp_path / "own"
    (own / "builds" / "work").mkdir(parents=True)
    (own / "builds" / "linked-0123456789ab").symlink_to(own / "builds" / "work")
    (own / "mine.gguf").write_text("GGUF")
    _configure(tmp_path, 'cache = "own"\n')
    assert "removed 0 builds" in run_asperf("builds", "prune", "--all", "--yes").stdout
    assert "asperf did not make it" in run_asperf("models", "verify", "--remove").stdout
    assert {path.name for path in own.rglob("*")} == {
        *("builds", "work", "linked-0123456789ab", "mine.gguf"),
    }
    assert not mark.exists()


@pytest.mark.parametrize("key", KEYS)
def test_completion_runs_nothing(tmp_path: Path, mark: Path, key: str) -> None:
    """A word that a shell completes in the folder is only looked up."""
    _configure(tmp_path, KEYS[key])
    context = click.Context(app)
    words = {
        item.value
        for _, command in every_command()
        for param in command.params
        for item in param.shell_complete(context, "")
    }
    assert {"current", "asperf-draft"} <= words
    assert not mark.exists()


def test_the_doctor_says_what_it_does_not_start(
    tmp_path: Path, mark: Path, run_asperf: Callable[..., Ended]
) -> None:
    """It names the interpreter and the binaries, and the option that starts them."""
    _configure(tmp_path, 'python = "./evil"\ntools = "./tools"\n')
    done = run_asperf("doctor")
    assert done.returncode == 4
    assert f"{tmp_path / 'evil'} was not started: the project's file names it" in done.stdout
    assert f"{tmp_path / 'tools'} was not started: the project's file names it" in done.stdout
    assert "asperf doctor --run" in done.stdout
    assert "not known whether it can measure" in done.stdout
    run_asperf("doctor", "--run")
    assert str(tmp_path / "evil") in mark.read_text()


def test_the_doctor_starts_what_is_typed(
    tmp_path: Path, mark: Path, run_asperf: Callable[..., Ended], bare_python: Path
) -> None:
    """An interpreter that the user names is started, even if the file names another one."""
    _configure(tmp_path, 'python = "./evil"\n')
    done = run_asperf("doctor", "--set", f"python={bare_python!s}")
    assert f"not installed in {bare_python}" in done.stdout
    assert not mark.exists()


def test_what_measures_contacts_the_server(
    tmp_path: Path, mark: Path, run_asperf: Callable[..., Ended]
) -> None:
    """A gate of the project's server does: the test above can fail."""
    _configure(tmp_path, KEYS["URL"])
    run_asperf("gate", "current", "current", "--workload", "tg8")
    assert mark.read_text() == "contacted"


@pytest.mark.parametrize("words", ["gate nasty current", "models build fresh:Q8_0"])
def test_what_runs_runs_them(
    tmp_path: Path, mark: Path, run_asperf: Callable[..., Ended], words: str
) -> None:
    """A gate and a model's quantization start the interpreter: these tests can fail."""
    _configure(tmp_path, 'python = "./evil"\n')
    run_asperf(*shlex.split(words))
    assert mark.exists()


MEASURES: Final = """
from pytest_asperf import assert_no_regression

def test_speed(throughput):
    throughput("tg8").estimate

def test_gate(gate):
    assert_no_regression(gate("tg8"))
"""


@pytest.mark.parametrize("key", ["python", "tools", "URL"])
@pytest.mark.parametrize(
    "words",
    [
        "--collect-only",
        "--collect-only -p no:terminal",
        "--fixtures",
        "--fixtures-per-test",
        "--setup-plan",
        "--setup-only",
        "--markers",
        "--help",
        "-k nothing",
    ],
)
def test_collecting_runs_nothing(
    pytester: pytest.Pytester, mark: Path, plugins: list[str], key: str, words: str
) -> None:
    """Pytest lists tests, fixtures and markers, and plans, without an engine or a build's tools."""
    _configure(Path.cwd(), KEYS[key])
    Path("test_it.py").write_text(MEASURES)
    given = ["--asperf-candidate=nasty-packages", "--asperf-baseline=nasty-made"]
    done = pytester.runpytest_inprocess(*plugins, *words.split(), *given)
    assert not mark.exists(), mark.read_text()
    assert done.ret in {0, 5}


@pytest.mark.parametrize(
    "words",
    [
        *("--collect-only", "--fixtures", "--fixtures-per-test", "--setup-plan", "--setup-only"),
        "--markers",
    ],
)
def test_collecting_writes_nothing(
    pytester: pytest.Pytester, mark: Path, plugins: list[str], words: str
) -> None:
    """A report, or a history, that the project's file names is written by a run of tests only."""
    settings = 'report = ["json:written.json"]\nstore = "written.db"\n'
    _configure(Path.cwd(), settings, file="asperf.toml")
    Path("test_it.py").write_text(MEASURES)
    done = pytester.runpytest_inprocess(*plugins, words)
    assert done.ret == 0
    assert not mark.exists()
    assert not [*Path.cwd().glob("written*")]


def test_pytest_runs_them_where_tests_run(
    tmp_path: Path, mark: Path, command: list[str], own_lock: str
) -> None:
    """The counterpart: a session that measures starts the interpreter."""
    (tmp_path / "conftest.py").write_text(own_lock)
    _configure(tmp_path, KEYS["python"])
    (tmp_path / "test_it.py").write_text(MEASURES)
    subprocess.run([*command, "-k", "speed"], capture_output=True, check=False, timeout=120)
    assert mark.exists()
