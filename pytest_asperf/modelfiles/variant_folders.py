"""Variants of a model as folders that MLX reads."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_asperf.errors import ModelError
from pytest_asperf.modelfiles.convert import LLAMA_PARTS, read_llama
from pytest_asperf.modelfiles.variants import StateSpace, VariedModel, not_variable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from pytest_asperf.config.variants import Variant
    from pytest_asperf.modelfiles.mlx_read import MlxInfo

_WHOLE: Final = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
#: What mlx-lm calls things, by kind of variant, where that is not what Llama calls them.
_NAMES: Final[dict[str, dict[str, str]]] = {
    "layers": {},
    "experts": {
        "ffn_gate_inp": "block_sparse_moe.gate",
        "ffn_gate_exps": "block_sparse_moe.switch_mlp.gate_proj",
        "ffn_up_exps": "block_sparse_moe.switch_mlp.up_proj",
        "ffn_down_exps": "block_sparse_moe.switch_mlp.down_proj",
    },
    "hybrid": {
        "output_norm": "model.final_layernorm",
        "ffn_norm": "pre_ff_layernorm",
        "ffn_gate": "feed_forward.gate_proj",
        "ffn_up": "feed_forward.up_proj",
        "ffn_down": "feed_forward.down_proj",
        "ssm_in": "mamba.in_proj",
        "ssm_conv1d": "mamba.conv1d",
        "ssm_dt.bias": "mamba.dt_bias",
        "ssm_a": "mamba.A_log",
        "ssm_d": "mamba.D",
        "ssm_out": "mamba.out_proj",
    },
    "recurrent": {
        "token_embd": "backbone.embeddings",
        "output_norm": "backbone.norm_f",
        "attn_norm": "norm",
        "ssm_in": "mixer.in_proj",
        "ssm_conv1d": "mixer.conv1d",
        "ssm_x": "mixer.x_proj",
        "ssm_dt": "mixer.dt_proj",
        "ssm_a": "mixer.A_log",
        "ssm_d": "mixer.D",
        "ssm_out": "mixer.out_proj",
    },
}
#: What a Falcon-H1 multiplies by, which a Llama does not.
_MULTIPLIERS: Final = (
    "attention_in", "attention_out", "embedding", "key", "lm_head", "ssm_in", "ssm_out",
)  # fmt: skip


def require_variable_folder(info: MlxInfo) -> None:
    """Raise ModelError for a folder of another level than F16."""
    if info.level != "F16":
        raise not_variable(info.path, info.level or "another")


def write_variant_folder(source: Path, dest: Path, variant: Variant) -> None:
    """Write a variant of a Llama model's folder to a new one, all of it in F16."""
    settings, tensors = read_llama(source)
    varied = VariedModel(
        tensors, variant, n_layers=settings["num_hidden_layers"], n_embd=settings["hidden_size"]
    )
    _require_even_heads(source, settings, variant)
    named = (_named(name, values, variant.kind) for name, values in varied.all_tensors())
    dest.mkdir()
    _write_safetensors(dest / "model.safetensors", dict(tensor for tensor in named if tensor))
    config = settings | _changes(settings, varied)
    (dest / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    for path in source.glob("tokenizer*"):
        shutil.copyfile(path, dest / path.name)


def _require_even_heads(source: Path, settings: Mapping[str, Any], variant: Variant) -> None:
    """Refuse heads of a size of their own where the variant's architecture has no key for it."""
    heads, width = settings["num_attention_heads"], settings["hidden_size"]
    if variant.kind == "experts" and settings.get("head_dim", width // heads) * heads != width:
        raise ModelError(
            f"{source}: no {variant.kind} can be made of it for MLX, its heads are not as wide "
            "together as the model",
            why="the architecture that the variant would have cannot say so",
            remedy="use a shipped model, such as asperf-target+experts=8",
        )


def _named(name: str, values: NDArray[Any], kind: str) -> tuple[str, NDArray[Any]] | None:
    """A tensor as mlx-lm has it, None for what its architecture has not."""
    names = _WHOLE | LLAMA_PARTS | _NAMES[kind]
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
        # Else it would be what tokenizers of the variant's architecture usually are.
        "tokenizer_class": settings.get("tokenizer_class", "PreTrainedTokenizerFast"),
    }
    if kind == "experts":
        changes |= {
            "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
            "num_local_experts": varied.variant.n,
            "num_experts_per_tok": 1,
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
