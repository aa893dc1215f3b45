import io
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.audit.lines import Lines
from pytest_asperf.audit.read import read_file
from pytest_asperf.audit.sniff import Kind, UnreadableError, sniff

MB = 1 << 20


class Endless(io.RawIOBase):
    """A file that is written while it is read, so that no test needs its size on disk."""

    def __init__(self, head: bytes, block: bytes, size: int) -> None:
        self._parts = [head]
        self._block = block
        self._left = size

    def readable(self) -> bool:
        """Assert that it can be read."""
        return True

    def read(self, n: int = -1) -> bytes:
        """Return the head, then the block over and over."""
        if self._parts:
            return self._parts.pop()
        taken = min(n, self._left)
        self._left -= taken
        return (self._block * (taken // len(self._block) + 1))[:taken]


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b'[\n  {\n    "build_commit": "abc",', Kind.JSON),
        (b"[]", Kind.JSON),
        (b'{"build_commit": "abc"}\n{"build_commit"', Kind.TEXT),
        (b'{\n "hardware": {', Kind.JSON),
        (b"build_commit,build_number,cpu_info,gpu_info\n", Kind.CSV),
        (b"CREATE TABLE IF NOT EXISTS llama_bench (\n", Kind.TEXT),
        (b"[1]6.2507,[2]9.1877,", Kind.TEXT),
        (b"\n\n, and then it said, more, things\n", Kind.TEXT),
        (b'<?xml version="1.0"?>\n<plist version="1.0">', Kind.PLIST),
        (b'\0<?xml version="1.0"?>\n<plist version="1.0">', Kind.PLIST),
    ],
)
def test_a_format_is_told_by_its_content(head: bytes, kind: Kind) -> None:
    """The first lines of each tool's output identify it, for any file name."""
    assert sniff(head)[0] is kind


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"", "empty"),
        (b"  \n\n", "white space"),
        (b"GGUF\3\0\0\0", "GGUF model"),
        (b"\x1f\x8b\x08\0", "gzip"),
        (b"PK\x03\x04abc", "ZIP"),
        (bytes(range(1, 256)) * 16, "binary"),
        ("日本語".encode("shift-jis") * 99 + b"\1" * 99, "binary"),
        (b"\x7fELF\x02\x01\x01\0\0\0\0", "binary"),
    ],
)
def test_what_is_no_text_is_said_to_be_none(head: bytes, reason: str) -> None:
    """A model, an archive or a program is rejected by its kind."""
    with pytest.raises(UnreadableError, match=reason):
        sniff(head)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_with_a_mark_are_read(encoding: str, tmp_path: Path) -> None:
    """PowerShell's redirected output is read as it was meant."""
    path = tmp_path / "ppl.txt"
    text = (
        "perplexity: calculating perplexity over 2 chunks, n_ctx=512, batch_size=9\n[1]6.25,[2]7,"
    )
    path.write_text(text, encoding=encoding)
    log = read_file(path).log
    assert log is not None
    ((run, _),) = log.perplexities
    assert run.running_ppl == (6.25, 7.0)


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0\ufeff"), max_size=30),
        max_size=20,
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_lines_are_those_of_the_text(lines: list[str], end: str) -> None:
    """However lines end, all of them come out, but for an empty last one."""
    data = "".join(line + end for line in lines).encode()
    assert list(Lines(io.BytesIO(data))) == lines


def test_a_mixed_encoding_is_shown_and_not_lost() -> None:
    """A byte of another encoding is written out, and the line goes on after it."""
    assert list(Lines(io.BytesIO(b"caf\xe9 5 ms\nna\xc3\xafve"))) == ["caf\\xe9 5 ms", "naïve"]


def test_a_line_that_never_ends_is_cut_in_bounded_memory() -> None:
    """48 MB of one line cost a few, the lines around it are read, and the cut is counted."""
    head = b"n_draft   = 4\nendless "
    lines = Lines(Endless(head, b"x", 48 * MB))  # type: ignore[arg-type]
    tracemalloc.start()
    found = list(lines)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found[0] == "n_draft   = 4"
    assert len(found) == 2
    assert len(found[1]) == MB
    assert lines.cut == 1
    assert peak < 10 * MB


def test_lines_after_a_cut_one_are_read() -> None:
    """The text after the end of a long line is a line of its own."""
    lines = Lines(io.BytesIO(b"a" * 3 * MB + b"\nn_accept  = 3\n"))
    assert [line[:13] for line in lines] == ["a" * 13, "n_accept  = 3"]
    assert lines.cut == 1


def test_a_long_text_of_no_tool_is_given_up_early(tmp_path: Path) -> None:
    """A novel is not read to its end."""
    path = tmp_path / "novel.txt"
    path.write_text("It was the best of times, it was the worst of times.\n" * 200_000)
    assert "not the output of a tool" in read_file(path).problem


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda path: path.mkdir(), "is a folder"),
        (lambda _: None, "does not exist"),
        (lambda path: path.write_text("[{" + '"a":[' * 100_000), "JSON"),
        (lambda path: path.write_text('[{"avg_ns": 1' + "0" * 5000 + "}]"), "JSON"),
        (lambda path: path.write_text('[\n {"build_commit": "a",'), "cut off JSON: line 2"),
        (
            lambda path: path.write_text('{"a": ' + ("[1," + 999 * " " + "\n") * 12_000),
            "more than 8 MiB",
        ),
        (lambda path: path.write_text("a,b,c\n1,2,3\n"), "columns that audit does not read"),
        (lambda path: path.write_bytes(b'<?xml version="1.0"?><plist>x</plist>'), "no sample"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(
    tmp_path: Path, write: Callable[[Path], object], reason: str
) -> None:
    """None of them raises, and each is named by its fault."""
    path = tmp_path / "file"
    write(path)
    assert reason in read_file(path).problem
