"""The cost of a draft on another machine, computed from both variants' runs."""

import pytest

from pytest_asperf.engine_process import StepCosts
from pytest_asperf.measure.speculation_result import PromptRun, RemoteDraftingResult, SuitePair
from pytest_asperf.worker.speculation import Generation, Round


def _run(elapsed_ms: float, output: tuple[int, ...] = (1, 2, 3)) -> Generation:
    counts = Round(drafted=20, accepted=5, emitted=10, draft_ns=0, verify_ns=0, rollback_ns=0)
    return Generation(list(output), round(elapsed_ms * 1e6), [counts])


def _result(*prompts: tuple[Generation, Generation]) -> RemoteDraftingResult:
    runs = tuple(
        PromptRun(number, here, there, speculative_first=False)
        for number, (here, there) in enumerate(prompts)
    )
    return RemoteDraftingResult((SuitePair(runs, StepCosts({}, {}), 4),) * 6, ())


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
