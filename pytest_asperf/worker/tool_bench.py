"""llama-bench: one test as a process, believed only if it is the test that was asked for."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .printed.bench_rows import BenchRow, BrokenRowError, bench_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .engine import Facts
    from .tool_process import Toolbox, ToolRun, Watch

PROGRAM: Final = "llama-bench"
#: By setting: the option of llama-bench, that of the other programs, and the cell of a row.
OPTIONS: Final = {
    "threads": ("-t", "-t", "n_threads"),
    "n_gpu_layers": ("-ngl", "-ngl", "n_gpu_layers"),
    "flash_attn": ("-fa", "-fa", "flash_attn"),
    "type_k": ("-ctk", "-ctk", "type_k"),
    "type_v": ("-ctv", "-ctv", "type_v"),
    "n_batch": ("-b", "", "n_batch"),
    "n_ubatch": ("-ub", "", "n_ubatch"),
    "tensor_split": ("-ts", "-ts", "tensor_split"),
}
_FLASH_CELLS: Final = {
    "auto": ("-1", "auto"),
    "on": ("1", "true", "on"),
    "off": ("0", "false", "off"),
}
#: Cells that run record is made of.
_NEEDED: Final = ("n_threads", "type_k", "type_v", "model_n_params")


@dataclass(frozen=True, slots=True)
class Bench:
    """llama-bench on one model's file."""

    tools: Toolbox
    path: str
    settings: Mapping[str, Any]

    def measure(
        self, n_prompt: int, n_gen: int, depth: int, *options: str, watch: Watch | None = None
    ) -> tuple[BenchRow, Facts, ToolRun]:
        """Run one test once; its row, the row's cells, and the run."""
        arguments = ["-m", self.path, "-p", str(n_prompt), "-n", str(n_gen), "-d", str(depth)]
        arguments += ["-r", "1", "-o", "jsonl", "-v", *options]
        for key, value in self.settings.items():
            arguments += [OPTIONS[key][0], self._argument(key, value)]
        run = self.tools.run(PROGRAM, *arguments, watch=watch)
        expected = {
            "model_filename": self.path, "n_prompt": n_prompt, "n_gen": n_gen, "n_depth": depth,
            **{OPTIONS[key][2]: value for key, value in self.settings.items()},
        }  # fmt: skip
        row, cells = _checked(run, expected)
        return row, cells, run

    def _argument(self, key: str, value: object) -> str:
        takes_words = "-fa, --flash-attn <on|off|auto>" in self.tools.help(PROGRAM)
        if key != "flash_attn" or takes_words:
            return str(value)
        return _FLASH_CELLS[str(value)][0]


def _checked(run: ToolRun, expected: Facts) -> tuple[BenchRow, Facts]:
    """The one test that was printed, with its cells, if it is the expected one."""
    rows = [line for line in run.output.splitlines() if line.strip()]
    if len(rows) != 1:
        raise run.failure(f"exited with 0 and printed {len(rows)} tests instead of 1")
    try:
        cells = json.loads(rows[0])
    except (ValueError, RecursionError) as err:
        raise run.failure("printed a test that is cut off or not JSON") from err
    if not isinstance(cells, dict):
        raise run.failure("printed no test but other JSON")
    try:
        row = bench_row(cells)
    except BrokenRowError as err:
        raise run.failure(f"printed a test that {err}") from err
    if len(row.samples_ns) != 1:
        raise run.failure(f"timed {len(row.samples_ns)} runs instead of 1")
    if missing := [cell for cell in _NEEDED if cell not in cells]:
        raise run.failure(f"printed a test without {', '.join(missing)}")
    for cell, value in expected.items():
        if not _is_same(cell, value, cells.get(cell)):
            raise run.failure(f"was asked for {cell} {value} and reports {cells.get(cell)}")
    return row, cells


def _is_same(cell: str, expected: object, printed: object) -> bool:
    if cell == "flash_attn":
        return str(printed).lower() in _FLASH_CELLS[str(expected)]
    if cell == "tensor_split":  # printed up to the last share that is not 0
        shares = "/".join(f"{float(share):.2f}" for share in str(expected).split("/"))
        return printed == re.sub("(/0.00)+$", "", shares)
    return str(printed) == str(expected)
