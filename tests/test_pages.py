"""The pages: one task each, all listed, and no printed sample that nothing makes again."""

import re
import runpy
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
INDEX = (DOCS / "index.md").read_text("utf-8")
#: Pages that `docs/reference.py` writes as a whole.
GENERATED = {"api", "findings", "quantities"}
_BLOCK = re.compile(r"^```(\w*)\n.*?^```$", re.MULTILINE | re.DOTALL)


def listed(caption: str) -> list[Path]:
    """The pages of a part of the index."""
    (names,) = re.findall(rf":caption: {caption}\n\n(.*?)```", INDEX, re.DOTALL)
    return [page for name in names.split() for page in sorted(DOCS.glob(f"{name}.md"))]


CAPTIONS = re.findall(r":caption: (.*)", INDEX)
HOW_TO = listed("How to")


@pytest.fixture
def samples() -> dict[str, Any]:
    """The names of the module that makes the samples."""
    return runpy.run_path(str(DOCS / "samples.py"))


def test_the_index_has_every_page_once() -> None:
    """A page that nobody can find is none."""
    found = [page for caption in CAPTIONS for page in listed(caption)]
    assert sorted(found) == sorted(set(DOCS.glob("*.md")) - {DOCS / "index.md"})
    assert [page.name for page in found if f"]({page.name}" not in INDEX] == []


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_a_how_to_page_is_short(page: Path) -> None:
    """A second task has a page of its own."""
    assert len(page.read_text("utf-8").splitlines()) <= 100


def test_the_whole_stays_short() -> None:
    """Lines that nobody generates, of all pages together."""
    pages = [page for page in DOCS.glob("*.md") if page.stem not in GENERATED]
    pages += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    texts = [
        re.sub(r"<!-- generated.*?<!-- end -->", "", page.read_text("utf-8"), flags=re.DOTALL)
        for page in pages
    ]
    assert sum(len(text.splitlines()) for text in texts) < 5744


def test_each_sample_has_a_command_that_makes_it_again(samples: dict[str, Any]) -> None:
    """A page shows the samples of the script, each once, below its command."""
    shown = {
        found[2]: found[3]
        for page in samples["PAGES"]
        for found in samples["REGION"].finditer(page.read_text("utf-8"))
    }
    assert shown.keys() == samples["SAMPLES"].keys()
    for name, sample in samples["SAMPLES"].items():
        if sample.is_dated:
            assert shown[name].splitlines()[0] == f"$ {sample.command}"
        assert re.search(sample.first, shown[name])
        assert re.search(sample.last, shown[name])


def remade(samples: dict[str, Any], page: Path, code: str, exit_code: int, **part: Any) -> str:
    """A page with a sample of what Python printed, after it was made again."""
    page.write_text("before\n<!-- sample: x -->\n```\nold\n```\n<!-- end -->\n", "utf-8")
    command = shlex.join([sys.executable, "-c", code])
    samples["write"]("x", samples["Sample"](command, exit_code, **part), [page])
    return page.read_text("utf-8")


def test_a_sample_is_run_and_replaces_the_old_one(samples: dict[str, Any], tmp_path: Path) -> None:
    """Command, part of the output, machine and date are written, and nothing else changes."""
    made = remade(
        samples,
        tmp_path / "page.md",
        "print('\\n\\na\\nb\\nc\\nd')",
        0,
        last="c",
        without=("b", "c"),
    )
    assert re.fullmatch(
        r"before\n<!-- sample: x -->\n```\n\$ .*\na\nc\n```\n"
        r"\(.+, \d+ cores, \d{4}-.*\)\n<!-- end -->\n",
        made,
    )


@pytest.mark.parametrize(
    ("code", "part", "error"),
    [
        ("", {}, "no line matches"),
        ("print(); print('  ')", {}, "no line matches"),
        ("print('a')", {"first": "b"}, "no line matches 'b'"),
        ("print('b'); print('a')", {"first": "a", "last": "b"}, "no line matches 'b'"),
        ("print('a')", {"without": ("b", "a")}, "no line matches 'b'"),
        ("print('a'); exit(3)", {}, "exit code 3 instead of 0"),
    ],
)
def test_a_sample_that_is_not_there_is_an_error(
    samples: dict[str, Any], tmp_path: Path, code: str, part: dict[str, Any], error: str
) -> None:
    """No page gets an empty sample, one of a failed command or one without its end."""
    page = tmp_path / "page.md"
    with pytest.raises(ValueError, match=error):
        remade(samples, page, code, 0, **part)
    assert "\nold\n" in page.read_text("utf-8")


def test_a_sample_without_a_page_is_an_error(samples: dict[str, Any], tmp_path: Path) -> None:
    """A misspelt name is found."""
    (tmp_path / "page.md").write_text("no sample\n", "utf-8")
    sample = samples["Sample"](shlex.join([sys.executable, "-c", "print(1)"]), 0)
    with pytest.raises(ValueError, match="no page shows the sample x"):
        samples["write"]("x", sample, [tmp_path / "page.md"])


@pytest.mark.parametrize("page", [ROOT / "README.md", *HOW_TO], ids=lambda page: page.stem)
def test_no_output_is_typed_by_hand(page: Path, samples: dict[str, Any]) -> None:
    """A block without a language is what a command printed, so the script makes it."""
    text = samples["REGION"].sub("", page.read_text("utf-8"))
    assert [found[0] for found in _BLOCK.finditer(text) if not found[1]] == []


def test_the_page_of_settings_has_every_variable() -> None:
    """A variable of the environment that the package reads is explained."""
    read = {
        name
        for path in (ROOT / "pytest_asperf").rglob("*.py")
        for name in re.findall(
            r"(?:environ|env)(?:\.get)?[\[(]\"([A-Z_]+)\"|= \"((?:GITHUB|ASPERF)_[A-Z_]+)\"",
            path.read_text("utf-8"),
        )
        for name in name
        if name
    }
    page = (DOCS / "configuration.md").read_text("utf-8")
    others = {
        "HF_HUB_OFFLINE",
        "PYTEST_CURRENT_TEST",
        "PATH",
        "LD_LIBRARY_PATH",
        "LIBPATH",
        "PYTHONTZPATH",
        "TERM",
    }
    assert {name for name in read - others if f"`{name}`" not in page} == set()


def test_an_address_of_the_project_has_one_place() -> None:
    """`[project.urls]` names the owner, and every page the same one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {"Source", "Documentation", "Issues", "Changelog"} <= project["urls"].keys()
    owner = project["urls"]["Source"].split("/")[-2]
    for page in [*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "action.yml"]:
        named = set(re.findall(r"([\w-]+)/pytest-asperf\b", page.read_text("utf-8")))
        assert named <= {owner}, page.name
