from collections.abc import Callable
from typing import Any

from pytest_asperf.testing import write_script
from tests.plugin.conftest import Project, marked


def test_name_level_and_path(project: Project) -> None:
    """A model spec is a name, a name with a quantization, or a path from the project's root."""
    project.config('[models.single]\ngguf = "f16.json"\ncorpus = "corpus.txt"\n')
    project.test("""
@pytest.mark.model("single")
def test_name(model, throughput):
    assert (model.name, model.quant, model.path.name) == ("single", None, "f16.json")
    throughput("tg8").estimate

@pytest.mark.model("fake:Q8_0")
def test_level(model, throughput):
    assert (model.name, model.quant, model.path.name) == ("fake", "Q8_0", "q8.json")
    throughput("tg8").estimate

@pytest.mark.model("./nowhere/some.gguf")
def test_path(model):
    assert model.label == "some.gguf"
""")
    project.run().assert_outcomes(passed=3)


def test_settings_override_the_models_own(
    project: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """One model under two settings is measured twice, each as requested."""
    project.test("""
@pytest.mark.model("fake:F16", threads=3)
def test_three(throughput):
    throughput("tg8").estimate

@pytest.mark.model("fake:F16", threads=2)
def test_two(throughput):
    throughput("tg8").estimate

@pytest.mark.model("fake:F16")
def test_own(throughput):
    throughput("tg8").estimate
""")
    threads = {row["test"]: row["ran"]["loaded"]["threads"] for row in rows()}
    assert threads == {
        "test_it.py::test_three": 3,
        "test_it.py::test_two": 2,
        "test_it.py::test_own": 1,
    }


def test_two_files_of_one_name_are_two_models(
    project: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """Files in two folders are distinguished by more than their name."""
    for folder, cost in (("a", 1000), ("b", 2000)):
        (project.path / folder).mkdir()
        write_script(project.path / folder / "m.gguf", tg_ns_per_token=cost)
    project.test("""
@pytest.mark.model("./a/m.gguf")
def test_a(throughput):
    throughput("tg8").estimate

@pytest.mark.model("./b/m.gguf")
def test_b(throughput):
    throughput("tg8").estimate
""")
    points = [row["estimate"]["point"] for row in rows()]
    assert points == [1e6, 5e5]


def test_a_bad_marker_hits_its_own_test_only(project: Project) -> None:
    """Its test is an error with four parts that names it."""
    messages = {
        'model("fkae")': "test_00: unknown model 'fkae'; did you mean 'fake'?",
        'model("fake:Q9")': "unknown quantization 'Q9'",
        'model("fake:Q6_K")': "model 'fake' has no file for quantization Q6_K",
        'model("fake:F16", thread=1)': "unknown engine setting 'thread'; did you mean 'threads'?",
        'model("fake:F16", "fake:Q8_0")': "2 arguments for name",
    }
    project.rejects(marked("throughput"), messages, in_setup=True)


def test_a_model_of_several_files_needs_a_level(project: Project) -> None:
    """The choice of its measured file is never a guess."""
    project.test("def test_it(throughput):\n    throughput('tg8').estimate\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["fake: *quantization*", "test_it.py:4: UnfitError"])


def test_two_files_of_one_name_have_two_labels(
    project: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """Tables and report show the folder where two models would be called the same."""
    for folder in ("a", "b"):
        (project.path / folder).mkdir()
        (project.path / folder / "model.gguf").write_text((project.path / "f16.json").read_text())
    project.test("""
@pytest.mark.parametrize("n", [
    pytest.param(1, marks=pytest.mark.model("./a/model.gguf")),
    pytest.param(2, marks=pytest.mark.model("./b/model.gguf")),
])
def test_it(throughput, n):
    throughput("tg8").estimate
""")
    assert [row["model"] for row in rows()] == ["a/model.gguf", "b/model.gguf"]
    result = project.with_plugin("benchmark").run("--benchmark-sort=name")
    for folder in ("a", "b"):
        result.stdout.fnmatch_lines([f"* tg8 {folder}/model.gguf *"])
        result.stdout.fnmatch_lines([f"tg8[[]{folder}/model.gguf]*"])


def test_models_that_share_a_name_are_compared(project: Project) -> None:
    """Two files of one name, and two settings of one file, are no model compared with itself."""
    for folder, cost in (("a", 1000), ("b", 2000)):
        (project.path / folder).mkdir()
        write_script(project.path / folder / "m.gguf", tg_ns_per_token=[cost, cost + 1])
    head = '@pytest.mark.model("fake:F16", threads=1)\ndef test_it(throughput, latency):\n    '
    a, b = (f'("tg8", model="./{folder}/m.gguf")' for folder in "ab")
    claims = (
        f"assert throughput{a} / throughput{b} >= 1.5",
        f"assert (latency{a}.p95 / latency{b}.p95).estimate.point < 0.6",
        'assert 0.9 <= throughput("tg8") / throughput("tg8", model="fake:F16") <= 1.1',
    )
    project.claims(head, claims)
    result = project.run()
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*threads=1 / default threads in tg8 of fake:F16 *"])


def test_proof_of_path_says_what_the_file_calls_itself(
    live: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """The name and the number of parameters in the header, instead of an unknown size."""
    live.test("""
@pytest.mark.model("asperf-draft:Q8_0")
def test_it(throughput):
    assert throughput("tg8") >= "1000000 tok/s"
""")
    raw = rows()[0]["ran"]
    assert raw["title"].endswith("M")
    result = live.run()
    size = raw["title"].removeprefix("asperf-draft, ")
    result.stdout.fnmatch_lines([f"asperf-draft:Q8_0 = {size}, {raw['sha256'][:8]}"])
    result = live.run("-v")
    result.stdout.fnmatch_lines([f"*title: {raw['title']}", "*type: *"])
    assert "?B" not in result.stdout.str()


def test_a_misspelt_marker_is_refused(project: Project) -> None:
    """A test that would measure the default model is an error; another plugin's marker is not."""
    project.test("""
@pytest.mark.modle("mine.gguf")
def test_slip(throughput):
    throughput("tg8").estimate

@pytest.mark.models("mine.gguf")
@pytest.mark.quant("F16")
def test_registered(throughput):
    throughput("tg8").estimate
""")
    theirs = "-o", "markers=models: of somebody else"
    result = project.run(*theirs, "-W", "ignore::pytest.PytestUnknownMarkWarning")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*no marker is named 'modle'; did you mean 'model'?"])
