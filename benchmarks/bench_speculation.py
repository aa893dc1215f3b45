"""Measured against predicted gain, on one draft and a target that is padded to speed ratios."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from models import BUILD, SETTINGS
from timing import table

from pytest_asperf.analysis.speculation_model import break_even_text
from pytest_asperf.builds.build_cache import ReadyBuild
from pytest_asperf.config.spec import ModelRef, Pairing, Variant
from pytest_asperf.hardware.in_force import detect
from pytest_asperf.measure.ab_speed import Budget
from pytest_asperf.measure.experiment import Arm, MachineLease, MeasurementPlan
from pytest_asperf.measure.noise import NoiseStore
from pytest_asperf.measure.speculation import GainExperiment
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.hub_cache import shipped_corpus, shipped_models
from pytest_asperf.modelfiles.locate import ModelLocator

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_asperf.measure.speculation_result import SpeculationResult

#: Layers added to the draft, so that it is hardly faster than the target, and to the target.
_DRAFT_LAYERS: Final = 12
_TARGET_LAYERS: Final = (0, 4, 9, 20, 46)
_TOLERANCE: Final = 0.05
_BUDGET: Final = Budget(0.05, max_pairs=8, max_seconds=120, seed=20261121)


def main(chosen: list[str]) -> bool:
    """Print the table; return True if predictions were right."""
    locator = ModelLocator(BUILD, cache=cache_root(os.environ), call_timeout_s=600)
    rows, good, counts = [], True, set()
    for layers in map(int, chosen or _TARGET_LAYERS):
        result = measure(locator, layers)
        gain, predicted = result.gain, result.predicted_gain
        off = gain.point - predicted.point
        decided = not gain.low <= 0 <= gain.high
        holds = abs(off) <= _TOLERANCE and (not decided or predicted.point * gain.point > 0)
        good &= holds
        counts.add(
            (result.counts.accepted / len(result.pairs), result.counts.drafted / len(result.pairs))
        )
        rows.append(
            (
                result.pairing.target.label,
                f"{result.ratio.point:.2f}",
                gain.text(),
                predicted.text(),
                f"{100 * off:+.1f}",
                f"{100 * result.counts.acceptance:.1f} %",
                f"{result.verify[result.pairing.k + 1].point:.2f}",
                break_even_text(
                    result.break_even_ratio, result.counts.mean_length, result.verifying
                ),
                "yes" if holds else "**no**",
            )
        )
        print(rows[-1], file=sys.stderr, flush=True)
    header = ("target", "ratio", "gain", "predicted", "difference, pp", "acceptance", "C(5)")
    print("### Gain against prediction\n")
    print(table((*header, "break-even", "holds"), rows))
    print(f"\naccepted and drafted tokens per pair: {sorted(counts)}")
    return good and len(counts) == 1


def measure(
    locator: ModelLocator,
    layers: int,
    *,
    n_tokens: int = 48,
    prompts: Path | None = None,
    budget: Budget = _BUDGET,
) -> SpeculationResult:
    """Measure the padded draft on a target with so many layers more."""
    specs = {spec.name: replace(spec, settings=SETTINGS) for spec in shipped_models()}
    target, draft = specs["asperf-target"], specs["asperf-draft"]
    if layers:
        name = f"{target.name}+layers={layers}"
        target = replace(target, name=name, variant=Variant("layers", layers))
    name = f"{draft.name}+layers={_DRAFT_LAYERS}"
    draft = replace(draft, name=name, variant=Variant("layers", _DRAFT_LAYERS))
    pairing = Pairing(ModelRef(target, "F16"), ModelRef(draft, "Q8_0"), k=4, n_tokens=n_tokens)
    pairing = replace(pairing, prompts=prompts)
    arms = tuple(
        Arm(ref.title, ReadyBuild(BUILD), ref.spec.settings, locator.locate(ref))
        for ref in (pairing.target, ModelRef(draft, "Q8_0"))
    )
    noise = partial(NoiseStore, cache_root(os.environ), detect())
    lease = MachineLease((arms,), shipped_corpus(), MeasurementPlan(), lambda *_: None, noise)
    return GainExperiment(pairing, budget, limits=(0.0,)).run(lease)


if __name__ == "__main__":
    raise SystemExit(not main(sys.argv[1:]))
