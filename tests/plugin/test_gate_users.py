"""Each user's logits are the same alone and among others, or the candidate is a FAIL."""

import pytest

from tests.plugin.conftest import Project
from tests.probability_server import ProbabilityServer
from tests.sabotaged_library import write_sabotaged

pytestmark = pytest.mark.usefixtures("short_chunks")

GATE = """
@pytest.mark.model("{model}", threads=1)
def test_gate(gate):
    assert_no_regression(gate({names}))
"""

QUANTITY = """
@pytest.mark.model("asperf-draft", threads=1)
def test_users(model):
    assert model.kld("logits@c4") <= "0.02 nats"
    assert model.kld("logits@c4").largest <= 1
"""


def test_a_build_that_computes_one_sequence_of_a_batch_fails(live: Project) -> None:
    """It is right for a single sequence, as in every other check."""
    names = "'logits@c4', 'logits', 'ppl'"
    live.test(GATE.format(model="asperf-draft", names=names))
    result = live.run(f"--asperf-candidate={write_sabotaged(live.path, 'first_of_several')}", "-v")
    result.stdout.fnmatch_lines(["✓ *gate logits *", "✓ *gate ppl *", "✗ *gate logits@c4 *"])


def test_a_last_user_who_gets_another_ones_replies_fails(live: Project) -> None:
    """Prompts are right for all users, and replies for all but one; that user is named."""
    live.test(GATE.format(model="asperf-draft", names="'logits@c4', 'logits'"))
    result = live.run(f"--asperf-candidate={write_sabotaged(live.path, 'last_of_several')}", "-v")
    result.stdout.fnmatch_lines(["✓ *gate logits *", "✗ *gate logits@c4 *"])
    result.stdout.fnmatch_lines(["*candidate: *at position * of user 4*"])


def test_a_user_with_sharper_logits_fails(live: Project) -> None:
    """A tenth too large, they have a KLD within the limits."""
    live.test(GATE.format(model="asperf-draft", names="'logits@c4', 'logits'"))
    result = live.run(f"--asperf-candidate={write_sabotaged(live.path, 'sharp_user')}", "-v")
    result.stdout.fnmatch_lines(["✓ *gate logits *", "✗ *gate logits@c4 *"])
    result.stdout.fnmatch_lines(
        ["*mean KLD of one user 0.01*, scale error of one user's logits 1? %*"]
    )


def test_users_whose_number_falls_fail(live: Project) -> None:
    """Four users have their own logits until one of them has the reply; two or three do not."""
    live.test(GATE.format(model="asperf-draft", names="'logits@c4', 'logits'"))
    result = live.run(f"--asperf-candidate={write_sabotaged(live.path, 'two_or_three')}", "-v")
    result.stdout.fnmatch_lines(["✓ *gate logits *", "✗ *gate logits@c4 *"])
    result.stdout.fnmatch_lines(["*candidate: *at position * of user *"])


@pytest.mark.parametrize("how", ["of_one_length", "short_ones_of_several"])
def test_users_with_texts_of_several_lengths(live: Project, how: str) -> None:
    """Users of one short length each have their own logits, and others do not."""
    live.test(GATE.format(model="asperf-draft", names="'logits@c4', 'logits'"))
    result = live.run(f"--asperf-candidate={write_sabotaged(live.path, how)}", "-v")
    result.stdout.fnmatch_lines(["✓ *gate logits *", "✗ *gate logits@c4 *"])
    result.stdout.fnmatch_lines(["*candidate: *at position * of * of user *"])


@pytest.mark.parametrize(
    ("harm", "mark"), [("", "✓"), ("prompts late", "✗"), ("mixes lengths", "✗")]
)
def test_users_of_a_server_have_several_lengths_and_prompt_while_others_decode(
    project: Project, harm: str, mark: str
) -> None:
    """Prompts of one length that are all read before any token is decoded would be right."""
    result = served(project, "logits@c4", ProbabilityServer(256), ProbabilityServer(256, harm))
    result.stdout.fnmatch_lines([f"{mark} *gate logits@c4 *"])


@pytest.mark.parametrize(
    ("harm", "n_ctx", "lines"),
    [
        ("", 4096, ["✓ *gate logits *", "*KLD from the baseline after 1024 tokens 0.0 *"]),
        ("forgets", 4096, ["*look for a context that is lost within 1024*", "✗ *gate logits *"]),
        ("forgets", 600, ["✓ *gate logits *", "*KLD from the baseline after 599 tokens 0.0 *"]),
    ],
)
def test_a_server_that_forgets_the_beginning_of_a_long_prompt_fails(
    project: Project, harm: str, n_ctx: int, lines: list[str]
) -> None:
    """It forgets in both ways that are compared. Prompts are shorter if there is less room."""
    servers = ProbabilityServer(256, n_ctx=n_ctx), ProbabilityServer(256, harm, n_ctx)
    served(project, "logits", *servers).stdout.fnmatch_lines(lines)


def served(project: Project, check: str, *servers: ProbabilityServer) -> pytest.RunResult:
    """Gate two servers on one check."""
    for server in servers:
        server.step_s = 0.01 * ("@c" in check)
    project.config(engine="openai", default_model="asperf-target")
    project.test(f"def test_gate(gate):\n    assert_no_regression(gate('{check}'))\n")
    urls = [f"http://{server.endpoint.authority}" for server in servers]
    options = zip(("--asperf-baseline", "--asperf-candidate"), urls, strict=True)
    return project.run(*map("=".join, options), "-v")


def test_a_fault_of_both_builds_is_invalid(live: Project) -> None:
    """Equal builds never FAIL; a candidate without the fault passes."""
    live.test(GATE.format(model="asperf-draft", names="'logits@c4'"))
    faulty = write_sabotaged(live.path, "first_of_several")
    result = live.run(f"--asperf-baseline={faulty}", f"--asperf-candidate={faulty}", "-v")
    result.stdout.fnmatch_lines(["*baseline-drifts: *in the baseline*", "*1 INVALID*"])
    result = live.run(f"--asperf-baseline={faulty}", "--asperf-candidate=current", "-v")
    result.stdout.fnmatch_lines(["✓ *gate logits@c4 *"])


@pytest.mark.parametrize("model", ["asperf-draft", "asperf-draft:Q4_K_M"])
def test_users_of_a_sound_build_get_their_own_logits(live: Project, model: str) -> None:
    """Kernels for several columns round differently, by less than is accepted."""
    live.test(GATE.format(model=model, names="'logits@c4', 'logits@c2'"))
    result = live.run("--asperf-candidate=current", "-v")
    result.stdout.fnmatch_lines(["✓ *gate logits@c4 *", "✓ *gate logits@c2 *"])


@pytest.mark.usefixtures("mlx")
def test_mlx(live: Project) -> None:
    """Users of several lengths have their own logits in mlx-lm's batches; caches have no bits."""
    live.config(engine="mlx", default_model="asperf-draft:F32", call_timeout_s=120)
    live.test(
        "def test_gate(gate):\n    assert_no_regression(gate('logits@c4', 'logits@c2'))\n\n"
        "@pytest.mark.model('asperf-draft:F32', kv_bits=8)\ndef test_bits(gate):\n"
        "    assert_no_regression(gate('logits@c4'))\n"
    )
    result = live.run("--asperf-candidate=current", "-v")
    result.stdout.fnmatch_lines(["✓ *gate logits@c4 *", "✓ *gate logits@c2 *"])
    result.stdout.fnmatch_lines(["*mlx-lm has no batches with a quantized KV cache*"])


@pytest.mark.usefixtures("mlx")
@pytest.mark.parametrize(
    "how",
    [
        *("sees_padding", "three_see_padding", "last_two_see_padding", "one_sees_padding"),
        *("other_cells_if_long", "joins_with_empty_cells", "keeps_those_who_left", "sharp_user"),
    ],
)
def test_mlx_batches_that_mix_users_up_fail(live: Project, how: str) -> None:
    """They are right for a user alone, and for users whose prompts are equally long and short."""
    live.config(engine="mlx", default_model="asperf-draft:F32", call_timeout_s=120)
    live.test("def test_gate(gate):\n    assert_no_regression(gate('logits@c4', 'logits'))\n")
    result = live.run(f"--asperf-candidate={write_sabotaged(live.path, how, 'mlx')}", "-v")
    result.stdout.fnmatch_lines(["✓ *gate logits *", "✗ *gate logits@c4 *"])
    result.stdout.fnmatch_lines(["*candidate: *at position * of reply *"])


@pytest.mark.usefixtures("mlx")
def test_mlx_batches_as_a_quantity(live: Project) -> None:
    """The KLD of a sound batch is none; that of a batch with one user's padding is not."""
    live.config(engine="mlx", call_timeout_s=120)
    live.test(QUANTITY.replace('"asperf-draft", threads=1', '"asperf-draft:F32"'))
    live.run("-v").stdout.fnmatch_lines(["✓ *KLD of logits@c4 *", "✓ *largest KLD of *"])
    sabotaged = write_sabotaged(live.path, "one_sees_padding", "mlx")
    live.run(f"--asperf-python={sabotaged}", "-v").stdout.fnmatch_lines(["✗ *KLD of logits@c4 *"])


def test_several_sequences_as_a_quantity(live: Project) -> None:
    """A sound build is within the limit; one that computes the first sequence alone is not."""
    live.test(QUANTITY)
    live.run("-v").stdout.fnmatch_lines(["✓ *KLD of logits@c4 *", "✓ *largest KLD of *"])
    sabotaged = write_sabotaged(live.path, "first_of_several")
    result = live.run(f"--asperf-python={sabotaged}", "-v")
    result.stdout.fnmatch_lines(["*users together and alone disagree*", "✗ *KLD of logits@c4 *"])


def test_a_kld_of_something_else_is_refused(live: Project) -> None:
    """The message names the checks that it has, and where the other KLDs are."""
    live.test('def test_it(model):\n    assert model.kld("ppl") < 1\n')
    live.run().stdout.fnmatch_lines(["*name logits, logits@d1024, logits@c4 or logits@turns*"])
