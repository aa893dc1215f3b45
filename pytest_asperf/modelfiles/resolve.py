"""From a model spec to the GGUF file that is measured: given, converted or quantized."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from numpy.typing import NDArray

from pytest_asperf.config.spec import ModelRef, ModelSpec, Variant
from pytest_asperf.errors import Advice, MislabelledError, ModelError, UnfitError, listing
from pytest_asperf.modelfiles.cache import file_sha256
from pytest_asperf.modelfiles.convert import CONVERTER_VERSION, HF_FILES, hf_to_gguf
from pytest_asperf.modelfiles.disk_use import model_sha256
from pytest_asperf.modelfiles.gguf_read import GgufInfo, inspect_gguf, read_gguf
from pytest_asperf.modelfiles.hub_cache import hf_source
from pytest_asperf.modelfiles.levels import contradiction, require_quantizable
from pytest_asperf.modelfiles.variants import (
    ModelMaker,
    Quantize,
    Tensor,
    VariedModel,
    not_variable,
)


def resolve(
    ref: ModelRef,
    *,
    cache: Path,
    quantize: Quantize,
    quantizer_id: Callable[[], str],
    on_wait: Callable[[str], None] | None = None,
) -> Path:
    """The GGUF file of a model at a quantization, or its own, made if need be.

    `quantize` and `quantizer_id`, the quantizer's build, are called only to make a quantization:
    another build makes its own files. `on_wait` is called once, when another process is making the
    file.

    Raises:
        ModelError: the source is missing or broken, or the quantization cannot be made from it.
        CacheError: the cache folder cannot be used.
    """
    spec = ref.spec
    if spec.files and spec.variant is None:
        return published_file(ref)
    if spec.hf_folder is not None:
        folder = hf_source(spec, spec.hf_folder)
        source = _converted(spec, folder, cache=cache, on_wait=on_wait)
    elif spec.gguf is not None:
        source = spec.gguf
    else:
        raise without_source(spec)
    maker = ModelMaker(spec, cache, ".gguf", on_wait)
    if spec.variant is not None:
        require_variable(inspect_gguf(source))
        sha256 = model_sha256(source, cache=cache)
        source = maker.variant(spec.variant, source, sha256, write_variant)
    info = read_gguf(source)
    level = ref.level
    if level is None:
        return source
    if level == info.level:
        _require_level(source, level)
        return source
    require_quantizable(info, level)
    recipe = {"source_sha256": model_sha256(source, cache=cache), "quantizer": quantizer_id()}

    def build(target: Path) -> None:
        quantize(source, target, level)
        _require_level(target, level)

    return maker.made(level, recipe, build)


def published_file(ref: ModelRef) -> Path:
    """A published file of a model at a quantization."""
    level, path = published(ref)
    if path.is_dir():
        raise UnfitError(
            f"{path}: {ref.label} is a folder, and llama.cpp measures GGUF files",
            why="published files are measured as they are; none is made of a folder of weights "
            "that may be quantized already",
            remedy=Advice(
                "give a GGUF file of that quantization, or measure it on MLX", engine="mlx"
            ),
        )
    _require_level(path, level)
    return path


def published(ref: ModelRef) -> tuple[str, Path]:
    """The quantization and the path of a model that is declared by `files`."""
    files = dict(ref.spec.files)
    if not files:  # a server has the model, or a program's own command line names it
        raise without_source(ref.spec)
    level = ref.level or (next(iter(files)) if len(files) == 1 else None)
    if level not in files:
        what = f"has no file at {level}" if level else "has several files: name one"
        raise UnfitError(
            f"the model {ref.spec.name!r} {what}",
            why="published files are measured as they are; no quantization is made from another",
            remedy=f"use one of {listing(files)}, as in {ref.spec.name}:{min(files)}",
        )
    return level, files[level]


def _require_level(path: Path, level: str) -> None:
    if other := contradiction(read_gguf(path), level):
        raise MislabelledError(
            f"{path} is {other}, not {level}",
            why="it would be measured under another quantization's name",
            remedy="correct the quantization, or its file",
        )


def _converted(
    spec: ModelSpec, folder: Path, *, cache: Path, on_wait: Callable[[str], None] | None
) -> Path:
    # Variants are made from the one file that the model itself is converted to.
    maker = ModelMaker(replace(spec, name=spec.name.partition("+")[0]), cache, ".gguf", on_wait)
    recipe = {
        "converter": str(CONVERTER_VERSION),
        **{f"{name} sha256": _source_sha256(folder / name, cache) for name in HF_FILES},
    }
    return maker.made("F16", recipe, lambda path: hf_to_gguf(folder, path))


def _source_sha256(path: Path, cache: Path) -> str:
    try:
        return file_sha256(path, cache=cache)
    except OSError as error:
        raise ModelError(
            f"{path} cannot be read: {error.strerror}",
            remedy="give a folder in Hugging Face format, with its config, weights and tokenizer",
        ) from error


def without_source(spec: ModelSpec) -> ModelError:
    """The error for a specification that names nothing."""
    return ModelError(
        f"the model {spec.name!r} has no source", remedy="give it `hf`, `gguf` or `files`"
    )


_ARCHITECTURES: Final = {"hybrid": "falcon-h1", "recurrent": "mamba"}
_ROTATED: Final = ("attn_q.weight", "attn_k.weight")


def require_variable(info: GgufInfo) -> None:
    """Raise ModelError for a file that is no dense Llama model in F16."""
    if info.architecture != "llama" or info.level != "F16" or info.n_experts:
        what = f"{info.architecture or 'unknown'} in {info.level or 'an unknown quantization'}"
        raise not_variable(info.path, what)


def write_variant(source: Path, dest: Path, variant: Variant) -> None:
    """Write a variant of a Llama model in F16."""
    reader = GGUFReader(source)
    varied = VariedModel(
        {t.name: np.array(t.data) for t in reader.tensors},
        variant,
        n_layers=_number(reader, "block_count"),
        n_embd=_number(reader, "embedding_length"),
    )
    architecture = _ARCHITECTURES.get(variant.kind, "llama")
    head_dim = _number(reader, "attention.key_length")
    writer = GGUFWriter(dest, architecture)
    _copy_fields(reader, writer, architecture)
    _add_fields(writer, varied)
    for tensor in varied.all_tensors():
        writer.add_tensor(*(_as_falcon(tensor, head_dim) if variant.kind == "hybrid" else tensor))
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _number(reader: GGUFReader, key: str) -> int:
    field = reader.get_field(f"llama.{key}")
    if field is None:
        raise ValueError(f"no llama.{key}")
    return int(field.contents())


def _copy_fields(reader: GGUFReader, writer: GGUFWriter, architecture: str) -> None:
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in {"general.architecture", "llama.block_count"}:
            continue
        name = key.replace("llama.", f"{architecture}.", 1) if key.startswith("llama.") else key
        kind, *element = field.types
        contents = field.contents()
        if kind == GGUFValueType.ARRAY:
            writer.add_key_value(name, contents, kind, sub_type=element[0])
        else:
            writer.add_key_value(name, contents, kind)


def _add_fields(writer: GGUFWriter, varied: VariedModel) -> None:
    """Write the parts of the padded model that the model lacks, or has otherwise."""
    writer.add_block_count(varied.n_layers)
    if varied.n_experts_used:
        writer.add_expert_count(varied.variant.n)
        writer.add_expert_used_count(varied.n_experts_used)
    sizes = varied.state_space
    if sizes is not None:
        writer.add_ssm_conv_kernel(sizes.d_conv)
        writer.add_ssm_state_size(sizes.d_state)
        writer.add_ssm_inner_size(sizes.d_inner)
        writer.add_ssm_time_step_rank(sizes.n_heads or sizes.dt_rank)
        if sizes.n_heads:
            writer.add_ssm_group_count(1)


def _as_falcon(tensor: Tensor, head_dim: int) -> Tensor:
    name, values = tensor
    if name.endswith(_ROTATED):
        return name, _halves(values, head_dim)
    if name.endswith("ffn_norm.weight"):
        return name.removesuffix(".weight"), values
    return tensor


def _halves(values: NDArray[Any], head_dim: int) -> NDArray[Any]:
    """Reorder rows of Q or K that rotate neighbours so that they rotate halves of a head."""
    rows, columns = values.shape
    pairs = values.reshape(rows // head_dim, head_dim // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)
