"""The shipped draft as files of every kind, made once a session into one cache."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_asperf.host import EngineBuild

#: Gives the shipped draft's GGUF file at a level.
Draft = Callable[[str], Path]


@pytest.fixture(scope="session")
def mlx() -> EngineBuild:
    """MLX in this interpreter; what needs it is skipped where it is not installed."""
    from pytest_asperf.host import EngineBuild

    if find_spec("mlx_lm") is None:
        pytest.skip("mlx-lm is not installed")
    return EngineBuild("mlx", Path(sys.executable))


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests: what is made or measured once is made once."""
    return tmp_path_factory.mktemp("asperf-cache")


@pytest.fixture(scope="session")
def draft(session_cache: Path) -> Draft:
    """Return a function that gives the shipped draft at a level; not to be changed."""
    from pytest_asperf.host import EngineBuild
    from pytest_asperf.measure.files import ModelShelf
    from pytest_asperf.modelfiles.shipped import shipped_models
    from pytest_asperf.spec import ModelRef

    (spec,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    build = EngineBuild("llama_cpp", Path(sys.executable))
    shelf = ModelShelf(build, cache=session_cache, call_timeout_s=120)
    return lambda level: shelf.locate(ModelRef(spec, level)).path


@pytest.fixture(scope="session")
def draft_gguf(draft: Draft) -> Path:
    """The shipped draft as F16; not to be changed."""
    return draft("F16")


@pytest.fixture(scope="session")
def tools() -> Path:
    """A folder of llama.cpp's real programs, of the same sources as the library."""
    named = os.environ.get("ASPERF_TEST_TOOLS")
    if not named:
        pytest.skip("ASPERF_TEST_TOOLS names no folder of llama.cpp's programs")
    return Path(named)
