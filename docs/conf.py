"""The documentation's site, by Sphinx: `tox run -e docs`. All pages are in the repository."""

import tomllib
from pathlib import Path

import pytest_asperf

_PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))

project = "pytest-asperf"
release = version = pytest_asperf.__version__
copyright = "the pytest-asperf authors"  # noqa: A001  # Sphinx's name for it

extensions = ["myst_parser"]
exclude_patterns = ["gating"]
myst_heading_anchors = 4
# Commands are one heading below their page's own; Pygments does not know `cron`.
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
highlight_language = "text"  # what a command printed, unless a block says what it is

html_theme = "furo"
html_title = f"pytest-asperf {release}"
html_theme_options = {
    "source_repository": _PROJECT["project"]["urls"]["Source"],
    "source_branch": "main",
    "source_directory": "docs/",
}
html_copy_source = False
html_show_sphinx = False
