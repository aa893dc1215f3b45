"""The plugin is loaded in every pytest run of its user's environment; most measure nothing."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import pytest_asperf

pytestmark = pytest.mark.usefixtures("own_interpreters")

HEAVY = {
    *("filelock", "gguf", "llama_cpp", "matplotlib", "mlx", "mlx_lm", "numpy", "platformdirs"),
    *("psutil", "rich", "scipy", "sqlalchemy", "typer", "pydantic", "click"),
}
PLUGINS = [name for name in ("pytest_asperf.plugin", "pytest_asperf.published") if find_spec(name)]
LOADED = {
    "pytest_asperf",
    "pytest_asperf.config",
    "pytest_asperf.config.settings",
    "pytest_asperf.plugin.registration",
    "pytest_asperf.plugin.fixtures",
    "pytest_asperf.plugin.stash",
    *PLUGINS,
}
PROJECT = {
    "test_it.py": "def test_it():\n    assert True\n",
    "conftest.py": (
        "import json, sys\n"
        "from pathlib import Path\n"
        "def pytest_unconfigure():\n"
        "    Path('loaded.json').write_text(json.dumps(sorted(sys.modules)))\n"
    ),
}


@pytest.fixture
def loaded(tmp_path: Path) -> set[str]:
    """Run pytest on a project that does not use the plugin; return the modules at its end."""
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(text)
    elsewhere = {name: str(tmp_path) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *(f"-p{name}" for name in ("no:cacheprovider", *PLUGINS))],
        cwd=tmp_path,
        env={
            **os.environ,
            **elsewhere,
            # Other plugins of this environment would be blamed on ours, or hide it.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(Path(pytest_asperf.__file__).parents[1]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    return set(json.loads((tmp_path / "loaded.json").read_text()))


def test_a_run_without_us_loads_nothing_heavy(loaded: set[str]) -> None:
    """No engine, no arithmetic and no store is loaded before a test needs it."""
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()


def test_a_run_without_us_loads_the_hooks_alone(loaded: set[str]) -> None:
    """The plugin's own rooms stay closed too."""
    assert {name for name in loaded if name.startswith("pytest_asperf")} == LOADED


@pytest.mark.usefixtures("loaded")
def test_a_run_without_us_writes_nothing(tmp_path: Path) -> None:
    """Neither the home, nor the cache, nor the project has a new file."""
    assert {path.name for path in tmp_path.rglob("*")} == {*PROJECT, "loaded.json"}


def test_help_loads_nothing_heavy() -> None:
    """`asperf --help` lists all commands, and imports no single command's needs."""
    code = "import sys, pytest_asperf.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded & (HEAVY | {"pytest"}) == {"click"}


def test_a_worker_starts_with_nothing_heavy() -> None:
    """A gate starts several: imports for scoring only are not loaded before."""
    code = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "import pytest_asperf.worker.main, pytest_asperf.worker.scripted_engine\n"
        "print({'numpy', 'logging', 'concurrent.futures'} & set(sys.modules))"
    )
    command = [sys.executable, "-I", "-c", code, str(Path(pytest_asperf.__file__).parents[1])]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout == b"set()\n"
