"""MLX through mlx-lm: a folder in Hugging Face or MLX format, on the default device.

The loops are those of mlx-lm's own `generate_step`: prompts in pieces of 2,048, a cache evaluated
after each; generation with one step in flight while the next is prepared; the allocator's cache
cleared as often. A quantised KV cache is quantised from the first token on, where `generate_step`
has its first piece in floating point first: what is scored is then what the bits cost. What is
evaluated lazily is evaluated inside the clock.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

# Before mlx-lm is imported, which reads it: what a worker is given is on this machine.
os.environ["HF_HUB_OFFLINE"] = "1"

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.generate import wired_limit
from mlx_lm.models.cache import (
    QuantizedKVCache,
    can_trim_prompt_cache,
    make_prompt_cache,
    trim_prompt_cache,
)
from mlx_lm.utils import get_total_parameters, load_model

from . import mlx_compat as compat
from .engine import Facts, LogitRow, RefusalError, Timing
from .logits import seen
from .mlx_speculation import MlxStepper
from .pace import linger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

#: The settings that MLX has, of those that engines can be asked for.
_SETTINGS: Final = frozenset({"kv_bits", "kv_group_size", "n_batch", "slow_by"})
#: `prefill_step_size` of mlx-lm.
_PREFILL_STEP: Final = 2048
#: `kv_group_size` of mlx-lm.
_KV_GROUP_SIZE: Final = 64
#: Tokens after which mlx-lm clears the allocator's cache.
_CLEAR_EVERY: Final = 256
#: A model whose configuration names no context.
_CONTEXT_UNSTATED: Final = 2**20
#: What a folder made here says in its configuration of how a text begins: a token, or null.
_BOS_KEY: Final = "asperf_bos"
_MAX_HASHED_BYTES: Final = 256 * 2**20
_MAX_TEXT: Final = 600

_TYPE_NAMES: Final = {mx.float32: "f32", mx.float16: "f16", mx.bfloat16: "bf16"}


def open_engine() -> MlxEngine:
    """Return the engine; the worker's entry point."""
    return MlxEngine()


@contextmanager
def _refusing(kind: str) -> Iterator[None]:
    """Turn what mlx and mlx-lm raise into a refusal with their own words."""
    try:
        yield
    except RefusalError:
        raise
    # They raise ValueError, KeyError, TypeError, RuntimeError and OSError alike for a bad model.
    except Exception as err:
        text = f"{type(err).__name__}: {err}"[:_MAX_TEXT]
        is_memory = isinstance(err, RuntimeError) and "alloc" in text
        raise RefusalError("memory" if is_memory else kind, text) from err


def _seen(row: Any) -> LogitRow:
    with _refusing("decode"):
        return seen(np.array(row.astype(mx.float32)))


def _has_gpu() -> bool:
    return bool(mx.default_device() == mx.Device(mx.gpu))


def _device_info() -> Facts:
    known = compat.device_info()
    return {str(key): value for key, value in known.items() if isinstance(value, (str, int))}


def _devices() -> list[Facts]:
    info = _device_info()
    total = info.get("memory_size")
    room = info.get("max_recommended_working_set_size", total)
    return [
        {
            "name": "GPU" if _has_gpu() else "CPU",
            "description": str(info.get("device_name", info.get("architecture", "unknown"))),
            "type": "GPU" if _has_gpu() else "CPU",
            "memory_free_bytes": None if room is None else max(0, room - mx.get_active_memory()),
            "memory_total_bytes": total,
        }
    ]


def _library_sha256() -> str:
    """Return one hash over mlx's native code and mlx-lm's sources: either decides what runs."""
    core = Path(mx.__file__).parent
    native = [Path(mx.__file__), *core.glob("lib/*.so*"), *core.glob("lib/*.dylib")]
    native += core.glob("lib/*.metallib")
    digest = hashlib.sha256()
    for path in sorted({*native, *Path(mlx_lm.__file__).parent.rglob("*.py")}):
        digest.update(path.name.encode())
        size = path.stat().st_size
        digest.update(path.read_bytes() if size <= _MAX_HASHED_BYTES else str(size).encode())
    return digest.hexdigest()


def _find_bos(folder: Path, tokenizer: Any, config: Mapping[str, Any]) -> int | None:
    """Return BOS where a text begins with it.

    A tokenizer says so by beginning with it. Of a folder that configures no tokenizer, a text is
    taken to begin with the model's own BOS, as it is where a GGUF file is made of the folder.
    """
    if _BOS_KEY in config:
        kept: int | None = config[_BOS_KEY]
        return kept
    known = tokenizer.bos_token_id
    if known is not None and list(tokenizer.encode("a"))[:1] == [known]:
        return int(known)
    stated = config.get("bos_token_id")
    is_silent = not (folder / "tokenizer_config.json").exists()
    return stated if is_silent and type(stated) is int else None


class MlxEngine:
    """The engine: one library, any number of models."""

    def __init__(self) -> None:
        # A thread that computes gets a stream of its own, with a thread behind it, which MLX keeps
        # for good: all scoring is done on this one, whoever asks. Two at a time would take 0.57 of
        # the time on two cores, and in mlx 0.29 give wrong numbers.
        self._scorer = ThreadPoolExecutor(1)

    def describe(self) -> Facts:
        """Return the versions, the device, and a hash of what runs."""
        return {
            "engine": "mlx",
            "library": "mlx-lm",
            "version": mlx_lm.__version__,
            "mlx_version": mx.__version__,
            "library_path": str(Path(mlx_lm.__file__).parent),
            "library_sha256": _library_sha256(),
            "metal": bool(mx.metal.is_available()),
            "default_device": str(mx.default_device()),
            "device_info": _device_info(),
            "devices": _devices(),
            # A stream's work runs on one thread; MLX has no setting for it.
            "default_threads": 1,
        }

    def load(self, path: str, settings: dict[str, Any]) -> MlxModel:
        """Load a model's folder."""
        if unknown := sorted(set(settings) - _SETTINGS):
            raise RefusalError(
                "settings",
                f"MLX has no {', '.join(unknown)}; of the engine settings it has "
                f"{', '.join(sorted(_SETTINGS))}; kv_bits, such as 8, quantises the KV cache",
            )
        if "kv_group_size" in settings and "kv_bits" not in settings:
            raise RefusalError("kv-cache", "kv_group_size without kv_bits quantises nothing")
        if not Path(path).is_dir():
            raise RefusalError("load", f"{path} is not a folder, and nothing is downloaded")
        with _refusing("load"):
            return MlxModel(Path(path), settings, self._scorer)

    def quantize(self, source: str, target: str, recipe: dict[str, Any]) -> None:
        """Write a model's folder at another level with mlx-lm's own conversion.

        Args:
            source: the folder.
            target: the folder to write; it does not exist.
            recipe: `dtype`, or `bits`, `group_size` and `mode`.
        """
        if dtype := recipe.get("dtype"):
            asked: dict[str, Any] = {"dtype": dtype}
        else:
            asked = {
                "quantize": True,
                "q_bits": recipe["bits"],
                "q_group_size": recipe["group_size"],
                "q_mode": recipe["mode"],
            }
        with _refusing("quantize"):
            mlx_lm.convert(source, target, **asked)
            # The folder that mlx-lm writes configures a tokenizer, where the source may have none.
            config = json.loads((Path(source) / "config.json").read_text("utf-8"))
            bos = _find_bos(Path(source), compat.load_tokenizer(Path(source)), config)
            made = Path(target) / "config.json"
            content = json.loads(made.read_text("utf-8")) | {_BOS_KEY: bos}
            made.write_text(json.dumps(content, indent=4, sort_keys=True), "utf-8")


class MlxModel:
    """A loaded model, with one cache that is reused where a request begins as the last one did."""

    def __init__(self, folder: Path, settings: dict[str, Any], scorer: Executor) -> None:
        self._scorer = scorer
        self._slow_by = settings.get("slow_by", 0.0)
        self._n_batch = settings.get("n_batch", _PREFILL_STEP)
        self._kv_bits: int | None = settings.get("kv_bits")
        self._kv_group_size: int = settings.get("kv_group_size", _KV_GROUP_SIZE)
        self._resident: list[int] = []
        self._cache: list[Any] | None = None
        mx.reset_peak_memory()
        started_ns = time.perf_counter_ns()
        self._model, self._config = load_model(folder)
        self._stored_type = self._floating_type()
        if not _has_gpu():
            self._widen()
        load_ns = time.perf_counter_ns() - started_ns
        self._tokenizer = compat.load_tokenizer(folder)
        self._bos = _find_bos(folder, self._tokenizer, self._config)
        self._dtype = self._floating_type()
        self._size_bytes = sum(v.nbytes for _, v in tree_flatten(self._model.parameters()))
        self._try_cache()
        self.facts = self._describe(load_ns)
        self.context: Facts = {}

    def _describe(self, load_ns: int) -> Facts:
        size = self._size_bytes
        scheme = self._config.get("quantization") or {}
        quantisation = {key: scheme[key] for key in ("bits", "group_size", "mode") if key in scheme}
        coded = "{bits} bits in groups of {group_size}" if quantisation else "{dtype}"
        n_layers = len(self._model.layers)
        dtype, stored = (_TYPE_NAMES.get(one, str(one)) for one in (self._dtype, self._stored_type))
        kind = str(self._config.get("model_type", "unknown"))[:60]
        return {
            "description": f"{kind} " + coded.format(dtype=stored, **quantisation),
            "n_params": int(get_total_parameters(self._model)),
            "size_bytes": size,
            "n_vocab": self._number("vocab_size", default=len(self._tokenizer.get_vocab())),
            "n_layers": n_layers,
            "n_ctx_train": self._number("max_position_embeddings", default=_CONTEXT_UNSTATED),
            "add_bos": self._bos is not None,
            "recurrent": not can_trim_prompt_cache(make_prompt_cache(self._model)),
            "layers_offloaded": n_layers if _has_gpu() else 0,
            "buffers_mib": {"model": {"GPU" if _has_gpu() else "CPU": round(size / 2**20, 2)}},
            "dtype": dtype,
            "quantization": quantisation,
            "threads": 1,
            "slow_by": self._slow_by,
            "load_ns": load_ns,
        }

    def _number(self, key: str, *, default: int) -> int:
        text = self._config.get("text_config")
        value = (text if isinstance(text, dict) else self._config).get(key, self._config.get(key))
        return value if type(value) is int and value > 0 else default

    def _widen(self) -> None:
        """Compute in float32: the same weights, and a CPU has no arithmetic for less.

        Half precision is emulated there, number by number: a quantised step of the shipped target
        took 250 ms in float16 and 6 ms in float32.
        """
        self._model.set_dtype(mx.float32)
        mx.eval(self._model.parameters())

    def _floating_type(self) -> Any:
        """Return the type that is computed in: that of the parameters which are not packed."""
        types = [v.dtype for _, v in tree_flatten(self._model.parameters())]
        floating = [dtype for dtype in types if dtype in _TYPE_NAMES]
        return max(set(floating), key=floating.count) if floating else types[0]

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text, BOS first where it begins with one."""
        with _refusing("tokenize"):
            ids = [int(i) for i in self._tokenizer.encode(text, add_special_tokens=False)]
        return ids if self._bos is None else [self._bos, *ids]

    def prompt(self, tokens: Sequence[int], depth: int) -> Timing:
        """Decode a prompt in batches, timed, its cache evaluated after each."""
        with self._running(tokens, depth) as cache:
            began_ns = time.perf_counter_ns()
            steps = self._prefill(tokens[depth:], cache)
            timing = self._timing(len(tokens) - depth, began_ns, steps)
        return replace(timing, logits=_seen(self._last_row(cache)))

    def generate(self, tokens: Sequence[int], depth: int) -> Timing:
        """Decode tokens one at a time, timed, one step in flight while the next is prepared."""
        clock = time.perf_counter_ns
        with self._running(tokens, depth) as cache:
            steps: list[int] = []
            began_ns = last_ns = clock()
            pending = row = None
            for count, token in enumerate(tokens[depth:]):
                chosen, row = self._step(token, cache)
                mx.async_eval(chosen)
                if pending is not None:
                    pending.item()
                    last_ns, previous_ns = clock(), last_ns
                    steps.append(last_ns - previous_ns)
                if count % _CLEAR_EVERY == 0:
                    mx.clear_cache()
                pending = chosen
            if pending is not None:
                pending.item()
                steps.append(clock() - last_ns)
            timing = self._timing(len(tokens) - depth, began_ns, steps)
        return replace(timing, logits=_seen(row))

    def first_token(self, tokens: Sequence[int]) -> Timing:
        """Decode a prompt and choose the likeliest next token, both timed."""
        with self._running(tokens, 0) as cache:
            began_ns = time.perf_counter_ns()
            steps = self._prefill(tokens[:-1], cache)
            step_ns = time.perf_counter_ns()
            chosen, row = self._step(tokens[-1], cache)
            chosen.item()
            steps.append(time.perf_counter_ns() - step_ns)
            timing = self._timing(len(tokens), began_ns, steps)
        return replace(timing, logits=_seen(row))

    def logits(self, tokens: Sequence[int], first: int) -> NDArray[np.float32]:
        """Return logits from position `first` of a fresh context, shape (n - first, n_vocab)."""
        self._require_context(len(tokens))
        ids = list(tokens)
        if self._bos is not None:
            ids[0] = self._bos
        with _refusing("decode"):
            return self._scorer.submit(self._evaluated, ids, first).result()

    def _evaluated(self, ids: list[int], first: int) -> NDArray[np.float32]:
        mx.reset_peak_memory()
        cache = self._new_cache()
        pieces = []
        for start in range(0, len(ids), self._n_batch):
            rows = self._model(mx.array([ids[start : start + self._n_batch]]), cache=cache)[0]
            pieces.append(rows[max(0, first - start) :].astype(mx.float32))
            mx.eval(pieces[-1], [layer.state for layer in cache])
        found = pieces[0] if len(pieces) == 1 else mx.concatenate(pieces)
        mx.eval(found)
        self._note_context(len(ids), cache)
        return np.array(found, copy=False)

    def stepper(self, n_ctx: int, most: int, rollback: str) -> MlxStepper:
        """Open a cache of its own that can be stepped and rolled back."""
        self._require_context(n_ctx)
        with _refusing("decode"):
            context = self._context_facts(n_ctx, self._new_cache())
            return MlxStepper(self._model, context, self._new_cache, most=most, rollback=rollback)

    def close(self) -> None:
        """Free the model."""
        del self._model
        self._cache, self._resident = None, []
        mx.clear_cache()

    def _new_cache(self) -> list[Any]:
        cache: list[Any] = make_prompt_cache(self._model)
        if self._kv_bits is not None:
            # A layer without keys and values, such as a recurrent one, has nothing to quantise.
            compat.quantize_cache(cache, self._kv_group_size, self._kv_bits)
        return cache

    def _try_cache(self) -> None:
        """Refuse a quantised cache that this model cannot have, before anything is measured."""
        if self._kv_bits is None:
            return
        what = f"kv_bits {self._kv_bits}, kv_group_size {self._kv_group_size}"
        try:
            cache = self._new_cache()
            mx.eval(self._model(mx.array([[0]]), cache=cache))
        except Exception as err:  # whatever a model's own cache makes of it
            text = f"{what}: {type(err).__name__}: {err}"[:_MAX_TEXT]
            raise RefusalError("kv-cache", text) from err
        if not any(isinstance(layer, QuantizedKVCache) for layer in cache):
            raise RefusalError("kv-cache", f"{what}: none of the model's layers can have it")

    def _step(self, token: int, cache: list[Any]) -> tuple[Any, Any]:
        """Return the likeliest token after one more, and the logits that say so."""
        row = self._model(mx.array([[token]]), cache=cache)[0, -1]
        return mx.argmax(row), row

    def _last_row(self, cache: list[Any]) -> Any:
        """Return logits after the last token in the cache: those of a prompt are not computed."""
        last = self._resident[-1]
        with _refusing("decode"), wired_limit(self._model):
            if can_trim_prompt_cache(cache):
                trim_prompt_cache(cache, 1)
            else:
                self._resident.append(last)  # what cannot forget it has it twice
            return self._step(last, cache)[1]

    def _prefill(self, tokens: Sequence[int], cache: list[Any]) -> list[int]:
        steps: list[int] = []
        for start in range(0, len(tokens), self._n_batch):
            began_ns = time.perf_counter_ns()
            self._model(mx.array([list(tokens[start : start + self._n_batch])]), cache=cache)
            mx.eval([layer.state for layer in cache])
            mx.clear_cache()
            steps.append(time.perf_counter_ns() - began_ns)
        return steps

    @contextmanager
    def _running(self, tokens: Sequence[int], depth: int) -> Iterator[list[Any]]:
        """Have exactly `tokens[:depth]` in the cache; afterwards, note what is in it."""
        self._require_context(len(tokens))
        mx.reset_peak_memory()
        with _refusing("decode"), wired_limit(self._model):
            cache = self._cache_of(list(tokens[:depth]))
            self._resident = []
            mx.synchronize()
            yield cache
            self._cache, self._resident = cache, list(tokens)
        self._note_context(len(tokens), cache)

    def _cache_of(self, prefix: list[int]) -> list[Any]:
        kept = len(prefix)
        if self._cache is not None and kept and self._resident[:kept] == prefix:
            excess = len(self._resident) - kept
            # A recurrent or a rotating cache cannot forget its tail; it then starts again.
            if not excess or can_trim_prompt_cache(self._cache):
                trim_prompt_cache(self._cache, excess)
                return self._cache
        self._cache = None
        cache = self._new_cache()
        self._prefill(prefix, cache)
        return cache

    def _timing(self, n_tokens: int, began_ns: int, steps: list[int]) -> Timing:
        if self._slow_by:
            # After the run, not within: a step that is in flight would go on meanwhile.
            lingering_ns = time.perf_counter_ns()
            linger(began_ns, self._slow_by)
            steps[-1] += time.perf_counter_ns() - lingering_ns
        return Timing(n_tokens, time.perf_counter_ns() - began_ns, tuple(steps), None)

    def _require_context(self, n_ctx: int) -> None:
        if n_ctx > self.facts["n_ctx_train"]:
            raise RefusalError(
                "context",
                f"{n_ctx} tokens were asked for, "
                f"the model was trained on {self.facts['n_ctx_train']}",
            )

    def _context_facts(self, n_ctx: int, cache: list[Any]) -> Facts:
        kv_type = self._kv_type(cache)
        return {
            "n_ctx": n_ctx,
            "n_batch": self._n_batch,
            "type_k": kv_type,
            "type_v": kv_type,
            # mx.fast.scaled_dot_product_attention decides by device and shape, and does not say.
            "flash_attn": "the engine's own",
            "threads": 1,
        }

    def _note_context(self, n_ctx: int, cache: list[Any]) -> None:
        """Note what a run that is over resolved to, and what MLX held for it.

        These are MLX's own allocations: what a GPU holds is not in the process's resident memory.
        """
        peak = int(mx.get_peak_memory())
        self.context = {
            **self._context_facts(n_ctx, cache),
            "peak_memory_bytes": peak,
            "memory_bytes": {
                "weights": self._size_bytes,
                "kv": compat.cache_nbytes(cache),
                # What was there for a while only, of whatever is loaded beside this model.
                "compute": max(0, peak - int(mx.get_active_memory())),
            },
        }

    def _kv_type(self, cache: list[Any]) -> str:
        """Return the type of K and V in the name of a level; unquantised, what is computed in."""
        quantised = [layer for layer in cache if isinstance(layer, QuantizedKVCache)]
        if not quantised:
            return str(self.facts["dtype"])
        group_size = quantised[0].group_size
        group = "" if group_size == _KV_GROUP_SIZE else f"-g{group_size}"
        return f"{quantised[0].bits}bit{group}"
