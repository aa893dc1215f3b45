"""pp512 and tg128 compared with llama-bench: one repetition a round, each in a fresh process.

``--model FILE`` compares the times of a GGUF file, and of nothing else.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from installed_tools import tools_folder
from models import BUILD, SETTINGS, SLOW, level_files, shipped_target, write_random_llama
from peers import Peers
from timing import interleave, ratio, table

from pytest_asperf.builds.build_cache import ReadyBuild
from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.config.workload import Workload
from pytest_asperf.measure.experiment import Arm, MachineLease, MeasurementPlan
from pytest_asperf.measure.throughput import ThroughputExperiment
from pytest_asperf.modelfiles.hub_cache import shipped_corpus
from pytest_asperf.modelfiles.locate import LocatedModel

if TYPE_CHECKING:
    from pytest_asperf.engine_process import RawRun

#: One run of 0.1 s on a busy machine scatters by a tenth.
_ROUNDS: Final = 100
_WORKLOADS: Final = (Workload("pp", 512), Workload("tg", 128))
_TOLERANCE: Final = 0.02


def main() -> bool:
    """Print the table, and return whether the slower model's times agree with the tool's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    options = parser.parse_args()
    peers = Peers(tools_folder())
    rows, agree = [], True
    with tempfile.TemporaryDirectory() as folder:
        slow = options.model or Path(folder) / "slow.gguf"
        models = {slow.stem: slow}
        if not options.model:
            write_random_llama(slow, SLOW)
            models = {**level_files(shipped_target(), ("F16", "Q4_K_M")), "slower model": slow}
        for name, path in models.items():
            for workload in _WORKLOADS:
                sides = _times_ns(peers, path, workload, options.rounds)
                medians = [statistics.median(side) / workload.n_tokens / 1e6 for side in sides]
                compared = ratio(*sides)
                rows.append((name, workload.name, *(f"{ms:.4f}" for ms in medians), compared))
                print(*rows[-1], file=sys.stderr)
                if path == slow:
                    agree = agree and abs(compared.typical - 1) <= _TOLERANCE
    print(f"### Throughput in {options.rounds} rounds\n")
    header = ("model", "run", "ours, ms per token", "llama-bench", "time, ours / theirs")
    print(table(header, rows))
    return agree


def _times_ns(
    peers: Peers, model: Path, workload: Workload, rounds: int
) -> tuple[list[int], list[int]]:
    # Without a setting both resolve it alike; the tool gets it, so that this is certain.
    flash_attn = _time_once(model, workload).context.flash_attn
    arms = {
        "ours": lambda: _time_once(model, workload).elapsed_ns,
        "theirs": lambda: peers.throughput_ns(model, workload, flash_attn=flash_attn),
    }
    times = interleave(arms, rounds=rounds, seed=workload.n_tokens, n_cores=1)
    return times["ours"], times["theirs"]


def _time_once(model: Path, workload: Workload) -> RawRun:
    ref = ModelRef(ModelSpec("model", gguf=model, settings=SETTINGS))
    arm = Arm("model", ReadyBuild(BUILD), SETTINGS, LocatedModel(ref, model, "", 0, None))
    plan = MeasurementPlan(repetitions=1)
    lease = MachineLease(((arm,),), shipped_corpus(), plan, lambda *_: None, NotImplemented)
    with closing(lease.kept):
        result = ThroughputExperiment(workload).run(lease)[ref]
    (run,) = result.runs
    return run


if __name__ == "__main__":
    raise SystemExit(not main())
