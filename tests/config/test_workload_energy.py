"""Names of workloads whose energy is judged."""

import pytest

from pytest_asperf.config.workload import Workload, is_workload, parse_workload
from pytest_asperf.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "workload"),
    [
        ("jtg128", Workload("tg", 128, metered=True)),
        ("jpp512", Workload("pp", 512, metered=True)),
        ("jtg64@d1024", Workload("tg", 64, 1024, metered=True)),
    ],
)
def test_the_energy_of_one_phase(name: str, workload: Workload) -> None:
    """A `j` before a phase; it is written as it is read."""
    assert parse_workload(name, where="", any_cost=True) == workload
    assert workload.name == name
    assert is_workload(name)


@pytest.mark.parametrize("name", ["jttft512", "jsd", "j", "jjtg128", "jpp0", "Jtg128"])
def test_what_holds_more_than_a_phase_is_none(name: str) -> None:
    """J per token are those of one kind of work."""
    with pytest.raises(ConfigError, match="is not a workload"):
        parse_workload(name, where="gate", any_cost=True)
    with pytest.raises(ConfigError, match=r"pp8\+tg8 is not one phase"):
        parse_workload("jpp8+tg8", where="gate", any_cost=True)


def test_an_energy_is_no_time() -> None:
    """If a time or a rate is judged, the remedy names its fixture."""
    with pytest.raises(ConfigError, match="throughput: jtg128 is an energy") as error:
        parse_workload("jtg128", where="throughput")
    assert 'gate("jtg128")' in error.value.remedy
