"""Core ML's compute plans, in the shape that the program prints them, and the program itself."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_asperf.errors import AsperfError, ElsewhereError, HardwareError, ModelError
from pytest_asperf.hardware import compute_plan
from pytest_asperf.hardware.compute_plan import parse_plan, read_plan
from pytest_asperf.hardware.compute_plan_program import plan_of

RECORDED = Path(__file__).parents[2] / "fixtures" / "coreml"
#: coremltools as far as it is used, with one model: a loop with an operation inside.
STAND_IN = """
import enum
from types import SimpleNamespace as N
__version__ = "9.0"
ComputeUnit = enum.Enum("ComputeUnit", "ALL CPU_AND_NE CPU_AND_GPU CPU_ONLY")
class MLNeuralEngineComputeDevice: pass
def op(name, *blocks): return N(operator_name=name, outputs=[N(name=name)], blocks=list(blocks))
inner = N(operations=[op("ios17.conv")])
main = N(block=N(operations=[op("const"), op("while_loop", inner)]))
class MLComputePlan:
    model_structure = N(program=N(functions={"main": main}))
    @classmethod
    def load_from_path(cls, path, compute_units):
        import sys
        assert path.endswith(".mlmodelc") and compute_units is ComputeUnit.CPU_AND_NE
        print("compiling"); print("E5RT: ANECCompile() FAILED: -14", file=sys.stderr)
        return cls()
    def get_compute_device_usage_for_mlprogram_operation(self, operation):
        device = MLNeuralEngineComputeDevice()
        known = N(preferred_compute_device=device, supported_compute_devices=[device])
        return known if operation.operator_name == "ios17.conv" else None
    def get_estimated_cost_for_mlprogram_operation(self, operation):
        return N(weight=1.0) if operation.operator_name == "ios17.conv" else None
"""


def _recorded(name: str) -> str:
    return (RECORDED / f"{name}.json").read_text().replace("\n", "")  # one line, as printed


def test_shares_are_weighted_by_cost() -> None:
    """32 of 35 operations are 93.8 % of the cost; constants have no place."""
    plan = parse_plan(_recorded("prefill_on_ane"), where="m")
    assert [len(plan.on(device)) for device in ("ANE", "CPU", "GPU")] == [32, 3, 0]
    assert plan.share("ANE").text() == "93.84 %"
    assert plan.share("GPU").point == 0.0
    assert plan.elsewhere("ANE")[0] == ("ios17.linear", "CPU", 0.0497)
    assert plan.made == "coremltools 9.0, units ALL"


def test_what_a_device_could_run_is_not_what_it_will() -> None:
    """All operations support the Neural Engine and prefer the processor."""
    plan = parse_plan(_recorded("matmul_on_cpu"), where="m")
    assert (plan.share("ANE").high, plan.share("CPU").low) == (0.0, 1.0)


def test_cost_without_a_device_leaves_the_share_open() -> None:
    """Missing weights, and unknown devices, widen the bounds of each share."""
    plan = parse_plan(_recorded("two_functions"), where="m", function="decode")
    share = plan.share("ANE")
    assert [share.low, share.high] == pytest.approx([0.5, 0.7])
    assert share.point == pytest.approx(0.5 / 0.8)
    assert plan.share("CPU").high == pytest.approx(0.2)
    assert ("ios18.slice_update", None, 0.08) in plan.elsewhere("ANE")


@pytest.mark.parametrize(
    ("name", "function", "message"),
    [
        ("two_functions", None, "m has no function main with costs"),
        ("two_functions", "decod", "m has no function decod with costs"),
        ("no_program", None, "m has no function main with costs"),
    ],
)
def test_a_model_without_that_plan_is_refused(
    name: str, function: str | None, message: str
) -> None:
    """The functions that there are are named; a neural network has no costs."""
    with pytest.raises(ModelError) as error:
        parse_plan(_recorded(name), where="m", function=function)
    assert error.value.what == message
    assert ("decode" in error.value.remedy) == (name == "two_functions")


_ROWS: list[object] = [
    [{}],
    [{"operator": "a", "preferred": None, "weight": 2}],
    [{"operator": "a", "preferred": None, "weight": "x"}],
    3,
]


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"functions": {}}']
    + [
        json.dumps({"coremltools": "9", "compute_units": "ALL", "functions": {"main": rows}})
        for rows in _ROWS
    ],
)
def test_another_text_is_no_plan(text: str) -> None:
    """Nothing is guessed from a plan that cannot be read."""
    with pytest.raises(HardwareError, match="the plan cannot be read"):
        parse_plan(text, where="m")


def test_elsewhere_than_on_a_mac_nothing_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that is none is an error everywhere; a model is planned by a Mac only."""
    monkeypatch.setattr("platform.system", lambda: "Linux")
    with pytest.raises(ModelError, match="is no Core ML model"):
        read_plan(tmp_path / "m.mlpackage")
    (tmp_path / "m.gguf").touch()
    with pytest.raises(ModelError, match=r"\.mlpackage"):
        read_plan(tmp_path / "m.gguf")
    (tmp_path / "m.mlpackage").mkdir()
    with pytest.raises(ElsewhereError, match="plans nothing on Linux"):
        read_plan(tmp_path / "m.mlpackage")


def test_the_program_prints_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, with coremltools' calls; an error in the log is INVALID."""
    model = tmp_path / "m.mlmodelc"
    model.mkdir()
    package = tmp_path / "coremltools"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text(STAND_IN)
    (package / "models" / "__init__.py").touch()
    (package / "models" / "compute_plan.py").write_text("from coremltools import MLComputePlan")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    plan = read_plan(model, units="CPU_AND_NE")
    assert plan.share("ANE").text() == "100.0 %"
    assert len(plan.on("ANE")) == 1
    (finding,) = plan.guard_findings
    assert (finding.guard, "ANECCompile" in finding.found) == ("path-mismatch", True)
    (package / "__init__.py").write_text("import os; os.kill(os.getpid(), 9)")
    with pytest.raises(HardwareError, match="exit status -9"):
        read_plan(model)


def test_a_compiler_that_hangs_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling has a limit of its own."""
    (tmp_path / "m.mlpackage").mkdir()
    monkeypatch.setattr("platform.system", lambda: "Darwin")

    def hang(*args: Any, timeout: float, **_: Any) -> None:
        raise subprocess.TimeoutExpired(args[0], timeout)

    monkeypatch.setattr("subprocess.run", hang)
    with pytest.raises(HardwareError, match="not within 2 h"):
        read_plan(tmp_path / "m.mlpackage")


def test_a_package_is_compiled_first() -> None:
    """Core ML plans compiled models; the compiled copy is removed again."""
    seen: list[tuple[str, str]] = []

    def load_from_path(path: str, compute_units: str) -> SimpleNamespace:
        seen.append((path, compute_units))
        return SimpleNamespace(model_structure=SimpleNamespace(program=None))

    def compile_model(path: str, to: str) -> str:
        seen.append((path, to))
        return to

    tools = SimpleNamespace(
        __version__="9.0",
        ComputeUnit={"ALL": "all"},
        models=SimpleNamespace(
            utils=SimpleNamespace(compile_model=compile_model),
            compute_plan=SimpleNamespace(
                MLComputePlan=SimpleNamespace(load_from_path=load_from_path)
            ),
        ),
    )
    answer = plan_of(tools, "m.mlpackage", "ALL")
    assert answer == {"coremltools": "9.0", "compute_units": "ALL", "functions": {}}
    (source, compiled), (planned, units) = seen
    assert (source, planned, units) == ("m.mlpackage", compiled, "all")
    assert not Path(compiled).parent.exists()


def test_coremltools_has_what_is_asked_of_it() -> None:
    """The names that the program uses are those of the installed coremltools."""
    plan = pytest.importorskip("coremltools.models.compute_plan", reason="no coremltools")
    operation = plan.MLModelStructureProgramOperation({}, "ios17.conv", [], [], None)
    assert (operation.operator_name, operation.outputs, operation.blocks) == ("ios17.conv", [], [])
    assert {"preferred_compute_device", "supported_compute_devices"} == set(
        plan.MLComputePlanDeviceUsage.__dataclass_fields__
    )
    assert set(plan.MLComputePlanCost.__dataclass_fields__) == {"weight"}
    tools = sys.modules["coremltools"]
    assert {unit.name for unit in tools.ComputeUnit} == set(compute_plan.UNITS)
    devices = pytest.importorskip("coremltools.models.compute_device")
    assert all(hasattr(devices, str(name)) for name in compute_plan._DEVICES)
    if sys.platform != "darwin":
        with pytest.raises((ValueError, AsperfError)):
            plan_of(tools, "m.mlmodelc", "ALL")
