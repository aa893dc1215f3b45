"""Which cells of a gate take turns."""

from __future__ import annotations

from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.config.workload import Workload
from pytest_asperf.gate.cells import GateCell, GateCheck
from pytest_asperf.gate.judge import _taking_turns

A, B = (ModelRef(ModelSpec(name)) for name in "ab")
PP, TG = Workload("pp", 512), Workload("tg", 128)


def test_times_of_one_model_take_turns_and_checks_stay_alone() -> None:
    """Cells of other models, PPL and speculation are measured by themselves, none twice."""
    a_pp, a_tg, b_tg = GateCell(A, PP), GateCell(A, TG), GateCell(B, TG)
    a_ppl, a_sd = GateCell(A, GateCheck.PPL), GateCell(A, GateCheck.SPECULATION)
    groups = _taking_turns([a_pp, b_tg, a_ppl, a_tg, a_sd])
    assert groups == [[a_pp, a_tg], [b_tg], [a_ppl], [a_sd]]


def test_a_depth_is_filled_once() -> None:
    """Decoding at depth has processes of its own, where its context stays."""
    deep = Workload("tg", 128, 1024)
    cells = [GateCell(A, PP), GateCell(A, deep), GateCell(A, TG)]
    assert _taking_turns(cells) == [[cells[0], cells[2]], [cells[1]]]
