from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plugin.conftest import Project


def test_the_option_overrides_the_file(project: Project) -> None:
    """What was typed wins over what is written."""
    project.config(engine="llama_cpp")
    project.test('def test_it(throughput):\n    throughput("tg8").estimate\n')
    result = project.run("--asperf-engine=scripted", "--asperf-model=fake:F16")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["asperf: hardware *; live, engine scripted 1, *"])


def test_an_unknown_engine_is_a_usage_error(project: Project) -> None:
    """The nearest engine is suggested and all are listed."""
    project.test("def test_it():\n    pass\n")
    result = project.run("--asperf-engine=lama_cpp")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "*'lama_cpp'*did you mean 'llama_cpp'?",
            "*llama_cpp, llama_cpp_server, llama_server, llama_tools, mlx, mlx_server, openai*",
        ]
    )
