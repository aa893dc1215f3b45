"""Prints Core ML's compute plan of a model as JSON: `python compute_plan_program.py FILE UNITS`.

A program of its own, because Core ML logs to stderr and may kill the process in which the Neural
Engine's compiler fails.
"""

import json
import sys
import tempfile
from importlib import import_module
from typing import Any


def operations_of(block: Any) -> list[Any]:
    """The operations of a block; of one with blocks of its own, such as a loop, those inside."""
    found = []
    for operation in block.operations:
        inner = [one for part in operation.blocks for one in operations_of(part)]
        found += inner or [operation]
    return found


def described(plan: Any, operation: Any) -> dict[str, Any]:
    """The plan's entry for one operation; None if it has none."""
    usage = plan.get_compute_device_usage_for_mlprogram_operation(operation)
    cost = plan.get_estimated_cost_for_mlprogram_operation(operation)
    return {
        "operator": operation.operator_name,
        "outputs": [output.name for output in operation.outputs],
        "preferred": usage and type(usage.preferred_compute_device).__name__,
        "supported": [type(d).__name__ for d in usage.supported_compute_devices] if usage else [],
        "weight": cost and cost.weight,
    }


def plan_of(coremltools: Any, path: str, units: str) -> dict[str, Any]:
    """The plan of a model, by function, compiled first if it is not."""
    with tempfile.TemporaryDirectory() as folder:
        if not path.rstrip("/").endswith(".mlmodelc"):
            compiled = f"{folder}/model.mlmodelc"
            path = coremltools.models.utils.compile_model(path, compiled)
        kind = coremltools.models.compute_plan.MLComputePlan
        plan = kind.load_from_path(path, compute_units=coremltools.ComputeUnit[units])
        program = plan.model_structure.program
        functions = program.functions if program else {}
        return {
            "coremltools": coremltools.__version__,
            "compute_units": units,
            "functions": {
                name: [described(plan, operation) for operation in operations_of(function.block)]
                for name, function in functions.items()
            },
        }


def main() -> None:
    """Print the plan of the model that the command line names."""
    import_module("coremltools.models.compute_plan")
    plan = plan_of(sys.modules["coremltools"], *sys.argv[1:3])
    print(json.dumps(plan))  # noqa: T201  # what it is for


if __name__ == "__main__":
    main()
