"""Machines and engines side by side."""

from pytest_asperf.records.kinds import AnyRecord
from pytest_asperf.report.page import by_engine, by_machine
from pytest_asperf.report.report_data import ReportData
from tests.report import sample_reports as samples


def _of(hardware: str, host: str, *models: str) -> ReportData:
    noted = [("t", samples.rates(model)) for model in models]
    machine = {**samples.META["machine"], "hardware": hardware}
    return samples.read(noted, machine=machine, host=host)


def test_machines_share_the_models_that_two_of_them_measured() -> None:
    """A measurement of only one of them is left out."""
    (found,) = by_machine([_of("m2ultra", "a", "x", "y"), _of("m1max", "b", "x", "z")])
    assert (found.workload, found.unit, found.names) == ("tg16", "tok/s", ("m2ultra", "m1max"))
    assert {model: list(of) for model, of in found.models.items()} == {"x": ["m2ultra", "m1max"]}


def test_machines_of_one_kind_have_their_hosts_names() -> None:
    """Two of a kind are two; two reports of one are not."""
    (found,) = by_machine([_of("m4", "desk", "x"), _of("m4", "rack", "x")])
    assert found.names == ("m4 desk", "m4 rack")
    assert by_machine([_of("m4", "desk", "x"), _of("m4", "desk", "x")]) == []


def test_engines_share_a_model() -> None:
    """A model on another engine has its name with it; a build of a gate is no engine."""
    rows: list[AnyRecord] = [
        samples.rates("x"),
        samples.rates("x on mlx", library="mlx-lm"),
        samples.rates("y"),
    ]
    rows.append(samples.gate(1.3))
    report = samples.read([("t", row) for row in rows])
    (found,) = by_engine(report.timed)
    assert found.names == ("llama-cpp-python 0.3.36", "mlx-lm 0.3.36")
    assert list(found.models) == ["x"]
