"""The line with a measurement's progress: pytest's sessions and the commands share it.

Rich draws it, once a second from a thread of its own: a refresh is shorter than a millisecond, and
shows during a long run that time goes on.
"""

# ruff: noqa: PLC0415  # rich.progress is loaded where something is shown

import time
from typing import Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import Progress, Task

from pytest_asperf.config.progress import SoFar
from pytest_asperf.errors import printable

_REFRESHES_PER_S: Final = 1.0
#: Columns from which there is room for a bar.
_WIDE: Final = 110
_BAR: Final = 20


class CursorConsole(Console):
    """A console that leaves the cursor visible: a killed program could not show it again."""

    def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002, FBT001, FBT002  # Rich's
        """Do nothing."""
        return False


class ProgressLine:
    """One line at the end of a terminal; nothing of it stays when it is cleared."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._progress: Progress | None = None
        self._waiting: tuple[str, float] | None = None

    @property
    def is_possible(self) -> bool:
        """True if there is a terminal to show it on."""
        return self._console.file.isatty() and not self._console.is_dumb_terminal

    def show(self, label: str, done: int, total: int, so_far: SoFar, *, where: str = "") -> None:
        """Show how far a measurement is; `where` is the test that it is for."""
        if not self.is_possible:
            return
        if self._progress is None:
            self._progress = _progress(self._console)
            self._progress.add_task("")
        progress = self._progress
        (task,) = progress.task_ids
        if not done:
            progress.reset(task)
        progress.update(
            task,
            description=" ".join(filter(None, (where, so_far.place, printable(label)))),
            completed=done,
            total=_planned(total, so_far),
            count=_count(done, total, so_far),
            figure=so_far.figure,
            ends_s=None if so_far.left_s is None else time.monotonic() + so_far.left_s,
            is_one_of_several=bool(so_far.place),
        )
        self._waiting = None  # only now: the thread that draws may do so at any time
        self._show(at_once=not done)

    def wait(self, reason: str) -> None:
        """Show the reason of a wait, and its duration so far."""
        if self.is_possible:
            began_s = self._waiting[1] if self._waiting else time.monotonic()
            self._waiting = printable(reason), began_s
            self._show(at_once=True)

    def clear(self) -> None:
        """Remove it from the terminal."""
        live, self._live, self._progress, self._waiting = self._live, None, None, None
        if live is not None:
            live.stop()

    def _show(self, *, at_once: bool) -> None:
        if self._live is not None:
            if at_once:
                self._live.refresh()
            return
        from rich.live import Live

        self._live = Live(
            console=self._console,
            transient=True,
            refresh_per_second=_REFRESHES_PER_S,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=self._rendered,
        )
        self._live.start(refresh=True)

    def _rendered(self) -> RenderableType:
        from rich.constrain import Constrain
        from rich.text import Text

        shown: RenderableType = self._progress or ""
        if (waiting := self._waiting) is not None:
            reason, began_s = waiting
            shown = Text(f"waiting, {_clock(time.monotonic() - began_s)}: {reason}")
        # On some terminals a line that fills the last column begins another.
        return Constrain(shown, self._console.width - 1)


def _progress(console: Console) -> Progress:
    """The layout of a line; only the column that names the measurement gives way."""
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Times(ProgressColumn):
        """Elapsed and remaining time."""

        def render(self, task: Task) -> Text:
            """Render them."""
            return Text(_times(task), no_wrap=True)

    def text(template: str) -> TextColumn:
        return TextColumn(template, markup=False, table_column=Column(no_wrap=True))

    label = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=label),
        *([BarColumn(_BAR)] if console.width >= _WIDE else []),
        text("{task.fields[count]}"),
        text("{task.fields[figure]}"),
        Times(),
        console=console,
        expand=True,
        auto_refresh=False,
        speed_estimate_period=3600.0,
    )


def _planned(total: int, so_far: SoFar) -> int | None:
    """Steps in all, if known: the allowed maximum of pairs is no plan."""
    return so_far.expected or (total if so_far.counted != "pairs" else 0) or None


def _count(done: int, total: int, so_far: SoFar) -> str:
    if not total:
        return ""
    if (planned := _planned(total, so_far)) is None:
        return f"{done} pairs"
    about = "~" if so_far.counted == "pairs" else ""
    return f"{done}/{about}{planned} {so_far.counted}".rstrip()


def _times(task: Task) -> str:
    elapsed = _clock(task.elapsed or 0.0)
    ends_s = task.fields["ends_s"]
    # For several measurements only the whole has a forecast; for one, the time of its own steps.
    own_s = None if task.fields["is_one_of_several"] else task.time_remaining
    all_s = None if ends_s is None else max(0.0, ends_s - time.monotonic())
    left_s = min((seconds for seconds in (own_s, all_s) if seconds is not None), default=None)
    return elapsed if not left_s else f"{elapsed}, {_clock(left_s)} left"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
