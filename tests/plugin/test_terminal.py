import re

import pytest

from tests.plugin.conftest import Project
from tests.plugin.measuring_tests import TESTS


def _section(result: pytest.RunResult) -> list[str]:
    """Return the lines of our section up to its count of verdicts."""
    lines: list[str] = result.stdout.lines
    start = next(i for i, line in enumerate(lines) if re.fullmatch("=+ asperf =+", line))
    end = next(i for i, line in enumerate(lines) if "1 INCONCLUSIVE" in line)
    return lines[start + 1 : end + 1]


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_keep_to_the_width(
    project: Project, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """No line of a table is longer than the terminal, and columns stay aligned."""
    monkeypatch.setenv("COLUMNS", str(columns))
    project.test(TESTS)
    lines = _section(project.run())
    assert max(map(len, lines)) <= columns
    head = next(n for n, line in enumerate(lines) if line.startswith("   what "))
    column = lines[head].index("limit")
    limits = [line[column:].split("  ")[0] for line in lines[head + 2 : head + 5]]
    assert [limit[:2] for limit in limits] == ["< ", "< ", "< "]
    assert limits[0] == limits[2] == "< 1 %"


def test_wide_enough_is_one_line_each(project: Project) -> None:
    """If there is room, a measurement is one line with value, interval, unit and basis."""
    project.test(TESTS)
    lines = _section(project.run())
    number = r"-?[\d.]+"
    interval = rf"\[{number}, {number}\]"
    sha, time = "[0-9a-f]{8}", r"(\d+ s|  +)"
    expected = [
        (
            f"fake:Q8_0 = {sha} · fake:Q4_K_M = {sha} · fake:F16 = {sha} · "
            r"text: corpus.txt, sha256 [0-9a-f]{12}, chunks 1 to 6 of 39, of 512 tokens"
        ),
        r"   what +measured \[90 %\] +limit +from +time +test",
        rf"   tg8 fake:F16 +1000 tok/s {interval} +5 loads +test_speed",
        (
            rf"✓  ΔPPL fake:Q8_0 vs F16 +{number}, {number} % {interval} +< 1 % +6 chunks +{time} +"
            r"test_ppl\[Q8_0\]"
        ),
        (
            rf"\?  ΔPPL fake:Q8_0 vs F16 +{number}, {number} % {interval} +< {number} % +6 chunks +"
            rf"{time} *test_open"
        ),
        (
            rf"✗  ΔPPL fake:Q4_K_M vs F16 +{number}, \+{number} % {interval} +< 1 % +6 chunks +"
            rf"{time} *test_ppl\[Q4_K_M\]"
        ),
        "3 assertions: 1 PASS, 1 FAIL, 1 INCONCLUSIVE.*",
    ]
    assert len(lines) == len(expected)
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line), line


def test_quiet(project: Project) -> None:
    """`-q` keeps the assertions, and `-qq` the failures only."""
    project.test(TESTS)
    result = project.run("-q")
    result.stdout.no_fnmatch_line("asperf: hardware*")
    result.stdout.no_fnmatch_line("*= asperf =*")
    result.stdout.fnmatch_lines(
        [
            ".FI. *",
            "*_ INCONCLUSIVE test_it.py::test_open _*",
            "   what  *",
            "✗  ΔPPL fake:Q4_K_M vs F16 *",
            "3 assertions: *",
        ]
    )
    result.stdout.no_fnmatch_line("[?] test_open: *")  # its block has it
    project.run("-q", "--tb=no").stdout.fnmatch_lines(["[?] test_open: too near the limit *"])
    result = project.run("-qq")
    result.stdout.fnmatch_lines([".FI. *", "*_ INCONCLUSIVE test_it.py::test_open _*"])
    for pattern in ("*what  *", "* assertions: *", "[?] test_open*"):
        result.stdout.no_fnmatch_line(pattern)


def test_verbose(project: Project) -> None:
    """`-v` prints each outcome in a word, with the figure; the summary has the word only."""
    project.test(TESTS)
    result = project.run("-v")
    result.stdout.fnmatch_lines(
        [
            "test_it.py::test_ppl[[]Q4_K_M] FAILED *, +* % [[]*] *",
            "test_it.py::test_open INCONCLUSIVE *, * % [[]*] *",
            "test_it.py::test_speed PASSED 1000 tok/s [[]*] *",
            "FAILED test_it.py::test_ppl[[]Q4_K_M] - *",
        ]
    )


def test_a_failure_takes_few_lines(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight at most, of a verdict and of an error: `-v` and the reports have all."""
    monkeypatch.setenv("COLUMNS", "80")
    project.script("f16", faults={"generate": "crash"})
    project.test(TESTS)
    lines = project.run().outlines
    heads = [n for n, line in enumerate(lines) if re.fullmatch("_+ .* _+", line)]
    ends = [*heads[1:], next(n for n, line in enumerate(lines) if "= asperf =" in line)]
    blocks = [lines[head:end] for head, end in zip(heads, ends, strict=True)]
    assert len(blocks) == 3
    assert max(map(len, blocks)) <= 8
    failure = "\n".join(blocks[0])
    for said in ("test_it.py:6: VerdictError", ">   ", "E   FAIL ", "E   do ", "E   ran  "):
        assert said in failure


def test_no_colour_is_asked_for(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR applies to asperf's section too."""
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
    throughput("tg8").estimate

@pytest.mark.model({f"./{path.name}2.gguf"!r})
def test_missing(throughput):
    throughput("tg8").estimate
""")
    result = project.run("--color=no")
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    assert "\x1b" not in text
    assert "\x07" not in text
    assert sum("tok/s" in line for line in result.stdout.lines) == 1


def test_a_name_in_the_file_is_shown_escaped(project: Project) -> None:
    """A model with a forbidden name is rejected without obeying its name."""
    project.config('[models."\\u001b[31mx"]\ngguf = "x.gguf"\n')
    project.test(TESTS)
    error = project.run().stderr.str()
    assert "\\x1b[31mx" in error
    assert "\x1b" not in error
