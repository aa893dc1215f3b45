"""The record of a bisection: read again as it was written, or not at all."""

import json
import math
from pathlib import Path

import pytest
from filelock import FileLock

from pytest_asperf.analysis.stats.estimate import CHANGE, Estimate
from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.bisect.run import JudgedGate, kept_bisection
from pytest_asperf.bisect.search import GateAnswer, GateStep
from pytest_asperf.errors import BusyError, CacheError

DECIDED_BY = {"builds": ["a", "b"], "machine": {"cores": 2}}
EFFECT = Estimate(0.2, 0.1, math.inf, 8, method="bets", unit=CHANGE, counted="pairs")
GATES = {
    GateStep(0, 3): JudgedGate(Outcome.FAIL, "slower", 2.5, EFFECT),
    GateStep(0, 1): JudgedGate(Outcome.INVALID, "it died", 1.0),
    GateStep(0, 2): JudgedGate(Outcome.INVALID, "it does not compile", 60.0, is_unmade=True),
}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The file of a run that has finished three gates."""
    with kept_bisection(tmp_path, DECIDED_BY, seed=7, fresh=False) as (record, told):
        assert told == ""
        for gate, found in GATES.items():
            record.keep(gate, found)
    return record.path


def reopen(
    cache: Path, decided_by: dict[str, object] | None = None, *, fresh: bool = False
) -> tuple[dict[GateStep, JudgedGate], int, str]:
    """Return the result of another run: gates, the seed, and its messages."""
    keyed = kept_bisection(cache, decided_by or DECIDED_BY, seed=8, fresh=fresh)
    with keyed as (record, told):
        return record.gates, record.seed, told


def test_an_equal_run_goes_on(tmp_path: Path, state: Path) -> None:
    """Gates and seed are those of before; a failed build may be tried again."""
    gates, seed, told = reopen(tmp_path)
    assert state.exists()
    assert seed == 7
    assert gates == {gate: found for gate, found in GATES.items() if not found.is_unmade}
    assert told == (
        "gates kept from an earlier run: 2 (--fresh ignores them); builds that failed are "
        "tried again"
    )


@pytest.mark.usefixtures("state")
def test_fresh_and_other_runs_begin_anew(tmp_path: Path) -> None:
    """No part of another question is used as an answer to this one."""
    assert reopen(tmp_path, fresh=True) == ({}, 8, "")
    assert reopen(tmp_path, {**DECIDED_BY, "workload": "pp512"}) == ({}, 8, "")


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "null", "[" * 100_000, '{"schema": 99}', '{"schema": 2}',
        '{"schema": 2, "seed": 5, "decided_by": {}, "gates": []}',
    ],
)  # fmt: skip
def test_a_broken_state_is_set_aside(tmp_path: Path, state: Path, content: str) -> None:
    """It is named, kept for a look, and the run begins anew."""
    state.write_text(content)
    gates, seed, told = reopen(tmp_path)
    assert (gates, seed) == ({}, 8)
    aside = state.with_suffix(".broken")
    assert told == f"cannot read the state of an earlier run; it is renamed to {aside}"
    assert aside.read_text() == content


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("outcome", "GREAT"), ("base", -1), ("base", "0"), ("candidate", 1.0), ("elapsed_s", None),
        ("elapsed_s", math.nan), ("effect", {"n": 1}), ("effect", 3),
    ],
)  # fmt: skip
def test_a_broken_gate_spoils_the_state(
    tmp_path: Path, state: Path, key: str, value: object
) -> None:
    """A state with one row that cannot be is not believed in part."""
    content = json.loads(state.read_text())
    content["gates"][0][key] = value
    state.write_text(json.dumps(content))
    assert "renamed" in reopen(tmp_path)[2]


def test_one_process_at_a_time(tmp_path: Path, state: Path) -> None:
    """Two would measure everything twice."""
    with (
        FileLock(state.with_suffix(".lock")),
        pytest.raises(BusyError, match="this bisection is running already"),
    ):
        reopen(tmp_path)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """An interrupted run could not go on."""
    (tmp_path / "bisections").write_text("no folder")
    with pytest.raises(CacheError, match="the lock of this bisection is not available"):
        reopen(tmp_path)


def test_a_gate_without_an_effect_excludes_nothing() -> None:
    """A gate that had no time for a pair shows nothing."""
    gate = JudgedGate(Outcome.INCONCLUSIVE, "no pair", 1.0)
    assert gate.finding == GateAnswer(Outcome.INCONCLUSIVE, -math.inf, math.inf)


def test_a_build_with_another_fault_is_passed_over(tmp_path: Path) -> None:
    """One that cannot run is not the first slower one, and a slower one not the first that died."""
    slow = JudgedGate(Outcome.FAIL, "slower", 1.0, EFFECT)
    dead = JudgedGate(Outcome.FAIL, "it crashed", 1.0, is_unable=True)
    for first, other in ((slow, dead), (dead, slow)):
        with kept_bisection(tmp_path, DECIDED_BY, seed=7, fresh=True) as (record, _):
            for build, gate in ((3, first), (1, other), (2, first)):
                record.keep(GateStep(0, build), gate)
        with kept_bisection(tmp_path, DECIDED_BY, seed=7, fresh=False) as (record, _):
            outcomes = [found.outcome for found in record.findings.values()]
        assert outcomes == [Outcome.FAIL, Outcome.INVALID, Outcome.FAIL]
