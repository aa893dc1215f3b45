"""`asperf history`: lists, draws, imports, exports and prunes the reports that are kept."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from rich.console import Console

from pytest_asperf.commands.bisect import BisectOptions, bisect_builds
from pytest_asperf.commands.console import (
    columns_on,
    print_table,
    print_text,
    print_whole,
    stderr_console,
)
from pytest_asperf.commands.gate import gate_builds
from pytest_asperf.commands.gate_request import GateOptions
from pytest_asperf.commands.history_lines import (
    SHORT,
    counted,
    day,
    drawn,
    machine_names,
    series_rows,
)
from pytest_asperf.commands.options import Group, command, number_from, settings, writing
from pytest_asperf.commands.project import (
    history_of,
    open_project,
    store_address,
    typed_settings,
)
from pytest_asperf.config.engines import DISTRIBUTIONS
from pytest_asperf.errors import ConfigError, printable
from pytest_asperf.records.report import known_machines, read, read_head, read_json
from pytest_asperf.report.json_report import document
from pytest_asperf.store.figures import StoredPoint, StoredSeries, figures_of

if TYPE_CHECKING:
    from pytest_asperf.store.records import Store as OpenStore


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
    """Gate the builds before and after a series' last step.

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
    """The next gate, from the points before and after the last step."""
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
    return _Question(
        base, candidate, series.key.model, _SIDE.sub("", series.key.metric), share, text
    )


def _require_other_build(series: StoredSeries, before: StoredPoint, after: StoredPoint) -> None:
    """Reject a step without a change of the build: no gate can show its cause."""
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
    """A name of the build of a point: its release, otherwise its name in that run."""
    build = dict(point.provenance).get("build", "")
    release = _RELEASE.match(build)
    if release and release["library"] in DISTRIBUTIONS:
        name = f"{release['library']}=={release['version']}"
    else:
        head = read_head(opened.document(point.session), f"session {point.session[:8]}")
        named = head.nightly.build if head.nightly else head.gate.candidate if head.gate else ""
        name = named.partition(",")[0]
    if not name:
        raise _unconfirmable(
            series, f"its report does not name the build {build}", "asperf gate BASE CAND"
        )
    settings: dict[str, object] = json.loads(series.key.settings.partition(" / ")[0])
    return name + "".join(f",{key}={value}" for key, value in settings.items())


def _unconfirmable(series: StoredSeries, problem: str, remedy: str) -> ConfigError:
    return ConfigError(
        f"the series {series.id[:8]}, {series.key.title}, cannot be confirmed: {problem}",
        remedy=remedy,
    )


_LISTED: Final = 40
_DAY_S: Final = 86_400.0
_PATH: Final = click.Path(path_type=Path)


@click.group(cls=Group, invoke_without_command=True)
@settings("store")
@click.pass_context
def history(context: click.Context) -> None:
    """List, draw, import, export and prune the reports that are kept."""
    if context.invoked_subcommand is None:
        context.invoke(list_series, every=False)


history.add_command(confirm)
_series = click.argument("series")


@history.command("list")
@click.option("--all", "every", is_flag=True, help=f"All series, not only the latest {_LISTED}.")
def list_series(every: bool) -> None:  # noqa: FBT001  # click calls it by name
    """List the series and their states, the latest first."""
    from pytest_asperf.nightly.steps import threshold_of

    with history_of() as opened:
        known = opened.series()
        sessions = opened.sessions()
        listed = known if every else known[:_LISTED]
        threshold = threshold_of(known)
        rows = [with_state(opened, one, threshold) for one in listed]
    names = machine_names(sessions)
    if rows:
        print_table(series_rows(rows, names))
    last = f", the last on {day(sessions[-1].time)}" if sessions else ""
    hidden = f"; {len(known) - len(listed)} more with --all" if len(known) > len(listed) else ""
    print_text(
        Console(highlight=False),
        f"{opened.address}: {len(known)} series of {counted(len(names), 'machine')}, "
        f"{counted(len(sessions), 'session')}{last}{hidden}",
    )


def with_state(
    opened: OpenStore, series: StoredSeries, threshold: float
) -> tuple[StoredSeries, StoredPoint, str]:
    """A series with its last point and its state."""
    from pytest_asperf.nightly.steps import LOOKED_AT, state_of

    points = opened.points(series.id, last=LOOKED_AT)
    return series, points[-1], state_of(points, series.key, threshold).text


@history.command("show")
@_series
@click.option(
    "--last", type=number_from(1), metavar="N", default=60, help="Number of points (default: 60)."
)
def show_series(series: str, last: int) -> None:
    """Draw one series, its steps, and the changes between sessions."""
    from pytest_asperf.nightly.steps import LOOKED_AT, state_of, threshold_of

    with history_of() as opened:
        found = opened.find_series(series)
        points = opened.points(found.id, last=max(last, LOOKED_AT))
        machine = machine_names(opened.sessions())[found.key.machine]
        threshold = threshold_of(opened.series())
    state = state_of(points[-LOOKED_AT:], found.key, threshold)
    out = Console(highlight=False)
    key = found.key
    n_points = counted(found.n, "point")
    print_text(out, printable(f"{key.title}, {key.engine}, on {machine}, {n_points}"))
    print_text(out, printable(f"settings {key.settings}, model sha256 {key.model_sha256[:12]}"))
    if key.anchor:
        print_text(out, printable(f"time of the candidate / baseline, which is {key.anchor}"))
    for step in state.steps:
        print_text(out, f"step: {state.step_text(step)}")
    print_text(out, "")
    for line in drawn(points[-last:], key.unit, columns_on(out) or 100):
        print_whole(out, line)


@history.command("sessions")
@click.option("--kind", metavar="KIND", default="", help="session, gate, nightly or unfinished.")
def list_sessions(kind: str) -> None:
    """List the sessions in their order."""
    with history_of() as opened:
        sessions = opened.sessions(kind=kind)
    names = machine_names(sessions)
    head = ("session", "began", "kind", "machine", "hardware", "version")
    rows = [
        (
            one.id[:SHORT],
            day(one.time) + ("*" if one.clock_back_s else ""),
            printable(one.kind),
            names[one.machine],
            printable(one.hardware, 32),
            printable(one.version),
        )
        for one in sessions
    ]
    print_table([head, *rows])
    if any(one.clock_back_s for one in sessions):
        print_text(Console(highlight=False), "* the machine's clock had been set back")


@history.command("import")
@click.argument("files", metavar="JSON...", nargs=-1, required=True, type=_PATH)
def import_reports(files: tuple[Path, ...]) -> None:
    """Store JSON reports, or the output of `asperf history export`."""
    documents = [one for path in files for one in _documents(path)]
    for one in documents:
        figures_of(read(one["document"], one["where"]), one["where"])  # before anything is stored
    with history_of(create=True) as opened:
        recorded = [opened.record(is_live=False, **one) for one in documents]
    new = [one for one in recorded if one.is_new]
    out = Console(highlight=False)
    for line in (note for one in new for note in one.notes()):
        print_text(out, printable(line))
    n_figures = sum(one.n_figures for one in new)
    print_text(
        out,
        f"{opened.address}: stored {counted(len(new), 'session')} with "
        f"{counted(n_figures, 'figure')}, {len(recorded) - len(new)} were stored before",
    )


@history.command("export")
@click.argument("file", type=_PATH)
@click.option("--session", metavar="ID", help="Write this session's report alone.")
def export_reports(file: Path, session: str | None) -> None:
    """Write the kept reports to a file, for `asperf history import`."""
    n, pruned = 0, set[str]()
    with history_of() as opened, writing(file) as stream:
        if session is not None:
            found = opened.find_session(session)
            stream.write(json.dumps(opened.document(found.id), indent=1, ensure_ascii=False))
            n = 1
        else:
            pruned = opened.pruned()
            for one in (one for one in opened.sessions() if one.id not in pruned):
                kept = {"kind": one.kind, "clock_back_s": one.clock_back_s}
                line = {**kept, "document": opened.document(one.id)}
                stream.write(json.dumps(line, ensure_ascii=False) + "\n")
                n += 1
    left_out = f"; {len(pruned)} had no document any more" if pruned else ""
    print_text(Console(highlight=False), f"wrote {counted(n, 'session')} to {file}{left_out}")


@history.command("prune")
@click.option(
    "--older-than",
    type=number_from(0),
    metavar="DAYS",
    required=True,
    help="Age of the sessions to remove.",
)
@click.option(
    "--only-documents", is_flag=True, help="Remove raw runs and keep the points of series."
)
@click.option(
    "--yes", "really", is_flag=True, help="Remove them; without it they are only counted."
)
def prune_history(*, older_than: int, only_documents: bool, really: bool) -> None:
    """Count or remove old sessions."""
    before = time.time() - older_than * _DAY_S
    with history_of() as opened:
        n = sum(one.time < before for one in opened.sessions())
        if really:
            n = opened.prune(before, only_documents=only_documents)
    what = counted(n, "document" if only_documents else "session")
    done = f"removed {what}" if really else f"{what} would be removed; --yes removes them"
    print_text(Console(highlight=False), f"{opened.address}: {done}")


@history.command("send")
def send_kept() -> None:
    """Send the reports that could not be stored yet."""
    from pytest_asperf.store.unsent import send, unsent_folder

    folder = unsent_folder(open_project().cache, store_address())
    with history_of(create=True) as opened:
        n, refused = send(opened, folder)
    out = Console(highlight=False)
    print_text(out, f"{opened.address}: stored {counted(n, 'report')} of {folder}")
    for remark in refused:
        print_text(out, printable(remark))


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    """The arguments of `Store.record`, for each document in a file."""
    lines = path.suffix == ".jsonl"
    for number, one in enumerate(read_json(path, lines=lines), start=1):
        where = f"{path}, line {number}" if lines else str(path)
        if isinstance(one, dict) and "document" in one:
            kind, back_s = str(one.get("kind", "session")), float(one.get("clock_back_s", 0))
            yield {
                "document": one["document"],
                "kind": kind,
                "clock_back_s": back_s,
                "where": where,
            }
        else:
            whole = read(one, where)
            kind, parts = "gate" if whole.gate else "session", known_machines(whole)
            for made in [one] if parts == [whole] else map(document, parts):
                yield {"document": made, "kind": kind, "where": where}
