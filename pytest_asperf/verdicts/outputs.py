"""The verdict on the texts of two models: whether they are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.facts import ComparedSides
from pytest_asperf.analysis.guards.outputs import first_divergence
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict, judge_invalid
from pytest_asperf.errors import shown
from pytest_asperf.verdicts.paired import ran_rows

if TYPE_CHECKING:
    from pytest_asperf.measure.texts import Outputs

_SAME: Final = "identical"
#: Characters that are shown of two texts from where they part.
_SHOWN: Final = 40


def same_output_verdict(outputs: Outputs, names: tuple[str, str], n_tokens: int) -> Verdict:
    """The verdict on what two models generated; they are named baseline first.

    INVALID where the baseline does not repeat itself, or generates nothing.
    """
    subject = Subject(
        f"output of {names[1]} against {names[0]}",
        "live",
        ran_rows(names, outputs.ran),
        if_failed="the handover loses something, or the two compute in other precision: compare "
        "them with the same build, and look at the first difference",
    )
    if not any(one for one, _ in outputs.texts):
        problem = f"{names[0]} generated no text"
        return judge_invalid(subject, _SAME, [problem], remedy="see what its `text` matches")
    if outputs.again != outputs.texts[0][0]:
        problem = (
            f"{names[0]} does not repeat itself: {_parting(outputs.texts[0][0], outputs.again)}"
        )
        return judge_invalid(subject, _SAME, [problem], remedy="have it sample greedily")
    parted = [(n, *pair) for n, pair in enumerate(outputs.texts, 1) if pair[0] != pair[1]]
    n_prompts = len(outputs.texts)
    measured = f"{n_prompts - len(parted)} of {n_prompts} outputs of {n_tokens} tokens are the same"
    return Verdict(
        Outcome.FAIL if parted else Outcome.PASS,
        subject,
        threshold=_SAME,
        measured=measured,
        brief=f"{n_prompts - len(parted)}/{n_prompts} the same",
        bound=_SAME,
        figures=(),
        advice=subject.if_failed if parted else "",
        compared=ComparedSides(ran=(outputs.ran[0].facts(), outputs.ran[1].facts())),
        details=tuple(f"prompt {n}: {_parting(one, other)}" for n, one, other in parted[:3]),
    )


def _parting(one: str, other: str) -> str:
    """The place at which two texts diverge, in words."""
    n = first_divergence(list(map(ord, one)), list(map(ord, other))) or 0
    sides = " and ".join(shown(text[n : n + _SHOWN], 2 * _SHOWN) for text in (one, other))
    return f"from character {n + 1} on {sides}"
