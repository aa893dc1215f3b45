"""Sampling of the whole vocabulary and by a grammar is timed, and must be done."""

import pytest

from pytest_asperf.engine_process import EngineBuild
from pytest_asperf.modelfiles.hub_cache import shipped_corpus
from pytest_asperf.worker.engine import Asked
from pytest_asperf.worker.openai_engine import OpenAiEngine
from tests.plugin.conftest import Project
from tests.probability_server import ProbabilityServer
from tests.sabotaged_library import write_sabotaged
from tests.served import WordServer

HEAD = 'pytestmark = pytest.mark.model("asperf-draft", threads=1)\n'
GATE = """
def test_gate(gate):
    assert_no_regression(gate({names}), tolerance="40%")
"""
BOTH = "'tg64@topk0', 'tg64@grammar'"


@pytest.mark.serial
@pytest.mark.parametrize(
    ("how", "slower", "equal"),
    [
        ("slow_without_top_k", "tg32@topk0", "tg32@grammar"),
        ("slow_with_grammar", "tg32@grammar", "tg32"),
    ],
)
def test_a_slower_sampler_fails(live: Project, how: str, slower: str, equal: str) -> None:
    """Work without it passes."""
    live.test(HEAD + GATE.format(names=f"{equal!r}, {slower!r}"))
    result = live.run(f"--asperf-candidate={write_sabotaged(live.path, how)}", "-v")
    result.stdout.fnmatch_lines([f"✓ *gate {equal} *", f"✗ *gate {slower} *"])


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("ignores_grammar", "*the grammar root* does not allow*"),
        ("samples_one_token", "*less likely than min-p allows*"),
        ("samples_the_likeliest", "*sampled tokens are the likeliest ones, of which * should be*"),
    ],
)
def test_a_sampler_that_does_not_sample_fails(live: Project, how: str, what: str) -> None:
    """Its output is compared with the range of its settings."""
    live.test(HEAD + GATE.format(names=BOTH))
    candidate = write_sabotaged(live.path, how)
    result = live.run(f"--asperf-candidate={candidate}", "--asperf-max-pairs=1", "-v")
    result.stdout.fnmatch_lines([what, "*FAIL*"])


@pytest.mark.serial
def test_equal_builds_pass(live: Project) -> None:
    """In a gate, and one build by itself."""
    live.test(
        HEAD
        + GATE.format(names=BOTH.replace("64", "32"))
        + """
def test_share(throughput):
    assert throughput("tg32@topk0") / throughput("tg32") >= 0.3
"""
    )
    live.run("--asperf-candidate=current", "-v").assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("harm", "what"),
    [
        ("", "✓ *gate tg32@topk0 *"),
        ("streams the likeliest", "*of * sampled tokens are the likeliest ones, of which *"),
        ("streams any token", "*of * sampled tokens are less likely than min-p allows*"),
    ],
)
def test_a_server_is_judged_by_what_it_streams(project: Project, harm: str, what: str) -> None:
    """Its log-probabilities are right, and so is the likeliest answer."""
    streamed(project, "tg32@topk0", harm).stdout.fnmatch_lines([what])


def test_each_answer_that_shows_sampling_has_a_seed_of_its_own() -> None:
    """A short answer shows too little, and answers of one seed are drawn by the same numbers."""
    server = ProbabilityServer(256)
    server.step_s = 0.002
    url = f"http://{server.endpoint.authority}"
    model = OpenAiEngine(url).load("served", {})
    model.serve(Asked("tg", 4, 0, 1, shipped_corpus().read_text("utf-8")[:8000], sampled="topk0"))
    seeds = [request["seed"] for request in server.requests if request.get("stream")]
    assert len(set(seeds)) == len(seeds) > 1


OTHER = "*of * answers to users' requests have words*"


@pytest.mark.parametrize("path", ["", "/v1/chat/completions"], ids=["completions", "chat"])
@pytest.mark.parametrize(
    ("harm", "what"),
    [
        ("", "✓ *gate ttft64@c4 *"),
        ("streams coarsely in part", OTHER),
        ("streams any token", OTHER),
        ("ends wrongly", OTHER),
    ],
)
def test_a_server_is_judged_by_answers_to_all_users(
    project: Project, harm: str, what: str, path: str
) -> None:
    """Four tokens of a timed answer are often those of both models; the likeliest may be right."""
    streamed(project, "ttft64@c4", harm, path).stdout.fnmatch_lines([what])


@pytest.mark.parametrize("harm", ["", "forgets"])
def test_the_context_is_compared_as_deep_as_it_is_timed(project: Project, harm: str) -> None:
    """No other check is named, and the shorter workload fits into what the server keeps."""
    found = streamed(project, "tg16,tg16@d1200", harm).stdout
    lost = "*after 12?? tokens, of which the last repeat the first, the mean KLD*"
    found.fnmatch_lines([lost, "✗ *tg16@d1200 *"] if harm else ["✓ *gate tg16@d1200 *"])
    found.fnmatch_lines(["✓ *gate tg16 *"])


def streamed(project: Project, workloads: str, harm: str, path: str = "") -> pytest.RunResult:
    """Gate a server that does a harm against a sound one."""
    servers = ProbabilityServer(256), ProbabilityServer(256, harm)
    for server in servers:
        server.step_s = 0.002
    project.config(engine="openai", default_model="asperf-target", max_cv="1000%")
    project.test(GATE.format(names=repr(workloads.split(","))[1:-1]).replace("40%", "200%"))
    urls = [f"http://{server.endpoint.authority}{path}" for server in servers]
    options = zip(("--asperf-baseline", "--asperf-candidate"), urls, strict=True)
    return project.run(*map("=".join, options), "-v")


def test_mlx(live: Project, mlx: EngineBuild) -> None:  # noqa: ARG001
    """It samples the whole vocabulary, and has no grammars."""
    live.config(engine="mlx", default_model="asperf-draft:F32", call_timeout_s=120)
    live.test("""
def test_rate(throughput):
    assert throughput("tg32@topk0") >= "1 tok/s"

def test_grammar(throughput):
    assert throughput("tg32@grammar") >= "1 tok/s"
""")
    result = live.run("-v")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*@grammar is timed on llama_cpp or llama_server*"])


def test_mlx_that_does_not_sample_fails(live: Project, mlx: EngineBuild) -> None:  # noqa: ARG001
    """A sound one chooses another token now and then."""
    live.config(engine="mlx", default_model="asperf-draft:F32", call_timeout_s=120)
    live.test(GATE.format(names="'tg32@topk0'"))
    candidate = write_sabotaged(live.path, "samples_the_likeliest", "mlx")
    result = live.run(f"--asperf-candidate={candidate}", "--asperf-max-pairs=1", "-v")
    result.stdout.fnmatch_lines(["*sampled tokens are the likeliest ones*", "*FAIL*"])


def test_a_server_whose_api_has_no_grammar(live: Project) -> None:
    """The message names the server that has one."""
    live.config(engine="openai", default_model="fake")
    live.test(GATE.format(names="'tg16@grammar'"))
    base, candidate = (f"http://{WordServer().endpoint.authority}" for _ in range(2))
    result = live.run(f"--asperf-baseline={base}", f"--asperf-candidate={candidate}")
    result.stdout.fnmatch_lines(["*@grammar needs llama-server: this server's API cannot set it*"])
