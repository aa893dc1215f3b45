import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_asperf.errors import ConfigError
from pytest_asperf.report.formats import WRITERS
from pytest_asperf.report.report_data import read_report_file
from tests.report import sample_reports as samples


def test_a_claim_is_read_with_its_limit_and_its_runs() -> None:
    """The runs are those of the measurement whose estimate was judged."""
    row = samples.claimed("fake:Q8_0", 10)
    noted: list[samples.Noting] = [
        ("t", samples.rates("fake:Q8_0")),
        ("t", samples.level("fake:Q8_0", 0.1)),
        ("t", row),
    ]
    (claim,) = samples.read(noted).claims
    (figure,) = claim.figures
    assert (figure.at_least, figure.at_most) == (10, None)
    assert figure.estimate.point == pytest.approx(84.3)
    (series,) = claim.series
    assert series.values == pytest.approx(samples._RATES, rel=1e-6)
    assert claim.repeat == "pytest t --asperf-seed=7"


def test_a_claim_on_a_figure_of_no_measurement_has_all_that_its_test_measured() -> None:
    """A difference of two quantizations is shown with both."""
    other = samples.below("difference", 0.5, 1.0)
    noted: list[samples.Noting] = [
        ("t", samples.level(f"fake:{name}", 0.1)) for name in ("Q8_0", "Q6_K")
    ]
    (claim,) = samples.read([*noted, ("t", other)]).claims
    assert [series.label for series in claim.series] == [
        "fake:Q8_0 PPL vs F16",
        "fake:Q6_K PPL vs F16",
    ]


def test_times_are_read_as_times() -> None:
    """If the estimate is a time, so is each run."""
    document = samples.report([("t", samples.rates("m"))])
    document["rows"][0]["estimate"]["unit"] = "ms"
    (series,) = samples.shown(document).measurements[0].series
    assert series.values[0] == pytest.approx(16e3 / samples._RATES[0])


def test_a_gate_has_its_pairs_in_order() -> None:
    """Both variants' times are in the file, and evidence that is enough at the end."""
    document = samples.report([("t", samples.gate(1.3))])
    compared = document["rows"][0]["compared"]
    assert compared["pairs"][0]["baseline"] == [1_000_000, 1_003_000, 1_006_000, 1_009_000]
    assert compared["medians"] == pytest.approx([4 / 1.0095e-3, 4 / 1.3e-3 / 1.0095], rel=0.01)
    found = samples.shown(document).claims[0].pairs
    assert found is not None
    pairs = found.pairs
    assert [pair.ratio for pair in pairs] == pytest.approx([1.3] * len(pairs), rel=1e-4)
    assert [pair.candidate_first for pair in pairs[:3]] == [False, True, False]
    evidence = [pair.evidence_for_fail or 0 for pair in pairs]
    assert evidence[-1] >= 1 > evidence[0]


def test_levels_stand_from_the_largest_file_to_the_smallest() -> None:
    """The baseline is first, and each quantization has its measured rate."""
    (levels,) = samples.shown(samples.whole()).level_sets
    assert [level.name for level in levels.levels] == ["F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M"]
    assert [level.rate is not None for level in levels.levels] == [False, True, False, False, True]


def test_alike_graphics_cards_are_counted() -> None:
    """A machine with several cards of one name has the name once."""
    document = samples.whole()
    document["meta"]["machine"]["gpus"] = [{"name": "H100"}, {"name": "H100"}, {"name": "L4"}]
    facts = dict(samples.shown(document).facts)
    assert "2 x H100, L4" in facts["machine"]


def test_a_cell_that_could_not_be_run_is_read() -> None:
    """It is no pass, and has its reason."""
    data = samples.read([("tg16 fake", samples.gate(1.001)), ("pp16 fake", samples.not_run())])
    assert [(claim.outcome, claim.test) for claim in data.claims] == [
        ("PASS", "tg16 fake"),
        ("NOT RUN", "pp16 fake"),
    ]
    assert data.claims[1].measured == "it refused"


#: A report whose one row is a number.
_WITH_A_NUMBER = json.dumps(samples.report([]) | {"rows": [4]})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not JSON"),
        ('{"a": NaN}', "NaN is not JSON"),
        ("[1]", "is not a report of pytest-asperf"),
        ('{"benchmarks": []}', "is not a report of pytest-asperf"),
        ('{"schema": 4, "rows": []}', "has schema 4, and this version reads schema 3"),
        ('{"schema": [3], "rows": []}', "has schema [3], and this version reads schema 3"),
        ('{"schema": true, "rows": []}', "has schema True, and this version reads schema 3"),
        ('{"rows": []}', "has schema None"),
        ('{"schema": 3, "rows": []}', "its head is not as pytest-asperf writes it: 'meta' is"),
        ('{"schema": 3, "meta": null, "headline": [], "rows": []}', "its head is not as"),
        (_WITH_A_NUMBER, "row 1 is not as pytest-asperf writes it"),
        ("[" * 200_000, "is not JSON"),
    ],
)
def test_what_is_no_report_of_ours_is_refused(tmp_path: Path, text: str, says: str) -> None:
    """The error names the file, and the accepted kinds."""
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"name a JSON report|the version") as refused:
        read_report_file(path)
    assert refused.value.what.startswith(str(path))
    assert says in refused.value.what


@pytest.mark.parametrize("schema", [1, 2])
def test_a_report_of_an_earlier_schema_is_refused(tmp_path: Path, schema: int) -> None:
    """The error names the file, its schema and the remedy, and the file is unchanged."""
    path = tmp_path / "r.json"
    earlier = json.dumps(samples.whole() | {"schema": schema})
    path.write_text(earlier)
    with pytest.raises(ConfigError) as refused:
        read_report_file(path)
    assert str(refused.value).startswith(
        f"{path} has schema {schema}, and this version reads schema 3"
    )
    assert "measure again; the earlier report stays as it is" in str(refused.value)
    assert path.read_text() == earlier


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A folder is no report, and neither is a missing file."""
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_report_file(path)


def test_a_device_without_end_is_refused() -> None:
    """Only so much of it is read as a report may have."""
    with pytest.raises(ConfigError, match="has more than 256 MiB"):
        read_report_file(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("key", "value"),
    [("point", "84"), ("point", True), ("low", 1e9), ("n", None), ("unit", 3), ("at_least", [])],
)
def test_a_malformed_figure_is_refused(key: str, value: Any) -> None:
    """No page shows a figure that is none; the error names the row."""
    document = samples.report([("t", samples.rates("m")), ("t", samples.claimed("m", 1))])
    figure = document["rows"][1]["figures"][0]
    (figure if key in figure else figure["estimate"])[key] = value
    with pytest.raises(ConfigError, match=r"r\.json: row 2 is not as pytest-asperf writes it"):
        samples.shown(document)


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
    damage(document["rows"][0])
    with pytest.raises(ConfigError, match="row 1 is not as"):
        samples.shown(document)


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
    """For any content, there is a page or an error of asperf's."""
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
        report = samples.shown(document)
        for form, writer in WRITERS.items():
            assert form == "json" or writer([report])
