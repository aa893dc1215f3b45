"""Options and exit codes that several commands share."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

import typer

from pytest_asperf.commands import completion
from pytest_asperf.commands.command_words import Command

#: Exit codes of a command that cannot measure here, and of one that ends in an error.
CANNOT_MEASURE: Final = 1
ERROR: Final = 2
#: Exit code of a gate or bisection that is not usable as typed: 2 is that of an undecided one.
USAGE: Final = 3

#: Arguments and options of which the shell completes the names.
BuildArgument = partial(typer.Argument, autocompletion=completion.builds)
ModelOption = partial(typer.Option, autocompletion=completion.models)
WorkloadOption = partial(typer.Option, autocompletion=completion.workloads)

Tolerance = Annotated[
    str | None, typer.Option("--tolerance", metavar="SHARE", help="Slowdown accepted [5%].")
]
MaxPplDelta = Annotated[
    str, typer.Option("--max-ppl-delta", metavar="SHARE", help="ΔPPL of the same file accepted.")
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, metavar="N", help="Seed of every random order [drawn]."),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine", metavar="NAME", help="llama_cpp, llama_tools, mlx, or the name of a server."
    ),
]
Python = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="PATH",
        help="Interpreter that has the engine; default: the configured one, else this one.",
    ),
]
CurrentPython = Annotated[
    str | None, typer.Option("--python", metavar="PATH", help="Interpreter that `current` means.")
]
Chunks = Annotated[
    str | None,
    typer.Option("--chunks", metavar="N|all", help="Chunks that PPL is taken over [40]."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
Store = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="PATH|URL", help="History: an SQLite file, or postgresql://..."
    ),
]
Nice = Annotated[
    int | None,
    typer.Option(
        "--nice", min=-20, max=19, metavar="N", help="Nice value of engines, 0 for none [-5]."
    ),
]
Wait = Annotated[
    str | None,
    typer.Option(
        "--wait", metavar="S", help="Longest wait for one other measurement here, such as 10min."
    ),
]


class GateCommand(Command):
    """A command whose usage errors exit with `USAGE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # Typer brings a copy of click, or depends on it; its usage errors have a code.
            if hasattr(error, "exit_code") and hasattr(error, "show"):
                error.exit_code = USAGE
            raise
