"""A user's imports: every name is there, and examples pass `mypy --strict` and pyright."""

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_asperf
from pytest_asperf import Quantity
from pytest_asperf.plugin import fixtures

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Their types would cost seconds, and no public name is made of them.
CONFIGURATION = """[mypy]
strict = True
[mypy-numpy.*,scipy.*,rich.*,gguf.*,psutil.*,click.*,filelock.*,platformdirs.*,packaging.*]
follow_imports = skip
follow_imports_for_stubs = True
[mypy-sqlalchemy.*,psycopg.*]
follow_imports = skip
"""
USERS_FILE = Path(__file__).with_name("every_quantity.py")
#: In addition those of plugins, by module.
USERS_FILES = {path.stem: path.read_text("utf-8") for path in USERS_FILE.parent.rglob("every_*.py")}
#: By a slip, a line of a user's test that type checkers must find.
_SLIPS = {
    "typo_of_a_name": "from pytest_asperf import assert_lossles",
    "typo_of_a_keyword": "assert_ppl_delta(perplexity, bellow='1%')",
    "typo_of_a_quantity": "assert perplexity.klt < 0.01",
    "limit_of_no_type": "assert perplexity.kld < None",
    "fixture_not_called": "assert throughput >= '40 tok/s'",
    "ratio_to_a_number": "assert perplexity.ppl / 2 < 5",
    "sum": "assert perplexity.ppl + perplexity.ppl < 5",
}
_HEAD = """from pytest_asperf import Quant, Throughput, assert_ppl_delta


def test_it(perplexity: Quant, throughput: Throughput) -> None:
    """
WRONG = {name: f"{_HEAD}{slip}\n" for name, slip in _SLIPS.items()}


def public_fixtures() -> dict[str, str]:
    """Return the annotation of each fixture's value, by the fixture's name."""
    source = ast.parse(Path(fixtures.__file__).read_text(encoding="utf-8"))
    return {
        node.name: ast.unparse(node.returns)
        for node in source.body
        if isinstance(node, ast.FunctionDef) and node.returns and not node.name.startswith("_")
    }


def typed(code: str) -> str:
    """Return an example as a module, with the types of its tests' fixtures."""
    annotations, tree, added = public_fixtures(), ast.parse(code), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = node.returns or ast.Constant(None)
            for argument in node.args.args:
                if argument.annotation is None and argument.arg in annotations:
                    name = annotations[argument.arg]
                    argument.annotation = ast.Name(name)
                    added |= {name} & set(pytest_asperf.__all__)
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
    from mypy import api  # it costs a second, and one worker of xdist needs it

    modules = {name: typed(code) for name, code in examples().items()} | WRONG | USERS_FILES
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


def test_the_examples_are_typed(errors: dict[str, list[str]]) -> None:
    """They import public names only, and use them as they are declared."""
    assert {name: errors[name] for name in examples() if errors[name]} == {}


def test_a_slip_is_an_error(errors: dict[str, list[str]]) -> None:
    """A type checker sees the names and operators that there are, and no catch-all behind them."""
    assert {name: errors[name] for name in WRONG if len(errors[name]) != 1} == {}


def test_every_quantity_is_typed(errors: dict[str, list[str]]) -> None:
    """A user's file with all of them passes `mypy --strict`."""
    assert {name: errors[name] for name in USERS_FILES if errors[name]} == {}


def test_pyright_agrees(tmp_path: Path) -> None:
    """The same file passes pyright's strict mode, and each slip does not."""
    pytest.importorskip("pyright")
    for name, code in (WRONG | USERS_FILES).items():
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)], "include": ["."]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(
        [*command, "-p", str(tmp_path)], capture_output=True, text=True, check=False, timeout=300
    )
    found: dict[str, list[str]] = {}
    for problem in json.loads(done.stdout)["generalDiagnostics"]:
        found.setdefault(Path(problem["file"]).stem, []).append(problem["message"])
    assert {name: found[name] for name in USERS_FILES if name in found} == {}
    assert found.keys() == WRONG.keys()


def _quantities(of: type[Quantity] = Quantity) -> set[str]:
    names = {of.__name__}
    return names.union(*map(_quantities, of.__subclasses__()))


def _returned(function: object) -> str:
    """The name of the type that a function is annotated with; a postponed annotation is a text."""
    annotation = inspect.get_annotations(function).get("return")  # type: ignore[arg-type]  # callable
    return str(getattr(annotation, "__name__", annotation))


def test_the_users_file_has_every_quantity() -> None:
    """Each property and method of a public type that gives a quantity is used in it."""
    text = USERS_FILE.read_text("utf-8")
    types = [
        t for name in pytest_asperf.__all__ if isinstance(t := getattr(pytest_asperf, name), type)
    ]
    kinds = _quantities()  # of the imports of the types above
    given = {
        name
        for one in types
        for name, member in vars(one).items()
        if not name.startswith("_")
        and not hasattr(Quantity, name)
        and callable(getattr(member, "fget", member))
        and _returned(getattr(member, "fget", member)) in kinds
    }
    assert len(given) >= 30
    assert {name for name in given if f".{name}" not in text} == set()


@pytest.mark.parametrize("name", pytest_asperf.__all__)
def test_a_public_name_is_there(name: str) -> None:
    """Loading it on first use works."""
    assert getattr(pytest_asperf, name) is not None
    assert name in dir(pytest_asperf)


def test_the_values_of_fixtures_have_public_types() -> None:
    """A test can annotate its fixtures: `throughput: Throughput`."""
    assert set(public_fixtures().values()) <= {*pytest_asperf.__all__, "str | None"}


@pytest.mark.parametrize("path", sorted((ROOT / "pytest_asperf").glob("*/test_*.py")))
def test_the_shipped_tests_are_written_as_a_user_would(path: Path) -> None:
    """They import public names, so that they can be copied."""
    modules = {
        node.module
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pytest_asperf")
    }
    assert modules <= {"pytest_asperf", "pytest_asperf.strategies"}
