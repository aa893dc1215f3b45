"""For authors of engines and their users' tests: a conformance check and a scripted engine.

`check_engine` proves an engine through a real worker process; `write_script` makes a model for the
`scripted` engine, whose timings and faults are chosen by its author.
"""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pytest_asperf.analysis import guards
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.workload import parse_workload
from pytest_asperf.engine_process import (
    EngineBuild,
    EngineRefusedError,
    LoadedFacts,
    RawRun,
    Worker,
)
from pytest_asperf.errors import EngineError

_TEXT: Final = "def area(width, height):\n    return width * height\n" * 40


class ConformanceError(EngineError):
    """An engine does not keep the protocol."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the engine does not conform: {what}",
            why="verdicts rest on what every engine must mean by the same words",
            remedy="see pytest_asperf/worker/engine.py for what each operation promises",
        )


def write_script(path: Path, **script: Any) -> Path:
    """Write a model for the `scripted` engine.

    Args:
        path: the file to write.
        script: `pp_ns_per_token` and `tg_ns_per_token` (a number, or a list that runs take turns
            from), `noise` (standard deviation added to the logits), `noise_by_ftype`,
            `noise_by_type_k`, `noise_of_batches` (but with `n_ubatch=1`), `n_ctx_train`,
            `size_bytes`, `n_params`, `load_ns`, `bytes_per_token`, `flash_attn` (as the context
            reports it), `layers_offloaded`. By operation (`load`, `tokenize`, `prompt`, `generate`,
            `score`): `faults`, one of `crash`, `killed`, `hang`, `garbage`, `refuse`, or for
            `score` also `drift`; and `takes_s`, seconds of waiting. For the logits of timed runs,
            `faults` may have `logits`, one of `nan`, `inf`, `overflow`, `flat` (all equal), `stale`
            (the same after each run), `unseen`. `spread`, the standard deviation of the log of each
            time. `log`, a file to which each operation appends its name, its process and the
            monotonic clock in ns. Builds differ by the environment of their interpreters:
            `ASPERF_SCRIPT_VERSION`, `ASPERF_SCRIPT_COST` (times the script's times),
            `ASPERF_SCRIPT_SEED` (of the spread).

    Returns:
        The path.
    """
    path.write_text(json.dumps(script), "utf-8")
    return path


def check_engine(build: EngineBuild, model: Path, settings: EngineSettings | None = None) -> None:
    """Prove an engine in its own process, on a real model.

    The engine must reject everything that `describe` lists under `cannot`. A server answers
    requests, and rejects everything else.

    Raises:
        ConformanceError: it breaks a promise, which the message names.
        EngineError: it reported an error, died, or left out a fact; the message names the fact.
    """
    settings = settings or EngineSettings()
    with Worker(build) as worker:
        described = worker.describe()
        facts = worker.load("model", model, settings)
        if facts.served is not None:
            _check_served(worker, described.cannot)
            if "score" not in described.cannot:
                _check_scores(worker, _check_tokenizer(worker, facts), model, settings)
            worker.unload("model")
            _require(worker.alive, "the worker died of unloading a model")
            return
        tokens = _check_tokenizer(worker, facts)
        _check_timing(worker, tokens, described.cannot)
        if not facts.loads_each_run:
            _check_parts(worker, tokens)
        _check_left_by_run(worker, tokens)
        _check_logits(worker, tokens, facts, described.cannot)
        _check_scores(worker, tokens, model, settings)
        _check_refusals(worker, facts)
        _check_settings(worker, model, settings, described.cannot)
        worker.unload("model")
        if not worker.alive:
            raise ConformanceError("the worker died of unloading a model")


def _require(condition: bool, what: str) -> None:  # noqa: FBT001  # reads as an assertion
    if not condition:
        raise ConformanceError(what)


def _check_served(worker: Worker, cannot: Mapping[str, str]) -> None:
    """Require that each kind of request is timed and counted, and no prompt repeated."""
    for name in ("pp64", "ttft64", "tg16", "tg8@d32", "itl16", "pp64+tg16", "tg8@c2"):
        workload = parse_workload(name, where="check_engine")
        run = worker.serve("model", _TEXT, workload)
        _check_run(run, workload.n_counted, name)
        _require(len(run.requests) == workload.users, f"{name}: {len(run.requests)} requests")
        events = [request.event_ns for request in run.requests]
        _require(
            all(list(times) == sorted(times) for times in events),
            f"{name}: events are not in their order",
        )
        cached = [request.n_cached or 0 for request in run.requests]
        if not workload.generates:
            _require(max(cached) < 16, f"{name}: {cached} tokens of prompts were cached")
    refused: dict[str, Callable[[], object]] = {
        "tokenize": lambda: worker.tokenize("model", _TEXT),
        "prompt": lambda: worker.prompt("model", [1, 2], 0),
        "generate": lambda: worker.generate("model", [1, 2], 0),
        "first_token": lambda: worker.first_token("model", [1, 2]),
        "score": lambda: worker.score(["model"], [1, 2, 3, 4], 2),
    }
    for op, ask in refused.items():
        if op in {"tokenize", "score"} and op not in cannot:
            continue  # of a server that shows log-probabilities
        _require(op in cannot, f"{op} is not among what the server cannot do")
        _check_unsupported(op, ask)


def _check_tokenizer(worker: Worker, facts: LoadedFacts) -> list[int]:
    tokens = worker.tokenize("model", _TEXT)
    _require(len(tokens) >= 64, f"tokenize made {len(tokens)} tokens of {len(_TEXT)} characters")
    _require(tokens == worker.tokenize("model", _TEXT), "tokenize is not deterministic")
    in_range = all(0 <= token < facts.n_vocab for token in tokens)
    _require(in_range, "tokenize gives ids outside the vocabulary")
    return tokens


def _check_timing(worker: Worker, tokens: list[int], cannot: Mapping[str, str]) -> None:
    for op in (worker.prompt, worker.generate):
        for depth in (0, 16):
            run = op("model", tokens[:32], depth)
            _check_run(run, 32 - depth, f"{op.__name__} at depth {depth}")
    if "first_token" in cannot:
        _check_unsupported("first_token", lambda: worker.first_token("model", tokens[:32]))
    else:
        _check_run(worker.first_token("model", tokens[:32]), 32, "first_token")
    if "step_ns" not in cannot:
        run = worker.generate("model", tokens[:32], 16)
        _require(len(run.step_ns) == 16, "generate does not time each token")


def _check_parts(worker: Worker, tokens: list[int]) -> None:
    """Require that a generation in two parts is the one that is timed at once."""
    whole = worker.generate("model", tokens[:32], 0)
    first = worker.generate("model", tokens[:16], 0, n_ctx=32)
    second = worker.generate("model", tokens[:32], 16, n_ctx=32)
    n_ctx = {run.context.n_ctx for run in (whole, first, second)}
    _require(len(n_ctx) == 1, f"contexts of {n_ctx} tokens instead of the requested room for 32")
    peaks = [run.logits.peak for run in (whole, second) if run.logits and run.logits.peak]
    near = all(math.isclose(peak, peaks[0], rel_tol=0.05, abs_tol=0.5) for peak in peaks)
    _require(near, "a generation in parts shows other logits than the whole one")


def _check_logits(
    worker: Worker, tokens: list[int], facts: LoadedFacts, cannot: Mapping[str, str]
) -> None:
    """Require that each run shows the logits after its own last token."""
    ops = [worker.prompt, worker.generate]
    runs = [op("model", tokens[:n], depth) for op in ops for n, depth in ((31, 0), (32, 16))]
    if "first_token" not in cannot:
        runs += [worker.first_token("model", tokens[:n]) for n in (31, 32)]
    if "logits" in cannot:
        _require(
            not any(run.logits for run in runs),
            "logits were declared unavailable, and a run shows them",
        )
        _require(
            facts.logits_seen is not None,
            "load does not report its evidence that logits are numbers",
        )
        return
    rows = [run.logits for run in runs if run.logits is not None]
    _require(len(rows) == len(runs), "a timed run shows no logits")
    _require(all(row.n_vocab == facts.n_vocab for row in rows), "a row is not the vocabulary")
    _require(
        not any(row.n_nan or row.n_inf for row in rows), "a sound model's logits are not finite"
    )
    _require(not any(row.is_flat for row in rows), "a sound model's logits are all equal")
    peaks = [row.peak if row.peak is not None else math.nan for row in rows]
    for after_31, after_32 in zip(peaks[::2], peaks[1::2], strict=True):
        _require(after_31 != after_32, "the logits shown are not those after the last token")
        near = math.isclose(after_32, peaks[1], rel_tol=0.05, abs_tol=0.5)
        _require(near, "two runs of the same tokens show different logits")


def _check_left_by_run(worker: Worker, tokens: list[int]) -> None:
    """Require that a timed run's state equals its tokens' own computation."""
    text, positions = tokens[:32], [8, 20, 31]
    for op in (worker.prompt, worker.generate):
        for depth in (0, 16):
            op("model", text, depth)
            left = worker.revisit("model", positions)
            if not left.rows:
                return  # an engine that shows no logits inside of a run
            finding = guards.skipped_work(len(text), left.n_held, left.rows)
            if finding is None:
                computed = worker.recompute("model", text, list(left.rows))
                finding = guards.other_logits(text, left.rows, computed, computed)
            if finding is not None:
                raise ConformanceError(f"{op.__name__} at depth {depth}: {finding.found}")


def _check_unsupported(op: str, ask: Callable[[], object]) -> None:
    try:
        ask()
    except EngineRefusedError as err:
        _require(err.kind == "unsupported", f"{op} raised {err.kind}")
    else:
        raise ConformanceError(f"{op} was declared impossible, and worked")


def _check_run(run: RawRun, n_tokens: int, op: str) -> None:
    _require(run.n_tokens == n_tokens, f"{op} counted {run.n_tokens} of {n_tokens} tokens")
    inside = sum(run.step_ns) <= run.elapsed_ns
    _require(inside, f"{op}: the steps last longer than the run they are part of")


def _check_scores(worker: Worker, tokens: list[int], path: Path, settings: EngineSettings) -> None:
    worker.load("twin", path, settings)
    chunk = tokens[:64]
    scored = worker.score(["model", "twin"], chunk, 32)
    first = {name: scores for name, (scores, _) in scored.items()}
    n_scored = len(chunk) - 1 - 32
    for name, scores in first.items():
        _require(len(scores.nll) == n_scored, f"score gave {len(scores.nll)} of {n_scored} NLL")
        _require(all(map(math.isfinite, scores.nll)), f"score of {name} is not finite")
    twin = first["twin"]
    _require(max(map(abs, twin.kld)) < 1e-4, "a model's KLD against itself is not zero")
    _require(all(twin.same_top), "a model's top token differs from its own")
    again, _ = worker.score(["model", "twin"], chunk, 32, concurrency=2)["twin"]
    same = all(math.isclose(a, b, abs_tol=1e-5) for a, b in zip(twin.nll, again.nll, strict=True))
    _require(same, "scores depend on how many models are scored at a time")
    worker.unload("twin")


def _check_refusals(worker: Worker, facts: LoadedFacts) -> None:
    requests = {
        "a context beyond the model's": ("model", [0] * (facts.n_ctx_train + 64)),
        "a model that is not loaded": ("nobody", [0, 0]),
    }
    for what, (name, tokens) in requests.items():
        try:
            worker.prompt(name, tokens, 0)
        except EngineRefusedError:
            continue
        raise ConformanceError(f"{what} did not raise")


def _check_settings(
    worker: Worker, model: Path, settings: EngineSettings, cannot: Mapping[str, str]
) -> None:
    """Require an error for settings that this version's `cannot` lists."""
    for what in cannot:
        key, is_setting, value = what.partition("=")
        if not is_setting:
            continue
        asked: dict[str, Any] = {key: value}
        try:
            worker.load("refused", model, settings.merged(EngineSettings(**asked)))
        except EngineRefusedError as err:
            _require(err.kind == "version", f"{what} raised {err.kind}")
        else:
            raise ConformanceError(f"{what} was declared impossible, and worked")
