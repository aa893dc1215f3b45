from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.plugin.conftest import Project
from tests.served import WordServer

SOUND = "def test_sound():\n    pass\n"
SPEED = """
def test_speed(throughput, latency):
    throughput("tg16@c2").estimate
    assert latency("ttft64") <= "5 s"
    assert latency("itl16") <= "5 s"
"""
GATE = """
def test_gate(gate):
    assert_no_regression(gate("tg16@c2"), tolerance="1000%")
"""


@pytest.fixture
def served() -> Iterator[WordServer]:
    """A running server."""
    server = WordServer()
    server.step_s = 0.01  # a reply is long compared with what other tests delay its reader
    yield server
    server.close()


def asked(project: Project, source: str) -> Project:
    """A project with a test of servers, for the model that a server names first."""
    project.config(engine="openai", default_model="asperf-target", max_cv="1000%")
    project.test(source)
    return project


def test_a_running_server_is_measured(
    project: Project, served: WordServer, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """Users send at once, each request is kept, and the server's unknown facts are named."""
    asked(project, SPEED)
    row, *others = rows(
        f"--asperf-url=http://{served.endpoint.authority}", "--asperf-repetitions=10"
    )
    assert "a user" in row["measured"]
    assert [len(run["requests"]) for run in row["runs"]] == [2] * 10
    assert "not known: build, slots" in dict(row["facts"])["server"]
    assert [other["outcome"] for other in others if other["outcome"]] == ["PASS", "PASS"]
    assert len({r["prompt"] for r in served.requests if "prompt" in r}) > 15


def test_two_urls_gate_each_other(project: Project, served: WordServer) -> None:
    """A build of a gate may be the URL of a running server."""
    asked(project, GATE)
    base, url = (f"http://{host}:{served.endpoint.port}" for host in ("127.0.0.1", "localhost"))
    result = project.run(f"--asperf-baseline={base}", f"--asperf-candidate={url}")
    result.stdout.fnmatch_lines([f"gate: {base} → {url}", "✓  gate tg16@c2 served on openai *"])
    result.assert_outcomes(passed=1)


def test_a_cached_prompt_is_invalid(project: Project) -> None:
    """A server that had the prompt already has not computed it."""
    server = WordServer(cached=60)
    asked(project, 'def test_it(latency):\n    latency("ttft64").estimate\n')
    result = project.run(f"--asperf-url=http://{server.endpoint.authority}")
    result.stdout.fnmatch_lines(["*cached-prompt: 1 prompts came from the server's cache*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_chat_is_asked_where_there_is_nothing_else(
    project: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """A server without completions is used as a chat, whose head is part of the prompt."""
    server = WordServer(has_completions=False)
    asked(project, 'def test_it(latency):\n    latency("ttft64").estimate\n')
    url = f"--asperf-url=http://{server.endpoint.authority}/v1"
    (row,) = rows(url, "--asperf-repetitions=10")
    assert any("messages" in request for request in server.requests)
    assert {run["requests"][0]["n_prompt"] for run in row["runs"]} == {64}


def test_a_model_that_is_not_listed_is_named_as_a_test_does(
    project: Project, served: WordServer
) -> None:
    """By the session's option, or by the test's marker."""
    asked(project, "def test_it(throughput):\n    throughput('tg16').estimate\n")
    url = f"--asperf-url=http://127.0.0.1:{served.endpoint.port}"
    result = project.run(url, "--asperf-model=third")
    said = " ".join(str(result.stdout).split())
    assert "has no model third; it has fake, other" in said
    assert 'for its model: --asperf-model, or @pytest.mark.model("NAME")' in said


def test_a_server_that_is_not_there_is_named(project: Project) -> None:
    """The test names the address without an answer; the session goes on."""
    asked(project, f'{SOUND}\ndef test_it(throughput):\n    throughput("tg16").estimate\n')
    result = project.run("--asperf-url=http://127.0.0.1:9")
    result.stdout.fnmatch_lines(["*no connection to http://127.0.0.1:9/v1: Connection refused*"])
    result.stdout.fnmatch_lines(["*1 passed, 1 invalid*"])
