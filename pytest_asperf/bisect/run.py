"""Runs a bisection: gates until there is an answer, each kept as soon as it is over."""

from __future__ import annotations

import random
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.bisect.record import JudgedGate
from pytest_asperf.bisect.search import Probe, gates_at_most, next_step
from pytest_asperf.builds.surroundings import compiles_with
from pytest_asperf.errors import BuildError, EngineError, printable
from pytest_asperf.gate.cells import GateCheck
from pytest_asperf.gate.judge import judge_cells
from pytest_asperf.hardware.records import machine_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_asperf.bisect.candidates import Candidate
    from pytest_asperf.bisect.record import BisectRecord
    from pytest_asperf.bisect.search import Answer, GateStep
    from pytest_asperf.gate.cells import GateCell
    from pytest_asperf.gate.judge import GateLimits
    from pytest_asperf.hardware.machine import Machine
    from pytest_asperf.measure.runner import MeasurementRunner

#: Pairs of the gates that a size is quoted from, however early they are decided.
_PAIRS_OF_A_SIZE: Final = 20


@dataclass(frozen=True, slots=True)
class BisectRequest:
    """The request for a bisection.

    Attributes:
        candidates: the builds in their order; the first is the baseline.
        cell: what each of them is gated on.
        limits: what each gate accepts, and what it may cost.
        is_listed: whether the builds between the ends were named one by one.
    """

    candidates: tuple[Candidate, ...]
    cell: GateCell
    limits: GateLimits
    is_listed: bool = False

    @property
    def n(self) -> int:
        """Builds that may be the culprit."""
        return len(self.candidates) - 1

    @property
    def limit(self) -> float:
        """The slowdown, or ΔPPL, that is accepted, a fraction."""
        is_ppl = self.cell.workload == GateCheck.PPL
        return self.limits.max_ppl_delta if is_ppl else self.limits.budget.tolerance

    def decided_by(
        self, version: str, machine: Machine, node: str, contents: Mapping[str, str | None]
    ) -> Mapping[str, Any]:
        """Everything that decides the run, as plain data.

        `contents` are hashes, by path, of the files that weights and packages are in.
        """
        budget = asdict(self.limits.budget)
        del budget["seed"]
        return {
            "asperf": version,
            "machine": {**machine_key(machine), "node": node},
            "builds": [repr(candidate.build) for candidate in self.candidates],
            "model": repr(self.cell.ref),
            "contents": dict(contents),
            "compiles_with": compiles_with(()),
            "workload": self.cell.name,
            "budget": budget,
            "max_ppl_delta": self.limits.max_ppl_delta,
        }


class Watcher(Protocol):
    """Shows the progress of a bisection."""

    def begins(self, probe: Probe, number: int) -> None:
        """A gate begins."""

    def ends(self, gate: GateStep, judged_gate: JudgedGate) -> None:
        """It is over."""


def bisect(
    request: BisectRequest, runner: MeasurementRunner, record: BisectRecord, watcher: Watcher
) -> Answer:
    """Gate one build after the other until there is an answer; each gate is added to the record.

    Raises:
        AsperfError: the candidate or the baseline cannot be measured at all, or the model, the
            cache or the machine cannot.
        KeyboardInterrupt: it was stopped; the gates that are over are kept.
    """
    while isinstance(step := next_step(request.n, record.findings), Probe):
        watcher.begins(step, len(record.gates) + 1)
        judged_gate = _gate(request, runner, step, record.seed)
        record.keep(step.gate, judged_gate)
        watcher.ends(step.gate, judged_gate)
    return step


def _gate(request: BisectRequest, runner: MeasurementRunner, probe: Probe, seed: int) -> JudgedGate:
    gate = probe.gate
    base, candidate = (request.candidates[i].build for i in (gate.base, gate.candidate))
    budget = replace(request.limits.budget, seed=_seed_of(gate, seed))
    if probe.purpose in {"candidate", "confirm"}:
        fewest = max(budget.min_pairs, min(_PAIRS_OF_A_SIZE, budget.max_pairs))
        budget = replace(budget, min_pairs=fewest)
    # A build is named wrongly after one wrong PASS, too: here both errors are shared by all gates.
    n_gates = gates_at_most(request.n)
    budget = replace(budget, beta=budget.beta / n_gates)
    limits = replace(request.limits, budget=budget, comparisons=n_gates)
    began = time.monotonic()
    try:
        (result,) = judge_cells(runner, [request.cell], (base, candidate), limits)
        if result.interrupted:
            raise KeyboardInterrupt
        verdict = result.unbroken() if result.verdict is None else result.verdict
    except (BuildError, EngineError) as error:
        if probe.purpose == "candidate":
            raise  # one of the two ends: there is nothing to bisect without it
        is_unmade = isinstance(error, BuildError)
        elapsed_s = time.monotonic() - began
        return JudgedGate(Outcome.INVALID, printable(error.what), elapsed_s, is_unmade=is_unmade)
    elapsed_s = time.monotonic() - began
    return JudgedGate(verdict.outcome, printable(verdict.measured), elapsed_s, result.effect)


def _seed_of(gate: GateStep, seed: int) -> int:
    """A gate's own seed: a coin that fell the same way in each would be no fair one."""
    own = random.Random(f"{seed} {gate.base} {gate.candidate}")  # noqa: S311  # logged
    return own.randrange(2**31)
