"""The command `asperf`: finds the command that is named, and imports that one alone."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import click

from pytest_asperf import __version__
from pytest_asperf.analysis.outcome import ExitCode
from pytest_asperf.errors import suggest

#: The plugin of published statements. Without it there is no command for them.
_STATEMENTS: Final = "pytest_asperf.published"
_HAS_STATEMENTS: Final = find_spec(_STATEMENTS) is not None
#: By group, its commands with their first sentences: each is an object of this name, in a module
#: of this name.
GROUPS: Final = {
    "Decide": {
        "gate": "Compare two builds: speed, PPL, logits and speculation.",
        "bisect": "Find the release or commit at which a gate begins to fail.",
        "nightly": "Measure the current build against a fixed baseline.",
        "audit": "Judge other tools' output: intervals and validity.",
        "findings": "List published findings, each with the verdict on its figures.",
    },
    "Measure": {
        "demo": "Measure six assertions, and explain each verdict.",
        "load": "Put a running server under load: latency, throughput, knee.",
        "calibrate": "Measure this machine's noise, and keep it for gates.",
        "doctor": "List what is detected, and what would disturb a measurement.",
        "predict": "Estimate from sizes: fit in memory, speed, gain of a draft.",
        "placement": "Show on which device Core ML plans a model's operations.",
    },
    "Look back": {
        "report": "Convert JSON reports to HTML, Markdown, CSV or other formats.",
        "compare": "Show reports side by side (no verdict).",
        "history": "List, draw, import, export and prune the reports that are kept.",
    },
    "Files": {
        "init": "Write asperf.toml and test_asperf.py for your models.",
        "models": "List, build and verify the models in the cache.",
        "builds": "List, make and prune the builds of engines in the cache.",
    },
}
if not _HAS_STATEMENTS:
    del GROUPS["Decide"]["findings"]
COMMANDS: Final = {name: text for group in GROUPS.values() for name, text in group.items()}


class Asperf(click.Group):
    """The group of all commands."""

    def list_commands(self, _: click.Context) -> list[str]:
        """The names of the commands."""
        return list(COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command:
        """A command, imported now."""
        if name not in COMMANDS:
            raise click.UsageError(f"No such command {name!r}{suggest(name, COMMANDS)}")
        module = f"pytest_asperf.commands.{name}"
        if name == "findings":
            module = f"{_STATEMENTS}.command"
        found: click.Command = getattr(import_module(module), name)
        return found

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command, and end with its exit code."""
        extra["standalone_mode"] = False
        try:
            code = super().main(*args, **extra)
        except click.ClickException as error:
            _show(error)
            code = ExitCode.USAGE
        except (click.Abort, KeyboardInterrupt):
            code = ExitCode.INTERRUPTED
        sys.exit(int(code or 0))


def _show(error: click.ClickException) -> None:
    """Print a mistake in a command line as click does, its lines broken at the terminal's width."""
    from pytest_asperf.commands.console import print_text, stderr_console  # noqa: PLC0415  # loads rich

    console, context = stderr_console(), getattr(error, "ctx", None)
    if context is not None:
        print_text(console, context.get_usage())
        print_text(console, f"Try '{context.command_path} --help' for help.\n")
    print_text(console, f"Error: {error.format_message()}")
    if isinstance(error, click.NoSuchOption) and context is not None and context.parent:
        options = (option for param in context.parent.command.params for option in param.opts)
        if error.option_name in options:
            print_text(console, f"Write {error.option_name} before `{context.command.name}`.")


@click.group(
    cls=Asperf, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="asperf %(version)s")
@click.pass_context
def app(context: click.Context) -> None:
    """Performance tests for local LLM inference. `asperf demo` shows examples."""
    if context.invoked_subcommand == "compare" and _HAS_STATEMENTS:
        from pytest_asperf.commands.compare import OTHER_FIGURES  # noqa: PLC0415
        from pytest_asperf.published.across import PublishedFigures  # noqa: PLC0415  # numpy, scipy

        context.meta[OTHER_FIGURES] = PublishedFigures()


def every_command(
    group: click.Command = app, words: str = "asperf"
) -> Iterator[tuple[str, click.Command]]:
    """Every command by its words, groups included."""
    yield words, group
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            if found := group.get_command(context, name):
                yield from every_command(found, f"{words} {name}")


def main() -> None:
    """Run the command; the console script."""
    for stream in (sys.stdout, sys.stderr):
        # A device's or a file's name may have letters that the terminal's encoding lacks.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    for number in (signal.SIGTERM, signal.SIGHUP):
        # As Ctrl-C: a gate prints what it decided, and no engine and no compiler is left running.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    app(prog_name="asperf")


if __name__ == "__main__":
    main()
