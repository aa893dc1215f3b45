"""`asperf compare`: comparable figures, and the text about them."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.commands.compared_reports import UNPAIRED_CONFIDENCE, changes, read_compared
from pytest_asperf.records.kinds import EnergyRecord
from pytest_asperf.records.report import read
from pytest_asperf.store import open_store
from tests.commands.conftest import Ended
from tests.store.documents import estimate, gated, night, proof, rate, row

RunAsperf = Callable[..., Ended]


def report_on(chip: str, tok_s: float, **changed: Any) -> dict[str, Any]:
    """A report of TG and PP on a machine of a profile."""
    tg = rate(tok_s, bytes_per_token=11_000_000_000)
    machine = {"id": f"id-{chip}", "hardware": chip, "profile": chip, **changed.pop("machine", {})}
    return night(tg, rate(10 * tok_s, workload="pp512"), host=chip, machine=machine, **changed)


@pytest.fixture
def compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_asperf: RunAsperf
) -> Callable[..., Ended]:
    """Return a function that compares documents, in files called a.json, b.json …."""
    monkeypatch.chdir(tmp_path)

    def run(*documents: dict[str, Any], words: tuple[str, ...] = ()) -> Ended:
        names = [f"{letter}.json" for letter in "abcd"[: len(documents)]]
        for name, document in zip(names, documents, strict=True):
            Path(name).write_text(json.dumps(document))
        return run_asperf("compare", *names, *words)

    return run


def test_two_nights_of_one_machine_are_a_hint(compare: Callable[..., Ended]) -> None:
    """The change has an unpaired interval, differing run records are named, and nothing fails."""
    done = compare(
        report_on("m4", 40), report_on("m4", 20, number=1, machine={"os_version": "15.2"})
    )
    assert done.returncode == 0
    (tg,) = (line for line in done.stdout.splitlines() if line.startswith("tg128 m"))
    assert "-50.0 % [-51.0, -49.0]" in tg
    assert "os: macOS 15.1 -> macOS 15.2" in done.stdout
    assert "of one machine, without a verdict" in done.stdout
    assert "FAIL" not in done.stdout


def test_machines_are_a_table(compare: Callable[..., Ended]) -> None:
    """Each has its value and its share of its own bandwidth; no change is worked out."""
    done = compare(report_on("m4-10", 8), report_on("m4pro-20", 20))
    lines = [line.split() for line in done.stdout.splitlines() if line.endswith(" %")]
    assert [(line[0], *line[-3:]) for line in lines] == [
        ("m4-10", "88", "73.3", "%"),
        ("m4pro-20", "220", "80.6", "%"),
    ]
    assert "and no verdict" in done.stdout
    assert "change" not in done.stdout


def test_energy_and_price_are_shown_where_they_are_known(compare: Callable[..., Ended]) -> None:
    """J per token of reports that metered one workload; the user gives a machine's price."""
    both = [report_on("m4-10", 8), report_on("m4pro-20", 20)]
    spent = estimate(0.5, "J/token")
    both[0]["rows"].append(
        row(EnergyRecord(workload="jtg128", joules_per_token=spent, ran=proof()))
    )
    assert (
        "J/token"
        not in compare(*both[1:], both[1] | {"meta": report_on("m4-10", 1)["meta"]}).stdout
    )
    done = compare(*both, words=("--price", "m4-10=500", "--price", "m4pro-20=2000"))
    lines = [x.split() for x in done.stdout.splitlines() if x.startswith("m4") and " % " in x]
    assert [line[-2:] for line in lines] == [["0.5", "16"], ["-", "10"]]
    assert sum("tok/s per 1000" in line for line in done.stdout.splitlines()) == 2  # TG and PP


@pytest.mark.parametrize("price", ["m4-10", "m5=1", "m4-10=free", "m4-10=0"])
def test_a_price_of_no_machine_is_refused(price: str, compare: Callable[..., Ended]) -> None:
    """The machines are named."""
    done = compare(report_on("m4-10", 8), report_on("m4pro-20", 20), words=("--price", price))
    assert done.returncode == 3
    assert f"--price '{price}' is no machine of these reports and a whole amount" in done.stderr
    assert "the machines are m4-10, m4pro-20" in done.stderr


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (night(rate(1, threads=2)), "tg128 m: other settings"),
        (night(rate(1, sha256="x")), "tg128 m: another model file"),
        (night(rate(1, workload="tg16")), "tg128 m: only in a.json"),
        (night(gated(1, base="0"), number=1), "tg128 ratio m: another baseline build"),
    ],
)
def test_what_may_not_be_compared_is_named(
    other: dict[str, Any], reason: str, compare: Callable[..., Ended]
) -> None:
    """With the reason: other settings, another file, another baseline, or not measured."""
    done = compare(night(rate(1), gated(1)), other)
    assert done.returncode == 0
    assert f"not compared: {reason}\n" in done.stdout


def test_stored_sessions_are_named_by_their_ids(tmp_path: Path, run_asperf: RunAsperf) -> None:
    """A session's id means its document; a text that is neither file nor session raises."""
    path = str(tmp_path / "h.db")
    with open_store(path) as store:
        ids = [store.record(report_on("m4", tok_s)).session for tok_s in (40, 20)]
    done = run_asperf("compare", ids[0][:10], ids[1][:10], "--store", path)
    assert "-50.0 %" in done.stdout
    refused = run_asperf("compare", ids[0][:10], "nothing", "--store", path)
    assert (refused.returncode, "0 sessions of " in refused.stderr) == (3, True)
    assert "name two or more" in run_asperf("compare", ids[0]).stderr
    assert "nothing is not a file" in run_asperf("compare", "nothing", "other").stderr
    stored = run_asperf("compare", "nothing.json", "other.json", "--store=none.db")
    assert "nothing.json is not a file" in stored.stderr


POSITIVE = st.floats(1e-3, 1e6)


@given(one=POSITIVE, other=POSITIVE, unknown=st.booleans())
def test_the_interval_of_a_change_holds_all_that_both_intervals_allow(
    one: float, other: float, *, unknown: bool
) -> None:
    """The bounds are those of the quotient, and open if one has none."""
    documents = [night(rate(one)), night(rate(other), number=1)]
    if unknown:
        documents[0]["rows"][0]["estimate"]["low"] = None
    (found,) = changes(
        *(read_compared(str(n), read(document, "r")) for n, document in enumerate(documents))
    )
    assert found.change.point == pytest.approx(other / one - 1, rel=1e-6, abs=1e-9)
    assert found.change.low == pytest.approx(0.99 * other / (1.01 * one) - 1, rel=1e-6, abs=1e-9)
    high = math.inf if unknown else 1.01 * other / (0.99 * one) - 1
    assert found.change.high == pytest.approx(high, rel=1e-6, abs=1e-9)
    assert found.change.confidence == UNPAIRED_CONFIDENCE
