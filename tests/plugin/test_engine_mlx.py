"""Tests of a user, measured on MLX: markers, quantizations, the choice of the engine."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.plugin.conftest import Project

pytestmark = pytest.mark.usefixtures("mlx")


@pytest.fixture
def small(live: Project) -> Project:
    """A project that measures little, because MLX is slow without a GPU."""
    live.config(engine="mlx", default_model="asperf-draft", repetitions=5, chunks=5, max_cv="1000%")
    return live


@pytest.mark.usefixtures("short_chunks")
def test_a_ladder_of_mlx_levels(small: Project, rows: Callable[..., list[dict[str, Any]]]) -> None:
    """PPL, KLD and size of quantizations by their names on MLX, with each row's run record."""
    small.config(engine="mlx", default_model="asperf-draft", chunks=8)
    small.test("""
@pytest.mark.quant_ladder("8bit", "4BIT-g32")
def test_each(perplexity, quant):
    assert perplexity.name == quant
    # The draft is small: 4 bits cost it +93 %, 8 bits +0.3 %.
    assert_ppl_delta(perplexity, below={"8bit": "2%", "4bit-g32": "150%"}[quant])

@pytest.mark.quant_ladder("8bit", "4bit-g32")
def test_all(ladder):
    assert_monotonic(ladder, "kld")
    assert_pareto_optimal(ladder, "8bit", objectives=("size", "kld"))
""")
    found = rows()
    by_model = {row["model"]: row for row in found if row["model"]}
    assert set(by_model) == {
        "asperf-draft:8bit on mlx",
        "asperf-draft:4bit-g32 on mlx",
    }
    assert [row["outcome"] for row in found if row["outcome"]] == ["PASS"] * 4
    row = by_model["asperf-draft:8bit on mlx"]
    assert row["ran"]["library"] == "mlx-lm"
    assert row["ran"]["loaded"]["quantization"] == {"bits": 8, "group_size": 64, "mode": "affine"}
    assert row["ran"]["loaded"]["load_ns"] > 0
    assert 1_000_000 < row["size_bytes"] < 2_000_000
    assert row["ran"]["context"]["peak_memory_bytes"] > 0


def test_throughput_and_bandwidth(
    small: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """Rates with their warm-up, compared with the bandwidth by the bytes of the folder."""
    small.test("""
@pytest.mark.model("asperf-draft:8bit")
def test_it(throughput):
    assert 1e-4 <= throughput("tg4@d8").bandwidth_utilization <= "1000%"
""")
    reading, verdict = rows("--asperf-engine=mlx")
    assert verdict["outcome"] == "PASS"
    assert len(reading["warm_ups"]) in {1, 5}
    assert 1_000_000 < reading["bytes_per_token"] < 3_000_000


@pytest.mark.parametrize("how", ["option", "file", "model", "marker"])
def test_ways_to_choose_it(live: Project, how: str) -> None:
    """The session's engine, the model's own, and the test's, each over the one before it."""
    arguments = ["--asperf-engine=mlx"] if how == "option" else []
    table = '[models.mine]\nhf = "mine"\nengine = "mlx"\n' if how == "model" else ""
    engine = "mlx" if how == "file" else "llama_cpp"
    address = '"mine"' if how == "model" else '"asperf-draft"'
    marker = f'{address}, engine="mlx"' if how == "marker" else address
    live.config(table, engine=engine)
    live.test(f"""
@pytest.mark.model({marker})
def test_it(model):
    assert model.variant.engine == "mlx"
    assert model.variant.measurement.runner.describe().engine == "mlx"
""")
    live.run(*arguments).assert_outcomes(passed=1)


def test_two_engines_in_one_session(live: Project) -> None:
    """Each test on its engine; the tables distinguish them."""
    live.config(engine="llama_cpp", repetitions=1)
    live.test("""
@pytest.mark.model("asperf-draft:F16")
def test_one(throughput):
    throughput("tg4").estimate

@pytest.mark.model("asperf-draft:F16", engine="mlx")
def test_other(throughput):
    throughput("tg4").estimate
""")
    result = live.run()
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines_random(
        ["   tg4 asperf-draft:F16  *", "   tg4 asperf-draft:F16 on mlx  *"]
    )


def test_settings_of_one_engine(live: Project) -> None:
    """A model that runs on both names the engine of its settings."""
    live.config(
        f'[models.both]\nhf = "{_shipped_draft()}"\n'
        "settings = { n_batch = 64, llama_cpp = { threads = 1 } }\n",
        engine="llama_cpp",
        repetitions=1,
    )
    live.test(
        '@pytest.mark.model("both")\ndef test_it(throughput):\n    throughput("pp64").estimate\n'
    )
    for engine in ("mlx", "llama_cpp"):
        live.run(f"--asperf-engine={engine}").assert_outcomes(passed=1)


def _shipped_draft() -> str:
    from pytest_asperf.modelfiles.hub_cache import shipped_models

    (draft,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    return str(draft.hf_folder)


def test_a_gate_on_mlx_finds_a_slowdown(small: Project) -> None:
    """Two builds of one interpreter, one slowed: the machinery of gates is the same."""
    small.test("""
@pytest.mark.model("asperf-draft:F32")
def test_it(gate):
    assert_no_regression(gate("pp16"), tolerance="50%")
""")
    result = small.run("--asperf-candidate=current,slow_by=2", "--asperf-max-seconds=60")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["✗ *gate pp16 asperf-draft:F32 on mlx *"])


def test_speculation_is_measured_on_it(
    small: Project, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """The marker, assertions and rows of llama.cpp: gain, acceptance, C(k), both run records."""
    prompts = {"code": ["def area(width, height):\n"]}
    (small.path / "prompts.json").write_text(json.dumps(prompts))
    mark = '@pytest.mark.speculative(draft={}, target="asperf-draft{}:F32", k=2, n_tokens=4, '
    mark += 'prompts="prompts.json"{})\n'
    small.test(
        mark.format('"asperf-draft:8bit"', "", "")
        + "def test_gain(speculation):\n    assert_sd_gain(speculation, when_ratio=1000)\n"
        + mark.format('"asperf-draft:8bit"', "", "")
        + "def test_greedy(speculation):\n    assert_lossless(speculation)\n"
        + mark.format('"ngram"', "+layers=1", "")
        + "def test_lookup(speculation):\n    assert speculation.gain.estimate.n == 5\n"
        + mark.format('"ngram"', "+hybrid", ', rollback="trim"')
        + "def test_hybrid(speculation):\n    assert_sd_gain(speculation)\n"
    )
    found = rows("--asperf-max-pairs=5", "--asperf-seed=5")
    verdicts = [row for row in found if row["outcome"]]
    gain = verdicts[0]["figures"][0]["estimate"]
    expected = "FAIL" if gain["low"] > 0 else "PASS"
    assert [row["outcome"] for row in verdicts] == [expected, "PASS", "INVALID"]
    gains = [row for row in found if row["subject"] == "SD gain" and not row["outcome"]]
    raw = gains[0]
    assert set(raw["verify"]) == {str(size) for size in range(1, 10)}
    assert raw["contexts"]["target"]["rollback"] == "trim"
    assert all(run["n_tokens"] == 4 for pair in raw["prompts"] for run in pair)
