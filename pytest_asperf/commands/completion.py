"""The completions of a shell: names of the folder's configuration, workloads and findings."""

# ruff: noqa: PLC0415  # the package's docstring says why

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pytest_asperf.config.settings import DECLARED
from pytest_asperf.errors import AsperfError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from click import Context, Parameter

    from pytest_asperf.measure.workspace import Workspace

#: Those in use; other numbers may stand in them.
WORKLOADS: Final = (
    *("tg128", "tg128@d4096", "pp512", "ttft512", "itl128", "pp512+tg128"),
    *("jtg128", "jpp512", "ppl", "logits", "ppl@d1024", "logits@d1024", "sd"),
)


def keys(_context: Context, _param: Parameter, incomplete: str) -> list[str]:
    """Keys of settings, up to the value."""
    return _beginning(incomplete, (f"{key}=" for key in DECLARED))


def models(_context: Context, _param: Parameter, incomplete: str) -> list[str]:
    """Names of models; behind a name's colon its levels."""
    from pytest_asperf.config.engines import level_names

    def names(project: Workspace) -> Iterable[str]:
        for spec in project.catalogue.models:
            levels = dict(spec.files) or level_names(spec.engine)
            yield from (f"{spec.name}:{level}" for level in levels) if is_level else [spec.name]

    is_level = ":" in incomplete
    return of_project(incomplete, names)


def builds(_context: Context, _param: Parameter, incomplete: str) -> list[str]:
    """Names of builds."""
    return of_project(
        incomplete, lambda project: ["current", *(b.name for b in project.catalogue.builds)]
    )


def workloads(_context: Context, _param: Parameter, incomplete: str) -> list[str]:
    """Names of workloads, the last of a list."""
    others, comma, _ = incomplete.rpartition(",")
    return _beginning(incomplete, (f"{others}{comma}{name}" for name in WORKLOADS))


def of_project(incomplete: str, names: Callable[[Workspace], Iterable[str]]) -> list[str]:
    """None where the configuration is refused: the command will say why."""
    from pytest_asperf.commands.project import open_project

    with suppress(AsperfError):
        return _beginning(incomplete, names(open_project()))
    return []


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
