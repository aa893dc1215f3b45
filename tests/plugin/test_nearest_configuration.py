"""The asperf.toml that counts: the one nearest to the tests, for any working folder."""

from pathlib import Path

import pytest

from tests.plugin.conftest import Project

MEASURES = """
@pytest.mark.quant("F16")
def test_it(throughput):
    assert throughput("tg8") >= 1
"""
HEAD = "import pytest\nfrom pytest_asperf import *\n"
CONFIG = """
engine = "scripted"
default_model = "{model}"
repetitions = 5
[models.{model}]
files = {{ F16 = '{file}' }}
"""


@pytest.fixture
def mono(project: Project) -> Project:
    """A repository without an asperf.toml at its root."""
    (project.path / ".git").mkdir()
    (project.path / "asperf.toml").unlink()
    return project


def folder(project: Project, name: str, model: str = "", *, tests: bool = True) -> Path:
    """Make a folder of the repository, with an asperf.toml that names its own model, and a test."""
    made = project.path / name
    made.mkdir(parents=True, exist_ok=True)
    if model:
        text = CONFIG.format(model=model, file=project.path / "f16.json")
        (made / "asperf.toml").write_text(text)
    if tests:
        (made / f"test_{made.name}.py").write_text(HEAD + MEASURES)
    return made


@pytest.mark.parametrize(
    ("where", "args", "ini"),
    [
        (".", (), ""),
        (".", (), "[pytest]\n"),
        (".", ("perf/tests/test_tests.py::test_it",), ""),
        ("perf/tests", (), "[pytest]\n"),
        ("other", ("../perf/tests", "-pxdist", "-n1"), ""),
        ("other", ("--rootdir=..", "../perf"), ""),
        ("other", ("--rootdir=.", "../perf/tests"), "[pytest]\n"),
    ],
)
def test_the_file_nearest_to_the_tests_counts(
    mono: Project,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    args: tuple[str, ...],
    ini: str,
) -> None:
    """Neither pytest's root, nor its own file, nor the working folder changes which file counts."""
    folder(mono, "perf", "mine", tests=False)
    folder(mono, "perf/tests")
    folder(mono, "other", tests=False)
    if ini:
        (mono.path / "pytest.ini").write_text(ini)
    monkeypatch.chdir(mono.path / where)
    result = mono.run(*args)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*tg8 mine*"])


def test_pyproject_counts_as_well(mono: Project) -> None:
    """A pyproject.toml without a table of ours is passed over, one with it is not."""
    perf = folder(mono, "perf", "mine")
    text = (perf / "asperf.toml").read_text().replace("[models", "[tool.asperf.models")
    (perf / "asperf.toml").unlink()
    (perf / "pyproject.toml").write_text(f"[tool.asperf]\n{text}")
    tests = folder(mono, "perf/tests")
    (tests / "pyproject.toml").write_text("[tool.other]\n")
    mono.run("perf/tests").stdout.fnmatch_lines(["*tg8 mine*"])


@pytest.mark.parametrize("workers", [(), ("-pxdist", "-n1")], ids=["alone", "xdist"])
def test_two_folders_of_tests_with_files_of_their_own(
    mono: Project, workers: tuple[str, ...]
) -> None:
    """One session has one configuration: the error names both files."""
    for name in ("one", "two"):
        folder(mono, name, name)
    result = mono.run(*workers)
    text = result.stdout.str() + result.stderr.str()
    assert str(mono.path / "one/asperf.toml") in text
    assert str(mono.path / "two/asperf.toml") in text
    assert result.ret in ({pytest.ExitCode.TESTS_FAILED} if workers else {4})
    mono.run("one").stdout.fnmatch_lines(["*tg8 one*"])


@pytest.mark.parametrize("is_file", [False, True])
def test_tests_behind_a_link_have_two_places(mono: Project, *, is_file: bool) -> None:
    """The file of either place counts; two files are an error that names both."""
    shared = folder(mono, "shared/tests")
    folder(mono, "shared", "mine", tests=False)
    folder(mono, "own", tests=False)
    link = "own/test_linked.py" if is_file else "own/linked"
    (mono.path / link).symlink_to(shared / "test_tests.py" if is_file else shared)
    mono.run(link).stdout.fnmatch_lines(["*tg8 mine*"])
    folder(mono, "own", "other", tests=False)
    result = mono.run(link)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    for name in ("own", "shared"):
        assert str(mono.path / name / "asperf.toml") in result.stderr.str()


def test_windows_line_ends_are_no_error(project: Project) -> None:
    """Git for Windows may write them."""
    config = project.path / "asperf.toml"
    config.write_bytes(config.read_bytes().replace(b"\n", b"\r\n"))
    project.test(MEASURES)
    project.run().stdout.fnmatch_lines(["*tg8 fake*"])


def test_a_file_of_tests_that_measure_nothing_is_none_of_our_business(mono: Project) -> None:
    """Only tests that measure choose the file."""
    folder(mono, "one", "one")
    other = folder(mono, "two", "two")
    (other / "test_two.py").write_text("def test_it():\n    pass\n")
    mono.run().stdout.fnmatch_lines(["*tg8 one*"])


@pytest.mark.parametrize(
    ("near", "where"), [("run", "run"), ("run", "run/deep"), (".", "."), (".", "run")]
)
def test_another_file_nearer_to_the_working_folder_is_an_error(
    mono: Project, monkeypatch: pytest.MonkeyPatch, near: str, where: str
) -> None:
    """The choice between the two is a guess: the error names both files."""
    folder(mono, "perf", "mine")
    folder(mono, "run/deep", tests=False)
    folder(mono, near, "wrong", tests=False)
    monkeypatch.chdir(mono.path / where)
    result = mono.run(str(mono.path / "perf"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    error = result.stderr.str()
    assert str(mono.path / "perf/asperf.toml") in error
    assert str(mono.path / near / "asperf.toml") in error
    assert "what to do:" in error


def test_tests_without_a_file_follow_the_working_folders(
    mono: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So do tests of an installed package, which have no project of their own."""
    folder(mono, "run", "mine", tests=False)
    monkeypatch.chdir(mono.path / "run")
    mono.run(str(folder(mono, "shared"))).stdout.fnmatch_lines(["*tg8 mine*"])
    packages = folder(mono, "env", "wrong", tests=False) / "site-packages"
    tests = folder(mono, str(packages / "suite"))
    (tests / "__init__.py").touch()
    monkeypatch.syspath_prepend(packages)
    mono.run("--pyargs", "suite").stdout.fnmatch_lines(["*tg8 mine*"])


def test_the_root_of_the_repository_is_the_last_place(
    mono: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file above a repository is another project's."""
    folder(mono, ".", "outer", tests=False)
    inner = folder(mono, "inner", "")
    (inner / ".git").write_text("gitdir: elsewhere\n")  # as a submodule or a worktree has it
    (inner / "conftest.py").write_text((mono.path / "conftest.py").read_text())
    (inner / "test_inner.py").write_text("def test_it(model):\n    print(model.label)\n")
    monkeypatch.chdir(inner)
    mono.run("-s").stdout.fnmatch_lines(["*asperf-target*"])


def test_options_are_refused_with_the_names_of_that_file(mono: Project) -> None:
    """A name that only the tests' own file has is known to an option."""
    folder(mono, "perf", "mine")
    mono.run("--asperf-role=draft=mine").stdout.fnmatch_lines(["*tg8 mine*"])
    result = mono.run("--asperf-role=draft=mien")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*unknown model 'mien'; did you mean 'mine'?*"])


def test_a_bom_is_no_error(project: Project) -> None:
    """Editors on Windows begin a file with a byte order mark."""
    config = project.path / "asperf.toml"
    config.write_bytes(b"\xef\xbb\xbf" + config.read_bytes())
    project.test(MEASURES)
    project.run().stdout.fnmatch_lines(["*tg8 fake*"])


def test_a_link_to_itself_is_an_error(mono: Project) -> None:
    """The message names the file; pytest's own traceback does not appear."""
    (mono.path / "a").mkdir()
    (mono.path / "a/test_loop.py").write_text("def test_it(model):\n    print(model.label)\n")
    (mono.path / "a/asperf.toml").symlink_to("asperf.toml")
    result = mono.run("a")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "asperf.toml cannot be read: Too many levels of symbolic" in result.stderr.str()
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
