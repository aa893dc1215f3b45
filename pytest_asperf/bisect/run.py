"""Runs a bisection: gates until there is an answer, each kept as soon as it is over.

Its state is one file in the cache, which outlives an interrupted run.
"""

import hashlib
import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from pytest_asperf.analysis.results import RunsAsBaseline
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.bisect.candidates import Candidate
from pytest_asperf.bisect.search import (
    Answer,
    GateAnswer,
    GateStep,
    Probe,
    gates_at_most,
    next_step,
)
from pytest_asperf.builds.surroundings import compiles_with
from pytest_asperf.errors import BuildError, EngineError, printable
from pytest_asperf.gate.cells import GateCell, GateCheck
from pytest_asperf.gate.judge import GateLimits, judge_cells
from pytest_asperf.hardware.machine import Machine
from pytest_asperf.hardware.machine_lock import alone
from pytest_asperf.hardware.records import load_record, machine_key, store_record
from pytest_asperf.measure.runner import MeasurementRunner
from pytest_asperf.records.codec import MALFORMED, decode, encode
from pytest_asperf.report.result_text import in_words

_SCHEMA: Final = 2
_FOLDER: Final = "bisections"


@dataclass(frozen=True, slots=True)
class JudgedGate:
    """One gate that is over."""

    outcome: Outcome  #: its verdict; INVALID also if a build could not be made or failed
    told: str  #: the result, or the error, on one line
    elapsed_s: float  #: its duration, with making the build
    #: the change of the total time, or of PPL, from the first build to the second
    effect: Estimate | None = None
    is_unable: bool = False  #: whether it is a FAIL of a build that cannot run as its baseline can
    is_unmade: bool = False  #: whether the build could not be made, which another run may try again

    @property
    def finding(self) -> GateAnswer:
        """The part of it that the search needs."""
        if self.effect is None:
            # Judged without a single pair: nothing is excluded.
            return GateAnswer(self.outcome)
        return GateAnswer(self.outcome, self.effect.low, self.effect.high)


@dataclass(slots=True)
class BisectRecord:
    """The gates of one bisection, written whenever one is over."""

    path: Path
    decided_by: Mapping[str, Any]  #: everything that decides the run, as plain data
    seed: int  #: of the order of every gate's pairs
    gates: dict[GateStep, JudgedGate] = field(default_factory=dict)

    @property
    def findings(self) -> dict[GateStep, GateAnswer]:
        """The part of it that the search needs.

        A build that cannot run has another fault than a candidate that is slower, and the other way
        round: its FAIL says nothing about the first build with the candidate's fault.
        """
        first = next(iter(self.gates.values()), None)
        return {
            gate: GateAnswer(Outcome.INVALID)
            if first and found.outcome is Outcome.FAIL and found.is_unable != first.is_unable
            else found.finding
            for gate, found in self.gates.items()
        }

    def keep(self, gate: GateStep, judged_gate: JudgedGate) -> None:
        """Add a gate, and write the file; CacheError where it cannot be written."""
        self.gates[gate] = judged_gate
        record = {
            "schema": _SCHEMA,
            "decided_by": self.decided_by,
            "seed": self.seed,
            "gates": [encode(gate) | encode(judged) for gate, judged in self.gates.items()],
        }
        store_record(self.path, record, what="the state of the bisection")


@contextmanager
def kept_bisection(
    cache: Path, decided_by: Mapping[str, Any], *, seed: int, fresh: bool
) -> Iterator[tuple[BisectRecord, str]]:
    """The record of a bisection, with an earlier run's results, and a remark on it.

    Runs that are decided by equal facts share a record; the seed is for a run that begins again.
    Builds that could not be made are left out of it: the missing part, such as the network, may be
    there now.
    """
    text = json.dumps(decided_by, sort_keys=True)
    path = cache / _FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    remedy = "wait for it, or stop it: this command goes on where it was"
    with alone(path, "this bisection", remedy=remedy):
        yield _opened(BisectRecord(path, decided_by, seed), fresh=fresh)


def _opened(record: BisectRecord, *, fresh: bool) -> tuple[BisectRecord, str]:
    if fresh or not record.path.exists():
        return record, ""
    try:
        content = load_record(record.path, _SCHEMA) or {}
        seed = content["seed"]
        if type(seed) is not int or content["decided_by"] != record.decided_by:
            raise ValueError
        gates = dict(map(_read_gate, content["gates"]))
    except MALFORMED:
        aside = record.path.with_suffix(".broken")
        record.path.replace(aside)
        return record, f"cannot read the state of an earlier run; it is renamed to {aside}"
    record.seed = seed
    record.gates = {gate: kept for gate, kept in gates.items() if not kept.is_unmade}
    if not gates:
        return record, ""
    remark = f"gates kept from an earlier run: {len(record.gates)} (--fresh ignores them)"
    if len(record.gates) < len(gates):
        remark += "; builds that failed are tried again"
    return record, remark


def _read_gate(row: dict[str, Any]) -> tuple[GateStep, JudgedGate]:
    gate = decode(GateStep, row)
    if min(gate.base, gate.candidate) < 0:
        raise ValueError
    return gate, decode(JudgedGate, row)


#: Pairs of the gates that a size is quoted from, however early they are decided.
_PAIRS_OF_A_SIZE: Final = 20


@dataclass(frozen=True, slots=True)
class BisectRequest:
    """The request for a bisection."""

    candidates: tuple[Candidate, ...]  #: the builds in their order; the first is the baseline
    cell: GateCell  #: the check that gates each of them
    limits: GateLimits  #: the accepted limits of each gate, and its maximal cost
    is_listed: bool = False  #: whether the builds between the ends were named one by one

    @property
    def n(self) -> int:
        """Builds that may be the culprit."""
        return len(self.candidates) - 1

    @property
    def limit(self) -> str:
        """The accepted slowdown, growth, ΔPPL or KLD, in words; empty if it is always the same."""
        match self.cell.workload:
            case GateCheck(kind="kld") if self.limits.max_kld is not None:
                return f"{self.limits.max_kld:g} nats"
            case GateCheck(kind="kld" | "logits" | "embeddings"):
                return ""
            case GateCheck(kind="ppl"):
                return f"+{100 * self.limits.max_ppl_delta:g} %"
            case _:
                return f"+{100 * self.limits.budget.tolerance:g} %"

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
            "max_kld": self.limits.max_kld,
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
    told = printable(in_words(verdict).measured)
    is_unable = isinstance(verdict.result, RunsAsBaseline) and verdict.outcome is Outcome.FAIL
    return JudgedGate(verdict.outcome, told, elapsed_s, result.effect, is_unable)


def _seed_of(gate: GateStep, seed: int) -> int:
    """A gate's own seed: one random order for all gates would not be fair."""
    own = random.Random(f"{seed} {gate.base} {gate.candidate}")  # noqa: S311  # logged
    return own.randrange(2**31)
