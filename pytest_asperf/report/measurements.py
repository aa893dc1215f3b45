"""What was measured as a table: one record for each model and side, with every count and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: Columns that hold a text, and those that hold a number or nothing.
TEXTS: Final = (
    *("test", "machine", "workload", "side", "model", "title", "sha256", "engine", "backend"),
    *("settings", "unit", "counted"),
)
NUMBERS: Final = ("row", "threads", "size_bytes", "n_params", "value", "low", "high", "n")
_NO_FIGURE: Final = {"point": None, "low": None, "high": None, "n": 0, "unit": "", "counted": ""}
#: Where a row has its figure, and where the counts and times that it was made of.
_FIGURES: Final = (("estimate", "runs"), ("delta_ppl", "chunks"), ("joules_per_token", "phases"))
#: What a side's runs cost in a pair: by the end of its key, what a run calls it.
_COSTS: Final = {"ns": "elapsed_ns", "nj": "energy_nj"}


def table(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The records of a report's rows, flat but for `runs`."""
    return [
        {
            "row": number,
            "test": row["test"],
            "machine": row["machine"],
            **record,
            "settings": ",".join(f"{key}={value}" for key, value in record["settings"].items()),
        }
        for number, row in enumerate(rows)
        for record in measured(row)
    ]


def measured(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The records of one row: two of a comparison, one of another measurement, else none."""
    raw = row["raw"]
    if compared := raw.get("comparison"):
        yield from _sides(compared) if compared.get("pairs") else _differences(compared)
    for figure, runs in _FIGURES:
        if figure in raw:
            workload = raw.get("workload") or raw.get("metered") or row["subject"]
            yield _record(workload, row["model"], raw, raw[figure], raw.get(runs, ()))


def _sides(compared: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Both sides of pairs, each with the median of its runs."""
    timed = compared["timed"]
    for n, (side, role) in enumerate(
        zip(compared["sides"], ("baseline", "candidate"), strict=True)
    ):
        runs = [
            {"pair": number, "parts": pair["parts"], "n_tokens": pair["n_tokens"][n], cost: value}
            for number, pair in enumerate(compared["pairs"])
            for unit, cost in _COSTS.items()
            for value in pair.get(f"{role}_{unit}", ())
        ]
        middle = {"point": compared["medians"][n], "unit": compared["unit"]}
        figure = {**middle, "n": len(runs), "counted": "runs"}
        # Where two workloads are compared, the sides are named by them.
        workload = side if timed in compared["sides"] else timed
        made = _record(workload, compared["models"][n], _nth(compared, n), figure, runs)
        yield made | {"side": side, "settings": compared["settings"][n]}


def _differences(compared: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The chunks that two builds scored, of which only differences are kept."""
    runs = [{"delta_nll": delta} for delta in compared.get("delta_nll", ())]
    if runs:
        figure = {"n": len(runs), "unit": "nats", "counted": "chunks"}
        model = next(iter(compared.get("models", ())[1:]), "")
        made = _record("ppl", model, _nth(compared, 1), figure, runs)
        yield made | {"side": "candidate - baseline"}


def _nth(compared: Mapping[str, Any], n: int) -> Mapping[str, Any]:
    """What ran on one side; files of earlier versions do not say."""
    ran = compared.get("ran", ())
    return ran[n] if ran else {}


def _record(
    workload: str,
    model: str,
    ran: Mapping[str, Any],
    figure: Mapping[str, Any],
    runs: Iterable[Mapping[str, Any]],
) -> dict[str, Any]:
    loaded, engine = ran.get("loaded", {}), ran.get("engine", {})
    buffers = loaded.get("buffers_mib", {}).get("model", {})
    value = {**_NO_FIGURE, **figure}
    return {
        "workload": workload,
        "side": "",
        "model": model,
        "title": ran.get("title", ""),
        "sha256": ran.get("sha256", ""),
        "engine": " ".join(filter(None, map(engine.get, ("library", "version")))),
        "backend": ",".join(sorted(name.removesuffix("_Mapped") for name in buffers)),
        "settings": ran.get("settings", {}),
        "threads": loaded.get("threads"),
        "size_bytes": loaded.get("size_bytes"),
        "n_params": loaded.get("n_params"),
        "value": value["point"],
        **{key: value[key] for key in ("low", "high", "unit", "n", "counted")},
        "runs": list(runs),
    }
