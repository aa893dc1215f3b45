"""The set-ups of other people's projects: plugins, options, configuration files and folders."""

import importlib.util
import os
import subprocess
from collections.abc import Iterator
from typing import Final

import pytest

from tests.plugin.conftest import Project

PLAIN: Final = """
@pytest.mark.quant("F16")
def test_it(throughput):
    assert throughput("tg8") >= "10 tok/s"
"""
CLASSES: Final = """
@pytest.mark.quant("F16")
@pytest.mark.parametrize("n", [8, 16])
class TestIt:
    def test_it(self, throughput, n):
        assert throughput(f"tg{n}") >= "10 tok/s"
"""
UNITTEST: Final = """
import unittest

class TestIt(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _measured(self, throughput):
        self.throughput = throughput

    @pytest.mark.quant("F16")
    def test_it(self):
        for n in (8, 16):
            with self.subTest(n=n):
                assert self.throughput(f"tg{n}") >= "10 tok/s"
"""
SUBTESTS: Final = """
@pytest.mark.quant("F16")
def test_it(throughput, subtests):
    for n in (8, 16):
        with subtests.test(n=n):
            assert throughput(f"tg{n}") >= "10 tok/s"
"""
ASYNC: Final = """
@pytest.mark.asyncio
@pytest.mark.quant("F16")
async def test_it(throughput):
    assert throughput("tg8") >= "10 tok/s"
"""
XFAIL: Final = """
@pytest.mark.quant("F16")
@pytest.mark.xfail(strict=True, reason="not so fast")
def test_it(throughput):
    assert throughput("tg8") >= "9999 tok/s"
"""
#: The set-up: its plugin, for -p, and module; options; the test; files; rows of the table.
SETUPS: Final = {
    "html": (
        "pytest_html.plugin", "pytest_html",
        ["-ppytest_html.fixtures", "-ppytest_metadata.plugin", "--html=r.html"], PLAIN, {}, 1,
    ),
    "json-report": (
        "pytest_jsonreport.plugin", "pytest_jsonreport", ["--json-report"], PLAIN, {}, 1,
    ),
    "sugar": ("sugar", "pytest_sugar", [], PLAIN, {}, 1),
    "instafail": ("instafail", "pytest_instafail", ["--instafail"], PLAIN, {}, 1),
    "timeout": ("timeout", "pytest_timeout", ["--timeout=100"], PLAIN, {}, 1),
    "randomly": ("randomly", "pytest_randomly", ["-p", "randomly"], CLASSES, {}, 2),
    "repeat": ("repeat", "pytest_repeat", ["--count=2"], PLAIN, {}, 2),
    "cov": ("pytest_cov", "pytest_cov", ["--cov=."], PLAIN, {}, 1),
    "reportlog": ("pytest_reportlog", "pytest_reportlog", ["--report-log=r.jsonl"], PLAIN, {}, 1),
    "rich": ("pytest_rich.plugin", "pytest_rich", ["--rich"], PLAIN, {}, 1),
    "annotations": (
        "pytest_github_actions_annotate_failures",
        "pytest_github_actions_annotate_failures", [], PLAIN, {}, 1,
    ),
    "asyncio": (
        "pytest_asyncio.plugin", "pytest_asyncio",
        ["-oasyncio_default_fixture_loop_scope=function"], ASYNC, {}, 1,
    ),
    "junit": ("", "", ["--junitxml=r.xml"], PLAIN, {}, 1),
    "classes": ("", "", [], CLASSES, {}, 2),
    "unittest": ("", "", [], UNITTEST, {}, 2),
    "subtests": ("", "", [], SUBTESTS, {}, 2),
    "xfail-strict": ("", "", [], XFAIL, {}, 1),
    "strict": ("", "", ["--strict-markers", "--strict-config"], PLAIN, {}, 1),
    "importlib": ("", "", ["--import-mode=importlib"], PLAIN, {"tests/__init__.py": ""}, 1),
    "doctests": ("", "", ["--doctest-modules"], PLAIN, {}, 1),
    "no-cache": ("", "", ["-p", "no:cacheprovider"], PLAIN, {}, 1),
    "no-capture": ("", "", ["-s", "-p", "no:logging"], PLAIN, {}, 1),
    "pytest.toml": ("", "", [], PLAIN, {"pytest.toml": '[pytest]\naddopts = ["-ra"]\n'}, 1),
    "tox.ini": ("", "", [], PLAIN, {"tox.ini": "[pytest]\naddopts = -ra\n"}, 1),
    "setup.cfg": ("", "", [], PLAIN, {"setup.cfg": "[tool:pytest]\naddopts = -ra\n"}, 1),
    "pyproject": ("", "", [], PLAIN, {"pyproject.toml": "[tool.pytest.ini_options]\n"}, 1),
    "rootdir": ("", "", ["--rootdir=sub"], PLAIN, {"sub/pytest.ini": "[pytest]\n"}, 1),
    "spaces": ("", "", ["-k", "it"], PLAIN, {"a folder/ünïcode.txt": ""}, 1),
}  # fmt: skip


@pytest.mark.parametrize("setup", SETUPS)
def test_a_set_up_changes_no_verdict(
    project: Project, monkeypatch: pytest.MonkeyPatch, setup: str
) -> None:
    """The tests' outcome and the rows of the table are those of a plain session."""
    plugin, module, options, source, files, n_rows = SETUPS[setup]
    if module and importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    if setup == "annotations":
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for name, text in files.items():
        path = project.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    project.test(source)
    used = project.with_plugin(plugin) if plugin else project
    result = used.run(*options)
    text = result.stdout.str()
    assert result.ret == pytest.ExitCode.OK, text
    assert text.count(" fake:F16 ") == n_rows, text


def test_the_tests_are_only_collected(project: Project) -> None:
    """A listing of the tests measures nothing."""
    project.test(PLAIN)
    result = project.run("--collect-only", "-q")
    assert result.ret == pytest.ExitCode.OK
    assert "fake" not in result.stdout.str()


def test_a_session_after_a_session(project: Project) -> None:
    """A process that calls pytest twice has two sessions."""
    project.test(PLAIN)
    for _ in range(2):
        project.run().stdout.fnmatch_lines(["* tg8 fake:F16 *", "*1 assertion: 1 PASS*"])


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_a_folder_of_another_alphabet(
    project: Project, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Names with spaces and letters that are not ASCII, and either end of line, are read."""
    folder = project.path / "größe 模型"
    folder.mkdir()
    project.test(PLAIN)
    for name in ("test_it.py", "asperf.toml", "corpus.txt", "conftest.py", "f16.json"):
        text = (project.path / name).read_text("utf-8")
        (folder / name).write_text(text, "utf-8", newline=end)
        (project.path / name).unlink()
    monkeypatch.chdir(folder)
    project.run().stdout.fnmatch_lines(["* tg8 fake:F16 *"])


@pytest.fixture
def unwritable(project: Project) -> Iterator[Project]:
    """The project in a folder without writing: by its mode, or for root by a mount."""
    if os.geteuid():
        project.path.chmod(0o555)
        yield project
        project.path.chmod(0o755)
        return
    folder = str(project.path)
    mounts = ["--bind", folder, folder], ["-o", "remount,ro,bind", folder]
    if any(subprocess.run(["/bin/mount", *words], check=False).returncode for words in mounts):
        pytest.skip("root writes everywhere, and nothing can be mounted here")
    yield project
    subprocess.run(["/bin/umount", "-l", folder], check=True)


def test_a_folder_that_cannot_be_written(project: Project, request: pytest.FixtureRequest) -> None:
    """A session needs no files other than its tests."""
    project.test(PLAIN)
    request.getfixturevalue("unwritable")
    with pytest.raises(OSError, match=r"Read-only|Permission"):
        (project.path / "new.txt").touch()
    result = project.run("-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["* tg8 fake:F16 *"])
