"""The content that a store keeps and gives back, in both databases."""

import math
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from pytest_asperf.errors import ConfigError
from pytest_asperf.records.kinds import BrokenRecord, EnergyRecord
from pytest_asperf.records.report import read
from pytest_asperf.store import open_store
from pytest_asperf.store.figures import figures_of
from tests.store.documents import FIRST, drifting, estimate, gated, night, proof, rate, row

DAY_S = 86_400.0


def test_a_series_comes_back_in_the_order_of_its_nights(address: str) -> None:
    """Reports may be stored in any order, and the same one again adds nothing."""
    nights = [drifting(number) for number in range(5)]
    with open_store(address) as store:
        for document in (nights[3], nights[0], nights[4], nights[1], nights[2], nights[0]):
            store.record(document, is_live=False)
        (series,) = store.series()
        points = store.points(series.id)
    assert (series.n, series.key.metric, series.key.unit) == (5, "tg128", "tok/s")
    assert [point.time for point in points] == [FIRST.timestamp() + n * DAY_S for n in range(5)]
    expected = [one["rows"][0]["estimate"]["point"] for one in nights]
    assert [point.value for point in points] == expected
    assert all(point.low < point.value < point.high for point in points)  # type: ignore[operator]
    assert dict(points[0].provenance)["os"] == "macOS 15.1"


def test_sessions_of_one_second_keep_the_order_in_which_they_were_stored(address: str) -> None:
    """A report has the second in which it began; its id shows nothing about the order."""
    values = [100.0 + n for n in range(8)]
    with open_store(address) as store:
        ids = [store.record(night(rate(value))).session for value in values]
        assert ids != sorted(ids)
        assert [one.id for one in store.sessions()] == ids
        (series,) = store.series()
        assert [point.value for point in store.points(series.id)] == values
        assert [point.value for point in store.points(series.id, last=3)] == values[-3:]


def test_a_million_points_are_read_by_their_index(tmp_path: Path) -> None:
    """Listing reads an index alone, and the latest points of a series need no sort of all of it."""
    plans = []

    def explain(_: object, cursor: Any, statement: str, values: Any, *__: object) -> None:
        if "FROM asperf_point" in statement:
            cursor.execute(f"EXPLAIN QUERY PLAN {statement}", values)
            plans.append("; ".join(row[-1] for row in cursor.fetchall()))

    with open_store(str(tmp_path / "h.db")) as store:
        store.record(night(rate(100)))
        sa.event.listen(store._database._engine, "before_cursor_execute", explain)
        store.points(store.series()[0].id, last=3)
    listing, latest = plans
    assert "SCAN asperf_point USING COVERING INDEX asperf_point_by_time" in listing
    assert "SEARCH asperf_point USING INDEX asperf_point_by_time (series=? AND time>?)" in latest
    assert "TEMP B-TREE FOR ORDER BY" not in latest  # but for those of one second


def test_a_document_comes_back_whole(address: str) -> None:
    """Raw runs, pairs and verdicts are kept as they were written."""
    document = night(gated(1.25), rate(90.0), host="Größe \N{GREEK SMALL LETTER MU}")
    with open_store(address) as store:
        recorded = store.record(document)
        assert store.document(recorded.session) == document
        with pytest.raises(ConfigError, match="no document of session 0000"):
            store.document("0000")


def test_a_gate_keeps_the_paired_log_ratio_beside_both_rates(address: str) -> None:
    """The machine's drift cancels in the ratio of builds, not in the rates."""
    with open_store(address) as store:
        store.record(night(gated(1.25)))
        found = {one.key.metric: (one.key, store.points(one.id)[0]) for one in store.series()}
    key, point = found["tg128 ratio"]
    assert point.value == pytest.approx(math.log(1.25))
    assert (point.low, point.high) == pytest.approx((math.log(1.2375), math.log(1.2625)))
    assert (point.outcome, key.anchor) == (
        "PASS",
        "lib 1, ggml commit abc, libraries sha256 " + 12 * "1",
    )
    assert dict(point.provenance)["build"].startswith("lib 2,")
    assert found["tg128 baseline"][1].value == 100
    assert found["tg128 candidate"][1].value == 80


@pytest.mark.parametrize(
    ("changed", "document"),
    [
        ((), night(rate(90, version="2"), number=1)),
        (("machine",), night(rate(90), number=1, machine={"id": "bbbbbbbbbbbb"})),
        (("model_sha256",), night(rate(90, sha256="x"), number=1)),
        (("settings",), night(rate(90, threads=2), number=1)),
        (("settings", "machine"), night(rate(90, n_ctx=9), machine={"id": "c"})),
    ],
    ids=lambda value: "+".join(value) or "build" if isinstance(value, tuple) else "",
)
def test_what_begins_a_series_is_said(
    changed: tuple[str, ...], document: dict[str, Any], tmp_path: Any
) -> None:
    """Another machine, model or setting begins a series; another build goes on with the old one."""
    with open_store(str(tmp_path / "h.db")) as store:
        first = store.record(night(rate(100)))
        second = store.record(document)
        assert len(store.series()) == 1 + bool(changed)
    assert [new.after for new in first.began] == [""]
    assert {part for new in second.began for part in new.changed} == set(changed)
    assert all(new.after for new in second.began)


def test_another_anchor_begins_a_series(address: str) -> None:
    """A log ratio has a meaning only against one build."""
    with open_store(address) as store:
        store.record(night(gated(1.0)))
        began = store.record(night(gated(1.0, base="0"), number=1)).began
    assert [(new.key.metric, new.changed) for new in began] == [("tg128 ratio", ("anchor",))]


def test_a_clock_that_was_set_back_does_not_turn_the_order(address: str) -> None:
    """A session after another one stays after it, and the addition to its time is known."""
    with open_store(address) as store:
        store.record(night(rate(100), number=0))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", lambda real=time.time: real() - 7200)
            shifted = store.record(night(rate(90), number=-1 / 24))
        (series,) = store.series()
        assert [point.value for point in store.points(series.id)] == [100, 90]
        assert [round(one.clock_back_s, -1) for one in store.sessions()] == [0, 7200]
    assert shifted.clock_back_s == pytest.approx(7200, abs=5)


def test_two_machines_of_one_name_stay_apart(address: str) -> None:
    """A host's name is for readers; the fingerprint distinguishes machines."""
    with open_store(address) as store:
        store.record(night(rate(100)))
        store.record(night(rate(50), machine={"id": "bbbbbbbbbbbb"}))
        assert sorted(one.key.machine for one in store.series()) == ["aaaaaaaaaaaa", "bbbbbbbbbbbb"]
        assert len(store.sessions(machine="bbbbbbbbbbbb")) == 1


def test_prune_removes_old_sessions_and_series_without_points(address: str) -> None:
    """Raw documents can go before the points that were made of them."""
    with open_store(address) as store:
        for number in range(4):
            store.record(drifting(number), is_live=False)
        store.record(night(rate(1, threads=9), number=0), is_live=False)
        before = FIRST.timestamp() + 1.5 * DAY_S
        assert store.prune(before, only_documents=True) == 3
        assert sorted(one.n for one in store.series()) == [1, 4]
        assert store.prune(before) == 3
        assert [one.n for one in store.series()] == [2]
        assert len(store.sessions()) == 2


def test_what_states_rest_on_outlives_the_days_to_keep(address: str) -> None:
    """Old raw runs and rates go; ratios stay, and the last session of each series stays whole."""
    before = FIRST.timestamp() + 2.5 * DAY_S
    with open_store(address) as store:
        for number in range(5):
            rows = (gated(1 + number / 100), rate(100 + number))
            store.record(night(*rows, number=number), is_live=False)
        lonely = store.record(night(rate(1, threads=9), number=0), is_live=False).session
        assert (store.retain(before), store.retain(before)) == (3, 0)
        left = {
            one.key.metric: one.n for one in store.series() if "threads" not in one.key.settings
        }
        assert left == {"tg128 ratio": 5, "tg128": 2, "tg128 baseline": 2, "tg128 candidate": 2}
        assert store.document(lonely)["rows"][0]["estimate"]["point"] == 1
        assert len(store.pruned()) == 3
        store.record(night(rate(2, threads=9), number=4), is_live=False)
        assert store.retain(before) == 1
        assert lonely not in {one.id for one in store.sessions()}


def test_energy_is_a_series_of_its_own() -> None:
    """J per token, by the workload that was metered."""
    metered = EnergyRecord(workload="jtg8", joules_per_token=estimate(0.1, "J/token"), ran=proof())
    (found,) = figures_of(read(night(row(metered)), "x"), "x")
    assert (found.key.metric, found.key.unit, found.value) == ("jtg8", "J/token", 0.1)


def test_only_what_is_measured_and_valid_counts() -> None:
    """A measurement in an INVALID test is marked; published figures are no point."""
    invalid = row(BrokenRecord(subject="tg128", found="it broke"))
    whole = night(rate(100), invalid, gated(1.0, source="recorded"))
    figures = figures_of(read(whole, "x"), "x")
    assert [(one.key.metric, one.outcome) for one in figures] == [("tg128", "INVALID")]


def _infinite() -> dict[str, Any]:
    found = rate(1)
    found["estimate"]["point"] = math.inf
    return found


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (night() | {"meta": None}, "r.json: its head is not as pytest-asperf writes it: None is"),
        (night(rate(1)) | {"schema": 2}, "r.json has schema 2, and this version reads schema 3"),
        (night(_infinite()), "row 1 is not as pytest-asperf writes it: inf is not a number"),
        (night(rate(1), time="soon"), "its time is not"),
        (night({"test": "t"}), "row 1 is not as pytest-asperf writes it: 'kind' is missing"),
    ],
)
def test_a_malformed_document_is_refused_whole(
    document: dict[str, Any], says: str, address: str
) -> None:
    """The error names the row, and nothing of the document is stored."""
    with open_store(address) as store:
        with pytest.raises(ConfigError, match=says) as caught:
            store.record(document, where="r.json")
        assert "r.json" in str(caught.value)
        assert store.sessions() == []
