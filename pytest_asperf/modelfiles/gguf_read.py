"""The content of a GGUF file: model, tokenizer, and the bytes that one decoding step reads."""

import hashlib
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from pytest_asperf.analysis.speculation_model import Vocabulary
from pytest_asperf.config.engines import LLAMA_FTYPES, PUBLISHED_FTYPES
from pytest_asperf.errors import ModelError, NoModelError, listing, printable, suggest
from pytest_asperf.modelfiles.causal import encoder_sign, require_causal_file
from pytest_asperf.modelfiles.gguf_header import (
    GgufHeader,
    StringArray,
    TensorInfo,
    corrupt,
    read_header,
    truncated,
)
from pytest_asperf.modelfiles.model_shape import ModelShape, gguf_rules

_MAX_LAYERS: Final = 1024
_MAX_DIMENSION: Final = 1 << 31
_HEAD_BYTES: Final = 512
#: Facts other than tokens that a draft must share, as in llama.cpp's common/speculative.cpp.
_RULES: Final = ("model", "pre", "bos_token_id", "eos_token_id", "add_bos_token", "add_eos_token")
_MOST_PARTS: Final = 99_999
#: llama.cpp, llama_split_path: how the first part of a model is named.
_FIRST_PART: Final = re.compile(r"(?P<stem>.+)-00001-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)

# Tables of which one step reads a row per token, not the whole.
_LOOKUP_TABLES: Final = frozenset(
    {"token_embd", "per_layer_token_embd", "position_embd", "token_types"}
)
_EXPERT: Final = re.compile(r"_exps\.|ffn_(gate|up|down)\.\d+\.")
_FTYPES: Final = LLAMA_FTYPES | PUBLISHED_FTYPES
_LAYER: Final = re.compile(r"blk\.(\d+)\.(.+)")


@dataclass(frozen=True, slots=True)
class GgufInfo:
    """A GGUF file's model, as its header states it."""

    path: Path
    nbytes: int
    architecture: str
    name: str | None  #: the model's own name, printable and at most 200 characters, if it has one
    level: str | None  #: the quantization, None if it is not stated or unknown
    n_params: int  #: elements of all tensors
    tensors: tuple[TensorInfo, ...]
    data_start: int  #: where the first tensor's data begins, in bytes
    n_layers: int
    n_ctx_train: int
    n_vocab: int
    n_experts: int  #: experts per layer, 0 for a dense model
    n_experts_used: int
    #: Equal for two files that split text into the same numbers: sha256 over the three sha256 of
    #: the pre-tokenizer's name, the tokens and the merges, the latter two as stored (see
    #: `StringArray`). None without a vocabulary.
    tokenizer_sha256: str | None
    tied_embeddings: bool
    #: elements of K, and of V, per position of context, over all layers
    kv_elements: tuple[int, int]
    #: positions that a layer with a sliding window looks back on, if it has one
    sliding_window: int | None
    n_nextn_layers: int  #: layers at the end that only multi-token prediction uses
    shape: ModelShape  #: the sizes that distinguish its quantizations from other models
    #: the tokens, to find a draft with other padding; None without a vocabulary
    vocabulary: Vocabulary | None = None
    #: its kind if it does not continue a text, and the sign of it; otherwise empty
    encoder: str = ""

    def require_causal(self) -> None:
        """Raise NoModelError for an encoder."""
        require_causal_file(self.path, self.encoder)


def inspect_gguf(path: Path) -> GgufInfo:
    """The header of a GGUF file whose model continues a text.

    Raises:
        ModelError: as of `read_gguf`; or it is an encoder.
    """
    info = read_gguf(path)
    info.require_causal()
    return info


def read_gguf(path: Path) -> GgufInfo:
    """Read and check the header of a GGUF file; the weights themselves are not read.

    Raises:
        ModelError: the file is missing, not a file, empty, of another format, truncated, corrupt,
            big-endian, of an unknown architecture, or an encoder-decoder; or other parts of the
            model are missing.
    """
    size, header = _header_of(path)
    for part, n_bytes, more in _further_parts(path, header):
        size += n_bytes
        known = {tensor.name for tensor in header.tensors}
        if twice := next((t.name for t in more.tensors if t.name in known), None):
            raise corrupt(part, f"tensor {twice!r} is in an earlier part too")
        header = replace(header, tensors=(*header.tensors, *more.tensors))
    return _interpret(path, size, header)


def gguf_parts(path: Path) -> tuple[Path, ...]:
    """The files of a model, by the name of its first part; the file alone if it has no such name.

    Parts that are missing are left out.
    """
    found = _FIRST_PART.fullmatch(path.name)
    if found is None:
        return (path,)
    stem, count = found["stem"], found["count"]
    later = (path.with_name(f"{stem}-{n:05}-of-{count}.gguf") for n in range(2, int(count) + 1))
    return (path, *(part for part in later if part.exists()))


def _header_of(path: Path) -> tuple[int, GgufHeader]:
    size = _size_of_file(path)
    try:
        with path.open("rb") as file:
            _check_format(path, file.read(_HEAD_BYTES), size)
            return size, read_header(file, size=size, path=path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _further_parts(path: Path, header: GgufHeader) -> Iterator[tuple[Path, int, GgufHeader]]:
    """Yield the other parts of a model that is loaded by its first one, with their headers."""
    fields = _Fields(path, header)
    count = fields.number("split.count", default=0, most=_MOST_PARTS)
    if count < 2:
        return
    number, found = fields.number("split.no", default=0), _FIRST_PART.fullmatch(path.name)
    if number or found is None or int(found["count"]) != count:
        raise NoModelError(
            f"{path} is one of {count} parts of a model, and by its name not the first",
            why="llama.cpp finds the parts by their names",
            remedy=f"name the first part, NAME-00001-of-{count:05}.gguf, with the others in "
            "its folder",
        )
    parts = gguf_parts(path)
    if len(parts) != count:
        raise ModelError(
            f"{path}: {count - len(parts)} of its {count} parts are missing",
            remedy="get all parts, under their own names, into one folder",
        )
    n_tensors = len(header.tensors)
    for n, part in enumerate(parts[1:], 1):
        size, more = _header_of(part)
        theirs = _Fields(part, more)
        stated = theirs.number("split.no", default=0), theirs.number("split.count", default=0)
        if stated != (n, count):
            raise ModelError(
                f"{part} is not part {n + 1} of {count} by its own metadata",
                remedy="get the parts of one model into a folder of their own",
            )
        n_tensors += len(more.tensors)
        yield part, size, more
    if n_tensors != fields.number("split.tensors.count", default=n_tensors):
        raise ModelError(
            f"{path}: its parts have {n_tensors} tensors, which are not those of one model",
            remedy="get the parts of one model into a folder of their own",
        )


def bytes_per_token(
    info: GgufInfo, *, depth: int = 0, kv_bytes_per_element: tuple[float, float] = (2.0, 2.0)
) -> int:
    """The bytes that decoding one token reads from memory: a lower bound, and close to it.

    The count has all weights that the step touches (the embedding table only if it is the output
    head; of the experts the active ones; no layer that only multi-token prediction uses) and the KV
    cache at `depth`, in f16 by default (2.0; 34/32 is q8_0). If layers have a sliding window, all
    are assumed to have it.
    """
    weights = sum(_touched_bytes(info, tensor) for tensor in info.tensors)
    positions = depth if info.sliding_window is None else min(depth, info.sliding_window)
    row = sum(n * size for n, size in zip(info.kv_elements, kv_bytes_per_element, strict=True))
    return round(weights + positions * row)


def _touched_bytes(info: GgufInfo, tensor: TensorInfo) -> float:
    in_layer = _LAYER.match(tensor.name)
    if in_layer and int(in_layer[1]) >= info.n_layers - info.n_nextn_layers:
        return 0
    table = tensor.name.partition(".")[0]
    if table in _LOOKUP_TABLES and not (table == "token_embd" and info.tied_embeddings):
        return 0
    if info.n_experts and _EXPERT.search(tensor.name):
        return tensor.nbytes * info.n_experts_used / info.n_experts
    return tensor.nbytes


def _size_of_file(path: Path) -> int:
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise ModelError(
            f"{path}: there is no such file", remedy=f"correct the path{_neighbours(path)}"
        ) from error
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if not stat.S_ISREG(status.st_mode):
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise ModelError(
            f"{path} is {kind}",
            remedy="give the .gguf file itself; a Hugging Face folder goes under `hf`",
        )
    if status.st_size == 0:
        raise truncated(path, "it is empty")
    return status.st_size


def _neighbours(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.glob("*.gguf")]
    except OSError:
        return ""
    return suggest(path.name, names)


def _unreadable(path: Path, error: Exception) -> ModelError:
    return ModelError(
        f"{path} cannot be read: {error}", remedy="check its permissions and the disk that it is on"
    )


def _check_format(path: Path, head: bytes, size: int) -> None:
    if head[:4] == b"GGUF":
        return
    if len(head) < 4 and b"GGUF".startswith(head):
        raise truncated(path, f"it has {size} bytes")
    kind, remedy = _recognise(head, size)
    raise ModelError(f"{path} is not a GGUF file but {kind}", remedy=remedy)


_FETCH: Final = "fetch the real file: "
#: Beginnings of files that users name instead of a GGUF file, with their kind and the remedy.
_OTHERS: Final = (
    (b"version https://git-lfs.github.com/spec/", "a Git LFS pointer", f"{_FETCH}`git lfs pull`"),
    (
        b"<!doctype html",
        "an HTML page",
        f"{_FETCH}the link led to a web page (a login, or an error)",
    ),
    (b"<html", "an HTML page", f"{_FETCH}the link led to a web page (a login, or an error)"),
    (b"pk", "a ZIP archive (perhaps a PyTorch checkpoint)", "convert it to GGUF first"),
    (b"algg", "a LoRA adapter from before GGUF", "give the model's own file"),
    *(
        (magic, "a GGML file from before GGUF", "convert the model again with a current llama.cpp")
        for magic in (b"lmgg", b"fmgg", b"tjgg")
    ),
)


def _recognise(head: bytes, size: int) -> tuple[str, str]:
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size - 8:
        return "a safetensors file", "convert it, or give its Hugging Face folder as `hf`"
    if head[8:12] == b"blk.":
        return "an importance matrix from before GGUF", "give the model's own file"
    begins = head.lstrip().lower()
    unknown = f"something that starts with {head[:8]!r}", "check that the path is the model's"
    return next(((kind, do) for first, kind, do in _OTHERS if begins.startswith(first)), unknown)


def _interpret(path: Path, size: int, header: GgufHeader) -> GgufInfo:
    fields = _Fields(path, header)
    _refuse_companion(path, header)
    architecture = _architecture(path, header)
    encoder = encoder_sign(path, architecture, header)
    n_layers = fields.number("{arch}.block_count", most=_MAX_LAYERS)
    n_embd = fields.number("{arch}.embedding_length")
    heads = fields.per_layer("{arch}.attention.head_count", n_layers, default=0)
    kv_heads = fields.per_layer("{arch}.attention.head_count_kv", n_layers, default=heads)
    head_dim = n_embd // max(heads) if any(heads) else 0
    head_dim_k = fields.number("{arch}.attention.key_length", default=head_dim)
    head_dim_v = fields.number("{arch}.attention.value_length", default=head_dim)
    n_experts = fields.number("{arch}.expert_count", default=0)
    n_used = fields.number("{arch}.expert_used_count", default=n_experts, most=n_experts)
    file_type = fields.number("general.file_type", default=-1)
    # With latent attention (one shared head of rank + rope elements), V is a view into K's cache.
    is_latent = fields.number("{arch}.attention.kv_lora_rank", default=0) > 0
    shares_kv = max(kv_heads) == 1 and is_latent
    n_nextn = fields.number("{arch}.nextn_predict_layers", default=0, most=n_layers - 1)
    cached = _layers_with_kv(header.tensors)
    cached_heads = sum(kv_heads[n] for n in range(n_layers - n_nextn) if n in cached)
    tensors = {tensor.name: tensor for tensor in header.tensors}
    n_vocab = _n_vocab(fields, tensors)
    return GgufInfo(
        path=path,
        nbytes=size,
        architecture=architecture,
        name=fields.text("general.name"),
        level=next((level for level, n in _FTYPES.items() if n == file_type), None),
        n_params=sum(tensor.n_elements for tensor in header.tensors),
        tensors=header.tensors,
        data_start=header.data_start,
        n_layers=n_layers,
        n_ctx_train=fields.number("{arch}.context_length"),
        n_vocab=n_vocab,
        n_experts=n_experts,
        n_experts_used=n_used,
        tokenizer_sha256=_tokenizer_sha256(fields),
        vocabulary=_vocabulary(fields),
        encoder=encoder,
        tied_embeddings="output.weight" not in tensors and "token_embd.weight" in tensors,
        kv_elements=(cached_heads * head_dim_k, 0 if shares_kv else cached_heads * head_dim_v),
        sliding_window=fields.number("{arch}.attention.sliding_window", default=0) or None,
        n_nextn_layers=n_nextn,
        shape=ModelShape(
            "gguf",
            architecture,
            n_layers=n_layers - n_nextn,
            n_embd=n_embd,
            n_heads=max(heads) or None,
            # Converters store latent attention with one shared head, or with all of them.
            n_kv_heads=None if is_latent else max(kv_heads) or None,
            n_ff=fields.number("{arch}.feed_forward_length", default=0) or None,
            n_vocab=n_vocab,
            rules=gguf_rules(architecture, header.values, is_latent=is_latent),
        ),
    )


class _Fields:
    """Metadata by key, each checked for its kind and range."""

    def __init__(self, path: Path, header: GgufHeader) -> None:
        self._path = path
        self._values = header.values
        self._architecture = header.values.get("general.architecture")

    def _key(self, template: str) -> str:
        return template.replace("{arch}", str(self._architecture))

    def number(
        self, template: str, *, default: int | None = None, most: int = _MAX_DIMENSION
    ) -> int:
        key = self._key(template)
        value = self._values.get(key)
        # A few architectures state per layer a value that others state once; the largest is the
        # model's.
        if isinstance(value, tuple) and value and all(type(item) is int for item in value):
            value = max(value)
        if key not in self._values and default is not None:
            return default
        least = 0 if default is not None else 1
        if type(value) is not int or not least <= value <= most:
            raise self._bad(key, f"a whole number from {least} to {most}")
        return value

    def stated(self, key: str) -> object:
        """The value as the file has it; None if it has none."""
        return self._values.get(key)

    def per_layer(
        self, template: str, n_layers: int, *, default: int | tuple[int, ...]
    ) -> tuple[int, ...]:
        key = self._key(template)
        value = self._values.get(key, default)
        items = value if isinstance(value, tuple) else (value,) * n_layers
        counts = tuple(n for n in items if type(n) is int and 0 <= n <= _MAX_DIMENSION)
        if len(counts) != len(items) or len(counts) != n_layers:
            raise self._bad(key, f"a whole number, or one for each of the {n_layers} layers")
        return counts

    def text(self, key: str) -> str | None:
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self._bad(key, "a text")
        return printable(value, 200)

    def strings(self, key: str) -> StringArray | None:
        value = self._values.get(key)
        if value is not None and not isinstance(value, StringArray):
            raise self._bad(key, "a list of texts")
        return value

    def _bad(self, key: str, expected: str) -> ModelError:
        shown = repr(self._values.get(key, "missing"))[:60]
        return corrupt(self._path, f"its metadata key {key[:100]!r} is {shown}, not {expected}")


#: Files that belong to a model, by their metadata; recent converters state a type.
_COMPANIONS: Final = (
    ("general.type", "mmproj", "a multimodal projector"),
    ("general.architecture", "clip", "a multimodal projector"),
    ("general.type", "adapter", "a LoRA adapter"),
    ("general.type", "imatrix", "an importance matrix"),
    ("general.architecture", "controlvector", "a control vector"),
    ("general.type", "vocab", "a vocabulary"),
)
#: Keys that converters wrote before they stated a type.
_OF_COMPANIONS: Final = {
    "adapter.type": "a LoRA adapter",
    "imatrix.chunk_count": "an importance matrix",
}


def _refuse_companion(path: Path, header: GgufHeader) -> None:
    values = header.values
    kind = next(
        (what for key, value, what in _COMPANIONS if values.get(key) == value),
        next((what for key, what in _OF_COMPANIONS.items() if key in values), ""),
    )
    if not kind and any(tensor.name.endswith(".lora_a") for tensor in header.tensors):
        kind = "a LoRA adapter"
    if not kind and "general.architecture" in values and not header.tensors:
        kind = "a vocabulary: it has no weights"
    if kind:
        raise NoModelError(
            f"{path} is {kind}",
            why="it goes with a model, and generates nothing by itself",
            remedy="give the model's own file",
        )


def _architecture(path: Path, header: GgufHeader) -> str:
    name, known = header.values.get("general.architecture"), _known_architectures()
    if not isinstance(name, str):
        raise corrupt(path, "it does not state its architecture")
    if name in known:
        return name
    raise ModelError(
        f"{path}: unknown architecture {name[:60]!r}{suggest(name[:60], known)}",
        why="the engine cannot run it, and its sizes cannot be read",
        remedy="if the model is newer than this installation, `pip install -U gguf`; "
        f"known are {listing(known)}",
    )


@cache
def _known_architectures() -> frozenset[str]:
    from gguf.constants import MODEL_ARCH_NAMES  # noqa: PLC0415  # brings numpy along

    return frozenset(MODEL_ARCH_NAMES.values())


def _layers_with_kv(tensors: Iterable[TensorInfo]) -> frozenset[int]:
    """The layers that keep K and V; recurrent ones (with `ssm_` tensors) keep none."""
    names: dict[int, set[str]] = {}
    for tensor in tensors:
        if match := _LAYER.match(tensor.name):
            names.setdefault(int(match[1]), set()).add(match[2].partition(".")[0])
    return frozenset(
        layer
        for layer, parts in names.items()
        if parts & {"attn_k", "attn_kv_a_mqa"}
        or ("attn_qkv" in parts and not any(part.startswith("ssm_") for part in parts))
    )


def _n_vocab(fields: _Fields, tensors: dict[str, TensorInfo]) -> int:
    tokens = fields.strings("tokenizer.ggml.tokens")
    if tokens is not None:
        return tokens.count
    table = tensors.get("token_embd.weight")
    rows = table.shape[1] if table is not None and len(table.shape) > 1 else None
    return fields.number("{arch}.vocab_size", default=rows)


def _vocabulary(fields: _Fields) -> Vocabulary | None:
    tokens = fields.strings("tokenizer.ggml.tokens")
    if tokens is None:
        return None
    merges = fields.strings("tokenizer.ggml.merges")
    rest = hashlib.sha256(repr([fields.stated(f"tokenizer.ggml.{key}") for key in _RULES]).encode())
    rest.update(merges.digest if merges else b"")
    return Vocabulary(rest.hexdigest(), tokens.ends)


def _tokenizer_sha256(fields: _Fields) -> str | None:
    tokens = fields.strings("tokenizer.ggml.tokens")
    if tokens is None:
        return None
    merges = fields.strings("tokenizer.ggml.merges")
    pre = fields.text("tokenizer.ggml.pre") or ""
    parts = (
        hashlib.sha256(pre.encode()).digest(),
        tokens.digest,
        merges.digest if merges else hashlib.sha256().digest(),
    )
    return hashlib.sha256(b"".join(parts)).hexdigest()
