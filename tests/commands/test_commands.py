import json
import os
import pty
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pytest_asperf
from pytest_asperf.config.engines import EXTRAS
from pytest_asperf.modelfiles.cache import entries
from tests.commands.conftest import Ended
from tests.processes import wait_for_end

_PACKAGE_PARENT = Path(pytest_asperf.__file__).parents[1]


class Asperf:
    """Runs the command in a project folder of its own, with a cache of its own.

    Args:
        folder: the project.
        run: runs the command in this process.
    """

    def __init__(self, folder: Path, run: Callable[..., Ended]) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.command = (sys.executable, "-m", "pytest_asperf.cli")
        self.env = {
            **os.environ,
            "PYTHONPATH": str(_PACKAGE_PARENT),
            "ASPERF_CACHE": str(self.cache),
        }
        self._run = run

    def __call__(self, *words: str) -> Ended:
        """Run it to its end."""
        return self._run(*words)

    def process(self, *words: str) -> Ended:
        """Run it to its end in a process of its own."""
        done = subprocess.run(
            [*self.command, *words],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def asperf(
    tmp_path: Path, run_asperf: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> Asperf:
    """The command, in an empty project."""
    asperf = Asperf(tmp_path, run_asperf)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASPERF_CACHE", str(asperf.cache))
    return asperf


@pytest.fixture
def asperf_with_tiny(asperf: Asperf, write_llama: Callable[[Path], Any]) -> Asperf:
    """The command, in a project that declares a model `tiny` by its Hugging Face folder."""
    write_llama(asperf.folder / "tiny")
    (asperf.folder / "asperf.toml").write_text('[models.tiny]\nhf = "tiny"\n')
    return asperf


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `doctor` search no engine but the configured programs."""
    for engine in tuple(EXTRAS):
        monkeypatch.delitem(EXTRAS, engine)


def test_version(asperf: Asperf) -> None:
    """The version is the package's."""
    assert asperf.process("--version").stdout == f"asperf {pytest_asperf.__version__}\n"


@pytest.mark.live
def test_doctor_finds_the_engine_and_the_cache(
    asperf: Asperf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that can measure it ends with 0 and names engine and device."""
    for engine in EXTRAS.keys() - {"llama_cpp"}:
        monkeypatch.delitem(EXTRAS, engine)
    done = asperf("doctor")
    assert done.returncode == 0, done.stderr
    assert "llama-cpp-python" in done.stdout
    assert str(asperf.cache) in done.stdout
    assert "ready to measure" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    assert not asperf.cache.exists()


@pytest.mark.live
def test_doctor_in_json_is_one_document(asperf: Asperf) -> None:
    """The engine's facts come from the engine, with the hash of its library."""
    done = asperf("doctor", "--report=json:-")
    answer = json.loads(done.stdout)
    assert answer["ready"] is True
    engine = answer["facts"]["engines"][0]["found"]
    assert len(engine["library_sha256"]) == 64
    assert engine["devices"]
    assert {section["title"] for section in answer["sections"]} == {
        "machine",
        "engine llama_cpp",
        "engine mlx",
        "cache",
        "right now",
    }


@pytest.mark.usefixtures("no_engine")
def test_doctor_examines_the_programs_that_are_configured(asperf: Asperf, tools: Path) -> None:
    """A folder of llama.cpp's binaries is an engine in addition to the libraries."""
    (asperf.folder / "asperf.toml").write_text(f'tools = "{tools}"')
    found = asperf("doctor", "--run").stdout.partition("engine llama_tools")[2]
    assert f"ok   library  {tools}" in found


@pytest.mark.usefixtures("no_engine")
def test_doctor_tells_that_configured_programs_do_not_start(asperf: Asperf) -> None:
    """Their fault is printed there, and no advice about packages."""
    for name in ("llama-bench", "llama-perplexity", "llama-quantize"):
        program = asperf.folder / name
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
    (asperf.folder / "asperf.toml").write_text('tools = "."')
    found = asperf("doctor", "--run").stdout.partition("engine llama_tools")[2].partition("\n\n")[0]
    assert "ok   engine" not in found
    assert "llama-bench does not start" in found
    assert "pip install" not in found


@pytest.mark.usefixtures("quick_bandwidth")
def test_a_measured_bandwidth_is_kept_and_shown_later(asperf: Asperf, bare_python: Path) -> None:
    """It is measured on request, and known from then on without measuring."""
    words = ("doctor", "--set", f"python={bare_python!s}")
    measured = json.loads(asperf(*words, "--report=json:-", "--measure-bandwidth").stdout)
    gbs = measured["facts"]["measured"]["gbs"]
    assert gbs > 0
    assert f"{gbs:.1f} GB/s measured on" in asperf(*words).stdout


def test_doctor_tells_how_to_install_a_missing_engine(asperf: Asperf) -> None:
    """An interpreter without the engine makes it end with 1, and with the command to mend it."""
    bare = asperf.folder / "bare"
    venv.create(bare, with_pip=False)
    done = asperf("doctor", "--set", "python=bare/bin/python")
    assert done.returncode == 4
    assert f"not installed in {bare / 'bin' / 'python'}" in done.stdout
    assert f"do: {bare / 'bin' / 'python'} -m pip install 'pytest-asperf[llama]'" in done.stdout
    assert "cannot measure" in done.stdout


def test_doctor_survives_an_interpreter_that_is_none(asperf: Asperf) -> None:
    """A program that is no interpreter is a finding."""
    done = asperf("doctor", "--set", "python=/bin/false")
    assert done.returncode == 4
    assert "does not start in /bin/false" in done.stdout
    assert "exited with status 1" in done.stdout


@pytest.mark.parametrize("words", [("doctor",), ("models", "build", "asperf-target")])
def test_a_missing_interpreter_is_an_error_with_a_remedy(
    asperf: Asperf, words: tuple[str, ...]
) -> None:
    """It names the option, on the error stream, without a traceback, and ends with 3."""
    done = asperf(*words, "--set", "python=/nowhere/python")
    assert done.returncode == 3
    assert done.stderr.startswith("--set python: '/nowhere/python'")
    assert "what to do:" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.usefixtures("no_engine")
def test_doctor_refuses_a_cache_that_is_no_folder(asperf: Asperf) -> None:
    """A file in the folder's place makes a measurement impossible."""
    asperf.cache.write_text("in the way")
    done = asperf("doctor")
    assert done.returncode == 4
    assert f"FAIL folder  {asperf.cache} cannot be written to" in done.stdout
    assert "set ASPERF_CACHE to another one" in done.stdout
    assert asperf.cache.read_text() == "in the way"


@pytest.mark.live
def test_models_are_built_listed_verified_and_rebuilt(asperf_with_tiny: Asperf) -> None:
    """A file whose bytes were changed is found by its hash, removed, and made anew."""
    asperf = asperf_with_tiny
    listed = asperf("models")
    assert listed.returncode == 0, listed.stderr
    assert f"hf  {asperf.folder / 'tiny'}" in listed.stdout
    assert "asperf-target" in listed.stdout

    built = asperf("models", "build", "tiny:Q8_0", "tiny")
    assert built.returncode == 0, built.stderr
    assert {entry.recipe["level"] for entry in entries(asperf.cache)} == {"F16", "Q8_0"}
    assert "ok   Q8_0" in asperf("models", "list").stdout
    assert asperf("models", "verify").returncode == 0

    path = next(e.path for e in entries(asperf.cache) if e.recipe["level"] == "Q8_0")
    _flip_last_byte(path)
    found = asperf("models", "verify")
    assert found.returncode == 1
    assert "warn tiny:Q8_0  broken, its SHA-256 is not that" in found.stdout
    assert str(path) in found.stdout
    assert "asperf models verify --remove" in found.stdout
    assert "2 files, 1 broken" in found.stdout

    removed = asperf("models", "verify", "--remove")
    assert removed.returncode == 0
    assert removed.stdout.endswith(f"removed {path}\n")
    assert not path.exists()
    assert asperf("models", "build", "tiny:q8_0").returncode == 0
    assert path.exists()
    assert asperf("models", "verify").returncode == 0


def test_files_of_models_that_the_project_does_not_name_are_listed(
    asperf_with_tiny: Asperf,
) -> None:
    """Another project's files in the same cache are seen, too."""
    assert asperf_with_tiny("models", "build", "tiny").returncode == 0
    (asperf_with_tiny.folder / "asperf.toml").unlink()
    listed = asperf_with_tiny("models").stdout
    assert "other files in the cache\n  ok   tiny:F16" in listed


def test_nothing_is_built_where_one_name_is_wrong(asperf_with_tiny: Asperf) -> None:
    """A typo is answered with the nearest name before the first file is made."""
    done = asperf_with_tiny("models", "build", "tiny", "tinny")
    assert done.returncode == 3
    assert "did you mean 'tiny'?" in done.stderr
    assert not asperf_with_tiny.cache.exists()


def test_a_broken_configuration_is_an_error_in_four_parts(asperf: Asperf) -> None:
    """The file and key are named."""
    (asperf.folder / "asperf.toml").write_text("chuncks = 3\n")
    done = asperf("models")
    assert done.returncode == 3
    assert "asperf.toml: unknown key 'chuncks'; did you mean 'chunks'?" in done.stderr


def test_the_file_nearest_to_the_working_folder_counts(
    asperf_with_tiny: Asperf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command below the project's root finds the project's models; a path starts here."""
    below = asperf_with_tiny.folder / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert "tiny" in asperf_with_tiny("models").stdout
    done = asperf_with_tiny("models", "build", "./missing.gguf")
    assert str(below / "missing.gguf") in done.stdout + done.stderr
    (below / ".git").mkdir()
    assert "tiny" not in asperf_with_tiny("models").stdout


@pytest.mark.parametrize("words", [(), ("gate",), ("models", "list"), ("builds", "make")])
def test_the_short_option_prints_the_help(asperf: Asperf, words: tuple[str, ...]) -> None:
    """`-h` is `--help` of every command."""
    short, long = asperf(*words, "-h"), asperf(*words, "--help")
    assert short.returncode == 0
    assert short.stdout == long.stdout
    assert short.stdout.startswith("Usage: asperf")


def test_the_help_groups_the_commands_by_need(asperf: Asperf) -> None:
    """Deciding commands come first, and those about files last."""
    heads = [line for line in asperf("--help").stdout.splitlines() if line.endswith(":")]
    assert heads == ["Options:", "Decide:", "Measure:", "Look back:", "Files:"]


def test_the_shell_completes_commands(asperf: Asperf) -> None:
    """The output of `--show-completion` calls the command itself, which answers with words."""
    asperf.env |= {"_ASPERF_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    asperf.env["COMP_WORDS"] = "asperf nigh"
    assert asperf.process().stdout.split() == ["plain,nightly"]


def test_models_and_builds_are_listed_as_json(asperf_with_tiny: Asperf) -> None:
    """The project's own model first, with its source; nothing is made yet."""
    listed = json.loads(asperf_with_tiny("models", "list", "--report=json:-").stdout)
    first, *shipped = listed["models"]
    tiny = str(asperf_with_tiny.folder / "tiny")
    assert first["name"] == "tiny"
    assert first["sources"] == [{"kind": "hf", "path": tiny, "exists": True, "problem": None}]
    assert all(model["shipped"] for model in shipped)
    assert listed["cached"] == []
    with (asperf_with_tiny.folder / "asperf.toml").open("a") as config:
        config.write('[builds.old]\nrequirements = ["llama-cpp-python==0.3.16"]\n')
    builds = json.loads(asperf_with_tiny("builds", "list", "--report=json:-").stdout)
    assert builds["declared"] == [{"name": "old", "source": "llama-cpp-python==0.3.16"}]
    assert builds["made"] == []


def test_a_mistyped_command_is_answered_with_the_nearest(asperf: Asperf) -> None:
    """The parser's own suggestion, in plain lines."""
    done = asperf("docter")
    assert done.returncode == 3
    assert "did you mean 'doctor'?" in done.stderr


def test_a_terminal_without_colours_gets_none(asperf: Asperf) -> None:
    """NO_COLOR applies on a terminal as well, and lines are broken to its width."""
    coloured, plain = (_on_terminal(asperf, **env) for env in ({}, {"NO_COLOR": "1"}))
    assert "\x1b[33mwarn" in coloured
    assert "\x1b[33m" not in plain
    assert "warn gguf  does not exist:\r\n" in plain


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_quietly(asperf: Asperf, how: signal.Signals) -> None:
    """It ends with 130, without a traceback, and with the engine's process gone."""
    started = asperf.folder / "started"
    slow = asperf.folder / "slow"
    slow.write_text(
        f"#!/bin/sh\necho $$ > {started}.new; mv {started}.new {started}\nexec sleep 60\n"
    )
    slow.chmod(0o755)
    # A background job has SIGINT ignored, and its children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [*asperf.command, "doctor", "--set", f"python={slow!s}"],
        cwd=asperf.folder,
        env=asperf.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not started.exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(how)
    stdout, stderr = process.communicate(timeout=120)
    wait_for_end(int(started.read_text()))
    assert process.returncode == 130
    assert (stdout, stderr) == ("", "")


def _flip_last_byte(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))


def _on_terminal(asperf: Asperf, **env: str) -> str:
    """Return the command's output on a terminal of 60 columns in a project with a warning."""
    (asperf.folder / "asperf.toml").write_text('[models.gone]\ngguf = "gone.gguf"\n')
    main, terminal = pty.openpty()
    settings = {key: asperf.env[key] for key in ("PATH", "PYTHONPATH", "ASPERF_CACHE")}
    process = subprocess.Popen(
        [*asperf.command, "models"],
        cwd=asperf.folder,
        env={**settings, "TERM": "xterm", "COLUMNS": "60", **env},
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    written = b""
    try:
        while data := os.read(main, 65536):
            written += data
    except OSError:  # Linux: the other end is closed
        pass
    finally:
        os.close(main)
    assert process.wait(timeout=60) == 0
    return written.decode()
