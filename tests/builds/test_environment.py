import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_asperf.builds.build_cache import BuildCache
from pytest_asperf.builds.environment import _steps, environment_recipe, interpreter_of
from pytest_asperf.builds.store import finished
from pytest_asperf.config.build_sources import Packages
from pytest_asperf.config.engines import ENGINES, MLX_ENGINES
from pytest_asperf.config.spec import Build
from pytest_asperf.engine_process import EngineBuild
from pytest_asperf.errors import BuildError, CacheError, ConfigError
from tests.builds.conftest import ProgressNotes, interrupt

OpenBuildCache = Callable[[], BuildCache]
Write = Callable[..., Path]

PYTHON = Path(sys.executable)


def said(python: Path, program: str) -> str:
    """Return an interpreter's output."""
    command = [str(python), "-I", "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_wheel_is_installed_once(
    tmp_path: Path, build_cache: OpenBuildCache, notes: ProgressNotes, write_wheel: Write
) -> None:
    """A build is made the first time, found the second, and its record has its content."""
    wheel = write_wheel(tmp_path, "tiny", tiny="answer = 42")
    source = Packages(files=(wheel,))
    made = build_cache().made(source)
    assert said(interpreter_of(made.folder), "import tiny; print(tiny.answer)") == "42"
    assert made.found["packages"] == {"tiny": "1.0"}
    assert made.nbytes > 0
    assert len(notes.waits) == 1

    ready = build_cache().ready(Build("new", source), "llama_cpp")
    python = interpreter_of(made.folder)
    assert ready.engine == EngineBuild("llama_cpp", python, has_own_libraries=True)
    assert ready.rows() == (("made", "tiny-1.0-py3-none-any.whl: 1 other packages"),)
    assert len(notes.waits) == 1

    interpreter_of(made.folder).unlink()  # as when the Python that it links to is upgraded
    assert build_cache().made(source).folder == made.folder
    assert interpreter_of(made.folder).exists()
    assert len(notes.waits) == 2


def test_all_that_decides_an_environment_is_in_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: Path, write_wheel: Write
) -> None:
    """Content, not the name; variables, declared or inherited; the interpreter below."""
    wheel = write_wheel(tmp_path, "tiny", tiny="answer = 42")

    def key(**changed: object) -> str:
        source = Packages(files=(wheel,), **changed)  # type: ignore[arg-type]  # named below
        return environment_recipe(source, tmp_path / "cache").key

    plain = key()
    flags = key(env=(("CMAKE_ARGS", "-DX=1"),))
    keys = {plain, flags, key(env=(("PIP_INDEX_URL", "x"),)), key(requirements=("mlx-lm",))}
    monkeypatch.setenv("CFLAGS", "-O0")
    keys.add(key())
    monkeypatch.delenv("CFLAGS")
    assert key() == plain
    assert key(python=bare) == plain  # another environment of the same Python
    wheel.unlink()
    write_wheel(tmp_path, "tiny", tiny="answer = 43")
    keys.add(key())
    assert len(keys) == 6


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """An environment without anything in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return tmp_path / "bare" / "bin" / "python"


def test_an_address_with_a_password_is_not_kept(tmp_path: Path) -> None:
    """An index is identified by a hash of its address."""
    env = (("PIP_INDEX_URL", "https://me:secret@host/simple"),)
    recipe = environment_recipe(Packages(("mlx-lm",), env=env), tmp_path)
    assert "secret" not in str(recipe)
    assert recipe.key != environment_recipe(Packages(("mlx-lm",)), tmp_path).key


def test_variables_are_no_business_of_the_installers_cache(
    tmp_path: Path, build_cache: OpenBuildCache, monkeypatch: pytest.MonkeyPatch, write_sdist: Write
) -> None:
    """A wheel compiled without them is not used with them, nor left for builds without."""
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "installer"))
    sdist = write_sdist(tmp_path, "tiny")

    def flags(**env: str) -> str:
        made = build_cache().made(Packages(files=(sdist,), env=tuple(env.items())))
        return said(interpreter_of(made.folder), "import tiny; print(tiny.flags)")

    assert flags() == ""
    cached = sorted((tmp_path / "installer").rglob("tiny*.whl"))
    assert cached
    assert flags(CMAKE_ARGS="-DX=on") == "-DX=on"
    assert sorted((tmp_path / "installer").rglob("tiny*.whl")) == cached


@pytest.mark.parametrize(
    ("env", "is_compiled"),
    [({}, False), ({"PIP_INDEX_URL": "x"}, False), ({"CMAKE_ARGS": "x"}, True)],
)
def test_variables_for_a_compiler_are_compiled_with(env: dict[str, str], is_compiled: bool) -> None:  # noqa: FBT001
    """A ready wheel of an index is not used instead."""
    source = Packages(("llama-cpp-python==0.3.35",), env=tuple(env.items()))
    _, install = _steps(source, Path("/nowhere"))
    assert ("--no-binary=llama-cpp-python" in install) is is_compiled
    assert ("--no-cache-dir" in install) is is_compiled
    assert install[-2:] == ["--", "llama-cpp-python==0.3.35"]


def test_what_fails_to_compile_says_so(
    tmp_path: Path, build_cache: OpenBuildCache, notes: ProgressNotes, write_sdist: Write
) -> None:
    """The first error and the last lines are shown, the log is kept, and nothing else is."""
    fault = "print('tiny.c:1: error: \\x1b[31mno semicolon'); raise SystemExit(3)"
    source = Packages(files=(write_sdist(tmp_path, "tiny", fault=fault),))
    room = build_cache()
    with pytest.raises(BuildError) as caught:
        room.made(source)
    text = str(caught.value)
    assert "cannot be installed" in text
    assert "| " in text
    assert "tiny.c:1: error: " in text
    assert "no semicolon" in text
    assert "\x1b" not in text
    assert "all of it: " in text
    assert [path.suffix for path in (tmp_path / "cache" / "builds").iterdir()].count(".log") == 1
    assert not any(path.is_dir() for path in (tmp_path / "cache" / "builds").iterdir())
    with pytest.raises(BuildError):
        room.made(source)
    assert len(notes.waits) == 1  # is not tried again


def test_what_a_killed_process_left_is_made_anew(
    tmp_path: Path, build_cache: OpenBuildCache, write_wheel: Write
) -> None:
    """A folder without a record counts as absent."""
    source = Packages(files=(write_wheel(tmp_path, "tiny", tiny=""),))
    folder = environment_recipe(source, tmp_path).folder(tmp_path / "cache")
    (folder / "env" / "bin").mkdir(parents=True)
    (folder / "env" / "bin" / "python").touch()
    assert build_cache().made(source).folder == folder
    assert said(interpreter_of(folder), "import tiny") == ""


def test_two_at_once_make_one(
    tmp_path: Path, build_cache: OpenBuildCache, notes: ProgressNotes, write_wheel: Write
) -> None:
    """The second process waits for the first, and uses its result."""
    source = Packages(files=(write_wheel(tmp_path, "tiny"),))
    threads = [threading.Thread(target=lambda: build_cache().made(source)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [wait.endswith("the first time") for wait in notes.waits].count(True) == 1


def test_ctrl_c_ends_the_compiler_and_leaves_nothing(tmp_path: Path, write_sdist: Write) -> None:
    """A stopped build ends with all of its processes."""
    note = tmp_path / "pid"
    fault = (
        "import subprocess; child = subprocess.Popen(['sleep', '60']); "
        f"open({str(note)!r}, 'w').write(f'{{child.pid}} '); child.wait()"
    )
    sdist = write_sdist(tmp_path, "tiny", fault=fault)
    interrupt(f"Packages(files=(Path({str(sdist)!r}),))", tmp_path, note)
    builds = tmp_path / "cache" / "builds"
    assert not any(path.is_dir() for path in builds.iterdir())
    assert all(finished(path) is None for path in builds.iterdir())


def test_no_index_is_said_plainly(
    tmp_path: Path, build_cache: OpenBuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a network the index, the remedy and the way around are named."""
    for name, text in (
        ("PIP_INDEX_URL", "http://127.0.0.1:9/simple"),
        ("PIP_EXTRA_INDEX_URL", ""),
        ("PIP_RETRIES", "1"),
        ("PIP_CONFIG_FILE", os.devnull),
    ):
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(BuildError) as caught:
        build_cache().made(Packages(("llama-cpp-python==0.0.1",)))
    text = str(caught.value)
    assert "127.0.0.1" in text
    assert "cannot be reached" in text
    assert "go online" in text
    assert "to opt out: " in text


def test_an_unknown_version_names_those_there_are(
    tmp_path: Path, build_cache: OpenBuildCache, monkeypatch: pytest.MonkeyPatch, write_wheel: Write
) -> None:
    """A version that the index lacks raises with the available ones."""
    write_wheel(tmp_path, "llama_cpp_python", "0.0.1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(BuildError) as caught:
        build_cache().made(Packages(("llama-cpp-python==0.0.2",)))
    text = str(caught.value)
    assert "llama-cpp-python 0.0.2 is not on the index" in text
    assert "the nearest are 0.0.1" in text


def test_a_missing_wheel_names_its_neighbours(
    tmp_path: Path, build_cache: OpenBuildCache, write_wheel: Write
) -> None:
    """A path that leads nowhere raises before anything is made."""
    write_wheel(tmp_path, "tiny", "2.0")
    with pytest.raises(BuildError, match=r"there are tiny-2.0-py3-none-any.whl"):
        build_cache().made(Packages(files=(tmp_path / "tiny-1.0-py3-none-any.whl",)))
    assert not (tmp_path / "cache").exists()


def test_an_interpreter_that_does_not_run(tmp_path: Path, build_cache: OpenBuildCache) -> None:
    """The interpreter below is examined first."""
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    broken.chmod(0o755)
    with pytest.raises(BuildError, match="does not run: broken"):
        build_cache().made(Packages(("mlx-lm",), python=broken))


def test_a_cache_that_cannot_be_written_to(
    tmp_path: Path, build_cache: OpenBuildCache, write_wheel: Write
) -> None:
    """The cache is named, with the variable that names another."""
    (tmp_path / "cache").write_text("")
    with pytest.raises(CacheError, match="ASPERF_CACHE"):
        build_cache().made(Packages(files=(write_wheel(tmp_path, "tiny"),)))


_NOT_MLX = sorted({*ENGINES} - MLX_ENGINES - {"command"})  # whose lines may run any interpreter


@pytest.mark.parametrize("engine", _NOT_MLX)
def test_a_build_of_one_engine_is_none_of_another(build_cache: OpenBuildCache, engine: str) -> None:
    """A requirement's engine is compared with the model's, before it is made."""
    build = Build("new", Packages(("mlx-lm==0.31.3",), engines=frozenset({"mlx"})))
    with pytest.raises(ConfigError, match=f"the engine is {engine}, and the build new is"):
        build_cache().ready(build, engine)  # type: ignore[arg-type]  # one of them
