"""Energy through pytest: a replayed counter during processes of the scripted engine."""

import json
import time
from functools import partial

import pytest

from pytest_asperf.hardware.meters.meter import Counter, Meter
from tests.plugin.conftest import Project
from tests.power_samples import RUN_S, WATTS, no_counter, replayed_counter

HEAD = '@pytest.mark.quant("F16")\ndef test_it(energy):\n    '
CLAIM = 'assert energy("tg8") <= 1.0'


def test_energy_against_limits(metered: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """J per token are power times time; the assertion names the rail, and unmeasured ones."""
    monkeypatch.setenv("COLUMNS", "200")
    claims = {
        'assert energy("tg8") <= "1 J/token"': ".",
        'assert energy("tg8") < "50 mJ/token"': "F",
        'assert energy("tg8").rail("machine") <= 1.0': "V",
        'assert energy("tg8").rail("gpu") >= 0.1': ".",
        'assert energy("tg8").net <= 0.2': ".",
        'assert energy("tg8") <= energy("tg8").estimate.point': "I",
    }
    metered.claims(HEAD, claims)
    result = metered.run("--asperf-report=json:report.json")
    result.stdout.fnmatch_lines(
        [
            f"test_it.py {''.join(claims.values())} *",
            "E *INVALID *energy of tg8 fake:F16 (machine, gross)*",
            "note: GPU 0 (NVML): an update every 1* ms, 5 windows of * (+* with -v)",
        ]
    )
    report = json.loads((metered.path / "report.json").read_text())
    rows = [row for row in report["rows"] if "rails" in row]
    (gpu,) = rows[0]["rails"].values()
    assert gpu["watts"]["point"] == pytest.approx(WATTS, rel=0.25)
    # Less the idle machine's power, which is as much here as under load.
    assert abs(gpu["net_joules_per_token"]["point"]) < 0.3 * gpu["joules_per_token"]["point"]
    assert rows[0]["joules_per_token"]["point"] > WATTS * RUN_S / 8
    assert rows[0]["unmeasured"].keys() == {"package"}
    assert rows[0]["phases"][0]["windows"][0]["n_updates"] >= 5


def test_a_rail_without_a_figure_is_no_zero(
    metered: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter that does not move is unavailable, and a dead one of the processor is INVALID."""
    ane = Counter("ANE (IOReport)", "ane", lambda: 17.0)
    monkeypatch.setattr("pytest_asperf.hardware.meters.meter._PATIENCE_S", 0.2)
    monkeypatch.setattr(
        "pytest_asperf.measure.metered.open_meters", lambda: Meter((replayed_counter(), ane))
    )
    metered.claims(HEAD, ['assert energy("tg8").rail("ane") <= 1.0'])
    metered.run().stdout.fnmatch_lines(
        [
            "*ane has no figure: ANE (IOReport) did not move: idle, or dead*",
            "*name a rail that has one: gpu",
        ]
    )
    cpu = Counter("CPU (IOReport)", "cpu", lambda: 17.0)
    monkeypatch.setattr(
        "pytest_asperf.measure.metered.open_meters", lambda: Meter((replayed_counter(), cpu))
    )
    metered.claims(HEAD, [CLAIM])
    metered.run().stdout.fnmatch_lines(
        ["test_it.py V *", "*dead-counter: CPU (IOReport) did not move under load*"]
    )


def test_a_counter_that_moves_too_rarely_has_no_figure(
    metered: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle part's counter neither blocks a phase for ever nor counts; the GPU's would."""
    monkeypatch.setattr("pytest_asperf.hardware.meters.meter._LONGEST_S", 0.8)
    # On a busy machine a generation lasts longer, and has more energy.
    metered.claims(HEAD, ['assert energy("tg8") <= 10.0'])
    for rail, seen in (
        ("ane", ["✓ *energy of tg8 fake:F16 (gpu, gross)*"]),
        ("gpu", ["*short-window: the window covers ? updates of GPU (IOReport)*"]),
    ):
        name = f"{rail.upper()} (IOReport)"
        rare = Counter(name, rail, lambda: float(time.monotonic() // 0.25))  # type: ignore[arg-type]
        counters = (replayed_counter(), rare) if rail == "ane" else (rare,)
        monkeypatch.setattr("pytest_asperf.measure.metered.open_meters", partial(Meter, counters))
        metered.run().stdout.fnmatch_lines(seen)


def test_the_energy_of_what_did_not_work_is_invalid(metered: Project) -> None:
    """A model on the processor next to an idle card whose counter rises all the same."""
    metered.script("f16", takes_s={"generate": RUN_S}, tg_ns_per_token=10**7)
    metered.claims(HEAD, [CLAIM])
    metered.run().stdout.fnmatch_lines(
        ["*rail-coverage: the model ran on the processor, and what is measured is gpu*"]
    )


def test_a_power_that_contradicts_the_counter_is_invalid(
    metered: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counter and power are read apart, and must belong together."""
    meter = Meter((replayed_counter(read_w=lambda: WATTS / 2),))
    monkeypatch.setattr("pytest_asperf.measure.metered.open_meters", lambda: meter)
    monkeypatch.setattr("pytest_asperf.hardware.meters.meter._AVERAGED_S", 0.0)
    metered.claims(HEAD, [CLAIM])
    metered.run().stdout.fnmatch_lines(["test_it.py V *", "*counter-against-power: GPU 0*"])


def test_without_a_counter_it_is_skipped_with_the_reason(
    metered: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A skip names the remedy; a gate, which needs a verdict, raises."""
    monkeypatch.setattr("pytest_asperf.measure.metered.open_meters", no_counter)
    in_pairs = 'assert energy("tg8") < energy("tg8", model="fake:Q8_0")'
    metered.claims(HEAD, [CLAIM, in_pairs])
    gate = 'def test_gate(gate):\n    assert_no_regression(gate("jtg8"))\n'
    metered.test(gate, name="test_gate")
    result = metered.run("-rs", "--asperf-candidate=current")
    result.assert_outcomes(skipped=2, failed=1)
    result.stdout.fnmatch_lines(["*no energy counter here: gpu: no driver; buy one*"])


def test_two_models_in_power_and_energy(metered: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """At equal power, one that is far slower needs far more energy."""
    # So much longer that what a busy machine adds to each run does not hide it.
    metered.script(
        "q8", takes_s={"generate": 16 * RUN_S}, tg_ns_per_token=10**8, layers_offloaded=1
    )
    alive = iter(range(10**6))
    ane = Counter("ANE (IOReport)", "ane", lambda: float(next(alive) > 10**5))
    meter = Meter((replayed_counter(), ane))
    monkeypatch.setattr("pytest_asperf.measure.metered.open_meters", lambda: meter)
    monkeypatch.setattr("pytest_asperf.hardware.meters.meter._PATIENCE_S", 0.2)
    claims = {
        'assert q8.rail("gpu") / f16.rail("gpu") > 1.3': ".",
        "assert 0.7 < q8.power / f16.power < 1.4": ".",
        'assert 200 < f16.rail("gpu").power < "400 W"': ".",
        "assert q8.power - f16.power < '200 W'": ".",
        "assert q8 / f16 > 1.3": ".",
        'assert q8.rail("ane").power > 1': "F",
    }
    metered.claims(HEAD + 'q8, f16 = energy("tg8", model="fake:Q8_0"), energy("tg8"); ', claims)
    result = metered.run("--asperf-report=json:report.json", "--asperf-max-pairs=40")
    result.stdout.fnmatch_lines(
        [
            f"test_it.py {''.join(claims.values())} *",
            "*ane has no figure: ANE (IOReport) did not move: idle, or dead*",
        ]
    )
    rows = json.loads((metered.path / "report.json").read_text())["rows"]
    (pairs,) = (row["compared"] for row in rows if row.get("compared"))
    assert pairs["unit"] == "J/token"
    assert min(pairs["medians"]) > 0.1


def test_a_whole_request_has_a_power(metered: Project) -> None:
    """The window has prompts and generations in turn, and gives no J per token."""
    work = {"takes_s": {"generate": RUN_S, "prompt": RUN_S, "first_token": RUN_S}}
    metered.script("f16", tg_ns_per_token=10**7, layers_offloaded=1, **work)
    metered.claims(
        HEAD,
        {
            'assert energy("pp8+tg8").power >= "100 W"': ".",
            'assert energy("pp8+tg8").rail("gpu").power <= "30 W"': "F",
        },
    )
    result = metered.run("-v")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*power of pp8+tg8 fake:F16*"])


def test_what_is_no_energy_is_an_error(metered: Project) -> None:
    """An energy is of one phase, in J per token, and of a rail that exists."""
    messages = {
        'assert energy("ttft8") < 1': "energy: ttft8 is not one phase",
        'assert energy("pp8+tg8") < 1': "energy: pp8+tg8 is not one phase",
        'assert energy("pp8+tg8") < energy("pp8+tg9")': "energy: pp8+tg9 is not one phase",
        'assert energy("tg8") <= "3 W"': "J/token cannot be compared with W",
        'assert energy("tg8").power <= "3 J/token"': "W cannot be compared with J/token",
        'assert energy("tg8") < energy("tg8").power': "these are in J/token and W",
        'assert energy("tg8").rail("gqu") <= 1': "unknown rail 'gqu'; did you mean 'gpu'?",
        'assert energy("tg8").ran_on("NPU")': "unknown device 'NPU'",
    }
    metered.rejects(HEAD, messages)


def test_a_gate_on_energy(metered: Project) -> None:
    """Equal builds pass, and one that is far slower at equal power is found."""
    metered.test('def test_gate(gate):\n    assert_no_regression(gate("jtg8"), tolerance="40%")\n')
    result = metered.run("--asperf-candidate=current", "--asperf-report=json:report.json")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["✓ *jtg8 fake:F16* J/token, *≤ +40 %*"])
    report = json.loads((metered.path / "report.json").read_text())
    compared = report["rows"][0]["compared"]
    assert compared["unit"] == "J/token"
    assert min(*compared["pairs"][0]["baseline"], *compared["medians"]) > 0
    result = metered.run("--asperf-candidate=slow_by=1.5", "-v")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *GPU 0 (NVML): an update every *",
            "E *gpu measured, and cpu not: this is not the energy of the machine",
            "E *the candidate is using more energy*",
            "✗  gate jtg8 fake:F16 * J/token, +* more energy [[]*",
        ]
    )


def test_energy_after_requests(metered: Project) -> None:
    """The requests come before the first window, and none comes between windows."""
    log = metered.path / "operations"
    script = {"takes_s": {"generate": RUN_S}, "tg_ns_per_token": 10**7, "layers_offloaded": 1}
    metered.script("f16", log=str(log), **script)
    metered.claims(HEAD, ['assert energy("tg8@after3") <= "100 J/token"'])
    metered.run().assert_outcomes(passed=1)
    done = [line.split()[0] for line in log.read_text().splitlines()]
    requests = ["prompt", *["prompt", "generate"] * 2]
    assert done[2:] == [*[*requests, "generate"] * 2, *["generate"] * (len(done) - 14)]
