"""One cache that several processes build in, or that a process has no space in."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_asperf
from pytest_asperf.modelfiles.cache import build_once

PACKAGE_PARENT = Path(pytest_asperf.__file__).parents[1]


def python(
    code: str, *arguments: object, says: str = "", prefix: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    """Start Python on this code, with the package that is under test, up to its first line."""
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE_PARENT)},
    )
    if says:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{says}\n"
    return process


KILLED = """
import sys
from pathlib import Path
from pytest_asperf.modelfiles.cache import build_once

def build(path):
    path.write_bytes(b"half")
    print("building", flush=True)
    sys.stdin.read()

build_once(Path(sys.argv[1]), build, recipe={})
"""


def killed_while_building(target: Path) -> None:
    """Leave the files of a process that is killed in the middle of building `target`."""
    process = python(KILLED, target, says="building")
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("next_target", ["m.gguf", "other.gguf"])
def test_a_killed_build_is_neither_used_nor_kept(tmp_path: Path, next_target: str) -> None:
    """After SIGKILL the next build, of this file or another, removes the half file."""
    killed_while_building(tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()
    assert len(list(tmp_path.glob("*.part"))) == 1
    build_once(tmp_path / next_target, Path.touch, recipe={})
    assert (tmp_path / next_target).read_bytes() == b""
    assert list(tmp_path.glob("*.part")) == []


def test_a_running_build_of_another_file_is_left_alone(tmp_path: Path) -> None:
    """A file that is being written is no leftover."""
    process = python(KILLED, tmp_path / "m.gguf", says="building")
    build_once(tmp_path / "other.gguf", Path.touch, recipe={})
    process.communicate("")
    assert process.returncode == 0
    assert (tmp_path / "m.gguf").read_bytes() == b"half"


WAITING = "waiting for another process to finish m.gguf"
ONE_OF_TWO = """
import os, sys
from pathlib import Path
from pytest_asperf.modelfiles.cache import build_once

def build(path):
    with open(sys.argv[2], "a") as log:
        log.write(f"{os.getpid()}\\n")
    print("building", flush=True)
    sys.stdin.read()
    path.write_bytes(b"model")

def waiting(message):
    print(message, flush=True)

build_once(Path(sys.argv[1]), build, recipe={}, on_wait=waiting)
print("done", flush=True)
"""


def test_two_processes_build_once(tmp_path: Path) -> None:
    """The second one reports that it waits, and uses the first one's result."""
    target, log = tmp_path / "m.gguf", tmp_path / "log"
    first = python(ONE_OF_TWO, target, log, says="building")
    second = python(ONE_OF_TWO, target, log, says=WAITING)
    assert not target.exists()
    assert first.communicate("")[0] == "done\n"
    assert second.communicate("")[0] == "done\n"
    assert log.read_text() == f"{first.pid}\n"
    assert target.read_bytes() == b"model"


def test_the_waiting_process_builds_when_the_first_one_is_killed(tmp_path: Path) -> None:
    """A lock dies with its process, so that no other waits for a dead process."""
    target, log = tmp_path / "m.gguf", tmp_path / "log"
    first = python(ONE_OF_TWO, target, log, says="building")
    second = python(ONE_OF_TWO, target, log, says=WAITING)
    first.kill()
    first.communicate()
    assert second.communicate("")[0] == "building\ndone\n"
    assert target.read_bytes() == b"model"


FULL = """
import subprocess, sys
from pathlib import Path
import numpy as np
from pytest_asperf.errors import AsperfError
from pytest_asperf.modelfiles.cache import build_once

folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)

def in_python(path):
    path.write_bytes(bytes(2 << 20))

def in_numpy(path):
    np.zeros(2 << 20, np.uint8).tofile(path)

def in_c(path):
    try:
        in_python(path)
    except OSError:
        raise ValueError("failed to quantize: basic_ios::clear: iostream error") from None

for build in (in_python, in_numpy, in_c):
    try:
        build_once(folder / "m.gguf", build, recipe={})
    except AsperfError as error:
        print(type(error).__name__, error.what)
    print(sorted(path.name for path in folder.iterdir()))
"""


def test_a_really_full_disk(tmp_path: Path) -> None:
    """A builder that reports a full disk and one that hides it end in the same error."""
    unshare = shutil.which("unshare")
    namespace = (unshare or "", "--user", "--map-root-user", "--mount")
    if not unshare or subprocess.run([*namespace, "true"], check=False).returncode:
        pytest.skip("no private mounts on this system")
    output, _ = python(FULL, tmp_path, prefix=namespace).communicate()
    expected = f"CacheError the disk of the cache folder {tmp_path} is full\n['m.gguf.lock']\n"
    assert output == expected * 3


LIMITED = FULL.replace(
    'subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)',
    "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))",
)


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """A half file is an error of the cache, for any message of its builder."""
    output, _ = python(LIMITED, tmp_path).communicate()
    lines = output.splitlines()
    told = f"CacheError a file in the cache folder {tmp_path} could not be written whole: "
    assert all(line.startswith(told) for line in lines[::2])
    assert lines[1::2] == ["['m.gguf.lock']"] * 3
