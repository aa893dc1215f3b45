"""A prompt's logits are the same after other prompts and on its own, or the candidate is a FAIL."""

import pytest

from tests.plugin.conftest import Project
from tests.sabotaged_library import write_sabotaged

pytestmark = pytest.mark.usefixtures("short_chunks")

GATE = """
@pytest.mark.model({model}, threads=1)
def test_gate(gate):
    assert_no_regression(gate({names}))
"""


@pytest.mark.parametrize(
    "how",
    ["stale_cells", "stale_cells_of_long_prompts", "forgets_the_beginning", "drops_too_much"],
)
def test_a_build_that_keeps_the_wrong_cells_fails(live: Project, how: str) -> None:
    """It is right if a prompt is the first, as in every other check."""
    names = "'logits@turns', 'logits', 'ppl', 'logits@d128'"
    live.test(GATE.format(model="'asperf-draft'", names=names))
    result = live.run(f"--asperf-candidate={write_sabotaged(live.path, how)}", "-v")
    right = [f"✓ *gate {name} *" for name in ("logits", "ppl", "logits@d128")]
    result.stdout.fnmatch_lines([*right, "✗ *gate logits@turns *"])
    result.stdout.fnmatch_lines(["*candidate: *at position * of turn *", "*keeps of an earlier*"])


@pytest.mark.parametrize(
    "model",
    ["'asperf-draft:Q4_K_M'", "'asperf-draft', flash_attn='on', type_k='q8_0', type_v='q8_0'"],
)
def test_turns_of_a_sound_build_have_the_logits_of_fresh_prompts(live: Project, model: str) -> None:
    """Computing in other batches rounds differently, by less than the accepted amount."""
    live.test(GATE.format(model=model, names="'logits@turns'"))
    result = live.run("--asperf-candidate=current", "-v")
    result.stdout.fnmatch_lines(["✓ *gate logits@turns *"])


def test_what_llama_cannot_be_asked_for_is_an_error(live: Project) -> None:
    """The wrapper has no word for leaving flash attention to llama.cpp."""
    model = "'asperf-draft', flash_attn='auto'"
    live.test(GATE.format(model=model, names="'logits@turns'"))
    result = live.run("--asperf-candidate=current")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*has flash attention on or off, not auto*"])


@pytest.mark.usefixtures("mlx")
def test_mlx(live: Project) -> None:
    """The cache is trimmed to two prompts' common part, or the build fails in this check alone."""
    live.config(engine="mlx", default_model="asperf-draft:F32", call_timeout_s=120)
    gate = "def test_gate(gate):\n    assert_no_regression(gate({}))\n"
    live.test(gate.format("'logits@turns'"))
    result = live.run("--asperf-candidate=current", "-v")
    result.stdout.fnmatch_lines(["✓ *gate logits@turns *"])
    live.test(gate.format("'logits@turns', 'logits'"))
    for how in ("stale_cells", "drops_one_less"):
        stale = write_sabotaged(live.path, how, "mlx")
        result = live.run(f"--asperf-candidate={stale}", "-v")
        result.stdout.fnmatch_lines(["✓ *gate logits *", "✗ *gate logits@turns *"])
    # In all replies together, one stale token is less than is accepted.
    result.stdout.fnmatch_lines(["*mean KLD 0.01* nats*, mean KLD of one reply 0.0* nats"])
