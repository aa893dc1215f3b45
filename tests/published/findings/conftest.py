"""Evidence made of a few figures, with chosen spreads."""

from collections.abc import Callable

import pytest

from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.published.findings import Findings, judge_recorded, parse_findings
from pytest_asperf.published.records import Records, parse_recorded

#: Makes records of the rows of one table `r/t`, with columns `tg`, `ppl`, `size` and more.
MakeRecords = Callable[[str], Records]
#: Makes findings of one text about such records.
MakeFindings = Callable[[str, str], Findings]
#: Makes the text of a finding of a check, guards and other keys.
FindingText = Callable[..., str]
#: Judges a check, behind guards, on the rows of that table.
Judge = Callable[..., Verdict]

_HEAD = """
schema = 1
[source]
id = "r"
title = "report"
[[table]]
id = "t"
title = "table"
where = "Table 1"
[table.columns]
tg = { metric = "TG", unit = "tok/s", kind = "measured" }
size = { metric = "size", unit = "GB", kind = "specified" }
ratio = { metric = "TG speed-up", unit = "x", kind = "derived", formula = "ratio", from = ["tg", "base/tg"] }
odd = { metric = "something new", unit = "", kind = "measured" }
guess = { metric = "TG", unit = "tok/s", kind = "estimated" }
word = { metric = "advice", kind = "stated" }
lines = { metric = "lines of failed decodes", kind = "measured" }
[table.rows]
"""  # noqa: E501  # TOML's inline tables are on one line


@pytest.fixture(scope="session")
def make_records() -> MakeRecords:
    """Return a function that makes records of the rows of a table."""
    return lambda rows: parse_recorded([("report.toml", _HEAD + rows)])


@pytest.fixture(scope="session")
def finding_text() -> FindingText:
    """Return a function that makes the text of a finding with a check, guards and other keys."""

    def make(check: str, guards: str = "", **more: str) -> str:
        keys = {
            "id": "one",
            "statement": "It holds",
            "topic": "Tests",
            "explanation": "Read it",
            "because": "it is so",
            "expected": "PASS",
        } | more
        text = "\n".join(f'{key} = "{value}"' for key, value in keys.items())
        return f"[[finding]]\n{text}\ncheck = {check}\n{guards}"

    return make


@pytest.fixture(scope="session")
def make_findings(make_records: MakeRecords) -> MakeFindings:
    """Return a function that makes findings of rows and a text of findings."""

    def make(rows: str, findings: str) -> Findings:
        return parse_findings([("mine.toml", f"schema = 1\n{findings}")], make_records(rows))

    return make


@pytest.fixture(scope="session")
def judge(make_findings: MakeFindings, finding_text: FindingText) -> Judge:
    """Return a function that judges a check, behind guards, on the rows of a table."""

    def make(rows: str, check: str, guards: str = "") -> Verdict:
        findings = make_findings(rows, finding_text(check, guards))
        return judge_recorded(findings.findings[0], findings.evidence)

    return make
