"""Words and links: docstrings begin with a noun or a verb, pages use public terms and lead on."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_asperf.cli import every_command

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
FOLDERS = ("pytest_asperf", "tests", "benchmarks", "scripts", "docs")
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.stem != "findings"),  # quotes
]
_CLAUSES = {"What", "Whether", "Which", "Of", "Where", "Whatever", "Beside", "Likewise"}
#: Words of a dialect, each with the term that a reader knows.
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
    r"withh(o|e)ld": "the verdict that comes instead",
    r"fleets?": "several machines",
    r"elsewhere": "the place, or out of scope",
    r"told": "report, print",
}


def _docstrings() -> Iterator[str]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    yield ast.get_docstring(node) or ""


def _dialect(text: str) -> list[str]:
    prose = re.sub(r"```.*?```|`[^`\n]*`|\]\([^)\n]*\)", "", text, flags=re.DOTALL)
    return [
        f"{found[0]}: write {term}"
        for word, term in TERMS.items()
        for found in re.finditer(rf"\b{word}\b", prose, re.IGNORECASE)
    ]


def test_few_docstrings_begin_with_a_clause() -> None:
    """A docstring names the value or the action first, in 98 of 100 cases."""
    firsts = [text.split()[0].strip(",:") for text in _docstrings() if text]
    clauses = [first for first in firsts if first in _CLAUSES]
    assert len(clauses) < 0.02 * len(firsts), f"{len(clauses)} of {len(firsts)}"


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
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in docs else ""
        if isinstance(text, str) and " " in text.strip():
            yield text


@pytest.mark.parametrize("room", sorted({p.parent for p in (ROOT / FOLDERS[0]).rglob("*.py")}))
def test_a_message_uses_the_public_terms(room: Path) -> None:
    """No text that a program prints has a word of TERMS, or names what users call otherwise."""
    found = {path.name: _dialect("\n".join(_messages(path))) for path in room.glob("*.py")}
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
