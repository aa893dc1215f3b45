"""The llama-cpp-python that goes with libraries of llama.cpp which have none of their own."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from pytest_asperf.config.build_sources import Packages, canonical

#: Packages of llama.cpp's libraries alone; their version ends in its build number.
_LIBRARIES: Final = re.compile(r"(?i)llama[-_.]cpp[-_.]py[-_.]sync\b(?:\W+0\.(?P<number>\d+))?")
_BINDING: Final = "llama-cpp-python"
#: By the first build number whose structures have a release's fields: compared with the headers
#: of 23 builds from b7769 to b11739. The worker checks each, since no list knows what comes.
_FITTING: Final = (
    (0, "0.3.17"),
    (8643, "0.3.23"),
    (9309, "0.3.24"),
    (9554, "0.3.34"),
    (10603, "0.3.35"),
    (10837, "0.3.36"),
)
#: Installs the Python part of llama-cpp-python and compiles nothing.
_PYTHON_ONLY: Final = "-DLLAMA_BUILD=OFF"


def with_binding(source: Packages) -> Packages:
    """The packages with llama-cpp-python beside libraries that it loads; others as they are."""
    words = [*source.requirements, *(path.name for path in source.files)]
    found = next(filter(None, map(_LIBRARIES.match, words)), None)
    if found is None:
        return source
    names = {canonical(re.split(r"[^\w.-]", word, maxsplit=1)[0]) for word in source.requirements}
    requirements = source.requirements
    if _BINDING not in names:
        requirements = tuple(sorted((*requirements, _fitting(found["number"]))))
    env = dict(source.env)
    env["CMAKE_ARGS"] = f"{env.get('CMAKE_ARGS', '')} {_PYTHON_ONLY}".strip()
    return replace(source, requirements=requirements, env=tuple(sorted(env.items())))


def _fitting(number: str | None) -> str:
    """The requirement that fits a build number; None is the newest build."""
    if number is None:
        return _BINDING
    release = [release for first, release in _FITTING if first <= int(number)][-1]
    return f"{_BINDING}=={release}"
