from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plugin.conftest import Project

MEASURES = '@pytest.mark.quant("F16")\ndef test_it(throughput):\n    throughput("tg8").estimate\n'


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("repetition = 3", "unknown key 'repetition'; did you mean 'repetitions'?"),
        ("sead = 1\n[models.x]\ngguf = 'x.gguf'", "unknown key 'sead'"),
        ("[models.x]\nggfu = 'x.gguf'", "models.x: unknown key 'ggfu'; did you mean 'gguf'?"),
        ("[models.x]\nfiles = {Q8 = 'x.gguf'}", "unknown quantization 'Q8'"),
        ("[models.x]\ngguf = 'x.gguf'\nsettings = {thread = 1}", "did you mean 'threads'?"),
        ("[models.x]\ngguf = 'x.gguf'\nsettings = {threads = 'two'}", "threads: 'two'"),
        ("chunks = [1", "is not valid TOML"),
        ("tolerance = 5", 'tolerance: 5 is not usable: write "5%" or 0.05'),
        ("tolerance = 1.0", 'tolerance: 1.0 is not usable: write "1%" or 0.01'),
        ("max_cv = 15", 'max_cv: 15 is not usable: write "15%" or 0.15'),
    ],
)
def test_a_typing_error_is_a_usage_error(project: Project, line: str, told: str) -> None:
    """The session ends before any test, with the file, the key and what was meant."""
    config = project.path / "asperf.toml"
    config.write_text(f"{line}\n" if "[models" in line else f"{line}\n{config.read_text()}")
    project.test(MEASURES)
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    error = result.stderr.str()
    assert "asperf.toml" in error
    assert told in error
    assert "what to do:" in error
    assert "Traceback" not in error + result.stdout.str()


def test_it_disturbs_no_session_that_measures_nothing(project: Project) -> None:
    """A broken file is none of the business of tests that do not use the plugin."""
    (project.path / "asperf.toml").write_text("nonsense = 1\n")
    project.test("def test_it():\n    pass\n")
    project.run().assert_outcomes(passed=1)


def test_fixtures_of_the_same_names_are_the_projects_own(project: Project) -> None:
    """A project's own `model` and `hardware`, and its own marks, are not taken for ours."""
    (project.path / "asperf.toml").write_text("nonsense = 1\n")
    project.test(
        "@pytest.fixture\ndef model():\n    return 'own'\n"
        "@pytest.fixture\ndef hardware():\n    return 'own'\n"
        "@pytest.mark.model(size=3)\n@pytest.mark.quant\n"
        "def test_it(model, hardware):\n    assert model == hardware == 'own'\n"
    )
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("asperf:*")


def test_pyproject_will_do(project: Project) -> None:
    """The same settings may stand under [tool.asperf] of pyproject.toml."""
    text = (project.path / "asperf.toml").read_text().replace("[models", "[tool.asperf.models")
    (project.path / "asperf.toml").unlink()
    (project.path / "pyproject.toml").write_text(f"[tool.asperf]\n{text}")
    project.test(MEASURES)
    project.run().assert_outcomes(passed=1)
