"""What a finding is about, and whether a test measures that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_asperf.errors import AsperfError, ElsewhereError, RoleError
from pytest_asperf.modelfiles.sizes import parameters_of
from pytest_asperf.plugin.parsing import marks_of
from pytest_asperf.plugin.selection import selection_of
from pytest_asperf.plugin.skips import skip
from pytest_asperf.plugin.stash import session_of
from pytest_asperf.published.findings.model import count_text

if TYPE_CHECKING:
    from pytest_asperf.published.findings import Finding

_ELSEWHERE = pytest.StashKey[str]()


def require_scope(item: pytest.Item, finding: Finding) -> None:
    """Skip a test where its finding is about other hardware, another engine or other models.

    `--asperf-findings=all` has it tried all the same, and reported as elsewhere.
    """
    reason = _out_of_scope(item, finding)
    session = session_of(item.config)
    if reason and session.settings.findings_scope == "here":
        skip("finding", f"the finding is about {reason}")
    if reason and session.is_live:
        item.stash[_ELSEWHERE] = reason


def elsewhere(item: pytest.Item) -> str:
    """What a test's finding is about, and what was measured instead; empty where they agree."""
    return item.stash.get(_ELSEWHERE, "")


def _out_of_scope(item: pytest.Item, finding: Finding) -> str:
    session = session_of(item.config)
    if reason := session.other_hardware(finding):
        return reason
    measures = session.is_live and item.get_closest_marker("finding")
    if not measures or not (finding.engine or finding.parameters):
        return ""
    ref = selection_of(item).judged
    engine = ref.spec.engine or session.settings.engine
    if not finding.suits_engine(engine):
        about = "a server at a URL (--asperf-url)" if finding.engine == "openai" else finding.engine
        return f"{about}, this is {engine}"
    if finding.parameters is None:
        return ""
    number, (least, most) = parameters_of(ref.spec), finding.parameters
    if number is not None and least <= number <= most:
        return ""
    has = "an unknown number" if number is None else count_text(number)
    return f"{finding.sizes}, {ref.spec.name} has {has}"


def unfilled(item: pytest.Item, error: BaseException | None) -> str:
    """Why a test cannot be measured here, or with the models named; empty if it can."""
    if isinstance(error, RoleError):
        return error.what
    if isinstance(error, ElsewhereError):
        return f"{error.what}; {error.remedy}"
    if not isinstance(error, AsperfError) or not error.is_unfit or not (roles := _roles(item)):
        return ""
    what = error.what.removeprefix(f"{item.nodeid}: ")
    return f"{what}; --asperf-role {roles[0]}=ADDRESS names another model"


def _roles(item: pytest.Item) -> list[str]:
    """The roles that a test's markers ask for, the measured model's first."""
    try:
        marks = marks_of(item)
    except AsperfError:  # the test's own set-up reports it
        return []
    measured = [marks.model.address] if marks.model else []
    addresses = (*measured, *sorted(marks.addresses, key=str))
    return [address.role for address in addresses if address.role]
