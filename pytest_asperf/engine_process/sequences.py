"""Several sequences that an engine decodes in the same calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_asperf.engine_process.facts import ContextFacts, present
from pytest_asperf.engine_process.worker import grouped_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.engine_process.worker import GroupedRow, Worker


def decoded_together(
    worker: Worker, name: str, sequences: Sequence[Sequence[int]], n_prompt: int
) -> tuple[tuple[tuple[GroupedRow, ...], ...], ContextFacts]:
    """The logits of each position of sequences that are decoded together, and the context.

    The first `n_prompt` tokens of all are one batch, and then one token of each.

    Raises:
        WorkerError: the process died, hangs or answered nonsense.
        EngineRefusedError: the engine takes one sequence at a time.
    """
    texts = [list(sequence) for sequence in sequences]
    answer = worker.call("run_together", model=name, sequences=texts, n_prompt=n_prompt)
    shape = len(sequences), len(sequences[0])
    return worker.parsed(
        f"together {name}",
        lambda: (_rows(answer["rows"], shape), ContextFacts.parse(present(answer, "context"))),
    )


def _rows(rows: Sequence[Any], shape: tuple[int, int]) -> tuple[tuple[GroupedRow, ...], ...]:
    n_sequences, length = shape
    if len(rows) != n_sequences or any(len(of_one) != length for of_one in rows):
        raise ValueError(f"there are not {length} rows of each of {n_sequences} sequences")
    return tuple(tuple(map(grouped_row, of_one)) for of_one in rows)
