"""Model specs: paths, names, quantizations and padded models."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.config.address import Address
from pytest_asperf.config.catalogue import Catalogue, at_level
from pytest_asperf.config.engines import LLAMA_FTYPES
from pytest_asperf.config.settings import Settings
from pytest_asperf.config.spec import ModelRef, ModelSpec, Variant
from pytest_asperf.errors import AsperfError, ConfigError

SHIPPED = (
    ModelSpec("asperf-target", hf_folder=Path("/shipped/target")),
    ModelSpec("asperf-draft", hf_folder=Path("/shipped/draft")),
)
NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,20}", fullmatch=True)


@pytest.mark.parametrize(
    ("address", "path", "level"),
    [
        ("x.gguf", "/root/x.gguf", None),
        ("X.GGUF:q6_k", "/root/X.GGUF", "Q6_K"),
        ("/models/x.gguf:Q4_K_M", "/models/x.gguf", "Q4_K_M"),
        ("../x.gguf", "/root/../x.gguf", None),
        ("a:b/x.gguf", "/root/a:b/x.gguf", None),
        ("x.gguf:1/y", "/root/x.gguf:1/y", None),
        ("blobs/sha256:0f3a", "/root/blobs/sha256:0f3a", None),
        ("blobs/sha256-0f3a:F16", "/root/blobs/sha256-0f3a", "F16"),
        (r"C:\models\x.gguf", r"/root/C:\models\x.gguf", None),
        (r"C:\models\x.gguf:Q8_0", r"/root/C:\models\x.gguf", "Q8_0"),
        ("C:/models/blob", "/root/C:/models/blob", None),
    ],
)
def test_a_path_is_an_address(address: str, path: str, level: str | None) -> None:
    """A path is distinguished from a name, and its own colons from a quantization's."""
    ref = Catalogue(Path("/root"), SHIPPED, Settings()).find(address, where="t")
    assert (ref.spec.gguf, ref.level) == (Path(path), level)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("asperf-tarket", "t: unknown model 'asperf-tarket'; did you mean 'asperf-target'?"),
        ("asperf-tarket:Q8_0", "t: unknown model 'asperf-tarket'"),
        ("asperf-target:Q6K", "t: unknown quantization 'Q6K'; did you mean 'Q6_K'?"),
        ("asperf-target:", "t: unknown quantization ''"),
        (":Q6_K", "t: unknown model ''"),
        ("", "t: unknown model ''"),
        ("x.gguf:Q6K", "t: unknown quantization 'Q6K'"),
        ("a/b\0.gguf", "t: 'a/b\\x00.gguf' is not usable"),
        ("published:Q2_K", "t: model 'published' has no file for quantization Q2_K"),
    ],
)
def test_an_address_of_nothing_is_refused(address: str, problem: str) -> None:
    """The message names the spec's place and the nearest existing one."""
    published = ModelSpec("published", files=(("Q6_K", Path("x")),))
    with pytest.raises(ConfigError, match=re.escape(problem)):
        Catalogue(Path("/root"), (*SHIPPED, published), Settings()).find(address, where="t")


@pytest.mark.parametrize(
    "address", ["../..", "/", "./.hidden.gguf", "a b/ü ñ.gguf", "x" * 300 + "/"]
)
def test_the_name_of_a_path_can_stand_in_a_file_name(address: str) -> None:
    """No path smuggles a folder into the name that a model of the cache is kept by."""
    ref = Catalogue(Path("/root"), (), Settings()).find(address, where="t")
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", ref.spec.name)


def test_a_level_is_named_once() -> None:
    """A spec with a quantization rejects another one, and accepts its own again."""
    ref = ModelRef(SHIPPED[0], "Q6_K")
    assert at_level(ref, "q6_k", where="t") == ref
    with pytest.raises(
        ConfigError, match="t: quantization Q8_0 is requested, but the model spec is"
    ):
        at_level(ref, "Q8_0", where="t")


@given(name=NAMES, level=st.none() | st.sampled_from(sorted(LLAMA_FTYPES)))
def test_every_declared_model_is_found_by_its_label(name: str, level: str | None) -> None:
    """The label of a reference is a spec of the same reference."""
    ref = ModelRef(ModelSpec(name, gguf=Path("/x.gguf"), engine="llama_cpp"), level)
    assert Catalogue(Path("/root"), (ref.spec,), Settings()).find(ref.label, where="t") == ref


@given(st.text())
def test_any_text_is_an_address_or_refused(address: str) -> None:
    """Every spec ends in a model or an error of asperf's, and no part of it is lost."""
    names = {spec.name for spec in SHIPPED}
    assert str(Address.of(address)) == address
    try:
        ref = Catalogue(Path("/root"), SHIPPED, Settings()).find(address, where="t")
    except AsperfError as error:
        problem = str(error)
        assert problem.startswith("t: ")
    else:
        assert ref.spec.name in names or ref.spec.gguf is not None


def test_a_variant_of_a_model_is_addressed_by_its_name() -> None:
    """The part behind a plus is made of the model before it is quantized."""
    catalogue = Catalogue(Path("/root"), SHIPPED, Settings())
    ref = catalogue.find("asperf-target+layers=8:Q8_0", where="here")
    assert (ref.spec.variant, ref.level) == (Variant("layers", 8), "Q8_0")
    assert ref.label == "asperf-target+layers=8:Q8_0"
    with pytest.raises(ConfigError, match="did you mean 'layers'"):
        catalogue.find("asperf-target+layer=8", where="here")


@pytest.mark.parametrize(
    ("address", "folder", "hub_id", "level"),
    [
        ("owner/Name-4bit", "owner/Name-4bit", "owner/Name-4bit", None),
        ("owner/name:8bit", "owner/name", "owner/name", "8bit"),
        ("./some/folder", "some/folder", None, None),
        ("a/b/c", "a/b/c", None, None),
    ],
)
def test_on_mlx_a_path_is_a_folder_or_a_model_of_the_hub(
    address: str, folder: str, hub_id: str | None, level: str | None
) -> None:
    """The kind is decided at its use; a GGUF file stays one, to be rejected."""
    catalogue = Catalogue(Path("/root"), SHIPPED, Settings(engine="mlx"))
    ref = catalogue.find(address, where="t")
    assert (ref.spec.hf_folder, ref.spec.hub_id) == (Path("/root", folder), hub_id)
    assert ref.level == level
    assert catalogue.find("a/b.gguf", where="t").spec.gguf == Path("/root/a/b.gguf")
