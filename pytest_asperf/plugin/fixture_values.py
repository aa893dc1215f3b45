"""What fixtures give a test: its markers and the session's settings, made into handles."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pytest_asperf.api.engines import Engines
from pytest_asperf.api.gate import Gate
from pytest_asperf.api.ladder import Ladder
from pytest_asperf.api.measurement_context import MeasurementContext
from pytest_asperf.api.speculation import Speculation
from pytest_asperf.config.settings import split_address
from pytest_asperf.config.spec import Pairing
from pytest_asperf.errors import ConfigError
from pytest_asperf.plugin.collection import judge_finding
from pytest_asperf.plugin.parsing import read_marks
from pytest_asperf.plugin.session import at_most
from pytest_asperf.plugin.skips import skip
from pytest_asperf.plugin.stash import note, session_of
from pytest_asperf.published.findings import Finding, PublishedFinding

if TYPE_CHECKING:
    import pytest

    from pytest_asperf.api.ladder import Perplexity
    from pytest_asperf.config.spec import ModelRef
    from pytest_asperf.plugin.session import Session


def live_session(request: pytest.FixtureRequest) -> Session:
    """Return the session's state, or skip the test where nothing is measured."""
    run = session_of(request.config)
    if not run.is_live:
        skip("test", f"nothing recorded for this test on {run.hardware.headline()}")
    return run


def measurement(request: pytest.FixtureRequest) -> MeasurementContext:
    """Return what a test's model is measured with; nothing is started for it."""
    run = session_of(request.config)
    engine = run.model_of(request.node, read_marks(request.node), None).spec.engine
    return MeasurementContext(
        run.runner(engine or run.settings.engine),
        lambda row: note(request.node, row),
        run.ceiling,
        run.roof,
        run.settings.max_cv,
        run.gate_budget,
    )


def level(request: pytest.FixtureRequest) -> str | None:
    """Return the level that a test's marker names."""
    mark = read_marks(request.node).quant
    return mark.level if mark else None


def model_ref(request: pytest.FixtureRequest, quant: str | None, kv_type: str | None) -> ModelRef:
    """Return the model that a test's markers name, at its rung."""
    marks = read_marks(request.node)
    return session_of(request.config).model_of(request.node, marks, quant, kv_type)


def gates(request: pytest.FixtureRequest, ref: ModelRef, measures: MeasurementContext) -> Gate:
    """Return what holds the candidate build against the baseline; skip where there is none."""
    run = session_of(request.config)
    builds = run.builds
    if builds is None:
        reason = "name a build with --asperf-candidate"
        skip("gate", reason, because="nothing to gate: ")
    mark = read_marks(request.node).speculative
    where = request.node.nodeid
    pairing = run.pairing_of(mark, where=where) if mark else Pairing(ref, None)
    return Gate(ref, builds, run.gate_budget, measures, pairing)


def speculation(request: pytest.FixtureRequest, measures: MeasurementContext) -> Speculation:
    """Return the draft and the target of a test's marker.

    Raises:
        ConfigError: it has none.
    """
    where = request.node.nodeid
    mark = read_marks(request.node).speculative
    if mark is None:
        raise ConfigError(
            f"{where}: the speculation fixture needs a speculative marker",
            why="the marker names the draft and the target",
            remedy='write @pytest.mark.speculative(draft="asperf-draft:Q8_0", '
            'target="asperf-target:F16", k=4)',
        )
    run = session_of(request.config)
    pairing = run.pairing_of(mark, where=where)
    own = replace(measures, runner=run.runner(pairing.target.spec.engine or run.settings.engine))
    return Speculation(
        pairing, run.gate_budget, own, partial(run.draft_of, pairing.target, where=where)
    )


def engines(request: pytest.FixtureRequest, quant: str | None) -> Engines:
    """Return a test's model on any two engines.

    Raises:
        ConfigError: its marker names one engine.
    """
    run, marks = live_session(request), read_marks(request.node)
    if marks.model is not None and marks.model.engine is not None:
        raise ConfigError(
            f"{request.node.nodeid}: the model marker names the engine {marks.model.engine}",
            why="two engines are compared, and the claim names them",
            remedy="leave engine= out of the marker",
        )
    return Engines(
        quant or split_address(run.address_of(marks))[1],
        lambda engine, level: run.model_on(engine, request.node, marks, level),
        run.runner,
        run.gate_budget,
        lambda row: note(request.node, row),
    )


def perplexity(
    request: pytest.FixtureRequest, ref: ModelRef, measures: MeasurementContext
) -> Perplexity:
    """Return a test's one rung, which shares its pass over the corpus with other tests' rungs."""
    run = session_of(request.config)
    marks = read_marks(request.node)
    base = run.baseline_of(request.node, marks, ref)
    name = ref.level if ref.level != base.level else ref.spec.settings.kv_name
    if ref.spec.name != base.spec.name:
        name = ref.label
    joint = run.joint_rungs(base, (ref,), marks)
    return Ladder(base, {str(name): ref}, measures, joint, at_most(marks))[str(name)]


def ladder(request: pytest.FixtureRequest, measures: MeasurementContext) -> Ladder:
    """Return all rungs of a test's marker.

    Raises:
        ConfigError: it has none.
    """
    run = session_of(request.config)
    marks = read_marks(request.node)
    rungs = run.ladder_of(request.node, marks)
    if not rungs:
        raise ConfigError(
            f"{request.node.nodeid}: the ladder fixture needs a quant_ladder or kv_ladder marker",
            why="the marker names the rungs",
            remedy='write @pytest.mark.quant_ladder("Q8_0", "Q6_K")',
        )
    wanted = tuple(rungs.values())
    base = run.baseline_of(request.node, marks, wanted[0])
    joint = run.joint_rungs(base, wanted, marks)
    return Ladder(base, rungs, measures, joint, at_most(marks))


def finding(request: pytest.FixtureRequest) -> PublishedFinding:
    """A published finding that nothing measures live; skips where it cannot be judged."""
    run = session_of(request.config)
    found: Finding = request.param
    reason = run.out_of_scope(found)
    if not reason and run.is_live:
        reason = "nothing measures it live; --asperf-source=recorded judges its published figures"
    if reason:
        skip("finding", reason)
    return PublishedFinding(found, partial(judge_finding, request.node, found))
