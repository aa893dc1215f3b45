import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_asperf.report.page import page
from tests.report import sample_reports as samples
from tests.report.browser import CHROMIUM, Browser, open_browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

#: Parts beyond an edge of the window with everything unfolded, except tables that have a scroll bar
#: of their own; and texts of charts beyond the chart, or over one another.
_CLIPPED: Final = """
document.querySelectorAll('details').forEach(folded => folded.open = true);
(() => {
  const box = shown => shown.getBoundingClientRect(), found = [];
  const outside = (a, b) => a.width && (a.left < b.left - 0.5 || a.right > b.right + 0.5);
  const window_ = {left: 0, right: innerWidth};
  for (const shown of document.querySelectorAll('body *'))
    if (!shown.closest('.wide > table') && outside(box(shown), window_))
      found.push(`${shown.tagName} ${shown.textContent.slice(0, 40)}`);
  for (const chart of document.querySelectorAll('svg')) {
    const texts = [...chart.querySelectorAll('text')];
    texts.forEach((text, n) => {
      const a = box(text);
      if (outside(a, box(chart))) found.push(`outside: ${text.textContent}`);
      for (const other of texts.slice(n + 1)) {
        const b = box(other);
        if (a.left < b.right && b.left < a.right && a.top < b.bottom - 2 && b.top < a.bottom - 2)
          found.push(`${text.textContent} over ${other.textContent}`);
      }
    });
  }
  return found;
})()
"""
#: From the first card: places and values of the ticks, and the ends of the drawn interval.
_DRAWN: Final = """
(() => {
  const chart = document.querySelector('article svg');
  const ticks = [...chart.querySelectorAll('.tx')].map(
    tick => [+tick.getAttribute('x'), +tick.textContent.replace(/[ ,%]/g, '')]);
  const ends = chart.querySelector('.interval').getBBox();
  const limit = chart.querySelector('.limit').getBBox();
  return {ticks, low: ends.x, high: ends.x + ends.width, limit: limit.x};
})()
"""
_BACKGROUND: Final = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all of these tests."""
    with open_browser(tmp_path_factory.mktemp("chromium")) as running:
        yield running


def _shown(browser: Browser, folder: Path, *documents: dict[str, Any]) -> None:
    path = folder / "page.html"
    path.write_bytes(page([samples.shown(document) for document in documents]))
    browser.requested.clear()
    browser.open(path)


def test_the_page_as_a_browser_shows_it(browser: Browser, tmp_path: Path) -> None:
    """Its figures are those of the report, names stay text, and it loads nothing but itself."""
    document = samples.whole()
    _shown(browser, tmp_path, document)
    shown = browser.ask("[...document.querySelectorAll('data')].map(data => +data.value)")
    figures = [figure for row in document["rows"] for figure in row.get("figures", ())]
    assert {figure["estimate"]["point"] for figure in figures} <= set(shown)
    assert browser.ask("window.hit === undefined && !document.querySelector('script, img, b b')")
    assert "<script>window.hit=1</script>" in browser.ask("document.body.textContent")
    assert len(browser.requested) == 1


@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_is_clipped(browser: Browser, tmp_path: Path, width: int) -> None:
    """Every text and chart lies within the window, with all that folds unfolded."""
    browser.resize(width)
    machines = [{**samples.META["machine"], "hardware": "an-endless-name-" * 9 + n} for n in "ab"]
    others = [("t", samples.rates(f"{samples.HOSTILE}{n}")) for n in range(3)]
    engines = [
        ("t", samples.rates("fake:Q8_0 on mlx", library="mlx-lm")),
        ("t", samples.rates(f"fake:Q8_0 on {samples.HOSTILE}", library=samples.HOSTILE)),
        ("t", samples.rates("fake:Q8_0")),
    ]
    documents = (samples.report([*others, *engines], machine=machine) for machine in machines)
    _shown(browser, tmp_path, samples.whole(), *documents)
    assert browser.ask("document.querySelectorAll('h2 + .figures').length") == 4
    assert browser.ask(_CLIPPED) == []
    assert browser.ask("document.documentElement.scrollWidth") <= width


def test_an_interval_lies_where_its_axis_says(browser: Browser, tmp_path: Path) -> None:
    """Places of the bar's ends and of the limit, read off the ticks, are the report's numbers."""
    document = samples.report([("t", samples.rates("m")), ("t", samples.claimed("m", 70))])
    _shown(browser, tmp_path, document)
    drawn = browser.ask(_DRAWN)
    (x1, first), *_, (x2, last) = drawn["ticks"]

    def value(x: float) -> float:
        return float(first + (x - x1) * (last - first) / (x2 - x1))

    figure = document["rows"][1]["figures"][0]
    places = {**{end: figure["estimate"][end] for end in ("low", "high")}, "limit": 70}
    assert figure["at_least"] == 70
    for place, wanted in places.items():
        assert value(drawn[place]) == pytest.approx(wanted, abs=0.02), place


def test_bars_are_as_long_as_their_figures(browser: Browser, tmp_path: Path) -> None:
    """Those of two machines begin at zero, and the table next to them has the report's numbers."""
    slow = samples.rates("m", scale=0.5)
    documents = [
        samples.report([("t", row)], machine={**samples.META["machine"], "hardware": name})
        for name, row in (("m2ultra", samples.rates("m")), ("m1max", slow))
    ]
    _shown(browser, tmp_path, *documents)
    widths = browser.ask("[...document.querySelectorAll('.bar')].map(bar => bar.getBBox().width)")
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.2)
    shown = browser.ask("[...document.querySelectorAll('figure data')].map(data => +data.value)")
    assert shown == [row["value"] for document in documents for row in document["measurements"]]


def test_colours_follow_the_system(browser: Browser, tmp_path: Path) -> None:
    """A dark system has a dark page."""
    _shown(browser, tmp_path, samples.report([]))
    brightness = []
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        brightness.append(sum(map(int, re.findall(r"\d+", browser.ask(_BACKGROUND)))))
    assert brightness[0] > 600
    assert brightness[1] < 150
