from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plugin.conftest import Project

CLAIM = """
@pytest.mark.model("asperf-draft:F16")
def test_it(throughput):
    assert_bandwidth_utilization({claim})
"""


@pytest.mark.parametrize(
    "claim",
    ['throughput("tg128"), at_most="1000%"', 'throughput("tg16"), at_least="0.1%"'],
)
def test_a_share_within_its_limits(live: Project, claim: str) -> None:
    """Limits that hold on any machine, and that a wrong unit, a factor of 1,000, would break."""
    live.test(CLAIM.format(claim=claim))
    result = live.run()
    result.stdout.fnmatch_lines(["test_it.py . *", "✓ *utilisation of * GB/s (*"])


def test_a_model_in_the_cache_is_not_judged(live: Project) -> None:
    """What memory does not bound cannot break a limit of it: INVALID, not FAIL."""
    live.test(CLAIM.format(claim='throughput("tg16"), at_most=1e-9'))
    result = live.run()
    result.stdout.fnmatch_lines(["test_it.py V *", "E *INVALID *fit in the * last-level cache*"])


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        ('throughput("pp16"), at_most="100%"', "bandwidth utilisation is not defined for pp16"),
        ('throughput("tg16")', "is not a range"),
        ('throughput("tg16"), at_most="80"', "at_most: '80' is not a usable limit"),
        ('throughput("tg16"), at_most=1', "at_most: 1 is not a usable limit: it has no unit"),
        ('throughput("tg16"), at_least=0.9, at_most=0.5', "is not a range"),
    ],
)
def test_nonsense_is_an_error(live: Project, claim: str, told: str) -> None:
    """A claim without a meaning is refused at the test's own line."""
    live.test(CLAIM.format(claim=claim))
    result = live.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{told}*", "  what to do: *", "test_it.py:6: ConfigError"])


def test_hardware_of_unknown_bandwidth(live: Project) -> None:
    """Live numbers of this machine say nothing about another chip's memory."""
    live.test(CLAIM.format(claim='throughput("tg16"), at_most="100%"'))
    result = live.run("--asperf-hardware=rtx4090", "--asperf-source=live")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["the memory bandwidth of * is not known", "  what to do: *"])


def test_an_engine_without_weights_has_no_share(project: Project) -> None:
    """Where nobody knows what a step reads there is nothing to take a share of."""
    project.test(
        CLAIM.format(claim='throughput("tg16"), at_most="100%"').replace("asperf-draft", "fake")
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["bandwidth utilisation is not defined for tg16"])
