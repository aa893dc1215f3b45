"""Types of KV cache against F16 and the same weights, on both engines."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.conftest import Project, marked


def test_a_ladder_on_llama_cpp(live: Project, rows: Callable[..., list[dict[str, Any]]]) -> None:
    """Scores go through the cache: its type shows in KLD, in its size, and in the engine's log."""
    live.test("""
@pytest.mark.kv_ladder("q8_0", "Q4_0", "q8_0/f16")
def test_each(perplexity, kv_type):
    assert perplexity.name == kv_type
    assert perplexity.kld.estimate.point > 0
    assert_ppl_delta(perplexity, below="15%")

@pytest.mark.kv_ladder("q8_0", "q4_0")
def test_all(ladder):
    assert_monotonic(ladder, "kld")
    assert ladder["q8_0"].throughput("tg4@d8") / ladder["f16"].throughput("tg4@d8") >= "1%"
""")
    found = rows()
    by_model = {row["model"]: row for row in found if row["subject"] == "PPL vs an F16 cache"}
    types = {
        "asperf-draft KV q8_0": ("q8_0", "q8_0"),
        "asperf-draft KV q4_0": ("q4_0", "q4_0"),
        "asperf-draft KV q8_0/f16": ("q8_0", "f16"),
    }
    for model, (type_k, type_v) in types.items():
        context = by_model[model]["ran"]["context"]
        assert (context["type_k"], context["type_v"]) == (type_k, type_v)
        assert context["flash_attn"] == "on"
        assert by_model[model]["peak_rss_bytes"] > 10_000_000
    kv_bytes = [by_model[model]["ran"]["context"]["memory_bytes"]["kv"] for model in types]
    # 512 positions of 2 layers with a head of 64, K and V, at 34 / 32, 18 / 32 and 2 bytes.
    expected = [2 * 65536 * 34 / 32, 2 * 65536 * 18 / 32, 65536 * (34 / 32 + 2)]
    assert kv_bytes == pytest.approx(expected, abs=0.011 * 2**20)
    assert {row["outcome"] for row in found if row["outcome"]} == {"PASS"}


@pytest.mark.usefixtures("mlx", "short_chunks")
def test_a_ladder_on_mlx(live: Project, rows: Callable[..., list[dict[str, Any]]]) -> None:
    """The cache is quantized from the first token on, so that the scored text reads it."""
    live.config(engine="mlx", default_model="asperf-draft:F32", repetitions=2, chunks=5)
    live.test("""
@pytest.mark.kv_ladder("8bit", "4bit-g32")
def test_each(perplexity):
    assert perplexity.kld.estimate.point > 0

@pytest.mark.kv_ladder("8bit", "4bit-g32")
def test_all(ladder):
    assert_monotonic(ladder, "kld")
""")
    found = rows()
    by_model = {row["model"]: row for row in found if row["model"]}
    assert set(by_model) == {
        "asperf-draft:F32 KV 8bit on mlx",
        "asperf-draft:F32 KV 4bit-g32 on mlx",
    }
    context = by_model["asperf-draft:F32 KV 4bit-g32 on mlx"]["ran"]["context"]
    assert (context["type_k"], context["type_v"]) == ("4bit-g32", "4bit-g32")
    assert context["memory_bytes"]["weights"] > 1_000_000
    assert [row["outcome"] for row in found if row["outcome"]] == ["PASS"]


@pytest.mark.usefixtures("short_chunks")
def test_types_scored_side_by_side_keep_their_own(live: Project, draft_gguf: Path) -> None:
    """Contexts that are opened at a time are distinguished, though the library has one log."""
    live.config(
        f"[models.one]\ngguf = '{draft_gguf}'\nsettings = {{ threads = 1 }}\n",
        engine="llama_cpp",
        default_model="one",
        chunks=2,
    )
    live.test("""
@pytest.mark.kv_ladder("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
def test_it(ladder):
    for name in ladder.quants:
        context = ladder[name].scored.result().ran.context
        assert (context.type_k, context.type_v) == (name, name)
        assert ladder[name].kld.estimate.point > 0
""")
    live.run().assert_outcomes(passed=1)


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize(
    ("marker", "level", "baseline"),
    [
        ('model("asperf-draft", type_k="q8_0", type_v="q8_0")', "q8_0", "an F16 cache"),
        ('model("asperf-draft:F16", type_k="q8_0")', "q8_0/f16", "an F16 cache"),
        ('model("asperf-draft:Q8_0", type_k="q4_0", type_v="q4_0")', "Q8_0", "F16 KV q4_0"),
    ],
)
def test_one_thing_differs(live: Project, marker: str, level: str, baseline: str) -> None:
    """A model with a cache of its own is compared with F16, unless its weights differ already."""
    live.test(f"""
@pytest.mark.{marker}
def test_it(perplexity):
    assert (perplexity.name, perplexity.scored.baseline) == ({level!r}, {baseline!r})
    assert perplexity.kld.estimate.point > 0
""")
    live.run("--asperf-chunks=2").assert_outcomes(passed=1)


def test_weights_at_a_level(live: Project) -> None:
    """The sweep is of the quant marker's weights, the baseline too."""
    live.test("""
@pytest.mark.quant("Q8_0")
@pytest.mark.kv_ladder("q8_0")
def test_it(ladder, kv_type):
    (rung,) = ladder.rungs.values()
    assert (rung.level, ladder.base.level) == ("Q8_0", "Q8_0")
    assert not ladder.base.spec.settings.kv_name
    assert rung.spec.settings.kv_name == kv_type == "q8_0"
    assert ladder["q8_0"].size <= "1 GiB"
""")
    live.run().assert_outcomes(passed=1)


def test_all_types_are_one_pass(project: Project) -> None:
    """The baseline is scored once for all tests of a session, and no deselected type at all."""
    log = project.path / "f16.log"
    project.script("f16", log=str(log), noise_by_type_k={"q8_0": 0.01, "q4_0": 0.2})
    project.test("""
@pytest.mark.model("fake:F16")
@pytest.mark.kv_ladder("q8_0", "q4_0", "q5_0")
def test_each(perplexity):
    perplexity.ppl.estimate

@pytest.mark.model("fake:F16")
@pytest.mark.kv_ladder("q8_0")
def test_one(ladder):
    assert ladder["q8_0"].kld.estimate.point > 0
""")
    project.run("-k", "not q5_0").assert_outcomes(passed=3, deselected=1)
    # With 6 chunks each: the baseline and two types.
    assert log.read_text().count("score") == 3 * 6


def test_what_cannot_be_is_refused(live: Project) -> None:
    """Its test is an error with the reason; nothing is measured under another type's name."""
    messages = {
        "kv_ladder()": "no type",
        'kv_ladder("q8")': "unknown type of KV cache 'q8'; did you mean 'q8_0'?",
        'kv_ladder("q8_0/q9")': "unknown type of KV cache 'q8_0/q9'",
        'kv_ladder("4bits")': "unknown type of KV cache '4bits'; did you mean '4bit'?",
        'kv_ladder("mxfp4")': "unknown type of KV cache 'mxfp4'",
        'kv_ladder("4bit-g48")': "unknown type of KV cache '4bit-g48'",
        'kv_ladder("f16")': "no type other than the baseline f16",
        'kv_ladder("q8_0", "Q8_0/q8_0")': "q8_0 is named twice",
        'kv_ladder("q8_0", baseline="f32")': "unknown argument 'baseline'",
        'kv_ladder("q8_0", chunks=1)': "chunks takes a whole number from 2",
        "kv_ladder(8)": "write a type of KV cache, as a string",
        'model("asperf-draft", type_k="q9")': "type_k: 'q9' is not usable",
        'model("asperf-draft", kv_bits=7)': "kv_bits takes 2, 3, 4, 5, 6, 8",
        'model("asperf-draft", kv_bits="8")': "kv_bits: '8' is not usable",
        'model("asperf-draft", kv_bits=True)': "kv_bits: True is not usable",
        'model("asperf-draft:F16")': "no KV cache to compare with F16",
        'quant_ladder("Q8_0")\n@pytest.mark.kv_ladder("q8_0")': (
            "both a quant_ladder and a kv_ladder marker"
        ),
    }
    live.rejects(marked("perplexity"), messages, in_setup=True)
    unused = {'kv_ladder("q8_0")': "a kv_ladder marker on a test that uses none of its fixtures"}
    live.rejects(marked(), unused, in_setup=True)


def test_what_llama_cpp_cannot_is_refused(live: Project) -> None:
    """The comparison fails, with the reason, before anything is measured."""
    messages = {
        'model("asperf-draft", kv_bits=8)': "llama.cpp has no kv_bits",
        'kv_ladder("8bit")': "llama.cpp has no kv_bits, kv_group_size",
        'model("asperf-draft", type_v="q8_0", flash_attn="off")': (
            "type_v q8_0 needs flash attention, and flash_attn is off"
        ),
    }
    head = "@pytest.mark.{}\ndef test_it(perplexity):\n    assert perplexity.ppl > 1\n"
    live.rejects(head, messages, "--asperf-chunks=2")


@pytest.mark.usefixtures("mlx")
def test_what_mlx_cannot_is_refused(live: Project) -> None:
    """Before anything is measured, in MLX's own words where it has any."""
    messages = {
        'type_k="q8_0"': "MLX has no type_k",
        "kv_group_size=32": "kv_group_size without kv_bits quantizes nothing",
        "kv_bits=4, kv_group_size=128": "divisible by the quantization group size 128",
    }
    head = '@pytest.mark.model("asperf-draft", engine="mlx", {})\ndef test_it(throughput):\n'
    live.rejects(head + '    throughput("tg4").estimate\n', messages)
