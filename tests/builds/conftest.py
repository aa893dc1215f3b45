"""Tiny packages and a tiny checkout, made on the spot; real pip, git and CMake build them."""

import os
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import pytest

import pytest_asperf
from pytest_asperf.builds.build_cache import BuildCache
from pytest_asperf.config.progress import Notify
from tests.processes import wait_for_end

#: A backend that needs nothing but Python, so that no index is used: its wheel has a module with
#: its compile settings. Like a compiler, it may fail, or be slow.
BACKEND = """
import os, zipfile
NAME, VERSION, FAULT = {name!r}, {version!r}, {fault!r}
def build_wheel(folder, *_):
    exec(FAULT)
    flags = os.environ.get("CMAKE_ARGS", "")
    info = f"{{NAME}}-{{VERSION}}.dist-info/"
    file = f"{{NAME}}-{{VERSION}}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, file), "w") as wheel:
        wheel.writestr(f"{{NAME}}.py", f"flags = {{flags!r}}")
        wheel.writestr(info + "METADATA", {metadata!r})
        wheel.writestr(info + "WHEEL", {tags!r})
        wheel.writestr(info + "RECORD", "")
    return file
"""
TAGS = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


def metadata(name: str, version: str) -> str:
    """Return a package's minimal metadata."""
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def _write_wheel(folder: Path, name: str, version: str = "1.0", **files: str) -> Path:
    """Write a wheel with the given modules, or other files by their stem."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info/"
    texts = {
        **{f"{stem}.py": text for stem, text in files.items() if stem != "pth"},
        **({f"{name}.pth": files["pth"]} if "pth" in files else {}),
        f"{info}METADATA": metadata(name, version),
        f"{info}WHEEL": TAGS,
        f"{info}RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for at, text in texts.items():
            wheel.writestr(at, text)
    return path


def _write_sdist(folder: Path, name: str, version: str = "1.0", fault: str = "") -> Path:
    """Write a source distribution whose module contains its CMAKE_ARGS."""
    path = folder / f"{name}-{version}.tar.gz"
    files = {
        "pyproject.toml": PYPROJECT,
        "backend.py": BACKEND.format(
            name=name,
            version=version,
            fault=fault,
            metadata=metadata(name, version),
            tags=TAGS,
        ),
        "PKG-INFO": metadata(name, version),
    }
    with tarfile.open(path, "w:gz") as tar:
        for at, text in files.items():
            member = tarfile.TarInfo(f"{name}-{version}/{at}")
            member.size = len(text.encode())
            tar.addfile(member, BytesIO(text.encode()))
    return path


@pytest.fixture(scope="session")
def write_wheel() -> Callable[..., Path]:
    """Return the function that writes a wheel: `(folder, name, version, module="text")`."""
    return _write_wheel


@pytest.fixture(scope="session")
def write_sdist() -> Callable[..., Path]:
    """Return the function that writes a source distribution: `(folder, name, version, fault)`."""
    return _write_sdist


@dataclass
class ProgressNotes(Notify):
    """Reported progress, kept."""

    waits: list[str] = field(default_factory=list)
    steps: list[tuple[str, int, int]] = field(default_factory=list)

    def progress(self, label: str, done: int, total: int, _so_far: object = None) -> None:
        """Keep a step."""
        self.steps.append((label, done, total))

    def wait(self, reason: str) -> None:
        """Keep a reason."""
        self.waits.append(reason)


#: Makes the build of an expression, in the cache of a folder.
_MAKES = """
import sys
from pathlib import Path
from pytest_asperf.builds.build_cache import BuildCache
from pytest_asperf.config.build_sources import Checkout, Packages
from pytest_asperf.config.progress import Notify
folder = Path(sys.argv[2])
cache = BuildCache(folder / "cache", lock_path=folder / "turn", notify=Notify())
cache.made(eval(sys.argv[1]))
"""


def interrupt(source: str, folder: Path, note: Path) -> None:
    """Stop a build with Ctrl-C once its compiler has noted its pid; both end."""
    session = subprocess.Popen(
        [sys.executable, "-c", _MAKES, source, folder],
        env={**os.environ, "PYTHONPATH": str(Path(pytest_asperf.__file__).parents[1])},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (note.exists() and note.read_text().strip()):
        assert session.poll() is None, session.communicate()[1]
        time.sleep(0.05)
    compiler = int(note.read_text())
    session.send_signal(signal.SIGINT)
    _, errors = session.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    wait_for_end(compiler)


@pytest.fixture(autouse=True)
def _undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CMAKE_ARGS of these tests' engine are not used for their builds."""
    monkeypatch.delenv("CMAKE_ARGS", raising=False)


@pytest.fixture
def notes() -> ProgressNotes:
    """If a build cache reports its progress."""
    return ProgressNotes()


@pytest.fixture
def build_cache(tmp_path: Path, notes: ProgressNotes) -> Callable[[], BuildCache]:
    """Return a function that opens a build cache, always on the same cache."""
    return lambda: BuildCache(tmp_path / "cache", lock_path=tmp_path / "turn", notify=notes)


@pytest.fixture(scope="session")
def git() -> Callable[..., str]:
    """Return a function that runs git: `(folder, *words)`."""
    return _git


def _git(folder: Path, *words: str) -> str:
    """Run git in a folder, with a user's name, and return its output."""
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    command = ["git", "-C", str(folder), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
