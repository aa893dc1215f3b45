"""Progress on a terminal: the measurement, its state, and no remaining line."""

import io
import os
import pty
import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from pytest_asperf.config.progress import SoFar
from pytest_asperf.report.progress_line import CursorConsole, ProgressLine
from tests.plugin.conftest import Project
from tests.plugin.measuring_tests import TESTS

HIDDEN_CURSOR = "\x1b[?25l"
#: A verdict whose every line is too long for the terminal.
LONG = """
from pytest_asperf.analysis.results import Words
from pytest_asperf.analysis.verdict import Outcome, Subject
from pytest_asperf.errors import Advice
from pytest_asperf.report.verdict_text import VerdictError

def test_long(hardware):
    subject = Subject("a long name " * 8, "live", (("model", "m"), ("sha256", "5a")))
    said, advice = Words(threshold="below 1 %", measured="2 %"), Advice("take another " * 20)
    failed = subject.verdict(Outcome.FAIL, said, advice=(advice,))
    raise VerdictError(failed)
"""


BREAKS = """
@pytest.mark.model("broken")
@pytest.mark.quant("Q8_0")
def test_broken(perplexity):
    perplexity.ppl.estimate
"""


class Terminal:
    """Runs a command on a terminal of 80 columns.

    Attributes:
        written: all that it wrote.
        screen: the final lines on it.
        returncode: its exit status.
    """

    def __init__(
        self,
        project: Project,
        command: list[str],
        environment: dict[str, str],
        *args: str,
        on_output: Callable[[subprocess.Popen[bytes], str], Any] = lambda *_: None,
    ) -> None:
        ours, theirs = pty.openpty()
        session = subprocess.Popen(
            [*command, "-p", "no:cacheprovider", *args],
            cwd=project.path,
            env=environment | {"COLUMNS": "80", "TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.written = ""
        # Linux ends a terminal whose other end is closed with EIO.
        with os.fdopen(ours, "rb", buffering=0) as terminal, suppress(OSError):
            while data := terminal.read(4096):
                self.written += data.decode(errors="replace")
                on_output(session, self.written)
        self.returncode = session.wait()
        self.screen = screen(self.written)


def screen(written: str) -> list[str]:
    """Return the final lines on a terminal."""
    lines, row, column = [""], 0, 0
    for piece in re.findall(r"\x1b\[\??\d*(?:;\d+)*[A-Za-z]|\r|\n|[^\x1b\r\n]", written):
        if piece == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif piece == "\r":
            column = 0
        elif piece == "\x1b[2K":
            lines[row] = ""
        elif piece == "\x1b[1A":
            row -= 1
        elif match := re.fullmatch(r"\x1b\[(\d+)C", piece):
            column += int(match[1])
        elif not piece.startswith("\x1b"):
            lines[row] = lines[row][:column].ljust(column) + piece + lines[row][column + 1 :]
            column += 1
    return lines


def test_progress_is_shown_and_cleared(
    project: Project, command: list[str], environment: dict[str, str]
) -> None:
    """The line names test, measurement and step; nothing stays, not even if it breaks."""
    project.script("broken", faults={"score": "crash"})
    files = '{ F16 = "f16.json", Q8_0 = "broken.json" }'
    project.config(f'[models.broken]\nfiles = {files}\ncorpus = "corpus.txt"\n')
    project.test(TESTS + BREAKS)
    terminal = Terminal(project, command, environment, "--asperf-repetitions=5")
    assert re.search(r"test 1/5 PPL fake:Q8_0, Q4_K_M vs F16 +0/6 chunks +0:00", terminal.written)
    assert re.search(r"test 4/5 tg8 fake:F16 +0/5 runs +0:00", terminal.written)
    assert re.search(r"test 5/5 PPL broken:Q8_0 vs F16 +0/6 chunks +0:00", terminal.written)
    assert HIDDEN_CURSOR not in terminal.written
    assert not [line for line in terminal.screen if "/6 chunks" in line or "/5 runs" in line]
    assert [
        line for line in terminal.screen if re.fullmatch(r"test_it\.py \.FI\.V +\[100%\]", line)
    ]
    # Blocks are broken between words, and are not repeated by other lines.
    block = [line for line in terminal.screen if line.startswith("E   ")]
    assert max(map(len, block)) <= 80
    assert any(line.startswith(f"E   {'':14}") for line in block)
    assert not [line for line in terminal.screen if "short test summary" in line]
    at = next(n for n, line in enumerate(terminal.screen) if line.startswith("collected"))
    assert re.match(r"asperf: hardware .*, detected", terminal.screen[at + 1])


def test_quiet_shows_none(
    project: Project, command: list[str], environment: dict[str, str]
) -> None:
    """`-q` keeps the terminal still, and a long verdict has few lines there too.

    Eight at most, however often they are broken; the cut is marked.
    """
    project.test(TESTS + LONG)
    terminal = Terminal(project, command, environment, "-q")
    assert "/6 chunks" not in terminal.written
    lines = terminal.screen
    head = next(n for n, line in enumerate(lines) if re.fullmatch("_+ test_long _+", line))
    end = next(n for n, line in enumerate(lines) if n > head and line[:1] in {"=", "_"})
    assert end - head == 8
    assert lines[end - 1].endswith(" …")


def test_verbose_keeps_the_tests_own_lines(
    project: Project, command: list[str], environment: dict[str, str]
) -> None:
    """Under `-v` a test's outcome is behind its name."""
    project.test(TESTS)
    terminal = Terminal(project, command, environment, "-v")
    assert "/6 chunks" in terminal.written
    assert any(re.match(r"test_it\.py::test_speed PASSED", line) for line in terminal.screen)


def test_a_pipe_gets_none(project: Project) -> None:
    """A log file gets no progress."""
    project.test(TESTS)
    text = project.run().stdout.str()
    assert "/6 chunks" not in text
    assert "FAILED test_it.py::test_ppl[Q4_K_M] - " in text  # programs search for it
    assert "\x1b" not in text


def test_ctrl_c_leaves_a_clean_terminal(
    project: Project, command: list[str], environment: dict[str, str]
) -> None:
    """In the middle of a gate: no line stays, the cursor is visible, and the pairs are reported."""
    project.config(default_model="fake:F16")
    project.script("f16", takes_s={"generate": 0.02})
    project.test('def test_gate(gate):\n    assert_no_regression(gate("tg8"), tolerance="0.1%")')

    sent: list[signal.Signals] = []

    def interrupt(session: subprocess.Popen[bytes], written: str) -> None:
        # From the second frame on, pairs are finished.
        if written.count("test 1/1 tg8") > 1 and not sent:
            sent.append(signal.SIGINT)
            session.send_signal(signal.SIGINT)

    options = ("--asperf-candidate=slow_by=0.0005", "--asperf-max-pairs=1000")
    terminal = Terminal(project, command, environment, *options, on_output=interrupt)
    assert terminal.returncode == pytest.ExitCode.INTERRUPTED
    assert re.search(
        r"test 1/1 tg8 fake:F16 .*\d pairs +\S.* \d:\d\d, \d:\d\d left", terminal.written
    )
    assert HIDDEN_CURSOR not in terminal.written
    assert not [line for line in terminal.screen if "test 1/1" in line]
    assert any(line.startswith("?  gate tg8 fake:F16") for line in terminal.screen)


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def _line(width: int) -> tuple[ProgressLine, _Tty]:
    file = _Tty()
    console = CursorConsole(file=file, force_terminal=True, width=width, color_system=None)
    return ProgressLine(console), file


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Names are cut, and figures are not, for any length of both."""
    line, file = _line(width)
    so_far = SoFar("1.234 [0.987, 1.543]", "pairs", 11, "12/13 decided", 754.0)
    line.show("tg128@d4096 " + 30 * "a-long-name", 0, 60, so_far, where="test 10/12")
    line.clear()
    (shown, *_) = file.getvalue().split("\r")
    assert len(shown) == width - 1
    if width > 40:
        assert "12/13 decided" in shown
        assert "0/~11 pairs" in shown
        assert "0:00, 12:3" in shown


def test_a_name_does_nothing_to_the_terminal() -> None:
    """Markup, escape sequences and newlines in a label are shown, not obeyed."""
    line, file = _line(80)
    line.show("tg8 [red]x[/red] \x1b[31m\n", 0, 5, SoFar("[bold]"))
    line.clear()
    assert "tg8 [red]x[/red] \\x1b[31m\\n" in file.getvalue()
    assert "[bold]" in file.getvalue()


def test_a_wait_is_counted_and_cleared() -> None:
    """The process that is waited for is shown in whole, over several lines, until the end."""
    line, file = _line(40)
    line.wait("pid 12 of anna (pytest test_it.py), since 12:00:00")
    line.clear()
    shown = " ".join(file.getvalue().partition("\x1b")[0].split())
    assert shown.startswith("waiting, 0:00: pid 12 of anna (pytest test_it.py), since 12:00:00")
    assert screen(file.getvalue()) == 2 * [""]


def test_nothing_is_shown_where_nobody_looks() -> None:
    """A pipe gets nothing, even where colours are forced."""
    file = io.StringIO()
    line = ProgressLine(CursorConsole(file=file, force_terminal=True))
    line.show("tg8", 0, 5, SoFar())
    line.wait("somebody")
    line.clear()
    assert not file.getvalue()
