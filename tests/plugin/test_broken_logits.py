"""A model that computes no numbers is INVALID, however fast it does so."""

from pathlib import Path

import pytest

from pytest_asperf.engine_process import EngineBuild
from pytest_asperf.modelfiles.hub_cache import shipped_models
from tests.broken_models import BREAKS, FLAT, broken_folder, broken_gguf
from tests.plugin.conftest import Project
from tests.sabotaged_library import write_sabotaged

TESTS = """
models = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.model(n{settings})) for n in {models}]
)

@models
def test_rate(throughput, name):
    assert throughput("{rate}") >= "1 tok/s"

@models
def test_gate(gate, name):
    assert_no_regression(gate("{gated}"))
"""
#: MLX needs a second to start: tests of one model follow one another, and none is gated.
MLX_TESTS = """
@pytest.mark.parametrize(
    ("name", "rate"),
    [
        pytest.param(n, r, marks=pytest.mark.model(n), id=n + r)
        for n in {models} for r in ("pp16", "tg8")
    ],
)
def test_rate(throughput, name, rate):
    assert throughput(rate) >= "1 tok/s"
"""
QUICK = ("--asperf-repetitions=1", "--asperf-max-pairs=1", "--asperf-candidate=current")


@pytest.fixture(scope="module")
def broken_files(tmp_path_factory: pytest.TempPathFactory, draft_gguf: Path) -> list[Path]:
    """Files of the draft, each broken in one of the ways and named after it."""
    folder = tmp_path_factory.mktemp("broken")
    return [broken_gguf(draft_gguf, folder / f"{how}.gguf", how) for how in BREAKS]


@pytest.fixture
def broken(live: Project, broken_files: list[Path]) -> Project:
    """A project with the broken files."""
    for file in broken_files:
        (live.path / file.name).hardlink_to(file)
    return live


@pytest.mark.parametrize(("rate", "gated"), [("tg8", "ttft16"), ("pp16", "tg8")])
def test_llama_cpp(broken: Project, rate: str, gated: str) -> None:
    """Each broken file is INVALID in rates and in gates, with its logits' fault."""
    models = [f"{how}.gguf" for how in BREAKS]
    broken.test(TESTS.format(models=models, settings=", threads=1", rate=rate, gated=gated))
    result = broken.run(*QUICK)
    result.stdout.fnmatch_lines([f"test_it.py {'VV' * len(BREAKS)} *"])
    for name in models:
        for workload in (rate, gated):
            result.stdout.fnmatch_lines(
                [f"*{workload} {name}*: broken-logits: after a run's last token *"]
            )


def test_mlx(live: Project, mlx: EngineBuild) -> None:  # noqa: ARG001  # skips without
    """Equal weights broken in folders of MLX's; a gate handles them as it does llama.cpp's."""
    (draft,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    assert draft.hf_folder is not None
    for how in BREAKS:
        broken_folder(draft.hf_folder, live.path / how, how)
    tables = "\n".join(f'[models.{how}]\nhf = "{how}"' for how in BREAKS)
    live.config(tables, engine="mlx", call_timeout_s=120, max_cv="1000%")
    live.test(MLX_TESTS.format(models=list(BREAKS)))
    result = live.run(*QUICK)
    result.stdout.fnmatch_lines([f"test_it.py {'VV' * len(BREAKS)} *"])
    for how in BREAKS:
        for workload in ("pp16", "tg8"):
            result.stdout.fnmatch_lines([f"*{workload} {how}*: broken-logits: *"])


def test_speculation(broken: Project) -> None:
    """A broken target is INVALID before a gain is shown."""
    broken.test(
        "".join(
            f"""
@pytest.mark.speculative(draft="ngram", target="{how}.gguf", k=2)
def test_{how}(speculation):
    assert speculation.gain < 0
"""
            for how in BREAKS
        )
    )
    broken.run(*QUICK).stdout.fnmatch_lines(
        [
            f"test_it.py {'V' * len(BREAKS)} *",
            *(f"! *::test_{how} *logit* of a row *" for how in BREAKS),
        ]
    )


PPL_TESTS = """
models = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.model(n)) for n in {models}]
)

@models
@pytest.mark.quant("{level}")
def test_ppl(perplexity, name):
    assert_ppl_delta(perplexity, below="1%")

@models
def test_gate(gate, name):
    assert_no_regression(gate("ppl"))
"""


@pytest.mark.usefixtures("short_chunks")
def test_equal_logits_are_no_scores(broken: Project) -> None:
    """Two builds of a model that prefers no token agree, so PPL is INVALID and not within 1 %."""
    models = [f"{how}.gguf" for how in FLAT]
    broken.test(PPL_TESTS.format(models=models, level="Q8_0"))
    result = broken.run(*QUICK, "--asperf-chunks=1")
    result.stdout.fnmatch_lines([f"test_it.py {'VV' * len(FLAT)} *"])
    result.stdout.fnmatch_lines(["*broken-logits*all 2048 logits of a row are equal*"])


@pytest.mark.usefixtures("mlx", "short_chunks")
def test_equal_logits_are_no_scores_on_mlx(live: Project) -> None:
    """This is also true for folders that MLX scores."""
    (draft,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    assert draft.hf_folder is not None
    broken_folder(draft.hf_folder, live.path / "zero", "zero_norm")
    live.config('[models.zero]\nhf = "zero"', engine="mlx", call_timeout_s=120, max_cv="1000%")
    live.test(PPL_TESTS.format(models=["zero"], level="4bit"))
    result = live.run(*QUICK, "--asperf-chunks=1")
    result.stdout.fnmatch_lines(["test_it.py VV *", "*all 2048 logits of a row are equal*"])


@pytest.mark.parametrize("base", ["current", ""])
def test_equal_logits_agree_in_no_check(live: Project, base: str) -> None:
    """Two ways of computing zeros have a KLD of 0: a FAIL, and INVALID if the baseline has them."""
    zero = write_sabotaged(live.path, "zero_logits")
    live.test("""
@pytest.mark.model("asperf-draft", threads=1)
@pytest.mark.parametrize("name", ["logits", "logits@d128", "logits@c4", "logits@turns"])
def test_it(gate, name):
    assert_no_regression(gate(name))
""")
    result = live.run(f"--asperf-baseline={base or zero}", f"--asperf-candidate={zero}")
    result.stdout.fnmatch_lines([f"test_it.py {4 * ('F' if base else 'V')} *"])


@pytest.mark.parametrize("fault", ["nan", "inf", "overflow", "flat"])
def test_what_an_engine_shows_is_judged(project: Project, fault: str) -> None:
    """Any engine that shows such logits is INVALID, also where memory is counted."""
    project.script("f16", faults={"logits": fault})
    project.test(TESTS.format(models=["fake:F16"], settings="", rate="tg8", gated="pp8"))
    result = project.run(*QUICK)
    result.stdout.fnmatch_lines(["test_it.py VV *", "*what to do: *another build*"])


def test_one_level_of_a_ladder(project: Project) -> None:
    """The faster of two quantizations is not the one that computes nothing."""
    project.script("q8", faults={"logits": "nan"})
    project.test("""
@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")
def test_it(ladder):
    assert_monotonic(ladder, "tg8")
""")
    project.run(*QUICK).stdout.fnmatch_lines(["test_it.py V *", "*tg8 fake:Q8_0: broken-logits: *"])


def test_an_engine_that_shows_none_is_not_invalid(project: Project) -> None:
    """An invisible fault does not count as broken."""
    project.script("f16", faults={"logits": "unseen"})
    project.test(TESTS.format(models=["fake:F16"], settings="", rate="tg8", gated="pp8"))
    project.run("--asperf-candidate=current").assert_outcomes(passed=2)
