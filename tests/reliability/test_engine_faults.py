"""Real engines in processes that go wrong in every way that a process can.

One session for each engine: an interpreter replaces the engine's own, runs the real worker with the
real engine, and does harm when it generates with a model that is named after the harm.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.config.engines import Engine
from pytest_asperf.config.spec import ModelRef
from pytest_asperf.engine_process import EngineBuild
from pytest_asperf.modelfiles.hub_cache import shipped_models
from pytest_asperf.modelfiles.locate import ModelLocator
from tests.harmful_interpreter import write_interpreter
from tests.reliability.conftest import Session, Sessions

#: A model that is named after a harm meets it when it is to generate.
_BY_MODEL = """
def chosen(request):
    name = str(request.get("args", {}).get("model", "")).partition(":")[0]
    # Noise during a run would be its work outside of the timed part.
    return name if request.get("op") == ("load" if name == "noisy" else "generate") else ""
"""
#: Errors of an engine's Python part about a library that it was not built for.
_OTHER_LIBRARY = """
class Mismatched(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in ("llama_cpp.llama_cpp", "mlx.core"):
            raise AttributeError("lib.so: undefined symbol: llama_decode")
sys.meta_path.insert(0, Mismatched())
"""

#: By harm: the error. All are INVALID; `noisy` does none.
_TOLD = {
    "killed": "ended by SIGKILL",
    "crashes": "ended by SIGSEGV",
    "aborts": "ended by SIGABRT",
    "exits": "exited with status 0",
    "stopped": "no answer within 1 s, the process was ended",
    "hangs": "no answer within 1 s, the process was ended",
    "garbage": "an unreadable answer: not JSON",
    "foreign": "an unreadable answer: an answer to request 0",
    "flood": "an unreadable answer: a line of over 134217728 bytes",
    "closes": "the engine's process exited with status 0",
    "infinite": "an unreadable answer: the answer is malformed: `elapsed_ns` is inf",
    "endless": "an unreadable answer",
    "too_few": "an unreadable answer: the answer is malformed: 1 tokens in",
    "empty": "an unreadable answer: the answer is malformed: `context` is missing",
}
#: Rejected before anything was measured: an error of the test, and no verdict.
_REFUSED = {"out_of_memory": "ran out of memory"}
#: Harm outside the engine's library, such as to the pipe: MLX, which is slow to start, is not
#: started once more for each. It aborts, and runs out of memory.
_OF_ANY_PROCESS = (
    *("killed", "crashes", "exits", "stopped", "hangs"),
    *("garbage", "foreign", "flood", "closes", "infinite", "endless", "too_few", "empty"),
)

_CONFTEST = """
from pytest_asperf.engine_process import Worker
call = Worker.call
def hurried(self, op, *, timeout_s=None, **args):
    late = op == "generate" and args["model"].startswith(("hangs", "stopped"))
    return call(self, op, timeout_s=1 if late else timeout_s, **args)
Worker.call = hurried
"""
_TESTS = """
import pytest

@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.model(n + ":F16"), id=n) for n in {names}]
)
def test_it(name, throughput):
    assert throughput("tg8") >= "1 tok/s"
"""


def _told(engine: Engine) -> dict[str, str]:
    """The words about each harm that an engine meets."""
    left_out = _OF_ANY_PROCESS if engine == "mlx" else ()
    return {name: told for name, told in (_TOLD | _REFUSED).items() if name not in left_out}


def _measured(engine: Engine) -> tuple[str, ...]:
    """The models of which an engine gives figures."""
    return ("sound", "sound_again") if engine == "mlx" else ("sound", "noisy", "sound_again")


def _model(engine: Engine, cache: Path) -> Path:
    (spec,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    made_by: Engine = "mlx" if engine == "mlx" else "llama_cpp"
    build = EngineBuild(made_by, Path(sys.executable))
    locator = ModelLocator(build, cache=cache, call_timeout_s=120)
    return locator.locate(ModelRef(replace(spec, engine=made_by), "F16")).path


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("llama_cpp", marks=pytest.mark.live),
        pytest.param("mlx", marks=[pytest.mark.live, pytest.mark.mlx]),
        pytest.param("llama_tools", marks=pytest.mark.live),
    ],
)
def engine(request: pytest.FixtureRequest) -> Engine:
    """An engine that is installed here."""
    if request.param == "mlx":
        request.getfixturevalue("mlx")
    found: Engine = request.param
    return found


@pytest.fixture(scope="module")
def project(
    request: pytest.FixtureRequest, engine: Engine, session_cache: Path, sessions: Sessions
) -> Sessions:
    """A project with a model named after each harm, all the same file."""
    model = _model(engine, session_cache)
    first, *others = _measured(engine)
    names = (first, *_told(engine), *others)
    settings: dict[str, Any] = {
        "engine": engine,
        "default_model": "sound",
        "repetitions": 5,
        "call_timeout_s": 120,
        "max_cv": "1000%",  # others may work on this machine
    }
    if engine == "llama_tools":
        settings["tools"] = str(request.getfixturevalue("tools"))
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    lines += [f"[models.{name}]\nfiles = {{ F16 = {json.dumps(str(model))} }}" for name in names]
    (sessions.folder / "asperf.toml").write_text("\n".join(lines))
    (sessions.folder / "test_faults.py").write_text(_TESTS.format(names=names))
    own_lock = (sessions.folder / "conftest.py").read_text().partition("# faults\n")[0]
    (sessions.folder / "conftest.py").write_text(f"{own_lock}# faults\n{_CONFTEST}")
    return sessions


@pytest.fixture(scope="module")
def session(project: Sessions) -> Session:
    """One session with every harm."""
    python = write_interpreter(project.folder / "python", _BY_MODEL)
    return project.run(f"--asperf-python={python}", "--asperf-report=json:rows.json")


def test_each_fault_is_the_result_of_its_own_test(session: Session, engine: Engine) -> None:
    """A fault is INVALID with its name; sound or noisy engines are measured and PASS."""
    session.require_clean()
    expected = dict.fromkeys(_told(engine), "INVALID") | dict.fromkeys(_REFUSED, "FAILED")
    expected |= dict.fromkeys(_measured(engine), "PASSED")
    assert session.outcomes == {f"test_it[{name}]": [word] for name, word in expected.items()}
    assert session.status == pytest.ExitCode.TESTS_FAILED


def test_the_error_names_the_fault(session: Session, engine: Engine) -> None:
    """The message has the event and the model."""
    lines = session.output.splitlines()
    for name, told in _told(engine).items():
        of_it = [line for line in lines if f"{engine} generate {name}:" in line]
        assert any(told in line for line in of_it), (name, of_it)


def test_finished_measurements_are_reported(
    project: Sessions, session: Session, engine: Engine
) -> None:
    """The JSON report has each measurement that finished, and no figure of a broken one."""
    assert session.status == pytest.ExitCode.TESTS_FAILED
    rows = json.loads((project.folder / "rows.json").read_text("utf-8"))["rows"]
    verdicts = {
        row["test"].partition("[")[2][:-1]: row["outcome"] for row in rows if row["outcome"]
    }
    assert {name for name, outcome in verdicts.items() if outcome == "PASS"} == set(
        _measured(engine)
    )
    measured = {row["model"].partition(":")[0] for row in rows if row["model"]}
    assert measured == set(_measured(engine))


def test_no_process_is_left(project: Sessions, session: Session) -> None:
    """In any state, each process of the engine has ended."""
    assert session.output
    assert project.left_behind() == []


def test_a_library_of_another_version_is_refused(project: Sessions, engine: Engine) -> None:
    """An engine whose library lacks its binding's calls measures nothing, with the reason."""
    if engine == "llama_tools":
        pytest.skip("its programs are started, not linked; test_tool_faults has their versions")
    python = write_interpreter(project.folder / "other", _BY_MODEL, _OTHER_LIBRARY)
    session = project.run(f"--asperf-python={python}", "-k", "sound")
    session.require_clean()
    words = [word for words in session.outcomes.values() for word in words]
    assert words
    assert set(words) <= {"FAILED", "ERROR"}
    assert "undefined symbol: llama_decode" in session.output
