"""`--asperf-remote`, and the fixture `rpc_remote`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.plugin.conftest import Project

_TEST = "def test_it(rpc_remote):\n    assert rpc_remote == '10.0.0.2:50052'\n"


def test_the_address_reaches_the_test(project: Project) -> None:
    """By option, or by the configuration file."""
    project.test(_TEST)
    project.run("--asperf-remote=10.0.0.2:50052").assert_outcomes(passed=1)
    project.config(remote="10.0.0.2:50052")
    project.run().assert_outcomes(passed=1)


def test_without_an_address_the_test_is_skipped(project: Project) -> None:
    """The end of the session says what would run it."""
    project.test(_TEST)
    result = project.run()
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*name another machine's RPC server with --asperf-remote*"])


def test_a_public_address_is_refused(project: Project) -> None:
    """The message says what may be given instead."""
    project.test(_TEST)
    result = project.run("--asperf-remote=rpc.example.org:50052")
    result.stderr.fnmatch_lines(["*may be a public address*", "*loopback or ssh:HOST*"])
