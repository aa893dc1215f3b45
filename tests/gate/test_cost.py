"""The expected cost of a gate, from calibrations."""

import pytest

from pytest_asperf.analysis.stats.sequential import detectable_tolerance, pairs_deciding
from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.config.workload import Workload
from pytest_asperf.gate.cells import GateCell, GateCheck
from pytest_asperf.gate.schedule import cost_text, expected_costs
from pytest_asperf.measure.ab_speed import Budget
from pytest_asperf.measure.noise import Calibration

REF = ModelRef(ModelSpec("m"))
TG, PP, DEEP = (
    GateCell(REF, w) for w in (Workload("tg", 128), Workload("pp", 512), Workload("tg", 128, 1024))
)
PPL = GateCell(REF, GateCheck.PPL)
BUDGET = Budget(0.05, 60, 300.0, seed=1)


def _known(workload: str, spread: float) -> Calibration:
    nothing = (0.0, -0.1, 0.1, None, 20)
    return Calibration(workload, "e", "m", "aa", spread, *nothing, "2026-01-02", 0.5)


@pytest.mark.parametrize("spread", [0.001, 0.02, 0.05])
def test_the_pairs_are_those_of_the_detectable_tolerance(spread: float) -> None:
    """So many pairs can decide the tolerance, and one less cannot."""
    pairs = pairs_deciding(spread, 0.05)
    assert detectable_tolerance(spread, pairs) <= 0.05
    assert pairs == 1 or detectable_tolerance(spread, pairs - 1) > 0.05


def test_each_cell_takes_the_noise_most_like_its_own() -> None:
    """It is of its workload, otherwise of its kind; pairs are bounded from both ends."""
    costs = expected_costs(
        (TG, PP, DEEP, PPL), [_known("tg128", 0.02), _known("pp512", 0.5)], BUDGET
    )
    assert {cell.name: cost.pairs for cell, cost in costs.items()} == {
        "tg128": 5,
        "pp512": 60,
        "tg128@d1024": 5,
    }
    assert [cost.is_own for cost in costs.values()] == [True, True, False]
    quiet = expected_costs((TG,), [_known("tg128", 0.0)], BUDGET)
    assert quiet[TG].pairs == 5
    assert quiet[TG].seconds == 2.5


def test_the_sentence_says_what_it_rests_on() -> None:
    """Checks times pairs times seconds, the noise, and the missing parts."""
    cells = (TG, DEEP, PPL)
    text = cost_text(cells, expected_costs(cells, [_known("tg128", 0.02)], BUDGET))
    assert text.startswith(
        "expected here of equal builds: about 5 s for 2 timed checks, 5 pairs a check"
    )
    assert "(tg128 2 % of 2026-01-02, 1 of them assumed to be like it)" in text
    assert text.endswith("1 check that is not timed, and loads, come on top")


def test_without_usable_noise_nothing_is_said() -> None:
    """Without a calibration there is no estimate."""
    assert cost_text((TG,), expected_costs((TG,), [], BUDGET)) == ""
