"""Every shipped engine keeps the protocol, in its own process."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.engine_process import EngineBuild
from pytest_asperf.engine_process.process import _BOOTSTRAP, _WORKER_FOLDER
from pytest_asperf.modelfiles.hub_cache import shipped_models
from pytest_asperf.testing import ConformanceError, check_engine, write_script
from tests.sabotaged_library import write_sabotaged
from tests.served import write_llama_server

pytestmark = pytest.mark.usefixtures("own_interpreters")

PYTHON = Path(sys.executable)


def test_the_scripted_engine_conforms(tmp_path: Path) -> None:
    """The scripted engine passes the check that real engines must pass."""
    script = write_script(tmp_path / "model.json")
    check_engine(EngineBuild("scripted", PYTHON), script)


def test_an_engine_whose_levels_disagree_with_themselves_does_not(tmp_path: Path) -> None:
    """An engine that gives one model two distributions is caught."""
    script = write_script(tmp_path / "model.json", faults={"score": "drift"})
    with pytest.raises(ConformanceError, match="KLD against itself"):
        check_engine(EngineBuild("scripted", PYTHON), script)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("unseen", "shows no logits"),
        ("stale", "not those after the last token"),
        ("nan", "are not finite"),
        ("inf", "are not finite"),
        ("flat", "are all equal"),
    ],
)
def test_an_engine_that_hides_its_logits_does_not(tmp_path: Path, fault: str, says: str) -> None:
    """Each timed run shows the logits after its own last token."""
    script = write_script(tmp_path / "model.json", faults={"logits": fault})
    with pytest.raises(ConformanceError, match=says):
        check_engine(EngineBuild("scripted", PYTHON), script)


def test_llama_cpp_conforms(draft_gguf: Path) -> None:
    """llama.cpp passes on a real model."""
    check_engine(EngineBuild("llama_cpp", PYTHON), draft_gguf, EngineSettings(threads=1))


def test_mlx_conforms(mlx: EngineBuild) -> None:
    """MLX passes on a real model, as it is in its folder."""
    (draft,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    assert draft.hf_folder is not None
    check_engine(mlx, draft.hf_folder)


def test_llama_tools_conforms(tools: Path, draft_gguf: Path) -> None:
    """llama.cpp's binaries pass, and reject their missing features by name."""
    check_engine(EngineBuild("llama_tools", PYTHON, tools), draft_gguf, EngineSettings(threads=1))


@pytest.mark.serial  # tokens must not wait for a busy core and come together
def test_llama_server_conforms(program: Callable[[str], Path], draft_gguf: Path) -> None:
    """llama-server answers every kind of request."""
    tools = program("llama-server").parent
    settings = EngineSettings(threads=1, parallel=2)
    check_engine(EngineBuild("llama_server", PYTHON, tools), draft_gguf, settings)


@pytest.mark.serial  # tokens must not wait for a busy core and come together
def test_llama_cpp_server_conforms(draft_gguf: Path) -> None:
    """llama-cpp-python's server answers every kind of request, two users in turn."""
    if find_spec("llama_cpp") is None or find_spec("sse_starlette") is None:
        pytest.skip("llama-cpp-python[server] is not installed")
    check_engine(EngineBuild("llama_cpp_server", PYTHON), draft_gguf, EngineSettings(threads=1))


@pytest.mark.serial  # tokens must not wait for a busy core and come together
def test_mlx_server_conforms(mlx: EngineBuild) -> None:
    """mlx-lm's server answers every kind of request."""
    (draft,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    assert draft.hf_folder is not None
    check_engine(replace(mlx, engine="mlx_server"), draft.hf_folder)


def test_a_server_of_words_conforms(tmp_path: Path) -> None:
    """So does a program that speaks as llama-server does; one with cached prompts does not."""
    write_llama_server(tmp_path)
    check_engine(EngineBuild("llama_server", PYTHON, tmp_path), Path("/models/some.gguf"))
    write_llama_server(tmp_path, cached=40)
    with pytest.raises(ConformanceError, match=r"pp64: \[40\] tokens of prompts were cached"):
        check_engine(EngineBuild("llama_server", PYTHON, tmp_path), Path("/models/some.gguf"))


def test_the_worker_imports_nothing_of_the_parent() -> None:
    """An engine's process has neither this package nor pytest."""
    show = "print([m for m in sys.modules if m.startswith(('pytest', '_pytest'))])"
    with Path(os.devnull).open("r+b") as null:
        command = [sys.executable, "-I", "-c", f"{_BOOTSTRAP}\n{show}"]
        fds = [str(null.fileno()), str(null.fileno()), "1"]
        done = subprocess.run(
            [*command, str(_WORKER_FOLDER), "scripted", "0", *fds],
            pass_fds=[null.fileno()],
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout == "[]\n"


def test_an_engine_that_skips_work_does_not_conform(mlx: EngineBuild, tmp_path: Path) -> None:
    """An engine that decodes the end of a prompt alone is caught by the prompt's state."""
    (draft,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    assert draft.hf_folder is not None
    sabotaged = replace(mlx, python=write_sabotaged(tmp_path, "end_only", "mlx"))
    with pytest.raises(ConformanceError, match=r"prompt at depth 0: .* the engine's memory has 16"):
        check_engine(sabotaged, draft.hf_folder)
