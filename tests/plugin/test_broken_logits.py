"""A model that computes no numbers is INVALID, however fast it does so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_asperf.modelfiles.shipped import shipped_models
from tests.broken_models import BREAKS, broken_folder, broken_gguf

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_asperf.engine_process import EngineBuild
    from tests.plugin.conftest import Project

TESTS = """
@pytest.mark.model({model}{settings})
def test_rate(throughput):
    assert_throughput(throughput("{rate}"), at_least="1 tok/s")

@pytest.mark.model({model}{settings})
def test_gate(gate):
    assert_no_regression(gate("{gated}"))
"""
QUICK = ("--asperf-repetitions=5", "--asperf-max-pairs=5", "--asperf-candidate=current")


@pytest.mark.parametrize(("rate", "gated"), [("tg8", "ttft16"), ("pp16", "tg8")])
@pytest.mark.parametrize("how", BREAKS)
def test_llama_cpp(live: Project, draft_gguf: Path, how: str, rate: str, gated: str) -> None:
    """Each broken file is INVALID in rates and in gates, and says what its logits are."""
    path = broken_gguf(draft_gguf, live.path / f"{how}.gguf", how)
    live.test(TESTS.format(model=f'"{path.name}"', settings=", threads=1", rate=rate, gated=gated))
    result = live.run(*QUICK)
    result.stdout.fnmatch_lines(["test_it.py VV *"])
    result.stdout.fnmatch_lines(
        [
            f"*{rate} {how}.gguf: broken-logits: after a run's last token *",
            f"*{gated} {how}.gguf*: broken-logits: after a run's last token *",
        ]
    )


@pytest.mark.parametrize("how", BREAKS)
def test_mlx(live: Project, mlx: EngineBuild, how: str) -> None:  # noqa: ARG001  # skips without
    """The same weights broken in a folder of MLX's."""
    (draft,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    assert draft.hf_folder is not None
    broken_folder(draft.hf_folder, live.path / how, how)
    live.config(f'[models.broken]\nhf = "{how}"', engine="mlx", max_cv="1000%")
    live.test(TESTS.format(model='"broken"', settings="", rate="pp16", gated="tg8"))
    result = live.run(*QUICK)
    result.stdout.fnmatch_lines(["test_it.py VV *"])
    result.stdout.fnmatch_lines(
        ["*pp16 broken*: broken-logits: *", "*tg8 broken*: broken-logits: *"]
    )


@pytest.mark.parametrize("how", BREAKS)
def test_speculation(live: Project, draft_gguf: Path, how: str) -> None:
    """A broken target is INVALID before a gain is shown."""
    path = broken_gguf(draft_gguf, live.path / f"{how}.gguf", how)
    live.test(f"""
@pytest.mark.speculative(draft="ngram", target="{path.name}", k=2)
def test_it(speculation):
    assert_sd_loss(speculation)
""")
    live.run(*QUICK).stdout.fnmatch_lines(["test_it.py V *", "*the largest logit of a row is *"])


@pytest.mark.parametrize("fault", ["nan", "inf", "overflow"])
def test_what_an_engine_shows_is_judged(project: Project, fault: str) -> None:
    """Any engine that shows such logits is INVALID, also where memory is counted."""
    project.script("f16", faults={"logits": fault})
    project.test(TESTS.format(model='"fake:F16"', settings="", rate="tg8", gated="pp8"))
    result = project.run(*QUICK)
    result.stdout.fnmatch_lines(["test_it.py VV *", "*what to do: *another build*"])


def test_one_level_of_a_ladder(project: Project) -> None:
    """The faster of two levels is not the one that computes nothing."""
    project.script("q8", faults={"logits": "nan"})
    project.test("""
@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")
def test_it(ladder):
    assert_monotonic(ladder, "tg8")
""")
    project.run(*QUICK).stdout.fnmatch_lines(["test_it.py V *", "*tg8 fake:Q8_0: broken-logits: *"])


def test_an_engine_that_shows_none_is_not_invalid(project: Project) -> None:
    """What cannot be seen is not taken for broken."""
    project.script("f16", faults={"logits": "unseen"})
    project.test(TESTS.format(model='"fake:F16"', settings="", rate="tg8", gated="pp8"))
    project.run(*QUICK).assert_outcomes(passed=2)
