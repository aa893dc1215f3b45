from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plugin.conftest import Project

TESTS = """
@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")
def test_ppl(perplexity):
    assert_ppl_delta(perplexity, below="1%")

@pytest.mark.quant("Q8_0")
def test_open(perplexity):
    assert_ppl_delta(perplexity, below=perplexity.delta_ppl.point)

@pytest.mark.model("fake:F16")
def test_speed(throughput):
    throughput("tg8")
"""


def _section(result: pytest.RunResult) -> list[str]:
    """Return the lines of our section up to its count of verdicts."""
    lines: list[str] = result.stdout.lines
    start = next(i for i, line in enumerate(lines) if re.fullmatch("=+ asperf =+", line))
    end = next(i for i, line in enumerate(lines) if "1 INCONCLUSIVE" in line)
    return lines[start + 1 : end + 1]


@pytest.mark.parametrize("columns", [60, 120])
def test_tables_keep_to_the_width(
    project: Project, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """No line of a table is longer than the terminal, and columns stay aligned."""
    monkeypatch.setenv("COLUMNS", str(columns))
    project.test(TESTS)
    lines = _section(project.run())
    assert max(len(line) for line in lines if not line.startswith("note: ")) <= columns
    assert lines[0].split()[:2] == ["model", "metric"]
    column = lines[0].index("from")
    basis = [line[column:] for line in lines if "chunks" in line or "loads" in line]
    assert {text.split(maxsplit=1)[1] for text in basis[:3]} == {"chunks", "loads"}


def test_wide_enough_is_one_line_each(project: Project) -> None:
    """Where there is room, a measurement is one line with value, interval, unit and basis."""
    project.test(TESTS)
    lines = _section(project.run())
    number = r"-?[\d.]+"
    interval = rf"\[{number}, {number}\]"
    expected = [
        "model +metric +value .*",
        rf"fake:Q8_0 +PPL vs F16 +{number}, Δ {number} % {interval}, KLD {number} +6 chunks",
        rf"fake:Q4_K_M +PPL vs F16 +{number}, Δ \+{number} % {interval}, KLD {number} +6 chunks",
        rf"fake:F16 +tg8 +1000 tok/s {interval} +5 loads",
        r"note: PPL on corpus.txt, sha256 [0-9a-f]{12}, chunks 1 to 6 of 39, of 512 tokens",
        "",
        "verdict +claim and what was measured +from",
        rf"PASS +ΔPPL fake:Q8_0 vs F16 below 1 %: {number} % {interval} +6 chunks",
        rf"FAIL +ΔPPL fake:Q4_K_M vs F16 below 1 %: \+{number} % {interval} +6 chunks",
        rf"INCONCLUSIVE +ΔPPL fake:Q8_0 vs F16 below {number} %: {number} % {interval} +6 chunks",
        "1 PASS, 1 FAIL, 1 INCONCLUSIVE",
    ]
    assert len(lines) == len(expected)
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line), line


def test_quiet(project: Project) -> None:
    """`-q` leaves out header and tables; what was not decided is still told."""
    project.test(TESTS)
    result = project.run("-q")
    result.stdout.no_fnmatch_line("asperf: hardware*")
    result.stdout.no_fnmatch_line("*= asperf =*")
    result.stdout.fnmatch_lines(
        [
            ".FI. *",
            "*_ INCONCLUSIVE test_it.py::test_open _*",
            "INCONCLUSIVE test_it.py::test_open - *",
        ]
    )


def test_verbose(project: Project) -> None:
    """`-v` says each outcome in a word."""
    project.test(TESTS)
    project.run("-v").stdout.fnmatch_lines(
        ["test_it.py::test_ppl[[]Q4_K_M] FAILED *", "test_it.py::test_open INCONCLUSIVE *"]
    )


def test_no_colour_is_asked_for(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR holds for our section too."""
    project.test(TESTS)
    assert "\x1b[" in project.run("--color=yes").stdout.str()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in project.run().stdout.str()


@pytest.mark.parametrize("name", ["[red]x[/red]", "\x1b[31mx", "two\nlines", "x\x07"])
def test_a_models_name_does_nothing(project: Project, name: str) -> None:
    """Markup, escape sequences and newlines in a file's name are shown, not obeyed."""
    path = project.path / f"{name.replace('/', '')}.gguf"
    path.write_text((project.path / "f16.json").read_text())
    project.test(f"""
@pytest.mark.model({f"./{path.name}"!r})
def test_there(throughput):
    throughput("tg8")

@pytest.mark.model({f"./{path.name}2.gguf"!r})
def test_missing(throughput):
    throughput("tg8")
""")
    result = project.run("--color=no")
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    assert "\x1b" not in text
    assert "\x07" not in text
    assert sum("tok/s" in line for line in result.stdout.lines) == 1


def test_a_name_in_the_file_is_shown_escaped(project: Project) -> None:
    """A model that may not be called so is refused without obeying its name."""
    project.config('[models."\\u001b[31mx"]\ngguf = "x.gguf"\n')
    project.test(TESTS)
    error = project.run().stderr.str()
    assert "\\x1b[31mx" in error
    assert "\x1b" not in error
