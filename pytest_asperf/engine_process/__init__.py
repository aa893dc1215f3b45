"""The parent's end of a worker: its process, what it answers, and the types of the answers."""

from pytest_asperf.engine_process.facts import (
    ContextFacts,
    Device,
    EngineFacts,
    EngineMemory,
    LoadedFacts,
    MetalFacts,
)
from pytest_asperf.engine_process.pair import Margin, StepCosts, WorkerPair
from pytest_asperf.engine_process.process import (
    EngineBuild,
    EngineRefusedError,
    WorkerError,
    engine_priority,
    usable_cores,
)
from pytest_asperf.engine_process.worker import (
    GroupedRow,
    RawRun,
    RunRemains,
    ToolSpeculation,
    Worker,
)

__all__ = [
    "ContextFacts",
    "Device",
    "EngineBuild",
    "EngineFacts",
    "EngineMemory",
    "EngineRefusedError",
    "GroupedRow",
    "LoadedFacts",
    "Margin",
    "MetalFacts",
    "RawRun",
    "RunRemains",
    "StepCosts",
    "ToolSpeculation",
    "Worker",
    "WorkerError",
    "WorkerPair",
    "engine_priority",
    "usable_cores",
]
