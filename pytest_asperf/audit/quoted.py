"""Figures that a tool prints once for a run: they are shown as printed, without an interval."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_asperf.audit.tables import UNMEASURED, PrintedTable, measured
from pytest_asperf.worker.printed import COUNT, NUMBER, Unread, number_of

_ONE_RUN: Final = "tok/s in one run: no interval"
_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Quoted:
    """A figure as its tool prints it, or the samples that the tool keeps of it, in tok/s."""

    tool: str
    name: str
    text: str = ""
    samples: tuple[float, ...] = ()
    is_lost: bool = False  #: whether it is 0 or no number
    settings: tuple[tuple[str, str], ...] = ()  #: its possible difference from others of one name
    #: a speedup by its own two rates, if they contradict the printed one; otherwise 0
    ratio: float = 0.0


def _rates(cells: Mapping[str, Any], pp: str, tg: str, suffix: str) -> Iterator[tuple[str, str]]:
    for test, size, rate in (("pp", pp, "S_PP t/s"), ("tg", tg, "S_TG t/s")):
        number, name = number_of(cells.get(rate)), f"{test}{cells.get(size)}{suffix}"
        if number:
            yield name, f"{number:g} {_ONE_RUN}"
        elif number_of(cells.get(size)):
            yield name, str(cells.get(rate))


def _batched(cells: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from _rates(cells, "PP", "TG", f" B={cells['B']}")


def _swept(cells: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from _rates(cells, "PP", "TG", f"@d{cells['N_KV']}")


def _compared(cells: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    rates = [value for column, value in cells.items() if column.startswith("t/s ")]
    what = " ".join(filter(None, [cells["Test"], cells.get("Model")]))
    if UNMEASURED.fullmatch(cells["Speedup"]):
        yield what, cells["Speedup"]
    elif (speedup := number_of(cells["Speedup"])) and len(rates) == 2:
        yield what, f"{speedup:g} x ({rates[1]} and {rates[0]} tok/s, no interval)"


def _ratio(cells: Mapping[str, str]) -> float:
    """The ratio of two rates if rounding does not explain the printed one; otherwise 0."""
    rates = [measured(value) for column, value in cells.items() if column.startswith("t/s ")]
    speedup = measured(cells.get("Speedup", ""))
    if speedup is None or len(rates) != 2:
        return 0.0
    base, other = rates
    if base is None or other is None or not base.mean:
        return 0.0
    ratio = other.mean / base.mean
    rounding = speedup.resolution + (other.resolution + ratio * base.resolution) / base.mean
    return ratio if abs(speedup.mean - ratio) > 1.01 * rounding else 0.0


def _benchy(cells: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for column, value in cells.items():
        is_lost = UNMEASURED.fullmatch(value)
        if column in {"model", "test"} or not (is_lost or measured(value)):
            continue
        name = column.removesuffix(" (ms)")
        name = f"{cells['test']} {cells['model']}" + ("" if name == "t/s" else f", {name}")
        unit = "ms" if column.endswith(" (ms)") else "tok/s"
        yield name, value if is_lost else f"{value} {unit}, as printed"


#: By the columns of their tables; the first match is used.
_TABLES: Final[
    tuple[tuple[str, set[str], Callable[[Mapping[str, str]], Iterator[tuple[str, str]]]], ...]
] = (
    ("llama-batched-bench", {"PP", "TG", "B", "N_KV", "S_PP t/s", "S_TG t/s"}, _batched),
    ("llama-sweep-bench", {"PP", "TG", "N_KV", "S_PP t/s", "S_TG t/s"}, _swept),
    ("compare-llama-bench.py", {"Test", "Speedup"}, _compared),
    (BENCHY := "llama-benchy", {"model", "test", "ttfr (ms)"}, _benchy),
    (BENCHY, {"model", "test", "e2e_ttft (ms)"}, _benchy),
)
_LOWER: Final = [{column.lower() for column in columns} for _, columns, _ in _TABLES]
#: The result in JSON lines.
_JSON_COLUMNS: Final = {
    "pp": "PP", "tg": "TG", "pl": "B", "n_kv": "N_KV", "speed_pp": "S_PP t/s",
    "speed_tg": "S_TG t/s",
}  # fmt: skip


#: Columns with figures, and what is in the name already.
_FIGURES: Final = re.compile(r"t/s|.* t/s|[TS]_|Speedup|Test|Model|PP$|TG$|B$|N_KV$|T s|.*\(ms\)")
_SETTING: Final = re.compile(r"n_(?!kv$)|flash_attn|is_|type_")


def distinct_names(figures: Sequence[Quoted]) -> list[str]:
    """Their names, with every setting in which figures of one name differ."""
    alike: dict[str, list[Quoted]] = {}
    for figure in figures:
        alike.setdefault(figure.name, []).append(figure)
    return [
        " ".join([
            figure.name,
            *(
                f"{key}={value}"
                for key, value in figure.settings
                if len({dict(one.settings).get(key) for one in alike[figure.name]}) > 1
            ),
        ])
        for figure in figures
    ]  # fmt: skip


def is_quoted_header(names: AbstractSet[str]) -> bool:
    """True if columns, in lower case, are those of a table that is read here."""
    return any(columns <= names for columns in _LOWER)


def quoted_of_table(table: PrintedTable) -> Iterator[Quoted]:
    """Yield the figures of a table; none if it is no tool's."""
    for tool, columns, read in _TABLES:
        if columns <= {*table.header}:
            title = f", {table.title}" if table.title else ""
            for cells in table.rows:
                for name, text in read(cells):
                    is_lost = UNMEASURED.fullmatch(text) is not None
                    others = tuple((c, v) for c, v in cells.items() if not _FIGURES.match(c))
                    yield Quoted(
                        tool, name + title, text,
                        is_lost=is_lost, settings=others, ratio=_ratio(cells),
                    )  # fmt: skip
            return


def quoted_of_document(document: object) -> Iterator[Quoted]:
    """Yield the figures of a JSON document; none if it is no tool's."""
    if not isinstance(document, dict):
        return
    if document.keys() >= {"pp", "tg", "speed_pp", "speed_tg"}:
        cells = {column: str(document.get(key)) for key, column in _JSON_COLUMNS.items()}
        tool, read = ("llama-batched-bench", _batched) if "pl" in document else (
            "llama-sweep-bench", _swept
        )  # fmt: skip
        others = tuple((key, str(v)) for key, v in document.items() if _SETTING.match(key))
        for name, text in read(cells):
            is_lost = UNMEASURED.fullmatch(text) is not None
            yield Quoted(tool, name, text, is_lost=is_lost, settings=others)
    elif "latency_mode" in document and isinstance(runs := document.get("benchmarks"), list):
        for run in runs[:_MAX]:
            if isinstance(run, dict):
                yield from _benchy_run(run)


def _benchy_run(run: Mapping[str, Any]) -> Iterator[Quoted]:
    prefix = "ctx_" if run.get("is_context_prefill_phase") else ""
    users = run.get("concurrency", 1)
    suffix = f" @ d{run['context_size']}" if run.get("context_size") else ""
    suffix += f" (c{users})" if users != 1 else ""
    for test, size, key in (
        ("pp", "prompt_size", "pp_throughput"),
        ("tg", "response_size", "tg_throughput"),
    ):
        metric = run.get(key)
        values = metric.get("values") if isinstance(metric, dict) else None
        samples = [number_of(value) for value in values[:_MAX]] if isinstance(values, list) else []
        if kept := tuple(sample for sample in samples if sample):
            yield Quoted(BENCHY, f"{prefix}{test}{run.get(size)}{suffix}", samples=kept)


_TASK: Final = re.compile(r"(hellaswag|winogrande|multiple_choice)_score ?:")
_SELECTED: Final = re.compile(
    rf"(?:selecting|loaded|calculating \w+ score over) ({COUNT}) ?(?:random\w* )?tasks"
)
_SCORED: Final = re.compile(rf"({COUNT})\t({NUMBER}|-?nan)%?(?=\t|$|\s)")
_LIKE_SCORE: Final = re.compile(r"\d+\t[\d.,]")
_FINAL: Final = re.compile(
    rf"Final (?:Winogrande score\(({COUNT}) tasks\)|result): ({NUMBER}) \+/- ({NUMBER})"
)
_TASKS: Final = {
    "hellaswag": "HellaSwag", "winogrande": "Winogrande", "multiple_choice": "multiple choice",
}  # fmt: skip


@dataclass(slots=True)
class TaskReader:
    """Gathers the accuracies of llama-perplexity's tasks: (task, correct share, tasks, planned)."""

    #: rows of a task that are cut off or in another form
    unread: Unread = field(default_factory=Unread)
    unmeasured: list[str] = field(default_factory=list)  #: tasks whose accuracy is no number
    _done: list[tuple[str, float, int, int]] = field(default_factory=list)
    _task: str = ""
    _share: float = 0.0
    _n: int = 0
    _planned: int = 0

    def feed(self, line: str) -> None:
        """Parse one line."""
        if task := _TASK.match(line):
            if self._n or task[1] != self._task:
                self._end()
            self._task = task[1]
            if selected := _SELECTED.search(line):
                self._planned = int(selected[1])
        elif self._task and (scored := _SCORED.match(line)):
            if int(scored[1]) <= self._n:
                self._end()
            if "nan" in scored[2]:
                self._lose(scored[2])
            else:
                self._n, self._share = int(scored[1]), float(scored[2]) / 100
        elif self._task and _LIKE_SCORE.match(line):
            self.unread.add(line)
        elif "Final" in line and (final := _FINAL.match(line)):
            self._task = self._task or ("winogrande" if final[1] else "multiple_choice")
            self._n, self._share = int(final[1] or self._n), float(final[2]) / 100

    def results(self) -> list[tuple[str, float, int, int]]:
        """Each task with its accuracy, the number of its questions, and of those planned."""
        if not self._n or self._share > 1:
            return self._done
        return [*self._done, (_TASKS[self._task], self._share, self._n, self._planned)]

    def _lose(self, number: str) -> None:
        lost = f"{_TASKS[self._task]} accuracy is {number}"
        if lost not in self.unmeasured:
            self.unmeasured.append(lost)

    def _end(self) -> None:
        self._done = self.results()[:_MAX]
        self._n, self._share, self._planned = 0, 0.0, 0
