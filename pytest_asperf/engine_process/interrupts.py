"""Ctrl-C that waits until what it would leave behind can be cleaned up."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupts_later() -> Iterator[Callable[[], None]]:
    """Delay KeyboardInterrupt until the block ends, or until it calls what it is given.

    A process that is just being started has no object yet that could end it.

    Raises:
        KeyboardInterrupt: an interruption came meanwhile; from the call, or from the block's end.
    """
    # Python handles signals in the main thread only.
    is_main = threading.current_thread() is threading.main_thread()
    handled = [n for n in _NUMBERS if signal.getsignal(n) is signal.default_int_handler]
    delayed, noted = (handled if is_main else []), list[int]()

    def release() -> None:
        while delayed:
            signal.signal(delayed.pop(), signal.default_int_handler)
        if noted:
            noted.clear()
            raise KeyboardInterrupt

    for number in tuple(delayed):
        signal.signal(number, lambda number, _: noted.append(number))
    try:
        yield release
    finally:
        release()
