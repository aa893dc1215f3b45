from collections.abc import Callable
from typing import Any

import pytest

from tests.plugin.conftest import Project


def test_repetitions(project: Project, rows: Callable[..., list[dict[str, Any]]]) -> None:
    """A workload is timed as often as requested, each time after a warm-up of its load."""
    project.test(
        '@pytest.mark.quant("F16")\ndef test_it(throughput):\n    throughput("tg8").estimate\n'
    )
    (row,) = rows("--asperf-repetitions=7")
    assert len(row["runs"]) == 7
    assert row["runs"][0].items() >= {"n_tokens": 8, "elapsed_ns": 8_000_000, "load": 0}.items()
    assert row["warm_ups"][0]["n_tokens"] == 8


@pytest.mark.parametrize(("chunks", "scored"), [("3", 3), ("all", 39)])
def test_chunks(
    project: Project, rows: Callable[..., list[dict[str, Any]]], chunks: str, scored: int
) -> None:
    """PPL covers that many chunks of 512 tokens, or the whole corpus."""
    project.test(
        '@pytest.mark.quant("Q8_0")\ndef test_it(perplexity):\n    perplexity.ppl.estimate\n'
    )
    (row,) = rows(f"--asperf-chunks={chunks}")
    assert len(row["chunks"]) == scored
    assert row["basis"] == f"{scored} chunks"


def test_one_chunk_decides_nothing(project: Project) -> None:
    """A figure without an interval is no verdict, and the advice names the missing part."""
    project.test(
        '@pytest.mark.quant("Q8_0")\ndef test_it(perplexity):\n'
        '    assert_ppl_delta(perplexity, below="90%")\n'
    )
    result = project.run("--asperf-chunks=1")
    result.stdout.fnmatch_lines(
        ["test_it.py I *", "*1 chunk gives no interval*", "*measure 5 chunks: --asperf-chunks=5"]
    )
