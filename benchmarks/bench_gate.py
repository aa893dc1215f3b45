"""The default gate of equal builds, of equal servers, and on candidates slowed by a known share.

``--servers N`` gates each kind of server with itself at one and at four users, N gates in all and
nothing else; ``--tools`` names the folder of llama-server. ``--default-gates N`` runs ``asperf gate
current current`` N times, next to as many busy loops as `--beside` sets; ``--each N`` gates the
shipped target N times with each slowdown at each tolerance, in random order. On a busy machine a
candidate is slower than its share, as load delays a step that computes longer by more.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from models import BUILD, shipped_target
from timing import table

from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.config.build_sources import Interpreter
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.progress import Notify
from pytest_asperf.config.spec import Build, ModelRef, ModelSpec
from pytest_asperf.config.workload import parse_workload
from pytest_asperf.hardware.machine_lock import machine_lock_path
from pytest_asperf.measure.ab_speed import Budget, SpeedExperiment
from pytest_asperf.measure.experiment import MeasurementPlan
from pytest_asperf.measure.runner import MeasurementRunner
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.hub_cache import shipped_corpus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_asperf.measure.ab_speed import WorkloadPairs

#: Shares by which the candidate is slowed, by tolerance.
_SLOWED: Final = {
    0.03: (0.0, 0.03, 0.05, 0.10),
    0.05: (0.0, 0.03, 0.05, 0.10),
    0.40: (0.28, 0.45),
}
#: A candidate that is slower than the tolerance by so much is to FAIL.
_FAR: Final = 0.05
_MAX_SECONDS: Final = 60.0
#: Share of gates that may be wrong here: the promise is 5 %, and twenty gates show no less than
#: twice that.
_MOST_WRONG: Final = 0.10
#: Default gates of equal builds that are to end with 0.
_LEAST_PASSED: Final = 0.9
#: By kind of server: its model, and its checks in turn. Without a GPU MLX has no fast kernels.
_SERVED: Final = {
    "llama_server": ("asperf-target:Q4_K_M", ("ttft64,tg32@c4", "tg32,ttft64@c4")),
    "llama_cpp_server": ("asperf-target:Q4_K_M", ("ttft64,tg32@c4", "tg32,ttft64@c4")),
    "mlx_server": ("asperf-draft:F16", ("ttft32,tg16@c4", "tg16,ttft32@c4")),
}
_SERVER_SECONDS: Final = 30
_SERVER_TOLERANCE: Final = "10%"


class _Silent(Notify):
    """Ignores everything but waits: a benchmark is not watched."""

    def wait(self, reason: str) -> None:
        """Print the wait: it is not measured, but it costs time."""
        print(f"waiting: {reason}", file=sys.stderr)


@dataclass(frozen=True, slots=True)
class _Case:
    """A candidate and its accepted slowdown."""

    slow_by: float
    tolerance: float


def main() -> bool:
    """Print the tables, and return True if the promised rates are kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--default-gates", type=int, default=10, help="default gates to run")
    parser.add_argument("--beside", type=int, default=0, help="busy loops beside default gates")
    parser.add_argument("--nice", default="-5", help="of the engines in default gates")
    parser.add_argument("--each", type=int, default=20, help="live gates of each case")
    parser.add_argument("--seed", type=int, default=0, help="of the first live gate")
    parser.add_argument("--servers", type=int, default=0, help="gates of equal servers to run")
    parser.add_argument("--tools", type=Path, help="folder of llama.cpp's binaries, for these")
    options = parser.parse_args()
    if options.servers:
        return _server_gates(options.servers, options.tools, options.seed)
    with _busy_loops(options.beside):
        passed = _default_gates(options.default_gates, options.nice)
    return passed & _live_gates(options.each, options.seed)


@contextmanager
def _busy_loops(n: int) -> Iterator[None]:
    """Keep cores busy, by processes that have nothing to do with this one."""
    command = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(command, start_new_session=True) for _ in range(n)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _default_gates(n_gates: int, nice: str) -> bool:
    """Run the default gate of equal builds."""
    rows = []
    with suppress(KeyboardInterrupt):  # the table is of the gates that are finished
        for number in range(1, n_gates + 1):
            load = os.getloadavg()[0]
            code, claims, seconds = _gate("current", f"--set=nice={nice}")
            counts = Counter(claim["outcome"] for claim in claims)
            verdicts = ", ".join(f"{n} {word}" for word, n in counts.most_common())
            undecided = ", ".join(c["test"] for c in claims if c["outcome"] != Outcome.PASS)
            rows.append((str(code), f"{seconds:.0f}", f"{load:.1f}", verdicts, undecided))
            print(f"default gate {number}: {', '.join(rows[-1])}", file=sys.stderr)
    print(f"### {len(rows)} default gates of equal builds\n")
    print(table(("exit code", "seconds", "load before", "verdicts", "not PASS"), rows))
    return sum(row[0] == "0" for row in rows) >= _LEAST_PASSED * len(rows)


def _server_gates(n_gates: int, tools: Path | None, seed: int) -> bool:
    """Gate servers with themselves, in rounds of random order, and count the checks' verdicts."""
    kinds = [kind for kind in _SERVED if tools or kind != "llama_server"]
    draw = random.Random(seed)  # noqa: S311  # repeatable, not unguessable
    order = [kind for _ in range(n_gates) for kind in draw.sample(kinds, len(kinds))][:n_gates]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    with suppress(KeyboardInterrupt):
        for number, kind in enumerate(order, 1):
            build = str(tools.resolve()) if tools and kind == "llama_server" else "current"
            model, workloads = _SERVED[kind]
            options = (
                *("--engine", kind, "--model", model, "--seed", str(number)),
                *("--workload", workloads[len(seconds[kind]) % 2]),
                *("--max-seconds", str(_SERVER_SECONDS), "--tolerance", _SERVER_TOLERANCE),
            )
            code, claims, elapsed_s = _gate(build, *options)
            seconds[kind].append(elapsed_s)
            for claim in claims:
                found.setdefault((kind, "4" if "@c4" in claim["test"] else "1"), []).append(claim)
            said = ", ".join(f"{claim['outcome']} {claim['n']} pairs" for claim in claims)
            print(f"{number}/{n_gates} {kind}: {code}, {said}, {elapsed_s:.0f} s", file=sys.stderr)
    rows = [_served_row(*case, seconds[case[0]], claims) for case, claims in sorted(found.items())]
    print(f"### {sum(map(len, seconds.values()))} gates of equal servers, at {_SERVER_TOLERANCE}\n")
    cells = (f"cells {outcome}" for outcome in Outcome)
    print(table(("server", "users", "gates", *cells, "pairs of a cell", "seconds"), rows))
    outcomes = {claim["outcome"] for claims in found.values() for claim in claims}
    return bool(rows) and Outcome.FAIL not in outcomes


def _served_row(
    kind: str, users: str, seconds: list[float], claims: list[dict[str, Any]]
) -> tuple[str, ...]:
    counts = Counter(claim["outcome"] for claim in claims)
    pairs = sorted(claim["n"] or 0 for claim in claims)
    return (
        *(kind, users, str(len(seconds))),
        *(str(counts[outcome]) for outcome in Outcome),
        f"{statistics.median(pairs):g} ({pairs[0]} to {pairs[-1]})",
        f"{statistics.median(seconds):.0f}",
    )


def _gate(build: str, *options: str) -> tuple[int, list[dict[str, Any]], float]:
    """Exit code, assertions and seconds of one; seconds without waiting for other measurements."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "gate.json"
        asperf = "from pytest_asperf.cli import app; app()"
        gate = ("gate", build, build, *options, f"--report=json:{file}")
        command = [sys.executable, "-c", asperf, *gate]
        done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        if not file.exists():
            return done.returncode, [], 0.0
        found = json.loads(file.read_text("utf-8"))
    return done.returncode, found["claims"], sum(c["elapsed_s"] for c in found["gate"]["cells"])


def _live_gates(n_each: int, first_seed: int) -> bool:
    """Gate each candidate at each tolerance."""
    cases = [_Case(slow_by, tolerance) for tolerance in _SLOWED for slow_by in _SLOWED[tolerance]]
    timed: dict[_Case, list[WorkloadPairs]] = {case: [] for case in cases}
    order = [case for case in cases for _ in range(n_each)]
    random.Random(first_seed).shuffle(order)  # noqa: S311  # repeatable, not unguessable
    with suppress(KeyboardInterrupt):
        for number, case in enumerate(order):
            budget = Budget(case.tolerance, 60, _MAX_SECONDS, first_seed + number)
            done = timed_pairs(case.slow_by, budget)
            timed[case].append(done)
            print(
                f"{number + 1}/{len(order)} gates: +{case.slow_by:.0%} at {case.tolerance:.0%}: "
                f"{done.test.outcome}, {len(done.pairs)} pairs, {done.elapsed_s:.1f} s, "
                f"ratio {done.test.estimate.as_ratio().point:.3f}",
                file=sys.stderr,
            )
    print("\n### Live gates, tg128 of asperf-target at F16\n")
    header = (
        *("tolerance", "candidate", "gates", "PASS", "FAIL", "INCONCLUSIVE"),
        *("ratio", "pairs", "seconds", "spread"),
    )
    print(table(header, [_row(case, done) for case, done in timed.items() if done]))
    return all(_keeps_promise(case, done) for case, done in timed.items())


def _keeps_promise(case: _Case, timed: list[WorkloadPairs]) -> bool:
    """Equal builds do not FAIL, a slowdown by the tolerance does not PASS, and by far FAILs."""
    outcomes, most_wrong = _outcomes(timed), _MOST_WRONG * len(timed)
    if not case.slow_by:
        return outcomes[Outcome.FAIL] <= most_wrong
    if case.slow_by < case.tolerance - _FAR:
        return outcomes[Outcome.PASS] >= len(timed) - most_wrong
    if case.slow_by < case.tolerance:
        return True  # either verdict may come
    is_far = case.slow_by >= case.tolerance + _FAR
    found = outcomes[Outcome.FAIL] >= len(timed) - most_wrong or not is_far
    return found and outcomes[Outcome.PASS] <= most_wrong


def timed_pairs(
    slow_by: float, budget: Budget, model: Path | None = None, workload: str = "tg128"
) -> WorkloadPairs:
    """Time a model, by default the shipped target, against itself, slowed by a share."""
    plan = MeasurementPlan(seed=budget.seed)
    with MeasurementRunner(
        BUILD,
        cache=cache_root(os.environ),
        corpus=shipped_corpus(),
        plan=plan,
        lock_path=machine_lock_path(),
        notify=_Silent(),
    ) as runner:
        builds = (
            Build("current", Interpreter(Path(sys.executable))),
            Build(
                "slowed",
                Interpreter(Path(sys.executable)),
                EngineSettings(slow_by=slow_by or None),
            ),
        )
        workloads = (parse_workload(workload, where="here"),)
        ref = ModelRef(ModelSpec("model", gguf=model)) if model else None
        sides = runner.under((ref or ModelRef(shipped_target(), "F16"),), builds)
        result = runner.compare(sides, SpeedExperiment(workloads, budget))
    if result.interrupted:  # a gate keeps its pairs; the benchmark ends
        raise KeyboardInterrupt
    return result.by_workload[0]


def _outcomes(timed: list[WorkloadPairs]) -> Counter[Outcome]:
    return Counter(workload_pairs.test.outcome_if_stopped for workload_pairs in timed)


def _row(case: _Case, timed: list[WorkloadPairs]) -> tuple[str, ...]:
    outcomes = _outcomes(timed)
    pairs = sorted(len(workload_pairs.pairs) for workload_pairs in timed)
    seconds = sorted(workload_pairs.elapsed_s for workload_pairs in timed)
    spread = statistics.median(
        statistics.stdev([pair.log_ratio for pair in workload_pairs.pairs])
        for workload_pairs in timed
    )
    ratio = statistics.median(
        workload_pairs.test.estimate.as_ratio().point for workload_pairs in timed
    )
    return (
        f"{case.tolerance:.0%}",
        f"+{case.slow_by:.0%}" if case.slow_by else "equal",
        str(len(timed)),
        *(str(outcomes[o]) for o in (Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE)),
        f"{ratio:.2f}",
        f"{statistics.median(pairs):g} (90 %: {pairs[int(0.9 * len(pairs))]})",
        f"{statistics.median(seconds):.1f} (90 %: {seconds[int(0.9 * len(seconds))]:.1f})",
        f"{spread:.1%}",
    )


if __name__ == "__main__":
    raise SystemExit(not main())
