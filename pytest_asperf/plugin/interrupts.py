"""Signals that end a session: what was measured is written first."""

from __future__ import annotations

import signal
import threading
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def end_as_by_ctrl_c(config: pytest.Config) -> None:
    """Have a termination write what was measured, as Ctrl-C does, where nobody else handles it."""

    def restore(number: signal.Signals) -> None:
        signal.signal(number, signal.SIG_DFL)

    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
            config.add_cleanup(partial(restore, number))
