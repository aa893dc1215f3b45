import html
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

from pytest_asperf.report.page import page
from tests.report import sample_reports as samples


def _page(*documents: dict[str, Any]) -> str:
    return page([samples.shown(document) for document in documents]).decode()


def _texts(content: str) -> str:
    """The text of a page, tags left out."""
    return html.unescape(re.sub(r"<[^>]*>", "", content.partition("</head>")[2]))


def test_every_judged_figure_stands_in_it_exactly() -> None:
    """The page's data for programs equal the JSON report's."""
    document = samples.whole()
    shown = set(re.findall(r'<data value="([^"]+)"', _page(document)))
    figures = [figure for row in document["rows"] for figure in row.get("figures", ())]
    assert len(figures) == 6
    assert {repr(figure["estimate"]["point"]) for figure in figures} <= shown


def test_texts_are_those_of_the_report() -> None:
    """Each verdict's words, its advice and the command that repeats it are in its card."""
    document = samples.report(
        [
            ("test_it.py::test_x[a b]", samples.rates("m")),
            ("test_it.py::test_x[a b]", samples.claimed("m", 999)),
        ]
    )
    text = _texts(_page(document))
    for claim in document["assertions"]:
        for key in ("subject", "limit", "outcome", "measured", "advice", "repeat"):
            assert claim[key] in text, key
    assert "pytest 'test_it.py::test_x[a b]' --asperf-seed=7" in text


def test_the_worst_verdict_comes_first() -> None:
    """The heading counts them, and cards follow it."""
    content = _page(samples.whole())
    cards = re.findall(r'<article class="card ([a-z]+)"', content)
    assert cards == ["fail", "fail", "fail", "invalid", "inconclusive", "pass", "pass"]
    (heading,) = re.findall(r"<h1>(.*)</h1>", content)
    assert re.sub("<[^>]*>", "", heading) == "3 FAIL, 1 INVALID, 1 INCONCLUSIVE, 2 PASS"
    assert '<span class="whole">1 INCONCLUSIVE,</span>' in heading


def test_names_stay_text() -> None:
    """Markup in a name is shown, and control characters of order or colour are escaped."""
    content = _page(samples.whole())
    assert not re.search(r"<(script|img|b>)", content)
    assert "&lt;script&gt;" in content
    assert "\\x1b[31m\\u202e" in content
    assert not {"\x1b", "\u202e"} & set(content)


def test_it_needs_no_other_file() -> None:
    """Nothing is loaded and nothing is run: links lead into the page itself."""
    content = _page(samples.whole())
    reader = _Reader()
    reader.feed(content)
    assert not reader.tags & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert not {name for name, _ in reader.attributes if name == "src" or name[:2] == "on"}
    styles = {value for name, value in reader.attributes if name == "style"}
    assert all(re.fullmatch(r"flex-grow:\d+", style) for style in styles)
    assert all(value.startswith("#") for name, value in reader.attributes if name == "href")
    assert "default-src 'none'" in content
    style = content.partition("<style>")[2].partition("</style>")[0]
    assert not re.search(r"url\(|@import|//", style)


class _Reader(HTMLParser):
    """Keeps the tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {(name, value or "") for name, value in attrs}


def test_why_a_measurement_is_invalid_stands_open() -> None:
    """The reason is its result, with the rest of it below and the remedy."""
    content = _page(samples.report([("t", samples.invalid())]))
    text = _texts(content)
    assert "logits are NaN in 3 of 8 runs" in text
    assert "Remedy: mend the model" in text
    assert re.search(
        r'<details open=""><summary>Why</summary>.*the first at token 12', content, re.DOTALL
    )


def test_a_gate_shows_where_its_builds_differ() -> None:
    """Both builds are side by side, and only the differences are marked."""
    content = _page(samples.report([("t", samples.gate(1.3))]))
    assert re.search(r'<tr class="differs"><th>engine</th><td>a 1</td><td>a 2</td>', content)
    assert content.count('class="differs"') == 1
    assert "evidence after each pair" in content


def test_a_report_with_nothing_says_so() -> None:
    """A session that measured nothing has a page too."""
    assert "no assertion was judged" in _texts(_page(samples.report([])))


def test_a_hundred_claims_stay_small() -> None:
    """At most 500 kB, half of them gates of 60 pairs."""
    row: Sequence[Any] = (samples.gate(1.05, n=60), samples.rates("m"), samples.claimed("m", 84))
    noted = [(f"test_it.py::test_{n}", row[k]) for n in range(50) for k in range(3)]
    document = samples.report(noted)
    assert len(document["assertions"]) == 100
    assert len(_page(document).encode()) <= 500_000


def test_reports_of_one_name_are_told_apart() -> None:
    """Each has a heading, and links lead into its own part."""
    document = samples.report([("t", samples.rates("m")), ("t", samples.claimed("m", 1))])
    content = _page(document, document)
    assert "<h2>r.json (1)</h2>" in content
    assert "<h2>r.json (2)</h2>" in content
    anchors = re.findall(r' id="([^"]+)"', content)
    assert len(anchors) == len(set(anchors)) == 2
    assert all(f'href="#{anchor}"' in content for anchor in anchors)
