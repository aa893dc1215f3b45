"""The values of a test's fixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_asperf.api.energy import Energy
    from pytest_asperf.api.gate import Gate
    from pytest_asperf.api.ladder import Ladder, Quant
    from pytest_asperf.api.latency import Latency
    from pytest_asperf.api.measurement_context import MeasurementContext, ModelUnderTest
    from pytest_asperf.api.memory import Memory
    from pytest_asperf.api.model import Model
    from pytest_asperf.api.speculation import Speculation
    from pytest_asperf.api.throughput import Throughput
    from pytest_asperf.config.spec import ModelRef
    from pytest_asperf.hardware.in_force import Hardware


@pytest.fixture(scope="session")
def hardware(pytestconfig: pytest.Config) -> Hardware:
    """The hardware that numbers are compared with: the declared profile, or this machine."""
    from pytest_asperf.plugin.stash import session_of

    return session_of(pytestconfig).hardware


@pytest.fixture
def quant(request: pytest.FixtureRequest) -> str | None:
    """The quantization that a test measures: the sweep's, the marker's, or None."""
    from pytest_asperf.plugin import fixture_values as given

    rung: str | None = getattr(request, "param", None)
    return given.level(request) if rung is None else rung


@pytest.fixture
def kv_type(request: pytest.FixtureRequest) -> str | None:
    """The type of the KV cache that a test measures in a sweep, or None."""
    return getattr(request, "param", None)


@pytest.fixture
def _asperf_bench(request: pytest.FixtureRequest) -> MeasurementContext:
    from pytest_asperf.plugin import fixture_values as given

    given.live_session(request)
    return given.measurement(request)


@pytest.fixture
def _asperf_ref(request: pytest.FixtureRequest, quant: str | None, kv_type: str | None) -> ModelRef:
    from pytest_asperf.plugin.selection import selection_of

    return selection_of(request.node).model(quant, kv_type)


@pytest.fixture
def _asperf_variant(_asperf_ref: ModelRef, _asperf_bench: MeasurementContext) -> ModelUnderTest:
    from pytest_asperf.api.measurement_context import ModelUnderTest

    return ModelUnderTest(_asperf_ref, _asperf_bench)


@pytest.fixture
def model(request: pytest.FixtureRequest, _asperf_ref: ModelRef) -> Model:
    """The model that a test's markers name; nothing is timed for it."""
    from pytest_asperf.api.measurement_context import ModelUnderTest
    from pytest_asperf.api.model import Model
    from pytest_asperf.plugin import fixture_values as given

    return Model(ModelUnderTest(_asperf_ref, given.measurement(request, _asperf_ref)))


@pytest.fixture
def memory(_asperf_variant: ModelUnderTest) -> Memory:
    """The memory of the model; call it with the context to fill, in tokens."""
    from pytest_asperf.api.memory import Memory

    return Memory(_asperf_variant)


@pytest.fixture
def throughput(_asperf_variant: ModelUnderTest) -> Throughput:
    """The rate of a workload; call it with the name: `pp512`, `tg128`, `tg128@d1024`."""
    from pytest_asperf.api.throughput import Throughput

    return Throughput(_asperf_variant)


@pytest.fixture
def latency(_asperf_variant: ModelUnderTest) -> Latency:
    """The time that a user waits for; call it with `ttft512`, `pp512+tg128` or `tg128`."""
    from pytest_asperf.api.latency import Latency

    return Latency(_asperf_variant)


@pytest.fixture
def energy(_asperf_variant: ModelUnderTest) -> Energy:
    """The energy of a token; call it with the name of one phase, `tg128` or `pp512`."""
    from pytest_asperf.api.energy import Energy

    return Energy(_asperf_variant)


@pytest.fixture
def gate(
    request: pytest.FixtureRequest, _asperf_ref: ModelRef, _asperf_bench: MeasurementContext
) -> Gate:
    """The candidate build against the baseline; call it with workloads, `ppl` or `logits`."""
    from pytest_asperf.plugin import fixture_values as given

    return given.gates(request, _asperf_ref, _asperf_bench)


@pytest.fixture
def speculation(request: pytest.FixtureRequest) -> Speculation:
    """The draft and the target of the test's `speculative` marker, against the target alone."""
    from pytest_asperf.plugin import fixture_values as given

    return given.speculation(request)


@pytest.fixture
def perplexity(
    request: pytest.FixtureRequest, _asperf_ref: ModelRef, _asperf_bench: MeasurementContext
) -> Quant:
    """PPL and KLD of the test's quantization, or KV cache, against its baseline."""
    from pytest_asperf.plugin import fixture_values as given

    return given.perplexity(request, _asperf_ref, _asperf_bench)


@pytest.fixture
def ladder(request: pytest.FixtureRequest, _asperf_bench: MeasurementContext) -> Ladder:
    """All quantizations of the test's `quant_ladder` or `kv_ladder` marker, in its order."""
    from pytest_asperf.plugin import fixture_values as given

    return given.ladder(request, _asperf_bench)
