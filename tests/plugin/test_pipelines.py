"""Foreign programs in a session: readings, pairs, a crossover, outputs, and a gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.foreign import KEYS, Plan, foreign_program

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.plugin.conftest import Project

_READS = "json = { " + ", ".join(f'{key} = "{key}"' for key in KEYS) + " }"
_TESTS = """
@pytest.mark.model("slow")
def test_readings(throughput, latency):
    assert_throughput(throughput("tg8"), at_least=90_000, at_most=110_000)
    assert_latency(latency("ttft64"), at_most="1 ms")
    assert_figure(latency("ttft64").peak_memory, at_most=0.5)

@pytest.mark.model("split")
def test_handover(latency):
    assert_figure(latency("ttft64").handover, at_least=0.39, at_most=0.41)

def test_crossover(pipelines):
    found = pipelines.crossover("split", "slow", over="ttft100..ttft200")
    assert_figure(found, at_most=100)

def test_ratio(pipelines):
    assert_ratio(pipelines, "split", "slow", "ttft256", at_most=0.6)

def test_outputs(pipelines):
    assert_same_output(pipelines, "split", "slow")

def test_other_output(pipelines):
    assert_same_output(pipelines, "other", "slow")
"""


def phase(program: str, n_tokens: str = "{n_tokens}", *more: str) -> str:
    """A phase of a configuration."""
    words = [f"./{program}", "{prompt_file}", n_tokens, *more]
    return f"{{ run = {words!r}, {_READS} }}"


def declare(project: Project) -> None:
    """A program that reads 10 µs a token, and two programs that read 1 µs a token and 400 µs more.

    They cross at about 45 tokens: the second is faster from the shortest prompt on.
    """
    foreign_program(project.path / "slow", Plan("$words * 10"))
    foreign_program(project.path / "fast", Plan(handover_us=200))
    foreign_program(project.path / "other", Plan(says="ac"))
    split = f"{phase('fast', '1', '{handover}')}, {phase('fast', '{n_tokens}', '{handover}')}"
    models = {"slow": phase("slow"), "other": phase("other"), "split": split}
    project.config(
        "\n".join(f'[models.{name}]\ncorpus = "corpus.txt"\nphases = [{phases}]' for name, phases in
                  models.items()),
        engine="command", default_model="slow", repetitions=5, max_pairs=20,
    )  # fmt: skip


def test_a_session_with_pipelines(
    project: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """Readings, pairs, a crossover and outputs: every claim works as on any engine."""
    declare(project)
    project.test(_TESTS)
    found = {row["test"].partition("::")[2]: row for row in rows("--asperf-seed=1")}
    outcomes = {test: row["outcome"] for test, row in found.items()}
    assert outcomes["test_readings"] == outcomes["test_handover"] == "PASS"
    assert outcomes["test_crossover"] == outcomes["test_ratio"] == "PASS"
    assert (outcomes["test_outputs"], outcomes["test_other_output"]) == ("PASS", "FAIL")
    assert "from character 2 on" in str(found["test_other_output"])
    crossover = found["test_crossover"]
    assert crossover["subject"] == "crossover of split over slow in ttft100..ttft200"
    assert "split takes 0." in str(crossover)


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        ('pipelines.crossover("slow", "slow")', "slow is compared with itself"),
        ('pipelines.crossover("split", "slow", over="ttft64..pp128")', "is not a range of prompts"),
        ('pipelines.crossover("split", "slwo")', "did you mean 'slow'"),
        ("memory(64)", "does not say what it allocated"),
        ('throughput("tg8@c2")', "serves one request at a time"),
    ],
)
def test_what_cannot_be_claimed_is_said(project: Project, claim: str, told: str) -> None:
    """Before anything is timed, by name."""
    declare(project)
    project.test(f"def test_it(pipelines, memory, throughput):\n    {claim}")
    result = project.run()
    result.assert_outcomes(failed=1)
    assert told in result.stdout.str()


def test_two_folders_of_programs_are_gated(project: Project) -> None:
    """A slower program in the other folder is a FAIL, and proof of path has both programs."""
    for build, prompt_us in (("old", "$words * 10"), ("new", "$words * 12")):
        (project.path / build).mkdir()
        foreign_program(project.path / build / "program", Plan(prompt_us))
    phases = phase("program").replace("./program", "{tools}/program")
    model = f'[models.it]\ncorpus = "corpus.txt"\nphases = [{phases}]'
    project.config(model, engine="command", default_model="it", max_pairs=20)
    project.test('def test_it(gate):\n    assert_no_regression(gate("ttft64"), tolerance="5%")')
    result = project.run(
        "--asperf-baseline=./old", "--asperf-candidate=./new", "-vv", "--asperf-seed=1"
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines_random(
        ["*FAIL*ttft64*", "*differs: programs *old/program*new/program*"]
    )
