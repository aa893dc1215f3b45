"""The cost of a draft on another machine, computed from both variants' runs."""

from __future__ import annotations

import pytest

from pytest_asperf.measure.remote_drafting import DraftedRun, RemoteDraftingResult


def _run(elapsed_ms: float, output: tuple[int, ...] = (1, 2, 3)) -> DraftedRun:
    return DraftedRun(
        output, emitted=10, drafted=20, accepted=5, elapsed_ns=round(elapsed_ms * 1e6)
    )


def _result(*prompts: tuple[DraftedRun, DraftedRun]) -> RemoteDraftingResult:
    return RemoteDraftingResult((prompts,) * 6, ())


def test_the_overhead_is_the_extra_time_over_what_was_counted() -> None:
    """10 ms for 10 tokens here and 50 ms there: 4 ms a token, 2 ms a drafted one, -80 % of TG."""
    result = _result((_run(4), _run(20)), (_run(16), _run(80)))
    assert result.change.point == pytest.approx(-0.8)
    assert result.per_token.point == pytest.approx(4.0)
    assert result.per_token.unit == "ms"
    assert result.per_drafted_token.point == pytest.approx(2.0)
    assert result.per_drafted_token.has_interval
    assert result.row(1) == "200.0 tok/s, 25.0 % of drafts accepted"
    assert not result.guard_findings


def test_other_output_is_no_overhead() -> None:
    """Variants that generate different tokens did different work: each prompt is named once."""
    result = _result((_run(4), _run(20)), (_run(4), _run(20, (1, 2, 9))))
    (finding,) = result.guard_findings
    assert finding.guard == "divergent-output"
    assert "prompt 2: from position 2 on" in finding.found
