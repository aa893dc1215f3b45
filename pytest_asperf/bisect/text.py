"""How a bisection reads: what it will cost, a line for each gate, the answer, the map."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.bisect.search import (
    Ending,
    GateStep,
    gates_at_most,
    gates_to_name,
    narrowed,
    steps,
)
from pytest_asperf.config.build_sources import Checkout, Packages
from pytest_asperf.errors import printable
from pytest_asperf.gate.cells import GateCheck
from pytest_asperf.report.sections import CheckLine, Section

if TYPE_CHECKING:
    from pytest_asperf.bisect.record import BisectRecord, JudgedGate
    from pytest_asperf.bisect.run import BisectRequest
    from pytest_asperf.bisect.search import Answer
    from pytest_asperf.config.spec import Build

_PURPOSES: Final = {
    "candidate": "does the candidate fail at all?",
    "search": "before the culprit, or not?",
    "confirm": "the two sides against each other",
    "map": "the effect over the builds",
}


def announcement(question: BisectRequest) -> tuple[str, ...]:
    """Return what is bisected, and how many gates it may take."""
    n, most = question.n, gates_at_most(question.n)
    ends = (question.candidates[0].build.name, question.candidates[-1].build.name)
    return (
        printable(
            f"{n} builds after {ends[0]}, up to {ends[1]}: which is the first to fail "
            f"{question.cell.name} of {question.cell.ref.title} within "
            f"+{100 * question.limit:g} %?"
        ),
        (
            f"{min(most, gates_to_name(n))} gates name it where all later builds fail too; the "
            f"error of 5 % is shared by {most} at most"
        ),
    )


def gate_line(question: BisectRequest, gate: GateStep, found: JudgedGate) -> str:
    """Return a gate that is over, on one line."""
    base, candidate = (question.candidates[i].build.name for i in (gate.base, gate.candidate))
    effect = f" {found.effect}, {found.effect.n} {found.effect.counted}" if found.effect else ""
    told = effect or f" {found.told}"
    return printable(
        f"{found.outcome:12}  {candidate} against {base}: {told.strip()} ({found.elapsed_s:.0f} s)"
    )


def known_so_far(question: BisectRequest, record: BisectRecord) -> str:
    """Return what an interrupted bisection knows."""
    sides = narrowed(question.n, record.findings)
    if sides is None:
        return "stopped: nothing is known yet"
    left = sides.candidate - sides.base
    after, at = (question.candidates[i].build.name for i in (sides.base, sides.candidate))
    which = f"it is {at}" if left == 1 else f"it is one of {left} behind {after}, up to {at}"
    return printable(
        f"stopped after {_gates(len(record.gates))}: if one build made it slower, {which}; "
        "the same command goes on from here"
    )


def answer_sections(question: BisectRequest, record: BisectRecord, answer: Answer) -> list[Section]:
    """Return the answer: what it is, how large, and how to see it again."""
    found = record.gates.get(answer.step)
    title = {
        Ending.CULPRIT: f"culprit: {_named(question, answer.at)}",
        Ending.RANGE: f"no single culprit: one of {answer.at - answer.after} builds",
        Ending.MAP: "no single culprit: more than one step",
        Ending.NO_REGRESSION: "nothing to bisect",
        Ending.BROKEN: "nothing to bisect: the candidate cannot be judged",
    }[answer.ending]
    checks = [CheckLine("because", "measured", answer.why)] if answer.why else []
    if answer.ending in {Ending.CULPRIT, Ending.RANGE}:
        checks.append(_plain("before", f"{_named(question, answer.after)} passes"))
    if answer.ending is Ending.RANGE:
        checks.append(_plain("behind", f"{_named(question, answer.at)} fails"))
    if found is not None and answer.ending is not Ending.MAP:
        checks.append(_plain("effect", _sized(question, found)))
    elapsed_s = sum(each.elapsed_s for each in record.gates.values())
    most = gates_at_most(question.n)
    judged = sum(found.outcome is not Outcome.INVALID for found in record.gates.values())
    skipped = len(record.gates) - judged
    also = f", {skipped} not judged" if skipped else ""
    checks.append(_plain("gates", f"{judged} of at most {most}{also}, {_time(elapsed_s)}"))
    if answer.ending in {Ending.CULPRIT, Ending.RANGE}:
        checks += _again(question, record, answer.step)
    return [Section(printable(title), tuple(checks))]


def map_rows(question: BisectRequest, record: BisectRecord) -> list[tuple[str, ...]]:
    """Return the effect over the builds against the baseline, with the steps marked."""
    marks = {gate.candidate: gate.base for gate in steps(question.n, record.findings)}
    rows: list[tuple[str, ...]] = [("build", "against the baseline", "verdict", "step")]
    rows.append((printable(question.candidates[0].build.name), "", "baseline", ""))
    for number in range(1, question.n + 1):
        found = record.gates.get(GateStep(0, number))
        if found is None:
            continue
        mark = ""
        if number in marks:
            up = _middle(record, number) > _middle(record, marks[number])
            mark = "worse" if up else "better"
            if number - marks[number] > 1:
                mark += f", within {number - marks[number]} builds"
        effect = "" if found.effect is None else str(found.effect)
        name = printable(question.candidates[number].build.name)
        rows.append((name, effect, str(found.outcome), mark))
    return rows


def map_sections(question: BisectRequest, record: BisectRecord) -> list[Section]:
    """Return how to look closer at each step of the map."""
    checks = tuple(
        check
        for gate in steps(question.n, record.findings)
        for check in _again(question, record, gate)
    )
    return [Section("the steps", checks)] if checks else []


def _plain(name: str, text: str) -> CheckLine:
    return CheckLine(name, "measured", printable(text))


def _named(question: BisectRequest, number: int) -> str:
    candidate = question.candidates[number]
    return f"{candidate.build.name}" + (f" ({candidate.about})" if candidate.about else "")


def _sized(question: BisectRequest, found: JudgedGate) -> str:
    if found.effect is None:
        return found.told
    is_ppl = question.cell.workload is GateCheck.PPL
    what = "PPL" if is_ppl else f"cost of {question.cell.name}"
    effect = found.effect
    return (
        f"{effect} in {what} of {question.cell.ref.title}, {effect.n} {effect.counted}, "
        f"{100 * effect.confidence:.4g} %"
    )


def _middle(record: BisectRecord, number: int) -> float:
    found = record.gates.get(GateStep(0, number))
    return 0.0 if found is None or found.effect is None else found.effect.point


def _again(question: BisectRequest, record: BisectRecord, step: GateStep) -> list[CheckLine]:
    """Return the commands that show a step again, or look into it, and what changed in it."""
    builds = [candidate.build for candidate in question.candidates]
    base, candidate = builds[step.base], builds[step.candidate]
    between = range(step.base + 1, step.candidate)
    is_open = any(GateStep(0, build) not in record.gates for build in between)
    if not all(_is_known(question, number) for number in (step.base, step.candidate)):
        told = " and ".join(build.name for build in (base, candidate))
        text = f"declare {told} in [tool.asperf.builds] with all that the ends have, and gate them"
    else:
        listed = ",".join(builds[i].name for i in between) if question.is_listed else ""
        text = _command(question, (base, candidate), record.seed, listed, is_open=is_open)
    checks = [_plain("closer" if is_open else "again", text)]
    if isinstance(base.source, Checkout) and isinstance(candidate.source, Checkout):
        words = ["show", candidate.source.commit]
        if between:
            words = ["log", "--oneline", f"{base.source.commit}..{candidate.source.commit}"]
        place = ["git", "-C", str(candidate.source.repository)]
        checks.append(_plain("change", shlex.join([*place, *words])))
    return checks


def _command(
    question: BisectRequest, builds: tuple[Build, Build], seed: int, listed: str, *, is_open: bool
) -> str:
    cell, names = question.cell, [build.name for build in builds]
    if is_open:
        words = ["bisect", *names, *(["--builds", listed] if listed else [])]
    else:
        words = ["gate", *names]
    words += ["--model", cell.ref.label, "--workload", cell.name]
    tolerance = f"{100 * question.limits.budget.tolerance:g}%"
    return shlex.join(["asperf", *words, "--tolerance", tolerance, "--seed", str(seed)])


def _is_known(question: BisectRequest, number: int) -> bool:
    """Whether a build's name means it on a command line: the ends' do, and any that says it all."""
    source = question.candidates[number].build.source
    if question.is_listed or number in {0, question.n}:
        return True
    if isinstance(source, Packages):
        return not source.env and len(source.requirements) == 1 and not source.files
    return isinstance(source, Checkout) and not source.env and not source.cmake


def _gates(n: int) -> str:
    return f"{n} gate" + ("" if n == 1 else "s")


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 180 else f"{seconds / 60:.0f} min"
