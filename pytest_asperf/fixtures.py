"""What a test asks for."""

# ruff: noqa: PLC0415  # imported in every run of its user's environment, used in few

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_asperf.handles import Bench, Gates, Ladder, Model, Perplexity, Throughput
    from pytest_asperf.hardware.in_force import Hardware
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
def _asperf_bench(request: pytest.FixtureRequest) -> Bench:
    from pytest_asperf.config import read_marks
    from pytest_asperf.handles import Bench
    from pytest_asperf.stash import note, run_of

    run = run_of(request.config)
    if not run.is_live:
        reason = f"nothing recorded for this test on {run.hardware.headline()}"
        raise pytest.skip.Exception(reason, _use_item_location=True)
    engine = run.model_of(request.node, read_marks(request.node), None).spec.engine
    return Bench(
        run.lab(engine or run.settings.engine),
        lambda row: note(request.node, row),
        run.ceiling,
        run.roof,
        run.settings.max_cv,
    )


@pytest.fixture
def _asperf_ref(request: pytest.FixtureRequest, quant: str | None) -> ModelRef:
    from pytest_asperf.config import read_marks
    from pytest_asperf.stash import run_of

    return run_of(request.config).model_of(request.node, read_marks(request.node), quant)


@pytest.fixture
def model(_asperf_ref: ModelRef, _asperf_bench: Bench) -> Model:
    """The model that a test measures."""
    from pytest_asperf.handles import Model

    return Model(_asperf_ref, _asperf_bench)


@pytest.fixture
def throughput(_asperf_ref: ModelRef, _asperf_bench: Bench) -> Throughput:
    """Measures a workload when called with its name: `pp512`, `tg128`, `tg128@d1024`."""
    from pytest_asperf.handles import Throughput

    return Throughput(_asperf_ref, _asperf_bench)


@pytest.fixture
def gate(request: pytest.FixtureRequest, _asperf_ref: ModelRef, _asperf_bench: Bench) -> Gates:
    """Holds the candidate build against the baseline when called with workloads."""
    from pytest_asperf.handles import Gates
    from pytest_asperf.stash import run_of

    run = run_of(request.config)
    builds = run.builds
    if builds is None:
        pytest.skip("nothing to gate: name the new build with --asperf-candidate")
    return Gates(_asperf_ref, builds, run.gate_budget, _asperf_bench)


@pytest.fixture
def speculation(request: pytest.FixtureRequest, _asperf_bench: Bench) -> Speculation:
    """The draft and the target of the test's `speculative` marker, against the target alone."""
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
    return Speculation(pairing, run.gate_budget, _asperf_bench)


@pytest.fixture
def perplexity(
    request: pytest.FixtureRequest, quant: str | None, _asperf_ref: ModelRef, _asperf_bench: Bench
) -> Perplexity:
    """PPL and KLD of the test's level against its baseline, on the same chunks."""
    from pytest_asperf.config import read_marks
    from pytest_asperf.errors import ConfigError
    from pytest_asperf.handles import Ladder
    from pytest_asperf.stash import run_of

    level = quant or _asperf_ref.level
    marks = read_marks(request.node)
    baseline = marks.ladder.baseline if marks.ladder else "F16"
    if level is None or level == baseline:
        raise ConfigError(
            f"{request.node.nodeid}: {_asperf_ref.label} has no level to compare with {baseline}",
            why="ΔPPL and KLD compare two levels",
            remedy='mark the test with quant("Q6_K") or quant_ladder("Q8_0", "Q6_K")',
        )
    run = run_of(request.config)
    wanted = run.ladder_of(request.node, marks, (level,))
    return Ladder((level,), wanted, run.joint_ladder(wanted), _asperf_bench)[level]


@pytest.fixture
def ladder(request: pytest.FixtureRequest, _asperf_bench: Bench) -> Ladder:
    """All levels of the test's `quant_ladder` marker, in its order."""
    from pytest_asperf.config import read_marks
    from pytest_asperf.errors import ConfigError
    from pytest_asperf.handles import Ladder
    from pytest_asperf.stash import run_of

    run = run_of(request.config)
    marks = read_marks(request.node)
    if marks.ladder is None:
        raise ConfigError(
            f"{request.node.nodeid}: the ladder fixture needs a quant_ladder marker",
            why="the marker names the levels",
            remedy='write @pytest.mark.quant_ladder("Q8_0", "Q6_K")',
        )
    levels = marks.ladder.levels
    wanted = run.ladder_of(request.node, marks, levels)
    return Ladder(levels, wanted, run.joint_ladder(wanted), _asperf_bench)
