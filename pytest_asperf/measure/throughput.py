"""PP and TG: repetitions of a workload, the models' turns interleaved in random order.

Models that are compared are measured side by side: machines drift, and a drift that all share does
not look like a difference.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from pytest_asperf.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_asperf.host import RawRun, Worker
    from pytest_asperf.spec import Workload

#: Characters of text taken for each token wanted; more than tokenizers make of a token.
_CHARACTERS_PER_TOKEN: Final = 12

#: Steps of a TG warm-up: enough to touch all weights and to compile what is compiled.
_WARM_UP_STEPS: Final = 8


def workload_tokens(worker: Worker, name: str, text: str, workload: Workload) -> list[int]:
    """Return the tokens a workload is fed with: real text, so that experts route as they do.

    Args:
        worker: where the model is loaded.
        name: the loaded model.
        text: the corpus; repeated where it is too short.
        workload: what will be timed.

    Raises:
        ModelError: the text gives no tokens.
    """
    wanted = workload.n_ctx
    tokens = worker.tokenize(name, text[: wanted * _CHARACTERS_PER_TOKEN])
    if not tokens:
        raise ModelError(
            f"{name}: the corpus gives no tokens",
            why="throughput is measured on real text",
            remedy="name a corpus with text in it",
        )
    return (tokens * (wanted // len(tokens) + 1))[:wanted]


def measure_throughput(
    worker: Worker,
    tokens: Mapping[str, Sequence[int]],
    workload: Workload,
    *,
    repetitions: int,
    seed: int,
    progress: Callable[[int, int], None],
) -> dict[str, tuple[RawRun, tuple[RawRun, ...]]]:
    """Time one workload on every loaded model, in rounds.

    Args:
        worker: where the models are loaded.
        tokens: what each model is fed with, by model.
        workload: what is timed.
        repetitions: rounds.
        seed: of the order within each round.
        progress: told runs done and runs in all.

    Returns:
        For each model the warm-up run and the counted runs.
    """
    # The order must be repeatable from the logged seed, not unguessable.
    order = random.Random(seed)  # noqa: S311
    names = list(tokens)
    warm_ups = {name: _warm_up(worker, name, tokens[name], workload) for name in names}
    runs: dict[str, list[RawRun]] = {name: [] for name in names}
    for done in range(repetitions):
        progress(done * len(names), repetitions * len(names))
        for name in order.sample(names, len(names)):
            runs[name].append(time_workload(worker, name, tokens[name], workload))
    return {name: (warm_ups[name], tuple(runs[name])) for name in names}


def time_workload(worker: Worker, name: str, tokens: Sequence[int], workload: Workload) -> RawRun:
    """Time one run of a workload on a loaded model."""
    if workload.kind == "ttft":
        return worker.first_token(name, tokens)
    time_it = worker.prompt if workload.kind == "pp" else worker.generate
    return time_it(name, tokens, workload.depth)


def _warm_up(worker: Worker, name: str, tokens: Sequence[int], workload: Workload) -> RawRun:
    if workload.kind == "pp":
        return time_workload(worker, name, tokens, workload)
    return worker.generate(name, tokens[: workload.depth + _WARM_UP_STEPS], workload.depth)
