"""`--asperf-role`, and tests with model slots."""

import pytest

from tests.plugin.conftest import Project

_NAMES = "def test_it(model):\n    assert model.label == {label!r}\n"
_TARGET = '@pytest.mark.model("@target")\n'


@pytest.mark.parametrize(
    ("options", "label"),
    [
        (("--asperf-role=target=fake:Q8_0",), "fake:Q8_0"),
        (("--asperf-role", "target=fake", "--asperf-role", "draft=fake:Q4_K_M"), "fake"),
        (("--asperf-model=fake:Q4_K_M",), "fake:Q4_K_M"),
        (("--asperf-model=fake:Q4_K_M", "--asperf-role=target=fake:F16"), "fake:F16"),
        (("--asperf-role=target=./some.gguf",), "some.gguf"),
        ((), "other:Q8_0"),
    ],
)
def test_the_model_that_has_a_role(project: Project, options: tuple[str, ...], label: str) -> None:
    """Options go before the file's table, and the slot before the default model."""
    project.config('[models.other]\nfiles = { Q8_0 = "q8.json" }\n', slots={"target": "other:Q8_0"})
    text = (project.path / "asperf.toml").read_text()
    table = text.replace('slots = {"target": "other:Q8_0"}', 'slots = { target = "other:Q8_0" }')
    (project.path / "asperf.toml").write_text(table)
    project.test(_TARGET + _NAMES.format(label=label))
    project.run(*options).assert_outcomes(passed=1)


_ASKING = """
@pytest.mark.speculative(draft="@draft", target="@target")
def test_draft(speculation):
    assert_sd_gain(speculation)

@pytest.mark.model("@target")
@pytest.mark.quant("Q2_K")
def test_level(perplexity):
    assert_ppl_delta(perplexity, below="1%")

@pytest.mark.model("@target")
def test_context(throughput):
    throughput("tg8@d100000").estimate

@pytest.mark.model("@target")
@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")
def test_ratio_of_contexts(ladder):
    q8, q4 = (ladder[q].throughput("tg8@d100000") for q in ladder.quants)
    assert q8 / q4 >= 0.5

@pytest.mark.model("@target")
@pytest.mark.quant_ladder("@small:Q8_0", "@target:Q4_K_M")
def test_rung(ladder):
    assert_monotonic(ladder, "kld")

@pytest.mark.model("@target")
@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")
def test_has_all(ladder):
    assert_monotonic(ladder, "kld")
"""
_WITHOUT_BASELINE = '[models.alone]\nfiles = { Q8_0 = "q8.json", Q4_K_M = "q4.json" }\n'


def test_what_is_lacking_skips_with_the_line_that_fills_it(project: Project) -> None:
    """A slot without a model, or a model without the quantization; the rest of the tests run."""
    project.test(_ASKING)
    result = project.run("--asperf-role=target=fake:Q8_0", "-rs")
    result.assert_outcomes(passed=1, skipped=5)
    draft = "no model is the draft (a faster model of the target's vocabulary)"
    small = "no model is the small (the smallest of three models at one quantization)"
    result.stdout.fnmatch_lines_random(
        [
            f"SKIPPED*{draft}: --asperf-role draft=MODEL",
            f"SKIPPED*{small}: --asperf-role small=MODEL",
            "SKIPPED*'fake' has no file for quantization Q2_K; *: --asperf-role target=MODEL*",
            "SKIPPED*tg8@d100000 needs a context of 1000* and fake:Q8_0 was trained on 4096; *",
            "SKIPPED*the engine reported an error (context): *: --asperf-role target=MODEL*",
            "asperf: 5 tests skipped: *",
        ]
    )


def test_a_ladder_without_its_baseline_is_skipped(project: Project) -> None:
    """A published set of quantized files has no F16 to compare with; speeds need none."""
    project.config(_WITHOUT_BASELINE)
    project.test(
        _TARGET + '@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")\ndef test_it(ladder):\n'
        '    assert_monotonic(ladder, "tg8")\n    assert_monotonic(ladder, "kld")\n'
    )
    result = project.run("--asperf-role=target=alone", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*F16*name another model: --asperf-role target=MODEL"])
    assert "tg8" in result.stdout.str()


@pytest.mark.parametrize(
    ("marker", "told"),
    [
        ('model("alone:Q2_K")', "*model 'alone' has no file for quantization Q2_K*"),
        ('model("@targt")', "*unknown model slot 'targt'; did you mean 'target'?*"),
        ('model("@draft")', "*there is no script *missing.gguf*"),
    ],
)
def test_a_mistake_is_no_reason_to_skip(project: Project, marker: str, told: str) -> None:
    """A quantization of a named model, an unknown slot, and a slot's missing file."""
    project.config(_WITHOUT_BASELINE)
    project.test(
        f"@pytest.mark.{marker}\ndef test_it(throughput):\n    throughput('tg8').estimate\n"
    )
    result = project.run("--asperf-role=draft=missing.gguf")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([told])
