import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import pytest_asperf
from tests.commands.conftest import Ended

RECORDED = Path(__file__).parents[2] / "fixtures" / "audit"
GOOD = "model,n_gen,avg_tps,stddev_tps\nA,128,60,0.3\n"
SPREAD = "model,n_gen,avg_tps,stddev_tps\nA,128,60,13\n"


def in_a_process(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a folder, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "pytest_asperf.cli", "audit", *words],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(pytest_asperf.__file__).parents[1]),
            "PYTHONIOENCODING": "utf-8",
            **env,
        },
        capture_output=True,
        check=False,
        timeout=60,
    )


@pytest.mark.skipif(not Path("/proc/kmsg").is_file(), reason="this system has no /proc/kmsg")
def test_a_regular_file_without_end_is_not_read(tmp_path: Path) -> None:
    """The kernel's log counts as a regular file, and blocks its reader."""
    done = in_a_process(tmp_path, "/proc/kmsg")
    assert b"the file is empty" in done.stdout


@pytest.fixture
def audit(
    folder: Path, run_asperf: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ended]:
    """The command, in that folder."""
    monkeypatch.chdir(folder)
    return lambda *words: run_asperf("audit", *words)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a sound file, one of too much spread and one of no tool."""
    (tmp_path / "good.csv").write_text(GOOD)
    (tmp_path / "spread.csv").write_text(SPREAD)
    (tmp_path / "notes.txt").write_text("remember the milk\n")
    return tmp_path


@pytest.mark.parametrize(
    ("files", "code", "last"),
    [
        (["good.csv"], 0, "1 file read; no guard tripped"),
        (["good.csv", "spread.csv"], 2, "2 files read; 1 INCONCLUSIVE"),
        (["good.csv", "notes.txt"], 3, "1 file read, 1 not; no guard tripped"),
        (["spread.csv", "missing"], 3, "1 file read, 1 not; 1 INCONCLUSIVE"),
    ],
)
def test_the_exit_code_tells_sound_from_broken_from_unread(
    audit: Callable[..., Ended], files: list[str], code: int, last: str
) -> None:
    """0 is returned only if everything was read and is sound."""
    done = audit(*files)
    assert done.returncode == code
    assert done.stdout.splitlines()[-1] == last
    assert done.stderr == ""


def test_json_is_one_document_with_the_same_answer(audit: Callable[..., Ended]) -> None:
    """Figures come with interval, count, unit and confidence, trips with guard and remedy."""
    done = audit("spread.csv", str(RECORDED / "mlx_benchmark.txt"), "--report=json:-")
    answer = json.loads(done.stdout)
    assert done.returncode == answer["exit_code"] == 2
    spread, mlx = answer["files"]
    assert spread["trips"][0]["guard"] == "spread"
    assert spread["trips"][0]["consequence"] == "INCONCLUSIVE"
    assert (
        spread["trips"][0]["remedy"]
        == "quieten the machine (asperf doctor) and repeat, or accept it: max_cv in [tool.asperf]"
    )
    assert "do: quieten the machine" in audit("spread.csv").stdout
    generated = mlx["figures"][0]
    assert (generated["n"], generated["unit"], generated["confidence"]) == (5, "tok/s", 0.9)
    assert generated["interval"][0] < generated["point"] < generated["interval"][1]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--hardware=m2ultr"], "did you mean 'm2ultra'?"),
        (["--confidence=95"], '"95%" or 0.95'),
        (["--confidence=100%"], "--confidence=1.0 is not between 0 and 1"),
        (["--model=good.csv"], "good.csv"),
        (["--repetitions=0"], "--repetitions"),
    ],
)
def test_a_wrong_option_is_an_error_that_names_it(
    audit: Callable[..., Ended], words: list[str], error: str
) -> None:
    """A typo ends with 2 before anything is read."""
    done = audit("good.csv", *words)
    assert done.returncode == 3
    assert error in done.stderr
    assert done.stdout == ""


def test_what_a_file_says_cannot_reach_the_terminal(folder: Path) -> None:
    """Escape sequences are shown as text, for any encoding of the output."""
    (folder / "evil.csv").write_text(
        "model,n_gen,avg_tps\n\x1b]0;owned\x07\x1bZ\x07[bold]é,128,60\n"
    )
    done = in_a_process(folder, "evil.csv", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert b"\\x1bZ\\x07[bold]\\xe9" in done.stdout
    assert b"\x1b" not in done.stdout
