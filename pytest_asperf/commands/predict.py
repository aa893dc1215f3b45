"""`asperf predict`: estimates from sizes whether models fit, and how fast they can be."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from pytest_asperf.analysis.outcome import ExitCode
from pytest_asperf.commands.console import (
    json_text,
    print_sections,
    print_table,
    print_waiting,
    stderr_console,
)
from pytest_asperf.commands.options import (
    command,
    end,
    model_option,
    number_from,
    reports,
    settings,
    share,
    written,
)
from pytest_asperf.commands.project import open_project
from pytest_asperf.config.setting_rules import ReportTarget


@command()
@model_option(
    "--model",
    "models",
    metavar="MODEL",
    multiple=True,
    required=True,
    help="A .gguf file, a Hugging Face folder or NAME[:QUANT]; repeatable.",
)
@settings("hardware")
@click.option(
    "--memory",
    "memory_gb",
    type=number_from(1),
    metavar="GB",
    help="Memory of the named hardware, GB.",
)
@click.option(
    "--context",
    type=number_from(1, 2**31 - 1),
    metavar="N",
    help="Tokens of context (default: 4096).",
)
@click.option(
    "--kv", metavar="TYPE", help="Type of the KV cache, or of keys/values (default: f16)."
)
@model_option("--draft", metavar="MODEL", help="Draft model to speculate with.")
@click.option(
    "--draft-ratio",
    type=number_from(0.01, 1e6),
    metavar="R",
    help="Measured TG of the draft / TG of the target.",
)
@click.option(
    "--verify", metavar="N:COST,...", help="Measured cost to verify N tokens: 2:1.6,5:2.1."
)
@click.option(
    "--acceptance", type=share, metavar="SHARE", help="Acceptance rate, such as 70% or 0.7."
)
@reports("json")
def predict(
    models: tuple[str, ...], kv: str | None, reports: Sequence[ReportTarget], **given: Any
) -> None:
    """Estimate from sizes: fit in memory, speed, gain of a draft.

    Exits with 0 if all fit in memory, with 1 if one does not, or perhaps not.
    """
    from pytest_asperf.config.engine_settings import EngineSettings, parse_kv_type
    from pytest_asperf.forecast.predict import ForecastRequest, forecast_of
    from pytest_asperf.forecast.text import as_json, rows, sections

    project = open_project()
    cache = EngineSettings() if kv is None else parse_kv_type(kv, where="--kv")
    question = ForecastRequest(hardware=project.settings.hardware, kv=cache, **given)
    console = stderr_console()
    with console.status("reading"):
        forecast = forecast_of(
            models,
            question,
            project.catalogue,
            project.cache,
            project.queue(partial(print_waiting, console)),
        )
    if not written(reports, {"json": lambda: json_text(as_json(forecast))}):
        if len(models) > 1:
            print_table(rows(forecast))
        print_sections(sections(forecast))
    end(ExitCode.DONE if forecast.fits else ExitCode.FAIL)
