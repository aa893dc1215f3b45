"""`asperf predict`: from facts about a machine and models to a prediction.

The prediction has everything that the command shows, so that its text and its JSON agree.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_asperf.analysis.capacity import (
    ACCEPTANCES,
    ASSUMED_COSTS,
    MOE_REACHED_SHARE,
    REACHED_SHARE,
    Demand,
    Fit,
    MemoryCapacity,
    Payoff,
    Verification,
    fit,
    payoff,
    speed_ratio,
    tg_bound,
)
from pytest_asperf.config.address import Address, parse_path
from pytest_asperf.config.catalogue import Catalogue
from pytest_asperf.config.engine_settings import EngineSettings, kv_bytes_per_element
from pytest_asperf.config.engines import parse_level
from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.errors import ConfigError, HardwareError, printable
from pytest_asperf.hardware.bandwidth import LARGEST_CACHE_BYTES, bandwidth_in_turn
from pytest_asperf.hardware.in_force import BandwidthBound, Hardware, detect, in_force, memory_of
from pytest_asperf.hardware.machine_lock import MachineQueue
from pytest_asperf.modelfiles.sizes import KvCache, demand_of
from pytest_asperf.report.sections import Failure

_MOST_POSITIONS: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastRequest:
    """The options of the command other than the models."""

    hardware: str
    memory_gb: int | None  #: memory of the named hardware, in GB as on the box
    #: positions of the KV cache, None for 4096 or the training's, if that is less
    context: int | None
    kv: EngineSettings
    draft: str | None
    draft_ratio: float | None  #: speed of the draft over the target's, if it was measured
    verify: str | None  #: costs of verifying, as `2:1.6,5:2.1`
    acceptance: float | None  #: acceptance rate, None for a table of several

    @property
    def is_of_speculation(self) -> bool:
        """True if an option about drafting was given."""
        given = (self.draft, self.draft_ratio, self.verify, self.acceptance)
        return any(value is not None for value in given)


@dataclass(frozen=True, slots=True)
class SpeculationForecast:
    """The effect of a draft on one target: by cost of verifying, the payoff at each acceptance.

    `ratio` is the speed of the draft over the target's, None if unknown.
    """

    ratio: float | None
    ratio_basis: str
    rows: tuple[tuple[Verification, tuple[Payoff, ...]], ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    """The prediction for one model."""

    demand: Demand
    fit: Fit | None  #: whether it fits, with the draft if there is one; None if memory is unknown
    #: TG in tok/s that the bandwidth allows, with an empty and with a full context
    ceilings: tuple[float, float] | None
    #: the range of it that real runs reach; None if a cache can have the bytes
    reached: tuple[float, float] | None
    speculation: SpeculationForecast | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction for a machine and its models; unknown parts have a reason.

    `kv_types` are of the K and the V cache, for each model.
    """

    hardware: str
    memory: MemoryCapacity | Failure
    ceiling: BandwidthBound | Failure
    bandwidth_basis: str
    kv_types: tuple[tuple[str, str], ...]
    draft: Demand | None
    forecasts: tuple[Forecast, ...]

    @property
    def fits(self) -> bool:
        """True if every model is known to fit."""
        fits = (forecast.fit for forecast in self.forecasts)
        return all(fit is not None and fit.fits and not fit.is_uncertain for fit in fits)


def forecast_of(
    addresses: Sequence[str],
    request: ForecastRequest,
    catalogue: Catalogue,
    cache: Path,
    queue: MachineQueue,
) -> Prediction:
    """Predict memory, TG and the gain of a draft for models on a machine.

    A bandwidth that has to be measured is kept in the cache folder, and waits in the queue.
    """
    drafts = [] if request.draft is None else [request.draft]
    catalogue = catalogue.telling_apart([*addresses, *drafts])
    # Options are checked before the machine is inspected.
    refs = [_ref(address, catalogue, "--model") for address in addresses]
    costs = ASSUMED_COSTS if request.verify is None else (parse_verify(request.verify),)
    types = tuple(_kv_types(ref, request) for ref in refs)
    demands = [demand_of(ref, _kv_cache(ref, request)) for ref in refs]
    draft = None
    if request.draft is not None:
        ref = _ref(request.draft, catalogue, "--draft")
        draft = demand_of(ref, _kv_cache(ref, request))
    hardware = _hardware(request)
    memory = memory_of(hardware, request.memory_gb, option="--memory") or Failure(
        "its size cannot be read", "name the hardware with --hardware=NAME"
    )
    on_card = isinstance(memory, MemoryCapacity) and not memory.is_shared
    bandwidth, basis = _bandwidth(hardware, cache, queue, on_card=on_card)

    def forecast(ref: ModelRef, demand: Demand) -> Forecast:
        loaded = [demand] if draft is None else [demand, draft]
        held = None
        if isinstance(memory, MemoryCapacity):
            held = fit(memory.holding(ref.spec.settings.n_gpu_layers), loaded)
        return Forecast(
            demand,
            held,
            *_rates(demand, bandwidth),
            _speculation(demand, draft, request, costs) if request.is_of_speculation else None,
        )

    forecasts = tuple(map(forecast, refs, demands))
    return Prediction(hardware.headline(), memory, bandwidth, basis, types, draft, forecasts)


def parse_verify(text: str) -> Verification:
    """Read `2:1.6,5:2.1`, the cost of batches of 2 and of 5 positions in steps of the target."""
    costs = {}
    for pair in text.split(","):
        positions, _, cost = pair.partition(":")
        try:
            n, c = int(positions), float(cost)
        except ValueError:
            n, c = 0, 0.0
        if not 2 <= n <= _MOST_POSITIONS or n in costs or not 0 < c < math.inf:
            raise ConfigError(
                f"--verify: {printable(pair, 60)!r} is not POSITIONS:COST",
                remedy="write each batch once, such as --verify=2:1.6,5:2.1: verifying 2 positions "
                "costs 1.6 steps of the target, 5 cost 2.1",
            )
        costs[n] = c
    return Verification(tuple(sorted(costs.items())), f"given: --verify={text}")


def _ref(text: str, catalogue: Catalogue, where: str) -> ModelRef:
    address = Address.of(text)
    folder, level = _folder(address.name, catalogue), address.level
    if folder is None:
        return catalogue.find(address, where=where)
    spec = ModelSpec(name=folder.name or str(folder), hf_folder=folder)
    return ModelRef(spec, None if level is None else parse_level(level, where=where))


def _folder(name: str, catalogue: Catalogue) -> Path | None:
    """The folder that a name means, unless it is the name of a model."""
    if name in {spec.name for spec in catalogue.models}:
        return None
    try:
        path = parse_path(name, catalogue.folder)
        return path.resolve() if path.is_dir() else None
    except (ValueError, OSError):  # the catalogue's error names the accepted values
        return None


def _kv_types(ref: ModelRef, request: ForecastRequest) -> tuple[str, str]:
    return ref.spec.settings.merged(request.kv).kv_types


def _kv_cache(ref: ModelRef, request: ForecastRequest) -> KvCache:
    type_k, type_v = _kv_types(ref, request)
    return KvCache(request.context, (kv_bytes_per_element(type_k), kv_bytes_per_element(type_v)))


def _hardware(request: ForecastRequest) -> Hardware:
    if request.memory_gb is not None and request.hardware == "auto":
        raise ConfigError(
            "--memory is given for this machine", remedy="name the hardware with --hardware=NAME"
        )
    return in_force(request.hardware, detect(), memory_gb=request.memory_gb)


def _bandwidth(
    hardware: Hardware, cache: Path, queue: MachineQueue, *, on_card: bool
) -> tuple[BandwidthBound | Failure, str]:
    """The bandwidth of the memory that the weights are read from, and its source."""
    machine = hardware.machine
    if (published := hardware.weights_bandwidth(on_card=on_card)) is not None:
        sources = hardware.profile.sources if hardware.profile is not None else ()
        basis = f"{published.kind}; {printable('; '.join(sources))}" if sources else published.kind
        return BandwidthBound(published.gbs, published.kind), basis
    if on_card:
        remedy = "name the card with --hardware=NAME"
        return Failure("the card's bandwidth is neither published here nor measured", remedy), ""
    try:
        measured = bandwidth_in_turn(cache, machine, queue)
    except HardwareError as error:
        return Failure.of(error), ""
    basis = f"read by all usable cores, measured on {measured.measured_on}"
    return BandwidthBound(measured.gbs, measured.kind, machine.cache_bytes or 0), basis


def _rates(
    demand: Demand, bandwidth: BandwidthBound | Failure
) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """The bounds on TG with an empty and a full context, and the expected range of the first."""
    if isinstance(bandwidth, Failure):
        return None, None
    empty, full = (tg_bound(bandwidth.gbs, n_bytes) for n_bytes in demand.read_bytes)
    if demand.read_bytes[0] <= (bandwidth.cache_bytes or LARGEST_CACHE_BYTES):
        return (empty, full), None
    low, high = MOE_REACHED_SHARE if demand.has_experts else REACHED_SHARE
    return (empty, full), (low * empty, high * empty)


def _speculation(
    target: Demand, draft: Demand | None, request: ForecastRequest, costs: tuple[Verification, ...]
) -> SpeculationForecast:
    ratio, basis = request.draft_ratio, "given: --draft-ratio"
    if ratio is None and draft is not None:
        ratio = speed_ratio(target, draft)
        basis = "bytes per token of both; a small draft reaches less of its ceiling, so measure it"
    rates = ACCEPTANCES if request.acceptance is None else (request.acceptance,)
    rows = tuple((cost, tuple(payoff(rate, cost, ratio) for rate in rates)) for cost in costs)
    return SpeculationForecast(ratio, basis if ratio is not None else "", rows)
