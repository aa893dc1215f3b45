"""The content of a Hugging Face or MLX folder, read from its headers and configuration."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_asperf.analysis.capacity import kv_cache_bytes
from pytest_asperf.config.engines import FLOAT_LEVELS, MlxScheme, mlx_scheme
from pytest_asperf.config.text_file import UnreadableTextError, read_json_table
from pytest_asperf.errors import Advice, MislabelledError, ModelError, UnfitError, printable
from pytest_asperf.modelfiles.causal import require_causal_folder
from pytest_asperf.modelfiles.gguf_header import corrupt
from pytest_asperf.modelfiles.hf_sizes import HfSizes, inspect_hf
from pytest_asperf.modelfiles.levels import most_bytes
from pytest_asperf.modelfiles.model_shape import ModelShape, hf_shape
from pytest_asperf.modelfiles.safetensors_read import TensorEntry, list_tensors

#: Files of a tokenizer, any of which will do.
_TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model", "vocab.json", "tiktoken.model")
#: The files that decide how a model computes and reads text; the rest of a folder is for people.
_HASHED: Final = frozenset({".json", ".safetensors", ".model", ".txt"})

_STACKED: Final = re.compile(r"\.(experts|switch_mlp)\.[^.]+\.weight$")


@dataclass(frozen=True, slots=True)
class MlxInfo:
    """A model's folder, as its configuration and the headers of its weights state it."""

    path: Path
    nbytes: int
    level: str | None  #: its quantization, None if MLX cannot make it
    is_quantised: bool  #: whether the weights are quantized, by whomever
    tensors: tuple[TensorEntry, ...]
    #: the bytes that a step reads, None if names and configuration do not show them
    sizes: HfSizes | None
    tokenizer_sha256: str  #: equal for two folders whose tokenizer splits text alike
    shape: ModelShape  #: the sizes that distinguish its quantizations from other models

    @property
    def n_params(self) -> int:
        """The number of weights in the tensors; packed ones are counted by scales."""
        scheme = mlx_scheme(self.level or "")
        held = {tensor.name: tensor for tensor in self.tensors}
        n_params = 0
        for name, tensor in held.items():
            stem, _, kind = name.rpartition(".")
            is_packed = f"{stem}.scales" in held
            if scheme and is_packed and kind == "scales":
                n_params += tensor.n_elements * scheme.group_size
            elif not (is_packed and kind in {"weight", "biases"}):
                n_params += tensor.n_elements
        return n_params


def inspect_mlx(folder: Path) -> MlxInfo:
    """Read a model's folder, but not the weights themselves."""
    if folder.is_file() or folder.suffix.lower() == ".gguf":
        raise UnfitError(
            f"{folder} is a file, and MLX measures folders",
            why="of GGUF quantizations MLX reads few as they are and casts most to F16, "
            "which would be measured under the quantization's name",
            remedy=Advice(
                "give the model's folder in Hugging Face or MLX format as `hf`, or measure the "
                "file on llama.cpp",
                engine="llama_cpp",
            ),
        )
    config = read_configuration(folder)
    tensors = tuple(t for path in weight_files(folder) for t in list_tensors(path))
    if not tensors:
        raise _incomplete(folder / "model*.safetensors", "it has no tensor, so no weights")
    scheme = _scheme(config)
    if scheme is not None:
        _require_packed(folder, tensors, scheme)
    quantised = scheme is not None or isinstance(config.get("quantization_config"), dict)
    level = scheme.level if scheme else None
    if not quantised and (most := most_bytes(tensors)) in FLOAT_LEVELS:
        level = most
    return MlxInfo(
        path=folder,
        nbytes=sum(path.stat().st_size for path in weight_files(folder)),
        level=level,
        is_quantised=quantised,
        tensors=tensors,
        sizes=_sizes(folder),
        tokenizer_sha256=_tokenizer_sha256(folder),
        shape=hf_shape(config),
    )


def mlx_bytes_per_token(
    info: MlxInfo, *, depth: int, kv_bytes_per_element: tuple[float, float], float_bytes: float
) -> int | None:
    """A lower bound of the bytes that decoding one token reads from memory, None if unknown.

    The count has all weights that the step touches (the embedding table only if it is the output
    head; of the experts the active ones) and the KV cache at `depth`. Weights that are not packed
    count `float_bytes`: MLX stores them in its compute type, not in the file's.
    """
    sizes = info.sizes
    if sizes is None:
        return None

    def nbytes(tensor: TensorEntry) -> float:
        is_float = tensor.type in FLOAT_LEVELS
        return tensor.n_elements * float_bytes if is_float else tensor.nbytes

    weights = sum(sizes.share_read(tensor.name) * nbytes(tensor) for tensor in info.tensors)
    positions = depth if sizes.window is None else min(depth, sizes.window)
    return round(weights + kv_cache_bytes(sizes.kv_elements, positions, kv_bytes_per_element))


def unquantised_misfit(info: MlxInfo, group_size: int) -> TensorEntry | None:
    """A matrix whose rows do not fit the groups, so that mlx-lm leaves it in its float type."""
    for tensor in info.tensors:
        is_matrix = len(tensor.shape) == 2 or bool(_STACKED.search(tensor.name))
        is_weight = tensor.name.endswith(".weight") and tensor.type in FLOAT_LEVELS
        if is_matrix and is_weight and tensor.shape[-1] % group_size:
            return tensor
    return None


def hashed_files(folder: Path) -> tuple[Path, ...]:
    """The files of a folder that decide a measurement, sorted by name."""
    return tuple(sorted(p for p in folder.iterdir() if p.suffix in _HASHED and p.is_file()))


def _sizes(folder: Path) -> HfSizes | None:
    try:
        return inspect_hf(folder)
    except ModelError:  # sizes are for utilisation alone: a model without them can be measured
        return None


def read_configuration(folder: Path) -> dict[str, Any]:
    """The config.json of a folder that generates text; ModelError if there is none."""
    if not folder.is_dir():
        raise ModelError(
            f"{folder}: there is no such folder",
            remedy="correct the path; a hub's model is named owner/name, and fetched beforehand",
        )
    config = _json(folder / "config.json")
    if not isinstance(config.get("model_type"), str):
        raise corrupt(folder / "config.json", "it names no model_type")
    require_causal_folder(folder, config)
    return config


def _json(path: Path) -> dict[str, Any]:
    try:
        return read_json_table(path)
    except UnreadableTextError as error:
        raise _incomplete(path, str(error)) from error


def _incomplete(path: Path, what: str) -> ModelError:
    return ModelError(
        f"{path} {what}",
        remedy="give a whole folder in Hugging Face or MLX format; fetch it again if it is not",
    )


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The files of a folder's weights, sorted by name."""
    # The files that mlx-lm's load_model needs.
    files = tuple(sorted(folder.glob("model*.safetensors")))
    if not files:
        raise _incomplete(folder / "model*.safetensors", "is missing: it has no weights")
    return files


def _scheme(config: Mapping[str, Any]) -> MlxScheme | None:
    match config.get("quantization"):
        case {"bits": int(bits), "group_size": int(group), **rest}:
            return MlxScheme(bits, group, str(rest.get("mode", "affine")))
    return None


def _require_packed(folder: Path, tensors: Iterable[TensorEntry], scheme: MlxScheme) -> None:
    """Reject a folder without a tensor that is packed as configured.

    Layers may have own schemes.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    packed = (
        (by_name.get(f"{name.removesuffix('.scales')}.weight"), scales)
        for name, scales in by_name.items()
        if name.endswith(".scales")
    )
    # 32 bits of a packed element have 32 / bits weights, and group_size of those share a scale.
    if not any(
        weight and 32 * weight.shape[-1] == scheme.bits * scheme.group_size * scales.shape[-1]
        for weight, scales in packed
    ):
        raise MislabelledError(
            f"{folder} is {scheme.level} by its own configuration, and no tensor is packed so",
            why="mlx-lm would run the weights as they are, under the quantization's name",
            remedy="correct `quantization` in config.json, or convert the model again",
        )


def _tokenizer_sha256(folder: Path) -> str:
    path = next((folder / name for name in _TOKENIZERS if (folder / name).is_file()), None)
    if path is None:
        raise _incomplete(folder, f"has no tokenizer (none of {', '.join(_TOKENIZERS)})")
    if path.name != "tokenizer.json":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    # A saved copy is spelled differently; the splitting rules stay.
    content = _json(path)
    model = content.get("model")
    if not isinstance(model, dict) or "vocab" not in model:
        raise corrupt(path, "it has no vocabulary")
    merges = [m.split(" ") if isinstance(m, str) else m for m in model.get("merges") or []]
    added = content.get("added_tokens") or []
    parts = {
        "vocab": model["vocab"],
        "merges": merges,
        "splitting": [content.get("normalizer"), content.get("pre_tokenizer")],
        "added": [[t.get("id"), t.get("content")] for t in added if isinstance(t, dict)],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def shown_level(info: MlxInfo) -> str:
    """A folder's weights as a message names them."""
    return printable(info.level or ("quantized" if info.is_quantised else "of another type"))
