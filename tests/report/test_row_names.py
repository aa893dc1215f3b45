from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.records.kinds import Noted
from pytest_asperf.report.lines import first_line
from pytest_asperf.report.row_names import cut, tail_starts, told_apart
from tests.report import sample_reports as samples


def row(model: str = "m", subject: str = "tg16", machine: str = "", **ran: str) -> Noted:
    """A measurement; without a model, a verdict."""
    facts = tuple((key.replace("_", " "), text) for key, text in ran.items())
    if not model:
        verdict = Verdict(outcome=Outcome.PASS, subject=subject, facts=facts)
        return Noted("test", verdict, machine)
    return Noted("test", replace(samples.rates(model, workload=subject), facts=facts), machine)


def names(*rows: Noted) -> list[str]:
    """The names of records in one table."""
    return [first_line(each).what for each in told_apart(rows)]


def test_rows_alike_are_told_apart_by_the_settings_asked_for() -> None:
    """Their common part is left out."""
    found = names(
        row(requested="threads=1, flash_attn=on", device="CPU"),
        row(requested="threads=2, flash_attn=on, n_ubatch=64", device="CPU"),
        row(device="CPU"),
        row(model="other", requested="threads=1"),
    )
    assert found == [
        "tg16 m, threads=1, flash_attn=on",
        "tg16 m, threads=2, flash_attn=on, n_ubatch=64",
        "tg16 m",
        "tg16 other",
    ]


@pytest.mark.parametrize("fact", ["engine", "build", "device", "settings", "sha256"])
def test_the_next_fact_tells_rows_apart_where_the_settings_are_equal(fact: str) -> None:
    """Engine, build, device, or the file itself."""
    one: Any = {fact: "same, one"}
    two: Any = {fact: "same, two"}
    assert names(row("", **one), row("", **two)) == ["tg16, one", "tg16, two"]


def test_sides_of_a_claim_are_named() -> None:
    """A draft's threads are not the target's."""
    found = names(
        row("", "SD gain", draft_requested="threads=1", target_requested="threads=2"),
        row("", "SD gain", draft_requested="threads=2", target_requested="threads=2"),
    )
    assert found == ["SD gain, draft threads=1", "SD gain, draft threads=2"]


def test_equal_rows_and_other_machines_keep_their_names() -> None:
    """A machine has a column of its own, and a measurement noted twice differs in nothing."""
    assert names(row(requested="threads=1"), row(requested="threads=1")) == ["tg16 m", "tg16 m"]
    two = row(machine="a", requested="threads=1"), row(machine="b", requested="threads=2")
    assert names(*two) == ["tg16 m", "tg16 m"]


def test_names_of_a_sweep_stay_apart_on_a_narrow_screen() -> None:
    """Quantizations whose names end alike keep the part in which they differ."""
    levels = [f"{bits}bit{group}" for bits in (2, 3, 4, 5, 6, 8) for group in ("", "-g32", "-g128")]
    long = [f"PPL vs F16 asperf-target:{level} on mlx" for level in levels]
    starts = tail_starts(long, 24)
    cuts = [cut(name, 24, starts[name]) for name in long]
    assert len(set(cuts)) == len(long)
    assert all(len(each) <= 24 for each in cuts)
    assert cut(long[0], 24) == "PPL vs F16 …:2bit on mlx"


@given(st.lists(st.text(max_size=60), max_size=5), st.integers(1, 50))
def test_no_name_is_wider(texts: list[str], width: int) -> None:
    """For any names, and any characters of two columns."""
    starts = tail_starts(texts, width)
    assert all(cell_len(cut(text, width, starts[text])) <= width for text in texts)
