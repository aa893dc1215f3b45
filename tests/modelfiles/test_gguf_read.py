import hashlib
import os
import re
import struct
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFEndian, GGUFReader, LlamaFileType
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_asperf.config.engines import LLAMA_FTYPES, PUBLISHED_FTYPES, parse_level
from pytest_asperf.errors import ModelError, NoModelError, UnfitError
from pytest_asperf.modelfiles.gguf_read import GgufInfo, inspect_gguf
from pytest_asperf.modelfiles.levels import contradiction, require_quantizable
from tests.modelfiles.gguf_files import MERGES, TOKENS, write_gguf, write_types


def valid_bytes() -> bytes:
    """Return a small valid file with each kind of metadata."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_gguf(
            Path(folder, "x.gguf"),
            keys={"attention.head_count_kv": [2, 1], "general.name": "x", "general.file_type": 1},
            tensors={"token_embd.weight": (4, 32), "blk.1.attn_k.weight": (8, 32)},
        )
        return path.read_bytes()


VALID = valid_bytes()


def inspect_bytes(data: bytes) -> GgufInfo | ModelError:
    """Inspect a file of these bytes; any error but ModelError passes through."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.gguf")
        path.write_bytes(data)
        try:
            return inspect_gguf(path)
        except ModelError as error:
            return error


def test_agrees_with_the_gguf_package(tiny_gguf: Path) -> None:
    """Every tensor's name, type, shape and size equals the reference reader's."""
    ours = [(t.name, t.type, t.shape, t.nbytes) for t in inspect_gguf(tiny_gguf).tensors]
    theirs = [
        (t.name, t.tensor_type.name, tuple(t.shape.tolist()), t.n_bytes)
        for t in GGUFReader(tiny_gguf).tensors
    ]
    assert ours == theirs


def test_values_per_layer_and_optional_ones(tmp_path: Path) -> None:
    """A head count for each layer is read, and an unstated one is None."""
    path = write_gguf(
        tmp_path / "x.gguf",
        keys={"attention.head_count_kv": [2, 1], "general.file_type": 15},
        tensors={"token_embd.weight": (4, 32), "blk.1.attn_k.weight": (8, 32)},
    )
    info = inspect_gguf(path)
    assert info.kv_elements == (8, 8)  # layer 0 has no K, layer 1 has one head of 8
    assert (info.level, info.name, info.sliding_window) == ("Q4_K_M", None, None)


def test_third_party_names_are_made_printable(tmp_path: Path) -> None:
    """A name cannot bring terminal escapes or a page of text."""
    path = write_gguf(tmp_path / "x.gguf", keys={"general.name": "\x1b[2J" + "n" * 500})
    name = inspect_gguf(path).name
    assert name is not None
    assert name.isprintable()
    assert len(name) == 200


def test_tokenizer_hash_is_what_its_definition_says() -> None:
    """The hash can be computed by anybody from the pre-tokenizer, the tokens and the merges."""

    def stored(texts: list[str]) -> bytes:
        raw = [text.encode() for text in texts]
        body = b"".join(struct.pack("<Q", len(text)) + text for text in raw)
        return hashlib.sha256(struct.pack("<Q", len(raw)) + body).digest()

    whole = hashlib.sha256(b"gpt-2").digest() + stored(TOKENS) + stored(MERGES)
    info = inspect_bytes(VALID)
    assert isinstance(info, GgufInfo)
    assert info.tokenizer_sha256 == hashlib.sha256(whole).hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        (["a", "b", "ab", "e"], MERGES, "gpt-2"),
        (["ab", "", "ab", "é"], MERGES, "gpt-2"),
        (TOKENS, ["b a"], "gpt-2"),
        (TOKENS, MERGES, "llama-bpe"),
    ],
)
def test_tokenizer_hash_tells_vocabularies_apart(
    tmp_path: Path, other: tuple[list[str], list[str], str]
) -> None:
    """One token, one merge or the pre-tokenizer changed gives another hash."""
    first = inspect_gguf(write_gguf(tmp_path / "a.gguf"))
    second = inspect_gguf(write_gguf(tmp_path / "b.gguf", tokenizer=other))
    assert first.tokenizer_sha256 != second.tokenizer_sha256


@pytest.mark.parametrize(
    ("keys", "pairs"),
    [({}, True), ({"tokenizer.ggml.bos_token_id": 0}, False)],
)
def test_a_draft_shares_the_special_tokens(
    tmp_path: Path, keys: dict[str, Any], *, pairs: bool
) -> None:
    """A number that is missing is not the number 0."""
    one = inspect_gguf(write_gguf(tmp_path / "a.gguf")).vocabulary
    other = inspect_gguf(write_gguf(tmp_path / "b.gguf", keys=keys)).vocabulary
    assert one is not None
    assert other is not None
    assert one.pairs_with(other) is pairs


def test_a_file_without_a_vocabulary(tmp_path: Path) -> None:
    """The vocabulary's size then comes from the embedding table, and there is no hash."""
    info = inspect_gguf(write_gguf(tmp_path / "x.gguf", tokenizer=None))
    assert (info.n_vocab, info.tokenizer_sha256) == (4, None)


def test_a_large_vocabulary_takes_little_memory(tmp_path: Path) -> None:
    """150,000 tokens and as many merges are walked, not kept."""
    tokens = [f"token{i}" for i in range(150_000)]
    merges = [f"left{i} right{i}" for i in range(150_000)]
    path = write_gguf(tmp_path / "x.gguf", tokenizer=(tokens, merges, "gpt-2"))
    inspect_gguf(write_gguf(tmp_path / "first.gguf"))
    tracemalloc.start()
    info = inspect_gguf(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert info.n_vocab == 150_000
    assert peak < 8e6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is truncated: it is empty"),
        (b"GG", "is truncated: it has 2 bytes"),
        (b"\x08\0\0\0\0\0\0\0{}      ", "not a GGUF file but a safetensors file"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "but a Git LFS pointer"),
        (b"\n<!DOCTYPE html><html>", "but an HTML page"),
        (b"PK\x03\x04", "but a ZIP archive"),
        (b"tjgg\x03\0\0\0", "before GGUF"),
        (b"algg\x01\0\0\0", "a LoRA adapter from before GGUF"),
        (b"\x1b[2Jabcdef", r"something that starts with b'\x1b[2Jabcd'"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "is GGUF version 1"),
        (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "is GGUF version 4"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63), "counts 9,223,372,036,854,775,808 metadata"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**40, 0), "counts 1,099,511,627,776 tensors"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**60), "a metadata key of"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2) + b"\xff\xfe", "not valid UTF-8"),
        (b"GGUF" + struct.pack("<IQQQcI", 3, 0, 1, 1, b"k", 13), "unknown value type 13"),
        (
            b"GGUF" + struct.pack("<IQQQcIIQ", 3, 0, 1, 1, b"k", 9, 8, 2**32) + bytes(64),
            "an array of 4,294,967,296 strings",
        ),
        (b"GGUF" + struct.pack("<IQQQcIIQ", 3, 0, 1, 1, b"k", 9, 6, 2**62), "is truncated"),
        (b"GGUF" + struct.pack("<IQQQcIQ", 3, 0, 1, 1, b"k", 8, 2**62), "is truncated"),
        (b"GGUF" + struct.pack("<IQQQcIIQ", 3, 0, 1, 1, b"k", 9, 9, 1), "array of unknown type 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "does not state its architecture"),
    ],
)
def test_what_is_no_usable_gguf_is_said_to_be_so(
    tmp_path: Path, content: bytes, message: str
) -> None:
    """Each kind of wrong content is recognised, and the error names the file."""
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        inspect_gguf(path)
    assert message in caught.value.what
    assert str(path) in caught.value.what
    assert caught.value.remedy


def test_a_missing_file_suggests_a_neighbour(tmp_path: Path) -> None:
    """A misspelt name is answered with the file that is there."""
    write_gguf(tmp_path / "model-Q4.gguf")
    with pytest.raises(ModelError, match="no such file") as caught:
        inspect_gguf(tmp_path / "model-Q5.gguf")
    assert "model-Q4.gguf" in caught.value.remedy


def test_what_is_not_a_file_is_refused_without_waiting_on_it(tmp_path: Path) -> None:
    """A directory and a pipe raise; opening the pipe would wait forever."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="is a directory"):
        inspect_gguf(tmp_path)
    with pytest.raises(ModelError, match="not a regular file"):
        inspect_gguf(tmp_path / "pipe")
    with pytest.raises(ModelError, match="cannot be read"):
        inspect_gguf(tmp_path / ("n" * 300))
    with pytest.raises(ModelError, match="cannot be read"):
        inspect_gguf(Path("a\0b"))


def test_an_unknown_architecture_lists_known_ones(tmp_path: Path) -> None:
    """The nearest known name is suggested, and the first names are listed."""
    path = write_gguf(tmp_path / "x.gguf", arch="lama")
    with pytest.raises(ModelError, match="unknown architecture 'lama'; did you mean 'llama'") as e:
        inspect_gguf(path)
    assert re.search(r"known are .*\barctic\b.* and \d+ more", e.value.remedy)


def test_a_big_endian_file_is_refused(tmp_path: Path) -> None:
    """A file for another byte order is named as such, not as corrupt."""
    path = write_gguf(tmp_path / "x.gguf", endian=GGUFEndian.BIG)
    with pytest.raises(ModelError, match="big-endian"):
        inspect_gguf(path)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"block_count": None}, "'llama.block_count' is 'missing', not a whole number from 1"),
        ({"block_count": 2**31}, "'llama.block_count' is 2147483648"),
        ({"embedding_length": "32"}, "'llama.embedding_length' is '32'"),
        ({"attention.head_count": [4]}, "one for each of the 2 layers"),
        ({"general.alignment": 24}, "general.alignment is 24"),
        ({"expert_count": 2, "expert_used_count": 3}, "'llama.expert_used_count' is 3"),
        ({"split.count": 3}, "is one of 3 parts of a model, and by its name not the first"),
    ],
)
def test_contradictory_metadata_is_refused(
    tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    """A key that is missing, of the wrong kind or out of range is named."""
    path = write_gguf(tmp_path / "x.gguf", keys=keys)
    with pytest.raises(ModelError) as caught:
        inspect_gguf(path)
    assert message in caught.value.what


def test_a_file_cut_in_its_weights_names_the_tensor(tmp_path: Path, tiny_gguf: Path) -> None:
    """The header is whole, so the first tensor that is not can be named."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny_gguf.read_bytes()[:-1000])
    with pytest.raises(ModelError, match=r"'blk\.1\.ffn_down\.weight' is the first one cut off"):
        inspect_gguf(path)


@given(st.integers(0, len(VALID) - 1))
def test_every_truncation_is_refused(length: int) -> None:
    """A file cut anywhere is an error that names it."""
    found = inspect_bytes(VALID[:length])
    assert isinstance(found, ModelError)
    assert "x.gguf" in found.what


@given(
    st.lists(
        st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), min_size=1, max_size=8
    ),
    st.integers(0, len(VALID)),
)
@example([(16, 255)], len(VALID))
def test_any_damage_gives_an_error_or_a_model(damage: list[tuple[int, int]], length: int) -> None:
    """Flipped bytes and cuts never raise anything else, nor use memory for their counts."""
    data = bytearray(VALID)
    for position, value in damage:
        data[position] = value
    tracemalloc.start()
    inspect_bytes(bytes(data[:length]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


@given(st.binary(max_size=400))
def test_any_bytes_after_the_magic_are_survived(tail: bytes) -> None:
    """The bytes after the magic and the version may be anything."""
    assert isinstance(inspect_bytes(b"GGUF\x03\0\0\0" + tail), ModelError)


@pytest.mark.parametrize(
    ("arch", "keys", "what"),
    [
        ("clip", {"general.type": "mmproj"}, "a multimodal projector"),
        ("clip", {}, "a multimodal projector"),
        ("llama", {"general.type": "adapter"}, "a LoRA adapter"),
        ("llama", {"general.type": "imatrix"}, "an importance matrix"),
        ("controlvector", {}, "a control vector"),
        ("llama", {"general.type": "vocab"}, "a vocabulary"),
    ],
)
def test_what_goes_with_a_model_is_named(
    arch: str, keys: dict[str, str], what: str, tmp_path: Path
) -> None:
    """A file that belongs to a model is named by its kind, and never called damaged."""
    with pytest.raises(NoModelError, match=what) as found:
        inspect_gguf(write_gguf(tmp_path / "x.gguf", arch=arch, keys=keys))
    assert "damaged" not in str(found.value)


def test_a_type_of_a_fork_is_no_damage(tmp_path: Path) -> None:
    """A tensor type that llama.cpp does not have is named as such."""
    path = write_gguf(tmp_path / "x.gguf")
    raw = path.read_bytes()
    at = raw.index(b"token_embd.weight") + len("token_embd.weight") + 4 + 2 * 8
    path.write_bytes(raw[:at] + (139).to_bytes(4, "little") + raw[at + 4 :])
    with pytest.raises(NoModelError, match="type 139, which"):
        inspect_gguf(path)


#: A type's number, the bytes of a tensor of 1,024 elements, and the message.
FOREIGN = {
    "removed": (31, 576, r"type 31, which llama\.cpp does not have: Q4_0_4_4, which it removed"),
    "bitnet.cpp": (36, 288, r"type 36, .* I2_S of bitnet\.cpp, or IQ4_NL_4_4"),
    "ik": (144, 560, r"type 144, which .* IQ4_KS of ik_llama\.cpp"),
    "ik, interleaved": (337, 304, r"type 337, which .* IQ2_K_R4 of ik_llama\.cpp"),
    "newer": (57, 500, "type 57, which is unknown here"),
    "one number, two types": (39, 428, r"type 39, and no such .* size of llama\.cpp's MXFP4"),
    "a fork's cache type": (41, 448, r"type 41, and no such .* size of llama\.cpp's Q1_0"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_types_of_forks_are_named(kind: str, tmp_path: Path) -> None:
    """A type is named, or its number, if a fork gave it or llama.cpp removed it."""
    code, n_bytes, said = FOREIGN[kind]
    path = write_types(tmp_path / "x.gguf", [(1, 2048), (code, n_bytes), (code, n_bytes)])
    with pytest.raises(NoModelError, match=said) as found:
        inspect_gguf(path)
    assert "damaged" not in str(found.value)


@pytest.mark.parametrize(
    ("code", "row", "n_bytes", "name"),
    [(34, 256, 216, "TQ1_0"), (39, 256, 544, "MXFP4"), (40, 64, 144, "NVFP4"),
     (41, 128, 72, "Q1_0"), (42, 64, 72, "Q2_0")],
)  # fmt: skip
def test_new_types_are_read(code: int, row: int, n_bytes: int, name: str, tmp_path: Path) -> None:
    """The newest types of llama.cpp have their names and sizes, with older packages gguf too."""
    path = write_types(
        tmp_path / "x.gguf", [(1, 8 * row), (code, n_bytes), (code, n_bytes)], row=row
    )
    kinds = [(tensor.type, tensor.nbytes) for tensor in inspect_gguf(path).tensors]
    assert kinds == [("F16", 8 * row), (name, n_bytes), (name, n_bytes)]


@pytest.mark.parametrize(
    ("level", "code", "row", "n_bytes"),
    [("MXFP4_MOE", 39, 256, 544), ("NVFP4", 40, 64, 144), ("Q1_0", 41, 128, 72),
     ("Q2_0", 42, 64, 72)],
)  # fmt: skip
def test_levels_of_published_files_are_read_and_not_made(
    level: str, code: int, row: int, n_bytes: int, tmp_path: Path
) -> None:
    """A file's quantization fits its tensors and can be requested; none is made from F16."""
    types = [(1, 8 * row), (code, n_bytes), (code, n_bytes)]
    number = PUBLISHED_FTYPES[level]
    path = write_types(tmp_path / "x.gguf", types, row=row, file_type=number)
    info = inspect_gguf(path)
    assert info.level == parse_level(level, where="t", engine="llama_cpp") == level
    assert contradiction(info, level) == ""
    assert contradiction(info, "Q4_0") == f"{level} by its own metadata"
    floats = write_types(tmp_path / "f.gguf", [(1, 8 * row)] * 3, row=row, file_type=1)
    with pytest.raises(UnfitError, match=f"asperf does not make {level}"):
        require_quantizable(inspect_gguf(floats), level)


def test_the_levels_are_those_of_the_package_gguf() -> None:
    """Each number of a file type has the name that llama.cpp's own package gives it."""
    names = {kind.name.split("_", 1)[1]: int(kind) for kind in LlamaFileType if kind < 1024}
    known = LLAMA_FTYPES | PUBLISHED_FTYPES
    assert names == {name: known.get(name) for name in names}


def test_rows_that_do_not_fit_a_disputed_type(tmp_path: Path) -> None:
    """Rows of 64 are no block of TQ2_0, whose number was IQ2_BN in another program."""
    path = write_types(tmp_path / "x.gguf", [(1, 512), (35, 64)], row=64)
    with pytest.raises(NoModelError, match=r"type 35, .* size of llama\.cpp's TQ2_0"):
        inspect_gguf(path)


@pytest.mark.parametrize(
    "codes", [[(1, 2048), (8, 999), (8, 999)], [(39, 544), (39, 500), (39, 544)], [(5000, 8)]]
)
def test_sizes_that_contradict_are_damage(codes: list[tuple[int, int]], tmp_path: Path) -> None:
    """A type that all programs share, or that fits once, and a number beyond all types."""
    with pytest.raises(ModelError, match="corrupt GGUF header") as found:
        inspect_gguf(write_types(tmp_path / "x.gguf", codes))
    assert not isinstance(found.value, NoModelError)
