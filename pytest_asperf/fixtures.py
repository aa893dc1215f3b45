"""What a test asks for."""

# ruff: noqa: PLC0415  # imported in every run of its user's environment, used in few

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_asperf.claims import Finding
    from pytest_asperf.handles import (
        Bench,
        Engines,
        Gates,
        Ladder,
        Memories,
        Model,
        Perplexity,
        Throughput,
    )
    from pytest_asperf.hardware.in_force import Hardware
    from pytest_asperf.run import Run
    from pytest_asperf.spec import ModelRef
    from pytest_asperf.speculation_handle import Speculation


@pytest.fixture(scope="session")
def hardware(pytestconfig: pytest.Config) -> Hardware:
    """The hardware that numbers are held against: declared, or this machine."""
    from pytest_asperf.stash import run_of

    return run_of(pytestconfig).hardware


@pytest.fixture
def quant(request: pytest.FixtureRequest) -> str | None:
    """The quantisation level that a test measures: the ladder's rung, the marker's, or None."""
    from pytest_asperf.config import read_marks

    if hasattr(request, "param"):
        level: str = request.param
        return level
    mark = read_marks(request.node).quant
    return mark.level if mark else None


@pytest.fixture
def kv_type(request: pytest.FixtureRequest) -> str | None:
    """The type of the KV cache that a test measures: the ladder's rung, or None."""
    return getattr(request, "param", None)


@pytest.fixture
def _asperf_bench(request: pytest.FixtureRequest) -> Bench:
    _live_run(request)
    return _bench_of(request)


def _bench_of(request: pytest.FixtureRequest) -> Bench:
    from pytest_asperf.config import read_marks
    from pytest_asperf.handles import Bench
    from pytest_asperf.stash import note, run_of

    run = run_of(request.config)
    engine = run.model_of(request.node, read_marks(request.node), None).spec.engine
    return Bench(
        run.lab(engine or run.settings.engine),
        lambda row: note(request.node, row),
        run.ceiling,
        run.roof,
        run.settings.max_cv,
        run.gate_budget,
    )


def _live_run(request: pytest.FixtureRequest) -> Run:
    from pytest_asperf.stash import run_of

    run = run_of(request.config)
    if not run.is_live:
        reason = f"nothing recorded for this test on {run.hardware.headline()}"
        raise pytest.skip.Exception(reason, _use_item_location=True)
    return run


@pytest.fixture
def _asperf_ref(request: pytest.FixtureRequest, quant: str | None, kv_type: str | None) -> ModelRef:
    from pytest_asperf.config import read_marks
    from pytest_asperf.stash import run_of

    marks = read_marks(request.node)
    return run_of(request.config).model_of(request.node, marks, quant, kv_type)


@pytest.fixture
def model(request: pytest.FixtureRequest, _asperf_ref: ModelRef) -> Model:
    """The model that a test's markers name; nothing is measured for it."""
    from pytest_asperf.handles import Model

    return Model(_asperf_ref, _bench_of(request))


@pytest.fixture
def memory(_asperf_ref: ModelRef, _asperf_bench: Bench) -> Memories:
    """Measures what the model takes when called with the context to fill, in tokens."""
    from pytest_asperf.handles import Memories

    return Memories(_asperf_ref, _asperf_bench)


@pytest.fixture
def throughput(_asperf_ref: ModelRef, _asperf_bench: Bench) -> Throughput:
    """Measures a workload when called with its name: `pp512`, `tg128`, `tg128@d1024`."""
    from pytest_asperf.handles import Throughput

    return Throughput(_asperf_ref, _asperf_bench)


@pytest.fixture
def gate(request: pytest.FixtureRequest, _asperf_ref: ModelRef, _asperf_bench: Bench) -> Gates:
    """Holds the candidate build against the baseline when called with workloads."""
    from pytest_asperf.config import read_marks
    from pytest_asperf.handles import Gates
    from pytest_asperf.spec import Pairing
    from pytest_asperf.stash import run_of

    run = run_of(request.config)
    builds = run.builds
    if builds is None:
        pytest.skip("nothing to gate: name the new build with --asperf-candidate")
    mark = read_marks(request.node).speculative
    pairing = (
        run.pairing_of(mark, where=request.node.nodeid) if mark else Pairing(_asperf_ref, None)
    )
    return Gates(_asperf_ref, builds, run.gate_budget, _asperf_bench, pairing)


@pytest.fixture
def speculation(request: pytest.FixtureRequest, _asperf_bench: Bench) -> Speculation:
    """The draft and the target of the test's `speculative` marker, against the target alone."""
    from dataclasses import replace
    from functools import partial

    from pytest_asperf.config import read_marks
    from pytest_asperf.errors import ConfigError
    from pytest_asperf.speculation_handle import Speculation
    from pytest_asperf.stash import run_of

    mark = read_marks(request.node).speculative
    if mark is None:
        raise ConfigError(
            f"{request.node.nodeid}: the speculation fixture needs a speculative marker",
            why="the marker names the draft and the target",
            remedy='write @pytest.mark.speculative(draft="asperf-draft:Q8_0", '
            'target="asperf-target:F16", k=4)',
        )
    run = run_of(request.config)
    pairing = run.pairing_of(mark, where=request.node.nodeid)
    bench = replace(_asperf_bench, lab=run.lab(pairing.target.spec.engine or run.settings.engine))
    find = partial(run.draft_of, pairing.target, where=request.node.nodeid)
    return Speculation(pairing, run.gate_budget, bench, find)


@pytest.fixture
def engines(request: pytest.FixtureRequest, quant: str | None) -> Engines:
    """The test's model on any two engines at matched levels, for `assert_faster`."""
    from pytest_asperf.config import read_marks
    from pytest_asperf.errors import ConfigError
    from pytest_asperf.handles import Engines
    from pytest_asperf.settings import split_address
    from pytest_asperf.stash import note

    run, marks = _live_run(request), read_marks(request.node)
    if marks.model is not None and marks.model.engine is not None:
        raise ConfigError(
            f"{request.node.nodeid}: the model marker names the engine {marks.model.engine}",
            why="two engines are compared, and the claim names them",
            remedy="leave engine= out of the marker",
        )
    return Engines(
        quant or split_address(run.address_of(marks))[1],
        lambda engine, level: run.model_on(engine, request.node, marks, level),
        run.lab,
        run.gate_budget,
        lambda row: note(request.node, row),
    )


@pytest.fixture
def perplexity(
    request: pytest.FixtureRequest, _asperf_ref: ModelRef, _asperf_bench: Bench
) -> Perplexity:
    """PPL and KLD of the test's level, or KV cache, against its baseline, on the same chunks."""
    from pytest_asperf.config import read_marks
    from pytest_asperf.handles import Ladder
    from pytest_asperf.run import at_most
    from pytest_asperf.stash import run_of

    run = run_of(request.config)
    marks = read_marks(request.node)
    ref = _asperf_ref
    base = run.baseline_of(request.node, marks, ref)
    name = ref.level if ref.level != base.level else ref.spec.settings.kv_name
    if ref.spec.name != base.spec.name:
        name = ref.label
    joint = run.joint_rungs(base, (ref,), marks)
    return Ladder(base, {str(name): ref}, _asperf_bench, joint, at_most(marks))[str(name)]


@pytest.fixture
def ladder(request: pytest.FixtureRequest, _asperf_bench: Bench) -> Ladder:
    """All rungs of the test's `quant_ladder` or `kv_ladder` marker, in its order."""
    from pytest_asperf.config import read_marks
    from pytest_asperf.errors import ConfigError
    from pytest_asperf.handles import Ladder
    from pytest_asperf.run import at_most
    from pytest_asperf.stash import run_of

    run = run_of(request.config)
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
    return Ladder(base, rungs, _asperf_bench, joint, at_most(marks))


@pytest.fixture
def asperf_finding(request: pytest.FixtureRequest) -> Finding:
    """A published finding that nothing measures live, one for each test of that name."""
    from pytest_asperf.stash import run_of

    run = run_of(request.config)
    found: Finding = request.param
    reason = run.out_of_scope(found)
    if not reason and run.is_live:
        reason = "nothing measures it live; --asperf-source=recorded judges its published figures"
    if reason:
        raise pytest.skip.Exception(reason, _use_item_location=True)
    return found
