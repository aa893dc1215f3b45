"""Gates between builds that are made on the way: a wheel, a requirement, a checkout."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.plugin.conftest import Project

pytestmark = pytest.mark.usefixtures("short_chunks")

GATE = """
def test_gate(gate):
    assert_no_regression(gate("ppl"))
"""


@pytest.fixture
def wheel(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel that brings the engine and numpy of this interpreter, without copying them."""
    monkeypatch.setenv("ASPERF_CACHE", str(project.path / "cache"))
    path = project.path / "llama_cpp_python-0.0.7-py3-none-any.whl"
    info = "llama_cpp_python-0.0.7.dist-info/"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("here.pth", str(Path(np.__file__).parents[1]))
        said = "Metadata-Version: 2.1\nName: llama-cpp-python\nVersion: 0.0.7\n"
        file.writestr(f"{info}METADATA", said)
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        file.writestr(f"{info}WHEEL", tags)
        file.writestr(f"{info}RECORD", "")
    return path


def test_a_wheel_against_this_interpreter(
    live: Project, wheel: Path, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """The wheel's environment is made, the real engine runs in it, and run record shows it."""
    live.test('@pytest.mark.quant("F16")' + GATE)
    (row,) = rows(f"--asperf-candidate=./{wheel.name}")
    assert row["outcome"] == "PASS"
    ran = dict(row["facts"])
    assert ran["candidate made"] == f"{wheel.name}: llama-cpp-python 0.0.7"
    assert "baseline made" not in ran
    assert "in ./llama_cpp_python-0.0.7" in ran["candidate model"]


def test_where_this_interpreter_has_no_engine(
    live: Project, wheel: Path, bare_python: Path
) -> None:
    """The baseline's engine makes the models then."""
    live.test('@pytest.mark.quant("F16")' + GATE)
    named = f"./{wheel.name}"
    result = live.run(
        f"--asperf-python={bare_python}",
        f"--asperf-baseline={named}",
        f"--asperf-candidate={named},threads=1",
    )
    result.assert_outcomes(passed=1)


def test_a_build_of_another_engine(project: Project) -> None:
    """A release of MLX cannot run llama.cpp's models, and nothing is installed to find out."""
    project.config(default_model="fake:F16")
    project.test(GATE)
    result = project.run("--asperf-candidate=mlx-lm==0.31.3")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*the engine is scripted, and the build mlx-lm==0.31.3 is one of mlx*"]
    )
