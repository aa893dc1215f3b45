"""The rules of docs/architecture.md, held by walking the imports."""

from __future__ import annotations

import ast
import graphlib
import sys
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest_asperf

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

PACKAGE = "pytest_asperf"
ROOT = Path(pytest_asperf.__file__).parent

# A room is a module or a folder at the top of the package; every room has one tier, and imports
# nothing from a higher one.
TIERS = (
    # Functions of values: what a number means, and what follows from it.
    {
        *("errors", "stats", "metrics", "verdict", "joint_verdict", "sd_model", "guards"),
        *("predict", "bisection"),
    },
    # What may be asked for, parsed and frozen.
    {
        *("engines", "spec", "build_sources", "settings", "marks", "catalogue", "recorded"),
        *("claims", "toml_place", "text_file"),
    },
    # What touches the machine: files, processes, clocks. `testing` starts workers for an engine.
    {"hardware", "modelfiles", "builds", "worker", "host", "measure", "testing", "lineage"},
    # One session with a user: pytest's, or the command line's. The package itself hands out names.
    {
        *("plugin", "options", "config", "collect", "fixtures", "given", "stash", "run", "handles"),
        *(
            "assertions",
            "fit_assertions",
            "level_assertions",
            "speculation_handle",
            "speculation_assertions",
            "sd_verdict",
            "fit_verdict",
        ),
        *(
            "builds_command",
            "gate_cells",
            "gate_command",
            "gate_options",
            "gate_plan",
            "gate_report",
            "project",
            "gate_verdict",
            "two_speeds",
            "reading_verdict",
            "fit_verdict",
            "report",
            "findings",
            "cli",
            "doctor",
            "calibrate",
            "inventory",
        ),
        *(
            "checks",
            "command_words",
            "predict_command",
            "predict_text",
            "findings_page",
            "audit",
            "console",
        ),
        *("bisect_command", "bisect_record", "bisect_run", "bisect_text"),
        "__init__",
    },
)

PYTEST = {"pytest", "_pytest"}

# Who knows pytest, and why it must.
SHELL = {
    "plugin": "implements the hooks",
    "options": "registers the options",
    "config": "reads options and markers",
    "collect": "parametrizes, skips and refuses tests",
    "fixtures": "defines the fixtures",
    "given": "reads a test's markers, and skips it",
    "stash": "keeps a session's state where pytest keeps such things",
    "run": "reads a session's options once, into settings",
    "report.outcome": "sets a test's outcome, letter and word",
    "report.progress": "writes through the terminal reporter",
    "report.skips": "skips a test",
    "report.summary": "writes through the terminal reporter",
    "report.written": "fails a session whose report cannot be written",
    "findings": "is a suite of tests",
}

# No file, clock, process or network can be had from these; numpy and scipy are used for arithmetic.
PURE = {
    *("__future__", "collections", "dataclasses", "enum", "functools", "itertools", "math", "re"),
    *("difflib", "statistics", "string", "sys", "textwrap", "types", "typing"),
    *("numpy", "scipy"),
}
IMPURE_BUILTINS = {"open", "print", "input", "exec", "eval", "__import__"}

# What a worker's modules may import beside numpy, by the engine that their names begin with.
LIBRARIES = {"llama_cpp": {"llama_cpp"}, "mlx": {"mlx", "mlx_lm", "transformers"}}

MAX_LINES = 500


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name: a module of ours where it is one, else the dotted name as written."""

    target: str
    line: int
    relative: bool
    at_run_time: bool


def _nodes(tree: ast.AST, *, at_run_time: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """Yield each node with whether it runs when types are not checked."""
    yield tree, at_run_time
    guards = isinstance(tree, ast.If) and ast.unparse(tree.test).endswith("TYPE_CHECKING")
    typed_only = tree.body if isinstance(tree, ast.If) and guards else []
    for child in ast.iter_child_nodes(tree):
        yield from _nodes(child, at_run_time=at_run_time and child not in typed_only)


def _targets(node: ast.Import | ast.ImportFrom, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        parts = package.split(".")
        base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])
    return [f"{base}.{alias.name}" for alias in node.names]


def imports_of(source: str, package: str = PACKAGE) -> list[Import]:
    """Return the imports of a module's source, at any depth of nesting."""
    return [
        Import(target, node.lineno, bool(getattr(node, "level", 0)), at_run_time)
        for node, at_run_time in _nodes(ast.parse(source))
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
    return tuple(imports_of(path.read_text(encoding="utf-8"), folder))


def own(target: str) -> str | None:
    """Return the module of this package that an import loads, or None for anybody else's."""
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
    return next(height for height, rooms in enumerate(TIERS) if room(name) in rooms)


def those_in(rooms: Collection[str]) -> list[str]:
    """Return the modules in the rooms, which may be single modules of a folder."""
    return [name for name in modules() if name in rooms or room(name) in rooms]


def tree_of(name: str) -> ast.Module:
    """Return a module's syntax tree."""
    return ast.parse(modules()[name].read_text(encoding="utf-8"))


def offenders(names: Iterable[str], forbidden: Callable[[str, Import], bool]) -> list[str]:
    """Return the forbidden imports of the modules, each with its place."""
    return [
        f"{name}:{one.line} imports {one.target}"
        for name in names
        for one in imports(name)
        if forbidden(name, one)
    ]


def test_the_walk_sees_late_relative_and_type_only_imports() -> None:
    """The walk tells an import that runs, however deep, from one that only types need."""
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
    found = {(one.target, one.at_run_time) for one in imports_of(source, f"{PACKAGE}.worker")}
    assert found == {
        ("typing.TYPE_CHECKING", True),
        ("only_typed", False),
        ("fallback", True),
        (f"{PACKAGE}.worker.sibling", True),
        (f"{PACKAGE}.above.thing", True),
    }


def test_every_room_has_one_tier() -> None:
    """A new room is placed, and one that is gone is forgotten."""
    assert sorted({room(name) for name in modules()}) == sorted(chain(*TIERS))


def test_imports_go_down() -> None:
    """No module imports from a tier above its own."""

    def upward(name: str, one: Import) -> bool:
        target = own(one.target)
        return one.at_run_time and target is not None and tier(target) > tier(name)

    assert offenders(modules(), upward) == []


def test_no_import_goes_in_a_circle() -> None:
    """What modules import when they run has an order."""
    graph = {
        name: {target for one in imports(name) if one.at_run_time and (target := own(one.target))}
        for name in modules()
    }
    graphlib.TopologicalSorter(graph).prepare()


def test_only_the_shell_knows_pytest() -> None:
    """The name pytest stands in the shell, by all of it, and below it not even for a type."""
    knowing = {
        name for name in modules() if any(room(one.target) in PYTEST for one in imports(name))
    }
    assert knowing - set(those_in(SHELL)) == set()
    assert {shell for shell in SHELL if not knowing & set(those_in({shell}))} == set()


def test_analysis_is_arithmetic() -> None:
    """Judging reads no file, no clock and no environment."""

    def foreign(_: str, one: Import) -> bool:
        return one.at_run_time and own(one.target) is None and room(one.target) not in PURE

    analysis = those_in(TIERS[0])
    called = {
        (name, node.func.id)
        for name in analysis
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert offenders(analysis, foreign) == []
    assert {call for call in called if call[1] in IMPURE_BUILTINS} == set()


def test_the_worker_is_an_island() -> None:
    """The worker loads where there is an engine, numpy and nothing of ours, under any name."""

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
