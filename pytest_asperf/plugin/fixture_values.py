"""From a test's selected models and its session to the values of fixtures."""

from dataclasses import replace
from functools import partial

import pytest

from pytest_asperf.api.gate import Gate
from pytest_asperf.api.ladder import Ladder, Quant
from pytest_asperf.api.measurement_context import MeasurementContext, ModelUnderTest
from pytest_asperf.api.speculation import Speculation
from pytest_asperf.config.catalogue import at_level
from pytest_asperf.config.engines import parse_engine, parse_level
from pytest_asperf.config.spec import ModelRef, Pairing
from pytest_asperf.errors import Advice, ConfigError
from pytest_asperf.plugin.parsing import marks_of
from pytest_asperf.plugin.selection import joint_rungs, selection_of
from pytest_asperf.plugin.session import Session
from pytest_asperf.plugin.skips import skip
from pytest_asperf.plugin.stash import Notebook, session_of
from pytest_asperf.verdicts.engine_matching import matching_level


def live_session(request: pytest.FixtureRequest) -> Session:
    """The session; skips the test if nothing is measured in it."""
    session = session_of(request.config)
    if not session.is_live:
        skip("test", f"no published figure for this test on {session.hardware.headline()}")
    return session


def measurement(request: pytest.FixtureRequest, ref: ModelRef | None = None) -> MeasurementContext:
    """The measurement of a model, by default of the one that the test's markers name."""
    session = session_of(request.config)
    ref = ref or selection_of(request.node).model()
    return MeasurementContext(
        session.runner(ref.spec.engine or session.settings.engine),
        Notebook(request.node, is_for_facts=request.fixturename == "model"),
        session.bounds,
        session.settings.max_cv,
        session.gate_budget,
        partial(skip, "test"),
        partial(variant, request),
        lambda: live_session(request),
        request.addfinalizer,
    )


def variant(
    request: pytest.FixtureRequest, *, model: str | None, engine: str | None, quant: str | None
) -> ModelUnderTest:
    """Another variant of the test's model, or another model, on the engine that it names."""
    selection, where = selection_of(request.node), request.node.nodeid
    on = None if engine is None else parse_engine(engine, where=where)
    is_matched = False
    if model is not None:
        session = session_of(request.config)
        session.catalogue = session.catalogue.telling_apart([model])
        ref = session.catalogue.find(model, where=where, engine=on)
    elif on is None:
        ref = replace(selection.model(), level=None)
    else:
        is_matched = quant is None
        if quant is None:
            quant = matching_level(selection.model().level or "F16", on, where=where)
        ref = selection.model_on(on)
    if quant is not None:
        level = parse_level(quant, where=where, engine=ref.spec.engine)
        ref = at_level(ref, level, where=where)
    return ModelUnderTest(ref, measurement(request, ref), is_matched=is_matched)


def level(request: pytest.FixtureRequest) -> str | None:
    """The quantization in the test's `quant` marker."""
    mark = marks_of(request.node).quant
    return mark.level if mark else None


def gates(request: pytest.FixtureRequest, ref: ModelRef, measures: MeasurementContext) -> Gate:
    """The comparison of the candidate build with the baseline; skips without a candidate."""
    session = session_of(request.config)
    if session.builds is None:
        skip("gate", str(Advice("name a build", "candidate")), because="nothing to gate: ")
    pairing = selection_of(request.node).pairing or Pairing(ref, None)
    return Gate(ref, session.builds, session.gate_budget, measures, pairing)


def speculation(request: pytest.FixtureRequest) -> Speculation:
    """The draft and the target of the test's marker, which must be there."""
    session = live_session(request)
    selection = selection_of(request.node)
    pairing = selection.pairing
    if pairing is None:
        raise ConfigError(
            f"{request.node.nodeid}: the speculation fixture needs a speculative marker",
            remedy='write @pytest.mark.speculative(draft="asperf-draft:Q8_0", '
            'target="asperf-target:F16", k=4)',
        )
    measures = measurement(request, pairing.target)
    request.addfinalizer(measures.runner.close)
    return Speculation(
        pairing,
        session.gate_budget,
        measures,
        partial(selection.draft, pairing.target),
        session.settings.remote,
    )


def perplexity(
    request: pytest.FixtureRequest, ref: ModelRef, measures: MeasurementContext
) -> Quant:
    """The test's one quantization, which shares its pass over the corpus with other tests' ones."""
    base = selection_of(request.node).baseline(ref)
    name = ref.level if ref.level != base.level else ref.spec.settings.kv_name
    if ref.spec.name != base.spec.name:
        name = ref.label
    joint = joint_rungs(request.node, base, (ref,))
    chunks = selection_of(request.node).chunks
    return Ladder(base, {str(name): ref}, measures, joint, chunks)[str(name)]


def ladder(request: pytest.FixtureRequest, measures: MeasurementContext) -> Ladder:
    """All quantizations of the test's marker, which must be there."""
    selection = selection_of(request.node)
    rungs = selection.rungs
    if not rungs:
        raise ConfigError(
            f"{request.node.nodeid}: the fixture `ladder` needs a quant_ladder or kv_ladder marker",
            remedy='write @pytest.mark.quant_ladder("Q8_0", "Q6_K")',
        )
    base = selection.baseline(next(iter(rungs.values())))
    joint = joint_rungs(request.node, base, tuple(rungs.values()))
    return Ladder(base, rungs, measures, joint, selection.chunks)
