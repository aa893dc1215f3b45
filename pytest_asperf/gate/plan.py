"""The checks of a gate: those that a user names, or those in which regressions have hidden."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from pytest_asperf.config.build_sources import ServerUrl, has_programs, runs_on
from pytest_asperf.config.catalogue import Catalogue
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.engines import (
    ENGINES,
    FOLDER_ENGINES,
    GGUF_ENGINES,
    MLX_ENGINES,
    SERVER_ENGINES,
    TEXT_ENGINES,
    Engine,
)
from pytest_asperf.config.spec import Build, ModelRef, Pairing
from pytest_asperf.config.workload import Workload
from pytest_asperf.errors import Advice, ConfigError
from pytest_asperf.gate.cells import GateCell, GateCheck
from pytest_asperf.worker.engine import RefusalError

#: Quantizations of the shipped models in a gate: a quantized one, whose kernels most people run.
_LEVELS: Final[dict[Engine, str]] = {
    **dict.fromkeys(GGUF_ENGINES, "Q4_K_M"),
    **dict.fromkeys(MLX_ENGINES, "4bit"),
}
_TARGET: Final = "asperf-target"
_MOE: Final = "asperf-target+mixture"
#: Decodes at depth. Two processes of the target, with contexts of 1,024 tokens, have 26 MB, and a
#: token lasts up to three times as long if they leave a shared cache (docs/benchmarks.md).
_SMALL: Final[dict[Engine, str]] = {
    **dict.fromkeys(GGUF_ENGINES, "asperf-draft:Q4_K_M"),
    **dict.fromkeys(MLX_ENGINES, "asperf-draft:8bit"),
}
#: For the shipped pair: as floats, batches differ least from single tokens, and outputs agree.
_SHIPPED_PAIR: Final[dict[Engine, tuple[str, str]]] = {
    "llama_cpp": ("asperf-draft:Q8_0", "asperf-target:F16"),
    "mlx": ("asperf-draft:8bit", "asperf-target:F16"),
}
_KV: Final[dict[Engine, EngineSettings]] = {
    "llama_cpp": EngineSettings(type_k="q8_0", type_v="q8_0"),
    "llama_tools": EngineSettings(type_k="q8_0", type_v="q8_0"),
    "scripted": EngineSettings(type_k="q8_0", type_v="q8_0"),
    "mlx": EngineSettings(kv_bits=8),
}
#: Context at which decoding is timed, the largest that leaves room.
_DEPTHS: Final = (4096, 1024, 256)
#: The waiting times of a server's users, one at a time and four at once.
_SERVED: Final = (
    Workload("ttft", 512),
    Workload("tg", 128),
    Workload("request", 128, 512),
    Workload("ttft", 128, users=4),
    Workload("tg", 64, users=4),
)
_MOST_USERS: Final = 4
_CHECKS: Final = (GateCheck.PPL, GateCheck.KLD, GateCheck.LOGITS)
#: For a server that shows the log-probabilities of its replies.
_CHECKS_OF_SERVER: Final = (
    *_CHECKS,
    GateCheck("logits", users=_MOST_USERS),
    GateCheck("logits", turns=True),
)
_CHECKS_OF_ENCODER: Final = (GateCheck.EMBEDDINGS, GateCheck.MEMORY)
_NO_ENCODERS: Final[Mapping[ModelRef, tuple[str, int]]] = MappingProxyType({})
#: Engines that show logits inside of their runs, whatever the depth.
_SHOWING_RUNS: Final = ("llama_cpp", "mlx", "scripted")
#: Engines that count their allocations.
_COUNTING_MEMORY: Final = ("llama_cpp", "mlx")
#: Tokens of the timed prompt, and on a processor, where they use the same kernels. Pairs of runs
#: that are a quarter as long meet the same speed of the machine more often (docs/benchmarks.md).
_PROMPT: Final = 512
_PROMPT_ON_PROCESSOR: Final = 128
_TG: Final = Workload("tg", 128)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A default check that is not made."""

    what: str  #: the check
    reason: str  #: why not


class TimedSizes(NamedTuple):
    """The tokens that are timed by default."""

    prompt: int  #: of the prompt
    depth: int  #: in the context at which decoding is timed


class ShippedModels(NamedTuple):
    """The shipped models of a gate, at its quantization."""

    dense: ModelRef  #: gets every check
    #: A mixture of experts, and the one whose decoding at depth is timed; None for servers, which
    #: are gated on the dense model.
    moe: ModelRef | None = None
    small: ModelRef | None = None


@dataclass(frozen=True, slots=True)
class GatePlan:
    """The plan of a gate."""

    cells: tuple[GateCell, ...]  #: in the order of their decision, each once
    left_out: tuple[LeftOut, ...] = ()  #: default checks that are not made, such as of the engine


def engine_of(named: Engine | None, builds: Sequence[Build], default: Engine) -> Engine:
    """The engine of the gate: the named one, otherwise one that both builds can be of."""
    fitting = [e for e in ENGINES if all(runs_on(build.source, e) for build in builds)]
    if named in fitting:
        return named
    # A command line can run any build, and is used only if it is named; the same applies to
    # libraries next to binaries.
    fitting = [e for e in fitting if e != "command" or e == default]
    if any(has_programs(build.source) for build in builds):
        fitting = [e for e in fitting if e in FOLDER_ENGINES]
    if named is None and fitting:
        return default if default in fitting else fitting[0]
    base, candidate = (build.name for build in builds)
    raise ConfigError(
        f"{base} and {candidate} are not two builds of {named or 'one engine'}",
        why="a gate runs the same model in both, on one engine",
        remedy="name two builds of one engine; a test compares engines, as in "
        'throughput("tg128", engine="mlx") > throughput("tg128", engine="llama_cpp")',
    )


def named_cells(
    models: Sequence[ModelRef], workloads: Sequence[Workload | GateCheck], pairs: Sequence[Pairing]
) -> GatePlan:
    """The checks of the workloads that a user names, with each model.

    A pair without a draft is lookup in each model's own text.
    """
    cells = []
    for workload in workloads:
        if workload == GateCheck.SPECULATION and pairs:
            cells += [GateCell(pair.target, workload, pair) for pair in pairs]
        else:
            cells += [GateCell(ref, workload) for ref in models]
    return GatePlan(tuple(dict.fromkeys(cells)))


def default_cells(
    models: Sequence[ModelRef],
    shipped: ShippedModels | None,
    engine: Engine,
    pairs: Sequence[Pairing],
    sizes_of: Callable[[ModelRef], TimedSizes],
    *,
    encoders: Mapping[ModelRef, tuple[str, int]] = _NO_ENCODERS,
    shows_answers: bool = False,
) -> GatePlan:
    """The checks in which regressions have hidden.

    Args:
        models: the models; every one gets them all.
        shipped: has further models; None if the models are the user's own.
        engine: the engine.
        pairs: target and draft of each speculation check.
        sizes_of: gives the prompt and the depth that are timed with a model.
        encoders: those of the models that continue no text, with their kind and their context.
        shows_answers: whether servers that we do not start show log-probabilities.
    """
    if engine in TEXT_ENGINES:
        most = _MOST_USERS if engine in SERVER_ENGINES else 1
        works = [workload for workload in _SERVED if workload.users <= most]
        is_shown = shows_answers or engine == "llama_server"
        shown = _CHECKS_OF_SERVER if is_shown else ()
        served = (GateCell(ref, one) for ref in models for one in (*works, *shown))
        what, why = "PPL, KLD, logits, ", f"{engine} shows times and no logits"
        if shown:
            what, why = "", "a server is not stepped, and runs as its users start it"
        elif engine == "openai":
            why = "they are not both llama-server, which shows log-probabilities"
        return GatePlan(tuple(served), (LeftOut(f"{what}speculation and other settings", why),))
    causal = [ref for ref in models if ref not in encoders]
    cells = [
        GateCell(ref, work)
        for ref, (_, n_ctx) in encoders.items()
        for work in (Workload("pp", min(sizes_of(ref).prompt, n_ctx)), *_CHECKS_OF_ENCODER)
    ]
    not_encoded = tuple(
        LeftOut(f"every other check of {ref.title}", f"it is {kind}")
        for ref, (kind, _) in encoders.items()
    )
    if not causal:
        return GatePlan(tuple(cells), not_encoded)
    for ref in causal:
        deep = (shipped and shipped.small) or ref
        cells += _model_cells(ref, sizes_of(ref), engine)
        cells += _deep_cells(deep, sizes_of(deep), engine)
    moe = shipped and shipped.moe
    if moe is not None:
        cells += [GateCell(moe, work) for work in (Workload("pp", sizes_of(moe).prompt), _TG)]
        checks = list(_CHECKS)
        if engine in _SHOWING_RUNS:
            checks.append(GateCheck("logits", users=_MOST_USERS))
        cells += [GateCell(moe, check) for check in checks]
    cells += [GateCell(pair.target, GateCheck.SPECULATION, pair) for pair in pairs]
    if moe is not None and engine == "mlx":
        # Without a GPU, MLX computes with quantized weights in 32 bits, and with these in 16.
        floats = (replace(pair.draft, level="F16") for pair in pairs if pair.draft)
        cells += [GateCell(ref, GateCheck.KLD) for ref in floats]
    reasons = (
        (bool(pairs), "speculation", f"{engine} cannot be stepped and rolled back here"),
        (
            engine in _SHOWING_RUNS,
            "logits of several users, of conversations and at depth, and memory",
            f"{engine} shows neither logits nor allocations of its runs",
        ),
        (moe is not None, "a mixture of experts", "none of your own models is one"),
    )
    left_out = tuple(LeftOut(what, reason) for is_there, what, reason in reasons if not is_there)
    return GatePlan(tuple(dict.fromkeys(cells)), (*not_encoded, *left_out))


def _model_cells(ref: ModelRef, sizes: TimedSizes, engine: Engine) -> list[GateCell]:
    """One model's checks: its times and values, other values, and values with other settings."""
    prompt, depth = Workload("pp", sizes.prompt), sizes.depth
    quantised_kv = _quantised_kv(ref, engine)
    checks = [*_CHECKS, *([GateCheck.MEMORY] if engine in _COUNTING_MEMORY else ())]
    cells = [GateCell(ref, workload) for workload in (prompt, _TG, *checks)]
    cells += [GateCell(variant, check) for variant in quantised_kv for check in checks]
    if engine in _SHOWING_RUNS:
        cells += [GateCell(ref, replace(check, depth=depth)) for check in _CHECKS[:2]]
        cells += [GateCell(each, GateCheck("logits", depth)) for each in (ref, *quantised_kv)]
        cells.append(GateCell(ref, GateCheck("logits", users=_MOST_USERS)))
        if engine != "mlx":  # which needs over 3 s for it on a processor
            cells.append(GateCell(ref, GateCheck("logits", turns=True)))
    return cells


def _deep_cells(ref: ModelRef, sizes: TimedSizes, engine: Engine) -> list[GateCell]:
    deep = replace(_TG, depth=sizes.depth)
    return [GateCell(each, deep) for each in (ref, *_quantised_kv(ref, engine))]


def _quantised_kv(ref: ModelRef, engine: Engine) -> list[ModelRef]:
    """A model with a quantized KV cache; empty if the engine has none."""
    if engine not in _KV:
        return []
    return [replace(ref, spec=ref.spec.with_settings(_KV[engine]))]


def shipped_models_of(engine: Engine, catalogue: Catalogue, *, where: str) -> ShippedModels:
    """The shipped target and, unless servers are gated, further models.

    Servers are gated on the target; of one that we do not start it is the one that it serves.
    """
    if engine == "openai":
        return ShippedModels(catalogue.find(_TARGET, where=where, engine=engine))
    if engine not in _LEVELS:
        raise ConfigError(
            f"{where}: the engine {engine} has no model by default",
            remedy=Advice("name one", "default_model"),
        )
    level = _LEVELS[engine]
    dense, moe, small = (
        catalogue.find(address, where=where, engine=engine)
        for address in (f"{_TARGET}:{level}", f"{_MOE}:{level}", _SMALL[engine])
    )
    return ShippedModels(dense) if engine in SERVER_ENGINES else ShippedModels(dense, moe, small)


def shipped_pairs(engine: Engine, catalogue: Catalogue, *, where: str) -> tuple[Pairing, ...]:
    """The shipped pair, or nothing if the engine cannot speculate."""
    if engine not in _SHIPPED_PAIR:
        return ()
    draft, target = (
        catalogue.find(address, where=where, engine=engine) for address in _SHIPPED_PAIR[engine]
    )
    return (Pairing(target, draft),)


def show_answers(builds: Sequence[Build], key_variable: str) -> bool:
    """True if all builds are addresses at which llama-servers answer; each gets a request.

    A server that does not answer is reported when it is measured.
    """
    # It brings sockets, which a gate of other builds does without.
    from pytest_asperf.worker.openai_engine import OpenAiEngine  # noqa: PLC0415

    sources = [build.source for build in builds]
    try:
        return all(
            isinstance(source, ServerUrl) and OpenAiEngine(source.url, key_variable).is_llama_server
            for source in sources
        )
    except RefusalError:
        return False


def timed_sizes(n_ctx_train: int | None, *, has_gpu: bool) -> TimedSizes:
    """The tokens that are timed by default, of a model trained on a context of so many.

    On a processor, prefilling 4,096 tokens before each run costs more than all other checks.
    """
    depths = _DEPTHS if has_gpu else _DEPTHS[1:]
    room = (n_ctx_train or depths[0] + _TG.n_tokens) - _TG.n_tokens
    depth = next((depth for depth in depths if depth <= room), depths[-1])
    return TimedSizes(_PROMPT if has_gpu else _PROMPT_ON_PROCESSOR, depth)
