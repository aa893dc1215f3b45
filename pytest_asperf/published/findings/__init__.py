"""Published findings as data: a statement, its published figures, and a check of them.

`data/findings/README.md` lists the permitted content of a file. The files of that folder ship, and
a project may have its own in the same schema.
"""

from pytest_asperf.published.findings.load import (
    load_findings as load_findings,
    parse_findings as parse_findings,
)
from pytest_asperf.published.findings.model import (
    Finding as Finding,
    Findings as Findings,
    judge_recorded as judge_recorded,
    published_text as published_text,
)
