from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_asperf.errors import ConfigError
from pytest_asperf.report.formats import WRITERS
from pytest_asperf.report.read_report import read_report, read_report_file
from pytest_asperf.report.rows import ReportRow
from tests.report import sample_reports as samples

if TYPE_CHECKING:
    from pathlib import Path


def test_a_claim_is_read_with_its_limit_and_its_runs() -> None:
    """The runs are those of the measurement whose estimate was judged."""
    row = samples.claimed("fake:Q8_0", 10)
    noted = [("t", samples.rates("fake:Q8_0")), ("t", samples.level("fake:Q8_0", 0.1)), ("t", row)]
    (claim,) = read_report(samples.report(noted), name="r").claims
    (figure,) = claim.figures
    assert (figure.at_least, figure.at_most) == (10, None)
    assert figure.estimate.point == pytest.approx(84.3)
    (series,) = claim.series
    assert series.values == pytest.approx(samples._RATES, rel=1e-6)
    assert claim.repeat == "pytest t --asperf-seed=7"


def test_a_claim_on_a_figure_of_no_measurement_has_all_that_its_test_measured() -> None:
    """A difference of two levels is shown beside both."""
    other = samples.below("difference", 0.5, 1.0)
    noted = [("t", samples.level(f"fake:{name}", 0.1)) for name in ("Q8_0", "Q6_K")]
    (claim,) = read_report(samples.report([*noted, ("t", other)]), name="r").claims
    assert [series.label for series in claim.series] == [
        "fake:Q8_0 PPL vs F16",
        "fake:Q6_K PPL vs F16",
    ]


def test_times_are_read_as_times() -> None:
    """Where the estimate is a time, so is each run."""
    document = samples.report([("t", samples.rates("m"))])
    document["rows"][0]["raw"]["estimate"]["unit"] = "ms"
    series = read_report(document, name="r").measurements[0].series
    assert series is not None
    assert series.values[0] == pytest.approx(16e3 / samples._RATES[0])


def test_a_gate_has_its_pairs_in_order() -> None:
    """Both sides' times are in the file, and evidence that is enough at the end."""
    document = samples.report([("t", samples.gate(1.3))])
    compared = document["rows"][0]["raw"]["comparison"]
    assert compared["pairs"][0]["baseline_ns"] == [1_000_000, 1_003_000, 1_006_000, 1_009_000]
    assert compared["medians"] == pytest.approx([4 / 1.0095e-3, 4 / 1.3e-3 / 1.0095], rel=0.01)
    pairs = read_report(document, name="r").claims[0].pairs
    assert pairs is not None
    assert pairs.ratios == pytest.approx([1.3] * len(pairs.ratios), rel=1e-4)
    assert pairs.candidate_first[:3] == (False, True, False)
    assert pairs.evidence[-1][0] >= 1 > pairs.evidence[0][0]


def test_levels_stand_from_the_largest_file_to_the_smallest() -> None:
    """The baseline is first, and each level has the rate that was measured of it."""
    document = samples.whole()
    (levels,) = read_report(document, name="r").level_sets
    assert [level.name for level in levels.levels] == ["F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M"]
    assert [level.rate is not None for level in levels.levels] == [False, True, False, False, True]


def test_a_report_of_an_earlier_version_is_read_with_what_it_has() -> None:
    """It has no facts of the session, no claims, no limits and no command."""
    document = samples.whole()
    del document["meta"], document["claims"]
    for row in document["rows"]:
        for figure in row["raw"].get("figures", ()):
            del figure["at_least"], figure["at_most"], figure["counted"]
        for key in ("comparison", "details"):
            row["raw"].pop(key, None)
    data = read_report(document, name="old.json")
    assert data.facts == ()
    assert [claim.repeat for claim in data.claims] == [""] * 7
    assert data.claims[0].figures[0].at_least is None


def test_a_cell_that_could_not_be_run_is_read() -> None:
    """It is no pass, and has its reason."""
    row = ReportRow("", "pp16 fake", "it refused", "", outcome="NOT RUN")
    data = samples.read([("tg16 fake", samples.gate(1.001)), ("pp16 fake", row)])
    assert [(claim.outcome, claim.test) for claim in data.claims] == [
        ("PASS", "tg16 fake"),
        ("NOT RUN", "pp16 fake"),
    ]
    assert data.claims[1].measured == "it refused"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not JSON"),
        ('{"a": NaN}', "NaN is not JSON"),
        ("[1]", "is not a report of pytest-asperf"),
        ('{"benchmarks": []}', "is not a report of pytest-asperf"),
        ('{"schema": 2, "rows": []}', "has schema 2, and this version reads schema 1"),
        ('{"rows": []}', "has schema None"),
        ('{"schema": 1, "rows": []}', "its head is not as pytest-asperf writes it: 'headline' is"),
        ('{"schema": 1, "headline": [], "rows": [4]}', "row 1 is not as pytest-asperf writes it"),
        ("[" * 200_000, "is not JSON"),
    ],
)
def test_what_is_no_report_of_ours_is_refused(tmp_path: Path, text: str, says: str) -> None:
    """The error names the file, and what to give instead."""
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"asperf-report=json:FILE|the version") as refused:
        read_report_file(path)
    assert refused.value.what.startswith(str(path))
    assert says in refused.value.what


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A folder is no report, and neither is what does not exist."""
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_report_file(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("point", "84"), ("point", True), ("low", 1e9), ("n", None), ("unit", 3), ("at_least", [])],
)
def test_a_malformed_figure_is_refused(key: str, value: Any) -> None:
    """No page shows a figure that is none; the error names the row."""
    document = samples.report([("t", samples.rates("m")), ("t", samples.claimed("m", 1))])
    document["rows"][1]["raw"]["figures"][0][key] = value
    with pytest.raises(ConfigError, match=r"r\.json: row 2 is not as pytest-asperf writes it"):
        read_report(document, name="r.json")


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw["runs"][0].update(elapsed_ns=0),
        lambda raw: raw["runs"].append(None),
        lambda raw: raw.pop("estimate"),
        lambda raw: raw.update(runs=7),
    ],
)
def test_malformed_runs_are_refused(damage: Any) -> None:
    """Neither a run without time nor one that is none becomes a rate."""
    document = samples.report([("t", samples.rates("m"))])
    damage(document["rows"][0]["raw"])
    with pytest.raises(ConfigError, match="row 1 is not as"):
        read_report(document, name="r.json")


_JUNK = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=3,
)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_damaged_report_is_refused_or_shown(data: st.DataObject) -> None:
    """Whatever stands anywhere in it, there is a page or an error of ours."""
    document = samples.report(
        [
            *(("t", samples.level(f"fake:{name}", 0.01)) for name in ("Q8_0", "Q6_K")),
            *(("t", row) for row in (samples.rates("fake:Q8_0"), samples.claimed("fake:Q8_0", 1))),
            *(("u", row) for row in (samples.gate(1.3), samples.speculation("d → t", 0.1, 3.0))),
        ]
    )
    holder: Any = document
    while True:
        keys = sorted(holder) if isinstance(holder, dict) else range(len(holder))
        key = data.draw(st.sampled_from(list(keys)))
        inner = holder[key]
        if not (isinstance(inner, dict | list) and inner and data.draw(st.integers(0, 4))):
            break
        holder = inner
    holder[key] = data.draw(_JUNK)
    with suppress(ConfigError):
        report = read_report(document, name="r.json")
        for form, writer in WRITERS.items():
            assert form == "json" or writer([report])
