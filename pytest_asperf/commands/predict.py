"""`asperf predict`: estimates from sizes whether models fit, and how fast they can be."""

# ruff: noqa: PLC0415  # the package's docstring says why

from __future__ import annotations

import json
from functools import partial
from typing import Annotated

import typer

from pytest_asperf.commands.command_words import in_own_words
from pytest_asperf.commands.console import (
    print_sections,
    print_table,
    print_waiting,
    stderr_console,
)
from pytest_asperf.commands.options import CANNOT_MEASURE, ModelOption
from pytest_asperf.commands.project import open_project


def predict_models(
    *,
    models: Annotated[
        list[str],
        ModelOption(
            "--model",
            metavar="MODEL",
            help="A .gguf file, a Hugging Face folder or NAME[:LEVEL]; repeatable.",
        ),
    ],
    hardware: Annotated[
        str | None,
        typer.Option("--hardware", metavar="NAME", help="A profile, or auto for this machine."),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option("--memory", min=1, metavar="GB", help="Memory of the named hardware."),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option("--level", metavar="LEVEL", help="Level of models named without one."),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option("--context", min=1, max=2**31 - 1, metavar="N", help="Positions [4096]."),
    ] = None,
    type_k: Annotated[
        str | None, typer.Option("--type-k", metavar="T", help="K cache's type [f16].")
    ] = None,
    type_v: Annotated[
        str | None, typer.Option("--type-v", metavar="T", help="V cache's type [f16].")
    ] = None,
    draft: Annotated[
        str | None, ModelOption("--draft", metavar="MODEL", help="Draft model to speculate with.")
    ] = None,
    draft_ratio: Annotated[
        float | None,
        typer.Option(
            "--draft-ratio", min=0.01, max=1e6, metavar="R", help="Measured draft TG / target TG."
        ),
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option("--verify", metavar="N:COST,...", help="Measured C(N), such as 2:1.6,5:2.1."),
    ] = None,
    acceptance: Annotated[
        float | None,
        typer.Option("--acceptance", min=0, max=1, metavar="SHARE", help="Acceptance rate."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Estimate from sizes: fit in memory, speed, gain of a draft.

    Exits with 0 if all fit in memory, with 1 if one does not.
    """
    from pytest_asperf.config.engine_settings import EngineSettings, parse_settings
    from pytest_asperf.forecast.predict import ForecastRequest, predict
    from pytest_asperf.forecast.text import as_json as prediction_json
    from pytest_asperf.forecast.text import rows, sections

    project = open_project()
    kv = EngineSettings()
    for option, key, value in (("--type-k", "type_k", type_k), ("--type-v", "type_v", type_v)):
        kv = kv if value is None else kv.merged(parse_settings({key: value}, where=option))
    question = ForecastRequest(
        hardware=hardware or project.settings.hardware,
        memory_gb=memory,
        level=level,
        context=context,
        kv=kv,
        draft=draft,
        draft_ratio=draft_ratio,
        verify=verify,
        acceptance=acceptance,
    )
    console = stderr_console()
    with console.status("reading"):
        forecast = predict(
            models,
            question,
            project.catalogue,
            project.cache,
            project.queue(partial(print_waiting, console)),
        )
    if as_json:
        typer.echo(in_own_words(json.dumps(prediction_json(forecast), default=str, indent=2)))
    else:
        if len(models) > 1:
            print_table(rows(forecast))
        print_sections(sections(forecast))
    if not forecast.fits:
        raise typer.Exit(CANNOT_MEASURE)
