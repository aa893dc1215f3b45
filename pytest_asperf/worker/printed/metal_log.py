"""The GPU as llama.cpp's Metal backend describes it in its log, in the words of each version."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

#: Printed once in a process; `ggml_metal_init`, the form of older versions, once a context.
DEVICE_LINE: Final = "ggml_metal_device_init: "
#: Programs write their own prefix before the function's name.
_LINE: Final = re.compile(r"ggml_metal\w*: +([^=:]{1,60}?)(?: support)? *[=:] *(.{1,200})$")
#: `MTL0 (Apple M4 Pro)`, `MTL1 (Apple M4 Pro (dev p0/v1))`, and before it was `Apple M4 Pro`.
_NAME: Final = re.compile(r"(?:MTL\d+ \()?(.+?)(?: \(dev [\w/]+\))?\)?")
_FAMILY: Final = re.compile(r"MTLGPUFamily(\w+)")
_MEGABYTES: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) MB")
_OVER: Final = "greater than the recommended max working set size"
_TRUTHS: Final = {"simdgroup matrix mul.": "simdgroup_matrix", "has tensor": "tensor"}
_WORDS: Final = {"true": True, "false": False}
_MOST_FAMILIES: Final = 8


def metal_facts(lines: Iterable[str]) -> dict[str, Any]:
    """The facts of the GPU, as far as the log has them; empty if Metal was not used.

    Several devices are one GPU, which llama.cpp divides for tests, so the first line of each fact
    counts.
    """
    found: dict[str, Any] = {}
    families: list[str] = []
    for line in lines:
        if _OVER in line:
            found["over_working_set"] = True
        elif "ggml_metal" in line and (match := _LINE.search(line.rstrip())):
            key, value = match.groups()
            if key == "GPU family" and (family := _FAMILY.match(value)):
                families.append(family[1])
            elif key == "GPU name" and (name := _NAME.fullmatch(value)):
                found.setdefault("gpu", name[1])
            elif key == "recommendedMaxWorkingSetSize" and (size := _MEGABYTES.fullmatch(value)):
                found.setdefault("working_set_bytes", round(float(size[1]) * 1e6))
            elif key in _TRUTHS and value in _WORDS:
                found.setdefault(_TRUTHS[key], _WORDS[value])
    if families:
        found["families"] = list(dict.fromkeys(families))[:_MOST_FAMILIES]
    return found
