"""A fixture or a measurement is no truth value: the error shows an assertion on it."""

from collections.abc import Iterator

import pytest

from pytest_asperf import ConfigError
from pytest_asperf.api.energy import Energy, EnergyFigure
from pytest_asperf.api.gate import Gate, GatedBuild, GatedWorkloads
from pytest_asperf.api.ladder import Ladder, Quant
from pytest_asperf.api.latency import Latency, Time
from pytest_asperf.api.measurement_context import FixtureValue, NoTruthValue, OfWorkload
from pytest_asperf.api.memory import AllocatedMemory, Memory
from pytest_asperf.api.model import FileSize, Model, OwnKld, PlannedShare
from pytest_asperf.api.quantity import Figure, Quantity
from pytest_asperf.api.scored import Scored, TokenScores
from pytest_asperf.api.speculation import Gain, PromptSpeculation, RemoteOverhead, Speculation
from pytest_asperf.api.throughput import Rate, Throughput
from pytest_asperf.api.timed import CvFigure

RATE = 'assert throughput("tg128") >= "40 tok/s"'
TIME = 'assert latency("ttft512") <= "250 ms"'
ENERGY = 'assert energy("tg128") <= "0.5 J/token"'
MEMORY = 'assert memory(4096) <= "8 GiB"'
GATE = 'assert_no_regression(gate("tg128", "pp512"), tolerance="5%")'
#: By kind: the assertion to write instead.
EXAMPLES: dict[type[NoTruthValue], str] = {
    **dict.fromkeys((Throughput, Rate, CvFigure, Figure, Scored, Gain), RATE),
    **dict.fromkeys((Latency, Time), TIME),
    **dict.fromkeys((Energy, EnergyFigure), ENERGY),
    **dict.fromkeys((Memory, AllocatedMemory), MEMORY),
    **dict.fromkeys((Gate, GatedWorkloads), GATE),
    GatedBuild: 'assert gate.candidate.throughput("tg128") / gate.baseline.throughput("tg128")',
    Model: 'assert_fits(model, "m2ultra")',
    FileSize: 'assert model.size <= "4 GiB"',
    OwnKld: 'assert model.kld("logits@c4") <= "0.02 nats"',
    PlannedShare: 'assert model.placement("ANE", "m.mlpackage") >= "95%"',
    TokenScores: "assert model.scores(text, n_ubatch=1).agrees",
    Quant: 'assert perplexity.delta < "1%"',
    Ladder: 'assert ladder["Q8_0"].delta < "1%"',
    Speculation: "assert_sd_gain(speculation, when_ratio=2.5)",
    PromptSpeculation: 'assert_lossless(speculation.on("def area("))',
    RemoteOverhead: "assert speculation.overhead_on(remote).per_token <= 2.0",
}


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_a_truth_value_is_an_error_with_an_example(
    kind: type[NoTruthValue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any measurement would pass as one; the error has a comparison, or the assertion's name."""
    monkeypatch.setattr(kind, "__repr__", lambda _: "<it>")
    with pytest.raises(ConfigError, match="<it> is used as a truth value") as raised:
        bool(object.__new__(kind))
    assert f"compare it with a limit, as in {EXAMPLES[kind]}" in str(raised.value.remedy)


def _kinds(of: type[NoTruthValue]) -> Iterator[type[NoTruthValue]]:
    for kind in of.__subclasses__():
        yield kind
        yield from _kinds(kind)


def test_every_kind_has_an_example() -> None:
    """A kind of measurement that is added shows one, its own or that of a quantity."""
    bases = {FixtureValue, OfWorkload}
    kinds = {kind for kind in _kinds(NoTruthValue) if not issubclass(kind, Quantity)}
    assert kinds - bases <= EXAMPLES.keys()
