"""`asperf history confirm`: gates the builds on the two sides of a step."""

# ruff: noqa: PLC0415  # the package's docstring says why

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from pytest_asperf.commands.bisect import BisectOptions, bisect_builds
from pytest_asperf.commands.console import print_text, stderr_console
from pytest_asperf.commands.gate import gate_builds
from pytest_asperf.commands.gate_request import GateOptions
from pytest_asperf.commands.history_store import history_of
from pytest_asperf.commands.options import command, settings
from pytest_asperf.commands.project import typed_settings
from pytest_asperf.config.engines import DISTRIBUTIONS
from pytest_asperf.errors import ConfigError, printable
from pytest_asperf.records.report import read_head

if TYPE_CHECKING:
    from pytest_asperf.store.records import Store as OpenStore
    from pytest_asperf.store.stored import StoredPoint, StoredSeries

#: How a point's provenance begins: the engine's library and its version.
_RELEASE: Final = re.compile(r"(?P<library>[\w.-]+) (?P<version>[\w.!+-]+), ", re.ASCII)
_SIDE: Final = re.compile(r" (ratio|baseline|candidate)\Z")
_LEAST_TOLERANCE: Final = 0.01


class _Question(NamedTuple):
    """The question that a gate has to decide."""

    base: str
    candidate: str
    model: str
    workload: str
    tolerance: str
    text: str


@command()
@click.argument("series")
@click.option(
    "--bisect", is_flag=True, help="Bisect the releases or commits between the two builds."
)
@settings("tolerance", "max_pairs", "max_seconds")
def confirm(series: str, bisect: bool) -> None:  # noqa: FBT001  # click calls it by name
    """Gate the builds on both sides of a series' last step.

    Half of the step is accepted, without --tolerance. Exits as asperf gate or asperf bisect: 1 of
    a gate is a FAIL, so the step is confirmed.
    """
    with history_of() as opened:
        asked = _question(opened, opened.find_series(series))
    print_text(stderr_console(), printable(asked.text))
    tolerance = None if "tolerance" in typed_settings() else asked.tolerance
    if bisect:
        bisect_builds(
            BisectOptions(
                asked.base, asked.candidate, asked.workload, asked.model, tolerance=tolerance
            )
        )
        return
    gate_builds(
        GateOptions(asked.base, asked.candidate, (asked.model,), (asked.workload,)),
        tolerance=tolerance,
    )


def _question(opened: OpenStore, series: StoredSeries) -> _Question:
    """The next gate, from the points on both sides of the last step."""
    from pytest_asperf.nightly.steps import LOOKED_AT, state_of, threshold_of

    points = opened.points(series.id, last=LOOKED_AT)
    state = state_of(points, series.key, threshold_of(opened.series()))
    if not state.steps:
        raise _unconfirmable(series, f"it has no step: {state.text}", "asperf history lists states")
    step = state.steps[-1]
    before, after = state.points[step.first - 1], state.points[step.last]
    _require_other_build(series, before, after)
    names = [_build_of(opened, series, point) for point in (before, after)]
    if names[0] == names[1]:
        raise _unconfirmable(
            series,
            f"both builds were named {names[0]}, and only the later one is still there",
            "gate releases or commits that you name: asperf gate BASE CAND",
        )
    share = f"{100 * max(_LEAST_TOLERANCE, abs(step.log_ratio) / 2):.2g}%"
    base, candidate = names if state.is_slower else names[::-1]
    text = f"step of {series.key.title}, {state.text}: gate of {candidate} against {base}"
    return _Question(base, candidate, series.key.model, _workload(series), share, text)


def _require_other_build(series: StoredSeries, before: StoredPoint, after: StoredPoint) -> None:
    """Refuse a step at which the same build ran on both sides: no gate can show its cause."""
    known, now = dict(before.provenance), dict(after.provenance)
    if known.get("build") != now.get("build"):
        return
    changed = [f"{label} {known[label]} -> {now[label]}" for label in known if label in now]
    others = [text for text in changed if len(set(text.partition(" ")[2].split(" -> "))) > 1]
    raise _unconfirmable(
        series,
        f"the same build ran before and after its step; changed: {'; '.join(others) or 'nothing'}",
        "look at the machine: asperf doctor, asperf history show",
    )


def _build_of(opened: OpenStore, series: StoredSeries, point: StoredPoint) -> str:
    """A name of the build of a point: its release, else what it was called on its night."""
    build = dict(point.provenance).get("build", "")
    release = _RELEASE.match(build)
    if release and release["library"] in DISTRIBUTIONS:
        name = f"{release['library']}=={release['version']}"
    else:
        head = read_head(opened.document(point.session), point.session)
        named = head.night.build if head.night else head.gate.candidate if head.gate else ""
        name = named.partition(",")[0]
    if not name:
        raise _unconfirmable(
            series, f"its report does not name the build {build}", "asperf gate BASE CAND"
        )
    settings: dict[str, object] = json.loads(series.key.settings.partition(" / ")[0])
    return name + "".join(f",{key}={value}" for key, value in settings.items())


def _workload(series: StoredSeries) -> str:
    return _SIDE.sub("", series.key.metric)


def _unconfirmable(series: StoredSeries, problem: str, remedy: str) -> ConfigError:
    return ConfigError(
        f"the series {series.id[:8]}, {series.key.title}, cannot be confirmed: {problem}",
        remedy=remedy,
    )
