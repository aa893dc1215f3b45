from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from pytest_asperf.cli import app

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_table_names_every_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`asperf findings` ends with the count, and fits 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(app, ["findings"])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert "PASS" in lines[-2]
    assert "INVALID" in lines[-2]
    assert max(map(len, lines)) <= 80


def test_a_projects_own_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What asperf.toml names counts here too, and a mistake in it is told."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "asperf.toml").write_text('findings = ["mine.toml"]\n')
    result = CliRunner().invoke(app, ["findings"])
    assert "mine.toml cannot be read" in str(result.exception)
