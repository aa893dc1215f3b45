"""The texts that two models generate after the same prompts."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pytest_asperf.measure.running_arms import MODEL, RunningArm, open_together

if TYPE_CHECKING:
    from pytest_asperf.measure.experiment import MachineLease
    from pytest_asperf.measure.results import Provenance


@dataclass(frozen=True)
class Outputs:
    """What two sides generated, baseline first.

    Attributes:
        texts: after each prompt.
        again: what the baseline generated after the first prompt when it was asked once more.
        ran: proof of path.
    """

    texts: tuple[tuple[str, str], ...]
    again: str
    ran: tuple[Provenance, Provenance]


@dataclass(frozen=True, slots=True)
class OutputsExperiment:
    """Has two sides generate after the same prompts; nothing is timed."""

    prompts: tuple[str, ...]
    n_tokens: int

    def run(self, lease: MachineLease) -> Outputs:
        """The outputs of both.

        Raises:
            EngineError: an engine shows no output, or died.
        """
        ((base,), (candidate,)) = lease.sides
        with ExitStack() as stack:
            arms = open_together(
                stack, [partial(RunningArm, arm, lease) for arm in (base, candidate)]
            )
            texts = []
            for number, prompt in enumerate(self.prompts):
                lease.progress("outputs", number, len(self.prompts))
                texts.append(tuple(arm.worker.output(MODEL, prompt, self.n_tokens) for arm in arms))
            again = arms[0].worker.output(MODEL, self.prompts[0], self.n_tokens)
            ran = arms[0].ran(None), arms[1].ran(None)
        return Outputs(tuple((one, other) for one, other in texts), again, ran)
