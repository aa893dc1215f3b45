"""The fit of a model: by its sizes on any hardware, by engines' allocations on this machine."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.conftest import Project

#: By the sizes, which contain the engines' own count: weights to 3 %, because a file keeps vectors
#: and small matrices in other types than its quantization's; the cache to a log's rounding.
WEIGHTS = 0.03
KV = 0.02


@pytest.mark.parametrize("types", ["", 'type_k="q8_0", type_v="q8_0"', 'type_k="q4_0"'])
def test_llama_cpp_allocates_what_is_predicted(live: Project, types: str) -> None:
    """Weights and cache, at several contexts and types of cache.

    At the quantization that no processor repacks: AMX would repack F16.
    """
    _hold_prediction(live, "asperf-target:F32", types, (200, 300))


@pytest.mark.usefixtures("mlx")
@pytest.mark.parametrize("types", ["", "kv_bits=8", "kv_bits=4, kv_group_size=32"])
def test_mlx_allocates_what_is_predicted(live: Project, types: str) -> None:
    """For MLX, whose unquantized numbers have its compute type."""
    settings = ", ".join(filter(None, ('engine="mlx"', types)))
    # MLX counts to the byte, so the smaller model shows it as well.
    _hold_prediction(live, "asperf-draft:F16", settings, (64, 300))


def _hold_prediction(live: Project, model: str, settings: str, contexts: tuple[int, ...]) -> None:
    live.test(f"""
from pytest_asperf.api.memory import measured_memory
from pytest_asperf.verdicts.memory import expected_demand

@pytest.mark.model("{model}", {settings})
@pytest.mark.parametrize("context", {contexts})
def test_it(memory, hardware, context):
    held = memory(context)
    result = measured_memory(held.variant, context)
    expected = expected_demand(held.variant.ref, result)
    assert result.memory.weights == pytest.approx(expected.weights_bytes, rel={WEIGHTS})
    assert result.memory.kv == pytest.approx(expected.kv_bytes, rel={KV})
    assert held.compute > "1 kB"
    verdict = assert_fits(held, hardware)
    assert not verdict.guards
""")
    live.run().assert_outcomes(passed=len(contexts))


def test_memory_against_limits(live: Project, rows: Callable[..., list[dict[str, Any]]]) -> None:
    """The engine's count is exact; its parts and the peak of the process have limits as well."""
    claims = {
        "assert_fits(memory(256), hardware)": "PASS",
        'assert memory(256) <= "8 MiB"': "PASS",
        'assert memory(256).weights < "4 MiB"': "FAIL",
        'assert memory(256).kv <= "0.14 MiB"': "PASS",
        'assert memory(256).peak_rss >= "10 MB"': "PASS",
        "assert memory(256).kv / memory(128).kv < '210%'": "PASS",
        "assert memory(256).kv / memory.with_f16_cache(128).kv > 3": "FAIL",
    }
    live.claims('@pytest.mark.quant("F32")\ndef test_it(memory, hardware):\n    ', claims)
    reading, verdict, *_ = found = rows()
    outcomes = [row["outcome"] for row in found if row["outcome"]]
    assert outcomes == list(claims.values())
    assert reading["subject"] == "memory at 256 tokens"
    assert reading["measured"].startswith("weights 4.75 MiB, KV 0.12")
    # To the hundredth of a MiB that the log has.
    assert reading["kv_bytes"] == pytest.approx(131072, abs=5300)
    assert reading["peak_rss_bytes"] > 10_000_000
    stated = reading["ran"]["context"]["memory_bytes"]
    assert stated == {key: reading[f"{key}_bytes"] for key in ("weights", "kv", "compute")}
    assert (verdict["outcome"], verdict["source"]) == ("PASS", "live")


def test_by_sizes_alone(live: Project, rows: Callable[..., list[dict[str, Any]]]) -> None:
    """For other hardware nothing runs, and the row is marked as computed."""
    live.test("def test_it(model, hardware):\n    assert_fits(model, hardware, context=2048)\n")
    (verdict,) = rows("--asperf-hardware=m2ultra")
    assert (verdict["outcome"], verdict["source"]) == ("PASS", "predicted")
    assert verdict["subject"] == "fit of asperf-draft with a context of 2048 tokens on m2ultra-76:"


@pytest.mark.parametrize(
    ("weights_gb", "context", "outcome"), [(130, 128, "FAIL"), (100, 128, "PASS")]
)
def test_the_share_of_shared_memory(
    live: Project, weights_gb: int, context: int, outcome: str
) -> None:
    """Weights of 130 GB are more than 60 % of an M2 Ultra's 192 GB, and 100 GB are not."""
    _write_large(live.path / "large", weights_gb * 10**9)
    live.config('[models.large]\nhf = "large"\n', engine="llama_cpp")
    live.test(f"""
@pytest.mark.model("large")
def test_it(model):
    assert_fits(model, "m2ultra", context={context})
""")
    result = live.run()
    result.assert_outcomes(**{"passed" if outcome == "PASS" else "failed": 1})
    mark = "✓" if outcome == "PASS" else "✗"
    result.stdout.fnmatch_lines(
        [f"{mark}  fit large, {context}, m2ultra-76 * of 192 GiB * < 60 %*"]
    )


def _write_large(folder: Path, nbytes: int) -> None:
    """Write a model that is a hole in its file: only the header has disk space."""
    shapes = {"embed_tokens": (nbytes // 2 // 1024, 1024)}
    shapes |= {f"layers.0.self_attn.{name}_proj": (64, 1024) for name in "qkv"}
    header, end = {}, 0
    for name, (n_rows, width) in shapes.items():
        begin, end = end, end + 2 * n_rows * width
        offsets = {"data_offsets": [begin, end]}
        header[f"model.{name}.weight"] = {"dtype": "F16", "shape": [n_rows, width], **offsets}
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "config.json").write_text('{"tie_word_embeddings": true}')
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def test_bad_input(live: Project) -> None:
    """Each is an error of its own test with its remedy."""
    messages = {
        'assert_fits(model, "m2ulta")': "did you mean",
        'assert_fits(model, "m2ultra", context=2049)': "was trained on 2048",
        'assert_fits(model, "m2ultra", context=0)': "0 is not a number of tokens",
        'assert_fits(model, "m2ultra", context="4k")': "'4k' is not a number of tokens",
        'assert_fits(memory(256), "m2ultra", context=256)': "context=256 and a measurement",
        'assert_fits(memory, "m2ultra")': "was not called",
        "assert memory(4096) < 1": "was trained on 2048",
        "assert memory(True) < 1": "True is not a number of tokens",
        'assert memory(64) < "8 s"': "GiB cannot be compared with s",
    }
    live.rejects("def test_it(model, memory):\n    ", messages)


def test_an_engine_that_does_not_count(project: Project) -> None:
    """Without the engine's own figure there is nothing to judge."""
    project.claims("def test_it(memory):\n    ", ["assert memory(64).kv < 1"])
    project.run("--asperf-model=fake:F16").stdout.fnmatch_lines(
        ["test_it.py V *", "*fake:F16: the engine does not report its allocations"]
    )
