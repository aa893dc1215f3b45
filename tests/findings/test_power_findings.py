import pytest

from pytest_asperf.hardware.meters.meter import Counter, Meter
from tests.plugin.conftest import Project
from tests.power_samples import RUN_S, no_counter, replayed_counter

POWER = ("--pyargs", "pytest_asperf.findings.test_power", "--asperf-findings=all", "-rs")


def test_the_findings_on_power_say_what_is_missing(
    metered: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the program without a name, then the counter; with both, each has a verdict."""
    alone, others = "--asperf-role=mlx_alone=fake:F16", ("ane_lm", "coreml_hybrid")
    for given, lacking in (([], ("mlx_alone", "coreml_hybrid")), ([alone], others)):
        result = metered.run(*POWER, *given)
        result.assert_outcomes(skipped=8)
        reasons = [f"SKIPPED*no model is the {r} *--asperf-role {r}=MODEL*" for r in lacking]
        result.stdout.fnmatch_lines_random(reasons)
    work = {"takes_s": {"generate": RUN_S, "prompt": RUN_S}, "layers_offloaded": 1}
    for name in ("f16", "q8"):
        metered.script(name, pp_ns_per_token=10**6, tg_ns_per_token=10**7, **work)
    given = [alone, *(f"--asperf-role={role}=fake:Q8_0" for role in others)]
    given.append("--asperf-max-pairs=2")  # no more would decide between equal models
    monkeypatch.setattr("pytest_asperf.hardware.meters.meter._PATIENCE_S", 0.2)
    ane = Counter("ANE (IOReport)", "ane", lambda: 17.0)
    meter = Meter((replayed_counter(), ane))
    monkeypatch.setattr("pytest_asperf.measure.metered.open_meters", lambda: meter)
    result = metered.run(*POWER, *given)
    verdicts = [
        "   * (power-282)",
        "✗  out of scope  FAIL * at least 200x *",
        "✗  published * 282 x",
    ]
    unmeasured = "SKIPPED*ane has no figure: ANE (IOReport) did not move: idle, or dead"
    result.stdout.fnmatch_lines([*verdicts, unmeasured])
    monkeypatch.setattr("pytest_asperf.measure.metered.open_meters", no_counter)
    result = metered.run(*POWER, *given)
    result.assert_outcomes(skipped=8)
    result.stdout.fnmatch_lines(["SKIPPED*no energy counter here: gpu: no driver; buy one*"])


def test_a_judged_finding_is_no_session_without_a_measurement(project: Project) -> None:
    """A decision by published figures is a result on any machine."""
    project.test(
        '@pytest.mark.finding("power-282")\ndef test_it(throughput):\n    pass\n'
        "def test_too(throughput):\n    pytest.skip()\n"
    )
    result = project.run("--asperf-hardware=m2ultra")
    assert "nothing was measured:" not in result.stdout.str()
