"""A build or model that cannot be used is an error before a gate waits for the machine."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_asperf.hardware.machine_lock import MachineQueue
from tests.commands.conftest import Command, ScriptedCommand
from tests.harmful_interpreter import write_interpreter

#: The first bytes of a program for a 64-bit Arm, which no machine of these tests is.
OF_ARM = b"\x7fELF\x02\x01\x01" + bytes(11) + b"\xb7\x00" + bytes(100)
BENCH = "#!/bin/sh\necho '  --threads <n>  (default: 1)'\n"
TOOLS = ("--engine", "llama_tools", "--model", "asperf-draft:F16")
MISSING = (
    "sys.meta_path.clear()\nsys.modules['asperf_worker.main'].ENGINES['scripted'] = ('.no', '')"
)


@pytest.fixture
def gate(scripted_command: ScriptedCommand, tmp_path: Path) -> Callable[..., str]:
    """Return a function that gates while another measurement has the machine; gives its output."""
    command: Command = scripted_command("gate", "--set", "wait=1s")

    def run(base: str, candidate: str, *words: str, workload: str = "tg8") -> str:
        with MachineQueue(tmp_path / "lock", print).turn():
            done = command(base, candidate, "--workload", workload, *words)
        assert done.exit_code == 4, done.output
        assert "another measurement" not in done.output
        return " ".join(done.output.split())

    return run


def test_an_engine_that_is_not_installed(gate: Callable[..., str], tmp_path: Path) -> None:
    """The interpreter's missing package is named, of either build."""
    bare = str(write_interpreter(tmp_path / "bare", "chosen = str", MISSING))
    assert "ModuleNotFoundError" in gate("current", bare)
    assert "ModuleNotFoundError" in gate(bare, "current")


def _programs(folder: Path, **files: bytes | str) -> str:
    """Write a folder of programs, which are scripts or of another system; returns its path."""
    folder.mkdir()
    for name, content in files.items():
        path = folder / name.replace("_", "-")
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(0o755)
    return f"./{folder.name}"


def _tools(folder: Path, fault: str) -> str:
    """A folder of llama.cpp's binaries with a fault."""
    bench: dict[str, bytes | str] = {
        "of another processor": OF_ARM,
        "without libraries": "#!/bin/sh\necho 'error while loading shared libraries: libllama.so: "
        "cannot open shared object file' >&2\nexit 127\n",
        "without its interpreter": "#!/no/such/shell\n",
    }
    files: dict[str, bytes | str] = {
        "llama_bench": bench.get(fault, BENCH),
        "llama_perplexity": BENCH,
    }
    if fault == "without llama-perplexity":
        del files["llama_perplexity"]
    written = _programs(folder, **files)
    if fault == "not executable":
        (folder / "llama-bench").chmod(0o644)
    return written


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("of another processor", "{} has llama-bench for another system or processor"),
        ("without libraries", "error while loading shared libraries: libllama.so"),
        ("without its interpreter", "cannot start {}/llama-bench: No such file or directory"),
        ("without llama-perplexity", "there is no program llama-perplexity in {}"),
        ("not executable", "{0} has llama-bench without the permission to be run"),
    ],
)
def test_binaries_that_cannot_run(
    gate: Callable[..., str], tmp_path: Path, fault: str, reason: str
) -> None:
    """The program, and what it lacks, are named."""
    sound, faulty = _tools(tmp_path / "sound", ""), _tools(tmp_path / "faulty", fault)
    told = gate(sound, faulty, *TOOLS)
    assert reason.format(tmp_path / "faulty") in told
    # A folder that is none of this machine's is said at once, as a build that cannot be made.
    assert "1 NOT RUN" in told or told.count("faulty has llama-bench") == 1


def test_a_program_that_only_one_check_needs(gate: Callable[..., str], tmp_path: Path) -> None:
    """The program for speculation is named before the other checks wait."""
    builds = _tools(tmp_path / "one", ""), _tools(tmp_path / "other", "")
    told = gate(*builds, *TOOLS, "--draft", "asperf-draft:F16", workload="sd")
    assert f"there is no program llama-speculative-simple in {tmp_path / 'one'}" in told
    assert "1 NOT RUN" in told


@pytest.mark.live
def test_libraries_that_do_not_fit(gate: Callable[..., str], tmp_path: Path) -> None:
    """Libraries without llama.cpp's functions are named, with the binding that loads them."""
    llama_cpp = pytest.importorskip("llama_cpp")
    libraries = Path(llama_cpp.__file__).parent / "lib"
    other = tmp_path / "other"
    other.mkdir()
    for name in ("libggml.so", "libllama.so"):
        (other / name).write_bytes((libraries / "libggml.so").read_bytes())
    words = ("--engine", "llama_cpp", "--model", "asperf-draft:F16")
    told = gate("current", "./other", *words)
    assert f"cannot use the libraries of {other}" in told
    assert "1 NOT RUN" in told


def test_a_server_that_is_not_there(gate: Callable[..., str]) -> None:
    """The address without an answer is named."""
    words = ("--engine", "openai", "--model", "served")
    told = gate("http://127.0.0.1:9", "http://127.0.0.1:10", *words)
    assert "no connection to http://127.0.0.1:9/v1: Connection refused" in told


def test_a_model_that_is_not_there(gate: Callable[..., str], tmp_path: Path) -> None:
    """It is named before a build is made, which would wait for the machine too."""
    release = tmp_path / "llama-b9000-bin-ubuntu-x64.zip"
    with zipfile.ZipFile(release, "w") as file:
        file.writestr("llama-bench", BENCH)
    words = ("--engine", "llama_tools", "--model", "./none.gguf")
    told = gate(_tools(tmp_path / "sound", ""), f"./{release.name}", *words)
    assert f"{tmp_path / 'none.gguf'}: there is no such file" in told


def test_a_number_next_to_binaries(gate: Callable[..., str], tmp_path: Path) -> None:
    """It means binaries as well, and a damaged release is named before it is unpacked."""
    (tmp_path / "llama-b9000-bin-ubuntu-x64.zip").write_bytes(b"PK damaged")
    told = gate(_tools(tmp_path / "sound", ""), "b9000", *TOOLS[2:])
    assert "llama-b9000-bin-ubuntu-x64.zip cannot be unpacked: File is not a zip file" in told
