"""The documentation's site, by Sphinx: `tox run -e docs`."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

import pytest_asperf
from pytest_asperf.analysis.outcome import ExitCode
from pytest_asperf.cli import every_command
from pytest_asperf.config.settings import DECLARED, OPTIONS, default_text, help_text
from pytest_asperf.published.findings import load_findings
from pytest_asperf.published.pages import markdown

sys.path.insert(0, str(Path(__file__).parent))
from quantities_page import table

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE: Final = Path(__file__).parent

project = "pytest-asperf"
release = version = pytest_asperf.__version__
copyright = "the pytest-asperf authors"  # noqa: A001  # Sphinx's name for it

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["gating", "generated"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # generated pages begin where their source does

highlight_language = "text"  # what a command printed, unless a block says what it is
default_role = "code"  # as docstrings use it

nitpicky = True
# What is not public is not documented here, and no inventory is fetched from the network.
nitpick_ignore_regex = [("py:.*", r"(?!pytest_asperf\.[A-Za-z_]+$).*")]

add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"pytest-asperf {release}"
html_copy_source = False
html_show_sphinx = False


def _options() -> str:
    return table(
        ("option", "key of `[tool.asperf]`", "what it does"),
        (
            (f"`{option}={DECLARED[key].metavar}`", f"`{key}`", help_text(key))
            for option, key in OPTIONS.items()
        ),
    )


def _keys() -> str:
    keys = [key for key, one in DECLARED.items() if not one.metavar]
    return table(
        ("key", "default", "what it does"),
        ((f"`{key}`", default_text(key), DECLARED[key].help) for key in keys),
    )


def _commands() -> str:
    sections = []
    for words, command in every_command():
        text = inspect.cleandoc(command.help or "")
        context = click.Context(command, info_name=words)
        usage = " ".join(command.collect_usage_pieces(context))
        options = [one for one in command.get_params(context) if isinstance(one, click.Option)]
        records = [option.get_help_record(context) for option in options]
        rows = [(f"`{name}`", help_text) for name, help_text in filter(None, records)]
        head = f"{'#' * min(3, len(words.split()))} `{words}`"
        parts = [head, text, f"```text\n{words} {usage}\n```"]
        sections.append("\n\n".join([*parts, table(("option", "what it does"), rows)]))
    return "\n\n".join(sections) + "\n"


def _exit_codes() -> str:
    return table(("code", "meaning"), ((str(int(one)), one.meaning) for one in ExitCode))


def write_generated(_: Sphinx) -> None:
    """Write what the code and the data say: options, commands, findings."""
    pages = {
        "generated/options.md": _options(),
        "generated/keys.md": _keys(),
        "generated/commands.md": _commands(),
        "generated/exit_codes.md": _exit_codes(),
        "findings.md": markdown(load_findings()),
    }
    for name, text in pages.items():
        page = HERE / name
        page.parent.mkdir(exist_ok=True)
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def hide_internals(
    _app: Sphinx, _what: str, _name: str, value: object, _options: object, lines: list[str]
) -> None:
    """Leave out the fields that a dataclass does not show in its repr: they are not for tests."""
    if not dataclasses.is_dataclass(value):
        return
    hidden = {field.name for field in dataclasses.fields(value) if not field.repr}
    kept, shown = [], True
    for line in lines:
        if not line.startswith(" "):
            shown = line.removeprefix(":ivar ").partition(":")[0] not in hidden
        kept += [line] if shown else []
    lines[:] = kept


def hide_constructor(
    _app: Sphinx, what: str, _name: str, value: object, *_: object
) -> tuple[str, None] | None:
    """Leave out how a value is made that tests are given."""
    return ("", None) if what == "class" and value is not pytest_asperf.PairedTest else None


def setup(app: Sphinx) -> None:
    """Generate before Sphinx looks for pages, and call public names by their public names."""
    app.connect("builder-inited", write_generated)
    app.connect("autodoc-process-signature", hide_constructor)
    app.connect("autodoc-process-docstring", hide_internals, priority=900)  # after napoleon
    for name in pytest_asperf.__all__:
        value = getattr(pytest_asperf, name)
        if not isinstance(value, str):
            value.__module__, value.__name__ = "pytest_asperf", name
