"""The `latency` fixture and `assert_latency`: times of prompts, of whole requests and of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.plugin.conftest import Project

TEST = '@pytest.mark.quant("F16")\ndef test_it(latency):\n    '
#: F16 takes 10 us for a token of a prompt and 1 ms for one of a generation: 5.12 ms for ttft512,
#: 68.12 ms for pp512+tg64.
_CLAIMS = [
    ('assert_latency(latency("ttft512"), at_most="6 ms")', "."),
    ('assert_latency(latency("ttft512"), at_most=5)', "F"),
    ('assert_latency(latency("ttft512"), at_most="0.1 s", at_least="5000us")', "."),
    ('assert_latency(latency("pp512+tg64"), at_most="69 ms", at_least="68 ms")', "."),
    ('assert_latency(latency("tg64"), at_most="1.01 ms")', "."),
    ('assert_latency(latency("tg64"), at_most="1.01 ms", percentile=95)', "."),
    ('assert_latency(latency("tg64"), at_most="0.9 ms", percentile=95)', "F"),
    ('assert_latency(latency("ttft512"), at_most="6 ms", percentile=95)', "I"),
]


def test_a_latency_against_its_limits(project: Project) -> None:
    """The whole interval decides; p95 of eight runs has no upper bound, and is open."""
    letters = project.letters([TEST + claim for claim, _ in _CLAIMS], "--asperf-repetitions=8")
    assert letters == "".join(letter for _, letter in _CLAIMS)


def test_too_few_runs_say_how_many_would_do(project: Project) -> None:
    """An exact upper bound of p95 needs 59 runs."""
    project.test(TEST + _CLAIMS[-1][0])
    result = project.run("--asperf-repetitions=8")
    result.stdout.fnmatch_lines(["E   do *measure 59 loads: --asperf-repetitions=59"])


def test_what_is_reported(project: Project, rows: Callable[..., list[dict[str, Any]]]) -> None:
    """A request's row has its time, its share of prefill and its effective rate."""
    project.test(
        TEST
        + """reading = latency("pp512+tg64")
    assert reading.prefill_share.estimate.point == pytest.approx(5.12 / 68.12)
    assert reading.effective_rate.estimate.point == pytest.approx(64 / 0.06812)
    assert latency("tg64").percentile(50).n == 5 * 64
    assert latency("ttft512").time.unit == "ms"
"""
    )
    found = {row["subject"]: row for row in rows()}
    assert found["pp512+tg64"]["measured"].endswith("7.52 % of it prefill, 940 tok/s in effect")
    assert found["pp512+tg64"]["estimate"]["unit"] == "ms"
    assert found["ttft512"]["measured"].startswith("5.120 ms [")


def test_a_broken_measurement_is_invalid(project: Project) -> None:
    """A crash, and logits that are no numbers, give no latency."""
    sources = []
    for name, faults in (("q8", {"generate": "crash"}), ("q4", {"logits": "nan"})):
        project.script(name, faults=faults)
    for level in ("Q8_0", "Q4_K_M"):
        source = f'@pytest.mark.quant("{level}")\ndef test_it(latency):\n'
        sources.append(source + '    assert_latency(latency("pp16+tg8"), at_most="1 s")\n')
    assert project.letters(sources) == "VV"


TOLD = {
    'assert_latency(latency("ttft512"), at_most="250")': "at_most: '250' is not a time",
    'assert_latency(latency("ttft512"), at_most="5 min")': "at_most: '5 min' is not a time",
    'assert_latency(latency("ttft512"), at_least=0)': "at_least: 0 is not a time",
    'assert_latency(latency("ttft512"))': "is not a range",
    'assert_latency(latency("ttft512"), at_most=5, percentile=100)': "percentile 100 is not",
    'latency("ttft512").prefill_share': "ttft512 is not a whole request",
    'latency("pp512+tg1")': "'pp512+tg1' is not a workload",
}


def test_bad_input(project: Project) -> None:
    """Each is an error of its own test that says what to write."""
    tests = (TEST.replace("test_it", f"test_{n}") + c for n, c in enumerate(TOLD))
    project.test("\n".join(tests))
    result = project.run()
    result.assert_outcomes(failed=len(TOLD))
    text = result.stdout.str()
    assert [told for told in TOLD.values() if told not in text] == []
    assert text.count("\n  what to do:     ") == len(TOLD)


def test_live(live: Project) -> None:
    """On llama.cpp, a request is its prompt and its tokens, each of them timed in one context."""
    live.test("""
@pytest.mark.model("asperf-draft:Q8_0", threads=1)
def test_it(latency):
    reading = latency("pp64+tg16")
    run = reading.reading.result.runs[0]
    assert (run.n_tokens, len(run.step_ns)) == (16, 16)
    assert sum(run.step_ns) <= run.elapsed_ns
    assert run.context.n_ctx >= 80
    assert 0 < reading.prefill_share.estimate.point < 1
    assert latency("tg16").percentile(50).n == 6 * 16
    assert_latency(reading, at_most="60 s")
""")
    live.run().stdout.fnmatch_lines(["✓ *pp64+tg16 asperf-draft:Q8_0 * ms * ≤ 60,000 *"])
