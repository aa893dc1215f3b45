import os
from pathlib import Path

import pytest

from pytest_asperf.config.text_file import UnreadableTextError, read_text

#: Counts as a regular file, and blocks its reader.
KERNEL_LOG = Path("/proc/kmsg")


def test_text_is_read_with_one_kind_of_line_end(tmp_path: Path) -> None:
    """A file from any system gives the same text."""
    (tmp_path / "text").write_bytes("ä\r\nb\rc\n".encode())
    assert read_text(tmp_path / "text") == "ä\nb\nc\n"


def test_what_is_not_text_is_told_apart(tmp_path: Path) -> None:
    """Each kind of thing that is not a text file has its own reason."""
    (tmp_path / "latin").write_bytes(b"a \xff")
    (tmp_path / "marked").write_bytes("a=1".encode("utf-16"))
    (tmp_path / "wide").write_bytes("a=1\n".encode("utf-16-le"))
    (tmp_path / "large").write_bytes(b"a" * 9)
    os.mkfifo(tmp_path / "pipe")
    reasons = {
        tmp_path: "cannot be read: it is a folder",
        tmp_path / "pipe": "cannot be read: it is a pipe or device",
        Path(os.devnull): "cannot be read: it is a pipe or device",
        tmp_path / "none": "cannot be read: No such file or directory",
        tmp_path / "latin": "is not UTF-8: byte 2",
        tmp_path / "marked": "is not UTF-8 but UTF-16",
        tmp_path / "wide": "is not UTF-8 but UTF-16",
        tmp_path / "large": "has more than 0 MiB",
    }
    for path, reason in reasons.items():
        with pytest.raises(UnreadableTextError) as caught:
            read_text(path, at_most=8)
        assert str(caught.value) == reason


@pytest.mark.skipif(not KERNEL_LOG.is_file(), reason="this system has no /proc/kmsg")
def test_a_regular_file_without_end_holds_nothing() -> None:
    """A file of size 0 is not opened: the kernel's own may block for ever."""
    assert read_text(KERNEL_LOG) == ""
