"""A folder of compiled files that were linked in another folder, whose libraries changed since."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_BASE = "int told(void) { return %d; }\n"
_PROGRAM = '#include <stdio.h>\nint told(void);\nint main(void) { printf("%d\\n", told()); }\n'
_CALLER = "int told(void);\nint told_again(void) { return told(); }\n"


def copied_build(folder: Path) -> Path:
    """A copy of llama-bench and its libraries that prints 1, where the original prints 2."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("no ELF or no cc on PATH")
    original, copy = folder / "original", folder / "copy"
    original.mkdir()

    def compiled(name: str, source: str, *options: str) -> None:
        (original / "source.c").write_text(source)
        command = ["cc", "source.c", "-o", name, *options]
        subprocess.run(command, cwd=original, check=True)

    named = ("-shared", "-fPIC", "-Wl,-soname,libggml-base.so")
    linked = ("-L.", "-lggml-base", f"-Wl,-rpath,{original}")
    compiled("libggml-base.so", _BASE % 1, *named)
    compiled("libggml.so", _CALLER, "-shared", "-fPIC", *linked)
    compiled("llama-bench", _PROGRAM, *linked)
    shutil.copytree(original, copy)
    compiled("libggml-base.so", _BASE % 2, *named)
    return copy
