"""`assert_disk`: paths and the `model` fixture against a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.plugin.conftest import Project

TEST = '@pytest.mark.quant("F16")\ndef test_it(model):\n    '
_CLAIMS = [
    ('assert_disk("big.bin", at_most="6 MB")', "."),
    ('assert_disk(["big.bin", "link.bin"], at_most="6 MB")', "."),
    ('assert_disk(["big.bin", "other.bin"], at_most="6 MB")', "F"),
    ('assert_disk("folder", at_most=0.001)', "."),
    ('assert_disk([model, "big.bin"], at_most="7 MB")', "."),
]


@pytest.fixture
def files(project: Project) -> Project:
    """Two files of 5 MB, a link to one of them, and a folder with a small one."""
    for name in ("big.bin", "other.bin"):
        (project.path / name).write_bytes(b"\1" * 5_000_000)
    (project.path / "link.bin").symlink_to("big.bin")
    (project.path / "folder").mkdir()
    (project.path / "folder" / "small.bin").write_bytes(b"\1" * 1000)
    return project


def test_room_against_a_limit(files: Project) -> None:
    """What is shared counts once; the model's own file counts too."""
    letters = files.letters([TEST + claim for claim, _ in _CLAIMS])
    assert letters == "".join(letter for _, letter in _CLAIMS)


def test_what_is_reported(files: Project, rows: Callable[..., list[dict[str, Any]]]) -> None:
    """The unit is the limit's order; the length and what was counted once stand beside it."""
    files.test("def test_it():\n    " + _CLAIMS[1][0])
    (row,) = rows()
    assert (row["outcome"], row["subject"]) == ("PASS", "disk use of big.bin and 1 more")
    assert row["measured"].startswith("4.7")
    assert row["measured"].endswith(" MiB")
    assert row["basis"] == "1 file"
    assert ["counted once", "1 further names of them"] in row["facts"]


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ('assert_disk("big.bin", at_most="3 G")', "*at_most: '3 G' is not a size*"),
        ('assert_disk("big.bin", at_most=-1)', "*at_most: -1 is not a size*"),
        ('assert_disk([], at_most="3 GB")', "*assert_disk: no files*"),
        ('assert_disk("bigg.bin", at_most="3 GB")', "*bigg.bin: No such file or directory*"),
    ],
)
def test_what_is_no_claim_is_refused(files: Project, claim: str, message: str) -> None:
    """A size with a unit that says which, and paths that exist."""
    files.test(TEST + claim)
    files.run().stdout.fnmatch_lines([message])
