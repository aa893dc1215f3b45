"""A failing assertion on each quantity, as a terminal of 80 columns shows it."""

import re
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.conftest import measure_bandwidth_quickly
from tests.plugin.conftest import Project
from tests.plugin.test_pipelines import declare
from tests.power_samples import RUN_S

WRITER = Path(__file__).parents[2] / "docs" / "reference.py"
#: By type and name of a quantity, a comparison that fails, and the limit that is shown.
SCRIPTED = {
    "Throughput.__call__": ('throughput("tg128") >= "40000 tok/s"', "≥ 40,000"),
    "Rate.cv": ('throughput("tg512").cv > "90%"', "> 90 %"),
    "Rate.bandwidth_utilization": ('throughput("tg8").bandwidth_utilization > "90%"', "> 90 %"),
    "Latency.__call__": ('latency("ttft512") <= "1 ms"', "≤ 1"),
    "Time.p95": ('latency("itl128").p95 <= "0.1 ms"', "≤ 0.1"),
    "Time.p99": ('latency("itl512").p99 <= "0.1 ms"', "≤ 0.1"),
    "Time.percentile": ('latency("itl512").percentile(90) <= "0.1 ms"', "≤ 0.1"),
    "Time.cv": ('latency("ttft512").cv > "90%"', "> 90 %"),
    "Time.ttft": ('latency("pp512+tg128").ttft <= "1 ms"', "≤ 1"),
    "Time.tpot": ('latency("pp512+tg128").tpot <= "0.1 ms"', "≤ 0.1"),
    "Time.prefill_share": ('latency("pp512+tg128").prefill_share >= "90%"', "≥ 90 %"),
    "Time.effective_rate": ('latency("pp512+tg128").effective_rate >= 30000', "≥ 30,000"),
    "Model.size": ('model.size > "1 MB"', "> 1"),
    "Model.disk": ('model.disk <= "1 kB"', "≤ 1"),
    "Model.kld": ('model.kld("logits") > "1 nats"', "> 1"),
    "OwnKld.largest": ('model.kld("logits").largest > 1', "> 1"),
    "Model.disk_of": ('model.disk_of("corpus.txt") <= "1 kB"', "≤ 1"),
    "GatedBuild.throughput": (
        'gate.candidate.throughput("tg8") / gate.baseline.throughput("tg8") >= 5',
        "≥ 5x",
    ),
    "GatedBuild.latency": (
        'gate.candidate.latency("ttft8") / gate.baseline.latency("ttft8") < 0.1',
        "< 0.1x",
    ),
}
LADDER = {
    "Quant.ppl": ('ladder["Q4_K_M"].ppl <= 1.5', "≤ 1.5"),
    "Quant.delta": ('ladder["Q4_K_M"].delta < "0.1%"', "< 0.1 %"),
    "Quant.kld": ('ladder["Q4_K_M"].kld < 0.0001', "< 0.0001"),
    "Quant.same_top": ('ladder["Q4_K_M"].same_top >= "99.9%"', "≥ 99.9 %"),
    "Quant.efficiency": ('ladder["Q4_K_M"].efficiency("tg128") >= 100', "≥ 100"),
    "Quant.size": ('ladder["Q4_K_M"].size / ladder["F16"].size <= "20%"', "≤ 20 %"),
    "Quant.throughput": (
        '5 <= ladder["Q4_K_M"].throughput("tg8") / ladder["F16"].throughput("tg8") <= 6',
        "5x to 6x",
    ),
    "Quant.latency": (
        'ladder["Q4_K_M"].latency("ttft8") - ladder["F16"].latency("ttft8") > "1 ms"',
        "> 1",
    ),
}
ENERGY = {
    "Energy.__call__": ('energy("tg8") < "5 mJ/token"', "< 0.005"),
    "EnergyFigure.rail": ('energy("tg8").rail("gpu") <= 0.001', "≤ 0.001"),
    "EnergyFigure.net": ('energy("tg8").net >= 20', "≥ 20"),
    "EnergyFigure.power": ('energy("tg8").power <= "3 W"', "≤ 3"),
    "Quant.energy": ('energy("tg8", quant="Q8_0") / energy("tg8") >= 30', "≥ 30x"),
}
PLAN = {"Model.placement": ('model.placement("ANE", "m.mlpackage") >= 0.95', "≥ 95 %")}
PIPELINES = {
    "Time.handoff": ('latency("ttft64", model="split").handoff <= "0.1 ms"', "≤ 0.1"),
    "Latency.crossover": (
        'latency.crossover("split", "slow", over="ttft100..ttft200") >= 150',
        "≥ 150",
    ),
}
LIVE = {
    "Memory.__call__": ('memory(64) <= "1 kB"', "≤ 1"),
    "AllocatedMemory.weights": ('memory(64).weights <= "1 kB"', "≤ 1"),
    "AllocatedMemory.kv": ('memory(64).kv <= "1 kB"', "≤ 1"),
    "AllocatedMemory.compute": ('memory(64).compute <= "1 kB"', "≤ 1"),
    "AllocatedMemory.peak_rss": ('memory(64).peak_rss <= "1 kB"', "≤ 1"),
    "Quant.memory": ('memory(64, quant="Q8_0") / memory(64) > 9', "> 9x"),
    "Time.peak_memory": ('latency("load").peak_memory <= "1 MB"', "≤ 1"),
}
SPECULATION = {
    "Speculation.gain": ('speculation.gain >= "900%"', "≥ 900 %"),
    "Speculation.acceptance": ('speculation.acceptance <= "1%"', "≤ 1 %"),
    "Speculation.acceptance_of": ('speculation.acceptance_of("code") <= "1%"', "≤ 1 %"),
    "Speculation.ratio": ("speculation.ratio >= 250", "≥ 250x"),
    "Speculation.verify_cost": ("speculation.verify_cost(3) <= 0.01", "≤ 0.01x"),
}
REMOTE = {
    "RemoteOverhead.change": ('speculation.overhead_on("loopback").change > "900%"', "> 900 %"),
    "RemoteOverhead.per_token": (
        'speculation.overhead_on("loopback").per_token >= "1 s"',
        "≥ 1000",
    ),
    "RemoteOverhead.per_drafted_token": (
        'speculation.overhead_on("loopback").per_drafted_token > "1 s"',
        "> 1000",
    ),
}
#: A draft has a break-even ratio only if verifying pays, as it need not for a model this small.
UNTRIED = {"Speculation.break_even"}
#: Quantities that are counted, so that they have no interval.
COUNTED = re.compile(r"Model\.|OwnKld\.|Memory\.|AllocatedMemory\.|Quant\.(size|memory)")
FIXTURES = ("throughput", "latency", "memory", "model", "gate", "ladder", "energy", "speculation")
ON_A_TERMINAL = """
def pytest_sessionstart(session):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    reporter.isatty = type(reporter.isatty)(True)
"""


def test_each_quantity_has_a_failure_here() -> None:
    """A new quantity is missing in the tables until its failure was tried."""
    tables = (SCRIPTED, LADDER, ENERGY, PLAN, PIPELINES, LIVE, SPECULATION, REMOTE)
    known = {f"{kind}.{name}" for kind, name in runpy.run_path(str(WRITER))["quantities"]()}
    assert known - {name for table in tables for name in table} == UNTRIED


def require_short_failures(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    table: Mapping[str, tuple[str, str]],
    *args: str,
    marks: str = "",
) -> None:
    """Check that each failure has at most eight lines, the figure, the limit and the remedy."""
    with (project.path / "conftest.py").open("a") as conftest:
        conftest.write(ON_A_TERMINAL)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")  # without progress, for which there is no terminal
    tests = []
    for name, (claim, _) in table.items():
        taken = [one for one in FIXTURES if re.search(rf"(?<![.\w]){one}\b", claim)]
        test = name.replace(".", "_")
        tests.append(f"{marks}def test_{test}({', '.join(taken)}):\n    assert {claim}\n")
    project.test("\n".join(tests))
    shown = project.run(*args).stdout.str()
    assert "ERRORS" not in shown
    blocks = re.split(r"^_{3,} test_(\S+) _{3,}$", shown, flags=re.MULTILINE)
    found = dict(zip(blocks[1::2], blocks[2::2], strict=True))
    for name, (_, limit) in table.items():
        block = found[name.replace(".", "_")].partition("\n===")[0].strip().splitlines()
        told = " ".join(line.removeprefix("E").strip() for line in block if line.startswith("E"))
        assert len(block) <= 7, block  # below the test's name
        assert [line for line in block[2:] if len(line) > 80 and line[0] == "E"] == []
        interval = "" if COUNTED.match(name) else r" \[-?[\d.]+, -?[\d.]+\]"
        figure = rf"FAIL +.*: .*\d.*{interval}, wanted {re.escape(limit)} +do +\S+ .*"
        assert re.match(figure, told), (name, shown)
        assert "…" not in told.partition(" do ")[0]


def test_timed_and_counted(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates, times, sizes, and the two builds of a gate."""
    measure_bandwidth_quickly(monkeypatch)
    # Each step reads more than a cache has room for.
    project.script("q8", bytes_per_token=10**9, tg_ns_per_token=[10**9, 101 * 10**7, 99 * 10**7])
    args = ("--asperf-candidate=current", "--asperf-max-cv=1000%")
    marks = '@pytest.mark.model("fake:Q8_0")\n'
    require_short_failures(project, monkeypatch, SCRIPTED, *args, marks=marks)


def test_ladder(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quality, and quantizations in pairs; one assertion is a chain."""
    marks = '@pytest.mark.quant_ladder("Q8_0", "Q4_K_M", baseline="F16")\n'
    require_short_failures(project, monkeypatch, LADDER, marks=marks)


def test_energy(metered: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Energy, power, and their ratio."""
    runs = {"takes_s": {"generate": RUN_S}, "tg_ns_per_token": 10**7, "layers_offloaded": 1}
    metered.script("q8", **runs)
    require_short_failures(metered, monkeypatch, ENERGY)


def test_plan(planned: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Core ML model's placement."""
    require_short_failures(planned, monkeypatch, PLAN)


def test_pipelines(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that only several programs have."""
    declare(project)
    require_short_failures(project, monkeypatch, PIPELINES)


def test_llama_cpp(live: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory by the engine's count, for any other load of the machine."""
    require_short_failures(live, monkeypatch, LIVE)


PAIRING = """@pytest.mark.speculative(draft="asperf-draft:Q4_0", target="asperf-draft:F16", k=2,
                         n_tokens=8, prompts="prompts.json")
"""


def test_speculation(live: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft's gain and its explanation."""
    prompts = ", ".join(f'"def area_{n}(width, height):\\n    return"' for n in range(6))
    (live.path / "prompts.json").write_text(f'{{"code": [{prompts}]}}')
    require_short_failures(live, monkeypatch, SPECULATION, "--asperf-max-pairs=8", marks=PAIRING)


def test_remote(
    live: Project, program: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A draft behind a loopback connection."""
    (live.path / "prompts.json").write_text('{"code": ["def area(width, height):"]}')
    live.config(engine="llama_tools", call_timeout_s=120, max_pairs=8)
    tools = program("ggml-rpc-server").parent
    program("llama-speculative-simple")
    marks = PAIRING.replace("Q4_0", "F16")
    require_short_failures(live, monkeypatch, REMOTE, f"--asperf-tools={tools}", marks=marks)
