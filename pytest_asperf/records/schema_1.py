"""Rows of JSON reports of schema 1 in the form of schema 2.

Schema 1 is no longer written. Its rows had texts, and raw figures without a kind: only here a kind
is recognized by keys, and a name is read from a text.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from pytest_asperf.analysis.outcome import NOT_RUN, Outcome
from pytest_asperf.errors import shown
from pytest_asperf.records.schema_2 import WORDS, worded

#: A JSON object.
Table = Mapping[str, Any]

_OUTCOMES: Final = ("", *Outcome, NOT_RUN)
_SIDES: Final = ("baseline", "candidate")
_OF_BOTH: Final = ("outcome", "subject", "note", "elapsed_s")
_ABOUT: Final = ("finding", "statement", "published", "recorded")
#: Keys that early files lack, or later ones have.
_ESTIMATE: Final = {"method": "", "counted": "samples", "confidence": 0.9}


def upgraded(row: Table) -> dict[str, Any] | None:
    """A row of schema 2; None if its figures are in another row.

    It raises the errors of `codec.decode` if the row is malformed.
    """
    raw = row["raw"]
    if row["outcome"] not in _OUTCOMES or not isinstance(raw, dict):
        raise ValueError(f"outcome {shown(row['outcome'], 60)}")
    record = _judged(row, raw) if row["outcome"] else _measured(row, raw)
    if record is None:
        return None
    return {**record, "test": row["test"], "machine": row.get("machine", ""), "apart": ""}


def _judged(row: Table, raw: Table) -> dict[str, Any]:
    own = {**_some(raw, ("advice", "details")), **_some(row, _OF_BOTH), "facts": row.get("ran", ())}
    own["about"] = {key: row[key] for key in _ABOUT if row.get(key)}
    if not (row.get("threshold") or raw.get("figures") or "comparison" in raw):
        broken = {"kind": "broken", "found": row["measured"], "watched": raw.get("machine")}
        return worded(own | broken)
    builds = raw.get("builds")
    verdict = {
        "kind": "verdict",
        "subject_brief": row.get("what", ""),
        "rests_on": row.get("basis", ""),
        "figures": [_figure(figure) for figure in raw.get("figures", ())],
        "builds": builds,
        "compared": _compared(raw.get("comparison", {}), builds or ("", "")),
    }
    return worded(own | _some(row, ("source", *WORDS)) | verdict)


def _figure(data: Table) -> dict[str, Any]:
    limits = _some(data, ("at_least", "at_most"))
    return {"label": data["label"], "estimate": _ESTIMATE | dict(data), **limits}


def _compared(data: Table, builds: Iterable[str]) -> dict[str, Any] | None:
    if "ran" not in data:  # early files do not have it
        return None
    ran = [_ran(one, build) for one, build in zip(data["ran"], builds, strict=True)]
    if "delta_nll" in data:
        return {**data, "kind": "chunks", "ran": ran}
    cost_unit = "nJ" if any("baseline_nj" in pair for pair in data["pairs"]) else "ns"
    pairs = [
        {
            **pair,
            **{side: pair[f"{side}_{cost_unit.lower()}"] for side in ("baseline", "candidate")},
        }
        for pair in data["pairs"]
    ]
    models = data.get("models") or [one["model"] for one in ran]
    own = {
        "watched": data.get("machine"),
        "kind": "pairs",
        "ran": ran,
        "pairs": pairs,
        "cost_unit": cost_unit,
        "models": models,
    }
    return {**data, **own}


def _measured(row: Table, raw: Table) -> dict[str, Any] | None:
    kinds: dict[str, tuple[str, Callable[[Table], dict[str, Any]]]] = {
        "predicted_gain": ("speculation", _speculation),
        "delta_ppl": ("quant", lambda one: {**one, "baseline": _ran(one["baseline"])}),
        "joules_per_token": ("energy", lambda one: {**one, "workload": one["metered"]}),
        "memory_bytes": ("memory", _memory),
        "estimate": ("throughput", dict),
    }
    found = next((own for key, own in kinds.items() if key in raw), None)
    if found is None:
        return None
    kind, own = found
    proof = raw["ran"][0] if "ran" in raw else {"model": row["model"], **raw}
    around = {
        "watched": raw.get("machine"),
        "kind": kind,
        "facts": row.get("ran", ()),
        "note": row.get("note", ""),
    }
    name = {"baseline_name": row["subject"].removeprefix("PPL vs ")}
    return {**own(raw), **around, **name, "ran": _ran(proof)}


def _memory(raw: Table) -> dict[str, Any]:
    return {**raw, **{f"{key}_bytes": size for key, size in raw["memory_bytes"].items()}}


def _speculation(raw: Table) -> dict[str, Any]:
    label = f"{raw.get('draft') or 'ngram'} → {raw.get('target', '')}, k={raw.get('k', '?')}"
    prompts = [
        [
            {
                **run,
                "n_tokens": run["speculative"].get("n_tokens", 0),
                "speculative_ns": run["speculative"]["elapsed_ns"],
                "rounds": run["speculative"].get("rounds", ()),
            }
            for run in pair
        ]
        for pair in raw["pairs"]
    ]
    compared = _compared(raw.get("comparison", {}), ("", ""))
    return {
        **raw,
        **_rates(compared["pairs"] if compared else ()),
        "label": compared["models"][0] if compared else label,
        "best_k": raw["best_k"]["k"],
        "best_k_gain": raw["best_k"]["gain"],
        "n_rounds": sum(len(run["rounds"]) for pair in prompts for run in pair),
        "draft_step": raw.get("c"),
        "contexts": raw.get("rollback", {}),
        "rollback": {},
        "guards": [{**trip, "found": "", "rule": ""} for trip in raw["trips"]],
        "draft_ran": _ran(raw["ran"][1]) if len(raw.get("ran", ())) > 1 else None,
        "comparison": compared,
        "prompts": prompts,
    }


def _rates(pairs: Sequence[Table]) -> dict[str, float]:
    """The rates without and with a draft over all pairs, tok/s."""
    sides = zip(("alone_rate", "speculative_rate"), _SIDES, (0, 1), strict=True)
    return {
        key: 1e9 * sum(pair["n_tokens"][n] for pair in pairs) / sum(pair[side][0] for pair in pairs)
        for key, side, n in sides
        if pairs
    }


def _ran(proof: Table, build: str = "") -> dict[str, Any]:
    """The run record; the model's spec was a part of its name, and so was the build."""
    engine, loaded = proof.get("engine", {}), proof.get("loaded", {})
    address = proof["model"].partition(" in ")[0]
    weights, _, kv = address.partition(" KV ")
    kv, _, _ = kv.partition(" on ")
    name, _, level = weights.partition(" on ")[0].rpartition(":")
    buffers = loaded.get("buffers_mib", {}).get("model", {})
    return {
        **_some(proof, ("model", "title", "path", "requested", "context")),
        **_some(loaded, ("threads", "n_params", "size_bytes", "layers_offloaded")),
        "address": address,
        "name": name or level,
        "level": level if name else "",
        "kv": kv,
        "build": build,
        "sha256": proof.get("sha256", ""),
        "engine": engine.get("engine", ""),
        **{key: str(engine.get(key, "")) for key in ("library", "version")},
        "libraries": _libraries(engine),
        "backend": sorted(name.removesuffix("_Mapped") for name in buffers),
        "described": engine,
        "loaded": loaded,
    }


def _libraries(engine: Table) -> str:
    """The build of an engine; empty if a report does not describe it."""
    if "devices" not in engine:
        return ""
    # numpy comes with it
    from pytest_asperf.engine_process import EngineFacts  # noqa: PLC0415

    return EngineFacts.parse(engine).build


def _some(data: Table, keys: Iterable[str]) -> dict[str, Any]:
    return {key: data[key] for key in keys if data.get(key) is not None}
