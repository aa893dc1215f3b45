"""A server that fails while its answers are examined: INVALID, in its own words."""

from collections.abc import Callable, Iterator

import pytest

from tests.plugin.conftest import Project
from tests.served import FAILURES, FailingServer, WordServer

TEST = """
def test_it(throughput):
    assert throughput("tg32") >= 1
"""
GATE = """
def test_it(gate):
    assert_no_regression(gate("tg32"), tolerance="100%")
"""


@pytest.fixture
def url_of() -> Iterator[Callable[[WordServer], str]]:
    """The URL of a server, which is closed after the test."""
    servers = list[WordServer]()

    def opened(server: WordServer) -> str:
        servers.append(server)
        return f"http://127.0.0.1:{server.endpoint.port}"

    yield opened
    for server in servers:
        server.close()


def require_words(result: pytest.RunResult, how: str) -> None:
    """Require the server's error as the reason, with what to do."""
    result.stdout.fnmatch_lines(
        [
            "test_it.py V*",
            f"openai *: the engine reported an error (server): http://*: {FAILURES[how].said}",
            "  what to do:     read the server's log, and restart it if it has failed; *",
        ]
    )
    result.stdout.no_fnmatch_line("*timed-work*")


@pytest.mark.parametrize("how", FAILURES)
def test_a_server_that_fails_is_no_work_left_out(
    project: Project, url_of: Callable[[WordServer], str], how: str
) -> None:
    """404 of a path that has answered, 5xx, errors in a stream, and lost connections."""
    project.config(engine="openai", default_model="asperf-target", max_cv="1000%")
    project.test(TEST)
    require_words(project.run(f"--asperf-url={url_of(FailingServer(how))}"), how)


@pytest.mark.parametrize("how", ["a dead thread", "gone"])
def test_a_gate_cannot_start_it_again(
    project: Project, url_of: Callable[[WordServer], str], how: str
) -> None:
    """A second try finds the same dead server, and is no proof against its build."""
    project.config(engine="openai", default_model="asperf-target", max_cv="1000%")
    project.test(GATE)
    builds = [f"--asperf-baseline={url_of(WordServer())}"]
    builds += [f"--asperf-candidate={url_of(FailingServer(how))}"]
    require_words(project.run(*builds, "--asperf-max-seconds=30"), how)
