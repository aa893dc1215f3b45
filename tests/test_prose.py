"""Words and links: code, messages and pages use public terms, and links lead to their targets."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from pytest_asperf.cli import every_command
from tests.syntax import nodes_of

ROOT = Path(__file__).parents[1]
FOLDERS = ("pytest_asperf", "tests", "benchmarks", "scripts", "docs")
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.stem != "findings"),  # quotes
    *sorted((ROOT / "pytest_asperf" / "data").glob("[fr]*/README.md")),
]
CLAUSES = "What|Whether|Which|Of|Where|Whatever|Beside|Likewise"
#: Words of a dialect, each with the public term.
TERMS = {
    r"proofs? of path": "run record",
    r"order (of|by) (a|the) coin": "random order",
    r"rungs?": "quantization",
    r"(quantization|smaller|no known|this|another) level": "quantization",
    r"foreign programs?": "external program",
    r"anchors?": "fixed baseline",
    r"(last|missing) nights?": "run, or nightly run",
    r"in place of": "instead of",
    r"in force": "selected",
    r"arms?": "build, or side",
    r"quantis\w+": "quantiz…",
    r"beside": "in addition to, compared with, next to",
    r"likewise": "repeat the words",
    r"withh(o|e)ld\w*": "the verdict that comes instead",
    r"fleets?": "several machines",
    r"elsewhere": "the place, or out of scope",
    r"told": "report, print",
}


#: Verbs that a program does not do.
VERBS = {
    r"tells?|telling": "report, print, distinguish",
    r"held|holds?|holding": "have, contain, keep, lock",
    r"stands?|stood|standing": "is, means",
    r"refus\w+": "reject, raise",
    r"asks?|asked|asking": "request, use",
    r"lets?": "allow",
    r"else (the|a|an|it|its|by|from|in|none|\d)": "otherwise",
}
#: Words that code has in its names, and so often in its docstrings and comments.
NAMES = {
    r"coins?": "random order",
    r"(in|by|a|each|per|every|the|of|first|last|other) turns": "run pair",
    r"(a|each|per|every|run) turn": "run pair",
    r"cells?": "check",
    r"levels?": "quantization",
    r"(both|either|each|two|one|other|of its) sides?": "build, or variant",
    r"(a|each|every|one|two|whose) readings?": "measurement",
    r"tails?": "p95, or end",
    r"(a|the|each|which|by|has|have) roles?": "model slot",
    r"recorded (figures?|numbers?|values?|findings?)": "published",
    r"ladders?": "quant sweep",
    r"hand(s|ed|ing)? ?overs?": "KV handoff",
    r"claims? (of ours|that it|is|holds?)": "assertion",
    r"(takes?|took)(?! (\d|longer|so far))": "need, use, accept, last",
    rf"(?-i:(?<![\w,] )({CLAUSES}))(?= \w)": "a noun first",
}
#: What these words mean to every reader, in a few collocations.
ALLOWED = r"""(?x) fair\s+coin | (cache|saved|table)\s+cells? | role\s+chunks? | held-out
    | quant_ladder | take\s+turns
    | (last|log|byte|low|top|thermal|service|confidence|core|system)[-\s]levels?
    | (nothing|anything)\s+else | published\s+claims? | RefusalError | (?-i:\bArm\b)
    | Connection\s+refused"""


@cache
def _any_of(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(f'(?:{word})' for word in words)})\b", re.IGNORECASE)


def _dialect(text: str, terms: dict[str, str] = TERMS) -> list[str]:
    prose = re.sub(r"```.*?```|`[^`\n]*`|\]\([^)\n]*\)", "", text, flags=re.DOTALL)
    prose = re.sub(ALLOWED, "", prose, flags=re.IGNORECASE)
    return [
        f"{found[0]}: write {term}"
        for found in _any_of(tuple(terms)).finditer(prose)
        for word, term in terms.items()
        if _any_of((word,)).match(prose, found.start())
    ]


#: Words of a sentence, and of a table's cell; one without a letter or a digit is none.
MOST_WORDS, MOST_IN_CELL = 25, 12
#: Pages that code writes, or that quote.
WRITTEN = {"api", "commands", "json", "quantities"}


def _prose(text: str) -> str:
    """A page without code, generated parts and samples."""
    kept = re.sub(r"(?s)<!-- (generated|sample).*?<!-- end -->|```.*?```", "\n\n", text)
    return re.sub(r"(?m)^( {4,}(?![-*] |\d+\. )(?=\S).*\n)+", "\n", kept)


def _plain(text: str) -> str:
    """A text on one line; code in it is one word, and so is a link's address."""
    return re.sub(r"`[^`]*`", "X", re.sub(r"\]\([^)]*\)", "]", " ".join(text.split())))


def _sentences(text: str) -> Iterator[str]:
    """The sentences of a page's paragraphs and items; a table or a heading has none."""
    lines = re.sub(r"(?m)^(\||#|<!--).*$", "", _prose(text))
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", f"\n{lines}"):
        yield from re.split(r"(?<=[.!?])[*)\"]*\s+", _plain(paragraph))


def _cells(text: str) -> Iterator[str]:
    for line in re.findall(r"(?m)^\|(.*)\|$", _prose(text)):
        yield from map(_plain, re.split(r"(?<!\\)\|", line))


def _longer(parts: Iterable[str], most: int) -> list[str]:
    return [part for part in parts if sum(bool(re.search(r"\w", w)) for w in part.split()) > most]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem not in WRITTEN], ids=lambda page: page.stem
)
def test_a_sentence_can_be_read_at_once(page: Path) -> None:
    """No sentence of a page has more than 25 words, and no cell of its tables more than 12."""
    text = page.read_text(encoding="utf-8")
    assert _longer(_sentences(text), MOST_WORDS) == []
    assert _longer(_cells(text), MOST_IN_CELL) == []


def test_a_long_sentence_is_found() -> None:
    """The limits count words over lines and after a list's mark, and code as one word."""
    long = " ".join(["word"] * 26)
    page = f"# {long}\n\n- One.\n- {long[:60]}\n  {long[60:]}. Two.\n\n`{long}` three.\n"
    assert _longer(_sentences(page), MOST_WORDS) == [f"{long}."]
    assert _longer(_cells(f"| a | {long} |\n"), MOST_IN_CELL) == [long]


#: A string, or a comment: `tokenize` of all modules takes 3 s of CPU.
_STRING_OR_COMMENT = re.compile(
    r'''(?s)"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|#(?P<text>[^\n]*)'''
)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """The comments of a module, each with its line."""
    line, end = 1, 0
    for found in _STRING_OR_COMMENT.finditer(source):
        if found["text"] is not None:
            line += source.count("\n", end, found.start())
            end = found.start()
            yield line, found["text"]


def _spoken(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a module, each with its line."""
    source = path.read_text(encoding="utf-8")
    for node in nodes_of(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names = r"(?m)^ +[\w*]+(, [\w*]+)*:"  # of arguments, attributes and errors
            yield getattr(node, "lineno", 1), re.sub(names, "", ast.get_docstring(node) or "")
    last, comment = 0, ""
    for line, text in _comments(source):
        if line > last + 1:
            yield last, comment
            comment = ""
        last, comment = line, f"{comment} {text.lstrip('#: ')}"
    yield last, comment.lstrip()


@pytest.mark.parametrize(
    "room", sorted({path.parent for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")})
)
def test_docstrings_and_comments_use_the_public_terms(room: Path) -> None:
    """No docstring and no comment has a word of TERMS, VERBS or NAMES."""
    found = [
        f"{path.name}:{line}: {word}"
        for path in sorted(room.glob("*.py"))
        if path != Path(__file__)
        for line, text in _spoken(path)
        for word in _dialect(text, TERMS | VERBS | NAMES)
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_uses_the_public_terms(page: Path) -> None:
    """The prose of a page has no word of TERMS; code and links may."""
    assert _dialect(page.read_text(encoding="utf-8")) == []


def test_help_uses_the_public_terms() -> None:
    """The help of a command has no word of TERMS either."""
    for words, command in every_command():
        helps = [
            command.help or "",
            *(getattr(param, "help", "") or "" for param in command.params),
        ]
        assert _dialect("\n".join(helps)) == [], words


def _messages(path: Path) -> Iterator[str]:
    """The texts of a module with more than one word; no docstring, and no value of an f-string."""
    docs = {id(node.value) for node in nodes_of(path) if isinstance(node, ast.Expr)}
    for node in nodes_of(path):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in docs else ""
        if isinstance(text, str) and " " in text.strip():
            yield text


@pytest.mark.parametrize("room", sorted({p.parent for p in (ROOT / FOLDERS[0]).rglob("*.py")}))
def test_a_message_uses_the_public_terms(room: Path) -> None:
    """No text that a program prints has a word of TERMS or VERBS."""
    found = {
        path.name: [word for text in _messages(path) for word in _dialect(text, TERMS | VERBS)]
        for path in room.glob("*.py")
    }
    assert {name: words for name, words in found.items() if words} == {}


def _slugs(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    plain = (re.sub(r"[^\w\- ]", "", head.lower()) for head in re.findall(r"(?m)^#+ (.*)$", text))
    return {head.strip().replace(" ", "-") for head in plain}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.stem)
def test_a_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    """Every page can be read in the repository, without a site."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in _slugs(target)):
            wrong.append(link)
    assert wrong == []
