"""`--asperf-remote`, the machine on which `overhead_on` drafts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.plugin.conftest import Project

_TEST = """
@pytest.fixture
def address(speculation):
    return speculation.overhead_on().there.pairing.draft.spec.settings.remote

@pytest.mark.speculative(draft="fake:Q8_0", target="fake:F16", k=2)
def test_it(address):
    assert address == "10.0.0.2:50052"
"""


def test_the_address_reaches_the_test(project: Project) -> None:
    """By option, or by the configuration file."""
    project.test(_TEST)
    project.run("--asperf-remote=10.0.0.2:50052").assert_outcomes(passed=1)
    project.config(remote="10.0.0.2:50052")
    project.run().assert_outcomes(passed=1)


def test_without_an_address_the_test_is_skipped(project: Project) -> None:
    """The end of the session has the option that would run it."""
    project.test(_TEST)
    result = project.run()
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*name another machine's RPC server: --asperf-remote*"])


def test_the_overhead_is_a_figure_of_real_programs(
    live: Project, program: Callable[[str], Path], rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """Both rates, the server and its link before and after are in the assertion's record."""
    tools = program("ggml-rpc-server").parent
    program("llama-speculative-simple")
    (live.path / "prompts.json").write_text('{"code": ["def area(width, height):"]}')
    live.config(engine="llama_tools", call_timeout_s=120, max_pairs=5)
    live.test(
        "@pytest.mark.speculative(draft='asperf-draft:F16', target='asperf-draft:F16', k=2,\n"
        "    n_tokens=8, prompts='prompts.json')\n"
        "def test_it(speculation):\n"
        "    overhead = speculation.overhead_on('loopback')\n"
        "    assert overhead.per_drafted_token <= '1 s'\n"
        "    assert overhead.change >= '-100%'\n"
    )
    first, second = rows(f"--asperf-tools={tools}")
    assert (first["outcome"], second["outcome"]) == ("PASS", "PASS")
    ran = dict(first["facts"])
    assert ran["draft here"].endswith("tok/s, 100.0 % of drafts accepted")
    assert "by RPC 7" in ran["draft remote"]
    assert "MB/s, after it " in ran["draft remote"]
    assert "target remote" not in ran


def test_samples_have_no_overhead(project: Project) -> None:
    """Sampled outputs differ, and variants with other work are not compared."""
    project.test(
        "@pytest.mark.speculative(draft='fake:Q4_K_M', target='fake:F16', temperature=0.7)\n"
        "def test_it(speculation):\n"
        "    speculation.overhead_on('10.0.0.2:50052').change\n"
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*overhead_on needs greedy generation*"])
