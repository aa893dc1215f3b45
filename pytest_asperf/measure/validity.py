"""The guard findings on a measurement made here: whether it can be used, and the warnings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import Consequence, GuardFinding, Voids
from pytest_asperf.analysis.serving_metrics import itl_ns, ttft_ns
from pytest_asperf.config.engine_settings import parse_shares
from pytest_asperf.errors import Advice, HardwareError, MeasurementError
from pytest_asperf.hardware.in_force import BandwidthBound, Hardware
from pytest_asperf.modelfiles.locate import LocatedModel, is_unchanged
from pytest_asperf.worker.logits import LARGEST_LOGIT

if TYPE_CHECKING:
    from pytest_asperf.config.workload import Workload
    from pytest_asperf.engine_process import RawRun
    from pytest_asperf.hardware.machine import Bandwidth
    from pytest_asperf.hardware.watch import Watched
    from pytest_asperf.measure.results import LevelResult, Provenance, ThroughputResult

#: A setting that leaves the choice to the engine, and a fact that the engine does not report.
_UNDECIDED: Final = ("auto", "unknown")
#: A GPU by its number, as ggml names it: CUDA0, Vulkan1.
_GPU: Final = re.compile(r"[A-Za-z]+(\d+)")


def require_path(ran: Provenance) -> Provenance:
    """A run record, if it matches the request."""
    requested = ran.requested.as_dict()
    if "kv_bits" in requested:
        requested["type_k"], requested["type_v"] = ran.requested.kv_types
    decided = {name: value for name, value in requested.items() if value not in _UNDECIDED}
    resolved = {
        name: value for name, value in _resolved(ran, decided).items() if value not in _UNDECIDED
    }
    claims = {name: value for name, value in decided.items() if name in resolved}
    if guard_finding := guards.path_mismatch(claims, resolved):
        raise _invalid(ran.model, guard_finding)
    return ran


def _resolved(ran: Provenance, requested: Mapping[str, object]) -> dict[str, object]:
    """The resolved values of the settings that the engine reports afterwards."""
    loaded, context = ran.loaded, ran.context
    layers, wanted = loaded.layers_offloaded, requested.get("n_gpu_layers")
    if isinstance(wanted, int) and layers == loaded.n_layers + 1:
        # All that there are, and the output head, which counts as one.
        layers = max(wanted, layers)
    of_load: dict[str, object] = {"threads": loaded.threads, "n_gpu_layers": layers}
    if shares := ran.requested.tensor_split:
        of_load["tensor_split"] = placed_shares(shares, loaded.weights_mib)
    if context is None:
        return of_load
    n_batch, n_ubatch, wanted = context.n_batch, context.n_ubatch, requested.get("n_ubatch")
    if isinstance(wanted, int) and n_batch and n_ubatch and context.pooling is None:
        # Calls of fewer tokens have no larger physical batches.
        most = min(wanted, n_batch, ran.requested.n_batch or n_batch)
        of_load["n_ubatch"] = wanted if n_ubatch == most else n_ubatch
    return {
        **of_load,
        "threads": context.threads,
        "flash_attn": context.flash_attn,
        "type_k": context.type_k,
        "type_v": context.type_v,
    }


def placed_shares(tensor_split: str, weights_mib: Mapping[str, float]) -> str:
    """The shares as requested, if the GPUs with a share have weights and no others do."""
    holding = {
        int(gpu[1]) for name, mib in weights_mib.items() if mib and (gpu := _GPU.fullmatch(name))
    }
    sharing = {index for index, share in enumerate(parse_shares(tensor_split)) if share}
    placed = ", ".join(f"{name} {mib:.0f} MiB" for name, mib in weights_mib.items())
    return tensor_split if holding == sharing else placed or "no weights on a GPU"


def require_unchanged(model: LocatedModel) -> None:
    """Reject a measurement of files that changed after they were hashed for it."""
    if not is_unchanged(model):
        raise MeasurementError(
            f"{model.ref.title}: {model.path} changed while it was measured",
            why="runs of two files would be one figure, under the hash of the first",
            remedy="keep other programs from writing to it, and measure again",
        )


def require_numbers(what: str, run: RawRun) -> RawRun:
    """A timed run, if the logits that it shows are numbers within half precision."""
    shown = run.logits
    guard_finding = guards.broken_logits(**asdict(shown), largest=LARGEST_LOGIT) if shown else None
    if guard_finding:
        raise _invalid(what, guard_finding)
    return run


def require_sound(what: str, run: RawRun, workload: Workload) -> RawRun:
    """A timed run, if its logits are numbers and its requests are those of the workload.

    A server's prompts are new to it and not cut, and its replies have the requested length.
    """
    if run.requests:
        require_valid(what, _of_requests(run, workload))
    return require_numbers(what, run)


def _of_requests(run: RawRun, workload: Workload) -> Iterator[GuardFinding]:
    times_gaps = workload.kind == "itl"
    asked = guards.ServedWork(
        n_users=workload.users,
        n_output=None if workload.is_prompt else workload.n_tokens + workload.generates,
        times_prompt=not workload.generates,
        is_warm=workload.warm,
        times_gaps=times_gaps,
        timed_ns=None if times_gaps else run.elapsed_ns,
    )
    yield from guards.served_requests(asked, run.requests, run.context.states)
    if times_gaps and (joined := guards.joined_stamps(run.requests)):
        yield joined


def throughput_trips(
    result: ThroughputResult, peak_bandwidth: BandwidthBound | None, max_cv: float
) -> tuple[GuardFinding, ...]:
    """The guard findings on a throughput measurement.

    The peak bandwidth is the theoretical one of the memory that the run read from.
    """
    mean, sd, n = guards.coefficient_of_variation(result.judged)
    spread = guards.spread(mean, sd, n, limit=max_cv)
    of_work = result.examined.findings if result.examined else ()
    ends = guards.unequal_runs([run.logits.peak for run in result.runs if run.logits])
    findings = [*of_work, ends, spread, *_of_all_requests(result), *result.watched.guard_findings]
    findings += result.ran.guard_findings
    if peak_bandwidth is not None and result.workload.generates and result.bytes_per_token:
        # A step of a batch reads the weights once, and gives a token to each user.
        rate = result.rate.point / result.workload.users
        read = (rate, result.bytes_per_token, peak_bandwidth.gbs)
        findings.append(guards.roofline_high(*read, cache_bytes=peak_bandwidth.cache_bytes))
        findings.append(guards.roofline_low(*read, cache_bytes=peak_bandwidth.cache_bytes))
    return tuple(guard_finding for guard_finding in findings if guard_finding)


def _of_all_requests(result: ThroughputResult) -> Iterator[GuardFinding | None]:
    """The facts that a single run of a server does not show."""
    users, runs = result.workload.users, result.runs
    found = (guards.queueing(run.requests, users, run.context.n_slots) for run in runs)
    queued = [finding for finding in found if finding]
    yield queued[0] if 2 * len(queued) > len(runs) else None
    done = [request for run in runs for request in run.requests]
    yield guards.false_account(done)
    if users == 1:
        yield guards.first_chunk_early([(ttft_ns(r), itl_ns(r)) for r in done])
        yield guards.short_ttft(done) if result.workload.kind == "ttft" else None


def level_trips(result: LevelResult, *, is_other_model: bool = False) -> tuple[GuardFinding, ...]:
    """The guards' findings on a quantization or another model against its baseline."""
    comparison = result.comparison
    findings = [
        _identical(result),
        guards.knows_nothing(comparison.ppl_base.value, result.ran.loaded.n_vocab),
        guards.impossible_gain(comparison.delta_ppl.point, is_other_model=is_other_model),
        *result.ran.guard_findings,
    ]
    return tuple(guard_finding for guard_finding in findings if guard_finding)


def _identical(result: LevelResult) -> GuardFinding | None:
    scores, base_scores = result.nll, [chunk.nll for chunk in result.baseline_chunks]
    guard_finding = guards.same_weights(scores, base_scores, shown=result.same)
    if guard_finding is None or result.same or not result.why_lossless:
        return guard_finding
    return guards.lossless(result.comparison.n_tokens, result.why_lossless)


def twin_trips(results: Sequence[LevelResult]) -> tuple[GuardFinding, ...]:
    """The compared quantizations that are one and the same."""
    findings = (_twins(a, b) for a, b in combinations(results, 2))
    return tuple(guard_finding for guard_finding in findings if guard_finding)


def _twins(a: LevelResult, b: LevelResult) -> GuardFinding | None:
    one_file = a.ran.sha256 == b.ran.sha256 and a.ran.requested == b.ran.requested
    shown = f"both are the file sha256 {a.ran.sha256[:12]}" if one_file else ""
    return guards.same_weights(a.nll, b.nll, shown=shown)


def require_valid(
    what: str, guard_findings: Iterable[GuardFinding], watched: Watched | None = None
) -> None:
    """Reject a measurement that no assertion can use, with the machine's samples."""
    for guard_finding in guard_findings:
        if guard_finding.consequence is Consequence.INVALID and guard_finding.voids is Voids.ALL:
            error = _invalid(what, guard_finding)
            error.machine = watched.facts() if watched is not None else None
            raise error


def _invalid(what: str, guard_finding: GuardFinding) -> MeasurementError:
    return MeasurementError(
        f"{what}: {guard_finding.guard}: {guard_finding.found}",
        why=f"the measurement is broken however good it looks; the rule: {guard_finding.rule}",
        remedy=guard_finding.remedy,
    )


@dataclass(frozen=True, slots=True)
class BandwidthBounds:
    """The memory bandwidth that bounds TG on the selected hardware."""

    hardware: Hardware
    #: measures this machine's bandwidth if it is unknown; True measures it again
    measure: Callable[[bool], Bandwidth]

    def expected(self, result: ThroughputResult) -> BandwidthBound:
        """The bandwidth that utilisation is a share of; HardwareError if it is unknown."""
        hardware = self.hardware
        if (published := self._published(result)) is not None:
            kind = published.kind if hardware.is_this_machine else f"{published.kind}, declared"
            return BandwidthBound(published.gbs, kind, self._cache_bytes(result), self._doubt)
        if _is_on_card(result) or not hardware.is_this_machine:
            raise HardwareError(
                f"the memory bandwidth of {hardware.headline()} is not known",
                why="utilization is a share of it",
                remedy=Advice("name the chip (asperf doctor prints what is missing)", "hardware"),
            )
        measured = self.measure(False)  # noqa: FBT003  # as declared above
        used_gbs = (result.bytes_per_token or 0) * result.rate.point / 1e9
        if used_gbs > measured.gbs:
            # A machine that was busy while its bandwidth was measured has a bound too low.
            measured = self.measure(True)  # noqa: FBT003  # as above
        return BandwidthBound(measured.gbs, measured.kind, self._cache_bytes(result))

    def peak(self, result: ThroughputResult) -> BandwidthBound | None:
        """The bandwidth that no measurement can exceed; None if none is published."""
        published = self._published(result)
        if published is None:
            return None
        return BandwidthBound(published.peak_gbs, "theoretical", self._cache_bytes(result))

    def _published(self, result: ThroughputResult) -> Bandwidth | None:
        return self.hardware.weights_bandwidth(on_card=_is_on_card(result))

    def _cache_bytes(self, result: ThroughputResult) -> int:
        """The size of the last-level cache in front of that memory."""
        return 0 if _is_on_card(result) else self.hardware.machine.cache_bytes or 0

    @property
    def _doubt(self) -> str:
        """The reason why no assertion can use the declared hardware's figures; empty if one can."""
        actual = self.hardware.contradiction
        return f"declared {self.hardware.name}, and this machine is {actual}" if actual else ""


def _is_on_card(result: ThroughputResult) -> bool:
    return bool(result.ran.loaded.layers_offloaded)
