"""MLX models that several processes share: they compute as one does, or report the fault."""

import os
import signal
from pathlib import Path

import pytest

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.engines import level_recipe
from pytest_asperf.engine_process import EngineBuild, EngineRefusedError, Worker, WorkerPair
from pytest_asperf.modelfiles.hub_cache import shipped_models

TARGET, DRAFT, _ = (spec.hf_folder or Path() for spec in shipped_models())
ALONE, SHARED = EngineSettings(), EngineSettings(processes=2)
TOKENS = list(range(5, 29))


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def test_two_processes_compute_what_one_does(mlx: EngineBuild, tmp_path: Path) -> None:
    """Scores and tokens are those of one process; each process reports its part of the model."""
    wide = tmp_path / "F32"  # half precision rounds the sums that they exchange
    with Worker(mlx, call_timeout_s=60) as worker:
        worker.quantize(TARGET, wide, level_recipe("F32", "mlx"))
        one = worker.load("one", wide, ALONE)
        two = worker.load("two", wide, SHARED)
        assert (one.group, two.n_params) == (None, one.n_params)
        assert two.group == "2 processes by ring, of 15.0 and 15.0 MiB"
        nll = [worker.score([name], TOKENS, 8)[name][0].nll for name in ("one", "two")]
        assert nll[1] == pytest.approx(nll[0], abs=1e-3)
        output = []
        for name in ("one", "two"):
            pair = WorkerPair(worker, f"pair {name}", name, None)
            pair.open(n_ctx=64, k=4, rollback="auto")
            output.append(pair.generate([5, 9, 17], n_new=8, k=4, temperature=0.0, seed=1).tokens)
        assert output[0] == output[1]
        with pytest.raises(EngineRefusedError, match=r"group.*3 processes.* has 2"):
            worker.load("three", wide, EngineSettings(processes=3))
        with pytest.raises(EngineRefusedError, match="1 heads of keys and values"):
            worker.load("draft", DRAFT, SHARED)
        (other,) = _children(worker.pid)
        os.kill(other, signal.SIGKILL)
        with pytest.raises(EngineRefusedError, match="peer was lost"):
            worker.generate("two", TOKENS, 8)


def test_a_group_of_one_is_refused() -> None:
    """The result of MLX if it finds no other process, without a word."""
    mx = pytest.importorskip("mlx.core")
    from pytest_asperf.worker.engine import RefusalError
    from pytest_asperf.worker.mlx_group import require_group

    with pytest.raises(RefusalError, match="2 processes were requested, and MLX's group has 1"):
        require_group(mx.distributed.init(), 2)
