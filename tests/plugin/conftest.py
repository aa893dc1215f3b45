"""A project that measures with the scripted engine: real worker processes, chosen timings."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module, metadata
from importlib.metadata import Distribution
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest

import pytest_asperf
from pytest_asperf.engine_process import EngineBuild, EngineFacts, Worker
from pytest_asperf.hardware import in_force
from pytest_asperf.hardware.compute_plan import ComputePlan, parse_plan
from pytest_asperf.hardware.machine import Machine
from pytest_asperf.hardware.meters.meter import Meter, MissingRail
from pytest_asperf.modelfiles.locate import ModelLocator
from pytest_asperf.testing import write_script
from tests.conftest import measure_bandwidth_quickly, time_pairs_quickly
from tests.power_samples import RUN_S, replayed_counter
from tests.report import sample_reports as samples

_COREML = Path(__file__).parents[2] / "fixtures" / "coreml"
#: `worker` is loaded by other processes, and the others are tests.
_NOT_IMPORTED = ("pytest_asperf.worker", "pytest_asperf.findings", "pytest_asperf.examples")

# Each run inside this process forgets its first imports. numpy cannot be imported twice, and
# everything else costs its time again.
for _module in walk_packages(pytest_asperf.__path__, "pytest_asperf."):
    if not _module.name.startswith(_NOT_IMPORTED):
        import_module(_module.name)
# Its compiled half would go on raising the errors of the copy that was forgotten.
import_module("psycopg")
import_module("sqlalchemy.dialects.postgresql.psycopg")

#: A quantization near F16, and one far from it that generates faster; their PP cannot be
#: distinguished.
_SCRIPTS: dict[str, dict[str, Any]] = {
    "f16": {"size_bytes": 4000},
    "q8": {
        "size_bytes": 2000,
        "noise": 0.02,
        "tg_ns_per_token": [900_000, 900_100, 900_200],
        "pp_ns_per_token": [10_000, 10_400, 10_200],
    },
    "q4": {
        "size_bytes": 1000,
        "noise": 0.3,
        "tg_ns_per_token": [700_000, 700_100, 700_200],
        "pp_ns_per_token": [10_300, 10_100, 10_200],
    },
}
_CONFIG = """
engine = "scripted"
default_model = "fake"
repetitions = 5
chunks = 6
call_timeout_s = 20
"""
_MODEL = """
[models.fake]
files = { F16 = "f16.json", Q8_0 = "q8.json", Q4_K_M = "q4.json" }
corpus = "corpus.txt"
"""


def marked(fixtures: str = "") -> str:
    """The head of a test with a marker and fixtures, for `Project.rejects`."""
    return f"@pytest.mark.{{}}\ndef test_it({fixtures}):\n    pass\n"


@dataclass(frozen=True)
class Project:
    """A folder with tests, and pytest to run on them."""

    pytester: pytest.Pytester
    plugins: list[str]

    @property
    def path(self) -> Path:
        """The folder."""
        return self.pytester.path

    def with_plugin(self, name: str) -> Project:
        """The same, with a plugin that is off unless a test is about it."""
        return replace(self, plugins=[*self.plugins, f"-p{name}"])

    def script(self, name: str, **script: Any) -> Path:
        """Write, or add to, the script of a model file."""
        return write_script(self.path / f"{name}.json", **(_SCRIPTS.get(name, {}) | script))

    def config(self, text: str = "", **settings: Any) -> None:
        """Write asperf.toml: the project's start, other settings, and more tables."""
        lines = {line.partition(" = ")[0]: line for line in _CONFIG.strip().splitlines()}
        lines |= {key: f"{key} = {json.dumps(value)}" for key, value in settings.items()}
        (self.path / "asperf.toml").write_text("\n".join([*lines.values(), _MODEL, text]))

    def test(self, source: str, name: str = "test_it") -> None:
        """Write a test module that has all public names and pytest."""
        head = "import pytest\nfrom pytest_asperf import *\n"
        self.pytester.makepyfile(**{name: head + source})

    def run(self, *args: str) -> pytest.RunResult:
        """Run pytest in this process; a warning is an error."""
        return self.pytester.runpytest_inprocess(*self.plugins, "-W", "error", *args)

    def judged(self, head: str, claims: Iterable[str], *args: str) -> str:
        """Run each assertion as a test of its own below one head; the letters of their outcomes.

        Args:
            head: the decorators and the first line of a test that is named `test_it`.
            claims: the bodies, of one line each.
            args: of pytest.
        """
        self.claims(head, claims)
        (line,) = (line for line in self.run(*args).outlines if line.startswith("test_it.py "))
        return line.split()[1]

    def rejects(
        self, head: str, messages: Mapping[str, str], *args: str, in_setup: bool = False
    ) -> None:
        """Check that each assertion is an error of its own test, with its message and remedy.

        Args:
            head: as of `judged`.
            messages: by claim, a part of its message.
            args: of pytest.
            in_setup: True if the set-up of each test rejects it, as it does a marker.
        """
        self.claims(head, messages)
        result = self.run(*args)
        result.assert_outcomes(**{"errors" if in_setup else "failed": len(messages)})
        text = re.split(r"^=+ asperf =+$", result.stdout.str(), flags=re.MULTILINE)[0]
        _, *parts = re.split(
            r"^_+ (?:ERROR at setup of )?test_(\d\d)\S* _+$", text, flags=re.MULTILINE
        )
        blocks = dict(zip(parts[::2], parts[1::2], strict=True))
        for n, (claim, message) in enumerate(messages.items()):
            block = blocks[f"{n:02}"]
            assert message in block, (claim, block)
            assert "\n  what to do:     " in block, block
            assert "Traceback" not in block

    def claims(self, head: str, claims: Iterable[str]) -> None:
        """Write a test module in which each assertion is a test of its own below one head.

        A body is in the head's place of `{}`, or below it.
        """
        pattern = head if "{}" in head else head + "{}"
        tests = (
            pattern.replace("{}", claim).replace("test_it", f"test_{n:02}")
            for n, claim in enumerate(claims)
        )
        self.test("\n".join(tests))


@pytest.fixture(autouse=True)
def _undisturbed(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ.keys() - environment:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def described() -> dict[EngineBuild, EngineFacts]:
    """The engines' reports about themselves: none changes while the tests run."""
    return {}


@pytest.fixture(autouse=True)
def _described_once(
    described: dict[EngineBuild, EngineFacts], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Start no engine in each session only to describe itself."""
    describe = ModelLocator.describe

    def describe_once(locator: ModelLocator, *worker: Worker | None) -> EngineFacts:
        if locator._build not in described:
            described[locator._build] = describe(locator, *worker)
        return described[locator._build]

    monkeypatch.setattr(ModelLocator, "describe", describe_once)


@pytest.fixture(scope="session")
def this_machine() -> Machine:
    """This machine, described by its own programs."""
    return in_force.detect()


@pytest.fixture(autouse=True)
def _detected_once(this_machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read no fact of this machine again in each session."""
    for name in ("linux", "macos"):
        monkeypatch.setattr(f"pytest_asperf.hardware.{name}.read_machine", lambda: this_machine)


@pytest.fixture(scope="session")
def distributions() -> list[Distribution]:
    """The installed packages that have plugins of pytest."""
    return [
        found for found in metadata.distributions() if found.entry_points.select(group="pytest11")
    ]


@pytest.fixture(autouse=True)
def _listed_once(distributions: list[Distribution], monkeypatch: pytest.MonkeyPatch) -> None:
    """List no packages again for each plugin of a session."""
    monkeypatch.setattr("importlib.metadata.distributions", lambda: distributions)


@pytest.fixture
def project(
    pytester: pytest.Pytester,
    session_cache: Path,
    own_lock: str,
    plugins: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Project:
    """A project whose model `fake` has three quantizations."""
    monkeypatch.setenv("ASPERF_CACHE", str(session_cache))
    monkeypatch.setenv("COLUMNS", "400")
    # The same as own_lock does, undone when the test is over.
    monkeypatch.setattr(
        "pytest_asperf.hardware.machine_lock.machine_lock_path", lambda: session_cache / "lock"
    )
    time_pairs_quickly(monkeypatch)
    project = Project(pytester, plugins)
    (project.path / "conftest.py").write_text(own_lock)
    for name in _SCRIPTS:
        project.script(name)
    text = "def area(width, height):\n    return width * height\n" * 400
    (project.path / "corpus.txt").write_text(text)
    project.config()
    return project


@pytest.fixture
def rows(project: Project) -> Callable[..., list[dict[str, Any]]]:
    """Return a function that runs pytest and returns the rows of its JSON report."""

    def run(*args: str) -> list[dict[str, Any]]:
        project.run(f"--asperf-report=json:{project.path / 'rows.json'}", *args)
        document = json.loads((project.path / "rows.json").read_text())
        samples.check_schema(document)
        found: list[dict[str, Any]] = document["rows"]
        return found

    return run


@pytest.fixture
def live(project: Project, short_text: None, monkeypatch: pytest.MonkeyPatch) -> Project:  # noqa: ARG001
    """The same, measured with llama.cpp on the shipped draft."""
    measure_bandwidth_quickly(monkeypatch)
    project.config(
        engine="llama_cpp",
        default_model="asperf-draft",
        repetitions=6,
        chunks=5,
        call_timeout_s=120,
        max_cv="1000%",  # others may work on this machine
    )
    return project


@pytest.fixture
def metered(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project on a machine whose GPU's counter is published every 10 ms."""
    project.config(default_model="fake:F16")
    project.script("f16", takes_s={"generate": RUN_S}, tg_ns_per_token=10**7, layers_offloaded=1)
    missing = MissingRail("package", "only root may read package-0", "sudo chmod")
    meter = Meter((replayed_counter(),), (missing,))
    monkeypatch.setattr("pytest_asperf.measure.metered.open_meters", lambda: meter)
    monkeypatch.setattr("pytest_asperf.measure.metered._QUIET_S", 0.0)
    # Other work disturbs a counter's windows more than times.
    monkeypatch.setattr("pytest_asperf.measure.paired_runner._PAIR_NS", 100_000_000)
    monkeypatch.setattr("pytest_asperf.hardware.meters.meter.LEAST_WINDOW_S", 0.05)
    return project


@pytest.fixture
def pair(live: Project) -> Project:
    """A project with two short prompts."""
    prompts = {"code": ["def area(width, height):\n"], "text": ["# The area is the product of"]}
    (live.path / "prompts.json").write_text(json.dumps(prompts))
    return live


@pytest.fixture
def planned(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project on a Mac with a saved plan."""

    def read(path: Path, *, units: str, function: str | None) -> ComputePlan:
        text = (_COREML / "prefill_on_ane.json").read_text().replace("\n", "")
        return parse_plan(text, where=f"{path} {units}", function=function)

    monkeypatch.setattr("pytest_asperf.api.model.read_plan", read)
    return project
