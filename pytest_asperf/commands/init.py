"""`asperf init`: writes a first configuration and first tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pytest_asperf.commands.console import print_sections
from pytest_asperf.commands.options import command
from pytest_asperf.config.text_file import OWN_FILE, find_document
from pytest_asperf.errors import ConfigError, ModelError
from pytest_asperf.report.sections import CheckLine, Section

if TYPE_CHECKING:
    from pytest_asperf.commands.starter_files import GivenModel

_TESTS: Final = "test_asperf.py"


@command()
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
def init(files: tuple[Path, ...]) -> None:
    """Write asperf.toml and test_asperf.py for your models.

    FILE is a .gguf file or an MLX folder; only headers are read. Without FILE both are about the
    model that comes with the package. A file that exists is never overwritten. Run it in the
    folder of your tests.
    """
    from pytest_asperf.commands.starter_files import (
        configuration,
        first_tests,
        named,
        pair_of,
        read_given,
    )
    from pytest_asperf.hardware.in_force import detect, in_force, memory_of
    from pytest_asperf.modelfiles.hub_cache import shipped_models

    folder = Path.cwd()
    _require_new(folder)
    hardware = in_force("auto", detect())
    given, left_out = read_given(files, folder, memory_of(hardware))
    models = named(given, [spec.name for spec in shipped_models()])
    pair = pair_of(models)
    _write(folder / OWN_FILE, configuration(models, pair, hardware.name))
    _write(folder / _TESTS, first_tests(models, pair, _TESTS))
    _print_written(models, left_out)


def _require_new(folder: Path) -> None:
    """Raise before anything is written, so that a folder has both files or neither."""
    for name in (OWN_FILE, _TESTS):
        if os.path.lexists(folder / name):
            raise _not_written(folder / name, "exists already, and is not overwritten")
    if find_document(folder).values:
        raise _not_written(folder / "pyproject.toml", "has settings in [tool.asperf]")


def _not_written(path: Path, what: str) -> ConfigError:
    return ConfigError(
        f"{path} {what}", remedy="run `asperf init` in another folder, or move that file away first"
    )


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise _not_written(path, "exists already, and is not overwritten") from None
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}",
            remedy="run it in a folder that you may write to",
        ) from error


def _print_written(models: list[GivenModel], left_out: list[ModelError]) -> None:
    written = tuple(CheckLine("written", "ok", name) for name in (OWN_FILE, _TESTS))
    checks = [
        CheckLine(
            model.name,
            "ok" if file.fits else "warning",
            f"{file.level or 'no known quantization'}: {file.need}",
        )
        for model in models
        for file in model.files
    ]
    checks += [CheckLine("left out", "unknown", error.what) for error in left_out]
    sections = [Section("files", written), *([Section("models", tuple(checks))] if checks else [])]
    print_sections(sections, last_line=f"next: pytest {_TESTS}")
