"""A user's test file with every quantity and operator: read by type checkers, not run.

`tests/test_public_names.py` checks that none is missing.
"""

# ruff: noqa: D103, S105  # as a user writes it; no token is a password

import pytest

from pytest_asperf import (
    Energy,
    Gate,
    Hardware,
    Ladder,
    Latency,
    Memory,
    Model,
    Outcome,
    Quant,
    Quantity,
    Speculation,
    Throughput,
    Verdict,
    VerdictError,
    assert_fits,
    assert_lossless,
    assert_monotonic,
    assert_no_regression,
    assert_pareto_optimal,
    assert_ppl_delta,
    assert_sd_gain,
)


def test_rates(throughput: Throughput) -> None:
    assert throughput() >= "40 tok/s"
    assert "40 tok/s" <= throughput("tg128") < 4000
    assert throughput("tg128").bandwidth_utilization >= "60%"
    assert throughput("tg128").cv < "1%"
    assert throughput("tg128").cv < throughput("tg128", quant="Q8_0").cv
    assert throughput("tg128", engine="mlx") > throughput("tg128", engine="llama_cpp")
    assert 1.1 <= throughput("tg128", model="@target") / throughput("tg128") <= 1.5
    assert throughput("tg128") - throughput("tg128@d4096") < "5 tok/s"
    assert throughput("tg128").estimate.point > 40


def test_times(latency: Latency) -> None:
    assert latency() <= "250 ms"
    assert latency("itl128").p95 <= latency("itl128").p99
    assert latency("itl128").percentile(99.9) <= 80
    request = latency("pp512+tg128")
    assert request.ttft <= "1 s"
    assert request.tpot <= "50 ms"
    assert request.prefill_share <= "80%"
    assert request.effective_rate >= 20
    assert request.handoff <= "5 ms"
    assert request.peak_memory <= "8 GiB"
    assert request.cv < "5%"
    assert latency.crossover("@mlx", "@pipeline") >= 410


def test_energy(energy: Energy) -> None:
    assert energy() <= "0.5 J/token"
    assert energy("tg128").rail("gpu").net <= "0.4 J/token"
    assert energy("pp512").power / energy("pp512", model="@other").power >= 10
    assert energy("pp512").ran_on("ANE", unlike=energy("pp512", model="@gpu"))


def test_memory(memory: Memory, model: Model, hardware: Hardware) -> None:
    used = memory(4096)
    assert used <= "8 GiB"
    assert used.weights <= "6 GiB"
    assert used.kv / memory.with_f16_cache(4096).kv <= "60%"
    assert used.compute <= "500 MB"
    assert used.peak_rss <= 8
    assert model.size <= model.disk
    assert model.disk_of("a.gguf", "folder") <= "1 GiB"
    plan = model.placement("ANE", "m.mlpackage")
    assert plan >= "95%"
    assert model.kld("logits@c4") <= "0.02 nats"
    assert model.kld().largest <= 1
    assert model.scores("text", quant="Q8_0", n_ubatch=1).agrees
    assert_fits(model, "m2ultra")
    assert_fits(used, hardware)


@pytest.mark.quant_ladder("Q8_0")
def test_quality(perplexity: Quant) -> None:
    assert perplexity.ppl < 12
    assert perplexity.delta < "1%"
    assert perplexity.kld < "0.01 nats"
    assert perplexity.same_top >= "95%"
    assert perplexity.efficiency("tg128") > 1
    assert_ppl_delta(perplexity, below="1%")


@pytest.mark.quant_ladder("Q8_0", "Q4_K_M", "F16")
def test_ladder(ladder: Ladder) -> None:
    q8, q4 = ladder["Q8_0"], ladder["Q4_K_M"]
    assert q8.size / ladder["F16"].size <= "60%"
    assert q4.throughput("tg128") / q8.throughput("tg128") >= 1.5
    assert q4.latency("ttft512") <= q8.latency("ttft512")
    assert q4.energy("tg128") < q8.energy("tg128")
    assert q4.memory(4096) < q8.memory(4096)
    assert q8.kld / q4.kld < 1 / 3
    assert q4.delta - q8.delta < "1%"
    assert_monotonic(ladder, "kld")
    assert_monotonic([q4.throughput("tg128"), q8.throughput("tg128")], direction="falling")
    assert_pareto_optimal(ladder, "Q4_K_M", objectives=("size", "ppl"))


@pytest.mark.speculative(draft="asperf-draft:Q8_0", target="asperf-target:F16", k=4)
def test_speculation(speculation: Speculation, model: Model) -> None:
    assert speculation.gain > 0
    assert speculation.gain > speculation.drafted_by("ngram").gain
    assert speculation.acceptance >= "40%"
    assert speculation.acceptance_of("code") >= speculation.acceptance_of("text")
    assert speculation.ratio >= speculation.break_even
    assert speculation.verify_cost(5) <= 1.5
    overhead = speculation.overhead_on("10.0.0.2:50052")
    assert overhead.change >= "-79%"
    assert overhead.per_token <= "2 ms"
    assert overhead.per_drafted_token <= "1 ms"
    assert_sd_gain(speculation, when_ratio=2.5)
    assert_lossless(speculation.on("def area("))
    assert_lossless(model, than="@alone")


def test_builds(gate: Gate) -> None:
    assert_no_regression(gate("tg128", "ppl"), tolerance="5%")
    new, old = gate.candidate, gate.baseline
    assert new.throughput("tg128") / old.throughput("tg128") >= 1.1
    assert new.latency("ttft512") <= old.latency("ttft512")


def fastest(quantities: list[Quantity]) -> Quantity:
    """Read verdicts as values."""
    best, *others = quantities
    for other in others:
        verdict: Verdict = other > best
        if verdict.outcome is Outcome.PASS:
            best = other
    return best


def test_values(throughput: Throughput) -> None:
    with pytest.raises(VerdictError) as raised:
        assert throughput("tg128") >= 1e9
    assert raised.value.verdict.figures
    assert fastest([throughput("tg128"), throughput("pp512")]) <= 1e9
