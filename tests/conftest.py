"""The shipped draft as files of every kind, made once a session into one cache."""

import gc
import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import pytest_asperf
from pytest_asperf.engine_process import EngineBuild
from pytest_asperf.errors import SETTING_NAMES
from pytest_asperf.hardware.machine import Machine

#: A checkout that is not installed has no entry point.
_OURS = "asperf" if entry_points(group="pytest11", name="asperf") else "pytest_asperf.plugin"
#: Options of a pytest that runs in a test, with this plugin alone: others cost time, or change
#: lines or tests. A later `-p NAME` adds one.
LOADED = ("--disable-plugin-autoload", f"-p{_OURS}")
_DISTURBING = (
    *("NO_COLOR", "FORCE_COLOR", "PY_COLORS", "CI", "PYTEST_ADDOPTS", "COLUMNS"),
    *("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "CMAKE_ARGS"),
    "PYTEST_XDIST_WORKER",  # a run that these tests start is no worker of theirs
    "PYTHONDONTWRITEBYTECODE",  # each would compile 500 modules anew
)

#: How settings are named while no session of asperf is open, as when this is imported.
_PLAIN_NAMES = SETTING_NAMES.get()

# Collecting tests leaves little garbage, and needs a third more CPU time with the search for it.
gc.disable()

#: Gives the shipped draft's GGUF file at a quantization.
Draft = Callable[[str], Path]

#: Fixtures that start a real engine.
_LIVE = {"draft", "live", "llama_log", "mlx", "program", "tools"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that need a real engine, or its binaries: `-m` then runs it if they exist."""
    fixtures = set(getattr(item, "fixturenames", ()))
    if "mlx" in fixtures:
        item.add_marker("mlx")
    if fixtures & _LIVE:
        item.add_marker("live")


def pytest_collection_finish() -> None:
    """Have the garbage collector begin now, and leave modules and tests alone."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _plain_names() -> None:
    """Name settings as outside of a session: one that a test left open must not matter."""
    SETTING_NAMES.set(_PLAIN_NAMES)


@pytest.fixture(autouse=True)
def _whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print whole lines, whatever the width of the terminal that these tests run in."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def _before_other_work(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have engines of tests that judge real times come before all other work, where they may."""
    if request.node.get_closest_marker("serial") is None or os.getpriority(os.PRIO_PROCESS, 0):
        yield
        return
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    yield
    os.setpriority(os.PRIO_PROCESS, 0, 0)


@pytest.fixture(scope="session", autouse=True)
def _forked_workers() -> Iterator[None]:
    """Import an engine once for the workers that this process starts, where the system can."""
    if sys.platform != "linux":
        yield
        return
    from tests.forked_workers import Forks

    with Forks() as forks, pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytest_asperf.engine_process.process.start_interpreter", forks.start)
        yield


@pytest.fixture(scope="session", autouse=True)
def _forked_programs() -> Iterator[None]:
    """Import pytest and this package once for the programs that this process starts."""
    if sys.platform != "linux":
        yield
        return
    from tests.forked_programs import Programs

    with Programs(LOADED) as programs, pytest.MonkeyPatch.context() as patch:

        def execute(process: object, *arguments: Any) -> None:
            programs.execute(process, *arguments)

        patch.setattr("subprocess.Popen._execute_child", execute)
        yield


@pytest.fixture
def own_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start each worker and program in an interpreter of its own, as users have it."""
    if sys.platform != "linux":
        return
    from tests.forked_programs import EXECUTE
    from tests.forked_workers import START

    monkeypatch.setattr("pytest_asperf.engine_process.process.start_interpreter", START)
    monkeypatch.setattr("subprocess.Popen._execute_child", EXECUTE)


@pytest.fixture(scope="session")
def mlx() -> EngineBuild:
    """MLX in this interpreter; its tests are skipped if it is not installed."""
    from pytest_asperf.engine_process import EngineBuild

    if find_spec("mlx_lm") is None:
        pytest.skip("mlx-lm is not installed")
    return EngineBuild("mlx", Path(sys.executable))


@pytest.fixture(scope="session")
def mac() -> Callable[[str], Machine]:
    """Return a function that makes the machine of a folder below `fixtures/hardware/macos`."""
    from pytest_asperf.hardware import macos

    folders = Path(__file__).parents[1] / "fixtures" / "hardware" / "macos"

    def make(name: str) -> Machine:
        sysctl = macos.parse_sysctl((folders / name / "sysctl.txt").read_text())
        gpu_cores = macos.parse_gpu_cores((folders / name / "ioreg.txt").read_text())
        return macos.machine_from(sysctl, gpu_cores, macos.ProfilerFacts(), "arm64")

    return make


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests: files and measurements are made once.

    Workers of xdist share the models, which are made under a lock, and the machine's bandwidth.
    """
    cache = tmp_path_factory.mktemp("asperf-cache")
    if "PYTEST_XDIST_WORKER" in os.environ:
        for name in ("models", "hardware"):
            shared = tmp_path_factory.getbasetemp().parent / f"asperf-{name}"
            shared.mkdir(exist_ok=True)
            (cache / name).symlink_to(shared)
    return cache


@pytest.fixture(scope="session")
def plugins() -> list[str]:
    """Options under which pytest runs with this plugin alone."""
    return [*LOADED]


@pytest.fixture(scope="module")  # a folder may have plugins of its own
def command(plugins: list[str]) -> list[str]:
    """The command that runs pytest in a process of its own."""
    return [sys.executable, "-m", "pytest", *plugins]


@pytest.fixture(scope="session")
def environment(session_cache: Path) -> dict[str, str]:
    """The environment of such a process: it finds the package, and gets no colours from ours."""
    kept = {key: value for key, value in os.environ.items() if key not in _DISTURBING}
    package = Path(pytest_asperf.__file__).parents[1]
    return kept | {"ASPERF_CACHE": str(session_cache), "PYTHONPATH": str(package)}


@pytest.fixture(scope="session")
def own_lock(session_cache: Path) -> str:
    """A conftest.py under which no other measurement of this machine is waited for."""
    return (
        "from pathlib import Path\nfrom pytest_asperf.hardware import machine_lock\n"
        f"machine_lock.machine_lock_path = lambda: Path({str(session_cache / 'lock')!r})\n"
    )


@pytest.fixture(scope="session")
def draft(session_cache: Path) -> Draft:
    """Return a function that gives the shipped draft at a quantization; not to be changed."""
    from pytest_asperf.config.spec import ModelRef
    from pytest_asperf.engine_process import EngineBuild
    from pytest_asperf.modelfiles.hub_cache import shipped_models
    from pytest_asperf.modelfiles.locate import ModelLocator

    (spec,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    build = EngineBuild("llama_cpp", Path(sys.executable))
    locator = ModelLocator(build, cache=session_cache, call_timeout_s=120)
    return lambda level: locator.locate(ModelRef(spec, level)).path


@pytest.fixture(scope="session")
def draft_gguf(draft: Draft) -> Path:
    """The shipped draft as F16; not to be changed."""
    return draft("F16")


@pytest.fixture(scope="session")
def tools() -> Path:
    """A folder of llama.cpp's real binaries, of the library's own sources."""
    if named := os.environ.get("ASPERF_TEST_TOOLS"):
        return Path(named)
    installed = Path(sysconfig.get_path("platlib"), "lib")  # by CMAKE_ARGS of tox.ini
    if not (installed / "llama-bench").exists():
        reason = f"no llama-bench in {installed}: clear pip's cache and run tox -r"
        must_be = "CI" in os.environ and sys.platform == "linux"
        (pytest.fail if must_be else pytest.skip)(reason)
    return installed


@pytest.fixture(scope="session")
def program(tools: Path) -> Callable[[str], Path]:
    """Return a function for the file of one of `tools`; it skips the test if there is none."""

    def of(name: str) -> Path:
        if not (tools / name).is_file():
            pytest.skip(f"{tools} has no {name}")
        return tools / name

    return of


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with nothing installed, neither an engine nor numpy."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


@pytest.fixture
def quick_bandwidth(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Measure this machine's bandwidth in no time, and wait for no other measurement.

    A real figure, but of a cache's bandwidth: no test judges its size.
    """
    measure_bandwidth_quickly(monkeypatch)
    monkeypatch.setattr(
        "pytest_asperf.hardware.machine_lock.machine_lock_path", lambda: tmp_path / "lock"
    )


def measure_bandwidth_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first half of `quick_bandwidth`."""
    from pytest_asperf.hardware.bandwidth import BandwidthPlan

    small = BandwidthPlan(threads=2, windows=2, window_bytes=2 << 20)
    monkeypatch.setattr("pytest_asperf.hardware.bandwidth.plan_measurement", lambda *_: small)
    monkeypatch.setattr("pytest_asperf.hardware.bandwidth._STEADY_S", 0.05)


def time_pairs_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time the fewest runs in a pair: faults here are far larger than the noise of a median."""
    monkeypatch.setattr("pytest_asperf.measure.paired_runner._PAIR_NS", 0)
    monkeypatch.setattr("pytest_asperf.measure.paired_runner._MOST_TURNS_LATER", 0)
    monkeypatch.setattr("pytest_asperf.measure.paired_runner._OPENING_SHARE", 0.0)
    monkeypatch.setattr("pytest_asperf.hardware.readiness._WINDOW_S", 0.01)


@pytest.fixture(scope="session")
def short_corpus(session_cache: Path) -> Path:
    """The first eighth of the shipped text: reading it all costs as much as scoring ten chunks."""
    from pytest_asperf.modelfiles.hub_cache import shipped_corpus

    path = session_cache / "heldout.txt"
    text = shipped_corpus().read_text("utf-8")
    path.write_text(text[: len(text) // 8], "utf-8")
    return path


@pytest.fixture
def short_text(short_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Score it instead of the shipped text."""
    monkeypatch.setattr("pytest_asperf.measure.workspace.shipped_corpus", lambda: short_corpus)


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Score chunks of 128 tokens, where a fault shows in these as in 512."""
    for name in ("ladder.PPL_N_CTX", "ab_ppl.PPL_N_CTX", "ab_logits._TOKENS"):
        monkeypatch.setattr(f"pytest_asperf.measure.{name}", 128)


@pytest.fixture
def few_prompts(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Measure speculation on two of the shipped prompts of each category."""
    from pytest_asperf.modelfiles.hub_cache import shipped_prompts

    found = json.loads(shipped_prompts().read_text("utf-8"))
    path = tmp_path_factory.mktemp("prompts") / "prompts.json"
    path.write_text(json.dumps({category: texts[:2] for category, texts in found.items()}))
    monkeypatch.setattr("pytest_asperf.measure.feeding.shipped_prompts", lambda: path)


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Path]:
    """A private sshd on a free port of the loopback, as a configuration for ssh."""
    program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    if program is None or shutil.which("ssh-keygen") is None:
        pytest.skip("sshd is not installed (Debian: openssh-server)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(words, check=True)
    (tmp_path / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nPidFile none\n"
        f"AuthorizedKeysFile {tmp_path}/user.pub\nStrictModes no\nUsePAM no\n"
        f"SetEnv PATH={os.environ['PATH']}\n"
    )
    (tmp_path / "ssh_config").write_text(
        f"Host gone\n Port 1\nHost *\n HostName 127.0.0.1\n Port {port}\n"
        f" User {getpass.getuser()}\n IdentityFile {tmp_path}/user\n IdentitiesOnly yes\n"
        " LogLevel ERROR\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n"
    )
    if os.getuid() == 0:  # which its service makes at each start
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    words = [program, "-D", "-e", "-f", str(tmp_path / "sshd_config")]
    with (tmp_path / "sshd.log").open("wb") as log, subprocess.Popen(words, stderr=log) as server:
        try:
            _await(server, port, tmp_path / "sshd.log")
            yield tmp_path / "ssh_config"
        finally:
            server.terminate()


def _await(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    while server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except ConnectionRefusedError:
            continue
        return
    pytest.skip(f"sshd does not start here: {log.read_text().strip()}")
