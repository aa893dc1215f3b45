"""Each setting is declared once, and everything that a user meets of it comes from there."""

from dataclasses import fields
from pathlib import Path

import pytest

import pytest_asperf
from pytest_asperf.analysis.guards.surroundings import CV_LIMIT
from pytest_asperf.config.settings import (
    DECLARED,
    OPTIONS,
    Settings,
    default_text,
    help_text,
    parse_values,
    rule_of,
)

ROOT = Path(pytest_asperf.__file__).parent


@pytest.mark.parametrize("key", DECLARED)
def test_a_setting_has_a_rule_and_words(key: str, tmp_path: Path) -> None:
    """Its rule states the accepted values, and its help is one short line."""
    assert rule_of(key, tmp_path).accepts
    assert 0 < len(help_text(key)) < 150
    assert "\n" not in help_text(key)


def test_every_field_is_declared() -> None:
    """No setting has a default alone."""
    assert [field.name for field in fields(type(Settings()))] == list(DECLARED)
    assert len(set(OPTIONS.values())) == len(OPTIONS)


@pytest.mark.parametrize("key", ["tolerance", "max_cv", "wait"])
def test_a_default_in_words_is_the_default(key: str, tmp_path: Path) -> None:
    """If the help prints another text than the value, the text means that value."""
    read = parse_values({key: default_text(key)}, where=str, folder=tmp_path)
    assert read[key] == getattr(Settings(), key)


def test_the_guard_has_the_default_of_the_setting() -> None:
    """A guard without a limit uses the one that a session has by default."""
    assert Settings().max_cv == CV_LIMIT
