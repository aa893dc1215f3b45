"""`asperf builds`: declared and made builds, making, and pruning."""

import json
import os
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pytest_asperf.cli import app


class Asperf:
    """Runs the command in the project of the working folder."""

    def __init__(self, folder: Path) -> None:
        self.kept = folder / "cache" / "builds"

    def __call__(self, *words: str) -> Result:
        """Run it to its end."""
        return CliRunner().invoke(app, ["builds", *words])

    def folders(self) -> list[Path]:
        """Return the folders of builds."""
        return [path for path in self.kept.iterdir() if path.is_dir()]


@pytest.fixture
def asperf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asperf:
    """The command, in a project that declares a wheel of this interpreter's own llama_cpp."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASPERF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "pytest_asperf.hardware.machine_lock.machine_lock_path", lambda: tmp_path / "lock"
    )
    pytest.importorskip("llama_cpp")
    name = "llama_cpp_python-0.0.7"
    site = Path(pytest.importorskip("numpy").__file__).parents[1]
    with zipfile.ZipFile(tmp_path / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("here.pth", str(site))
        info = "Metadata-Version: 2.1\nName: llama-cpp-python\nVersion: 0.0.7\n"
        wheel.writestr(f"{name}.dist-info/METADATA", info)
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{name}.dist-info/WHEEL", tags)
        wheel.writestr(f"{name}.dist-info/RECORD", "")
    (tmp_path / "asperf.toml").write_text(
        f'[builds.new]\nrequirements = ["./{name}-py3-none-any.whl"]\n'
        '[builds.gone]\nrequirements = ["./gone-1-py3-none-any.whl"]\n'
        '[builds.lost]\ncheckout = "."\ncommit = "b1"\n'
    )
    return Asperf(tmp_path)


def test_nothing_is_made_yet(asperf: Asperf) -> None:
    """Declared builds are listed, and broken ones have their reason."""
    done = asperf()
    assert done.exit_code == 0, done.output
    assert "new" in done.stdout
    assert "not made yet" in done.stdout
    assert "there is no file" in done.stdout
    assert "is not a git checkout" in done.stdout
    assert "0 builds, 0 MiB" in done.stdout


def test_a_build_is_made_listed_and_pruned(asperf: Asperf) -> None:
    """Its engine is started once it is made; it goes only if that is confirmed."""
    done = asperf("make", "new")
    assert done.exit_code == 0, done.output
    assert "llama_cpp: llama-cpp-python 0.0.7" in done.stdout
    assert "ggml commit" in done.stdout  # by the engine itself
    (folder,) = asperf.folders()
    (asperf.kept / "half-000000000000").mkdir()

    listed = asperf("list").stdout
    assert f"made: {folder.name}" in listed
    assert "not finished" in listed
    assert "2 builds" in listed
    models = CliRunner().invoke(app, ["models", "verify"])
    assert "0 files, 0 broken" in models.stdout

    assert "nothing is removed without --yes" in asperf("prune", "--all").stdout
    assert len(asperf.folders()) == 2
    assert "removed 1 builds" in asperf("prune", "--yes").stdout
    assert asperf.folders() == [folder]
    assert "removed 0 builds" in asperf("prune", "--older-than=1", "--yes").stdout
    os.utime(folder / "made.json", (0, 0))
    assert "removed 1 builds" in asperf("prune", "--older-than=30", "--yes").stdout
    assert asperf.folders() == []


def test_libraries_alone_are_loaded(asperf: Asperf, tmp_path: Path) -> None:
    """A release without programs is no good build before its libraries were loaded."""
    with zipfile.ZipFile(tmp_path / "llama-b9000-bin-x64.zip", "w") as release:
        release.writestr("bin/libllama.so", Path(sys.executable).read_bytes())
    done = asperf("make", "llama-b9000-bin-x64.zip")
    assert done.exit_code == 4
    assert "cannot use the libraries of" in " ".join(done.output.split())


def test_again_makes_it_anew(asperf: Asperf) -> None:
    """A record has a build's time, and by --again that is now."""
    asperf("make", "new")
    (folder,) = asperf.folders()
    first = json.loads((folder / "made.json").read_text())["made_at"]
    asperf("make", "new")
    assert json.loads((folder / "made.json").read_text())["made_at"] == first
    asperf("make", "new", "--again")
    assert json.loads((folder / "made.json").read_text())["made_at"] > first


@pytest.mark.parametrize(
    ("build", "code", "told"),
    [
        ("gone", 4, "there is no file"),
        ("nwe", 3, "did you mean 'new'"),
        ("current", 3, "current exists already"),
        ("lama-cpp-python==0.3.35", 3, "did you mean 'llama-cpp-python'"),
    ],
)
def test_what_cannot_be_made(asperf: Asperf, build: str, code: int, told: str) -> None:
    """Each is an error of four parts, and nothing is left."""
    done = asperf("make", build)
    assert done.exit_code == code, done.output
    assert told in done.output
    assert "what to do:" in done.output
    assert not asperf.kept.exists()
