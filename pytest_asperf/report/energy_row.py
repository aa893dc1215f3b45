"""The row of an energy measurement."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pytest_asperf.report.rows import ReportRow, estimate_data, proof

if TYPE_CHECKING:
    from pytest_asperf.measure.energy import EnergyResult
    from pytest_asperf.measure.metered import PhaseEnergy


def energy_row(result: EnergyResult, note: str) -> ReportRow:
    """J per token of all measured rails, with every window of every counter, and remarks."""
    total = result.joules_per_token()
    parts = [f"{rail} {result.watts(rail).point:.3g} W" for rail in result.rails]
    net = result.joules_per_token(net=True).point
    measured = f"{total.text()}, {net:.3g} net of idle; {', '.join(parts)}"
    raw = {
        "metered": result.workload.name,
        "settings": result.ran.requested.as_dict(),
        "joules_per_token": estimate_data(total),
        "rails": {
            rail: {
                "joules_per_token": estimate_data(result.joules_per_token(rail)),
                "net_joules_per_token": estimate_data(result.joules_per_token(rail, net=True)),
                "watts": estimate_data(result.watts(rail)),
                "idle_watts": result.idle.watts(rail),
            }
            for rail in result.rails
        },
        "unmeasured": {m.rail: m.reason for m in result.phases[-1].unmeasured},
        "idle": _phase(result.idle),
        "phases": [_phase(phase) for phase in result.phases],
        "machine": result.watched.as_dict(),
        **proof(result.ran),
    }
    basis = f"{total.n} {total.counted}"
    name = result.workload.name
    return ReportRow(
        result.ran.model, name, measured, basis, ran=result.ran.rows(), note=note, raw=raw
    )


def _phase(phase: PhaseEnergy) -> dict[str, Any]:
    return {
        "wall_s": phase.wall_s,
        "busy_s": phase.busy_s,
        "n_tokens": phase.n_tokens,
        "windows": [asdict(window) for window in phase.windows],
    }
