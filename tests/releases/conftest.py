"""Real releases of both engines, each in an environment of its own that is kept in the cache.

They are installed from the package index, and llama-cpp-python compiles for minutes the first time:
run with ASPERF_TEST_BUILDS=1, as `tox run -e builds` does.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_asperf.builds.build_cache import BuildCache
from pytest_asperf.config.build_sources import parse_table
from pytest_asperf.config.engines import Engine
from pytest_asperf.config.progress import Notify
from pytest_asperf.config.spec import Build
from pytest_asperf.engine_process import EngineBuild
from pytest_asperf.hardware.machine_lock import machine_lock_path
from pytest_asperf.modelfiles.cache import cache_root

HERE = Path(__file__).parent

#: On Linux mlx has a backend by an extra only, and mlx-lm 0.28 has no extra that requires it.
_REQUIREMENTS: dict[Engine, tuple[str, ...]] = {
    "llama_cpp": ("llama-cpp-python",),
    "mlx": ("mlx-lm", "mlx[cpu]" if sys.platform == "linux" else "mlx"),
}
#: Gives the release of an engine, made if need be.
Release = Callable[["Engine", str], "EngineBuild"]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip these tests, unless they are requested."""
    item.add_marker("builds")
    if os.environ.get("ASPERF_TEST_BUILDS") != "1":
        item.add_marker(pytest.mark.skip(reason="ASPERF_TEST_BUILDS is not 1"))


@pytest.fixture(scope="session")
def build_cache() -> BuildCache:
    """The maker of builds: its cache is the user's, so that each is made once."""
    return BuildCache(cache_root(os.environ), lock_path=machine_lock_path(), notify=Notify())


@pytest.fixture(scope="session")
def release(build_cache: BuildCache) -> Release:
    """Return a function that gives a release of an engine, by its version."""

    def made(engine: Engine, version: str) -> EngineBuild:
        name, *others = _REQUIREMENTS[engine]
        requirements = [f"{name}=={version}", *others]
        source = parse_table({"requirements": requirements}, HERE, where="tests/releases")
        return build_cache.ready(Build(requirements[0], source), engine).engine

    return made
