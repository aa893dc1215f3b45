"""The output of `asperf predict`: a prediction as sections of checks, and a table of models."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from pytest_asperf.analysis.capacity import MOE_REACHED_SHARE, REACHED_SHARE, Demand, Payoff
from pytest_asperf.analysis.speculation_model import RULE_RATIO
from pytest_asperf.analysis.stats.estimate import memory_text, number_text
from pytest_asperf.errors import printable
from pytest_asperf.forecast.predict import Forecast, Prediction, SpeculationForecast
from pytest_asperf.hardware.in_force import BandwidthBound
from pytest_asperf.report.sections import CheckLine, Failure, Section, State

_SCHEMA: Final = 1


def sections(prediction: Prediction) -> tuple[Section, ...]:
    """The prediction for a reader: the machine, each model, and a draft's effect on each."""
    models = (
        Section(printable(forecast.demand.label), tuple(_model_checks(forecast, types, prediction)))
        for forecast, types in zip(prediction.forecasts, prediction.kv_types, strict=True)
    )
    drafts = (
        _speculation_section(forecast, forecast.speculation, prediction.draft)
        for forecast in prediction.forecasts
        if forecast.speculation is not None
    )
    return (Section(printable(prediction.hardware), _machine_checks(prediction)), *models, *drafts)


def as_json(prediction: Prediction) -> dict[str, Any]:
    """The prediction for JSON; an infinite ratio is null."""
    return {
        "schema": _SCHEMA,
        "fits": prediction.fits,
        "sections": [asdict(section) for section in sections(prediction)],
        "facts": _finite(asdict(prediction)),
    }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and math.isinf(value) else value


def rows(prediction: Prediction) -> tuple[tuple[str, ...], ...]:
    """A table of the models, its head first.

    Weights and KV cache are in GiB; then the weights' share of memory, the fit, the ceiling of TG
    with an empty context, and the expected part of it.
    """
    head = ("model", "GiB", "KV GiB", "share", "fits", "ceiling", "tok/s")
    return (head, *(_row(forecast) for forecast in prediction.forecasts))


def _machine_checks(prediction: Prediction) -> tuple[CheckLine, ...]:
    memory, ceiling = prediction.memory, prediction.ceiling
    return (
        CheckLine("memory", "unknown", memory.what, memory.remedy)
        if isinstance(memory, Failure)
        else CheckLine("memory", "ok", f"{memory_text(memory.nbytes)}; {memory.basis}"),
        CheckLine("bandwidth", "unknown", ceiling.what, ceiling.remedy)
        if isinstance(ceiling, Failure)
        else CheckLine("bandwidth", "ok", f"{ceiling.gbs:.4g} GB/s {prediction.bandwidth_basis}"),
    )


def _model_checks(
    forecast: Forecast, types: tuple[str, str], prediction: Prediction
) -> Iterator[CheckLine]:
    demand, draft = forecast.demand, prediction.draft
    yield CheckLine("sizes", "ok", printable(demand.basis))
    yield _weights_check(forecast, draft)
    yield _kv_check(demand, types)
    if demand.is_recurrent:
        detail = (
            "layers with a recurrent state keep it in addition to the KV cache: its size is unknown"
        )
        yield CheckLine("state", "unknown", f"{detail}; it does not grow with the context")
    yield CheckLine("buffers", "unknown", "compute buffers are not modelled; they come on top")
    yield from _fit_checks(forecast, prediction.hardware)
    empty, full = map(memory_text, demand.read_bytes)
    experts = ", active experts only" if demand.has_experts else ""
    reads = f"{empty} per token with an empty context{experts}, {full} with a full one"
    yield CheckLine("reads", "ok", reads)
    yield from _rate_checks(forecast, prediction.ceiling)


def _weights_check(forecast: Forecast, draft: Demand | None) -> CheckLine:
    fit = forecast.fit
    weights = memory_text(forecast.demand.weights_bytes)
    if draft is not None:
        weights += f" and {memory_text(draft.weights_bytes)} of {printable(draft.label)}"
    if fit is None:
        return CheckLine("weights", "ok", weights)
    share = fit.weights_bytes / fit.memory.nbytes
    limit = "the 60 % rule allows" if fit.memory.is_shared else "all of the card's memory is"
    detail = (
        f"{weights}: {share:.1%} of memory; {limit} {memory_text(round(fit.weights_limit_bytes))}"
    )
    if fit.weights_fit:
        return CheckLine("weights", "ok", detail)
    return CheckLine("weights", "impossible", detail, "use a smaller quantization, or more memory")


def _kv_check(demand: Demand, types: tuple[str, str]) -> CheckLine:
    detail = (
        f"{memory_text(demand.kv_bytes)} for {demand.context} tokens, K {types[0]}, V {types[1]}"
    )
    if demand.window is not None:
        detail += f"; an upper bound, since layers with a window keep only {demand.window}"
    if demand.n_ctx_train is not None and demand.context > demand.n_ctx_train:
        remedy = f"use at most --context={demand.n_ctx_train}"
        return CheckLine("KV cache", "warning", f"{detail}; more than it was trained on", remedy)
    return CheckLine("KV cache", "ok", detail)


def _fit_checks(forecast: Forecast, hardware: str) -> Iterator[CheckLine]:
    fit = forecast.fit
    if fit is None:
        yield CheckLine("fits", "unknown", f"the memory of {printable(hardware)} is unknown")
        return
    needed, memory = memory_text(fit.needed_bytes), fit.memory
    detail = f"weights and KV cache need {needed} of {memory.usable_text}"
    if not fit.fits:
        remedy = "a smaller quantization, a shorter --context, or --type-k=q8_0 --type-v=q8_0"
        yield CheckLine("fits", "impossible", f"no: {detail}", remedy)
        return
    if fit.is_uncertain:
        remedy = "on a Mac, see what the engine logs as recommendedMaxWorkingSetSize"
        detail += "; macOS gives a GPU 2/3 and more of it, by version and size"
        yield CheckLine("fits", "warning", f"yes, perhaps not on the GPU: {detail}", remedy)
        return
    yield CheckLine("fits", "ok", f"yes: {detail}")


def _rate_checks(forecast: Forecast, ceiling: BandwidthBound | Failure) -> Iterator[CheckLine]:
    demand, ceilings, reached = forecast.demand, forecast.ceilings, forecast.reached
    if ceilings is None or isinstance(ceiling, Failure):
        yield CheckLine("ceiling", "unknown", "the memory bandwidth is unknown")
        return
    detail = (
        f"TG {_rate(ceilings[0])} tok/s with an empty context, {_rate(ceilings[1])} with a full one"
    )
    if reached is None:
        known = (
            f"its {memory_text(ceiling.cache_bytes)} of" if ceiling.cache_bytes else "the largest"
        )
        detail += (
            f", from memory; but {known} last-level cache can have the bytes that a token reads"
        )
        yield CheckLine("ceiling", "warning", detail, "measure it: no ceiling of memory bounds it")
        return
    yield CheckLine("ceiling", "ok", f"{detail}; bandwidth / bytes read per token")
    rates = f"{_rate(reached[0])} to {_rate(reached[1])} tok/s"
    if demand.has_experts:
        low, high = MOE_REACHED_SHARE
        detail = f"{rates}: {low:.0%} to {high:.0%} of it, as published runs of one MoE did;"
        detail += f" dense models {REACHED_SHARE[0]:.0%} to {REACHED_SHARE[1]:.0%}"
    else:
        low, high = REACHED_SHARE
        detail = f"{rates}: {low:.0%} to {high:.0%} of it, by published guides;"
        detail += " models under a few GiB reach less"
    yield CheckLine("expected", "ok", detail)


def _speculation_section(
    forecast: Forecast, speculation: SpeculationForecast, draft: Demand | None
) -> Section:
    target = forecast.demand
    title = f"speculation for {printable(target.label)}"
    checks = list(_pair_checks(target, draft))
    if speculation.ratio is None:
        checks.append(CheckLine("ratio", "unknown", "not given", "give --draft or --draft-ratio"))
    else:
        rule = ": it pays" if speculation.ratio >= RULE_RATIO else ": it does not pay"
        detail = f"draft {speculation.ratio:.2f}x as fast; {speculation.ratio_basis}"
        checks.append(CheckLine("ratio", "ok", f"{detail}; the {RULE_RATIO:g}x rule{rule}"))
    for cost, payoffs in speculation.rows:
        checks.append(CheckLine("verifying", "ok", cost.basis))
        checks += [_payoff_check(payoff) for payoff in payoffs]
    return Section(title, tuple(checks))


def _pair_checks(target: Demand, draft: Demand | None) -> Iterator[CheckLine]:
    if target.is_recurrent:
        detail = "a recurrent state cannot be rolled back: rejected tokens need checkpoints"
        yield CheckLine(
            "rollback", "warning", detail, "measure it; this arithmetic has no cost for it"
        )
    if target.has_experts:
        detail = "several positions read more experts than one, so C = 1 is out of reach"
        yield CheckLine("experts", "warning", detail, "measure C, and give it with --verify")
    if draft is None:
        return
    if None in {target.tokenizer_sha256, draft.tokenizer_sha256}:
        remedy = "give both models as files"
        yield CheckLine("tokenizer", "unknown", "not compared: one has no list of tokens", remedy)
    elif not target.splits_as(draft):
        remedy = "use a draft of the same family"
        yield CheckLine("tokenizer", "warning", "the two models' tokenizers differ", remedy)


def _payoff_check(payoff: Payoff) -> CheckLine:
    name = f"acceptance {payoff.acceptance:g}"
    never = math.isinf(payoff.break_even_ratio)
    even = f"pays from {payoff.break_even_ratio:.2f}x (k = {payoff.break_even_k})"
    even = "no draft is fast enough" if never else even
    if payoff.gain is None:
        return CheckLine(name, "warning" if never else "ok", even)
    state: State = "ok" if payoff.gain > 0 else "warning"
    return CheckLine(name, state, f"{payoff.gain:+.0%} at best, with k = {payoff.best_k}; {even}")


def _row(forecast: Forecast) -> tuple[str, ...]:
    demand, fit = forecast.demand, forecast.fit
    share, fits = "?", "?"
    if fit is not None:
        share = f"{fit.weights_bytes / fit.memory.nbytes:.0%}"
        fits = "perhaps" if fit.is_uncertain else "yes" if fit.fits else "no"
    ceiling = _rate(forecast.ceilings[0]) if forecast.ceilings else "?"
    reached = "-".join(map(_rate, forecast.reached)) if forecast.reached else "?"
    sizes = (number_text(nbytes / 2**30) for nbytes in (demand.weights_bytes, demand.kv_bytes))
    return (printable(demand.label), *sizes, share, fits, ceiling, reached)


def _rate(tok_s: float) -> str:
    return f"{tok_s:.1f}" if tok_s < 100 else f"{tok_s:,.0f}"
