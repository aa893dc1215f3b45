import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from pytest_asperf.hardware.in_force import in_force
from pytest_asperf.hardware.machine import Machine
from pytest_asperf.published.findings import load_findings
from tests.plugin.conftest import Project

SUITE = ("--pyargs", "pytest_asperf.findings")
_RECORDS = """
schema = 1
[source]
id = "own"
title = "our report"
[[table]]
id = "runs"
title = "runs"
where = "Table 1"
[table.columns]
tg = { metric = "TG", unit = "tok/s", kind = "measured" }
lines = { metric = "lines of failed decodes", kind = "measured" }
[table.rows]
a = { tg = { value = 900, sd = 1, n = 5 }, lines = 3 }
"""
_FINDING = """
schema = 1
[[finding]]
id = "{id}"
statement = "Our model generates {claim}"
topic = "Ours"
published = ["own/runs/a/tg"]
explanation = "It is so."
expected = "{expected}"
because = "it is so"
hardware = {hardware}
check = {{ kind = "above", values = ["own/runs/a/tg"], limit = {limit} }}
{guard}
"""
_GUARD = '[[finding.guard]]\nkind = "decode-errors"\nlines = "own/runs/a/lines"\n'
MEASURES = """
@pytest.mark.finding("ours")
@pytest.mark.quant("F16")
def test_it(throughput):
    assert throughput("tg8") >= 100
"""


def write(
    project: Project,
    *,
    guard: str = "",
    limit: float = 100,
    hardware: str = "[]",
    expected: str = "PASS",
) -> None:
    """Write the project's own records, and one finding `ours` on them."""
    (project.path / "report.toml").write_text(_RECORDS)
    text = _FINDING.format(
        id="ours",
        claim="100 tok/s",
        limit=limit,
        guard=guard,
        hardware=hardware,
        expected=expected,
    )
    (project.path / "mine.toml").write_text(text)
    project.config(findings=["mine.toml"], published_figures=["report.toml"])


@pytest.mark.parametrize("hardware", ["m2ultra", "m1max", "m2pro", "m4max-40"])
def test_the_recorded_suite_ends_green(project: Project, hardware: str) -> None:
    """On other hardware every finding in its scope gets its known verdict."""
    options = (f"--asperf-hardware={hardware}", "--asperf-report=json:rows.json", "-rs")
    result = project.run(*SUITE, *options)
    assert result.ret == pytest.ExitCode.OK
    found = json.loads((project.path / "rows.json").read_text())["rows"]
    here = in_force(hardware, Machine(os="Linux", arch="x86_64", cpu_brand="none"))
    expected = {
        finding.id: str(finding.expected)
        for finding in load_findings().findings
        if here.is_one_of(finding.hardware)
    }
    assert {row["about"]["finding"]: row["outcome"] for row in found} == expected
    assert {row["source"] for row in found} == {"recorded"}
    assert len(found) == len(expected)
    passed = sum(outcome == "PASS" for outcome in expected.values())
    result.stdout.fnmatch_lines([f"*{passed} passed*recorded INCONCLUSIVE*"])
    result.stdout.fnmatch_lines(["SKIPPED*the finding is about *, this is *"])


def test_live_findings_that_nothing_measures_say_so(project: Project) -> None:
    """On this machine published figures never replace a measurement."""
    result = project.run("--pyargs", "pytest_asperf.findings.test_published", "-rs")
    assert "passed" not in result.parseoutcomes()
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["SKIPPED*nothing measures it live; *: --asperf-source=recorded*"])


def test_a_finding_of_ones_own_is_judged_as_recorded(
    project: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """If nothing is measured its live test is judged by the project's own figures."""
    write(project)
    project.test(MEASURES)
    project.script("f16", faults={"load": "crash"})
    (row,) = rows("--asperf-source=recorded")
    about = row["about"]
    assert (about["finding"], row["outcome"], row["source"]) == ("ours", "PASS", "recorded")
    assert about["published"] == "900 tok/s"
    result = project.run("--asperf-source=recorded", "-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "test_it.py::test_it PASSED*",
            "   * verdict * claimed * figure [[]90 %]  of",
            "   Our model generates 100 tok/s (ours)",
            "✓  published  PASS * above 100 tok/s * 900.0 tok/s [[]898*",
            "verdicts on published figures fail no test*",
            "1 assertion: 1 PASS; exit code 0: no test failed",
        ]
    )


def test_an_engine_that_is_not_installed_skips_no_recorded_verdict(project: Project) -> None:
    """A live test's module skip does not skip the published figures."""
    write(project)
    project.test('pytestmark = pytest.mark.skipif(True, reason="no engine")\n' + MEASURES)
    project.run("--asperf-source=live").assert_outcomes(skipped=1)
    project.run("--asperf-source=recorded").assert_outcomes(passed=1)


def test_markers_of_the_live_test_select_its_recorded_verdict(project: Project) -> None:
    """`-m` selects the same tests whether they measure or not."""
    write(project)
    project.test(MEASURES)
    project.run("--asperf-source=recorded", "-m", "quant").assert_outcomes(passed=1)
    project.run("--asperf-source=recorded", "-m", "not quant").assert_outcomes(deselected=1)


def test_a_finding_of_ones_own_is_measured_live(
    project: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """The test measures here, and its row names its finding."""
    write(project)
    project.test(MEASURES)
    verdicts = [row for row in rows() if row["outcome"]]
    assert [(row["about"]["finding"], row["source"]) for row in verdicts] == [("ours", "live")]
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "   Our model generates 100 tok/s (ours)",
            "✓  here * PASS * at least 100 tok/s * tok/s [[]*]  tg8 fake:F16",
            "✓  published  PASS * 900 tok/s",
        ]
    )


@pytest.mark.parametrize(
    ("expected", "fails"),
    [("PASS", True), ("INCONCLUSIVE", True), ("FAIL", False), ("INVALID", False)],
)
def test_refuting_what_was_never_shown_fails_no_test(
    project: Project, expected: str, *, fails: bool
) -> None:
    """A live FAIL fails a test where the record shows the finding or leaves it open, only there."""
    write(project, expected=expected)
    project.test(MEASURES.replace(">= 100", ">= 1e9"))
    result = project.run("-v")
    assert (result.ret == pytest.ExitCode.TESTS_FAILED) is fails
    if fails:
        result.stdout.fnmatch_lines(["test_it.py::test_it FAILED*"])
    else:
        result.stdout.fnmatch_lines(
            [
                "test_it.py::test_it FAIL (live)*",
                "   fails no test: the published figures do not show the statement either",
                "1 assertion: 1 FAIL; 1 of 1 that did not pass fail no test; exit code 0: *",
                "*1 live FAIL*",
            ]
        )


@pytest.mark.parametrize(
    ("guard", "limit", "letter", "word"),
    [
        (_GUARD, 100, "v", "INVALID"),
        ("", 1000, "f", "FAIL"),
        ("", 900, "i", "INCONCLUSIVE"),
    ],
)
def test_a_recorded_verdict_neither_passes_nor_fails(
    project: Project, guard: str, limit: float, letter: str, word: str
) -> None:
    """Each has its own letter and word, and the session ends green without a pass."""
    write(project, guard=guard, limit=limit)
    project.test(MEASURES)
    short = project.run("--asperf-source=recorded")
    assert short.ret == pytest.ExitCode.OK
    short.stdout.fnmatch_lines([f"test_it.py {letter} *", f"*= 1 recorded {word} in *"])
    long = project.run("--asperf-source=recorded", "-v", "--junitxml=out.xml")
    long.stdout.fnmatch_lines([f"test_it.py::test_it {word} (recorded)*"])
    assert 'failures="0"' in (project.path / "out.xml").read_text()
    assert "skipped=" in (project.path / "out.xml").read_text()


def test_recorded_verdicts_travel_through_xdist(project: Project) -> None:
    """A worker's verdict has its letter and its row in the controller."""
    pytest.importorskip("xdist")
    write(project, guard=_GUARD)
    project.test(MEASURES)
    result = project.run("--asperf-source=recorded", "-pxdist", "-n1")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["!  published  INVALID *", "*= 1 recorded INVALID in *"])


def test_a_recorded_verdict_has_no_traceback(project: Project) -> None:
    """Plugins that read the report get the verdict, and none of pytest's own source."""
    write(project, limit=1000)
    project.test(MEASURES)
    with (project.path / "conftest.py").open("a") as hooks:
        hooks.write("def pytest_runtest_logreport(report):\n    print(report.longrepr or '')\n")
    result = project.run("--asperf-source=recorded", "-s")
    result.stdout.fnmatch_lines(["*FAIL: the assertion is shown false", "*ours above 1000 tok/s"])
    assert "def _multicall" not in result.stdout.str()


def test_out_of_scope_is_a_skip_that_says_why(project: Project) -> None:
    """A finding about other hardware is skipped here, live or published."""
    write(project, hardware='["m4max-40"]')
    project.test(MEASURES)
    for source in ("live", "recorded"):
        result = project.run(f"--asperf-source={source}", "-rs")
        result.assert_outcomes(skipped=1)
        result.stdout.fnmatch_lines(["SKIPPED*the finding is about m4max-40, this is *"])


@pytest.mark.parametrize("source", ["live", "recorded"])
def test_a_typing_error_in_the_marker_hits_one_test(project: Project, source: str) -> None:
    """An unknown finding raises with the nearest name, and other tests run."""
    write(project)
    project.test(MEASURES.replace('"ours"', '"our"') + "\ndef test_other():\n    pass\n")
    result = project.run(f"--asperf-source={source}")
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["*no finding is called 'our'; did you mean 'ours'?*"])


@pytest.mark.parametrize("args", ['"a", "b"', "", "1"])
def test_a_marker_takes_one_id(project: Project, args: str) -> None:
    """Any other argument raises with the test's name."""
    write(project)
    project.test(MEASURES.replace('"ours"', args))
    result = project.run("--asperf-source=recorded")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*@pytest.mark.finding needs one id*"])


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("mine.toml", "limit", "limmit", "*mine.toml: finding ours: check: unknown key 'limmit'*"),
        ("mine.toml", "schema = 1", "", "*mine.toml has no schema = 1*"),
        ("report.toml", "tok/s", 'tok/s", knd = "x', "*report.toml: table runs*column tg*'knd'*"),
        ("asperf.toml", "mine.toml", "other.toml", "*other.toml cannot be read*"),
        ("asperf.toml", '["mine.toml"]', "3", "*asperf.toml: findings: 3 is not usable*"),
    ],
)
def test_bad_files_are_usage_errors_that_name_file_and_key(
    project: Project, file: str, old: str, new: str, told: str
) -> None:
    """A mistake in a project's files ends the session before any test, with the way out."""
    write(project)
    project.test(MEASURES)
    path = project.path / file
    path.write_text(path.read_text().replace(old, new))
    result = project.run("--asperf-source=recorded")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([told, "*what to do:*"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_a_marker_of_that_name_elsewhere_is_left_alone(project: Project) -> None:
    """A project that has a marker `finding` of its own is not disturbed."""
    project.test("@pytest.mark.finding(7)\ndef test_it():\n    pass\n")
    project.run().assert_outcomes(passed=1)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_finding_has_one_line_for_each_verdict(
    project: Project, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """None is wider than the terminal, and each assertion is in one column."""
    monkeypatch.setenv("COLUMNS", str(width))
    result = project.run(*SUITE, "--asperf-hardware=m2ultra")
    lines = result.outlines
    start = next(n for n, line in enumerate(lines) if line.strip().startswith("verdict "))
    claimed = lines[start].index("claimed")
    table = [line for line in lines[start + 1 :] if line[:3].strip() in {"✓", "?", "!", "✗"}]
    (tally,) = [line for line in lines if " assertions: " in line]
    assert len(table) == int(tally.split()[0]) > 50
    assert max(map(len, lines[start : start + 2 * len(table)])) <= width
    assert {line[claimed - 1] for line in table} == {" "}


def test_a_terminal_without_utf_8_gets_lines_too(
    project: Project, command: list[str], environment: dict[str, str]
) -> None:
    """Marks and letters that the encoding lacks are spelt out, and the table stays a table."""
    result = subprocess.run(
        [*command, *SUITE, "--asperf-hardware=m2ultra"],
        cwd=project.path,
        env=environment | {"PYTHONIOENCODING": "ascii", "COLUMNS": "100"},
        capture_output=True,
        check=False,
        timeout=120,
    )
    lines = result.stdout.decode("ascii").splitlines()
    claims = [line for line in lines if line.startswith((".  ", "I  ", "V  ", "F  "))]
    assert len(claims) > 50
    assert max(map(len, claims)) <= 100


def test_the_report_carries_findings(project: Project) -> None:
    """The JSON report has statement, published figures and verdict of each."""
    target = project.path / "out.json"
    project.run(*SUITE, "--asperf-hardware=m2ultra", f"--asperf-report=json:{target}")
    rows = {row["about"]["finding"]: row for row in json.loads(target.read_text())["rows"]}
    row = rows["sd-headline"]
    assert row["outcome"] == "INVALID"
    assert row["about"]["statement"].startswith("A 0.8B draft")
    assert row["about"]["published"] == "25.7 %, 3.3 %"
    assert row["measured"].startswith("sd-bound: ")
