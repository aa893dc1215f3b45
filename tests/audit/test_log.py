import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.audit.judge import judge_file
from pytest_asperf.audit.known import Known, Options
from pytest_asperf.audit.log import read_log
from pytest_asperf.audit.read import FileReading
from pytest_asperf.audit.result import Audit, FileFindings
from pytest_asperf.hardware.profiles import find_profile
from pytest_asperf.worker.printed.perplexity_log import PerplexityRun

M2_ULTRA = Options(hardware=find_profile("m2ultra"))


def load_of(file: str, *, gib: float, tensors: int, level: str = "Q8_0") -> str:
    """Return llama.cpp's log of loading a dense model of 32 layers on an M2 Ultra."""
    return (
        "llama_model_load_from_file_impl: using device MTL0 (Apple M2 Ultra) (unknown id) - 9 MiB\n"
        f"llama_model_loader: loaded meta data with 30 key-value pairs and {tensors} tensors from "
        f"/models/{file} (version GGUF V3 (latest))\n"
        "llama_model_loader: - kv   2:               general.name str              = Some Model\n"
        "llama_model_loader: - kv  12:          llama.block_count u32              = 32\n"
        f"print_info: file type   = {level}\n"
        f"print_info: file size   = {gib:.2f} GiB (8.50 BPW) \n"
        "print_info: n_embd                = 4096\n"
        "print_info: n_expert              = 0\n"
        "print_info: n_vocab               = 100000\n"
        "load_tensors: offloaded 33/33 layers to GPU\n"
        "load_tensors:   CPU_Mapped model buffer size =   400.00 MiB\n"
        "load_tensors:  MTL0_Mapped model buffer size =  9000.00 MiB\n"
    )


def speculation(
    *, drafted: int, accepted: int, seconds: float, errors: Sequence[str] = (), text: str = "Yes."
) -> str:
    """Return a log of llama-speculative with 201 tokens in so many seconds, k = 4."""
    return (
        f"\n\n{text}\n\n"
        + load_of("target.gguf", gib=10, tensors=291)
        + load_of("draft.gguf", gib=1, tensors=290)
        + "".join(f"{line}\n" for line in errors)
        + "encoded   20 tokens in    0.075 seconds, speed:  266.667 t/s\n"
        f"decoded  201 tokens in {seconds:8.3f} seconds, speed: {201 / seconds:8.3f} t/s\n\n"
        f"n_draft   = 4\nn_predict = 201\nn_drafted = {drafted}\nn_accept  = {accepted}\n"
        f"accept    = {100 * accepted / drafted:.3f}%\n\ndraft:\n\n"
        "llama_perf_context_print:        eval time =    2000.00 ms /   600 runs   "
        "(    3.33 ms per token,   300.00 tokens per second)\n\ntarget:\n\n"
        f"common_perf_print:       total time =  {1000 * seconds + 500:8.2f} ms /   221 tokens\n"
    )


def guards_of(found: FileFindings) -> list[str]:
    """Return the names of the guards that tripped."""
    return [guard_finding.guard for _, guard_finding in found.guard_findings]


def perplexity(chunk_nll: Sequence[float], level: str = "F16", planned: int | None = None) -> str:
    """Return a log of llama-perplexity whose chunks have these mean NLL."""
    running = [math.exp(sum(chunk_nll[:i]) / i) for i in range(1, len(chunk_nll) + 1)]
    chunks = "".join(f"[{i}]{ppl:.4f}," for i, ppl in enumerate(running, start=1))
    n = planned or len(chunk_nll)
    return (
        load_of(f"{level}.gguf", gib=8, tensors=290, level=level)
        + f"perplexity: calculating perplexity over {n} chunks, n_ctx=512, batch_size=2048\n"
        f"perplexity: 1.25 seconds per pass - ETA 0.05 minutes\n{chunks}\n"
        f"Final estimate: PPL = {running[-1]:.4f} +/- 0.60357\n"
    )


@given(st.lists(st.floats(0.5, 5.0), min_size=1, max_size=60))
def test_the_nll_of_each_chunk_comes_back(nll: list[float]) -> None:
    """From PPL to four decimals each chunk's NLL is recovered within their rounding."""
    running = [math.exp(sum(nll[:i]) / i) for i in range(1, len(nll) + 1)]
    run = PerplexityRun(tuple(round(ppl, 4) for ppl in running))
    for i, (found, true) in enumerate(zip(run.chunk_nll, nll, strict=True), start=1):
        assert found == pytest.approx(true, abs=1.1e-4 * i / min(running))
    assert sum(run.chunk_nll) == pytest.approx(sum(nll), abs=1e-4 * len(nll) / running[-1])


def test_perplexity_is_paired_with_the_level_of_most_bits(audit_of: Callable[..., Audit]) -> None:
    """Chunks that differ by two and a bit from one another still show a per cent between models."""
    base = [2.0, 2.9, 2.2, 1.8, 2.4, 3.0, 2.1, 2.6]
    other = [nll + 0.01 + 0.001 * (-1) ** i for i, nll in enumerate(base)]
    files = {"b.txt": perplexity(other, "Q6_K"), "a.txt": perplexity(base)}
    (pairs,) = audit_of({**files, "c.txt": perplexity(base[:5])}).together
    (figure,) = pairs.figures
    # Both logs have 8.5 bits per weight, so the first file is the base.
    assert figure.name == "F16 (a.txt) vs Q6_K (b.txt)"
    assert figure.value is not None
    assert figure.value.point == pytest.approx(math.exp(-0.01) - 1, abs=2e-5)
    assert figure.value.high - figure.value.low < 0.003
    assert "90% two-sided over 8 chunks" in str(figure)


def _metal(name: str) -> str:
    return (Path(__file__).parents[2] / "fixtures" / "metal" / f"{name}.log").read_text()


@pytest.mark.parametrize(
    ("name", "guards"), [("m4pro", []), ("paravirtual", ["gpu-limits"]), ("m4_prefixed", [])]
)
def test_a_log_of_a_mac_names_its_gpu(
    name: str, guards: list[str], audit_of: Callable[..., Audit]
) -> None:
    """A GPU that cannot multiply matrices is a warning where weights were on it."""
    (found,) = audit_of({"log": _metal(name) + perplexity([2.0, 2.5, 2.2])}).files
    (gpu,) = (text for what, text in found.ran if what == "gpu")
    assert gpu.startswith(("Apple M4", "Apple Paravirtual device"))
    assert guards_of(found) == guards


def test_a_mac_s_gpu_that_holds_no_weights_is_no_warning(audit_of: Callable[..., Audit]) -> None:
    """The processor computed."""
    on_cpu = perplexity([2.0, 2.5, 2.2]).replace("MTL0_Mapped", "CPU_REPACK")
    (found,) = audit_of({"log": _metal("paravirtual") + on_cpu}).files
    assert guards_of(found) == []


@pytest.mark.parametrize(("ngl", "guards"), [("99", ["gpu-limits"]), ("0", [])])
def test_a_benchmark_s_layers_decide_about_its_gpu(
    ngl: str, guards: list[str], audit_of: Callable[..., Audit]
) -> None:
    """llama-bench logs no buffers, but the requested number of layers."""
    table = (
        "| model | size | params | backend | ngl | test | t/s |\n"
        "| --- | ---: | ---: | --- | --: | ---: | ---: |\n"
        f"| llama 1B Q8_0 | 1.00 GiB | 1.00 B | MTL,BLAS | {ngl} | tg128 | 20.99 ± 0.01 |\n"
    )
    (found,) = audit_of({"log": _metal("paravirtual") + table}).files
    assert guards_of(found) == guards


def test_a_named_baseline_must_be_of_the_same_text(
    audit_of: Callable[..., Audit], tmp_path: object
) -> None:
    """Other numbers of chunks are other work, and INVALID if a user compares them."""
    files = {"a.txt": perplexity([2.0] * 8), "b.txt": perplexity([2.0] * 7)}
    options = Options(baseline=tmp_path / "a.txt")  # type: ignore[operator]
    (pairs,) = audit_of(files, options).together
    assert guards_of(pairs) == ["unequal-work"]
    assert pairs.figures == []


def test_two_texts_of_one_length_are_suspected(audit_of: Callable[..., Audit]) -> None:
    """Chunks whose difficulties have nothing to do with one another draw a note."""
    files = {"a": perplexity([1, 3, 1, 3, 1, 3]), "b": perplexity([3, 1, 3, 1, 3, 1])}
    (pairs,) = audit_of(files).together
    assert "may be two texts" in pairs.notes[0]


@pytest.mark.parametrize("cut", ["[6]nan,", ""])
def test_a_perplexity_run_that_stops_early_is_invalid(
    cut: str, audit_of: Callable[..., Audit]
) -> None:
    """A truncated log, and one whose PPL becomes nan, did not finish their work."""
    text = perplexity([2.0, 2.5, 2.2, 2.4, 2.1], planned=10).replace("\nFinal", f"{cut}\nFinal")
    (found,) = audit_of({"a": text}).files
    assert guards_of(found) == ["broken-logits"] * bool(cut) + ["path-mismatch"]
    assert "10 was requested and 5 ran" in found.guard_findings[-1][1].found
    if cut:
        assert found.guard_findings[0][1].found == "PPL is nan after chunk 6"


def test_the_table_of_kl_divergence_is_shown_as_printed(audit_of: Callable[..., Audit]) -> None:
    """Its ± treats tokens as independent, and the note says so."""
    text = (
        "kl_divergence: computing over 2 chunks, n_ctx=512, batch_size=2048, n_seq=4\n"
        "Mean PPL(Q)                   :   8.966302 ±   0.160270\n"
        "Mean PPL(Q)/PPL(base)         :   1.060648 ±   0.003689\n"
        "Mean    KLD:   0.097973 ±   0.002198\nMaximum KLD:  20.749897\n"
    )
    (found,) = audit_of({"kld": text}).files
    assert found.guard_findings == []
    assert [figure.name for figure in found.figures] == [
        "Mean PPL(Q)", "Mean PPL(Q)/PPL(base)", "Mean KLD", "Maximum KLD",
    ]  # fmt: skip
    assert "one standard error" in str(found.figures[2])


def test_a_healthy_speculation_passes(audit_of: Callable[..., Audit]) -> None:
    """A run within acceptance, bandwidth and the draft's own decodes trips nothing."""
    log = speculation(drafted=400, accepted=100, seconds=6.0)
    (found,) = audit_of({"sd": log}, M2_ULTRA).files
    assert guards_of(found) == []
    assert [str(figure) for figure in found.figures] == [
        "33.5 tok/s in one run: no interval",
        "25.00% of 400 drafted tokens",
        "1.99 tokens emitted in each of 101",
    ]


def test_failed_decodes_are_counted(audit_of: Callable[..., Audit]) -> None:
    """Every line counts, equal or not, and a prefix of newer builds does not hide them."""
    errors = ["llama_decode: failed to decode, ret = -1"] * 500
    errors += ["0.01.002.003 E llama_decode: failed to decode, ret = -3"] * 13
    log = speculation(drafted=400, accepted=100, seconds=6.0, errors=errors)
    (found,) = audit_of({"sd": log}).files
    assert guards_of(found) == ["decode-errors"]
    assert found.guard_findings[0][1].found.startswith("513 of the log's lines")


def test_rounds_are_held_against_the_bandwidth(audit_of: Callable[..., Audit]) -> None:
    """Rounds that read more than 819 GB/s are impossible; the chip is named by the log too."""
    log = speculation(drafted=720, accepted=20, seconds=2.5)
    for options in (M2_ULTRA, Options()):
        (found,) = audit_of({"sd": log}, options).files
        assert "roofline-high" in guards_of(found)
    slower = Options(hardware=find_profile("h200"))
    assert guards_of(audit_of({"sd": log}, slower).files[0]) == []


def test_the_target_alone_bounds_its_speculation(audit_of: Callable[..., Audit]) -> None:
    """llama-bench of the target in the same call shows that 3 % acceptance cannot gain."""
    header = "model_filename,gpu_info,n_prompt,n_gen,avg_ns,avg_ts,stddev_ts\n"
    measurement = header + '"/x/target.gguf","Apple M2 Ultra","0","128","3200000000","40","0.1"\n'
    log = speculation(drafted=720, accepted=20, seconds=4.0)
    assert guards_of(audit_of({"sd": log}).files[0]) == []
    assert guards_of(audit_of({"sd": log, "bench": measurement}).files[0]) == ["sd-bound"]


def test_drafts_that_nothing_decoded_are_told(audit_of: Callable[..., Audit]) -> None:
    """More drafted tokens than decodes of the draft: the rest came from no model."""
    (found,) = audit_of({"sd": speculation(drafted=708, accepted=23, seconds=9.0)}).files
    assert "108 of 708 drafted tokens have no decode" in found.notes[0]


def test_text_in_loops_is_a_warning(audit_of: Callable[..., Audit]) -> None:
    """The text is found between the lines of the log."""
    text = "This relationship holds " + "holds " * 30 + "the " * 30
    (found,) = audit_of({"sd": speculation(drafted=400, accepted=100, seconds=6, text=text)}).files
    assert guards_of(found) == ["degenerate-output"]


def test_a_remote_that_failed_and_a_run_that_equals_the_local_one(
    audit_of: Callable[..., Audit],
) -> None:
    """The connection's failure is INVALID, and so is the run that did without and went on."""
    failed = ["Failed to connect to 192.0.2.7:50052"]
    remote = speculation(drafted=400, accepted=100, seconds=6.03, errors=failed)
    local = speculation(drafted=400, accepted=100, seconds=6.0)
    found = audit_of({"remote.txt": remote, "local.txt": local})
    assert guards_of(found.files[0]) == ["path-mismatch"]
    assert guards_of(found.files[1]) == []
    (arms,) = found.together
    assert guards_of(arms) == ["identical-to-baseline"]
    assert arms.guard_findings[0][0] == "remote.txt and local.txt"


def test_a_log_that_ends_without_a_measurement_is_not_read(audit_of: Callable[..., Audit]) -> None:
    """Loading a model measures nothing."""
    found = audit_of({"log": load_of("a.gguf", gib=1, tensors=290)})
    assert "without a measurement" in found.files[0].problem
    assert found.exit_code == 3


@pytest.mark.parametrize(
    ("tensors", "tied"), [(290, True), (291, False), (292, False), (289, False)]
)
def test_the_number_of_tensors_tells_a_tied_head(tensors: int, tied: bool) -> None:  # noqa: FBT001
    """Nine tensors in each of 32 layers and two more leave no room for a head."""
    (model,) = read_log(load_of("a.gguf", gib=8, tensors=tensors).splitlines()).models
    assert model.is_tied is tied
    size = 8 * 2**30
    assert model.least_step_bytes == (size if tied else size - 400 * 2**20)


SERVER = {
    "2023": "print_timings: prompt eval time =     100.00 ms /    20 tokens "
    "(    5.00 ms per token,   200.00 tokens per second)\n"
    "print_timings:        eval time =    1000.00 ms /    65 runs   "
    "(   15.38 ms per token,    65.00 tokens per second)\n",
    "2024": '{"tid":"1","timestamp":1,"level":"INFO","function":"print_timings","line":313,'
    '"msg":"generation eval time","id_slot":0,"t_prompt_processing":100.0,'
    '"n_prompt_tokens_processed":20,"t_token_generation":1000.0,"n_decoded":65}\n',
    "2025": "slot print_timing: id  0 | task 0 | \n"
    "prompt eval time =     100.00 ms /    20 tokens "
    "(    5.00 ms per token,   200.00 tokens per second)\n"
    "       eval time =    1000.00 ms /    65 tokens "
    "(   15.38 ms per token,    65.00 tokens per second)\n"
    "      total time =    1100.00 ms /    85 tokens\n",
    "2026": "0.27.995.064 I slot print_timing: id  3 | task 0 | prompt eval time =     100.00 ms / "
    "   20 tokens (    5.00 ms per token,   200.00 tokens per second)\n"
    "0.27.995.066 I slot print_timing: id  3 | task 0 |        eval time =    1000.00 ms /    65 "
    "tokens (   15.63 ms per token,    64.00 tokens per second)\n"
    "0.27.995.070 I slot print_timing: id  3 | task 0 | draft acceptance = 0.50000 (   20 accepted "
    "/    40 generated)\n",
}


@pytest.mark.parametrize("release", SERVER)
def test_server_timings_of_every_release_give_one_rate(
    release: str, audit_of: Callable[..., Audit]
) -> None:
    """64 steps in a second are 64 tok/s, whether a release prints 65 or 64."""
    head = "build: 9000 (0badcafe) with cc\n"
    (found,) = audit_of({"log": head * (release != "2024") + SERVER[release] * 6}).files
    figures = {figure.name: figure.value for figure in found.figures}
    generated, prompt = figures["TG"], figures["PP"]
    assert generated is not None
    assert prompt is not None
    assert generated.n == 6
    assert generated.point == pytest.approx(64.0)
    assert prompt.point == pytest.approx(200.0)
    counts_first = any("n tokens by the time of n - 1 steps" in note for note in found.notes)
    assert counts_first == (release in {"2023", "2025"})
    if release == "2026":
        assert str(figures["acceptance"]) == "None"
        assert found.figures[2].text == "50.00% of 240 drafted tokens"


ALL = "".join(
    [perplexity([2.0, 2.1]), speculation(drafted=400, accepted=100, seconds=6), *SERVER.values()]
)


@given(st.data())
def test_no_damage_to_a_log_is_an_error_of_ours(data: st.DataObject) -> None:
    """For any cut in a log, or text run into its lines, it is read and judged."""
    text = ALL
    for _ in range(data.draw(st.integers(1, 6))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 300)))
        put = data.draw(st.sampled_from(["", "\n", "9" * 400, "nan", "-1", "0", "\x1b[31m", "[3]"]))
        text = text[:start] + put + text[end:]
    reading = FileReading(Path("log"), "log", log=read_log(text.splitlines()))
    found = judge_file(reading, Known.of([reading], M2_ULTRA))
    assert found.figures or found.guard_findings or found.problem
