"""The pages of the reference, which have the plugin's command, assertion and findings too."""

import runpy
from pathlib import Path

from tests.test_quantities_page import WRITER


def test_the_reference_is_current() -> None:
    """Each page equals the generated one; otherwise run `python docs/reference.py`."""
    files: dict[Path, str] = runpy.run_path(str(WRITER))["files"]()
    assert {file.name for file in files} >= {"api.md", "commands.md", "findings.md", "guards.md"}
    stale = [file.name for file, text in files.items() if file.read_text("utf-8") != text]
    assert stale == []
