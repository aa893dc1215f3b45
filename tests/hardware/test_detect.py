import platform
import sys
from pathlib import Path

from pytest_asperf.hardware import probe
from pytest_asperf.hardware.in_force import detect
from pytest_asperf.hardware.readiness import readiness


def test_this_machine_is_described() -> None:
    """On any machine there is an architecture, a core, and a profile or a reason."""
    machine = detect()
    assert machine.arch == platform.machine()
    assert machine.usable_cores is not None
    assert machine.usable_cores >= 1
    assert (machine.profile is None) == bool(machine.profile_note)
    if machine.physical_cores is not None and machine.logical_cores is not None:
        assert 1 <= machine.physical_cores <= machine.logical_cores
    if machine.os in {"Linux", "macOS"}:
        assert machine.memory_gb is not None
        assert machine.memory_gb > 0.1


def test_this_machine_is_judged() -> None:
    """Each condition appears once, and each disturbance has a remedy."""
    conditions = readiness()
    names = [condition.name for condition in conditions]
    assert len(set(names)) == len(names)
    assert names[0] == "load"
    assert all(condition.detail for condition in conditions)
    assert all(c.remedy for c in conditions if c.state == "disturbing")
    if platform.system() in {"Linux", "Darwin"}:
        assert {"swap", "memory pressure", "thermal level", "power mode", "gpu"} <= set(names)


def test_an_absent_command_is_unknown() -> None:
    """A tool that is not installed gives nothing, not an error."""
    assert probe.run(("asperf-no-such-command",)) is None


def test_a_slow_command_is_unknown() -> None:
    """A tool that hangs is ended, and one with a prompt gets no answer."""
    assert probe.run((sys.executable, "-c", "input()\nimport time; time.sleep(60)")) == ""
    assert probe.run((sys.executable, "-c", "import time; time.sleep(60)"), timeout_s=0.2) is None


def test_output_is_bounded() -> None:
    """A tool that floods its output is cut off."""
    flood = "import sys; sys.stdout.write('x' * 3_000_000)"
    text = probe.run((sys.executable, "-c", flood), timeout_s=30)
    assert text is not None
    assert len(text) == 1 << 20


def test_whole_numbers() -> None:
    """Only plain digits of a sane length are numbers."""
    assert probe.whole_number(" 42\n") == 42
    for text in (None, "", "-1", "4.2", "٤٢", "9" * 21):
        assert probe.whole_number(text) is None


def test_an_unreadable_file_is_unknown(tmp_path: Path) -> None:
    """A folder, or nothing at all, reads as unknown."""
    assert probe.read(tmp_path) is None
    assert probe.read(tmp_path / "absent") is None
