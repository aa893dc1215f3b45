"""A build that does not do the work that is timed is no PASS, however fast it is."""

import sys

import pytest

from pytest_asperf.engine_process import EngineBuild
from tests.plugin.conftest import Project
from tests.sabotaged_library import write_sabotaged

#: One thread, so that no thread waits for another that the system has put aside.
HEAD = 'pytestmark = pytest.mark.model("asperf-draft", threads=1)\n'
RATES = """
@pytest.mark.parametrize("name", {names})
def test_rate(throughput, latency, name):
    if name.startswith(("ttft", "itl", "pp64+")):
        assert latency(name) <= "60 s"
    else:
        assert throughput(name) >= "1 tok/s"
"""
#: A slow moment leaves too few independent tokens for an interval.
TOKENS = """
@pytest.mark.parametrize("name", {names})
def test_tokens(latency, name):
    assert (latency(name) <= "60 s").outcome in ("PASS", "INCONCLUSIVE")
"""
GATE = """
def test_gate(gate):
    assert_no_regression(gate({names}), tolerance="5000%")
"""
QUICK = ("--asperf-repetitions=2", "--asperf-max-cv=1000%")
#: A PASS needs an interval.
SOUND = ("--asperf-repetitions=5", "--asperf-max-cv=1000%")

#: The work that each sabotaged build leaves out, in tests and in a gate.
CASES = {
    "end_only": (("pp256", "ttft256", "tg8@d128"), "ttft256"),
    "end_only_in_place": (("pp256", "ttft256"), "pp256"),
    "lost_context": (("tg16@d256", "pp64@d256", "itl64@d256"), "tg16@d256"),
    "short_context": (("tg16@d512", "pp64@d512"), "pp64@d512"),
    "loses_the_middle": (("tg512", "tg8@d300"), "tg512"),
    "does_nothing": (("tg32", "pp64", "tg8@d128"), "tg32"),
    "constant": (("tg32", "pp64", "pp64+tg8"), "pp64"),
    "earlier": (("tg32", "pp64", "tg8@d128"), "tg32"),
    # A gate decodes other tokens before each run, so this build decodes the prompt.
    "keeps_results": (("pp256", "ttft256"), ""),
    "caches_states": (("pp256", "ttft256"), "ttft256"),
    "counts_prompts": (("pp256", "ttft256"), "pp256"),
    "forgets_new_prompts": (("pp256", "ttft256"), "pp256"),
    # A call may have 2 ms that are not timed: more than 32 tokens, a part of a gate's run, need.
    "pays_later": (("pp256", "tg128"), "pp256"),
    "pays_in_the_next_call": (("pp256", "tg32"), "pp256"),
    "decodes_together": (("tg32", "itl64@d128", "pp64+tg16"), "itl64@d128"),
}


@pytest.mark.parametrize("how", CASES)
def test_it_is_found_in_tests_and_in_a_gate(live: Project, how: str) -> None:
    """INVALID with the guard's name, and FAIL of a gate with a sound baseline."""
    names, gated = CASES[how]
    live.test(HEAD + RATES.format(names=names) + GATE.format(names=repr(gated)) * bool(gated))
    python = write_sabotaged(live.path, how)
    builds = (f"--asperf-baseline={sys.executable}", f"--asperf-candidate={python}")
    result = live.run(*QUICK, f"--asperf-python={python}", *builds, "--asperf-max-pairs=1")
    # A line of letters is broken if another process is making the model's file.
    outcomes = f"{'1 FAIL, ' * bool(gated)}{len(names)} INVALID; exit code 1: *"
    result.stdout.fnmatch_lines([f"{len(names) + bool(gated)} assertions: {outcomes}"])
    for name in names:
        result.stdout.fnmatch_lines([f"*{name} asperf-draft*: timed-work: *"])
    if gated:
        result.stdout.fnmatch_lines([f"✗ *gate {gated} * candidate: *"])


@pytest.mark.serial  # a stamp must not be received late, or the baseline runs before it shows
@pytest.mark.parametrize("engine", ["llama_cpp", "mlx"])
def test_a_clock_of_half_the_speed_is_invalid(
    live: Project, request: pytest.FixtureRequest, engine: str
) -> None:
    """A reply's stamp is not in its call, for runs of any length, in tests and gates."""
    if engine == "mlx":
        request.getfixturevalue("mlx")
    live.config(engine=engine, default_model="asperf-draft", call_timeout_s=120)
    live.test(RATES.format(names=("tg8", "pp64")) + GATE.format(names="'tg8'"))
    python = write_sabotaged(live.path, "slow_clock", engine)
    result = live.run(*QUICK, f"--asperf-python={python}", f"--asperf-candidate={python}")
    result.stdout.fnmatch_lines(["test_it.py VVV *", "*its clock has another speed *"])


def test_a_sound_build_passes(live: Project) -> None:
    """The same workloads and the same gate pass with the library as it is."""
    names = sorted({name for each, _ in CASES.values() for name in each})
    tokens = [name for name in names if name.startswith("itl")]
    rates = [name for name in names if name not in tokens]
    gated = ", ".join(map(repr, ("pp256", "tg16@d256", "logits@d256", "ppl@d256")))
    tests = RATES.format(names=rates) + TOKENS.format(names=tokens) + GATE.format(names=gated)
    live.test(HEAD + tests)
    result = live.run(*SOUND, "--asperf-candidate=current", "--asperf-max-pairs=20", "-v")
    result.assert_outcomes(passed=len(names) + 1)


@pytest.mark.usefixtures("short_chunks")
def test_a_lost_context_fails_in_logits_after_a_depth(live: Project) -> None:
    """Prefill and decoding disagree after 256 tokens, and agree without them."""
    live.test(HEAD + GATE.format(names="'logits', 'logits@d256'"))
    candidate = write_sabotaged(live.path, "lost_context")
    result = live.run(f"--asperf-candidate={candidate}", "-v")
    result.stdout.fnmatch_lines(["✓ *gate logits *", "✗ *gate logits@d256 *"])


def test_a_baseline_that_skips_work_is_invalid(live: Project) -> None:
    """Nothing can be compared with a baseline that does not do the work."""
    live.test(HEAD + GATE.format(names="'pp256'"))
    sabotaged = write_sabotaged(live.path, "end_only")
    result = live.run(f"--asperf-baseline={sabotaged}", "--asperf-candidate=current", "-v")
    result.stdout.fnmatch_lines(["*baseline: after a timed run *", "1 assertion: 1 INVALID*"])


@pytest.mark.parametrize(
    ("how", "names"),
    [
        ("lost_context", ("tg8@d128", "itl8@d128")),
        ("end_only", ("pp64", "ttft64")),
        ("skips_layers", ("pp64", "ttft64")),
        ("waits_for_the_next", ("tg64", "tg64@d128")),
    ],
)
def test_mlx(live: Project, mlx: EngineBuild, how: str, names: tuple[str, ...]) -> None:  # noqa: ARG001
    """MLX's cache is examined in the same way."""
    live.config(engine="mlx", default_model="asperf-draft:F32", call_timeout_s=120)
    live.test(RATES.format(names=names))
    python = write_sabotaged(live.path, how, "mlx")
    result = live.run(*QUICK, f"--asperf-python={python}")
    result.stdout.fnmatch_lines([f"test_it.py {'V' * len(names)} *", "*: timed-work: *"])


@pytest.mark.usefixtures("mlx")
def test_all_arrays_of_an_mlx_cache_are_timed(live: Project) -> None:
    """A layer that its cache's state leaves out is computed before the clock stops, not later."""
    live.config(engine="mlx", default_model="asperf-draft:F32", call_timeout_s=120)
    live.test(RATES.format(names=("pp256", "pp128")))
    python = write_sabotaged(live.path, "hides_a_layer", "mlx")
    live.run(*SOUND, f"--asperf-python={python}").assert_outcomes(passed=2)


def test_an_unbelievable_gain_without_logits_is_open(project: Project) -> None:
    """An engine that shows no logits of its timed runs passes no gain of more than twice."""
    project.script("f16", faults={"logits": "unseen"}, tg_ns_per_token=[900_000, 900_100])
    project.test(
        '@pytest.mark.model("fake:F16")\n'
        'def test_gate(gate):\n    assert_no_regression(gate("tg16"), tolerance="5%")\n'
    )
    result = project.run("--asperf-baseline=slow_by=2", "--asperf-candidate=current", "-v")
    result.stdout.fnmatch_lines(["*the engine shows no logits of timed runs*", "*1 inconclusive*"])
