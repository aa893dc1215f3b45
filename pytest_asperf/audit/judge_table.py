"""Guards on tables of results: spread, acceptance bounds, identical arms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_asperf.analysis import guards
from pytest_asperf.audit.known import DEFAULT_REPETITIONS, Known

if TYPE_CHECKING:
    from pytest_asperf.audit.result import FileFindings
    from pytest_asperf.audit.tables import TableRow


def judge_table(rows: tuple[TableRow, ...], known: Known, findings: FileFindings) -> None:
    """Apply the guards to each row, and compare arms with their baseline."""
    for row in rows:
        _judge_row(row, known, findings)
    baselines = {row.workload: row for row in rows if row.is_baseline}
    for row in rows:
        baseline = baselines.get(row.workload)
        if baseline is not None and not row.is_baseline:
            guard_finding = guards.identical_to_baseline(row.compared, baseline.compared)
            findings.add(f"{row.label} and {baseline.label}", guard_finding)
    findings.notes.append("a table without raw figures: it shows only what its author kept")


def _judge_row(row: TableRow, known: Known, findings: FileFindings) -> None:
    numbers = row.numbers
    rate, sd = numbers.get("rate"), numbers.get("rate sd")
    size = "".join(f"{test}{numbers[n]:g} " for test, n in _SIZES if numbers.get(n))
    if rate:
        spread = "" if sd is None else f" ± {sd:.3g}"
        drafted, accepted = numbers.get("drafted"), numbers.get("accepted", 0.0)
        share = f", acceptance {accepted / drafted:.2%}" if drafted else ""
        findings.measured(f"{size}{row.label}", text=f"{rate:.4g}{spread} tok/s{share}")
        if sd is not None:
            repetitions = known.options.repetitions or DEFAULT_REPETITIONS
            findings.add(f"{size}{row.label}", guards.spread(rate, sd, repetitions))
        _judge_speculation(row, rate, known, findings)
    elif "PPL" in numbers:
        se = f" ± {numbers['PPL se']:.3g}, unpaired" if "PPL se" in numbers else ""
        findings.measured(f"PPL {row.label}", text=f"{numbers['PPL']:.5g}{se}")
    else:
        findings.notes.append(f"{row.label}: no figure")


_SIZES = (("pp", "n_prompt"), ("tg", "n_gen"))


def _judge_speculation(row: TableRow, rate: float, known: Known, findings: FileFindings) -> None:
    """Check a rate against the target alone, if one of the files has that."""
    k, drafted = int(row.numbers.get("k", 0)), int(row.numbers.get("drafted", 0))
    accepted = int(row.numbers.get("accepted", 0))
    machines = [row.words.get("machine", "")]
    alone = known.rate_alone(row.words.get("target", ""), machines)
    if not alone or k < 1 or not 0 <= accepted <= drafted or drafted < 1:
        return
    draft_alone = known.rate_alone(row.words.get("draft", ""), machines)
    c = alone / draft_alone if draft_alone else 0.0
    guard_finding = guards.sd_bound(rate, alone, k=k, drafted=drafted, accepted=accepted, c=c)
    findings.add(row.label, guard_finding)
