"""A session over tests with bad input: each is an error of its own, and disturbs no other."""

import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import pytest


def cases_of(
    command: Sequence[str], folder: Path, environment: dict[str, str]
) -> dict[str, ET.Element]:
    """Run a folder's tests, of which some fail: by name, each one's element of the JUnit report."""
    done = subprocess.run(
        [*command, "--junitxml=junit.xml", "-q"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    cases = ET.parse(folder / "junit.xml").getroot().iter("testcase")  # noqa: S314  # our own
    return {case.attrib["name"]: case for case in cases}


def assert_told(case: ET.Element, phase: str, parts: Sequence[str]) -> None:
    """Assert that a test fails in a phase, with a message that has parts and no traceback."""
    (element,) = (child for child in case if child.tag != "properties")
    text = element.text or ""
    assert element.tag == phase, text
    for part in (*parts, "\n  what to do:     "):
        assert part in text
    assert "Traceback" not in text
    assert "pytest_asperf/" not in text.partition("\n")[0].replace("pytest_asperf/data", "")
