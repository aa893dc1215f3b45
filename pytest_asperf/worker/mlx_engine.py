"""MLX through mlx-lm: a folder in Hugging Face or MLX format, on the default device.

The loops are those of mlx-lm's own `generate_step`: prompts in pieces of 2,048, a cache evaluated
after each; generation with one step in flight while the next is prepared; the allocator's cache
cleared as often. A quantized KV cache is quantized from the first token on, while `generate_step`
processes its first piece in floating point: so the score shows the cost of the bits. Lazy values
are evaluated inside the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from . import mlx_compat as compat
from .engine import (
    Facts,
    LoadedModel,
    LogitRow,
    RefusalError,
    Timing,
    files_sha256,
    require_context,
    require_settings,
)
from .logits import flattened, likeliest_share, seen
from .mlx_batch import replies_in_batch
from .mlx_cache import CacheLeftByRun, Mark, MlxCaches, arrays_of, computed_type, kv_types
from .mlx_compat import (
    TYPE_NAMES,
    device_facts,
    devices,
    floating_type,
    has_gpu,
    library_files,
    refusing,
)
from .mlx_conversation import MlxConversation
from .mlx_group import MlxGroup
from .mlx_lm_library import mlx_lm, mlx_lm_cache, mlx_lm_generate
from .mlx_speculation import MlxStepper
from .mlx_tokenizer import MlxTokenizer, own_tokenizer
from .priority import linger
from .sampling import DRAWN, MIN_P, TEMPERATURE, TOP_K_OFF, TOP_P, Variety

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The settings that MLX has, of all engine settings.
_SETTINGS: Final = frozenset({"kv_bits", "kv_group_size", "n_batch", "processes", "slow_by"})
#: `prefill_step_size` of mlx-lm.
_PREFILL_STEP: Final = 2048
#: Tokens after which mlx-lm clears the allocator's cache.
_CLEAR_EVERY: Final = 256
#: For a model whose configuration names no context.
_CONTEXT_UNSTATED: Final = 2**20


def _seen(row: Any) -> LogitRow:
    with refusing("decode"):
        return seen(np.array(row.astype(mx.float32)))


def _sampler() -> Callable[[Any], Any]:
    """Samples a token of the whole vocabulary by a row of logits."""
    sampler = mlx_lm.sample_utils.make_sampler(TEMPERATURE, TOP_P, MIN_P)
    return lambda row: sampler((row - mx.logsumexp(row))[None])


def _require_varied(choose: Callable[[Any], Any], row: Any) -> None:
    """Reject a sampler that always chooses the likeliest token, by a row that is made flat."""
    logits = flattened(np.array(row.astype(mx.float32)))
    variety, share, likeliest = Variety(), likeliest_share(logits), int(logits.argmax())
    for _ in range(DRAWN):
        variety.add(share, is_likeliest=choose(mx.array(logits)).item() == likeliest)


class MlxEngine:
    """The engine: one library, any number of models; arguments as of an `MlxGroup`."""

    def __init__(self, rank: str = "0", hosts: str = "") -> None:
        self.group = MlxGroup(rank, hosts)
        # A thread that computes gets a stream of its own, with a thread behind it, which MLX keeps
        # for good: all scoring is done on this one, for every caller. Two at a time would need 0.57
        # of the time on two cores, and return wrong numbers in mlx 0.29.
        self._scorer = ThreadPoolExecutor(1)
        self._goes_back = False

    def describe(self) -> Facts:
        """Versions, the device, and a hash of the libraries."""
        return {
            "engine": "mlx",
            "library": "mlx-lm",
            "version": mlx_lm.__version__,
            "mlx_version": mx.__version__,
            "library_path": str(Path(str(mlx_lm.__file__)).parent),
            "library_sha256": files_sha256(library_files()),
            "metal_is_available": bool(mx.metal.is_available()),
            "default_device": str(mx.default_device()),
            "device_info": device_facts(),
            "devices": devices(),
            # A stream's work runs on one thread; MLX has no setting for it.
            "default_threads": 1,
        }

    def share(self, folder: str) -> None:
        """Keep marks in caches, whose memory counts in no comparison of times."""
        del folder
        self._goes_back = True

    def load(self, path: str, settings: dict[str, Any]) -> LoadedModel:
        """Load a model's folder."""
        hint = "kv_bits, such as 8, quantizes the KV cache"
        require_settings(settings, _SETTINGS, "MLX", hint)
        if "kv_group_size" in settings and "kv_bits" not in settings:
            raise RefusalError("kv-cache", "kv_group_size without kv_bits quantizes nothing")
        if not Path(path).is_dir():
            raise RefusalError("load", f"{path} is not a folder, and nothing is downloaded")
        processes = settings.get("processes", 1)
        with refusing("load"):
            group = self.group.join(processes) if processes > 1 else None
            model = MlxModel(Path(path), settings, self._scorer, group)
        # Other processes of the model fill their caches as this one does, without marks.
        model.goes_back = self._goes_back and group is None
        return model

    def quantize(self, source: str, target: str, recipe: dict[str, Any]) -> None:
        """Write a model's folder at another quantization, with mlx-lm's own conversion."""
        if "dtype" in recipe:
            conversion = {"dtype": recipe["dtype"]}
        else:
            names = ("bits", "group_size", "mode")
            conversion = {"quantize": True, **{f"q_{name}": recipe[name] for name in names}}
        with refusing("quantize"), own_tokenizer(Path(source)):
            mlx_lm.convert(source, target, **conversion)


class MlxModel(LoadedModel):
    """A loaded model, with one cache that is reused where a request begins as the last one did."""

    samples = (TOP_K_OFF,)
    #: True if a cache that cannot drop its end keeps the place from which a text went on.
    goes_back = False

    def __init__(
        self, folder: Path, settings: dict[str, Any], scorer: Executor, group: Any = None
    ) -> None:
        self._scorer = scorer
        self._slow_by = settings.get("slow_by", 0.0)
        self._n_batch = settings.get("n_batch", _PREFILL_STEP)
        self._resident: list[int] = []
        self._chosen: list[int] = []
        self._mark: Mark | None = None
        self._cache: list[Any] | None = None
        self._row: Any = None
        self._is_varied = False
        mx.reset_peak_memory()
        started_ns = time.perf_counter_ns()
        self._model, self._config = mlx_lm.utils.load_model(folder)
        self._stored_type = floating_type(self._model)
        if not has_gpu() and (self._config.get("quantization") or _has_experts(self._model)):
            _widen(self._model)
        self._tokenizer = MlxTokenizer(folder, self._config)
        linger(started_ns, self._slow_by)
        load_ns = time.perf_counter_ns() - started_ns
        self._dtype = computed_type(self._model)
        self._size_bytes = sum(v.nbytes for _, v in tree_flatten(self._model.parameters()))
        self._n_params = int(mlx_lm.utils.get_total_parameters(self._model))
        self._threads = group.size() if group else 1  # one for each process
        if group:
            _share(self._model, self._config, group)
        self._caches = MlxCaches(self._model, settings)
        self.facts = self._describe(load_ns)
        self.context: Facts = {}

    def _describe(self, load_ns: int) -> Facts:
        size = self._size_bytes
        scheme = self._config.get("quantization") or {}
        quantisation = {key: scheme[key] for key in ("bits", "group_size", "mode") if key in scheme}
        coded = "{bits} bits in groups of {group_size}" if quantisation else "{dtype}"
        n_layers = len(self._model.layers)
        dtype, stored = (
            TYPE_NAMES.get(kind, str(kind)) for kind in (self._dtype, self._stored_type)
        )
        kind = str(self._config.get("model_type", "unknown"))[:60]
        return {
            "description": f"{kind} " + coded.format(dtype=stored, **quantisation),
            "n_params": self._n_params,
            "size_bytes": size,
            "n_vocab": _config_number(self._config, "vocab_size", default=0)
            or self._tokenizer.n_vocab,
            "n_layers": n_layers,
            "n_ctx_train": _config_number(
                self._config, "max_position_embeddings", default=_CONTEXT_UNSTATED
            ),
            "add_bos": None,  # the tokenizer has it, whose import can take longer than a run
            "recurrent": not mlx_lm_cache.can_trim_prompt_cache(
                mlx_lm_cache.make_prompt_cache(self._model)
            ),
            "layers_offloaded": n_layers + 1 if has_gpu() else 0,
            "buffers_mib": {"model": {"GPU" if has_gpu() else "CPU": round(size / 2**20, 2)}},
            "dtype": dtype,
            "quantization": quantisation,
            "own_mib": sum(v.nbytes for _, v in tree_flatten(self._model.parameters())) / 2**20,
            "threads": self._threads,
            "slow_by": self._slow_by,
            "load_ns": load_ns,
        }

    def tokenize(self, text: str) -> list[int]:
        """The ids of a text, BOS first if it begins with one."""
        return self._tokenizer.ids(text)

    def prompt(self, tokens: Sequence[int], depth: int, _n_ctx: int) -> Timing:
        """Decode a prompt in batches, timed, its cache evaluated after each."""
        with self._running(tokens, depth) as cache:
            began_ns = time.perf_counter_ns()
            steps = self._prefill(tokens[depth:], cache)
            timing = _timing(self._slow_by, len(tokens) - depth, began_ns, steps)
        self._row = self._last_row(cache)
        return replace(timing, logits=_seen(self._row))

    def generate(self, tokens: Sequence[int], depth: int, n_ctx: int, sampled: str = "") -> Timing:
        """Decode tokens one at a time, timed, one step in flight while the next is prepared."""
        choose = _sampler() if sampled else mx.argmax
        clock = time.perf_counter_ns
        with self._running(tokens, depth) as cache:
            steps: list[int] = []
            likeliest: list[int] = []
            began_ns = last_ns = clock()
            pending = row = None
            for count, token in enumerate(tokens[depth:]):
                row = self._next_row(token, cache)
                chosen = choose(row)
                mx.async_eval(chosen)
                if pending is not None:
                    likeliest.append(pending.item())
                    last_ns, previous_ns = clock(), last_ns
                    steps.append(last_ns - previous_ns)
                if count % _CLEAR_EVERY == 0:
                    mx.clear_cache()
                pending = chosen
            if pending is not None:
                likeliest.append(pending.item())
                steps.append(clock() - last_ns)
            self._row, self._chosen = row, [] if sampled else likeliest
            timing = _timing(self._slow_by, len(tokens) - depth, began_ns, steps)
        if sampled and not self._is_varied:
            _require_varied(choose, row)
            self._is_varied = True
        self.context["n_ctx"] = n_ctx
        return replace(timing, logits=_seen(self._row))

    def first_token(self, tokens: Sequence[int], n_ctx: int) -> Timing:  # noqa: ARG002  # it grows
        """Decode a prompt and choose the likeliest next token, both timed."""
        with self._running(tokens, 0) as cache:
            began_ns = time.perf_counter_ns()
            steps = self._prefill(tokens[:-1], cache)
            step_ns = time.perf_counter_ns()
            self._row = self._next_row(tokens[-1], cache)
            mx.argmax(self._row).item()
            steps.append(time.perf_counter_ns() - step_ns)
            timing = _timing(self._slow_by, len(tokens), began_ns, steps)
        return replace(timing, logits=_seen(self._row))

    def left_by_run(self) -> CacheLeftByRun:
        """The cache as the last timed run left it; the next run fills a new one."""
        cache, self._cache = self._cache or [], None
        return CacheLeftByRun(self._model, cache, self._resident, self._row, self._chosen)

    def recompute(
        self, tokens: Sequence[int], positions: Sequence[int]
    ) -> Iterator[NDArray[np.float32]]:
        """The logits of ascending positions of a text, with a new cache."""
        return self._caches.rows_of(tokens, positions, self.facts["n_vocab"])

    def among_users(
        self, asked: Sequence[tuple[Sequence[int], int]], users: int
    ) -> tuple[list[list[NDArray[np.float32]]], list[list[NDArray[np.float32]]]]:
        """The rows of each user's reply in mlx-lm's batches, and of the same tokens alone."""
        if self._caches.are_quantized:
            raise RefusalError("unsupported", "mlx-lm has no batches with a quantized KV cache")
        longest = max(len(prompt) + n_new for prompt, n_new in asked)
        require_context(longest, self.facts)
        with mlx_lm_generate.wired_limit(self._model):
            tokens, among = replies_in_batch(self._model, asked, users, self._n_batch)
        alone = []
        for (prompt, n_new), reply in zip(asked, tokens, strict=True):
            first = len(prompt) - 1
            text = [*prompt, *reply]
            alone.append(list(self.recompute(text, range(first, first + n_new))))
        self._note_context(longest, self._caches.new())
        return among, alone

    @contextmanager
    def conversation(self, n_ctx: int) -> Iterator[MlxConversation]:
        """Replies with a cache of their own."""
        conversation = MlxConversation(self._model, self._caches.new, self._n_batch)
        yield conversation
        self._note_context(n_ctx, conversation.cache)

    def logits(self, tokens: Sequence[int], first: int) -> NDArray[np.float32]:
        """Logits from position `first` of a fresh context, shape (n - first, n_vocab)."""
        require_context(len(tokens), self.facts)
        ids = list(tokens)
        if self._tokenizer.bos is not None:
            ids[0] = self._tokenizer.bos
        with refusing("decode"):
            return self._scorer.submit(self._evaluated, ids, first).result()

    def _evaluated(self, ids: list[int], first: int) -> NDArray[np.float32]:
        mx.reset_peak_memory()
        cache = self._caches.new()
        pieces = []
        for start in range(0, len(ids), self._n_batch):
            rows = self._model(mx.array([ids[start : start + self._n_batch]]), cache=cache)[0]
            pieces.append(rows[max(0, first - start) :].astype(mx.float32))
            mx.eval(pieces[-1], arrays_of(cache))
        logits = pieces[0] if len(pieces) == 1 else mx.concatenate(pieces)
        mx.eval(logits)
        self._note_context(len(ids), cache)
        return np.array(logits, copy=False)

    def stepper(self, n_ctx: int, max_outputs: int, rollback: str) -> MlxStepper:
        """Open a cache of its own that can be stepped and rolled back."""
        require_context(n_ctx, self.facts)
        with refusing("decode"):
            types = kv_types(self._caches.new(), self.facts["dtype"])
            context = _context_facts(n_ctx, self._n_batch, types, self._threads)
            return MlxStepper(
                self._model, context, self._caches.new, max_outputs=max_outputs, rollback=rollback
            )

    def close(self) -> None:
        """Free the model."""
        del self._model
        self._cache, self._resident, self._mark = None, [], None
        mx.clear_cache()

    def _next_row(self, token: int, cache: list[Any]) -> Any:
        return self._model(mx.array([[token]]), cache=cache)[0, -1]

    def _last_row(self, cache: list[Any]) -> Any:
        """Logits after the last token in the cache: a timed prompt computes none."""
        last = self._resident[-1]
        with refusing("decode"), mlx_lm_generate.wired_limit(self._model):
            if mlx_lm_cache.can_trim_prompt_cache(cache):
                mlx_lm_cache.trim_prompt_cache(cache, 1)
            else:
                self._resident.append(last)  # a cache that cannot be trimmed has two copies
            return self._next_row(last, cache)

    def _prefill(self, tokens: Sequence[int], cache: list[Any]) -> list[int]:
        steps: list[int] = []
        for start in range(0, len(tokens), self._n_batch):
            began_ns = time.perf_counter_ns()
            self._model(mx.array([list(tokens[start : start + self._n_batch])]), cache=cache)
            mx.eval(arrays_of(cache))
            mx.clear_cache()
            steps.append(time.perf_counter_ns() - began_ns)
        return steps

    @contextmanager
    def _running(self, tokens: Sequence[int], depth: int) -> Iterator[list[Any]]:
        """A cache with exactly `tokens[:depth]`; afterwards it contains `tokens`."""
        require_context(len(tokens), self.facts)
        mx.reset_peak_memory()
        with refusing("decode"), mlx_lm_generate.wired_limit(self._model):
            cache = self._cache_of(list(tokens[:depth]))
            self._resident, self._chosen = [], []
            mx.synchronize()
            yield cache
            self._cache, self._resident = cache, list(tokens)
        self._note_context(len(tokens), cache)

    def _cache_of(self, prefix: list[int]) -> list[Any]:
        kept = len(prefix)
        if self._cache is not None and kept and self._resident[:kept] == prefix:
            excess = len(self._resident) - kept
            if not excess or mlx_lm_cache.can_trim_prompt_cache(self._cache):
                mlx_lm_cache.trim_prompt_cache(self._cache, excess)
                return self._cache
            # A recurrent or rotating cache cannot drop its end: it goes on from the mark.
            if self._mark and (n := self._mark.n_kept(prefix)):
                self._mark.restore(self._cache, len(self._resident))
                self._prefill(prefix[n:], self._cache)
                return self._cache
        self._cache = None
        cache = self._caches.new()
        self._prefill(prefix, cache)
        self._mark = Mark(prefix, cache) if self.goes_back and prefix else None
        return cache

    def _note_context(self, n_ctx: int, cache: list[Any]) -> None:
        """Note a run's resolved settings, and MLX's allocations: resident memory has no GPU's."""
        peak = int(mx.get_peak_memory())
        self.context = {
            **_context_facts(
                n_ctx, self._n_batch, kv_types(cache, self.facts["dtype"]), self._threads
            ),
            "peak_memory_bytes": peak,
            "memory_bytes": {
                "weights": self._size_bytes,
                "kv": compat.cache_nbytes(cache),
                # Temporary memory, also of other models that are loaded.
                "compute": max(0, peak - int(mx.get_active_memory())),
            },
        }


def _context_facts(n_ctx: int, n_batch: int, types: tuple[str, str], threads: int) -> Facts:
    return {
        "n_ctx": n_ctx,
        "n_batch": n_batch,
        "type_k": types[0],
        "type_v": types[1],
        # mx.fast.scaled_dot_product_attention decides by device and shape, and does not report it.
        "flash_attn": "the engine's own",
        "threads": threads,
    }


def _timing(slow_by: float, n_tokens: int, began_ns: int, steps: list[int]) -> Timing:
    if slow_by:  # after the run, not within: a step that is in flight would go on meanwhile
        lingering_ns = time.perf_counter_ns()
        linger(began_ns, slow_by)
        steps[-1] += time.perf_counter_ns() - lingering_ns
    return Timing(n_tokens, time.perf_counter_ns() - began_ns, tuple(steps), None)


def _share(model: Any, config: Mapping[str, Any], group: Any) -> None:
    """Keep this process's part of each layer."""
    if not hasattr(model, "shard"):
        kind = config.get("model_type")
        raise RefusalError("settings", f"mlx-lm cannot share a {kind} among processes")
    n_heads = _config_number(config, "num_key_value_heads", default=group.size())
    if n_heads % group.size():
        raise RefusalError(
            "settings", f"{n_heads} heads of keys and values cannot be shared by {group.size()}"
        )
    model.shard(group)
    mx.eval(model.parameters())


def _has_experts(model: Any) -> bool:
    """True for a mixture of experts, whose products MLX's CPU has in float32 only."""
    return any("SwitchLinear" in type(module).__name__ for module in model.modules())


def _widen(model: Any) -> None:
    """Compute in float32 with quantized weights.

    MLX's CPU unpacks them one by one in half precision: a prompt is 36 times as slow in float16, 8
    times in bfloat16. Weights that are not quantized need half to twice the time.
    """
    model.set_dtype(mx.float32)
    mx.eval(model.parameters())


def _config_number(config: Mapping[str, Any], key: str, *, default: int) -> int:
    """A positive number of a configuration, or of the text model's in it."""
    text = config.get("text_config")
    value = (text if isinstance(text, dict) else config).get(key, config.get(key))
    return value if type(value) is int and value > 0 else default
