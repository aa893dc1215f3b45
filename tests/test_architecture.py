"""The rules of docs/architecture.md, checked by walking the imports."""

from __future__ import annotations

import ast
import graphlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

import pytest_asperf
from pytest_asperf.analysis.guards import Guard
from tests.syntax import nodes_of, tree_of

PACKAGE = "pytest_asperf"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Rooms in which facts of engines, models and contexts are dataclasses.
FACTS_ARE_TYPED = {"measure", "verdicts", "gate", "api", "plugin", "report", "store", "records"}
#: Records as plain data: the encoder and decoder, and the reader of a report.
PLAIN_DATA = {"records.codec", "records.report"}
#: Names of guards that a key or a text may have too.
EVERYDAY_WORDS = {"estimate", "queueing", "spread", "throttled"}
ROOT = Path(pytest_asperf.__file__).parent
TESTS = Path(__file__).parent
#: Rooms of the plugin of published statements, and the folders of its tests.
STATEMENTS = {"published", "findings"}
#: Those that are installed: the core's tests pass without the plugin.
INSTALLED = STATEMENTS if (ROOT / "published").exists() else set()

# A room is a module or a folder at the top of the package. It imports from its own tier or a lower
# one, and never in a circle, not even for a type.
TIERS: dict[str, set[str]] = {
    # Functions of values: a number's meaning, and its consequences.
    "analysis": {"errors", "analysis"},
    # The requests, parsed and frozen.
    "requests": {"config"},
    # Files, processes and clocks. `testing` starts workers for an engine.
    "machine": {
        *("hardware", "modelfiles", "builds", "worker", "engine_process", "measure", "store"),
        *("records", "testing"),
    },
    # The results of measurements: no pytest, no terminal.
    "results": {"report", "verdicts", "gate", "bisect", "nightly", "forecast", "audit"},
    # A test's values and assertions.
    "claims": {"api", "strategies"},
    # One session with a user: pytest's, or the command line's.
    "shell": {"plugin", "commands", "cli", *INSTALLED, "examples", "__init__"},
}

ROOT_MODULES = {"__init__", "errors", "cli", "strategies", "testing"}

PYTEST = {"pytest", "_pytest"}
#: The rooms that know pytest.
SHELL = {"plugin", "examples", *INSTALLED}

# No file, clock, process or network can be had from these; numpy and scipy are used for arithmetic.
PURE = {
    "bisect",
    *("__future__", "collections", "contextvars", "dataclasses", "enum", "functools", "itertools"),
    *("math", "re", "difflib", "statistics", "string", "sys", "textwrap", "types", "typing"),
    *("numpy", "scipy"),
}
IMPURE_BUILTINS = {"open", "print", "input", "exec", "eval", "__import__"}

# Imports of a worker's modules in addition to numpy, by the engine that their names begin with.
LIBRARIES = {"llama_cpp": {"llama_cpp"}, "mlx": {"mlx", "mlx_lm", "tokenizers", "transformers"}}

MAX_LINES = 600
MAX_METHODS = 20
MAX_PARAMETERS = 8


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name: a module of asperf's, otherwise the dotted name as written."""

    target: str
    line: int
    relative: bool
    at_run_time: bool


def _statements(tree: ast.AST, *, at_run_time: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """Yield each statement with whether it runs when types are not checked."""
    yield tree, at_run_time
    guards = isinstance(tree, ast.If) and ast.unparse(tree.test).endswith("TYPE_CHECKING")
    typed_only = tree.body if isinstance(tree, ast.If) and guards else []
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _statements(child, at_run_time=at_run_time and child not in typed_only)


def _targets(node: ast.Import | ast.ImportFrom, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        parts = package.split(".")
        base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])
    return [f"{base}.{alias.name}" for alias in node.names]


def imports_of(tree: ast.Module, package: str = PACKAGE) -> list[Import]:
    """Return the imports of a module's syntax tree, at any depth of nesting."""
    return [
        Import(target, node.lineno, bool(getattr(node, "level", 0)), at_run_time)
        for node, at_run_time in _statements(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for target in _targets(node, package)
    ]


@cache
def modules() -> dict[str, Path]:
    """Return the package's modules by their names below it; a folder's own file has its name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "__init__"] = path
    return found


@cache
def imports(name: str) -> tuple[Import, ...]:
    """Return the imports of one of the package's modules."""
    path = modules()[name]
    folder = ".".join((PACKAGE, *path.relative_to(ROOT).parent.parts))
    return tuple(imports_of(tree_of(path), folder))


def own(target: str) -> str | None:
    """Return the module of this package that an import loads, or None for other packages."""
    if target.partition(".")[0] != PACKAGE:
        return None
    inner = target.removeprefix(PACKAGE).lstrip(".")
    while inner and inner not in modules():
        inner = inner.rpartition(".")[0]
    return inner or "__init__"


def room(name: str) -> str:
    """Return the room that a module is in."""
    return name.partition(".")[0]


def tier(name: str) -> int:
    """Return the height of a module's room."""
    return next(height for height, rooms in enumerate(TIERS.values()) if room(name) in rooms)


def those_in(rooms: Collection[str]) -> list[str]:
    """Return the modules in the rooms."""
    return [name for name in modules() if room(name) in rooms]


def nodes(name: str) -> tuple[ast.AST, ...]:
    """Return the nodes of a module's syntax tree."""
    return nodes_of(modules()[name])


def offenders(names: Iterable[str], forbidden: Callable[[str, Import], bool]) -> list[str]:
    """Return the forbidden imports of the modules, each with its place."""
    return [
        f"{name}:{one.line} imports {one.target}"
        for name in names
        for one in imports(name)
        if forbidden(name, one)
    ]


def test_the_walk_sees_late_relative_and_type_only_imports() -> None:
    """The walk distinguishes an import that runs, however deep, from one that only types need."""
    source = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import only_typed
else:
    import fallback
def late():
    from . import sibling
    from ..above import thing
"""
    found = {
        (one.target, one.at_run_time) for one in imports_of(ast.parse(source), f"{PACKAGE}.worker")
    }
    assert found == {
        ("typing.TYPE_CHECKING", True),
        ("only_typed", False),
        ("fallback", True),
        (f"{PACKAGE}.worker.sibling", True),
        (f"{PACKAGE}.above.thing", True),
    }


def graph(names: Callable[[str], str]) -> dict[str, set[str]]:
    """Return the imports, types included, of modules or of the rooms that `names` gives.

    The package itself loads a public name on request, so its types are no imports.
    """
    edges: dict[str, set[str]] = {names(name): set() for name in modules()}
    for name in modules():
        for one in imports(name):
            is_door = name == "__init__" and not one.at_run_time
            if not is_door and (target := own(one.target)) and names(target) != names(name):
                edges[names(name)].add(names(target))
    return edges


def test_every_room_has_one_tier() -> None:
    """A new room is placed, and one that is gone is removed."""
    assert sorted({room(name) for name in modules()}) == sorted(chain(*TIERS.values()))


def test_the_root_holds_few_modules() -> None:
    """A module that is no room of its own goes into the folder that names its subject."""
    assert {name for name, path in modules().items() if path.parent == ROOT} == ROOT_MODULES


def test_imports_go_down() -> None:
    """No module imports from a tier above its own, not even a type."""

    def upward(name: str, one: Import) -> bool:
        target = own(one.target)
        return target is not None and tier(target) > tier(name)

    assert offenders(modules(), upward) == []


@pytest.mark.parametrize("names", [str, room], ids=["modules", "rooms"])
def test_no_import_goes_in_a_circle(names: Callable[[str], str]) -> None:
    """Modules and rooms can be read in an order, types included."""
    graphlib.TopologicalSorter(graph(names)).prepare()


def test_verdicts_know_nothing_of_their_reports() -> None:
    """Words are made last: measurements lead to verdicts, and only then to a report."""

    def of_report(_: str, one: Import) -> bool:
        return room(own(one.target) or "") == "report"

    assert offenders(those_in({"measure", "verdicts", "gate", "records", "store"}), of_report) == []


def test_published_statements_are_a_plugin() -> None:
    """No module of the core imports them.

    The command line lists their command, and the package the name of their assertion.
    """
    outside = {*STATEMENTS, "__init__", "cli"}

    def of_statements(_: str, one: Import) -> bool:
        return room(own(one.target) or "") in STATEMENTS

    core = [name for name in modules() if room(name) not in outside]
    assert offenders(core, of_statements) == []


def test_the_cores_tests_need_no_published_statements() -> None:
    """Tests of the plugin have folders of their own; the others import none of its modules."""
    needed = {
        f"{path.relative_to(TESTS)}:{one.line} imports {one.target}"
        for path in TESTS.rglob("*.py")
        if path.relative_to(TESTS).parts[0] not in STATEMENTS
        for one in imports_of(tree_of(path))
        if room(own(one.target) or "") in STATEMENTS
        or one.target == f"{PACKAGE}.assert_as_published"
        or one.target.startswith(tuple(f"tests.{name}." for name in STATEMENTS))
    }
    assert needed == set()


def test_only_the_shell_knows_pytest() -> None:
    """The name pytest is in the plugin and the findings, and in no other room even for a type."""
    knowing = {
        room(name) for name in modules() if any(room(one.target) in PYTEST for one in imports(name))
    }
    assert knowing == SHELL


def test_analysis_is_arithmetic() -> None:
    """Judging reads no file, no clock and no environment."""

    def foreign(_: str, one: Import) -> bool:
        return one.at_run_time and own(one.target) is None and room(one.target) not in PURE

    analysis = those_in(TIERS["analysis"])
    called = {
        (name, node.func.id)
        for name in analysis
        for node in nodes(name)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert offenders(analysis, foreign) == []
    assert {call for call in called if call[1] in IMPURE_BUILTINS} == set()


def test_the_worker_is_an_island() -> None:
    """The worker loads if there is an engine, numpy and nothing of ours, under any name."""

    def foreign(name: str, one: Import) -> bool:
        if one.relative:
            return room(own(one.target) or "") != "worker"
        module = name.partition(".")[2]
        own_engine = (libs for engine, libs in LIBRARIES.items() if module.startswith(engine))
        libraries = {"numpy", *chain.from_iterable(own_engine)}
        return room(one.target) not in sys.stdlib_module_names | libraries

    assert offenders(those_in({"worker"}), foreign) == []


def test_modules_stay_readable() -> None:
    """No module outgrows a reader, and none is a drawer for everything."""
    lengths = {name: len(path.read_text("utf-8").splitlines()) for name, path in modules().items()}
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}
    assert [name for name in lengths if name.rpartition(".")[2] in {"utils", "util"}] == []


def test_classes_stay_readable() -> None:
    """No class knows everything, and no two have one name."""
    classes = [
        (node.name, f"{name}.{node.name}", len([n for n in node.body if isinstance(n, _FUNCTIONS)]))
        for name in modules()
        for node in nodes(name)
        if isinstance(node, ast.ClassDef)
    ]
    assert {where: methods for _, where, methods in classes if methods > MAX_METHODS} == {}
    counted = Counter(name for name, _, _ in classes)
    assert [where for name, where, _ in classes if counted[name] > 1] == []


def test_signatures_stay_readable() -> None:
    """A function with many parameters wants a dataclass."""
    long = {
        f"{name}.{node.name}"
        for name in modules()
        for node in nodes(name)
        if isinstance(node, _FUNCTIONS) and _n_parameters(node) > MAX_PARAMETERS
    }
    assert not long


def _n_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len([name for name in given if name not in {"self", "cls"}])


def test_no_guard_is_named_outside_its_room() -> None:
    """An assertion uses a guard's void list, and never the guard that tripped."""
    elsewhere = [
        name
        for name in modules()
        if not name.startswith("analysis.guards") and room(name) != "worker"  # kinds of its own
    ]
    guards = set(Guard) - EVERYDAY_WORDS
    named = {
        (name, node.value)
        for name in elsewhere
        for node in nodes(name)
        if isinstance(node, ast.Constant) and node.value in guards
    }
    compared = {
        (name, node.lineno)
        for name in elsewhere
        for node in nodes(name)
        if isinstance(node, ast.Compare) and _compares_guards(node)
    }
    assert named | compared == set()


def _compares_guards(node: ast.Compare) -> bool:
    within = list(chain.from_iterable(map(ast.walk, node.comparators)))
    by_name = any(isinstance(n, ast.Constant) and n.value in EVERYDAY_WORDS for n in within)
    is_guard = (isinstance(n, ast.Attribute) and n.attr == "guard" for n in (node.left, *within))
    return by_name or any(is_guard)


def test_no_untyped_facts_above_the_wire() -> None:
    """Answers of a worker are parsed where they arrive; above it nothing is read by string."""
    untyped = {
        name
        for name in those_in(FACTS_ARE_TYPED)
        if name not in PLAIN_DATA
        and re.search(r"(dict|Mapping)\[str, Any\]", modules()[name].read_text("utf-8"))
    }
    assert untyped == set()


def test_no_sentence_is_made_of_a_guards_finding_below_report() -> None:
    """Records keep a guard's finding; `report/` and the text of an error put it into words."""
    sentence = re.compile(r"map\(str, [^)\n]*(guard|finding)|(\{|\bstr\()\w*finding[})]")
    found = {
        name
        for name in those_in(FACTS_ARE_TYPED - {"report"})
        if sentence.search(modules()[name].read_text("utf-8"))
    }
    assert found == set()
