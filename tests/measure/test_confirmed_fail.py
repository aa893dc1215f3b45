"""A FAIL of a gate is one only if fresh processes show it again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.workload import Workload
from pytest_asperf.measure import ab_speed
from pytest_asperf.measure.ab_speed import ABResult, Budget, SpeedExperiment, WorkloadPairs
from pytest_asperf.measure.paired_runner import Pair
from pytest_asperf.measure.results import Provenance
from pytest_asperf.verdicts.gate import speed_verdict
from tests.engine_facts import ENGINE, loaded

if TYPE_CHECKING:
    from collections.abc import Iterator

TG = Workload("tg", 8)
RAN = Provenance("m", Path("m.gguf"), "0" * 64, ENGINE, loaded(), None, EngineSettings())
SLOWER, EQUAL = 1.6, 1.0


def _measured(monkeypatch: pytest.MonkeyPatch, ratios: Iterator[float], **budget: Any) -> ABResult:
    """What an experiment comes to whose processes have these ratios of costs, one after another."""

    def time_pairs(_lease: object, _arms: object, experiment: SpeedExperiment) -> ABResult:
        pairs = WorkloadPairs(TG, ab_speed._test_of(experiment, turns=4), [])
        ratio = next(ratios)
        while pairs.test.outcome is None and len(pairs.pairs) < experiment.budget.max_pairs:
            jitter = 1 + 0.001 * (len(pairs.pairs) % 3)
            cost = round(1000 * ratio * jitter)
            pairs.add(Pair((1000,) * 4, (cost,) * 4, candidate_first=False, n_tokens=(8, 8)))
        return ABResult(
            (pairs,),
            reloads=False,
            draws_cores=False,
            budget=experiment.budget,
            ran=(RAN, RAN),
            same_tokens=True,
        )

    monkeypatch.setattr(ab_speed, "time_pairs", time_pairs)
    closed: list[int] = []
    lease = SimpleNamespace(
        sides=((None,), (None,)),
        self_check_every=None,
        idle_workers=SimpleNamespace(close=lambda: closed.append(1)),
    )
    chosen = {"tolerance": 0.05, "max_pairs": 60, "max_seconds": 9.0, "seed": 1, **budget}
    return SpeedExperiment((TG,), Budget(**chosen)).run(lease)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratios", "outcome", "n_pairs"),
    [
        ((EQUAL,), Outcome.PASS, 5),
        ((SLOWER, SLOWER), Outcome.FAIL, 5),
        ((SLOWER, EQUAL), Outcome.PASS, 13),  # 0.75 * 1.9 ** 13 > 1 / (0.008 * 0.05)
    ],
)
def test_a_slow_process_is_no_slow_build(
    monkeypatch: pytest.MonkeyPatch, ratios: tuple[float, ...], outcome: Outcome, n_pairs: int
) -> None:
    """Other processes decide, and a PASS after a FAIL takes the evidence that both errors leave."""
    left = iter(ratios)
    result = _measured(monkeypatch, left)
    (pairs,) = result.by_workload
    assert (pairs.test.outcome, len(pairs.pairs)) == (outcome, n_pairs)
    assert next(left, None) is None
    was_repeated = len(ratios) > 1
    assert (pairs.failed_before is not None) == was_repeated
    note = speed_verdict(pairs, result).note()
    assert ("5 pairs of other processes before showed a FAIL, +60" in note) == was_repeated


def test_a_fixed_number_of_pairs_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A night's pairs are as many as asked for."""
    result = _measured(monkeypatch, iter((SLOWER,)), min_pairs=9, max_pairs=9)
    assert len(result.by_workload[0].pairs) == 9
