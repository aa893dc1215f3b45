"""Documents from anywhere give figures or an error that names the place."""

import copy
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_asperf.analysis.facts import ScoredText
from pytest_asperf.errors import ConfigError
from pytest_asperf.records.kinds import MemoryRecord, QuantRecord
from pytest_asperf.records.report import read
from pytest_asperf.store.figures import figures_of
from tests.report import sample_reports as samples
from tests.store.documents import estimate, gated, night, proof, rate, row

_DRAFTED = replace(
    samples.speculation("d → m", 0.2, 3.0), k=4, n_tokens=64, ran=proof("m"), draft_ran=proof("d")
)
_SCORED = QuantRecord(
    text=ScoredText(name="t", sha256="t", n_chunks=4, n_chunks_total=9, n_ctx=512),
    ppl=5.0,
    ppl_baseline=5.0,
    delta_ppl=estimate(0.01, "change"),
    size_bytes=9,
    baseline=proof(),
    ran=proof(),
)
_FITS = MemoryRecord(
    n_ctx=512, weights_bytes=5, kv_bytes=2, compute_bytes=0, peak_rss_bytes=9, ran=proof()
)
EVERY = night(rate(100), gated(1.1), row(_DRAFTED), row(_SCORED), row(_FITS))
_JUNK = st.sampled_from(
    [None, True, -1, 0, 1e300, float("nan"), "", "x" * 2000, "\x00", [], [1], {}, {"a": 1}]
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every key and item."""
    holders: dict[type, Any] = {dict: dict.items, list: enumerate}
    for key, item in holders.get(type(value), lambda _: ())(value):
        yield (*path, key)
        yield from _places(item, (*path, key))


def test_every_kind_of_row_gives_its_figures() -> None:
    """Each metric once, by the row that it is from."""
    found = [(one.row, one.key.metric, one.key.unit) for one in figures_of(read(EVERY, "x"), "x")]
    assert found == [
        (0, "tg128", "tok/s"),
        (1, "tg128 ratio", "log ratio"),
        (1, "tg128 baseline", "tok/s"),
        (1, "tg128 candidate", "tok/s"),
        (2, "sd gain", "change"),
        (3, "ppl", "PPL"),
        (3, "ppl change", "change"),
        (4, "memory@512", "bytes"),
    ]


@settings(max_examples=150, deadline=None)
@given(place=st.sampled_from(list(_places(EVERY))), junk=_JUNK, gone=st.booleans())
def test_a_value_that_is_wrong_or_missing_is_refused_or_left_out(
    place: tuple[Any, ...], junk: Any, *, gone: bool
) -> None:
    """Only asperf's errors come out of a document that was changed by hand."""
    document = copy.deepcopy(EVERY)
    *path, last = place
    holder: Any = document
    for key in path:
        holder = holder[key]
    if gone:
        del holder[last]
    else:
        holder[last] = junk
    with suppress(ConfigError):
        figures = figures_of(read(document, "r.json"), "r.json")
        assert all(len(one.outcome) <= 16 and isinstance(one.test, str) for one in figures)
