import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.errors import ConfigError
from pytest_asperf.published.records import (
    Records,
    derived_checks,
    load_recorded,
    parse_recorded,
    shipped_records,
)

GOOD = """
schema = 1
[source]
id = "mine"
title = "My runs"
[[table]]
id = "ladder"
title = "TG over levels"
where = "Table 1"
hardware = "m2ultra-76"
model = "M"
key_is = "quant"
[table.columns]
tg = { metric = "TG", unit = "tok/s", kind = "measured", workload = "tg128", n = 4 }
up = { metric = "TG", unit = "x", kind = "derived", formula = "ratio", from = ["tg", "F16/tg"] }
[table.rows]
F16 = { tg = 36.80, up = 1.00 }
Q8_0 = { tg = { value = 54.0, sd = 1.5, n = 3, interval = [52, 56], confidence = 0.9 }, up = 1.47 }
Q2_K = { engine = "other", tg = "~70", up = "N/A" }
"""


def parsed(text: str, beside: Records | None = None) -> Records:
    """The records of one text, behind those that are there."""
    return parse_recorded([("mine.toml", text)], beside or Records(()))


def test_a_file_becomes_cells_with_ids_scope_and_spread() -> None:
    """A field of a table, column or row applies to the figures below it."""
    cells = parsed(GOOD).by_id()
    cell = cells["mine/ladder/Q8_0/tg"]
    assert (cell.value, cell.printed.text, cell.unit) == (54.0, "54.0", "tok/s")
    assert (cell.scope.quant, cell.scope.model, cell.scope.workload) == ("Q8_0", "M", "tg128")
    assert (cell.spread.n, cell.spread.sd, cell.spread.interval) == (3, 1.5, (52.0, 56.0))
    assert str(cell.spread) == "90% interval 52 to 56, sd 1.5 (n = 3)"
    first = cells["mine/ladder/F16/tg"]
    assert (first.printed.text, str(first.spread)) == ("36.80", "not published (n = 4)")
    assert cells["mine/ladder/Q2_K/tg"].scope.engine == "other"
    derivation = cells["mine/ladder/Q8_0/up"].derivation
    assert derivation is not None
    assert derivation.inputs == ("mine/ladder/Q8_0/tg", "mine/ladder/F16/tg")
    ups = [cell.printed.text for id_, cell in cells.items() if id_.endswith("/up")]
    assert ups == ["1.00", "1.47", "N/A"]


def test_a_word_is_no_number() -> None:
    """N/A can be shown, and no finding can be judged by it."""
    cell = parsed(GOOD).by_id()["mine/ladder/Q2_K/up"]
    assert cell.printed.text == "N/A"
    with pytest.raises(ConfigError, match="is not one number"):
        _ = cell.value


BAD = {
    "not TOML": ("schema = 1", "schema = ", "mine.toml is not valid TOML"),
    "no schema": ("schema = 1", "", "mine.toml has no schema = 1"),
    "another schema": ("schema = 1", "schema = 2", "mine.toml has no schema = 1"),
    "key of the file": ("schema = 1", "schema = 1\nshema = 1", "unknown key 'shema'; did you mean"),
    "key of the source": ('title = "My', 'titel = "My', "source: unknown key 'titel'; did you"),
    "key of a table": ("where = ", "were = ", "table ladder: unknown key 'were'; did you mean 'wh"),
    "key of a column": ("n = 4", "m = 4", "table ladder: column tg: unknown key 'm'"),
    "key of a row": (
        "{ tg = 36.80",
        "{ tgg = 36.80",
        "table ladder: row F16: unknown key 'tgg'; d",
    ),
    "key of a cell": ("sd = 1.5", "std = 1.5", "row Q8_0: tg: unknown key 'std'; did you mean"),
    "unquoted dot": ("F16 = {", "q3.5 = {", "row q3: unknown key '5'"),
    "text for a title": ('"My runs"', "7", "source: title: 7 is not usable"),
    "list for a value": ("36.80", "[36.80]", "row F16: tg: [36.8] is not usable"),
    "boolean for a value": ("36.80", "true", "row F16: tg: True is not usable"),
    "empty text": ("36.80", '""', "row F16: tg: '' is not usable"),
    "not finite": ("36.80", "inf", "row F16: tg: "),
    "not a number": ("sd = 1.5", "sd = nan", "row Q8_0: tg: sd: "),
    "negative sd": ("sd = 1.5", "sd = -1.5", "row Q8_0: tg: sd: "),
    "no runs": ("n = 3", "n = 0", "row Q8_0: tg: n: 0 is not usable"),
    "interval upside down": ("[52, 56]", "[56, 52]", "row Q8_0: tg: interval: "),
    "half an interval": ("[52, 56]", "[52]", "row Q8_0: tg: interval: "),
    "range upside down": ('"~70"', '"70-60"', "row Q2_K: tg: '70-60' is not usable"),
    "kind": (
        '"measured"',
        '"mesured"',
        "column tg: kind: 'mesured' is not usable; did you mean 'measured'",
    ),
    "formula": ('"ratio"', '"rato"', "formula: 'rato' is not usable; did you mean 'ratio'"),
    "no formula": (', formula = "ratio", from = ["tg", "F16/tg"]', "", "row F16: up: derived, but"),
    "too few inputs": ('["tg", "F16/tg"]', '["tg"]', "from has 1 inputs, and ratio is a / b"),
    "input misspelt": (
        '"F16/tg"',
        '"F61/tg"',
        "mine/ladder/F61/tg is not a published figure; did you mean",
    ),
    "input a word": ('"F16/tg"', '"Q2_K/up"', "mine/ladder/Q2_K/up is 'N/A', not one number"),
    "input itself": ('["tg", "F16/tg"]', '["tg", "up"]', "mine/ladder/F16/up is the figure itself"),
    "reason alone": ("sd = 1.5", 'why = "so"', "row Q8_0: tg: `follows` and `why` do not fit"),
    "id": ('"ladder"', '"a/b"', "table a/b: id: 'a/b' is not usable"),
    "no rows": ("[table.rows]", "[table.rows]\n[table.rowz]", "unknown key 'rowz'"),
    "no column": ("tg = { metric", "x = 1\ntg = { metric", "column x: 1 is not usable"),
    "word that follows": ('up = "N/A"', 'up = { value = "N/A", follows = false }', "up: follows: "),
    "confidence": ("confidence = 0.9", "confidence = 95", "row Q8_0: tg: confidence: "),
    "beyond reason": ("36.80", "1e400", "row F16: tg: "),
    "formula a list": (
        'formula = "ratio"',
        'formula = ["ratio"]',
        "formula: ['ratio'] is not usable",
    ),
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD.keys())
def test_a_bad_file_is_refused_with_file_table_row_and_key(change: tuple[str, str, str]) -> None:
    """Each mistake is named if it is, in a message of four parts."""
    old, new, message = change
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        parsed(GOOD.replace(old, new, 1))
    assert message in str(caught.value)
    assert "mine" in caught.value.what
    assert caught.value.remedy


VALUES = re.findall(r'"[^"\n]*"|\[[^][\n]*\]|(?<== )[0-9.]+', GOOD)


@given(
    st.sampled_from(VALUES),
    st.sampled_from(["1", "-1", "0.0", "nan", "1e999", "true", '""', '"x/y"', "[]", "[[1]]", "{}"]),
)
def test_no_value_gets_by_unchecked(old: str, new: str) -> None:
    """Any wrong content is either usable or a named mistake."""
    with suppress(ConfigError):
        assert derived_checks(parsed(GOOD.replace(old, new, 1)))


def test_one_id_means_one_thing() -> None:
    """A table, and a source, may not be there twice."""
    table = GOOD[GOOD.index("[[table]]") :]
    with pytest.raises(ConfigError, match="'ladder' is there twice"):
        parsed(GOOD + table)
    with pytest.raises(ConfigError, match="'mine' is there twice"):
        parsed(GOOD, parsed(GOOD))


def test_a_users_file_may_build_on_shipped_figures(tmp_path: Path) -> None:
    """A figure of one's own may follow from one of a document that ships."""
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace('"F16/tg"', '"atom-paper/quant-ladder/F16/tg"'), encoding="utf-8")
    records = load_recorded(path, beside=shipped_records())
    assert len(records.documents) == len(shipped_records().documents) + 1
    with pytest.raises(ConfigError, match="is not a published figure"):
        load_recorded(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file and one in another encoding are errors of configuration."""
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read"):
        load_recorded(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes("schema = 1 # é".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.toml is not UTF-8: byte 13"):
        load_recorded(tmp_path / "latin.toml")
