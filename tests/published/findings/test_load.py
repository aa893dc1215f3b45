from pathlib import Path

import pytest

from pytest_asperf.errors import ConfigError
from pytest_asperf.published.findings import load_findings
from tests.published.findings.conftest import FindingText, MakeFindings


def finding(check: str, guards: str = "", **more: str) -> dict[str, str]:
    """Return the parts of a finding's text."""
    return {"check": check, "guards": guards, **more}


ROWS = "a = { tg = 10, word = 'yes' }"
FINE = '{ kind = "above", values = ["r/t/a/tg"], limit = 1 }'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[finding]]\nid = 'x'", r"finding x: statement: is missing"),
        (finding(FINE, expectd="PASS"), r"unknown key 'expectd'; did you mean 'expected'"),
        (
            finding(FINE, expected="PAS"),
            r"finding one: expected: 'PAS' is not usable; did you mean 'PASS'",
        ),
        (finding(FINE, architecture="tree"), r"architecture: 'tree' is not usable"),
        (
            finding('{ kind = "abov", limit = 1 }'),
            r"check: kind: 'abov' is not usable; did you mean 'above'",
        ),
        (
            finding('{ kind = "above", values = ["r/t/a/tgg"], limit = 1 }'),
            r"no published figure is called 'r/t/a/tgg'; did you mean 'r/t/a/tg'",
        ),
        (finding('{ kind = "above", values = ["tg"], limit = 1 }'), r"values: 'tg' is not usable"),
        (
            finding('{ kind = "above", values = ["r/t/a/word"], limit = 1 }'),
            r"'yes' is not one number",
        ),
        (finding('{ kind = "above", values = [], limit = 1 }'), r"(?s)values: .*at least 1 term"),
        (finding('{ kind = "above", values = ["r/t/a/tg"] }'), r"check: limit: is missing"),
        (
            finding('{ kind = "within", values = ["r/t/a/tg"], at_least = 2, at_most = 1 }'),
            r"(?s)at_least: .*at_least <= at_most",
        ),
        (
            finding('{ kind = "above", values = ["r/t/a/tg"], labels = ["x", "y"], limit = 1 }'),
            r"2 labels for 1 values",
        ),
        (
            finding(
                '{ kind = "above", values = [{ formula = "rato", of = ["r/t/a/tg"] }], limit = 1 }'
            ),
            r"formula: 'rato' is not usable; did you mean 'ratio'",
        ),
        (
            finding(
                '{ kind = "above", values = [{ formula = "ratio", of = ["r/t/a/tg"] }], limit = 1 }'
            ),
            r"of is not 2 terms, and ratio is a / b",
        ),
        (
            finding('{ kind = "equal", values = ["r/t/a/tg"], to = [], within = 1 }'),
            r"(?s)to: .*at least 1 term",
        ),
        (
            finding('{ kind = "monotonic", values = ["r/t/a/tg", "r/t/a/tg"], direction = "up" }'),
            r"direction: 'up' is not usable",
        ),
        (
            finding(FINE, '[[finding.guard]]\nkind = "sd-bund"'),
            r"guard: kind: 'sd-bund' is not usable",
        ),
        (
            finding(FINE, '[[finding.guard]]\nkind = "decode-errors"'),
            r"(?s)guard: lines: is missing.*decode-errors needs lines",
        ),
        (finding(FINE + '\nsources = ["r/x"]'), r"sources: no table .* 'r/x'"),
        ('[[reference]]\ntable = "r/x"\nwhy = "w"', r"reference: table: 'r/x' is not usable"),
        (
            '[[reference]]\nfigures = ["r/t/a/tgg"]\nwhy = "w"',
            r"reference: figures: no published figure is called 'r/t/a/tgg'; did you mean",
        ),
    ],
)
def test_a_bad_file_is_refused_by_file_finding_and_key(
    make_findings: MakeFindings,
    finding_text: FindingText,
    text: str | dict[str, str],
    told: str,
) -> None:
    """For any fault, the message has its place and the accepted content."""
    text = text if isinstance(text, str) else finding_text(**text)
    with pytest.raises(ConfigError, match=told) as caught:
        make_findings(ROWS, text)
    assert "what to do" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"schema = 2", "has no schema = 1"),
        (b"schema = ", "is not valid TOML"),
        (b"\xff\xfe", "is not UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, content: bytes | None, told: str
) -> None:
    """Missing, binary and truncated files are distinguished."""
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"mine\.toml.*{told}"):
        load_findings([path])


def test_an_id_stands_once(make_findings: MakeFindings, finding_text: FindingText) -> None:
    """Two findings of one name raise."""
    with pytest.raises(ConfigError, match="finding 'one' is there twice"):
        make_findings(ROWS, 2 * finding_text(FINE))


def test_a_guard_that_makes_no_sense_says_so(
    make_findings: MakeFindings, finding_text: FindingText
) -> None:
    """A rate of 0 is no rate: the guard names its figures and the reason."""
    from pytest_asperf.published.findings import judge_recorded

    guard = (
        '[[finding.guard]]\nkind = "roofline-low"\nrate = "r/t/a/tg"\nweights_gb = "r/t/a/lines"'
        '\nbandwidth = "r/t/a/tg"'
    )
    findings = make_findings("a = { tg = 10, lines = 0 }", finding_text(FINE, guard))
    with pytest.raises(ConfigError, match=r"roofline-low cannot check .*r/t/a/lines"):
        judge_recorded(findings.findings[0], findings.evidence)
