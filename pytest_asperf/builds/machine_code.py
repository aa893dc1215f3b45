"""The system and processor that a release's binaries and libraries were compiled for.

A loader passes over a library of another processor, and may find one of another build.
"""

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pytest_asperf.errors import BuildError, listing, printable

#: The first bytes of a program, which have its kind, its processor and the place of its last part.
HEAD_BYTES: Final = 64
#: llama.cpp's own files, and those of them that are libraries.
_OWN: Final = re.compile(r"(lib)?(llama|ggml|mtmd|rpc-server)\b[^/]*", re.ASCII)
_LIBRARY: Final = re.compile(r"lib[^/]+\.(so(\.\d+)*|dylib)", re.ASCII)
_PROGRAM: Final = re.compile(r"(llama|ggml|rpc)[\w-]*", re.ASCII)
_ELF: Final = b"\x7fELF"
#: A little-endian 64-bit file has the place of its table of sections, and its entries' size and
#: count, in these bytes.
_ELF_64: Final = b"\x7fELF\x02\x01"
_SECTIONS: Final = (slice(40, 48), slice(58, 60), slice(60, 62))
_ELF_KIND: Final = 6
_ELF_MACHINE: Final = slice(18, 20)
#: ELF's numbers of processors that a backend loads by itself: Hexagon, CUDA and AMD GPUs.
_COPROCESSORS: Final = tuple(number.to_bytes(2, "little") for number in (164, 190, 224))
_MACH_O: Final = (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_CODE: Final = (_ELF, *_MACH_O)
_MACH_O_THIN: Final = slice(0, 8)  # with its processor
_MOST_NAMES: Final = 4


def is_of_this_system(head: bytes) -> bool:
    """True unless a file's first bytes are of another system's or processor's programs."""
    is_elf = head.startswith(_ELF)
    if sys.platform == "darwin":
        return not is_elf and not head.startswith(b"MZ")
    own = _head(Path(sys.executable))
    if is_elf:
        return (head[:_ELF_KIND], head[_ELF_MACHINE]) == (own[:_ELF_KIND], own[_ELF_MACHINE])
    return not head.startswith((b"MZ", *_MACH_O))


def is_program(name: str, head: bytes) -> bool:
    """True for a file that is started: a binary of llama.cpp, or a script instead of one."""
    return head.startswith((*_CODE, b"#!")) and _PROGRAM.fullmatch(name) is not None


def require_one_processor(heads: Iterable[tuple[str, bytes]], where: Path) -> None:
    """Raise BuildError for files, by name and first bytes, of another system or processor."""
    own = [(name, head) for name, head in sorted(heads) if _OWN.fullmatch(name)]
    # A Mac runs programs of two processors, but none with libraries of both.
    thin = {head[_MACH_O_THIN] for _, head in own if head.startswith(_MACH_O[0])}
    wrong = [name for name, head in own if not _fits(name, head)]
    if not wrong and len(thin) > 1:
        wrong = [name for name, head in own if head.startswith(max(thin))]
    if wrong:
        more = [f"{len(wrong) - _MOST_NAMES} more"] if len(wrong) > _MOST_NAMES else []
        raise BuildError(
            f"{printable(where)} has {listing([*map(printable, wrong[:_MOST_NAMES]), *more])} for "
            "another system or processor, or damaged",
            why="a loader passes over such a library, and may find one of another build",
            remedy="get the release for this system and processor from its publisher again, and "
            "unpack it into an empty folder",
        )


def _fits(name: str, head: bytes) -> bool:
    if head.startswith(_ELF) and head[_ELF_MACHINE] in _COPROCESSORS:
        return True
    is_code = head.startswith(_CODE) or is_program(name, head)
    is_to_be = _LIBRARY.fullmatch(name) or _PROGRAM.fullmatch(name)
    return is_of_this_system(head) and (is_code or not is_to_be)


def require_usable(folder: Path) -> None:
    """Raise BuildError for a folder with files of another processor, or without the permission."""
    files = [path for path in sorted(folder.glob("*")) if _OWN.fullmatch(path.name)]
    heads = {path: _head(path) for path in files if path.is_file()}
    require_one_processor(((path.name, head) for path, head in heads.items()), folder)
    closed = [
        path.name
        for path, head in heads.items()
        if is_program(path.name, head) and not os.access(path, os.X_OK)
    ]
    if closed:
        raise BuildError(
            f"{printable(folder)} has {listing(closed[:_MOST_NAMES])} without the permission to "
            "be run",
            why="some programs unpack a zip without it, and some disks are mounted without it",
            remedy=f"chmod +x {printable(folder)}/*, or name the archive itself as the build",
        )


def permit(folder: Path) -> None:
    """Allow the programs of an unpacked release to be run: a zip may have lost the permission."""
    for path in folder.iterdir():
        if path.is_file() and not path.is_symlink() and is_program(path.name, _head(path)):
            path.chmod(path.stat().st_mode | 0o111)


def _head(path: Path) -> bytes:
    """The first bytes of a file, none if it ends before the table of its sections does."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        begins, size, count = (int.from_bytes(head[part], "little") for part in _SECTIONS)
        is_cut = head.startswith(_ELF_64) and begins + size * count > path.stat().st_size
        return b"" if is_cut else head
    except OSError:  # the loader cannot read it either
        return b""
