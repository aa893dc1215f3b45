"""`asperf compare`: reports of one machine or several side by side, without a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import click
from rich.console import Console

from pytest_asperf.commands.console import print_table, print_text
from pytest_asperf.commands.history_lines import machine_names, unit_text
from pytest_asperf.commands.options import command, settings
from pytest_asperf.commands.project import history_of, open_project
from pytest_asperf.errors import ConfigError, listing, printable, shown
from pytest_asperf.records.report import read_json

if TYPE_CHECKING:
    from pytest_asperf.commands.compared_reports import ComparedReport, OnMachine

_LEAST: Final = 2
_RATE: Final = "tok/s"
_COLUMNS: Final = ("value", "GB/s", "of its bandwidth")
_WHERE_KNOWN: Final = ("J/token", "tok/s per 1000")


#: The key of `OtherFigures` in the context of the command.
OTHER_FIGURES: Final = "pytest_asperf.other_figures"


class OtherFigures(Protocol):
    """Figures without a report, which a comparison shows next to reports."""

    def rows(self, name: str) -> list[tuple[str, ...]]:
        """Machine, quantity, value, GB/s and share of each figure of that name; empty for none."""

    def statements(self, alike: Sequence[Sequence[OnMachine]]) -> Iterator[str]:
        """Lines on statements about several machines, by these machines' equal measurements."""


@command()
@click.argument("reports", metavar="REPORT REPORT...", nargs=-1, required=True)
@click.option(
    "--price",
    "prices",
    metavar="MACHINE=AMOUNT",
    multiple=True,
    help="Price of a machine, for tok/s per 1000 of it; repeatable.",
)
@settings("store")
def compare(reports: tuple[str, ...], prices: tuple[str, ...]) -> None:
    """Show reports side by side (no verdict).

    REPORT is a JSON report of pytest or of `asperf gate`, the id of a session in the history, or
    the name of published figures (atom-paper).
    """
    from pytest_asperf.commands.compared_reports import read_compared
    from pytest_asperf.records.report import known_machines, read

    if not Path(reports[0]).is_file():
        _require_two(len(reports))
    others: OtherFigures | None = click.get_current_context().meta.get(OTHER_FIGURES)
    recorded = {
        name: rows
        for name in reports
        if others and not Path(name).is_file() and (rows := others.rows(name))
    }
    names = [name for name in reports if name not in recorded]
    compared = [
        read_compared(name, report)
        for name in names
        for report in known_machines(read(_document(name), name))
    ]
    _require_two(len(compared) + len(recorded))
    machines = {one.origin.machine for one in compared}
    costs = _prices(prices, _names(compared))
    out = Console(highlight=False)
    _print_origins(compared)
    if len(machines) > 1:
        _print_machines(out, compared, costs, others)
    if recorded:
        _print_recorded(compared, list(chain.from_iterable(recorded.values())))
    for one, other in _of_one_machine(compared):
        _print_nights(out, one, other)
    for other in compared[1:]:
        _print_left_out(out, compared[0], other)


def _require_two(n: int) -> None:
    """A file may have the reports of several machines."""
    if n < _LEAST:
        raise ConfigError("one report is named", remedy="name two or more")


def _document(name: str) -> Any:
    if Path(name).exists():
        return read_json(Path(name))[0]
    if Path(name).suffix or open_project().settings.store is None:
        raise ConfigError(
            f"{printable(name)} is not a file",
            remedy="name a JSON report, or with --store=FILE the id of a stored session",
        )
    with history_of() as opened:
        return opened.document(opened.find_session(name).id)


def _of_one_machine(
    compared: Sequence[ComparedReport],
) -> Iterator[tuple[ComparedReport, ComparedReport]]:
    """The first report of each machine with every later one of it."""
    first: dict[str, ComparedReport] = {}
    for report in compared:
        if report.origin.machine in first:
            yield first[report.origin.machine], report
        first.setdefault(report.origin.machine, report)


def _names(compared: Sequence[ComparedReport]) -> dict[str, str]:
    return machine_names([one.origin for one in compared])


def _prices(texts: Sequence[str], names: Mapping[str, str]) -> dict[str, float]:
    """The prices of machines, by their fingerprints."""
    machines = {name: machine for machine, name in names.items()}
    found = {}
    for text in texts:
        name, _, amount = text.rpartition("=")
        if name not in machines or not (amount.isdecimal() and int(amount)):
            raise ConfigError(
                f"--price {shown(text, 80)} is no machine of these reports and a whole amount",
                remedy=f"write MACHINE=AMOUNT; the machines are {listing(machines)}",
            )
        found[machines[name]] = float(amount)
    return found


def _print_origins(compared: Sequence[ComparedReport]) -> None:
    names = _names(compared)
    head = ("report", "machine", "hardware", "bandwidth", "version")
    rows = [
        (
            printable(one.name),
            names[one.origin.machine],
            printable(one.origin.hardware),
            f"{one.profile.bandwidth_gbs:g} GB/s" if one.profile else "not known",
            printable(one.origin.version),
        )
        for one in compared
    ]
    print_table([head, *rows])


def _print_machines(
    out: Console,
    compared: Sequence[ComparedReport],
    prices: Mapping[str, float],
    others: OtherFigures | None,
) -> None:
    from pytest_asperf.commands.compared_reports import by_machine

    names = _names(compared)
    alike = by_machine(compared)
    for every in alike:
        head = (printable(every[0].value.key.title), *_COLUMNS, *_WHERE_KNOWN)
        rows = [head, *(_on_machine(one, names, prices) for one in every)]
        known = [set(cells[1:]) != {"-"} for cells in zip(*rows, strict=True)]
        known[: 1 + len(_COLUMNS)] = [True] * (1 + len(_COLUMNS))
        print_table([tuple(compress(row, known)) for row in rows])
    print_text(
        out,
        "Different machines: the figures of each, and no verdict. A regression is judged "
        "in pairs on one machine: asperf gate.",
    )
    for line in others.statements(alike) if others else ():
        print_text(out, line)
    print_text(out, "")


def _print_recorded(
    compared: Sequence[ComparedReport], recorded: Sequence[tuple[str, ...]]
) -> None:
    """Generation here and as published, by its share of each machine's bandwidth."""
    from pytest_asperf.commands.compared_reports import on_machine

    names = _names(compared)
    head = ("machine", "generation", *_COLUMNS)
    here = [on_machine(report, value) for report in compared for value in report.values.values()]
    rows = [
        (
            names[one.report.origin.machine],
            printable(one.value.key.title),
            *_on_machine(one, names, {})[1 : 1 + len(_COLUMNS)],
        )
        for one in here
        if one.share is not None
    ]
    print_table([head, *rows, *recorded])
    print_text(
        Console(highlight=False),
        "Published figures are of other models and builds: shares of bandwidth can be compared, "
        "rates cannot, and there is no verdict on either.",
    )


def _on_machine(
    one: OnMachine, names: Mapping[str, str], prices: Mapping[str, float]
) -> tuple[str, ...]:
    price = prices.get(one.report.origin.machine) if one.value.key.unit == _RATE else None
    invalid = " INVALID" if one.value.outcome == "INVALID" else ""
    return (
        names[one.report.origin.machine],
        unit_text(one.value) + invalid,
        "-" if one.gbs is None else f"{one.gbs:.4g}",
        "-" if one.share is None else f"{100 * one.share.point:.1f} %",
        "-" if one.energy is None else f"{one.energy.value:.4g}",
        "-" if price is None else f"{1000 * one.value.value / price:.4g}",
    )


def _print_nights(out: Console, one: ComparedReport, other: ComparedReport) -> None:
    from pytest_asperf.commands.compared_reports import UNPAIRED_CONFIDENCE, changes, ran_otherwise

    found = changes(one, other)
    head = ("what", printable(one.name, 28), printable(other.name, 28), "change")
    rows = [
        (
            printable(change.before.key.title),
            unit_text(change.before),
            unit_text(change.after),
            change.change.text() if change.change.has_interval else f"{change.change.point:+.1%}",
        )
        for change in found
    ]
    if rows:
        print_table([head, *rows])
    for label, before, after in ran_otherwise(one, other):
        print_text(out, f"{label}: {printable(before)} -> {printable(after)}")
    print_text(
        out,
        "Two sessions of one machine, without a verdict. The interval of a change is unpaired "
        f"(at least {UNPAIRED_CONFIDENCE:.0%}) and covers the runs of each session, no other "
        "difference between the two. asperf gate compares builds in pairs.",
    )
    print_text(out, "")


def _print_left_out(out: Console, one: ComparedReport, other: ComparedReport) -> None:
    from pytest_asperf.commands.compared_reports import left_out

    for title, reason in dict.fromkeys(left_out(one, other)):
        print_text(out, f"not compared: {printable(title)}: {printable(reason)}")
