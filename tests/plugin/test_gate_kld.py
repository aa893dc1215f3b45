"""A candidate whose answers drift is a FAIL of `kld`, for any PPL."""

from pathlib import Path

import pytest

from tests.plugin.conftest import Project
from tests.sabotaged_library import write_sabotaged

GATE = """
@pytest.mark.model("{model}", threads=1)
def test_gate(gate):
    assert_no_regression(gate({names}){limit})
"""


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("how", ["swaps_near_tokens", "too_hot"])
def test_answers_that_drift_fail_while_ppl_stays(live: Project, how: str) -> None:
    """The text's own tokens keep their probability: only KLD and the top tokens show it."""
    names = "'ppl', 'kld', 'ppl@d256', 'kld@d256'"
    live.test(GATE.format(model="asperf-draft", names=names, limit=""))
    result = live.run(f"--asperf-candidate={write_sabotaged(live.path, how)}", "-v")
    result.stdout.fnmatch_lines(
        ["✓ *gate ppl *", "✓ *gate ppl@d256 *", "✗ *gate kld *", "✗ *gate kld@d256 *"]
    )


def test_misread_tokens_at_the_end_of_a_batch_fail(live: Project) -> None:
    """PPL and KLD have chunks of a size that no kernel computes partly; logits have not."""
    names = "'ppl', 'kld', 'logits', 'logits@c4', 'logits@d256', 'logits@turns'"
    live.test(GATE.format(model="asperf-draft", names=names, limit=""))
    result = live.run(f"--asperf-candidate={write_sabotaged(live.path, 'misreads_the_rest')}", "-v")
    found = [f"✗ *gate logits{at} *" for at in ("", "@c4", "@d256", "@turns")]
    result.stdout.fnmatch_lines(["✓ *gate ppl *", "✓ *gate kld *", *found])


@pytest.mark.usefixtures("short_chunks")
def test_another_number_of_experts_fails(live: Project) -> None:
    """A token that gets one expert instead of two has other logits, by either way of computing."""
    live.test(GATE.format(model="asperf-draft+mixture=4", names="'kld', 'logits'", limit=""))
    result = live.run(f"--asperf-candidate={write_sabotaged(live.path, 'one_expert')}", "-v")
    result.stdout.fnmatch_lines(["✓ *gate logits *", "✗ *gate kld *"])


@pytest.mark.usefixtures("short_chunks")
def test_another_temperature_fails(live: Project) -> None:
    """The likeliest tokens are the same, and PPL rises by less than a looser limit."""
    live.test(GATE.format(model="asperf-draft", names="'kld'", limit=""))
    result = live.run(f"--asperf-candidate={write_sabotaged(live.path, 'warm')}", "-v")
    result.stdout.fnmatch_lines(["✗ *gate kld *"])


@pytest.mark.usefixtures("short_chunks")
def test_equal_builds_pass_with_other_attention(live: Project) -> None:
    """Another kernel rounds differently, by less than is accepted."""
    live.test(GATE.format(model="asperf-draft:Q4_K_M", names="'kld', 'ppl'", limit=""))
    result = live.run("--asperf-candidate=current,flash_attn=off", "-v")
    result.stdout.fnmatch_lines(["✓ *gate kld * KLD 0.00*", "✓ *gate ppl *"])


@pytest.mark.parametrize("more", ["", ",n_ubatch=96"])
def test_batches_that_are_smaller_than_a_chunk_pass(live: Project, more: str) -> None:
    """They are computed in physical batches of no more tokens, as llama-perplexity does."""
    names = "'kld', 'ppl', 'logits', 'logits@c4'"
    live.test(GATE.format(model="asperf-draft:Q4_K_M", names=names, limit=""))
    result = live.run(f"--asperf-candidate=current,n_batch=64{more}", "-v")
    found = [f"✓ *gate {name} *" for name in ("ppl", "kld", "logits", "logits@c4")]
    result.stdout.fnmatch_lines_random(found)


@pytest.mark.usefixtures("short_chunks")
def test_the_limit_is_the_tests_own(live: Project) -> None:
    """A limit below the effect of rounding is a FAIL."""
    live.test(GATE.format(model="asperf-draft:Q4_K_M", names="'kld'", limit=", kld_below=1e-5"))
    result = live.run("--asperf-candidate=current,flash_attn=off", "-v")
    result.stdout.fnmatch_lines(["✗ *gate kld *< 0.00001 *"])


@pytest.mark.parametrize(
    ("settings", "limit", "line"),
    [
        ("", "", "✓ *gate kld *< 0.03 *"),
        (",type_k=q4_0,type_v=q4_0", "", "✗ *gate kld *< 0.03 *"),
        ("", ", kld_below=0.01", "✗ *gate kld *< 0.01 *"),
    ],
)
def test_a_baseline_that_rounds_by_batches_has_a_wider_limit(
    live: Project, settings: str, limit: str, line: str
) -> None:
    """Twice its own drift is accepted, and not a coarse cache in addition; a given limit stays."""
    live.test(GATE.format(model="asperf-draft", names="'kld'", limit=limit))
    build = write_sabotaged(live.path, "rounds_by_batch")
    result = live.run(
        f"--asperf-baseline={build}", f"--asperf-candidate={build},n_ubatch=128{settings}", "-v"
    )
    result.stdout.fnmatch_lines([line])
    why = "*limits 0.03 nats and 16 % of the top tokens: the baseline's logits of a batch and of *"
    if settings:
        result.stdout.fnmatch_lines([why])


@pytest.mark.usefixtures("short_chunks")
def test_a_baseline_without_a_sound_answer_of_its_own_is_invalid(live: Project) -> None:
    """Candidate and baseline are no further apart than twice the baseline from itself."""
    live.test(GATE.format(model="asperf-draft", names="'kld'", limit=""))
    build = write_sabotaged(live.path, "rounds_wildly_by_batch")
    result = live.run(f"--asperf-baseline={build}", f"--asperf-candidate={build},n_ubatch=64")
    result.stdout.fnmatch_lines(
        ["! *the mean KLD is 0.*, and 0.* in the baseline alone: *< 0.05 *"]
    )


@pytest.mark.usefixtures("short_chunks")
def test_a_token_that_neither_build_allows_is_no_fault(live: Project) -> None:
    """A logit of -∞, such as that of a token for padding, differs from none."""
    live.test(GATE.format(model="asperf-draft", names="'kld', 'ppl', 'logits'", limit=""))
    build = write_sabotaged(live.path, "bans_a_token")
    result = live.run(f"--asperf-baseline={build}", f"--asperf-candidate={build}", "-v")
    result.stdout.fnmatch_lines(["✓ *gate kld *", "✓ *gate ppl *", "✓ *gate logits *"])


@pytest.mark.usefixtures("short_chunks")
def test_a_ban_on_likely_tokens_fails(live: Project) -> None:
    """A token of the text with no probability has no PPL; in the baseline this is INVALID."""
    live.test(GATE.format(model="asperf-draft", names="'kld', 'ppl'", limit=""))
    build = write_sabotaged(live.path, "bans_most_tokens")
    result = live.run(f"--asperf-candidate={build}", "-v")
    result.stdout.fnmatch_lines(["*a token of the text has an NLL of *", "*2 FAIL*"])
    result = live.run(f"--asperf-baseline={build}", "--asperf-candidate=current", "-v")
    result.stdout.fnmatch_lines(["*a token of the text has an NLL of *", "*1 INVALID*"])


def test_binaries_have_the_usual_limit(live: Project, tools: Path) -> None:
    """Their own drift is compared by `logits`, over the half of a text that they score."""
    live.config(engine="llama_tools")
    live.test(GATE.format(model="asperf-draft:Q8_0", names="'kld', 'logits'", limit=""))
    builds = f"--asperf-baseline={tools}", f"--asperf-candidate={tools},type_k=q4_0,type_v=q4_0"
    result = live.run(*builds, "-v")
    result.stdout.fnmatch_lines_random(["✗ *gate kld *< 0.01 *", "✓ *gate logits *"])


@pytest.mark.usefixtures("mlx", "short_chunks")
def test_a_fault_of_half_precision_shows_without_a_gpu(live: Project) -> None:
    """A file of half precision is computed in its own type, which the result names.

    For a file of full precision, MLX's logits pass from process to process as llama.cpp's do.
    """
    live.config(engine="mlx", default_model="asperf-draft", call_timeout_s=120, chunks=5)
    live.test(
        "def test_gate(gate):\n    assert_no_regression(gate('kld'))\n\n"
        "@pytest.mark.quant('F32')\ndef test_wide(gate):\n"
        "    assert_no_regression(gate('ppl', 'kld'))\n"
    )
    coarse = write_sabotaged(live.path, "coarse_halves", "mlx")
    result = live.run(f"--asperf-candidate={coarse}", "-v", "--asperf-report=md:gate.md")
    result.stdout.fnmatch_lines(["*candidate device: *; computed in f16"])
    assert "computed in f16" in (live.path / "gate.md").read_text().partition("what ran")[2]
    result.stdout.fnmatch_lines_random(["✗ *gate kld *", "✓ *gate ppl *", "✓ *gate kld * KLD 0*"])
