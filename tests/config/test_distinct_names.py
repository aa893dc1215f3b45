"""Two files of one name are distinguished by the shortest end of their paths."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.config.address import distinct_names
from pytest_asperf.config.catalogue import Catalogue
from pytest_asperf.config.settings import Settings

_PATHS = st.lists(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(lambda ps: Path("/", *ps))
)


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/x/model.gguf"], ["model.gguf"]),
        (["/x/a/model.gguf", "/x/b/model.gguf"], ["a/model.gguf", "b/model.gguf"]),
        (["/a/q/m.gguf", "/b/q/m.gguf", "/b/n.gguf"], ["a/q/m.gguf", "b/q/m.gguf", "n.gguf"]),
    ],
)
def test_the_shortest_end(paths: Sequence[str], names: Sequence[str]) -> None:
    """A file name, and folders only if they are needed."""
    found = distinct_names(map(Path, paths))
    assert [found[Path(path)] for path in paths] == names


@given(paths=_PATHS)
def test_no_two_are_called_the_same(paths: list[Path]) -> None:
    """Every path has a name of its own, which is an end of it."""
    found = distinct_names(paths)
    assert len(set(found.values())) == len(set(paths))
    assert all(str(path).endswith(name) for path, name in found.items())


def test_a_catalogue_names_them_so() -> None:
    """Labels of the models differ, with and without a quantization."""
    addresses = ["a/model.gguf", "b/model.gguf:Q8_0", "asperf-target"]
    catalogue = Catalogue(Path("/x"), (), Settings()).telling_apart(addresses)
    labels = [catalogue.find(address, where="").label for address in addresses[:2]]
    assert labels == ["a/model.gguf", "b/model.gguf:Q8_0"]
