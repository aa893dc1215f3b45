"""The output of llama.cpp's binaries, read: for the engine and for `asperf audit`."""

from __future__ import annotations

from typing import Final

NUMBER: Final = r"\d{1,15}(?:\.\d{1,15})?"
COUNT: Final = r"\d{1,15}"
#: Consoles without the sign print another one.
PLUS_MINUS: Final = r" *(?:±|\+/?-|[_?]) *"
