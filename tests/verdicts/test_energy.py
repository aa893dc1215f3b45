"""Verdicts of gates on energy, from windows made up for each case."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_asperf.analysis.facts import MomentSeen
from pytest_asperf.analysis.stats.total_time import TotalTimeTest
from pytest_asperf.analysis.verdict import Outcome, Verdict
from pytest_asperf.api.energy import EnergyFigure, energy_of
from pytest_asperf.api.measurement_context import ModelUnderTest, NoRecord
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.config.workload import Workload
from pytest_asperf.errors import HardwareError
from pytest_asperf.hardware.meters.meter import CounterWindow, Rail
from pytest_asperf.hardware.probe import CpuTimes
from pytest_asperf.hardware.watch import MachineSample, Watched
from pytest_asperf.measure.ab_speed import ABResult, Budget, WorkloadPairs
from pytest_asperf.measure.energy import EnergyResult
from pytest_asperf.measure.metered import PhaseEnergy
from pytest_asperf.measure.noise import Surroundings
from pytest_asperf.measure.paired_runner import Pair
from pytest_asperf.measure.results import Provenance
from pytest_asperf.report.result_text import in_words
from pytest_asperf.report.verdict_text import lab_note
from pytest_asperf.verdicts.gate import speed_verdict
from tests.engine_facts import ENGINE, loaded
from tests.power_samples import energy

RAN = Provenance("m", Path("m.gguf"), "0" * 64, ENGINE, loaded(), None, EngineSettings())
JTG = Workload("tg", 128, metered=True)
BUSY = Watched(
    tuple(
        MachineSample(CpuTimes(at, 2 * at, 0.0, 0.2 * at), MomentSeen(at_s=at))
        for at in (0.0, 10.0)
    ),
    2,
)


def _phase(rail: Rail, power_w: float | None = None) -> PhaseEnergy:
    window = CounterWindow(f"{rail} counter", rail, 1.1, 440.0, 11, power_w)
    return PhaseEnergy((window,), (), (), (), 1.4, 1.38, 512)


def _verdict(phase: PhaseEnergy, watched: Watched, workload: Workload = JTG) -> Verdict:
    test = TotalTimeTest(0.05, max_pairs=30)
    pairs = WorkloadPairs(workload, test, [])
    while test.outcome is None:
        pairs.add(Pair((10**9,), (10**9 + test.n,), candidate_first=test.n % 2 == 0))
    result = ABResult(
        (pairs,),
        draws_cores=False,
        budget=Budget(0.05, 30, 60.0, 0),
        ran=(RAN, RAN),
        same_tokens=True,
        surroundings=Surroundings(watched=watched),
        phases=(phase,) * 3,
    )
    return speed_verdict(pairs, result)


@pytest.mark.parametrize(
    ("rail", "watched", "outcome"),
    [
        ("gpu", Watched(), Outcome.PASS),
        ("gpu", BUSY, Outcome.PASS),  # others do not use it
        ("package", Watched(), Outcome.PASS),
        ("package", BUSY, Outcome.INVALID),  # their draw is in both
    ],
)
def test_energy_of_other_processes(rail: Rail, watched: Watched, outcome: Outcome) -> None:
    """An equal addition to both draws their ratio towards 1, if the rail has it."""
    verdict = _verdict(_phase(rail), watched)
    assert verdict.outcome is outcome
    note = lab_note(verdict)
    assert f"{rail} counter: an update every 100 ms, 3 windows of 1.1 s" in note
    assert ("not the energy of the machine" in note) == (rail == "gpu")


def test_times_are_judged_on_a_busy_host() -> None:
    """The windows of the same model's energy have nothing to do with them."""
    verdict = _verdict(_phase("package", 90.0), BUSY, Workload("tg", 128))
    assert verdict.outcome is Outcome.PASS
    assert "counter" not in lab_note(verdict)


def test_a_counter_that_power_contradicts_decides_nothing() -> None:
    """400 W by the counter, 90 W by the separate power; 396 W is near enough."""
    verdict = _verdict(_phase("gpu", 90.0), Watched())
    assert verdict.outcome is Outcome.INVALID
    assert (
        "gpu counter counts 400 W, and the other counter shows 90 W" in in_words(verdict).measured
    )
    assert _verdict(_phase("gpu", 396.0), Watched()).outcome is Outcome.PASS


def _metered(name: str, result: EnergyResult) -> EnergyFigure:
    """The figure of a result: this machine may have no counter that could be read."""
    runner = SimpleNamespace(
        plan=SimpleNamespace(repetitions=3), energy_meter=lambda: None, compare=lambda *_: result
    )
    measurement: Any = SimpleNamespace(record=NoRecord(), runner=runner)
    return energy_of(
        ModelUnderTest(ModelRef(ModelSpec(name)), measurement), result.workload, "J/token"
    )


def test_all_rails_are_compared_and_not_the_gpu_alone() -> None:
    """The published 282 times is one rail's; GPU, processor and Neural Engine give 11.6 times.

    The Neural Engine's counter does not move during the GPU's prefill, and moves during its own.
    """
    idle = {"cpu_mw": 350.0, "gpu_mw": 25.0, "ane_mw": 0.0}
    by_rail = (
        {"cpu_mw": 2350.0, "gpu_mw": 62_050.0, "ane_mw": 0.0},
        {"cpu_mw": 3770.0, "gpu_mw": 220.0, "ane_mw": 1580.0},
    )
    gpu, ane = (
        _metered(name, energy(powers, idle, (0.1, 0.1, 0.1)))
        for name, powers in zip(("gpu", "ane"), by_rail, strict=True)
    )
    assert gpu.rails == ("cpu", "gpu")
    assert (gpu.power / ane.power).estimate.point == pytest.approx(11.6, rel=0.01)
    alone = gpu.rail("gpu").power / ane.rail("gpu").power
    assert alone.estimate.point == pytest.approx(282, rel=0.02)
    with pytest.raises(HardwareError, match="ane has no figure"):
        assert gpu.rail("ane").power > 1
