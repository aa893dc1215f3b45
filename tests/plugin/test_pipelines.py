"""External programs in a session: measurements, pairs, a crossover, outputs, and a gate."""

from collections.abc import Callable
from typing import Any

from tests.foreign import KEYS, Plan, foreign_program
from tests.plugin.conftest import Project

_READS = "json = { " + ", ".join(f'{key} = "{key}"' for key in KEYS) + " }"
_TESTS = """
@pytest.mark.model("slow")
def test_measured(throughput, latency):
    assert 90_000 <= throughput("tg8") <= 110_000
    assert latency("ttft64") <= "1 ms"
    assert latency("ttft64").peak_memory <= 0.5

@pytest.mark.model("split")
def test_handoff(latency):
    assert 0.39 <= latency("ttft64").handoff <= "0.41 ms"

def test_crossover(latency):
    assert latency.crossover("split", "slow", over="ttft100..ttft200") <= 100

def test_ratio(latency):
    assert latency("ttft256", model="split") / latency("ttft256", model="slow") <= 0.6

@pytest.mark.model("split")
def test_outputs(model):
    assert_lossless(model, than="slow")

@pytest.mark.model("other")
def test_other_output(model):
    assert_lossless(model, than="slow")
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
    foreign_program(project.path / "fast", Plan(handoff_us=200))
    foreign_program(project.path / "other", Plan(says="ac"))
    split = f"{phase('fast', '1', '{handoff}')}, {phase('fast', '{n_tokens}', '{handoff}')}"
    models = {"slow": phase("slow"), "other": phase("other"), "split": split}
    project.config(
        "\n".join(f'[models.{name}]\ncorpus = "corpus.txt"\nphases = [{phases}]' for name, phases in
                  models.items()),
        engine="command", default_model="slow", repetitions=5, max_pairs=20,
    )  # fmt: skip


def test_a_session_with_pipelines(
    project: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """Measurements, pairs, a crossover and outputs: every assertion works as on any engine."""
    declare(project)
    project.test(_TESTS)
    found = {row["test"].partition("::")[2]: row for row in rows("--asperf-seed=1")}
    outcomes = {test.removeprefix("test_"): row["outcome"] for test, row in found.items()}
    assert outcomes.pop("other_output") == "FAIL"
    assert set(outcomes.values()) == {"PASS"}
    assert found["test_other_output"]["result"]["parted"][0]["character"] == 2
    crossover = found["test_crossover"]
    assert crossover["subject"] == "crossover of split over slow in ttft100..ttft200"
    assert "split takes 0." in str(crossover)


def test_bad_input(project: Project) -> None:
    """Each is an error by name, before anything is timed."""
    declare(project)
    over = 'over="ttft64..pp128"'
    messages = {
        'assert latency.crossover("slow", "slow") < 9': "slow is compared with itself",
        f'assert latency.crossover("split", "slow", {over}) < 9': "is not a range of prompts",
        'assert latency.crossover("split", "slwo") < 9': "did you mean 'slow'",
        'assert latency("ttft8", model="slow") < latency("ttft8")': "ttft8 slow on command is",
        "assert_lossless(model)": "slow is compared with itself",
        'assert_lossless(model, than="slwo")': "did you mean 'slow'",
        "assert memory(64) < 1": "does not report its allocations",
        'assert throughput("tg8@c2") > 1': "serves one request at a time",
    }
    project.rejects("def test_it(latency, model, memory, throughput):\n    ", messages)


def test_two_folders_of_programs_are_gated(project: Project) -> None:
    """A slower program in the other folder is a FAIL, and run record has both programs."""
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
