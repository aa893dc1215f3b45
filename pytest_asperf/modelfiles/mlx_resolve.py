"""From a model spec to the folder that MLX measures: given, published or converted."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pytest_asperf.config.engines import mlx_scheme
from pytest_asperf.config.spec import ModelRef, Variant
from pytest_asperf.errors import MislabelledError, ModelError, UnfitError
from pytest_asperf.modelfiles.cache import folder_sha256
from pytest_asperf.modelfiles.convert import TENSOR_NAMES, read_llama
from pytest_asperf.modelfiles.hub_cache import hf_source
from pytest_asperf.modelfiles.mlx_read import (
    MlxInfo,
    hashed_files,
    inspect_mlx,
    shown_level,
    unquantised_misfit,
)
from pytest_asperf.modelfiles.resolve import published, without_source
from pytest_asperf.modelfiles.variants import (
    ModelMaker,
    Quantize,
    StateSpace,
    VariedModel,
    not_variable,
)

#: Part of the key of every folder made here: raise it when the same input gives another folder.
_MAKER_VERSION: Final = 1


def resolve_mlx(
    ref: ModelRef,
    *,
    cache: Path,
    quantize: Quantize,
    quantizer_id: Callable[[], str],
    on_wait: Callable[[str], None] | None = None,
) -> MlxInfo:
    """The folder of a model at a quantization, or as it is, made if need be.

    `quantize` and `quantizer_id`, the converter's build, are called only to make a quantization,
    and `on_wait` once, when another process is making the folder.

    Raises:
        ModelError: the source is missing or broken, or the quantization cannot be made from it.
        CacheError: the cache folder cannot be used.
    """
    spec, level = ref.spec, ref.level
    if spec.files and spec.variant is None:
        level, path = published(ref)
        info = inspect_mlx(path)
        _require_level(info, level)
        return info
    if spec.hf_folder is None:
        if spec.gguf is not None:
            return inspect_mlx(spec.gguf)
        raise without_source(spec)
    source = inspect_mlx(hf_source(spec, spec.hf_folder))
    maker = ModelMaker(spec, cache, ".mlx", on_wait)
    if spec.variant is not None:
        require_variable_folder(source)
        sha256 = folder_sha256(hashed_files(source.path), cache=cache)
        path = maker.variant(spec.variant, source.path, sha256, write_variant_folder)
        source = inspect_mlx(path)
    if level is None or level == source.level:
        return source
    if source.is_quantised:
        raise UnfitError(
            f"{source.path}: {level} cannot be made from it, it is {shown_level(source)} already",
            why="the result would have the losses of both quantizations",
            remedy="give the folder of the original weights as `hf`, or the published folder of "
            "each quantization under `files`",
        )
    recipe = {
        "source_sha256": folder_sha256(hashed_files(source.path), cache=cache),
        "quantizer": quantizer_id(),
        "maker": str(_MAKER_VERSION),
    }

    _require_whole(source, level)

    def build(target: Path) -> None:
        quantize(source.path, target, level)
        _require_level(inspect_mlx(target), level)

    return inspect_mlx(maker.made(level, recipe, build))


def _require_level(info: MlxInfo, level: str) -> None:
    if info.level != level:
        raise MislabelledError(
            f"{info.path} is {shown_level(info)} by its own configuration, not {level}",
            why="it would be measured under another quantization's name",
            remedy="correct the quantization, or its folder",
        )


def _require_whole(source: MlxInfo, level: str) -> None:
    """Reject a quantization that some matrices cannot have: mlx-lm would leave them as they are."""
    scheme = mlx_scheme(level)
    misfit = unquantised_misfit(source, scheme.group_size) if scheme else None
    if scheme is not None and misfit is not None:
        raise UnfitError(
            f"{source.path}: {misfit.name} cannot be {level}: its rows have {misfit.shape[-1]} "
            f"elements, which is not a multiple of {scheme.group_size}",
            why="mlx-lm would leave such tensors unquantized under this quantization's name",
            remedy=f"use a group size that divides {misfit.shape[-1]}, such as 32 or 64",
        )


#: Factors of a Falcon-H1, which a Llama does not have.
_MULTIPLIERS: Final = (
    "attention_in", "attention_out", "embedding", "key", "lm_head", "ssm_in", "ssm_out",
)  # fmt: skip


def require_variable_folder(info: MlxInfo) -> None:
    """Raise ModelError for a folder of another quantization than F16."""
    if info.level != "F16":
        raise not_variable(info.path, info.level or "another")


def write_variant_folder(source: Path, dest: Path, variant: Variant) -> None:
    """Write a variant of a Llama model's folder to a new one, all of it in F16."""
    settings, tensors = read_llama(source)
    varied = VariedModel(
        tensors, variant, n_layers=settings["num_hidden_layers"], n_embd=settings["hidden_size"]
    )
    _require_even_heads(source, settings, varied)
    kind = "experts" if varied.n_experts_used else variant.kind
    named = (_named(name, values, kind) for name, values in varied.all_tensors())
    dest.mkdir()
    _write_safetensors(dest / "model.safetensors", dict(tensor for tensor in named if tensor))
    config = settings | _changes(settings, varied)
    (dest / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    for path in source.glob("tokenizer*"):
        shutil.copyfile(path, dest / path.name)


def _require_even_heads(source: Path, settings: Mapping[str, Any], varied: VariedModel) -> None:
    """Reject heads of a size of their own if the architecture has no key for it."""
    heads, width = settings["num_attention_heads"], settings["hidden_size"]
    if varied.n_experts_used and settings.get("head_dim", width // heads) * heads != width:
        raise ModelError(
            f"{source}: no {varied.variant.kind} can be made of it for MLX, its heads are not as "
            "wide together as the model",
            why="the padded model's architecture has no key for it",
            remedy="use a shipped model, such as asperf-target+experts=8",
        )


def _named(name: str, values: NDArray[Any], kind: str) -> tuple[str, NDArray[Any]] | None:
    """A tensor as mlx-lm has it, None for one that its architecture lacks."""
    names = TENSOR_NAMES["whole"] | TENSOR_NAMES["layers"] | TENSOR_NAMES[kind]
    prefix, part = "", name
    if name.startswith("blk."):
        _, layer, part = name.split(".", 2)
        prefix = f"backbone.layers.{layer}." if kind == "recurrent" else f"model.layers.{layer}."
    stem, _, role = part.partition(".")
    if stem == "ssm_norm":
        return None
    if stem == "ssm_a":
        values = np.log(-values)
    if kind == "hybrid" and stem in {"ssm_a", "ssm_d"}:
        values = values[:, 0]
    if part == "ssm_conv1d.weight":
        values = values[:, None, :]
    whole = names.get(part)
    made = whole or (f"{names[stem]}.{role}" if role else names[stem])
    return prefix + made, values.astype(np.float16)


def _changes(settings: Mapping[str, Any], varied: VariedModel) -> dict[str, Any]:
    """The keys in which the variant's configuration differs from the model's."""
    kind, sizes = varied.variant.kind, varied.state_space
    changes: dict[str, Any] = {
        "num_hidden_layers": varied.n_layers,
        # Otherwise the tokenizer would be the architecture's usual one.
        "tokenizer_class": settings.get("tokenizer_class", "PreTrainedTokenizerFast"),
    }
    if varied.n_experts_used:
        changes |= {
            "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
            "num_local_experts": varied.variant.n,
            "num_experts_per_tok": varied.n_experts_used,
        }
    if kind == "hybrid" and sizes is not None:
        changes |= _falcon(sizes)
    if kind == "recurrent" and sizes is not None:
        changes |= _mamba(sizes)
    rope = settings.get("rope_parameters") or {}
    return changes | {"rope_theta": {**rope, **settings}.get("rope_theta", 10_000.0)}


def _falcon(sizes: StateSpace) -> dict[str, Any]:
    return {
        "architectures": ["FalconH1ForCausalLM"],
        "model_type": "falcon_h1",
        **{f"{name}_multiplier": 1.0 for name in _MULTIPLIERS},
        "mlp_multipliers": [1.0, 1.0],
        "ssm_multipliers": [1.0] * 5,
        "mamba_d_conv": sizes.d_conv,
        "mamba_d_head": sizes.d_inner // sizes.n_heads,
        "mamba_d_ssm": sizes.d_inner,
        "mamba_d_state": sizes.d_state,
        "mamba_n_groups": 1,
        "mamba_n_heads": sizes.n_heads,
        "mamba_rms_norm": False,
    }


def _mamba(sizes: StateSpace) -> dict[str, Any]:
    return {
        "architectures": ["MambaForCausalLM"],
        "model_type": "mamba",
        "intermediate_size": sizes.d_inner,
        "state_size": sizes.d_state,
        "conv_kernel": sizes.d_conv,
        "time_step_rank": sizes.dt_rank,
        "use_bias": False,
        "use_conv_bias": True,
    }


def _write_safetensors(path: Path, tensors: Mapping[str, NDArray[np.float16]]) -> None:
    """Write tensors in F16: https://github.com/huggingface/safetensors#format."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, values in tensors.items():
        begin, end = end, end + values.nbytes
        header[name] = {"dtype": "F16", "shape": values.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values in tensors.values():
            file.write(np.ascontiguousarray(values, "<f2").tobytes())
