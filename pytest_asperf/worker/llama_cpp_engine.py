"""llama.cpp through llama-cpp-python's low-level API.

The defaults are those of llama.cpp's own binaries (llama-bench's `cmd_params_defaults`): batches of
2,048 in pieces of 512, an F16 cache, flash attention left to the engine, all layers on a GPU if a
GPU backend is built in, one thread for each CPU that is useful for arithmetic.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from . import llama_cpp_compat as compat
from .engine import (
    Facts,
    LoadedModel,
    RefusalError,
    Timing,
    files_sha256,
    require_context,
    require_settings,
)
from .llama_cpp_batch import decode_chunk, rows_of, together
from .llama_cpp_bindings import llama_cpp, llama_cpp_version
from .llama_cpp_compat import LibraryLog
from .llama_cpp_conversation import LlamaConversation
from .llama_cpp_embedding import Encoder, encodes, open_pooling, packed, vectors_of
from .llama_cpp_prefix import SavedPrefixes
from .llama_cpp_remote import device_list, require_rpc
from .llama_cpp_sampler import TimedSampler
from .llama_cpp_speculation import LlamaCppStepper
from .logits import seen
from .printed.engine_log import buffers_mib, context_facts, layer_counts
from .printed.metal_log import metal_facts
from .priority import default_threads, linger
from .rpc_remote import Remote, Remotes
from .sampling import BY_GRAMMAR, TOP_K_OFF

if TYPE_CHECKING:  # llama_cpp_bindings imports numpy without its threads
    import numpy as np
    from numpy.typing import NDArray

# ggml.h and llama.h; part of the ABI.
GGML_TYPES: Final = {
    "f32": 0, "f16": 1, "bf16": 30,
    "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20,
}  # fmt: skip
_MAX_TEXT: Final = 200
#: The settings that llama.cpp has, of all engine settings.
_SETTINGS: Final = frozenset(
    {
        *("threads", "n_gpu_layers", "flash_attn", "type_k", "type_v", "n_batch", "n_ubatch"),
        *("tensor_split", "slow_by", "remote"),
    }
)


def library_files() -> list[Path]:
    """The native code: it decides the computation."""
    folder = compat.library_folder()
    return sorted(p for p in folder.glob("*") if ".so" in p.name or p.suffix in {".dylib", ".dll"})


def _per_device(shares: Iterable[float]) -> Any:
    """An array with a number for each device that llama.cpp can have, 0 beyond those given."""
    most = llama_cpp.llama_max_devices()
    return (ctypes.c_float * most)(*islice(shares, most))


class LlamaCppEngine:
    """The engine: one library, any number of models."""

    def __init__(self) -> None:
        compat.require_fitting()
        self._log = LibraryLog()
        self._prefixes = SavedPrefixes()
        self._remotes = Remotes()
        llama_cpp.llama_backend_init()

    def describe(self) -> Facts:
        """Versions, devices and a hash of the libraries."""
        devices = compat.devices()  # registered now at the latest, which the log shows
        return {
            "engine": "llama_cpp",
            "library": "llama-cpp-python",
            "version": llama_cpp_version,
            **compat.library_versions(),
            "library_path": str(compat.library_folder()),
            "library_sha256": files_sha256(library_files()),
            "system_info": llama_cpp.llama_print_system_info().decode(errors="replace").strip(),
            "gpu_offload": bool(llama_cpp.llama_supports_gpu_offload()),
            "devices": devices,
            "metal": metal_facts(self._log.lines),
            "default_threads": default_threads(),
            "cannot": dict(compat.CANNOT),
        }

    def share(self, folder: str) -> None:
        """Share filled caches with later processes of the same build through a folder."""
        self._prefixes.share(Path(folder))

    def load(self, path: str, settings: dict[str, Any]) -> LoadedModel:
        """Load a GGUF file."""
        hint = "type_k and type_v, such as q8_0, quantize the KV cache"
        require_settings(settings, _SETTINGS, "llama.cpp", hint)
        compat.require_possible(settings)
        remote = None
        if address := settings.get("remote"):
            require_rpc()  # before a server is started in vain
            remote = self._remotes.at(address)
        return LlamaCppModel(path, settings, self._log, self._prefixes, remote)

    def quantize(self, source: str, target: str, recipe: dict[str, Any]) -> None:
        """Quantize a GGUF file with `llama_model_quantize`."""
        self._log.clear()
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype = recipe["ftype"]
        params.nthread = default_threads()
        status = llama_cpp.llama_model_quantize(
            os.fsencode(source), os.fsencode(target), ctypes.byref(params)
        )
        if status != 0:
            raise RefusalError("quantize", self._log.complaint())


class LlamaCppModel(LoadedModel):
    """A loaded GGUF file, with one context that is remade when a request needs another."""

    samples = (TOP_K_OFF, BY_GRAMMAR)

    def __init__(
        self,
        path: str,
        settings: dict[str, Any],
        log: LibraryLog,
        prefixes: SavedPrefixes,
        remote: Remote | None = None,
    ) -> None:
        self._settings = settings
        self._log = log
        self._prefixes = prefixes
        self.remote = remote
        self._context: Any = None
        self._open_for: int | None = None
        self.context: Facts = {}
        self._resident: list[int] = []
        self._row: Any = None
        self._found_varied: set[str] = set()
        self._threads = settings.get("threads") or default_threads()
        self._n_batch = settings.get("n_batch", 2048)
        self._slow_by = settings.get("slow_by", 0.0)
        self._encoder = Encoder(
            lambda n, pooling: self._new_context(n, n, 0, 1, pooling), log.complaint, self._slow_by
        )
        log.clear()
        params = llama_cpp.llama_model_default_params()
        # llama-cpp-python's own default is the CPU; the binaries' default is every layer on the
        # GPU.
        params.n_gpu_layers = compat.gpu_layers(settings.get("n_gpu_layers"))
        if shares := settings.get("tensor_split"):
            params.tensor_split = _per_device(map(float, shares.split("/")))
        greeting = remote.greet() if remote else {}
        devices = device_list(remote) if remote else None
        if devices:
            params.devices = ctypes.addressof(devices)
        started_ns = time.perf_counter_ns()
        self._model = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
        if not self._model:
            raise RefusalError("load", log.complaint())
        self._path = path
        self._key = (path, Path(path).stat().st_mtime_ns, tuple(sorted(settings.items())))
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        linger(started_ns, self._slow_by)
        load_ns = time.perf_counter_ns() - started_ns
        self._n_vocab = llama_cpp.llama_vocab_n_tokens(self._vocab)
        self.facts = {
            **_model_facts(self._model, self._vocab, log.lines),
            "encodes": encodes(self._model),
            "threads": self._threads,
            "slow_by": self._slow_by,
            "load_ns": load_ns,
        }
        bos = llama_cpp.llama_vocab_bos(self._vocab) if self.facts["add_bos"] else None
        self._chunks = ChunkContexts(lambda n: self._new_context(n, n, 0), bos, log)
        if remote:
            self.facts["remote"] = greeting
            remote.require_weights(self.facts["buffers_mib"])

    def tokenize(self, text: str) -> list[int]:
        """Tokenise as `common_tokenize(ctx, text, true)` does for llama-perplexity."""
        raw = text.encode()
        room = len(raw) + 2
        ids = (llama_cpp.llama_token * room)()
        count = llama_cpp.llama_tokenize(self._vocab, raw, len(raw), ids, room, True, False)  # noqa: FBT003  # add_special, parse_special: a C signature
        if count < 0:
            raise RefusalError("tokenize", f"the tokenizer returned {count}")
        return list(ids[:count])

    def prompt(self, tokens: Sequence[int], depth: int, n_ctx: int) -> Timing:
        """Decode a prompt in batches, timed; an encoder computes its vector."""
        if self.facts["encodes"]:
            timing = self._encoder.timed(tokens)
            self.context = self._encoder.facts
            return timing
        return self._timed(tokens, depth, self._n_batch, n_ctx)

    def generate(self, tokens: Sequence[int], depth: int, n_ctx: int, sampled: str = "") -> Timing:
        """Decode tokens one at a time, timed, synchronising after each, and sample on request."""
        if not sampled:
            return self._timed(tokens, depth, 1, n_ctx)
        with TimedSampler(self._vocab, sampled) as sampler:
            timing = self._timed(tokens, depth, 1, n_ctx, sampler=sampler)
            row = rows_of(self._context, -1, self._n_vocab)[0]
            sampler.require_sampled(row)
            if sampled not in self._found_varied:
                sampler.require_varied(self._context, row)
                self._found_varied.add(sampled)
        return timing

    def first_token(self, tokens: Sequence[int], n_ctx: int) -> Timing:
        """Decode a prompt and choose the likeliest next token, both timed."""
        return self._timed(tokens, 0, self._n_batch, n_ctx, chooses=True)

    def _timed(
        self,
        tokens: Sequence[int],
        depth: int,
        n_batch: int,
        n_ctx: int,
        *,
        chooses: bool = False,
        sampler: TimedSampler | None = None,
    ) -> Timing:
        self._prepare(tokens, depth, n_ctx)
        timed = list(tokens[depth:])
        before = self.remote.work_so_far() if self.remote else None
        started_ns = time.perf_counter_ns()
        steps = self._decode_all(timed, n_batch, sampler)
        # A run lasts until its result can be read.
        row = rows_of(self._context, -1, self._n_vocab)[0]
        if chooses:
            row.argmax()
        elapsed_ns = time.perf_counter_ns() - started_ns
        self._resident, self._row = list(tokens), row.copy()
        if self.remote and before:
            self.remote.require_work(before, len(steps), self._n_vocab)
        return Timing(len(timed), elapsed_ns, tuple(steps), seen(row))

    def logits(self, tokens: Sequence[int], first: int) -> NDArray[np.float32]:
        """Logits from position `first`, as a view of the library's buffer."""
        self._close_context()
        context = self._chunks.read(tokens, first)
        self.context = self._chunks.facts
        return rows_of(context, first, self._n_vocab, len(tokens) - first)

    def look_ahead(self, tokens: Sequence[int], first: int) -> None:
        """Decode the next chunk while the last one's logits are read, if no core is needed."""
        if self.facts["layers_offloaded"] > self.facts["n_layers"]:
            # A failure, or too little room, occurs again when the chunk itself is scored.
            with contextlib.suppress(RefusalError):
                self._chunks.look_ahead(tokens, first)

    def left_by_run(self) -> ContextLeftByRun | None:
        """The context as the last timed run left it; the next run fills it anew."""
        if self.facts["encodes"]:
            return None
        tokens, self._resident = self._resident, []
        decode = partial(self._decode_all, n_batch=1)
        return ContextLeftByRun(self._context, tokens, self._row, decode)

    def recompute(
        self, tokens: Sequence[int], positions: Sequence[int]
    ) -> Iterator[NDArray[np.float32]]:
        """The logits of some positions of a text, from one batch of a fresh context."""
        self._close_context()
        n = len(tokens)
        context, _ = self._new_context(n, n, len(positions))
        try:
            if status := decode_chunk(context, tokens, set(positions)):
                where = f"for a text of {n} tokens"
                raise compat.refused(status, where, self._log.complaint())
            for position in positions:
                yield rows_of(context, position, self._n_vocab)[0]
        finally:
            llama_cpp.llama_free(context)

    def together(
        self, sequences: Sequence[Sequence[int]], n_decoded: Sequence[int]
    ) -> Iterator[Sequence[NDArray[np.float32]]]:
        """The logits of sequences that are decoded together in a fresh context."""
        self._close_context()
        n, lengths = len(sequences), [*map(len, sequences)]
        n_batch = _multiple(sum(lengths) - sum(n_decoded), n)
        context, self.context = self._new_context(n * max(lengths), n_batch, 0, n)
        try:
            yield from together(context, sequences, n_decoded, self._n_vocab, self._log.complaint)
        finally:
            llama_cpp.llama_free(context)

    def embed(self, texts: Sequence[str], *, together: bool) -> Iterator[list[float]]:
        """One vector of each text, computed alone or with as many others as a batch has room for.

        The length of a physical batch is the tokens of a call, as an encoder sees them at once.
        """
        self._close_context()
        room = self._settings.get("n_ubatch", 512)
        groups = packed([self.tokenize(text) for text in texts], room)
        if not together:
            groups = [[text] for group in groups for text in group]
        n = max(len(group) for group in groups)
        longest = max(len(text) for group in groups for text in group)
        most = _multiple(max(sum(map(len, group)) for group in groups), n)
        context, self.context = open_pooling(
            lambda pooling: self._new_context(n * longest, most, 0, n, pooling)
        )
        try:
            yield from vectors_of(context, groups, self._log.complaint)
        finally:
            llama_cpp.llama_free(context)

    @contextlib.contextmanager
    def conversation(self, n_ctx: int) -> Iterator[LlamaConversation]:
        """A `Llama` of the same file and settings, with a memory for so many tokens."""
        if self.remote:
            raise RefusalError("unsupported", "a conversation with a remote device is not checked")
        self._close_context()
        self._log.clear()
        settings = self._settings
        types = {key: GGML_TYPES[settings[key]] for key in ("type_k", "type_v") if key in settings}
        threads = {"n_threads": self._threads, "n_threads_batch": self._threads}
        with contextlib.closing(
            LlamaConversation(self._path, settings, self._log, n_ctx=n_ctx, **types, **threads)
        ) as conversation:
            weights_mib = self.facts["buffers_mib"]
            self.context = _resolved(conversation.context, self._log, settings, weights_mib)
            yield conversation

    def close(self) -> None:
        """Free the context and the model."""
        self._close_context()
        self._chunks.close()
        llama_cpp.llama_model_free(self._model)

    def _prepare(self, tokens: Sequence[int], depth: int, n_ctx: int) -> None:
        """Bring exactly `tokens[:depth]` into the cache, reusing its present tokens."""
        if n_ctx != self._open_for:
            self._chunks.close()
            self._close_context()
            # Only the last position of a batch has logits.
            self._context, self.context = self._new_context(n_ctx, self._n_batch, None)
            self._open_for = n_ctx
        prefix = list(tokens[:depth])
        keeps = depth > 0 and self._resident[:depth] == prefix
        memory = llama_cpp.llama_get_memory(self._context)
        # A recurrent memory cannot drop its end: it starts again.
        if not (keeps and llama_cpp.llama_memory_seq_rm(memory, 0, depth, -1)):
            self._fill(prefix)
        self._resident = []

    def _fill(self, prefix: list[int]) -> None:
        """Bring nothing but a text into the cache, from an earlier load's as far as it has it."""
        key = (*self._key, self._open_for)
        compat.empty(self._context)
        held = self._prefixes.restore(key, self._context, prefix) if prefix else 0
        if not held:
            compat.empty(self._context)  # it may be half restored
        if rest := prefix[held:]:
            self._decode_all(rest, self._n_batch)
        if prefix and not held:
            self._prefixes.keep(key, self._context, prefix)

    def _decode_all(
        self, tokens: list[int], n_batch: int, sampler: TimedSampler | None = None
    ) -> list[int]:
        steps: list[int] = []
        decode, synchronize = llama_cpp.llama_decode, llama_cpp.llama_synchronize
        context, clock = self._context, time.perf_counter_ns
        # Making a batch costs as much as the rest of the loop: one is made, its tokens change.
        held = (llama_cpp.llama_token * min(n_batch, len(tokens)))()
        batch = llama_cpp.llama_batch_get_one(held, len(held))
        for start in range(0, len(tokens), n_batch):
            part: list[Any] = tokens[start : start + n_batch]
            began = clock()
            batch.n_tokens = len(part)
            held[: len(part)] = part
            status = decode(context, batch)
            synchronize(context)
            if sampler and not status:
                sampler.sample(context)
            if self._slow_by:
                linger(began, self._slow_by)
            steps.append(clock() - began)
            if status != 0:
                where = f"at token {start} of {len(tokens)}"
                raise compat.refused(status, where, self._log.complaint())
        return steps

    def _new_context(
        self,
        n_ctx: int,
        n_batch: int,
        n_outputs: int | None,
        n_sequences: int = 1,
        pooling: int | None = None,
    ) -> tuple[Any, Facts]:
        """A context for so many sequences, and the settings that it resolved to.

        In a batch, `n_outputs` positions may have logits: 0 is all of them, None one. With a
        pooling it returns vectors, and a whole batch is a physical one.
        """
        require_context(n_ctx // n_sequences, self.facts)
        settings = self._settings
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_seq_max = n_sequences
        params.n_batch = n_batch
        # A call of more tokens than requested has physical batches of no more.
        most = max(self._n_batch, n_outputs or 0)
        params.n_ubatch = min(settings.get("n_ubatch", 512), n_batch, most)
        if pooling is not None:
            params.n_ubatch = n_batch
            compat.set_pooling(params, pooling)
        params.n_threads = params.n_threads_batch = self._threads
        compat.set_flash_attention(params, settings.get("flash_attn"))
        params.type_k = GGML_TYPES[settings.get("type_k", "f16")]
        params.type_v = GGML_TYPES[settings.get("type_v", "f16")]
        params.no_perf = True
        if n_outputs is not None:
            compat.set_outputs(params, n_outputs)
        # Models are scored in alternation, and one's log must not be read as another's.
        with self._log.held:
            self._log.clear()
            context = llama_cpp.llama_init_from_model(self._model, params)
            if not context:
                raise RefusalError("context", self._log.complaint())
            weights_mib = self.facts["buffers_mib"]
            return context, _resolved(context, self._log, settings, weights_mib)

    def stepper(self, n_ctx: int, max_outputs: int, rollback: str) -> LlamaCppStepper:
        """Open a context of its own that can be stepped and rolled back."""
        # A batch that is verified is decoded at once, however small the batches of prompts are.
        shape = n_ctx, max(self._n_batch, max_outputs), max_outputs
        context, facts = self._new_context(*shape)
        before = self.remote.work_so_far() if self.remote else None
        stepper = LlamaCppStepper(
            self._model,
            context,
            facts,
            max_outputs=max_outputs,
            rollback=rollback,
            complaint=self._log.complaint,
            prefixes=self._prefixes,
            key=(*self._key, shape),
        )
        if self.remote and before:
            # It has decoded tokens, to see how it is rolled back.
            self.remote.require_work(before, 1, self._n_vocab)
        return stepper

    def _close_context(self) -> None:
        if self._context:
            llama_cpp.llama_free(self._context)
        self._context, self._open_for, self._resident = None, None, []
        self._encoder.close()


def _multiple(n: int, of: int) -> int:
    """So many or a little more: llama.cpp 0.3.36 aborts unless a batch has as many per sequence."""
    return -(-n // of) * of


def _model_facts(model: Any, vocab: Any, lines: Sequence[str]) -> Facts:
    """The facts of a loaded model; of its layers and buffers by the log of the load."""
    description = ctypes.create_string_buffer(_MAX_TEXT)
    llama_cpp.llama_model_desc(model, description, _MAX_TEXT)
    return {
        "description": description.value.decode(errors="replace"),
        "n_params": llama_cpp.llama_model_n_params(model),
        "size_bytes": llama_cpp.llama_model_size(model),
        "n_vocab": llama_cpp.llama_vocab_n_tokens(vocab),
        "n_ctx_train": llama_cpp.llama_model_n_ctx_train(model),
        "add_bos": bool(llama_cpp.llama_vocab_get_add_bos(vocab)),
        "recurrent": bool(llama_cpp.llama_model_is_recurrent(model)),
        **layer_counts(lines, llama_cpp.llama_model_n_layer(model)),
        "buffers_mib": buffers_mib(lines),
    }


def _resolved(context: Any, log: LibraryLog, settings: Facts, weights_mib: Facts) -> Facts:
    """The settings that a context resolved to; the log is still about it."""
    return {
        "n_ctx": llama_cpp.llama_n_ctx(context),
        "n_batch": llama_cpp.llama_n_batch(context),
        "n_ubatch": llama_cpp.llama_n_ubatch(context),
        "threads": llama_cpp.llama_n_threads(context),
        # A memory without a KV cache is not searched for these lines.
        **context_facts(log.lines, settings, weights_mib),
    }


class ChunkContexts:
    """The context whose logits are read, and with look-ahead that of the next chunk."""

    def __init__(
        self, new_context: Callable[[int], tuple[Any, Facts]], bos: int | None, log: LibraryLog
    ) -> None:
        self._new_context = new_context
        self._bos = bos
        self._log = log
        self.facts: Facts = {}  #: the contexts' resolved settings
        self._n_ctx = 0
        self._contexts: list[Any] = []
        self._ahead: tuple[list[int], int] | None = None

    def read(self, tokens: Sequence[int], first: int) -> Any:
        """A context that has decoded a chunk; the last call's result may be overwritten."""
        if self._ahead == ([*tokens], first):
            self._contexts.reverse()
        else:
            if self._n_ctx != len(tokens):
                self.close()
                self._n_ctx = len(tokens)
            self._fill(0, tokens, first)
        self._ahead = None
        return self._contexts[0]

    def look_ahead(self, tokens: Sequence[int], first: int) -> None:
        """Decode a chunk while another one is read, if it is of the same size."""
        if len(tokens) == self._n_ctx:
            self._ahead = None
            self._fill(1, tokens, first)
            self._ahead = [*tokens], first

    def _fill(self, index: int, tokens: Sequence[int], first: int) -> None:
        if index == len(self._contexts):
            context, self.facts = self._new_context(len(tokens))
            self._contexts.append(context)
        context = self._contexts[index]
        compat.empty(context)
        begin = tokens[0] if self._bos is None else self._bos
        if status := decode_chunk(context, [begin, *tokens[1:]], range(first, len(tokens))):
            where = f"for a chunk of {len(tokens)} tokens"
            raise compat.refused(status, where, self._log.complaint())

    def close(self) -> None:
        """Free both."""
        self._n_ctx, self._ahead = 0, None
        while self._contexts:
            llama_cpp.llama_free(self._contexts.pop())


class ContextLeftByRun:
    """A context as a timed run left it."""

    def __init__(
        self,
        context: Any,
        tokens: Sequence[int],
        row: NDArray[np.float32],
        decode: Callable[[list[int]], Any],
    ) -> None:
        self._context = context
        self._tokens = tokens
        self._row = row
        self._decode = decode
        self._memory = llama_cpp.llama_get_memory(context)
        #: tokens up to the last position in the memory
        self.n_held: int | None = llama_cpp.llama_memory_seq_pos_max(self._memory, 0) + 1

    def row(self, position: int) -> NDArray[np.float32] | None:
        """The logits of a position; None if the memory cannot drop its end."""
        if position == len(self._tokens) - 1:
            return self._row
        if not llama_cpp.llama_memory_seq_rm(self._memory, 0, position, -1):
            return None
        self._decode([self._tokens[position]])
        row: NDArray[np.float32] = rows_of(self._context, -1, self._row.size)[0]
        return row
