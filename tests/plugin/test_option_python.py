from pathlib import Path

from tests.plugin.conftest import Project

MEASURES = '@pytest.mark.quant("F16")\ndef test_it(throughput):\n    throughput("tg8").estimate\n'


def test_the_engine_runs_in_that_interpreter(project: Project, bare_python: Path) -> None:
    """The engine needs nothing of the interpreter that runs pytest."""
    project.test(MEASURES)
    project.run(f"--asperf-python={bare_python}").assert_outcomes(passed=1)


def test_an_interpreter_without_the_engine(live: Project, bare_python: Path) -> None:
    """It has one sentence with the missing part, and the command that installs it."""
    live.test(MEASURES + "def test_sound():\n    pass\n")
    result = live.run(f"--asperf-python={bare_python}")
    result.assert_outcomes(errors=0, failed=1, passed=1)
    result.stdout.fnmatch_lines(
        [
            "asperf: hardware *live, engine llama_cpp unavailable",
            "llama_cpp start: the engine reported an error (import): ModuleNotFoundError: *",
            "  what to do: *pip install 'pytest-asperf[[]llama[]]'*--asperf-python*",
        ]
    )
    assert "Traceback" not in result.stdout.str()
