from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_asperf.audit.known import Options
from pytest_asperf.audit.result import Audit
from pytest_asperf.audit.together import audit

RECORDED = Path(__file__).parents[2] / "fixtures" / "audit"


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], str]:
    """Return the function that reads one tool's saved output by its name."""
    return lambda name: (RECORDED / name).read_text(encoding="utf-8")


@pytest.fixture
def audit_of(tmp_path: Path) -> Callable[..., Audit]:
    """Return the function that audits texts as files of the given names."""

    def of(files: dict[str, str | bytes], options: Options | None = None) -> Audit:
        paths = []
        for name, text in files.items():
            path = tmp_path / name
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            paths.append(path)
        return audit(paths, options or Options())

    return of
