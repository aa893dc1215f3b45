"""The parent's end of a worker: its process, its answers, and their types."""

from pytest_asperf.engine_process.cores import (
    core_times_ns as core_times_ns,
    n_usable_cores as n_usable_cores,
    usable_cores as usable_cores,
)
from pytest_asperf.engine_process.facts import (
    ContextFacts as ContextFacts,
    Device as Device,
    EngineFacts as EngineFacts,
    EngineMemory as EngineMemory,
    LoadedFacts as LoadedFacts,
    MetalFacts as MetalFacts,
)
from pytest_asperf.engine_process.pair import (
    Margin as Margin,
    StepCosts as StepCosts,
    WorkerPair as WorkerPair,
)
from pytest_asperf.engine_process.process import (
    EngineBuild as EngineBuild,
    EngineRefusedError as EngineRefusedError,
    remedy_of as remedy_of,
    WorkerError as WorkerError,
    engine_priority as engine_priority,
)
from pytest_asperf.engine_process.worker import (
    GroupedRow as GroupedRow,
    RawRun as RawRun,
    RunRemains as RunRemains,
    ToolSpeculation as ToolSpeculation,
    Worker as Worker,
)
