"""The shared parts of the hardware tests: saved tool outputs, and trees of system files."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

_RECORDED = Path(__file__).parents[2] / "fixtures" / "hardware"


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], str]:
    """Read one saved output by its path below ``fixtures/hardware``."""

    def read(name: str) -> str:
        return (_RECORDED / name).read_text(encoding="utf-8")

    return read


@pytest.fixture
def system_tree(tmp_path: Path) -> Callable[[Mapping[str, str]], Path]:
    """Write system files below a root of their own and return the root."""

    def write(files: Mapping[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n", encoding="utf-8")
        return tmp_path

    return write
