# mypy: disable-error-code="misc"
"""A dense Llama in plain torch, with Hugging Face's tensor names and RoPE convention."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of one model; every matrix's input width is a multiple of 256 (k-quants)."""

    layers: int
    ffn: int
    kv_heads: int
    heads: int = 4
    hidden: int = 256
    vocab: int = 2048
    max_positions: int = 2048
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden // self.heads

    def hf_config(self) -> dict[str, object]:
        """The config.json that Hugging Face's LlamaForCausalLM reads."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.max_positions,
            "rms_norm_eps": self.norm_eps,
            "rope_theta": self.rope_theta,
            "rope_scaling": None,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "torch_dtype": "float16",
        }


TARGET = Shape(layers=8, ffn=768, kv_heads=4)
DRAFT = Shape(layers=2, ffn=256, kv_heads=1)
SHAPES = {"target": TARGET, "draft": DRAFT}


def rotary_table(shape: Shape, device: torch.device) -> tuple[Tensor, Tensor]:
    """The tables of cos and sin, each [positions, head_dim], for the rotate-half convention."""
    half = torch.arange(0, shape.head_dim, 2, device=device, dtype=torch.float32)
    inverse = shape.rope_theta ** (-half / shape.head_dim)
    angles = torch.outer(torch.arange(shape.max_positions, device=device).float(), inverse)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply RoPE to [batch, heads, positions, head_dim]."""
    first, second = x.chunk(2, dim=-1)
    turned = x * cos + torch.cat((-second, first), dim=-1) * sin
    return turned.to(x.dtype)


class Cache:
    """Keys and values of the tokens so far, one pair of buffers a layer."""

    def __init__(self, shape: Shape, batch: int, length: int, like: Tensor) -> None:
        sizes = (shape.layers, batch, shape.kv_heads, length, shape.head_dim)
        self.keys = like.new_zeros(sizes)
        self.values = like.new_zeros(sizes)
        self.used = 0

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store this step's keys and values; return all of the layer's."""
        end = self.used + key.shape[2]
        self.keys[layer, :, :, self.used : end] = key
        self.values[layer, :, :, self.used : end] = value
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]


class Attention(nn.Module):
    """Grouped-query causal attention."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self.shape, self.layer = shape, layer
        width = shape.heads * shape.head_dim
        kv_width = shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, width, bias=False)
        self.k_proj = nn.Linear(shape.hidden, kv_width, bias=False)
        self.v_proj = nn.Linear(shape.hidden, kv_width, bias=False)
        self.o_proj = nn.Linear(width, shape.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: Cache | None) -> Tensor:
        """[batch, positions, hidden] to the same."""
        batch, length, _ = x.shape
        query, key, value = (
            p(x).view(batch, length, -1, self.shape.head_dim).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        past = 0
        if cache is not None:
            past = cache.used
            key, value = cache.append(self.layer, key, value)
        mask = None
        if past and length > 1:
            mask = torch.ones(length, past + length, dtype=torch.bool, device=x.device)
            mask = mask.tril(past)
        out = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=not past and length > 1,
            enable_gqa=self.shape.kv_heads != self.shape.heads,
        )
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.down_proj = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., hidden] to the same."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden, eps=shape.norm_eps)
        self.self_attn = Attention(shape, layer)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=shape.norm_eps)
        self.mlp = FeedForward(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: Cache | None) -> Tensor:
        """[batch, positions, hidden] to the same."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Backbone(nn.Module):
    """Embedding, layers and final norm: Hugging Face's `model`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Block(shape, i) for i in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, eps=shape.norm_eps)


class Llama(nn.Module):
    """The whole model; the output head is the embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Backbone(shape)
        cos, sin = rotary_table(shape, torch.device("cpu"))
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.apply(self._initialise)

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids: Tensor, cache: Cache | None = None) -> Tensor:
        """Token ids [batch, positions] to logits [batch, positions, vocab]."""
        start = cache.used if cache is not None else 0
        end = start + ids.shape[1]
        cos, sin = self.cos[start:end], self.sin[start:end]
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, cos, sin, cache)
        if cache is not None:
            cache.used = end
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)


def save(model: Llama, path: str) -> None:
    """Weights as fp16 with their shape."""
    weights = {k: v.detach().half().cpu() for k, v in model.state_dict().items()}
    torch.save({"shape": asdict(model.shape), "weights": weights}, path)


def load(path: str, device: str) -> Llama:
    """A model saved by `save`, in float32."""
    saved = torch.load(path, map_location="cpu", weights_only=True)
    model = Llama(Shape(**saved["shape"]))
    model.load_state_dict(saved["weights"])
    model.float().to(device)
    return model
