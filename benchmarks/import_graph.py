"""The figures of a package's import graph: `python benchmarks/import_graph.py [PACKAGE_FOLDER]`.

A room is a module or folder at the top of the package. An arrow is a room that imports another one,
at run time or for types. Tiers are the rooms on the longest way down. A circle is a set of rooms
that reach one another. For an older revision: `git worktree add OLD REVISION`, then name
`OLD/pytest_asperf`. Needs networkx, which the dependency group `bench` has.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import networkx as nx

if TYPE_CHECKING:
    from collections.abc import Iterator


def imported(path: Path, package: Path) -> Iterator[str]:
    """Yield the dotted names that a module imports."""
    folder = (package.name, *path.relative_to(package).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) - node.level + 1] if node.level else ()
            yield from (".".join(filter(None, [*above, node.module, a.name])) for a in node.names)


def room_graph(package: Path) -> nx.DiGraph[str]:
    """Return the rooms of a package and the imports of each, other packages included."""
    rooms = {path.stem for path in package.iterdir() if path.suffix == ".py" or path.is_dir()}
    graph: nx.DiGraph[str] = nx.DiGraph()
    for path in package.rglob("*.py"):
        here = path.relative_to(package).parts[0].removesuffix(".py")
        graph.add_node(here)
        for name in imported(path, package):
            top, _, inner = name.partition(".")
            first = inner.partition(".")[0]
            target = (first if first in rooms else "__init__") if top == package.name else f"{top}:"
            if target != here:
                graph.add_edge(here, target)
    return graph


def main() -> None:
    """Print the figures."""
    package = Path(sys.argv[1] if len(sys.argv) > 1 else "pytest_asperf")
    graph = room_graph(package)
    knowing = sorted({a for a, b in graph.edges if b in {"pytest:", "_pytest:"}})
    graph.remove_nodes_from([node for node in graph if node.endswith(":")])
    circles = [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1]
    floors = nx.dag_longest_path_length(nx.condensation(graph)) + 1
    print(f"{len(graph)} rooms, {floors} floors, {graph.number_of_edges()} arrows")
    print(f"{len(circles)} circles: {circles}")
    print(f"{len(knowing)} rooms know pytest: {', '.join(knowing)}")
    for folder in sorted({path.parent for path in package.rglob("*.py")}):
        lines = sum(len(path.read_text("utf-8").splitlines()) for path in folder.glob("*.py"))
        print(f"{lines:6} {folder}")


if __name__ == "__main__":
    main()
