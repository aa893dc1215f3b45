"""The request of `asperf gate`: its arguments and the project's settings, read and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_asperf.commands.options import max_kld, max_ppl_delta, model_option, workload_option
from pytest_asperf.commands.project import open_project
from pytest_asperf.config.build_sources import has_programs
from pytest_asperf.errors import ConfigError

if TYPE_CHECKING:
    from pytest_asperf.config.engines import Engine
    from pytest_asperf.config.spec import Build, ModelRef, Pairing
    from pytest_asperf.config.workload import Workload
    from pytest_asperf.gate.cells import GateCheck
    from pytest_asperf.gate.judge import GateLimits
    from pytest_asperf.gate.plan import GatePlan, ShippedModels
    from pytest_asperf.measure.runner import MeasurementRunner
    from pytest_asperf.measure.workspace import Workspace


def gated(function: Callable[..., None]) -> Callable[..., None]:
    """The options that name the checks."""
    options = (
        model_option(
            "--model",
            "models",
            metavar="MODEL",
            multiple=True,
            help="A model to gate on; repeatable.",
        ),
        workload_option(
            "--workload",
            "workloads",
            metavar="NAME,...",
            multiple=True,
            help="Checks, such as pp512, tg128@d4096, ttft512, ppl, logits, ppl@d1024 or sd "
            "(default: speed, quality and memory; --list shows them).",
        ),
        model_option("--draft", metavar="MODEL", help="Draft model of the check sd, or ngram."),
        max_ppl_delta,
        max_kld,
    )
    for option in reversed(options):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class GateOptions:
    """The arguments that name the compared builds, as typed.

    `arguments` are the names of `base` and `candidate` in messages.
    """

    base: str | None = None
    cand: str | None = None
    models: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    draft: str | None = None
    max_ppl_delta: str = "1%"
    max_kld: float | None = None
    faster_by: str | None = None
    engine: Engine | None = None
    arguments: tuple[str, str] = ("BASE", "CAND")

    def open_project(
        self, defaults: Mapping[str, object] | None = None, **given: object
    ) -> Workspace:
        """The project with a command's settings; models of one name get distinct names."""
        project = open_project(defaults=defaults, **given)
        named = [*self.models, *filter(None, [self.draft]), str(project.settings.default_model)]
        return replace(project, catalogue=project.catalogue.telling_apart(named))


@dataclass(frozen=True, slots=True)
class GateRequest:
    """The comparison, all of it checked."""

    builds: tuple[Build, Build]  #: baseline and candidate
    engine: Engine  #: the engine of both
    models: tuple[ModelRef, ...]  #: named by the user, or by default
    shipped: ShippedModels | None  #: has further models; None if the user named the models
    pairs: tuple[Pairing, ...]  #: drafts and targets of speculation checks
    workloads: tuple[Workload | GateCheck, ...]  #: named by the user; none for the default checks
    limits: GateLimits  #: accepted limits, and the maximal cost of each check
    key_variable: str = ""  #: of the environment, with the key of a server

    @property
    def limits_text(self) -> str:
        """The limits that are accepted, in a sentence."""
        from pytest_asperf.report.result_text import faster_text

        budget, ppl = self.limits.budget, f"ΔPPL below {100 * self.limits.max_ppl_delta:g} %."
        if self.limits.max_kld is not None:
            ppl = f"KLD below {self.limits.max_kld:g} nats, {ppl}"
        if budget.is_gate:
            return f"Accepted: {100 * budget.tolerance:g} % slower, {ppl}"
        return f"Required: {faster_text(budget.least_gain)}, {ppl}"

    def plan(self, runner: MeasurementRunner | None = None) -> GatePlan:
        """The checks; nothing is made for it.

        With a runner, builds that are made are started once, as few of them may use the machine's
        GPU. Servers at addresses get a request: only a llama-server shows its logits.
        """
        from pytest_asperf.gate.plan import (
            TimedSizes,
            default_cells,
            named_cells,
            show_answers,
            timed_sizes,
        )
        from pytest_asperf.hardware.in_force import detect
        from pytest_asperf.modelfiles.sizes import encoder_of, trained_context

        if self.workloads:
            return named_cells(self.models, self.workloads, self.pairs)
        # Other engines have no vectors, and reject an encoder by name.
        asked = self.models if self.engine == "llama_cpp" else ()
        encoders = {ref: found for ref in asked if (found := encoder_of(ref))}
        has_gpu = bool(detect().gpus)
        if has_gpu and runner and (known := runner.known(self.builds)):
            has_gpu = any(facts.has_gpu for facts in known)

        def sizes(ref: ModelRef) -> TimedSizes:
            is_on_gpu = has_gpu and ref.spec.settings.n_gpu_layers != 0
            _, n_ctx = encoders.get(ref) or ("", trained_context(ref))
            return timed_sizes(n_ctx, has_gpu=is_on_gpu)

        return default_cells(
            self.models,
            self.shipped,
            self.engine,
            self.pairs,
            sizes,
            encoders=encoders,
            shows_answers=runner is not None
            and self.engine == "openai"
            and show_answers(self.builds, self.key_variable),
        )


def read_request(options: GateOptions, project: Workspace) -> GateRequest:
    """The comparison; a ConfigError before anything is measured if an argument is not usable."""
    from pytest_asperf.analysis.limit_verdict import parse_percent, parse_tolerance
    from pytest_asperf.gate.cells import parse_gated
    from pytest_asperf.gate.judge import GateLimits
    from pytest_asperf.gate.plan import engine_of

    settings = project.settings
    typed = settings.engine if "engine" in project.typed else None
    named = options.engine or typed
    builds = _builds(options, project, named)
    engine = engine_of(named, builds, settings.engine)
    names = [name for word in options.workloads for name in word.split(",")]
    workloads = dict.fromkeys(parse_gated(name.strip(), where="--workload") for name in names)
    models, shipped = _models(options, project, engine)
    budget = project.gate_budget
    if options.faster_by is not None:
        budget = budget.faster_by(parse_percent(options.faster_by, where="--faster-by"))
    limit = parse_tolerance(options.max_ppl_delta, where="--max-ppl-delta")
    pairs = _pairs(options, project, engine, models)
    limits = GateLimits(budget, limit, options.max_kld)
    key_variable = settings.api_key_variable
    return GateRequest(
        builds, engine, models, shipped, pairs, tuple(workloads), limits, key_variable
    )


def _builds(options: GateOptions, project: Workspace, engine: Engine | None) -> tuple[Build, Build]:
    settings, find = project.settings, project.catalogue.find_build
    base = settings.baseline if options.base is None else options.base
    candidate = settings.candidate if options.cand is None else options.cand
    if candidate is None:
        raise ConfigError(
            "CAND is missing: no build to judge",
            remedy="name both, as in `asperf gate llama-cpp-python==0.3.35 current`, "
            "or set `candidate` in [tool.asperf]",
        )

    def found(engine: Engine | None) -> tuple[Build, Build]:
        base_at, candidate_at = options.arguments
        return (
            find(base, where=base_at, engine=engine),
            find(candidate, where=candidate_at, engine=engine),
        )

    builds = found(engine)
    programs = [has_programs(build.source) for build in builds]
    # Next to a folder of binaries, a number of llama.cpp means binaries too.
    mixed = engine is None and any(programs) and not all(programs)
    return found("llama_tools") if mixed else builds


def _models(
    options: GateOptions, project: Workspace, engine: Engine
) -> tuple[tuple[ModelRef, ...], ShippedModels | None]:
    """The models of the gate, and the shipped ones if they are these."""
    from pytest_asperf.config.settings import Settings
    from pytest_asperf.gate.plan import shipped_models_of

    find = project.catalogue.find
    default = project.settings.default_model
    own = options.models or ((default,) if default != Settings().default_model else ())
    if own:
        return tuple(find(model, where="--model", engine=engine) for model in own), None
    shipped = shipped_models_of(engine, project.catalogue, where="asperf gate")
    return (shipped.dense,), shipped


def _pairs(
    options: GateOptions, project: Workspace, engine: Engine, models: tuple[ModelRef, ...]
) -> tuple[Pairing, ...]:
    """The drafts and targets to gate: the models with the named draft, or the shipped pairs."""
    from pytest_asperf.config.spec import NGRAM_DRAFT, Pairing
    from pytest_asperf.gate.plan import shipped_pairs

    if options.draft is None:
        return shipped_pairs(engine, project.catalogue, where="asperf gate")
    draft = None
    if options.draft != NGRAM_DRAFT:
        draft = project.catalogue.find(options.draft, where="--draft", engine=engine)
    return tuple(Pairing(ref, draft) for ref in models)
