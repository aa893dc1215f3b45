import re

import pytest

from tests.plugin.conftest import Project

MEASURES = '@pytest.mark.quant("F16")\ndef test_it(throughput):\n    throughput("tg8").estimate\n'


def test_a_typing_error_is_a_usage_error(project: Project) -> None:
    """The session ends before any test, with the file or option, the key and what was meant."""
    project.test(MEASURES)
    config = project.path / "asperf.toml"
    sound = config.read_text()
    wrong = "unknown key 'repetition'; did you mean 'repetitions'?"
    for line, arg, told in (
        ("repetition = 3", "", rf"asperf\.toml: {wrong}"),
        ("", "--asperf-source=record", "--asperf-source: .* did you mean 'recorded'?"),
    ):
        config.write_text(f"{line}\n{sound}")
        result = project.run(*filter(None, [arg]))
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert re.search(rf"^ERROR: {told.replace('?', '[?]')}", result.stderr.str(), re.MULTILINE)
        assert "what to do:" in result.stderr.str()
        assert "Traceback" not in result.stderr.str() + result.stdout.str()


def test_it_disturbs_no_session_that_measures_nothing(project: Project) -> None:
    """A broken file is none of the business of tests that do not use the plugin."""
    (project.path / "asperf.toml").write_text("nonsense = 1\n")
    project.test("def test_it():\n    pass\n")
    project.run().assert_outcomes(passed=1)


def test_fixtures_of_the_same_names_are_the_projects_own(project: Project) -> None:
    """A project's own `model` and `hardware`, and its own marks, do not count as asperf's."""
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
