"""`asperf compare`: published statements and figures next to reports."""

from collections.abc import Callable

import pytest

from tests.commands.conftest import Ended
from tests.commands.test_compare import RunAsperf, report_on


def test_published_statements_are_judged_by_reports_of_their_machines(
    compare: Callable[..., Ended],
) -> None:
    """With all machines of a statement there, its check gets the measured rates."""
    three = [report_on(chip, rate) for chip, rate in (("m2ultra-76", 42.4), ("m1max-32", 21.8))]
    done = compare(*three, report_on("m2pro-19", 12.7))
    assert "PASS m2ultra-twice-m2pro: " in done.stdout
    assert "FAIL tg-proportional-to-bandwidth: " in done.stdout
    done = compare(*three, report_on("m2pro-19", 25.0))
    assert "FAIL m2ultra-twice-m2pro: " in done.stdout
    assert "m2ultra-twice-m2pro" not in compare(*three).stdout


@pytest.mark.parametrize(
    ("m5_tok_s", "outcome"), [(24, "PASS"), (20, "FAIL"), (30, "FAIL"), (22.1, "INCONCLUSIVE")]
)
def test_a_statement_about_two_machines_is_judged_by_their_ratio(
    m5_tok_s: float, outcome: str, compare: Callable[..., Ended]
) -> None:
    """An M5 is stated to generate a fifth faster than an M4: 10 to 28 %, in either order."""
    done = compare(report_on("m5-10", m5_tok_s), report_on("m4-10", 20))
    assert f"{outcome} m5-faster-than-m4: " in done.stdout
    assert "m4pro-follows-bandwidth" not in done.stdout


def test_a_machine_beside_published_figures(
    compare: Callable[..., Ended], run_asperf: RunAsperf
) -> None:
    """Shares of bandwidth here and as published, without a verdict; two reports are needed."""
    compare(report_on("m1max-32", 8))
    done = run_asperf("compare", "a.json", "atom-paper")
    assert done.returncode == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    (here,) = (line[-5:] for line in lines if "88" in line)
    assert here[-3:] == ["88", "22.0", "%"]
    published = [line for line in lines if "published" in line]
    assert [(line[0], line[-2]) for line in published] == [
        ("m2ultra-76", "64"),
        ("m1max-32", "66"),
        ("m2pro-19", "77"),
    ]
    assert published[0][-3] == "512"
    assert "shares of bandwidth can be compared" in done.stdout
    assert run_asperf("compare", "atom-paper").returncode != 0
