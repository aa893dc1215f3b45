"""A model's file that changes in a session: the report has the measured one."""

import shutil

import pytest

from pytest_asperf.engine_process import EngineBuild
from pytest_asperf.modelfiles.hub_cache import shipped_models
from tests.conftest import Draft
from tests.plugin.conftest import Project

REPLACED = """
import hashlib, os
from pathlib import Path

PATH = Path(__file__).with_name("{path}")

def measured(throughput):
    verdict = throughput("tg8") > 1
    assert verdict
    ran = dict(verdict.facts)
    assert ran["sha256"] == hashlib.sha256(PATH.read_bytes()).hexdigest()[:12]
    return ran["type"]

def test_first(throughput):
    assert measured(throughput).endswith("{first}")

def test_replaced(throughput):
    os.replace(Path(__file__).with_name("{other}"), PATH)
    assert measured(throughput).endswith("{second}")
"""


def test_a_gguf_file_replaced_between_tests(live: Project, draft: Draft) -> None:
    """The second test loads, hashes and reports the second file."""
    shutil.copy(draft("F16"), live.path / "x.gguf")
    shutil.copy(draft("Q8_0"), live.path / "other.gguf")
    live.config('[models.x]\ngguf = "x.gguf"', engine="llama_cpp", default_model="x")
    live.test(REPLACED.format(path="x.gguf", other="other.gguf", first="F16", second="Q8_0"))
    live.run("--asperf-max-cv=1000%").assert_outcomes(passed=2)


def test_a_folder_of_mlx_edited_between_tests(live: Project, mlx: EngineBuild) -> None:  # noqa: ARG001  # skips without
    """Every file that decides a computation counts, not the weights alone."""
    (draft,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    assert draft.hf_folder is not None
    shutil.copytree(draft.hf_folder, live.path / "folder")
    live.config('[models.x]\nhf = "folder"', engine="mlx", default_model="x")
    live.test("""
import json
from pathlib import Path

CONFIG = Path(__file__).with_name("folder") / "config.json"

def test_it(throughput):
    before, again = throughput("tg8") > 1, throughput("tg8") > 1
    assert before and again
    assert before.figures[0].estimate is again.figures[0].estimate
    CONFIG.write_text(json.dumps(json.loads(CONFIG.read_text()) | {"max_position_embeddings": 77}))
    after = throughput("tg8") > 1
    assert after
    assert dict(after.facts)["sha256"] != dict(before.facts)["sha256"]
""")
    live.run("--asperf-max-cv=1000%").assert_outcomes(passed=1)


DURING = """
import os
from pathlib import Path
from pytest_asperf.engine_process import Worker

HERE = Path(__file__).parent

def replace():
    (HERE / "new").write_text((HERE / "f16.json").read_text() + " ")
    os.replace(HERE / "new", HERE / "f16.json")

@pytest.mark.model("fake:F16")
def test_during({fixture}, monkeypatch):
    call, changes = Worker.call, [{change}]

    def changing(self, op, **args):
        if op == "{operation}" and changes:
            changes.pop()()
        return call(self, op, **args)

    monkeypatch.setattr(Worker, "call", changing)
    {measure}
    assert not changes

@pytest.mark.model("fake:F16")
def test_after(throughput):
    assert throughput("tg8") >= 1
"""
MEASURES = {
    "throughput": "throughput('tg8').estimate",
    "gate": "assert_no_regression(gate('tg8'))",
    "memory": "memory(8).kv.estimate",
}


def _project(project: Project, fixture: str, change: str) -> None:
    operation = "prompt" if fixture == "memory" else "generate"
    project.test(
        DURING.format(
            fixture=fixture, change=change, measure=MEASURES[fixture], operation=operation
        )
    )


QUICK = ("--asperf-repetitions=5", "--asperf-max-pairs=5", "--asperf-candidate=current")


def test_a_file_replaced_during_a_measurement(project: Project) -> None:
    """Runs of two files are INVALID as one figure; the next test measures the second."""
    for fixture in MEASURES:
        _project(project, fixture, "replace")
        result = project.run(*QUICK)
        result.stdout.fnmatch_lines(
            ["test_it.py V. *", "*fake:F16*: */f16.json changed while it was measured"]
        )


def test_a_file_that_was_only_touched(project: Project) -> None:
    """The same bytes are the same model, whenever they were written."""
    _project(project, "throughput", "(HERE / 'f16.json').touch")
    project.run(*QUICK).assert_outcomes(passed=2)


def test_a_damaged_cached_level_is_made_again(
    live: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte that changed at equal size and time of writing is found, and is not measured."""
    monkeypatch.setenv("ASPERF_CACHE", str(live.path / "cache"))  # others read the session's
    live.test("""
import os

@pytest.mark.model("asperf-draft:Q5_0")
def test_it(model):
    stat = model.path.stat()
    sound = model.path.read_bytes()
    with model.path.open("r+b") as file:
        file.seek(-100, 2)
        file.write(bytes(byte ^ 1 for byte in sound[-100:-99]))
    os.utime(model.path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert model.path.read_bytes() != sound
    (model.path.parent / "sound").write_bytes(sound)

@pytest.mark.model("asperf-draft:Q5_0")
def test_again(model, throughput):
    assert throughput("tg8") > 1
    sound = model.path.parent / "sound"
    assert model.path.read_bytes() == sound.read_bytes()
    sound.unlink()
""")
    live.run().assert_outcomes(passed=2)
