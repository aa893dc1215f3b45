"""Every published finding that no test here measures live, judged by its recorded figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_asperf.collect import judge_finding

if TYPE_CHECKING:
    import pytest

    from pytest_asperf.claims import Finding


def test_published(request: pytest.FixtureRequest, asperf_finding: Finding) -> None:
    """The recorded figures show what the finding says, and no guard rejects them."""
    judge_finding(request.node, asperf_finding)
