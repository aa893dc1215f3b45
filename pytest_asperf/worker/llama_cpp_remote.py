"""Devices of another machine, which llama.cpp reaches by RPC."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from .engine import RefusalError
from .llama_cpp_bindings import GGML as ggml  # noqa: N811  # as C has it

if TYPE_CHECKING:
    from .rpc_remote import Remote


def device_list(remote: Remote) -> Any:
    """A model's devices: only those of a server, in the form of `llama_model_params`.

    An error if the server does not answer.
    """
    registered = require_rpc()(remote.endpoint.encode())
    ggml.ggml_backend_reg_dev_count.argtypes = [ctypes.c_void_p]
    ggml.ggml_backend_reg_dev_count.restype = ctypes.c_size_t
    ggml.ggml_backend_reg_dev_get.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    ggml.ggml_backend_reg_dev_get.restype = ctypes.c_void_p
    count = ggml.ggml_backend_reg_dev_count(registered) if registered else 0
    if not count:
        raise RefusalError("remote", f"the RPC server at {remote.endpoint} has no device")
    devices = [ggml.ggml_backend_reg_dev_get(registered, index) for index in range(count)]
    return (ctypes.c_void_p * (count + 1))(*devices, None)


def require_rpc() -> Any:
    """The function that adds a server; an error if this build of llama.cpp has no RPC."""
    ggml.ggml_backend_reg_by_name.argtypes = [ctypes.c_char_p]
    ggml.ggml_backend_reg_by_name.restype = ctypes.c_void_p
    ggml.ggml_backend_reg_get_proc_address.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    ggml.ggml_backend_reg_get_proc_address.restype = ctypes.c_void_p
    backend = ggml.ggml_backend_reg_by_name(b"RPC")
    address = backend and ggml.ggml_backend_reg_get_proc_address(
        backend, b"ggml_backend_rpc_add_server"
    )
    if not address:
        raise RefusalError(
            "remote", "this build of llama.cpp has no RPC: CMAKE_ARGS=-DGGML_RPC=ON adds it"
        )
    return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)(address)
