"""A verdict in words: on one line, in few lines, as a lab note; and the error that shows it."""

from collections.abc import Iterable, Sequence
from typing import Final

from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.errors import Advice, printable
from pytest_asperf.report.result_text import in_words

#: The reason for no other verdict, if there is nothing to add.
_WHY: Final = {Outcome.INCONCLUSIVE: "the interval contains the limit"}
#: The run record, shortened to one line.
_KEPT: Final = ("model", "sha256")
_MEANING: Final = {
    Outcome.PASS: "the assertion is shown true",
    Outcome.FAIL: "the assertion is shown false",
    Outcome.INCONCLUSIVE: "not decided",
    Outcome.INVALID: "the measurement is broken",
}


class VerdictError(AssertionError):
    """An assertion that did not pass; its text is the verdict's lab note.

    Attributes:
        verdict: the verdict; a test that catches the error must read its outcome.
    """

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__(lab_note(verdict.plain()))


def claim_text(verdict: Verdict) -> str:
    """The assertion as one phrase."""
    return f"{verdict.subject} {in_words(verdict).threshold}".rstrip()


def claim_line(verdict: Verdict) -> str:
    """The assertion and what was measured, as one phrase."""
    return f"{claim_text(verdict)}: {in_words(verdict).measured}"


def advice_text(advice: Iterable[Advice]) -> str:
    """The advice as one phrase."""
    return "; ".join(map(str, advice))


def line(verdict: Verdict) -> str:
    """The verdict on one line, safe to print."""
    basis = [
        *dict.fromkeys(one.estimate.basis for one in verdict.figures if one.estimate.basis),
        *([verdict.source] if verdict.source != "live" else []),
    ]
    tail = f" ({', '.join(basis)})" if basis else ""
    return f"{verdict.outcome}  {printable(claim_line(verdict))}{tail}"


def short_note(verdict: Verdict) -> tuple[str, ...]:
    """The failure, its reason, the remedy and the run record, one line each, safe to print."""
    facts = dict(verdict.facts)
    sides = ("", "candidate ", "target ")
    kept = [facts.get(f"{side}{label}", "") for label in _KEPT for side in sides]
    said = in_words(verdict)
    limit = said.bound or said.threshold
    found = (said.brief or said.measured, f"wanted {limit}" if limit else "")
    lines = (
        (str(verdict.outcome), f"{verdict.subject_brief or verdict.subject}: {', '.join(found)}"),
        ("why", said.why or _WHY.get(verdict.outcome, "")),
        ("do", advice_text(verdict.advice)),
        ("ran", any(kept) and ", ".join([*filter(None, kept), "-v for all"])),
    )
    return tuple(f"{head:13} {printable(text, 300)}" for head, text in lines if text)


def lab_note(verdict: Verdict, *, with_ran: bool = True) -> str:
    """The verdict as a lab note of several lines, safe to print; with the run record, or not."""
    said = in_words(verdict)
    rows = [("assertion", claim_text(verdict)), ("measured", said.measured)]
    remarks = (*said.details, *map(str, verdict.guards))
    rows += [("", remark) for remark in remarks]
    if len(verdict.figures) == 1:
        rows += [("interval", _how(verdict.figures[0].estimate))]
    else:
        each = ((one.label, one.estimate) for one in verdict.figures)
        rows += [("intervals", f"{label} {estimate}; {_how(estimate)}") for label, estimate in each]
    rows += [("threshold", said.threshold)]
    facts = verdict.facts if with_ran else ()
    rows += [(f"ran ({verdict.source})", f"{k}: {v}") for k, v in facts]
    if verdict.advice:
        rows += [("what to do", advice_text(verdict.advice))]
    return "\n".join([f"{verdict.outcome}: {_MEANING[verdict.outcome]}", *_table(rows)])


def _how(estimate: Estimate) -> str:
    if estimate.is_exact:
        return estimate.method
    two_sided, one_sided = 100 * estimate.confidence, 50 * (1 - estimate.confidence)
    return (
        f"{two_sided:.4g} % two-sided, so each bound errs in at most {one_sided:.3g} % of runs; "
        f"{estimate.method}, {estimate.basis}"
    )


def _table(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Lines with aligned labels; a repeated label is printed once."""
    width = max(len(label) for label, _ in rows) + 1
    lines, previous = [], ""
    for label, text in rows:
        head = "" if label in {"", previous} else f"{label}:"
        lines.append(f"  {head:<{width}} {printable(text)}")
        previous = label
    return lines
