"""The text of a bisection: its cost, a line for each gate, the answer, the map."""

import shlex

from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.bisect.run import BisectRecord, BisectRequest, JudgedGate
from pytest_asperf.bisect.search import (
    Answer,
    Ending,
    GateStep,
    gates_at_most,
    gates_to_name,
    narrowed,
    steps,
)
from pytest_asperf.config.build_sources import Archive, Checkout, Packages
from pytest_asperf.config.spec import Build
from pytest_asperf.errors import printable
from pytest_asperf.gate.cells import GateCheck
from pytest_asperf.report.sections import CheckLine, Section


def announcement(request: BisectRequest) -> tuple[str, ...]:
    """The subject of the bisection, and its maximal number of gates."""
    n, max_gates = request.n, gates_at_most(request.n)
    ends = (request.candidates[0].build.name, request.candidates[-1].build.name)
    within = f" within {request.limit}" if request.limit else ""
    return (
        printable(
            f"{n} builds after {ends[0]}, up to {ends[1]}: which is the first to fail "
            f"{request.cell.name} of {request.cell.ref.title}{within}?"
        ),
        (
            f"{min(max_gates, gates_to_name(n))} gates find it if all later builds fail too; "
            f"at most {max_gates} share the error of 5 %"
        ),
    )


def gate_line(request: BisectRequest, gate: GateStep, judged: JudgedGate) -> str:
    """A gate that is over, on one line."""
    base, candidate = (request.candidates[i].build.name for i in (gate.base, gate.candidate))
    effect = judged.effect
    text = judged.told.strip() if effect is None else f"{effect}, {effect.basis}"
    return printable(
        f"{judged.outcome:12}  {candidate} against {base}: {text} ({judged.elapsed_s:.0f} s)"
    )


def known_so_far(request: BisectRequest, record: BisectRecord) -> str:
    """The results of an interrupted bisection."""
    ends = narrowed(request.n, record.findings)
    if ends is None:
        return "stopped: no result yet"
    left = ends.candidate - ends.base
    after, at = (request.candidates[i].build.name for i in (ends.base, ends.candidate))
    which = f"it is {at}" if left == 1 else f"it is one of {left} behind {after}, up to {at}"
    n = len(record.gates)
    return printable(
        f"stopped after {n} gate{'' if n == 1 else 's'}: if one build made it fail, {which}; "
        "the same command goes on from here"
    )


def answer_sections(request: BisectRequest, record: BisectRecord, answer: Answer) -> list[Section]:
    """The answer: the build, the size of the change, and the command that shows it again."""
    judged_gate = record.gates.get(answer.step)
    title = {
        Ending.CULPRIT: f"culprit: {_named(request, answer.at)}",
        Ending.RANGE: f"no single culprit: one of {answer.at - answer.after} builds",
        Ending.MAP: "no single culprit: more than one step",
        Ending.NO_REGRESSION: "nothing to bisect",
        Ending.BROKEN: "nothing to bisect: the candidate cannot be judged",
    }[answer.ending]
    checks = [CheckLine("because", "measured", answer.why)] if answer.why else []
    if answer.ending in {Ending.CULPRIT, Ending.RANGE}:
        checks.append(_plain("before", f"{_named(request, answer.after)} passes"))
    if answer.ending is Ending.RANGE:
        checks.append(_plain("behind", f"{_named(request, answer.at)} fails"))
    if judged_gate is not None and answer.ending is not Ending.MAP:
        checks.append(_plain("effect", _sized(request, judged_gate)))
    elapsed_s = sum(gate.elapsed_s for gate in record.gates.values())
    max_gates = gates_at_most(request.n)
    judged = sum(
        judged_gate.outcome is not Outcome.INVALID for judged_gate in record.gates.values()
    )
    skipped = len(record.gates) - judged
    also = f", {skipped} not judged" if skipped else ""
    checks.append(_plain("gates", f"{judged} of at most {max_gates}{also}, {_time(elapsed_s)}"))
    if answer.ending in {Ending.CULPRIT, Ending.RANGE}:
        checks += _again(request, record, answer.step)
    return [Section(printable(title), tuple(checks))]


def map_rows(request: BisectRequest, record: BisectRecord) -> list[tuple[str, ...]]:
    """The effect over the builds against the baseline, with the steps marked."""
    marks = {gate.candidate: gate.base for gate in steps(request.n, record.findings)}
    rows: list[tuple[str, ...]] = [("build", "against the baseline", "verdict", "step")]
    rows.append((printable(request.candidates[0].build.name), "", "baseline", ""))
    for number in range(1, request.n + 1):
        judged_gate = record.gates.get(GateStep(0, number))
        if judged_gate is None:
            continue
        mark = ""
        if number in marks:
            up = _middle(record, number) > _middle(record, marks[number])
            mark = "worse" if up else "better"
            if number - marks[number] > 1:
                mark += f", within {number - marks[number]} builds"
        effect = "" if judged_gate.effect is None else str(judged_gate.effect)
        name = printable(request.candidates[number].build.name)
        rows.append((name, effect, str(judged_gate.outcome), mark))
    return rows


def map_sections(request: BisectRequest, record: BisectRecord) -> list[Section]:
    """How to look closer at each step of the map."""
    checks = tuple(
        check
        for gate in steps(request.n, record.findings)
        for check in _again(request, record, gate)
    )
    return [Section("the steps", checks)] if checks else []


def _plain(name: str, text: str) -> CheckLine:
    is_command = name in {"again", "closer", "change"} and not text.startswith("declare ")
    return CheckLine(name, "measured", printable(text), is_command=is_command)


def _named(request: BisectRequest, number: int) -> str:
    candidate = request.candidates[number]
    return f"{candidate.build.name}" + (f" ({candidate.about})" if candidate.about else "")


def _sized(request: BisectRequest, judged_gate: JudgedGate) -> str:
    if judged_gate.effect is None:
        return judged_gate.told
    workload = request.cell.workload
    is_scored = isinstance(workload, GateCheck)
    what = str(workload).upper() if is_scored else f"cost of {request.cell.name}"
    effect = judged_gate.effect
    return (
        f"{effect} in {what} of {request.cell.ref.title}, {effect.basis}, "
        f"{100 * effect.confidence:.4g} %"
    )


def _middle(record: BisectRecord, number: int) -> float:
    judged_gate = record.gates.get(GateStep(0, number))
    return 0.0 if judged_gate is None or judged_gate.effect is None else judged_gate.effect.point


def _again(request: BisectRequest, record: BisectRecord, step: GateStep) -> list[CheckLine]:
    """The commands that show a step again, or look into it, and its changes."""
    builds = [candidate.build for candidate in request.candidates]
    base, candidate = builds[step.base], builds[step.candidate]
    between = range(step.base + 1, step.candidate)
    is_open = any(GateStep(0, build) not in record.gates for build in between)
    if not all(_is_known(request, number) for number in (step.base, step.candidate)):
        names = " and ".join(build.name for build in (base, candidate))
        table = "[tool.asperf.builds]"
        text = f"declare {names} in {table} with all packages that the ends have, and gate them"
    else:
        listed = ",".join(builds[i].name for i in between) if request.is_listed else ""
        text = _command(request, (base, candidate), record.seed, listed, is_open=is_open)
    checks = [_plain("closer" if is_open else "again", text)]
    if isinstance(base.source, Checkout) and isinstance(candidate.source, Checkout):
        words = ["show", candidate.source.commit]
        if between:
            words = ["log", "--oneline", f"{base.source.commit}..{candidate.source.commit}"]
        place = ["git", "-C", str(candidate.source.repository)]
        checks.append(_plain("change", shlex.join([*place, *words])))
    return checks


def _command(
    request: BisectRequest, builds: tuple[Build, Build], seed: int, listed: str, *, is_open: bool
) -> str:
    cell, names = request.cell, [build.name for build in builds]
    if is_open:
        words = ["bisect", *names, *(["--builds", listed] if listed else [])]
    else:
        words = ["gate", *names]
    words += ["--model", cell.ref.label, "--workload", cell.name]
    tolerance = f"{100 * request.limits.budget.tolerance:g}%"
    is_of_kld = isinstance(cell.workload, GateCheck) and cell.workload.kind == "kld"
    if is_of_kld and request.limits.max_kld is not None:
        words += ["--max-kld", f"{request.limits.max_kld:g}"]
    return shlex.join(["asperf", *words, "--tolerance", tolerance, "--seed", str(seed)])


def _is_known(request: BisectRequest, number: int) -> bool:
    """True if a build's name means it on a command line: the ends' do, and any complete one."""
    source = request.candidates[number].build.source
    if request.is_listed or number in {0, request.n}:
        return True
    if isinstance(source, Packages):
        return not source.env and len(source.requirements) == 1 and not source.files
    if isinstance(source, Archive):
        return True
    return isinstance(source, Checkout) and not source.env and not source.cmake


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 180 else f"{seconds / 60:.0f} min"
