from tests.plugin.conftest import Project


def test_the_option_overrides_the_file(project: Project) -> None:
    """The command line wins over the file."""
    project.config(engine="llama_cpp")
    project.test('def test_it(throughput):\n    throughput("tg8").estimate\n')
    result = project.run("--asperf-engine=scripted", "--asperf-model=fake:F16")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["asperf: hardware *; live, engine scripted 1, *"])
