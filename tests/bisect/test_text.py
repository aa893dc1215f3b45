"""The text of a bisection: its answer's next step."""

from pathlib import Path

import pytest

from pytest_asperf.analysis.stats.estimate import CHANGE, Estimate
from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.bisect.candidates import Candidate
from pytest_asperf.bisect.run import BisectRecord, BisectRequest, JudgedGate
from pytest_asperf.bisect.search import Answer, Ending, GateStep
from pytest_asperf.bisect.text import answer_sections, known_so_far, map_rows, map_sections
from pytest_asperf.config.build_sources import Checkout, Interpreter, Packages, Source
from pytest_asperf.config.spec import Build, ModelRef, ModelSpec
from pytest_asperf.config.workload import Workload
from pytest_asperf.gate.cells import GateCell
from pytest_asperf.gate.judge import GateLimits
from pytest_asperf.measure.ab_speed import Budget

CELL = GateCell(ModelRef(ModelSpec("my model"), "Q8_0"), Workload("tg", 128))


def question(*sources: Source, is_listed: bool = False) -> BisectRequest:
    """Return the question about builds with the names 0, 1, 2, ..."""
    builds = [Build(f"b{number}", source) for number, source in enumerate(sources)]
    candidates = tuple(Candidate(build, f"of day {build.name[1:]}") for build in builds)
    return BisectRequest(candidates, CELL, GateLimits(Budget(0.05, 120, 600, 0), 0.01), is_listed)


def record(effects: dict[tuple[int, int], float | None]) -> BisectRecord:
    """Return a record of gates with their effects, None for one that was not judged."""
    gates = {}
    for (base, candidate), effect in effects.items():
        found = JudgedGate(Outcome.INVALID, "it does not\x1b compile", 60.0, is_unmade=True)
        if effect is not None:
            outcome = Outcome.FAIL if effect > 0.05 else Outcome.PASS
            low, high = effect - 0.01, effect + 0.01
            estimate = Estimate(effect, low, high, 9, method="m", unit=CHANGE, counted="pairs")
            found = JudgedGate(outcome, "told", 60.0, estimate)
        gates[GateStep(base, candidate)] = found
    return BisectRecord(Path("state"), {}, 7, gates)


def commits(n: int, cmake: tuple[str, ...] = ()) -> list[Source]:
    """Return commits of a checkout."""
    return [Checkout(Path("/src/llama.cpp"), f"{number:040x}", cmake) for number in range(n)]


def details(asked: BisectRequest, found: BisectRecord, answer: Answer) -> dict[str, str]:
    """Return the answer's lines by their names, and its title."""
    (section,) = answer_sections(asked, found, answer)
    return {"": section.title, **{check.name: check.detail for check in section.checks}}


def test_a_culprit_among_commits() -> None:
    """The culprit, its cost, the command that shows it again, and its change."""
    found = record({(0, 3): 0.2, (0, 1): 0.0, (0, 2): 0.2, (1, 2): 0.2})
    told = details(question(*commits(4)), found, Answer(Ending.CULPRIT, 1, 2))
    assert told == {
        "": "culprit: b2 (of day 2)",
        "before": "b1 (of day 1) passes",
        "effect": "+20.0 % [19.0, 21.0] in cost of tg128 of my model:Q8_0, 9 pairs, 90 %",
        "gates": "4 of at most 5, 4 min",
        "again": "asperf gate b1 b2 --model 'my model:Q8_0' --workload tg128 --tolerance 5% "
        "--seed 7",
        "change": f"git -C /src/llama.cpp show {2:040x}",
    }


def test_a_range_of_commits() -> None:
    """The change is all of the commits, and looking closer at bad ones is no advice."""
    found = record({(0, 3): 0.2, (0, 1): None, (0, 2): None})
    told = details(question(*commits(4)), found, Answer(Ending.RANGE, 0, 3, "because"))
    assert told[""] == "no single culprit: one of 3 builds"
    assert told["because"] == "because"
    assert told["behind"] == "b3 (of day 3) fails"
    assert told["gates"] == "1 of at most 5, 2 not judged, 3 min"
    assert told["again"].startswith("asperf gate b0 b3 ")
    assert told["change"].endswith(f" log --oneline {0:040x}..{3:040x}")


def test_builds_that_were_not_probed_are_bisected_closer() -> None:
    """A step of a map that hides builds is looked into by a bisection of its own."""
    interpreter = Interpreter(Path("/usr/bin/python3"))
    asked = question(*[interpreter] * 7, is_listed=True)
    found = record({(0, 6): 0.5, (0, 3): 0.2, (0, 2): 0.0, (2, 3): 0.2})
    (section,) = map_sections(asked, found)
    assert [check.name for check in section.checks] == ["again", "closer"]
    assert section.checks[1].detail.startswith("asperf bisect b3 b6 --builds b4,b5 --model ")
    assert map_rows(asked, found) == [
        ("build", "against the baseline", "verdict", "step"),
        ("b0", "", "baseline", ""),
        ("b2", "+0.0 % [-1.0, 1.0]", "PASS", ""),
        ("b3", "+20.0 % [19.0, 21.0]", "FAIL", "worse"),
        ("b6", "+50.0 % [49.0, 51.0]", "FAIL", "worse, within 3 builds"),
    ]


@pytest.mark.parametrize(
    "sources",
    [
        commits(3, cmake=("-DGGML_CUDA=ON",)),
        [Packages((f"mlx-lm==0.31.{n}", "mlx==0.30.1")) for n in range(3)],
        [Packages((f"llama-cpp-python==0.3.{n}",), env=(("CC", "clang"),)) for n in range(3)],
    ],
)
def test_a_build_that_no_command_can_name_is_to_be_declared(sources: list[Source]) -> None:
    """A command that would measure another build is not printed."""
    found = record({(0, 2): 0.2, (0, 1): 0.2})
    told = details(question(*sources), found, Answer(Ending.CULPRIT, 0, 1))
    assert told["again"].startswith("declare b0 and b1 in [tool.asperf.builds]")


def test_what_is_known_when_it_is_stopped() -> None:
    """Nothing before the first FAIL; then the builds that are left."""
    asked = question(*commits(9))
    assert known_so_far(asked, record({})) == "stopped: no result yet"
    told = known_so_far(asked, record({(0, 8): 0.2, (0, 4): 0.0}))
    assert "stopped after 2 gates: if one build made it fail, it is one of 4 behind b4" in told
    told = known_so_far(asked, record({(0, 8): 0.2, (0, 4): 0.2, (0, 2): 0.2, (0, 1): 0.2}))
    assert "it is b1; the same command" in told
