"""Facts of an engine, a model and a context, for tests of their use."""

from dataclasses import replace
from typing import Any, Final

from pytest_asperf.engine_process import ContextFacts, EngineFacts, LoadedFacts

ENGINE: Final = EngineFacts(engine="scripted", library="scripted", version="1")
_LOADED: Final = LoadedFacts(
    description="m",
    n_params=1000,
    size_bytes=2000,
    n_vocab=257,
    n_layers=1,
    n_ctx_train=4096,
    add_bos=True,
    layers_offloaded=0,
    threads=1,
    load_ns=1,
)
_CONTEXT: Final = ContextFacts(n_ctx=64, type_k="f16", type_v="f16", flash_attn="off", threads=1)


def loaded(**changed: Any) -> LoadedFacts:
    """Facts of a loaded model."""
    return replace(_LOADED, **changed)


def context(**changed: Any) -> ContextFacts:
    """Facts of a context."""
    return replace(_CONTEXT, **changed)
