"""What a user imports: every name is there, and the documents' examples pass `mypy --strict`."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
from mypy import api

import pytest_asperf
from pytest_asperf.plugin import fixtures

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Their types would cost seconds, and no public name is made of them.
CONFIGURATION = """[mypy]
strict = True
[mypy-numpy.*,scipy.*,rich.*,gguf.*,psutil.*,typer.*,filelock.*,platformdirs.*,packaging.*]
follow_imports = skip
"""
WRONG = {
    "typo_of_a_name": "from pytest_asperf import assert_troughput",
    "typo_of_a_keyword": (
        "from pytest_asperf import Perplexity, assert_ppl_delta\n"
        "def test_it(perplexity: Perplexity) -> None:\n"
        "    assert_ppl_delta(perplexity, bellow='1%')\n"
    ),
}


def public_fixtures() -> dict[str, str]:
    """Return the annotation of each fixture's value, by the fixture's name."""
    source = ast.parse(Path(fixtures.__file__).read_text(encoding="utf-8"))
    return {
        node.name: ast.unparse(node.returns)
        for node in source.body
        if isinstance(node, ast.FunctionDef) and node.returns and not node.name.startswith("_")
    }


def typed(code: str) -> str:
    """Return an example as a module, with the types of the fixtures that its tests take."""
    annotations, tree, added = public_fixtures(), ast.parse(code), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = node.returns or ast.Constant(None)
            for argument in node.args.args:
                if argument.annotation is None and argument.arg in annotations:
                    plain = annotations[argument.arg] == "str | None"
                    name = "str | None" if plain else argument.arg.capitalize()
                    argument.annotation = ast.Name(name)
                    added |= set() if plain else {name}
    # An example with imports is complete; one without is a fragment of a file.
    fragment = "import pytest\nfrom pytest_asperf import *\n"
    types = f"from pytest_asperf import {', '.join(sorted(added))}\n" if added else ""
    complete = re.search(r"^(from|import) ", code, re.MULTILINE)
    return f"{types if complete else fragment}{ast.unparse(ast.fix_missing_locations(tree))}\n"


def examples() -> dict[str, str]:
    """Return the Python blocks of all pages, by page and line."""
    found = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.finditer(r"^( *)```python\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
            line = text[: block.start()].count("\n") + 1
            name = re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))
            found[f"{name}_{line}"] = re.sub(rf"^{block[1]}", "", block[2], flags=re.MULTILINE)
    return found


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Check all examples and the wrong ones in one run; return mypy's errors by module."""
    folder = tmp_path_factory.mktemp("examples")
    modules = {name: typed(code) for name, code in examples().items()} | WRONG
    for name, code in modules.items():
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    (folder / "mypy.ini").write_text(CONFIGURATION)
    limit = sys.getrecursionlimit()
    out, err, _ = api.run(
        [
            *("--config-file", str(folder / "mypy.ini"), "--cache-dir", str(folder / "cache")),
            *(str(folder / f"{name}.py") for name in modules),
        ]
    )
    sys.setrecursionlimit(limit)  # mypy raises it, which other tests in this process would see
    assert not err, err
    lines = [line for line in out.splitlines() if ": error: " in line]
    return {name: [x for x in lines if f"{name}.py:" in x] for name in modules}


@pytest.mark.parametrize("name", examples())
def test_an_example_is_typed(name: str, errors: dict[str, list[str]]) -> None:
    """It imports public names only, and uses them as they are declared."""
    assert errors[name] == []


@pytest.mark.parametrize("name", examples())
def test_an_example_imports_public_modules_alone(name: str) -> None:
    """No reader is sent to a module that may move."""
    imports = re.findall(
        r"^\s*(?:from|import) +(pytest_asperf[\w.]*)", examples()[name], re.MULTILINE
    )
    assert set(imports) <= {"pytest_asperf", "pytest_asperf.strategies", "pytest_asperf.testing"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_file_that_a_page_names_exists(page: Path) -> None:
    """A file that moved is named by its new path."""
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"(?<![\w./])(?:tests|benchmarks|fixtures|pytest_asperf)/[\w./-]*\w", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", WRONG)
def test_a_typo_is_an_error(name: str, errors: dict[str, list[str]]) -> None:
    """A type checker sees the names that there are, and no catch-all behind them."""
    assert len(errors[name]) == 1


@pytest.mark.parametrize("name", pytest_asperf.__all__)
def test_a_public_name_is_there(name: str) -> None:
    """Loading it on first use works."""
    assert getattr(pytest_asperf, name) is not None
    assert name in dir(pytest_asperf)


@pytest.mark.parametrize(("fixture", "annotation"), public_fixtures().items())
def test_the_value_of_a_fixture_has_a_public_type(fixture: str, annotation: str) -> None:
    """A test can annotate what it takes: `throughput: Throughput`."""
    if annotation in {"str", "str | None"}:
        return
    public = {
        getattr(pytest_asperf, name).__name__: name
        for name in pytest_asperf.__all__
        if isinstance(getattr(pytest_asperf, name), type)
    }
    named_after = "PublishedFinding" if fixture == "asperf_finding" else fixture.capitalize()
    assert public[annotation] == named_after


@pytest.mark.parametrize("path", sorted((ROOT / "pytest_asperf").glob("*/test_*.py")))
def test_the_shipped_tests_are_written_as_a_user_would(path: Path) -> None:
    """They import public names, so that they can be copied."""
    modules = {
        node.module
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pytest_asperf")
    }
    assert {"pytest_asperf"} <= modules <= {"pytest_asperf", "pytest_asperf.strategies"}
