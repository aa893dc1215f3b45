"""Mutated findings and published figures are read, or rejected in asperf's words; nothing else.

`tests/reliability/test_fuzz.py` has the mutations, and all other kinds of input.
"""

from pathlib import Path
from typing import Final

import pytest

import pytest_asperf
from pytest_asperf.published.findings.load import parse_findings
from pytest_asperf.published.records.load import parse_recorded, shipped_records
from tests.reliability import test_fuzz as fuzz


def _texts(folder: str) -> list[bytes]:
    data = Path(pytest_asperf.__file__).parent / "data" / folder
    return [path.read_bytes() for path in sorted(data.glob("*.toml"))]


_FINDINGS: Final = _texts("findings")
_RECORDED: Final = _texts("recorded")
#: The share of all inputs.
_SHARE: Final = 0.1


def _read(ground: fuzz.Ground) -> None:
    findings = ground.chance.random() < 0.5
    whole = ground.chance.choice(_FINDINGS if findings else _RECORDED)
    # One entry: changes in a whole file would mostly break its first lines.
    entry = b"[[finding]]" if findings else b"[[table]]"
    first, *others = whole.split(entry)
    chosen = entry + ground.chance.choice(others)
    text = fuzz.mutated(ground.chance, chosen).decode(errors="replace")
    schema = b"schema = 1\n" if findings else first
    text = schema.decode() + text
    if findings:
        parse_findings([("mine.toml", text)], shipped_records())
    else:
        parse_recorded([("mine.toml", text)])


def test_mutated_statements_are_read_or_refused(
    ground: fuzz.Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each input ends in a value or in an error of ours, within the deadline."""
    fuzz.require_read_or_refused(ground, "findings", _read, _SHARE, capsys)


def test_statements_as_they_were_are_read(
    ground: fuzz.Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutated input is sound: the mutation is rejected, and not its ground."""
    fuzz.require_sound(ground, _read, monkeypatch)
