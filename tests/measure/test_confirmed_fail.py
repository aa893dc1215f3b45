"""A FAIL of kept processes is one only if others show it again."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_asperf.analysis.outcome import Decision
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.workload import Workload
from pytest_asperf.measure import ab_speed
from pytest_asperf.measure.ab_speed import ABResult, Budget, SpeedExperiment, WorkloadPairs
from pytest_asperf.measure.experiment import MeasurementPlan
from pytest_asperf.measure.paired_runner import Pair
from pytest_asperf.measure.results import Provenance
from pytest_asperf.report.result_text import in_words
from pytest_asperf.report.verdict_text import lab_note
from pytest_asperf.verdicts.gate import speed_verdict
from tests.engine_facts import ENGINE, loaded

TG = Workload("tg", 8)
RAN = Provenance("m", Path("m.gguf"), "0" * 64, ENGINE, loaded(), None, EngineSettings())
SLOWER, EQUAL = 1.6, 1.0


def _measured(
    monkeypatch: pytest.MonkeyPatch,
    ratios: Iterator[float],
    *,
    renews: bool = False,
    **budget: Any,
) -> ABResult:
    """The result of an experiment whose processes have these ratios of costs, one after another."""

    def time_pairs(_lease: object, _arms: object, experiment: SpeedExperiment) -> ABResult:
        pairs = WorkloadPairs(TG, experiment.test_of(turns=4, unit=TG.unit), [])
        ratio = next(ratios)
        while pairs.test.outcome is None and len(pairs.pairs) < experiment.budget.max_pairs:
            jitter = 1 + 0.001 * (len(pairs.pairs) % 3)
            cost = round(1000 * ratio * jitter)
            sides = (1000,) * 4, (cost,) * 4
            is_renewed = renews or not pairs.pairs
            pairs.add(Pair(*sides, candidate_first=False, is_renewed=is_renewed))
        return ABResult(
            (pairs,),
            draws_cores=False,
            budget=experiment.budget,
            ran=(RAN, RAN),
            same_tokens=True,
        )

    monkeypatch.setattr(ab_speed, "time_pairs", time_pairs)
    lease = SimpleNamespace(sides=((None,), (None,)), plan=MeasurementPlan())
    chosen = {"tolerance": 0.05, "max_pairs": 60, "max_seconds": 9.0, "seed": 1, **budget}
    return SpeedExperiment((TG,), Budget(**chosen)).run(lease)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratios", "outcome", "n_pairs"),
    [
        ((EQUAL,), Decision.PASS, 5),
        ((SLOWER, SLOWER), Decision.FAIL, 7),  # 0.9 * 1.96 ** 7 > 100
        ((SLOWER, EQUAL), Decision.PASS, 5),
    ],
)
def test_a_slow_process_is_no_slow_build(
    monkeypatch: pytest.MonkeyPatch, ratios: tuple[float, ...], outcome: Decision, n_pairs: int
) -> None:
    """Fresh processes decide after a FAIL, and the verdict's line has their small number."""
    left = iter(ratios)
    result = _measured(monkeypatch, left)
    (pairs,) = result.by_workload
    assert (pairs.test.outcome, len(pairs.pairs), pairs.n_processes) == (outcome, n_pairs, 1)
    assert next(left, None) is None
    verdict = speed_verdict(pairs, result)
    assert (
        "1 process of each build, how processes differ is not covered" in in_words(verdict).measured
    )
    assert verdict.figures[0].estimate.basis == f"{n_pairs} pairs of 1 process"
    was_repeated = len(ratios) > 1
    assert (pairs.failed_before is not None) == was_repeated
    note = lab_note(verdict)
    assert ("7 pairs of other processes before showed a FAIL, +60" in note) == was_repeated


def test_a_fail_of_new_processes_needs_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair has shown it in processes of its own, and the verdict has no reservation."""
    result = _measured(monkeypatch, iter((SLOWER,)), renews=True)
    (pairs,) = result.by_workload
    assert (pairs.test.outcome, pairs.n_processes) == (Decision.FAIL, 7)
    verdict = speed_verdict(pairs, result)
    assert "process" not in in_words(verdict).measured
    assert verdict.figures[0].estimate.basis == "7 pairs"


def test_a_fixed_number_of_pairs_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A nightly run's pairs are as many as requested."""
    result = _measured(monkeypatch, iter((SLOWER,)), min_pairs=9, max_pairs=9)
    assert len(result.by_workload[0].pairs) == 9
