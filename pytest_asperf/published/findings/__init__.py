"""Published findings as data: a statement, its published figures, and a check of them.

`data/findings/README.md` lists the permitted content of a file. The files of that folder ship, and
a project may have its own in the same schema.
"""

from __future__ import annotations

from pytest_asperf.published.findings.judge import judge_recorded, published_text
from pytest_asperf.published.findings.load import load_findings, parse_findings
from pytest_asperf.published.findings.model import Finding, Findings

__all__ = [
    "Finding",
    "Findings",
    "judge_recorded",
    "load_findings",
    "parse_findings",
    "published_text",
]
