"""The figures of a measurement of speculation as a table and a picture show them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_asperf.records.kinds import SpeculationRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.records.kinds import AnyRecord


def speculation_of(records: Iterable[AnyRecord]) -> list[SpeculationRecord]:
    """Each measurement of speculation once, though each of several tests notes it."""
    measured = (record for record in records if isinstance(record, SpeculationRecord))
    distinct = {(record.label, record.gain, record.facts): record for record in measured}
    return list(distinct.values())


def predicted_at(measured: SpeculationRecord, ratio: float) -> float:
    """The gain predicted for a draft of another speed that is accepted as often."""
    drafting = measured.drafting * measured.ratio.point / ratio
    return measured.mean_length / (drafting + measured.verifying) - 1


def cells(measured: SpeculationRecord) -> tuple[str, ...]:
    """Ratio, gain, predicted gain, acceptance, break-even and best k as text."""
    return (
        ratio_text(measured.ratio.point),
        "INVALID" if measured.is_invalid else _gain_text(measured.gain),
        _gain_text(measured.predicted_gain),
        f"{100 * measured.acceptance:.1f} %",
        ratio_text(measured.break_even_ratio),
        f"{measured.best_k}: {100 * measured.best_k_gain:+.1f} %",
    )


def explanation(measured: SpeculationRecord) -> str:
    """The reasons of the gain: acceptance, speeds, and the gain that they predict."""
    ratio, _, predicted, accepted, even, best = cells(measured)
    invalid = "INVALID: " if measured.is_invalid else ""
    return (
        f"{invalid}{accepted} accepted, {measured.mean_length:.2f} tokens a round, ratio {ratio}, "
        f"break-even {even}, predicted {predicted}, best k={best}"
    )


def ratio_text(ratio: float | None) -> str:
    """A speed ratio, or that there is none."""
    if ratio is None:
        return "none"
    return f"{ratio:,.0f} x" if ratio >= 1000 else f"{ratio:.3g} x"


def closed(estimate: Estimate) -> Estimate:
    """The estimate, with its point as the bounds that are not known."""
    if estimate.has_interval:
        return estimate
    return replace(estimate, low=estimate.point, high=estimate.point)


def _gain_text(gain: Estimate) -> str:
    of = closed(gain)
    interval = f" [{100 * of.low:.1f}, {100 * of.high:.1f}]" if of.low < of.high else ""
    return f"{100 * gain.point:+.1f} %{interval}"
