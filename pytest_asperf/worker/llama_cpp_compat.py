"""The differences of llama-cpp-python's versions, from 0.3.16 on, decided once at import.

Features are detected by a struct's field, a default or a function. The version number is only shown
in errors: builds of a checkout share the number of the last release. Functions that all of these
versions have (`llama_memory_*`, the fields for quantizing) are called by their users; the log that
the library writes inside this process is kept here.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final

from .engine import Facts, RefusalError
from .llama_cpp_bindings import GGML, llama_cpp, llama_cpp_version
from .printed.metal_log import DEVICE_LINE

VERSION: Final = f"llama-cpp-python {llama_cpp_version}"

_CONTEXT_FIELDS: Final = frozenset(field[0] for field in llama_cpp.llama_context_params._fields_)
#: From 0.3.17 on the engine can decide by itself; before, it is a switch, which is off.
_DECIDES_FLASH_ATTN: Final = "flash_attn_type" in _CONTEXT_FIELDS
_FLASH_ATTN: Final = {"auto": -1, "off": 0, "on": 1}
#: Types of a V cache that need no flash attention.
_FLOAT_TYPES: Final = ("f32", "f16", "bf16")
#: Since 0.3.17 a negative number of layers means all of them; before, it meant none.
_ALL_LAYERS: Final = -1 if llama_cpp.llama_model_default_params().n_gpu_layers == -1 else 2**31 - 1
#: Hybrid architectures of the version without `llm_arch_is_hybrid` (in 0.3.16's llama-arch.cpp).
_HYBRID_ARCHITECTURES: Final = frozenset({"jamba", "falcon-h1", "plamo2", "granitehybrid", "lfm2"})
#: `enum ggml_backend_dev_type`; integrated GPUs came between, with devices that have ids.
_DEVICE_TYPES: Final = (
    ("CPU", "GPU", "IGPU", "ACCEL") if _DECIDES_FLASH_ATTN else ("CPU", "GPU", "ACCEL")
)
#: `LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY`, first named `…_SWA_ONLY`. In 0.3.16 a hybrid memory ignores
#: it and saves all of its state, which is slower and equivalent.
_PARTIAL_STATE: Final = 1
_MAX_TEXT: Final = 200

#: Requests that this version does not support, with the reasons.
CANNOT: Final[Mapping[str, str]] = (
    {}
    if _DECIDES_FLASH_ATTN
    else {
        "flash_attn=auto": f"{VERSION} has flash attention on or off and decides nothing by "
        "itself; unset, it is off"
    }
)


#: Defaults of every llama.cpp that structures are compared by: at another offset there is another
#: value. All pointers are null, and truth values 0 or 1.
_DEFAULTS: Final[Mapping[str, Mapping[str, float]]] = {
    "llama_model": {"split_mode": 1, "main_gpu": 0, "vocab_only": 0, "use_extra_bufts": 1},
    "llama_context": {
        "n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "type_k": 1, "type_v": 1,
        "rope_scaling_type": -1, "pooling_type": -1, "attention_type": -1, "rope_freq_base": 0,
        "rope_freq_scale": 0, "yarn_ext_factor": -1, "yarn_orig_ctx": 0, "embeddings": 0,
        "offload_kqv": 1, "op_offload": 1,
    },
    "llama_model_quantize": {"nthread": 0, "allow_requantize": 0, "quantize_output_tensor": 1},
}  # fmt: skip
#: Bytes behind a structure, which the library fills if it has fields that this version lacks.
_ROOM_BYTES: Final = 256


def library_folder() -> Path:
    """The folder of the libraries that are loaded."""
    return Path(GGML._name).parent  # noqa: SLF001  # ctypes documents it


def require_fitting() -> None:
    """Reject libraries whose structures this llama-cpp-python does not have.

    Fields that a newer library has at the end of a structure keep its own defaults.
    """
    if os.environ.get("LLAMA_CPP_LIB_PATH") is None:
        return
    for name, defaults in _DEFAULTS.items():
        function = getattr(llama_cpp, f"{name}_default_params")
        known = function.restype
        room = ("_room", ctypes.c_uint8 * _ROOM_BYTES)
        function.restype = type(known.__name__, (known,), {"_fields_": [room]})
        if wrong := _misplaced(function(), known, defaults):
            raise RefusalError(
                "libraries",
                f"{name}_params of {library_folder()} is not the one that {VERSION} has: the "
                f"defaults of {', '.join(wrong[:4])} are at other offsets",
            )


def _misplaced(params: Any, known: Any, defaults: Mapping[str, float]) -> list[str]:
    """The fields of a structure that differ from their default."""
    raw, wrong = bytes(params), []
    for name, kind in known._fields_:
        value = getattr(params, name)
        if kind is ctypes.c_bool:
            value = raw[getattr(known, name).offset]
            is_right = value in {0, 1}
        elif isinstance(value, int | float):
            is_right = kind is not ctypes.c_void_p
        else:
            is_right = not value
        if not is_right or (name in defaults and value != defaults[name]):
            wrong.append(name)
    return wrong


def require_possible(settings: Mapping[str, Any]) -> None:
    """Reject settings that this version does not have, or that contradict each other."""
    flash_attn, type_v = settings.get("flash_attn"), settings.get("type_v", "f16")
    if f"flash_attn={flash_attn}" in CANNOT:
        raise RefusalError("version", CANNOT[f"flash_attn={flash_attn}"])
    if not needs_flash_attention(settings) or flash_attn == "on":
        return
    if flash_attn == "off":
        raise RefusalError(
            "kv-cache", f"type_v {type_v} needs flash attention, and flash_attn is off"
        )
    if not _DECIDES_FLASH_ATTN:
        raise RefusalError(
            "version",
            f"type_v {type_v} needs flash attention, which {VERSION} does not turn on by default: "
            "set flash_attn to on",
        )


def needs_flash_attention(settings: Mapping[str, Any]) -> bool:
    """True if flash attention is requested, or a V cache that needs it."""
    return settings.get("flash_attn") == "on" or settings.get("type_v", "f16") not in _FLOAT_TYPES


def set_flash_attention(params: Any, value: str | None) -> None:
    """Set a context's flash attention; None leaves it to this version."""
    if _DECIDES_FLASH_ATTN:
        params.flash_attn_type = _FLASH_ATTN[value or "auto"]
    else:
        params.flash_attn = value == "on"


def set_outputs(params: Any, n_outputs: int) -> None:
    """Enable logits for N positions of a batch, 0 for all; before 0.3.35 for all."""
    if "n_outputs_max_per_seq" in _CONTEXT_FIELDS:
        params.n_outputs_max_per_seq = n_outputs


def set_pooling(params: Any, pooling: int) -> None:
    """Set a context to return a vector of each sequence.

    In caches of their own, sequences of several lengths are cut into several physical batches, and
    llama.cpp pools the last one alone. Before there was a choice, all shared one.
    """
    params.embeddings, params.pooling_type = True, pooling
    if "kv_unified" in _CONTEXT_FIELDS:
        params.kv_unified = True


def empty(context: Any) -> None:
    """Forget a context's decoded tokens; the memory itself need not be overwritten."""
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), False)  # noqa: FBT003  # a C signature


def refused(status: int, where: str, complaint: str) -> RefusalError:
    """The meaning of a status of `llama_decode` that is not 0."""
    return RefusalError("decode", f"llama_decode returned {status} {where}: {complaint}")


def gpu_layers(n_layers: int | None) -> int:
    """The library's number for `n_layers` on a GPU; None or a negative number is all."""
    return _ALL_LAYERS if n_layers is None or n_layers < 0 else n_layers


def embedding_size(model: Any) -> int:
    """The length of a text's vector; before 0.3.17 that of a token's."""
    size = getattr(llama_cpp, "llama_model_n_embd_out", llama_cpp.llama_model_n_embd)
    return int(size(model))


def library_versions() -> dict[str, str | None]:
    """The library's own versions, None if it has none."""
    llama_version = getattr(llama_cpp, "llama_version", None)
    return {
        "llama_version": None if llama_version is None else _text(llama_version()),
        "ggml_version": _ggml_text("ggml_version"),
        "ggml_commit": _ggml_text("ggml_commit"),
    }


def memory_kind(model: Any) -> str:
    """The kind of memory that a model has: `attention only`, `recurrent` or `hybrid`."""
    if _is_hybrid(model):
        return "hybrid"
    return "recurrent" if llama_cpp.llama_model_is_recurrent(model) else "attention only"


def _is_hybrid(model: Any) -> bool:
    if hasattr(llama_cpp, "llama_model_is_hybrid"):
        return bool(llama_cpp.llama_model_is_hybrid(model))
    name = ctypes.create_string_buffer(_MAX_TEXT)
    llama_cpp.llama_model_meta_val_str(model, b"general.architecture", name, _MAX_TEXT)
    return name.value.decode(errors="replace") in _HYBRID_ARCHITECTURES


def _state_function(name: str, *arguments: Any) -> Any:
    """A function of the library itself: 0.3.16 to 0.3.20 export these and bind none."""
    function = GGML[name]
    function.argtypes = [llama_cpp.llama_context_p_ctypes, *arguments, ctypes.c_uint32]
    function.restype = ctypes.c_size_t
    return function


_BYTES: Final = ctypes.POINTER(ctypes.c_uint8)
_STATE_SIZE: Final = _state_function("llama_state_seq_get_size_ext", ctypes.c_int32)
_GET_STATE: Final = _state_function(
    "llama_state_seq_get_data_ext", _BYTES, ctypes.c_size_t, ctypes.c_int32
)
_SET_STATE: Final = _state_function(
    "llama_state_seq_set_data_ext", _BYTES, ctypes.c_size_t, ctypes.c_int32
)


def state_size(context: Any, *, whole: bool = False) -> int:
    """The bytes of sequence 0: of the whole, or of its part that cannot be forgotten."""
    return int(_STATE_SIZE(context, 0, 0 if whole else _PARTIAL_STATE))


def save_state(context: Any, buffer: Any, size: int, *, whole: bool = False) -> int:
    """Write that state; return the bytes, 0 if it failed."""
    return int(_GET_STATE(context, buffer, size, 0, 0 if whole else _PARTIAL_STATE))


def restore_state(context: Any, buffer: Any, size: int, *, whole: bool = False) -> int:
    """Restore a saved state of sequence 0; return the bytes read, 0 if it failed."""
    return int(_SET_STATE(context, buffer, size, 0, 0 if whole else _PARTIAL_STATE))


def devices() -> list[Facts]:
    """The compute devices that this build registered."""
    ggml = GGML
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    ggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
    for name in ("ggml_backend_dev_name", "ggml_backend_dev_description"):
        getattr(ggml, name).argtypes = [ctypes.c_void_p]
        getattr(ggml, name).restype = ctypes.c_char_p
    ggml.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
    size_pointer = ctypes.POINTER(ctypes.c_size_t)
    ggml.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, size_pointer, size_pointer]
    return [_device(ggml, index) for index in range(ggml.ggml_backend_dev_count())]


def _device(ggml: Any, index: int) -> Facts:
    device = ggml.ggml_backend_dev_get(index)
    kind = ggml.ggml_backend_dev_type(device)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    ggml.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
    return {
        "name": _text(ggml.ggml_backend_dev_name(device)),
        "description": _text(ggml.ggml_backend_dev_description(device)),
        "type": _DEVICE_TYPES[kind] if kind < len(_DEVICE_TYPES) else str(kind),
        "memory_free_bytes": free.value,
        "memory_total_bytes": total.value,
    }


def _ggml_text(function: str) -> str | None:
    call = getattr(GGML, function, None)
    if call is None:
        return None
    call.restype = ctypes.c_char_p
    return _text(call())


def _text(raw: bytes | None) -> str | None:
    """A C string, bounded; its text is data."""
    return raw.decode(errors="replace")[:_MAX_TEXT] if raw else None


_LOG_LEVEL_DEBUG: Final = 1
_LOG_LEVEL_CONT: Final = 5
_MOST_DEVICE_LINES: Final = 100


class LibraryLog:
    """Writes the library's log to descriptor 2 and keeps its last lines, to read facts from.

    Lines about a GPU come once in a process, before the first load, and are never dropped.
    """

    def __init__(self) -> None:
        self._recent: deque[str] = deque(maxlen=2000)
        self._devices: list[str] = []
        self.held = Lock()
        # The library keeps the pointer only: collected, the callback would be a crash.
        self.callback = llama_cpp.llama_log_callback(self._write)
        self.attach()

    def attach(self) -> None:
        """Receive the log, also after the import of the package's classes, which redirects it."""
        llama_cpp.llama_log_set(self.callback, ctypes.c_void_p(0))

    def _write(self, level: int, text: bytes, _user_data: object) -> None:
        if level == _LOG_LEVEL_DEBUG:
            return
        os.write(2, text)
        if level != _LOG_LEVEL_CONT:
            line = text[:1000].decode(errors="replace").rstrip()
            self._recent.append(line)
            if line.startswith(DEVICE_LINE) and len(self._devices) < _MOST_DEVICE_LINES:
                self._devices.append(line)

    def clear(self) -> None:
        """Drop the lines kept so far."""
        self._recent.clear()

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines about a GPU, and the last ones."""
        return (*self._devices, *self._recent)

    def complaint(self) -> str:
        """The last three lines, in which the library names its error."""
        return " | ".join(list(self._recent)[-3:])[:600] or "the library logged nothing"
