"""The wrong verdicts that each gate of a bisection may cost."""

from pathlib import Path
from typing import cast

import pytest

from pytest_asperf.analysis.stats.sequential_frame import BETA
from pytest_asperf.bisect import run
from pytest_asperf.bisect.candidates import Candidate
from pytest_asperf.bisect.run import BisectRecord
from pytest_asperf.bisect.search import gates_at_most
from pytest_asperf.config.build_sources import Interpreter
from pytest_asperf.config.spec import Build, ModelRef, ModelSpec
from pytest_asperf.config.workload import Workload
from pytest_asperf.gate.cells import GateCell
from pytest_asperf.gate.judge import GateLimits
from pytest_asperf.measure.ab_speed import Budget
from pytest_asperf.measure.runner import MeasurementRunner


def test_all_gates_share_both_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One wrong PASS names a wrong build too, so a gate has its part of either error."""
    seen: list[GateLimits] = []

    def judge_cells(*arguments: object) -> object:
        seen.append(cast("GateLimits", arguments[-1]))
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "judge_cells", judge_cells)
    builds = [Build(f"b{n}", Interpreter(Path(f"/{n}"))) for n in range(9)]
    cell = GateCell(ModelRef(ModelSpec("m"), "Q8_0"), Workload("tg", 128))
    asked = run.BisectRequest(
        tuple(Candidate(build, "") for build in builds),
        cell,
        GateLimits(Budget(0.05, 120, 600, 0), 0.01),
    )
    with pytest.raises(KeyboardInterrupt):
        run.bisect(
            asked, cast("MeasurementRunner", None), BisectRecord(tmp_path, {}, 7, {}), Silent()
        )
    (limits,) = seen
    assert limits.comparisons == gates_at_most(8)
    assert limits.budget.beta == BETA / gates_at_most(8)


class Silent:
    """Shows nothing."""

    def begins(self, *_: object) -> None:
        """Nothing."""

    def ends(self, *_: object) -> None:
        """Nothing."""
