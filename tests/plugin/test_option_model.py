import pytest

from tests.plugin.conftest import Project

NAMES = "def test_it(model):\n    assert model.label == {label!r}\n"


@pytest.mark.parametrize("address", ["fake:Q4_K_M", "fake:q4_k_m"])
def test_a_name_with_a_level(project: Project, address: str) -> None:
    """A quantization may be spelt in any case."""
    project.test(NAMES.format(label="fake:Q4_K_M"))
    project.run(f"--asperf-model={address}").assert_outcomes(passed=1)


def test_a_path(project: Project) -> None:
    """A path is relative to where pytest was started, and its file name names the model."""
    project.test(NAMES.format(label="some.gguf"))
    project.run("--asperf-model=./some.gguf").assert_outcomes(passed=1)


def test_a_marker_wins(project: Project) -> None:
    """The option is for tests that name no model."""
    project.test('@pytest.mark.model("fake:Q8_0")\n' + NAMES.format(label="fake:Q8_0"))
    project.run("--asperf-model=fake:F16").assert_outcomes(passed=1)
