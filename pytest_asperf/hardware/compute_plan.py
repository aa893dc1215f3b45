"""Core ML's compute plan of a model: on which device each operation is planned, and its cost.

A plan is Core ML's forecast, and not its run record.
"""

import json
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pytest_asperf.analysis.guards import GuardFinding, remote_errors
from pytest_asperf.analysis.stats.estimate import SHARE, Estimate
from pytest_asperf.errors import ElsewhereError, HardwareError, ModelError, listing, printable

Device = Literal["ANE", "CPU", "GPU"]

#: By coremltools' classes.
_DEVICES: Final[dict[str, Device]] = {
    "MLNeuralEngineComputeDevice": "ANE",
    "MLCPUComputeDevice": "CPU",
    "MLGPUComputeDevice": "GPU",
}
DEVICES: Final = tuple(_DEVICES.values())
#: The devices that Core ML may use, by coremltools' names.
UNITS: Final = ("ALL", "CPU_AND_GPU", "CPU_AND_NE", "CPU_ONLY")
SUFFIXES: Final = (".mlpackage", ".mlmodel", ".mlmodelc")
_PROGRAM: Final = Path(__file__).with_name("compute_plan_program.py")
#: Weights are rounded: of less than this nothing is missing.
_ROUNDING: Final = 0.001
#: Compiling a prefill of 512 tokens for the Neural Engine took 97 minutes on an M2 Ultra.
_LONGEST_S: Final = 2 * 3600.0


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation with its share of the estimated cost; None if it is not in the plan."""

    operator: str
    device: Device | None
    weight: float | None


@dataclass(frozen=True, slots=True)
class ComputePlan:
    """The plan of one function of a model."""

    operations: tuple[Operation, ...]  #: without constants, of which nothing is planned
    made: str  #: with which version of coremltools, for which units
    #: the compile log's lines about devices that rejected the model
    guard_findings: tuple[GuardFinding, ...] = ()

    def on(self, device: Device) -> list[Operation]:
        """The operations that are planned on a device."""
        return [operation for operation in self.operations if operation.device == device]

    def share(self, device: Device) -> Estimate:
        """The share of the estimated cost that is planned on a device.

        Cost that the plan gives to no device may be anywhere: the bounds are none and all of it.
        """
        cost, known = _cost(self.on(device)), sum(_cost(self.on(one)) for one in DEVICES)
        whole = max(1.0, _cost(self.operations))
        lost, n = whole - known, len(self.operations)
        low = point = high = cost / (known or 1.0)
        method = "exact"
        if lost > _ROUNDING:
            low, high = cost / whole, (cost + lost) / whole
            method = "bounds: cost that the plan gives to no device may be on any"
        return Estimate(point, low, high, n, method=method, unit=SHARE, confidence=1.0)

    def elsewhere(self, device: Device) -> list[tuple[str, Device | None, float]]:
        """Operators that are not planned on a device, with theirs and its cost, highest first."""
        costs: dict[tuple[str, Device | None], float] = {}
        for operation in self.operations:
            if operation.device != device:
                place = operation.operator, operation.device
                costs[place] = costs.get(place, 0.0) + (operation.weight or 0.0)
        return sorted(((*place, cost) for place, cost in costs.items()), key=lambda row: -row[2])


def _cost(operations: list[Operation] | tuple[Operation, ...]) -> float:
    return sum(operation.weight or 0.0 for operation in operations)


def read_plan(path: Path, *, units: str = "ALL", function: str | None = None) -> ComputePlan:
    """The plan that Core ML makes of a model on this Mac, in a process of its own.

    Args:
        path: a .mlpackage, a .mlmodel or a compiled .mlmodelc.
        units: Core ML's compute units.
        function: of a model with several; `main`, or the only one, by default.

    Raises:
        ModelError: there is no such model, or it has no plan by operation.
        ElsewhereError: this is no Mac.
        HardwareError: Core ML gave no plan.
    """
    if path.suffix not in SUFFIXES or not path.exists():
        raise ModelError(
            f"{printable(path)} is no Core ML model",
            remedy=f"name a file or folder that exists and ends in {', '.join(SUFFIXES)}",
        )
    if platform.system() != "Darwin":
        raise ElsewhereError(
            f"Core ML plans nothing on {platform.system()}",
            why="where operations run is decided by the Mac that runs them",
            remedy="run this on the Mac that the assertion is about",
        )
    command = [sys.executable, "-P", str(_PROGRAM), str(path), units]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_LONGEST_S,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise _no_plan(path, f"not within {_LONGEST_S / 3600:g} h", "") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise _no_plan(path, lines[-1], done.stderr[-4000:])
    return parse_plan(done.stdout, done.stderr, where=str(path), function=function)


def _no_plan(path: Path, reason: str, log: str) -> HardwareError:
    return HardwareError(
        f"Core ML made no plan of {printable(path)}: {printable(reason, 300)}",
        why="its device would be unknown",
        remedy="pip install 'pytest-asperf[coreml]' if coremltools is missing (macOS 14.4 or "
        "newer), or allow CPU_ONLY: the Neural Engine's compiler may end the process",
        detail=log,
    )


def parse_plan(text: str, log: str = "", *, where: str, function: str | None = None) -> ComputePlan:
    """The plan that the program printed last, with the findings on its log."""
    try:
        answer = json.loads(text.strip().rpartition("\n")[2])
        made = f"coremltools {answer['coremltools']}, units {answer['compute_units']}"
        functions = {name: _operations(rows) for name, rows in answer["functions"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HardwareError(
            f"{printable(where)}: the plan cannot be read: {printable(error)}",
            why="a plan that is read wrongly would place work where it does not run",
            remedy="report it with the version of coremltools",
        ) from error
    chosen = function or ("main" if len(functions) != 1 else next(iter(functions)))
    if chosen not in functions:
        raise ModelError(
            f"{printable(where)} has no function {printable(chosen, 80)} with costs",
            why="Core ML estimates costs of the operations of an ML program's functions",
            remedy=f"name one of {listing(map(printable, functions))}"
            if functions
            else "convert it with minimum_deployment_target=coremltools.target.iOS15 or newer",
        )
    finding = remote_errors(log.splitlines())
    return ComputePlan(functions[chosen], printable(made), (finding,) if finding else ())


def _operations(rows: list[dict[str, Any]]) -> tuple[Operation, ...]:
    """The operations with a device or a cost; ValueError for a weight that is none."""
    found = []
    for row in rows:
        device, weight = row["preferred"], row["weight"]
        if weight is not None and not 0 <= float(weight) <= 1:
            raise ValueError(f"a weight of {weight}")
        if device or weight:
            found.append(Operation(printable(row["operator"], 80), _DEVICES.get(device), weight))
    return tuple(found)
