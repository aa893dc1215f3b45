"""Seeded simulations of gates, by several processes; their results are rows of a Markdown table."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

#: Gates computed at once, which keeps memory small.
BATCH: Final = 50

#: Gives the batches of a condition by its number, and by the function from a seed.
Simulate = Callable[[int, Callable[[tuple[int, ...]], Any]], Iterator[Any]]


@contextmanager
def simulations(description: str | None, head: tuple[str, ...]) -> Iterator[Simulate]:
    """Read the options and print the table's head; return the function of a condition's gates."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--runs", type=int, default=400, help="gates of each condition")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=20261122)
    options = parser.parse_args()
    batches = range(-(-options.runs // BATCH))
    print_row(*head)
    print_row(*["---"] * len(head))
    with ProcessPoolExecutor(options.processes) as pool:
        yield lambda condition, compute: pool.map(
            compute, [(options.seed, condition, batch) for batch in batches]
        )


def print_row(*cells: str) -> None:
    """Print a row at once, as the next one may need minutes."""
    print(f"| {' | '.join(cells)} |", flush=True)
