"""Finds encoders: models whose headers show that they do not continue a text.

An engine times an encoder as fast as any model, and returns meaningless logits. Its vectors are
meaningful, so only functions that need logits reject a GGUF file of an encoder.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pytest_asperf.config.text_file import UnreadableTextError, read_bytes
from pytest_asperf.errors import NoModelError, printable
from pytest_asperf.modelfiles.gguf_header import GgufHeader

_ENCODER: Final = "an encoder"
_BOTH: Final = "an encoder-decoder"
#: Architectures of GGUF that are encoders, with any other metadata.
_GGUF_ENCODER: Final = re.compile(r".*bert.*|gemma-embedding|llama-embed|t5encoder")
#: Architectures and model types of `transformers`; `LongformerForMaskedLM` is recognized by its
#: head.
_HF_ENCODER: Final = re.compile(
    r".*(bert|electra|mpnet).*|(clip|siglip).*|.*(Encoder|Bidirectional)Model"
    r"|.*For(MaskedLM|(Sequence|Token)Classification|QuestionAnswering|MultipleChoice)"
    r"|.*For\w*RewardModel",
    re.IGNORECASE,
)
_HF_BOTH: Final = re.compile(r"(u|m|long|by)?t5.*|(m|pl)?bart.*", re.IGNORECASE)
_POOLING: Final = b"sentence_transformers.models.Pooling"


def encoder_sign(path: Path, architecture: str, header: GgufHeader) -> str:
    """The kind of an encoder, or of a model that is pooled, and its sign in a GGUF file's header.

    Empty for a model that continues a text.

    Raises:
        NoModelError: it is an encoder-decoder, of which nothing is measured.
    """
    found = _in_header(architecture, header)
    if found is None:
        return ""
    text = _said(*found)
    if found[0] == _BOTH:
        raise _refusal(f"{path} is {text}")
    return text


def require_causal_file(path: Path, encoder: str) -> None:
    """Reject a GGUF file with a sign of `encoder_sign`."""
    if encoder:
        raise _refusal(f"{path} is {encoder}")


def require_causal_folder(folder: Path, config: Mapping[str, Any]) -> None:
    """Reject a folder in Hugging Face format for the same reasons, by its configuration."""
    text = config.get("text_config")
    values = {**config, **text} if isinstance(text, dict) else config
    if found := _in_config(values) or _in_modules(folder):
        raise _refusal(f"{folder / 'config.json'} is of {_said(*found)}")


def _said(noun: str, sign: str) -> str:
    return f"{noun}, which does not continue a text: {sign}"


def _refusal(what: str) -> NoModelError:
    return NoModelError(
        what,
        why="TG, PPL and speculation are about the next token of a text; such a model has none",
        remedy="measure a model that generates text; for an encoder, gate the vectors: "
        "`asperf gate --model FILE --workload embeddings`",
    )


def _in_header(architecture: str, header: GgufHeader) -> tuple[str, str] | None:
    causal, pooling = (f"{architecture}.{key}" for key in ("attention.causal", "pooling_type"))
    names = (printable(tensor.name, 80) for tensor in header.tensors)
    stacks = {name[:4]: name for name in names if name.startswith(("enc.", "dec."))}
    if architecture == "t5":
        return _BOTH, "its architecture is t5"
    if _GGUF_ENCODER.fullmatch(architecture):
        stated = f", and {causal} is false" if _is_false(header.values.get(causal)) else ""
        return _ENCODER, f"its architecture is {architecture}{stated}"
    if "enc." in stacks:
        return _BOTH if "dec." in stacks else _ENCODER, f"it has the tensor {stacks['enc.']}"
    if _is_false(header.values.get(causal)):
        return f"{_ENCODER} or a diffusion model", f"{causal} is false"
    kind = header.values.get(pooling)
    # llama.cpp's enum: -1 is unspecified, 0 none.
    if type(kind) is int and kind > 0:
        return _ENCODER, f"{pooling} is {kind}: it gives one vector for a whole text"
    return None


def _is_false(value: object) -> bool:
    return type(value) in {bool, int} and not value


def _in_config(values: Mapping[str, Any]) -> tuple[str, str] | None:
    if values.get("is_encoder_decoder") is True:
        return _BOTH, "is_encoder_decoder is true"
    listed = values.get("architectures")
    names = [values.get("model_type"), *(listed if isinstance(listed, list) else [])]
    texts = [name for name in names if isinstance(name, str)]
    # A BERT may be trained to decode, and its configuration then says so.
    for name in texts if values.get("is_decoder") is not True else []:
        if _HF_ENCODER.fullmatch(name):
            return _ENCODER, f"it is {printable(name, 80)}"
    for name in texts:
        if _HF_BOTH.fullmatch(name):
            return _BOTH, f"it is {printable(name, 80)}"
    for key, encodes in (("use_bidirectional_attention", True), ("is_causal", False)):
        if values.get(key) is encodes:
            return _ENCODER, f"{key} is {str(encodes).lower()}"
    return None


def _in_modules(folder: Path) -> tuple[str, str] | None:
    """The sign in the files that Sentence Transformers writes next to a model."""
    path, pools = folder / "modules.json", "pools its output to one vector for a whole text"
    with suppress(UnreadableTextError):
        if _POOLING in read_bytes(path):
            return _ENCODER, f"{path} {pools}"
    for path in (folder / "1_Pooling", folder / "config_sentence_transformers.json"):
        if path.exists():
            return _ENCODER, f"{path} {pools}"
    return None
