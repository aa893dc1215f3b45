from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.plugin.conftest import Project

CLAIM = """
@pytest.mark.quant("F16")
def test_it(throughput):
    assert_throughput({claim})
"""
#: Runs of half a second, against which a fresh load is cheap however busy the machine.
SPREAD = [1_000_000, 1_010_000, 1_020_000, 990_000, 980_000]


@pytest.mark.parametrize(
    ("claim", "letter", "verdict"),
    [
        ('throughput("tg512"), at_least="900 tok/s"', ".", "✓ *tg512 fake:F16 * ≥ 900 *"),
        ('throughput("tg512"), at_least=1100.0', "F", "✗ *tg512 fake:F16 * ≥ 1100 *"),
        ('throughput("tg512"), at_least="1000tok/s"', "I", "[?] *tok/s * ≥ 1000 *"),
        ('throughput("tg512"), at_most=1100', ".", "✓ *tok/s * ≤ 1100 *"),
        ('throughput("tg512"), at_most="900.5 tok/s"', "F", "✗ *tok/s * ≤ 900.5 *"),
        ('throughput("tg128"), at_least=900, at_most=1100', ".", "✓ *tg128 * 900 to 1100 *"),
    ],
)
def test_a_rate_against_its_limits(project: Project, claim: str, letter: str, verdict: str) -> None:
    """The whole interval decides, on either side, and an open claim is neither."""
    project.script("f16", tg_ns_per_token=SPREAD)
    project.test(CLAIM.format(claim=claim))
    project.run().stdout.fnmatch_lines([f"test_it.py {letter} *", verdict])


def test_a_broken_measurement_is_invalid(project: Project) -> None:
    """An engine that crashes gives INVALID, never a rate."""
    project.script("f16", faults={"generate": "crash"})
    project.test(CLAIM.format(claim='throughput("tg128"), at_least=1'))
    project.run().stdout.fnmatch_lines(["test_it.py V *"])


@pytest.mark.parametrize("where", ["at_least", "at_most"])
def test_another_unit_is_refused(project: Project, where: str) -> None:
    """A limit that is not in tok/s is refused."""
    limits = ["'40 tok/min'", "'40'", "'5%'", "'-1 tok/s'", "0", "float('nan')", "True"]
    for number, limit in enumerate(limits):
        project.test(
            CLAIM.format(claim=f'throughput("tg128"), {where}={limit}'), name=f"test_{number}"
        )
    result = project.run()
    result.assert_outcomes(failed=len(limits))
    refusal = f"assert_throughput: {where}: * is not a rate in tok/s"
    result.stdout.fnmatch_lines([refusal] * len(limits))


@pytest.mark.parametrize("limits", ["", ", at_least=2, at_most=1"])
def test_no_range_is_an_error(project: Project, limits: str) -> None:
    """A claim that always or never holds is refused."""
    project.test(CLAIM.format(claim=f'throughput("tg8"){limits}'))
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*is not a range*"])


def test_each_run_is_from_a_fresh_load(
    project: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """Where loading is cheap, the interval is over loads, and says so."""
    project.script("f16", tg_ns_per_token=SPREAD, log=str(project.path / "log.txt"))
    project.test(CLAIM.format(claim='throughput("tg512"), at_least=900'))
    measured, verdict = rows()
    assert [run["load"] for run in measured["runs"]] == [0, 1, 2, 3, 4]
    assert [run["load"] for run in measured["warm_ups"]] == [0, 1, 2, 3, 4]
    assert (measured["basis"], verdict["basis"]) == ("5 loads", "5 loads")
    assert "covers loads and runs" in verdict["figures"][0]["estimate"]["method"]
    done = [line.split()[0] for line in (project.path / "log.txt").read_text().splitlines()]
    assert done.count("load") == 5
    assert done.count("generate") == 10


def test_runs_of_one_load_where_loading_costs_more(
    project: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """Where loading is dear there is one load, and the verdict owns to it."""
    project.script("f16", tg_ns_per_token=SPREAD, load_ns=10**10)
    project.test(CLAIM.format(claim='throughput("tg512"), at_least=900'))
    measured, verdict = rows()
    assert [run["load"] for run in measured["runs"]] == [0] * 5
    assert len(measured["warm_ups"]) == 1
    assert verdict["basis"] == "5 runs of one load"
    assert "not how loads differ" in verdict["figures"][0]["estimate"]["method"]


def test_a_verdict_names_the_variance_it_covers(project: Project) -> None:
    """The note of a claim that fails says what the interval covers."""
    project.script("f16", tg_ns_per_token=SPREAD)
    project.test(CLAIM.format(claim='throughput("tg512"), at_least=1100'))
    project.run("-v").stdout.fnmatch_lines(["E * interval: *so it covers loads and runs*"])


def test_levels_that_are_compared_are_loaded_anew_together(
    project: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """One level that is dear to load keeps all levels of the comparison at one load."""
    project.script("q8", load_ns=10**10)
    project.test(
        '@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")\n'
        "def test_it(ladder):\n    ladder.readings('tg512')\n"
    )
    assert [len(row["warm_ups"]) for row in rows()] == [1, 1]


def test_live(live: Project) -> None:
    """The shipped draft is loaded anew for each run, and its rate is that of a small model."""
    live.test(
        '@pytest.mark.model("asperf-draft:F16")\n'
        + CLAIM.split("\n", 2)[2].format(claim='throughput("tg16"), at_least=10')
    )
    live.run().stdout.fnmatch_lines(["✓ *tg16 asperf-draft:F16 *tok/s * ≥ 10 *"])
