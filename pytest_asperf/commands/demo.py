"""`asperf demo`: the four verdicts, each measured here and now."""

import tempfile
import time
from typing import Final

from rich.console import Console

from pytest_asperf.analysis.outcome import ExitCode, Outcome
from pytest_asperf.commands.console import CommandNotify, print_text, print_verdict, stderr_console
from pytest_asperf.commands.options import command, end, settings
from pytest_asperf.commands.project import open_project

#: A pass over this much text needs seconds and shows the cost of four bits.
_CHUNKS: Final = "10"
_BUSY: Final = "look with asperf doctor whether this machine is too busy"


@command()
@settings()
def demo() -> None:
    """Measure six assertions, and explain each verdict.

    Needs llama-cpp-python; the model comes with the package. Exits with 4 if a verdict is
    not the one to be shown, as on a machine that is too busy.
    """
    from pytest_asperf.commands.demo_claims import demo_claims, found
    from pytest_asperf.report.verdict_text import advice_text

    project = open_project(chunks=_CHUNKS, repetitions="3", max_seconds="20")
    began, out = time.monotonic(), Console(highlight=False)
    advice: list[str] = []
    with (
        CommandNotify(stderr_console()) as notify,
        project.runner("llama_cpp", notify) as runner,
        tempfile.TemporaryDirectory(prefix="asperf-demo-") as folder,
    ):
        notify.progress("starting llama.cpp", 0, 0)
        release = runner.describe().release
        notify.done()
        print_text(out, f"{release}; model: asperf-target")
        print_text(out, "")
        for claim in demo_claims(project, runner, folder):
            notify.progress(claim.title, 0, 0)
            verdict = claim.verdict()
            notify.done()
            why = claim.meaning
            if verdict.outcome is not claim.expected:
                why = f"Should be {claim.expected}."
                broken = verdict.outcome is Outcome.INVALID
                advice.append(advice_text(verdict.advice) if broken else _BUSY)
            print_verdict(out, verdict.outcome, f"{claim.title}: {found(verdict)}", why)
    print_text(out, "")
    for what_to_do in dict.fromkeys(advice):
        print_text(out, f"Remedy: {what_to_do}.")
    seconds = time.monotonic() - began
    print_text(out, f"{seconds:.0f} s. Next: asperf init MODEL.gguf writes tests of your model.")
    if advice:
        end(ExitCode.INVALID)
