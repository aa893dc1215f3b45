"""Several users of a server: `@cN` in the name of a workload."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.served import WordServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.plugin.conftest import Project
    from tests.serving.fake_server import Step

TEST = """
from pytest_asperf import assert_throughput

def test_it(throughput):
    assert_throughput(throughput("tg16@c2"), at_least="1 tok/s")
"""


class OneSlot(WordServer):
    """A server that answers one request after the other."""

    _slot = threading.Lock()

    def _stream(self, request: dict[str, Any], prompt: str) -> Iterator[Step]:
        with self._slot:
            yield from super()._stream(request, prompt)


@pytest.mark.parametrize(("kind", "is_warned"), [(WordServer, False), (OneSlot, True)])
def test_users_that_wait_for_one_another_are_a_warning(
    project: Project, kind: type[WordServer], *, is_warned: bool
) -> None:
    """Two users of one slot are measured, and the verdict says that one of them waited."""
    server = kind()
    project.config(engine="openai", default_model="asperf-target", max_cv="1000%")
    project.test(TEST)
    result = project.run(f"--asperf-url=http://{server.endpoint.authority}", "-vv", "-rA")
    result.assert_outcomes(passed=1)
    shown = "at most 1 replies of 2 users were generated at one time" in result.stdout.str()
    assert shown is is_warned, result.stdout.str()
