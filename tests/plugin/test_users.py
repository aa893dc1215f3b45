"""Several users of a server: `@cN` in the name of a workload."""

import threading
from collections.abc import Iterator
from itertools import count, cycle
from typing import Any

import pytest

from tests.plugin.conftest import Project
from tests.served import FirstOnly, WordServer
from tests.serving.fake_server import Step

TEST = """
def test_it(throughput):
    assert throughput("tg16@c2") >= "1 tok/s"
"""


class OneSlot(WordServer):
    """A server that answers one request after the other."""

    _slot = threading.Lock()

    def _stream(self, request: dict[str, Any], prompt: str) -> Iterator[Step]:
        with self._slot:
            yield from super()._stream(request, prompt)


GUARDED = """
def test_slots(throughput):
    assert throughput("tg16@c2") > 1

def test_one_user(throughput):
    assert throughput("tg16") > 1
"""


@pytest.mark.parametrize(
    ("test", "server", "found"),
    [
        ("slots", {"slots": 1, "tasks": count()}, "queueing: the server has 1 slot for 2 users"),
        # It begins again every few requests, and a measurement has more.
        ("one_user", {"tasks": cycle(range(5))}, "server-restarted: tasks_total was "),
    ],
)
def test_slots_and_restarts_are_guarded_in_tests_as_in_loads(
    project: Project, test: str, server: dict[str, Any], found: str
) -> None:
    """A figure of two users of one slot is none, nor is one across a restart of the server."""
    url = f"--asperf-url=http://{WordServer(**server).endpoint.authority}"
    project.config(engine="openai", default_model="asperf-target", max_cv="1000%")
    project.test(GUARDED)
    result = project.run(url, "--asperf-repetitions=12", "-k", test)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"*{found}*"])


@pytest.mark.parametrize(("kind", "is_warned"), [(WordServer, False), (OneSlot, True)])
def test_users_that_wait_for_one_another_are_a_warning(
    project: Project, kind: type[WordServer], *, is_warned: bool
) -> None:
    """Two users of one slot are measured, and the verdict notes that one of them waited."""
    server = kind()
    project.config(engine="openai", default_model="asperf-target", max_cv="1000%")
    project.test(TEST)
    result = project.run(f"--asperf-url=http://{server.endpoint.authority}", "-vv", "-rA")
    result.assert_outcomes(passed=1)
    shown = "at most 1 replies of 2 users were generated at one time" in result.stdout.str()
    assert shown is is_warned, result.stdout.str()


@pytest.mark.parametrize("users", [1, 2, 4])
def test_every_user_is_answered(project: Project, users: int) -> None:
    """Its text is examined: a server that makes up the answers of further users is no PASS."""
    project.config(engine="openai", default_model="asperf-target", max_cv="1000%")
    project.test(TEST.replace("@c2", f"@c{users}" * (users > 1)))
    result = project.run(f"--asperf-url=http://{FirstOnly().endpoint.authority}")
    found = "timed-work: of {} answers without sampling to requests of several users"
    assert result.ret == int(users > 1)
    assert (found.format(6 * users) in result.stdout.str()) is (users > 1)
