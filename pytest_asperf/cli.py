"""The command `asperf`: puts its subcommands together.

Each is a module of `commands`, whose function imports what only it needs: numpy and scipy would
make every `asperf --help` wait.
"""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from pytest_asperf import __version__
from pytest_asperf.commands.audit import audit_files
from pytest_asperf.commands.bisect import bisect_builds
from pytest_asperf.commands.builds import builds_app
from pytest_asperf.commands.calibrate import calibrate_machine
from pytest_asperf.commands.command_words import Command
from pytest_asperf.commands.compare import compare_reports
from pytest_asperf.commands.console import print_error
from pytest_asperf.commands.demo import demonstrate
from pytest_asperf.commands.doctor import doctor
from pytest_asperf.commands.gate import gate_builds
from pytest_asperf.commands.history import history_app
from pytest_asperf.commands.init import init_project
from pytest_asperf.commands.load import load_server
from pytest_asperf.commands.models import models_app
from pytest_asperf.commands.nightly import nightly
from pytest_asperf.commands.options import ERROR, GateCommand
from pytest_asperf.commands.placement import show_placement
from pytest_asperf.commands.predict import predict_models
from pytest_asperf.commands.report import report_files
from pytest_asperf.errors import AsperfError
from pytest_asperf.published.command import list_findings

_INTERRUPTED: Final = 130
# Plain help and usage errors: boxes break at 60 columns and when piped, and markup in what a user
# typed would be interpreted.
app = typer.Typer(
    help="Performance tests for local LLM inference. `asperf demo` shows what they say.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.command("demo", cls=Command)(demonstrate)
app.command("init", cls=Command)(init_project)
app.command("bisect", cls=GateCommand)(bisect_builds)
app.command("gate", cls=GateCommand)(gate_builds)
app.command("nightly", cls=GateCommand)(nightly)
app.command("doctor", cls=Command)(doctor)
app.command("calibrate", cls=Command)(calibrate_machine)
app.command("predict", cls=Command)(predict_models)
app.command("placement", cls=Command)(show_placement)
app.command("load", cls=Command)(load_server)
app.command("audit", cls=Command)(audit_files)
app.command("findings", cls=Command)(list_findings)
app.command("report", cls=Command)(report_files)
app.command("compare", cls=Command)(compare_reports)
app.add_typer(history_app, name="history")
app.add_typer(models_app, name="models")
app.add_typer(builds_app, name="builds")


def main() -> None:
    """Run the command; the console script."""
    for stream in (sys.stdout, sys.stderr):
        # A device's or a file's name may hold letters that the terminal's encoding lacks.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        app(prog_name="asperf")
    except AsperfError as error:
        print_error(error)
        sys.exit(ERROR)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _print_version(value: bool) -> None:  # noqa: FBT001  # Typer calls it with the flag
    if value:
        typer.echo(f"asperf {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand == "compare":
        from pytest_asperf.published.across import PublishedFigures  # noqa: PLC0415  # numpy, scipy

        context.obj = PublishedFigures()


if __name__ == "__main__":
    main()
