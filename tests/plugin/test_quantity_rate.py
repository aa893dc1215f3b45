"""Rates against limits: of their own, of their spread, and of the memory bandwidth."""

from collections.abc import Callable
from typing import Any

from tests.plugin.conftest import Project

HEAD = '@pytest.mark.quant("F16")\ndef test_it(throughput):\n    '
#: Runs of half a second, against which a fresh load is cheap however busy the machine.
SPREAD = [1_000_000, 1_010_000, 1_020_000, 990_000, 980_000]


def test_each_operator_has_each_outcome(project: Project) -> None:
    """The whole interval decides, above or below; an engine that crashes is INVALID."""
    project.script("f16", tg_ns_per_token=SPREAD)
    project.script("q8", faults={"generate": "crash"})
    letters = {">=": ".FI", ">": ".FI", "<=": "F.I", "<": "F.I"}
    limits = ("900", "'1100 tok/s'", "'1000tok/s'")
    claims = [f'assert throughput("tg512") {sign} {limit}' for sign in letters for limit in limits]
    claims += [f'assert throughput("tg512", quant="Q8_0") {sign} 1' for sign in letters]
    claims += [f'assert 900 <= throughput("tg512") <= {high}' for high in (1100, 950)]
    project.claims(HEAD, claims)
    result = project.run()
    result.stdout.fnmatch_lines(
        [
            f"test_it.py {''.join(letters.values())}VVVV.F *",
            "✓ *tg512 fake:F16 * ≥ 900 *",
            "[?] *tg512 fake:F16 * < 1000 *",
            "✗ *tg512 fake:F16 * > 1100 *",
        ]
    )


def test_each_run_is_from_a_fresh_load(
    project: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """If loading is cheap, the interval is over loads, and the report shows it."""
    project.script("f16", tg_ns_per_token=SPREAD, log=str(project.path / "log.txt"))
    project.claims(HEAD, ['assert throughput("tg512") >= 900'])
    measured, verdict = rows()
    assert [run["load"] for run in measured["runs"]] == [0, 1, 2, 3, 4]
    assert [run["load"] for run in measured["warm_ups"]] == [0, 1, 2, 3, 4]
    assert (measured["basis"], verdict["basis"]) == ("5 loads", "5 loads")
    assert "covers loads and runs" in verdict["figures"][0]["estimate"]["method"]
    done = [line.split()[0] for line in (project.path / "log.txt").read_text().splitlines()]
    assert done.count("load") == 5
    assert done.count("generate") == 10


def test_runs_of_one_load_if_loading_is_expensive(
    project: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """There is one load, and the verdict names the variation outside its interval."""
    project.script("f16", tg_ns_per_token=SPREAD, load_ns=10**10)
    project.claims(HEAD, ['assert throughput("tg512") >= 900'])
    measured, verdict = rows()
    assert [run["load"] for run in measured["runs"]] == [0] * 5
    assert len(measured["warm_ups"]) == 1
    assert verdict["basis"] == "5 runs of one load"
    assert "not how loads differ" in verdict["figures"][0]["estimate"]["method"]


def test_a_spread_against_its_limit(project: Project) -> None:
    """The interval decides, for any accepted CV; runs that are all alike have no spread."""
    both = 'q8, q4 = (ladder[q].throughput("tg8").cv for q in ladder.quants); '
    claims = {
        both + 'assert q8 < "2%"': ".",
        both + "assert q4 <= 0.01": "F",
        both + 'assert q8 < "0.6%"': "I",
        both + "assert q8 < q4": ".",
        both + "assert q4 / q8 <= 1": "F",
        both + "assert q4 / q8 < '1000%'": "I",
        'assert ladder["Q8_0"].throughput("pp16").cv < "1%"': "V",
    }
    for name, scale in (("q8", 1_000), ("q4", 10_000)):  # they vary by 0.6 % and by 6 %
        steps = [1_000_000 + scale * step for step in (-6, 5, 0, -8, 9, 2, -3, 7, -5, 1)]
        project.script(name, tg_ns_per_token=steps, pp_ns_per_token=10_000)
    head = '@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")\ndef test_it(ladder):\n    '
    args = ("--asperf-repetitions=10", "--asperf-max-cv=0.1%")
    assert project.judged(head, claims, *args) == "".join(claims.values())
    wrong = "CV of tg8 fake:Q8_0 < '1 tok/s': '1 tok/s' is not a usable limit"
    project.rejects(head, {both + "assert q8 < '1 tok/s'": wrong})


def test_a_spread_needs_five_runs(project: Project) -> None:
    """Four runs give no interval of their spread, and the note has the needed number."""
    project.script("f16", tg_ns_per_token=SPREAD)
    project.claims(HEAD.replace("throughput", "latency"), ['assert latency("tg8").cv < "1%"'])
    result = project.run("--asperf-repetitions=4")
    result.stdout.fnmatch_lines(
        ["test_it.py I *", "E   do *measure 5 loads: --asperf-repetitions=5"]
    )


LIVE = '@pytest.mark.model("asperf-draft:F16")\ndef test_it(throughput):\n    '


def test_a_share_of_the_bandwidth(live: Project) -> None:
    """It is about right on any machine, and cached weights are not judged: INVALID."""
    claims = {
        'assert throughput("tg128").bandwidth_utilization <= "1000%"': ".",
        'assert throughput("tg16").bandwidth_utilization >= "0.1%"': ".",
        'assert throughput("tg16").bandwidth_utilization <= 1e-9': "V",
        'assert throughput("tg16") >= 10': ".",
    }
    live.claims(LIVE, claims)
    result = live.run()
    result.stdout.fnmatch_lines(
        [
            f"test_it.py {''.join(claims.values())} *",
            "E *INVALID *fit in the * last-level cache*",
            "✓ *tg16 asperf-draft:F16 *tok/s * ≥ 10 *",
        ]
    )
    result.stdout.fnmatch_lines(["✓ *utilization of * GB/s (*"])


def test_no_share_of_the_bandwidth(live: Project) -> None:
    """A prompt has none, nor does an unknown chip's memory or an engine without weights."""
    live.rejects(
        LIVE,
        {
            'throughput("pp16").bandwidth_utilization': "is not defined for pp16",
            "throughput(16)": "throughput: '16' is not a workload",
            'assert throughput("tg16").bandwidth_utilization <= "80"': "'80' is not a usable limit",
            'assert throughput("tg16").bandwidth_utilization <= 1': "limit: it has no unit",
        },
    )
    claim = {'assert throughput("tg16").bandwidth_utilization <= "100%"': "the memory bandwidth of"}
    live.rejects(LIVE, claim, "--asperf-hardware=rtx4090", "--asperf-source=live")


def test_an_engine_without_weights_has_no_share(project: Project) -> None:
    """The bytes of a step are unknown."""
    claim = 'assert throughput("tg16").bandwidth_utilization <= "100%"'
    project.rejects(HEAD, {claim: "bandwidth utilization is not defined for tg16"})
