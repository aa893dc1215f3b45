"""The checks of a gate, for each engine and each kind of request."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pytest_asperf.config.build_sources import ServerUrl
from pytest_asperf.config.catalogue import Catalogue
from pytest_asperf.config.engines import Engine
from pytest_asperf.config.settings import Settings
from pytest_asperf.config.spec import Build, ModelRef, ModelSpec, Pairing
from pytest_asperf.config.workload import Workload
from pytest_asperf.errors import ConfigError
from pytest_asperf.gate.cells import GateCell, GateCheck, parse_gated, shared_by
from pytest_asperf.gate.plan import (
    GatePlan,
    TimedSizes,
    default_cells,
    engine_of,
    named_cells,
    shipped_models_of,
    shipped_pairs,
    show_answers,
    timed_sizes,
)
from pytest_asperf.modelfiles.hub_cache import shipped_models

CATALOGUE = Catalogue(Path("/project"), shipped_models(), Settings())
TG = Workload("tg", 128)
SIZES = TimedSizes(128, 1024)
A, B = (ModelRef(ModelSpec(name)) for name in "ab")


def _shipped(engine: Engine) -> GatePlan:
    shipped = shipped_models_of(engine, CATALOGUE, where="test")
    pairs = shipped_pairs(engine, CATALOGUE, where="test")
    return default_cells((shipped.dense,), shipped, engine, pairs, lambda _: SIZES)


def _names(plan: GatePlan) -> list[tuple[str, str]]:
    return [(cell.name, cell.what) for cell in plan.cells]


def test_a_llama_server_is_checked_by_its_log_probabilities() -> None:
    """Its replies are timed and checked; other servers show no log-probabilities."""
    checks = {"ppl", "kld", "logits", "logits@c4", "logits@turns"}
    names = {name for name, _ in _names(_shipped("llama_server"))}
    assert names >= {"ttft512", "tg64@c4", *checks}
    others: tuple[Engine, ...] = ("openai", "mlx_server", "llama_cpp_server")
    for engine in others:
        plan = _shipped(engine)
        assert checks.isdisjoint(name for name, _ in _names(plan))
        assert "PPL, KLD, logits" in plan.left_out[0].what
    at_addresses = default_cells((A,), None, "openai", (), lambda _: SIZES, shows_answers=True)
    assert {name for name, _ in _names(at_addresses)} >= checks


def test_servers_at_addresses_are_asked_whether_they_show_log_probabilities() -> None:
    """A llama-server names its build at `/props`; both must, and a silent address is none."""

    class Props(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the base class calls it by this name
            is_llama = self.path == "/llama/props"
            body = b'{"build_info": "b1"}' if is_llama else b"{}"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Props) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_port}"
        llama, other = (
            Build(name, source=ServerUrl(f"{root}/{name}")) for name in ("llama", "other")
        )
        assert show_answers((llama, llama), "")
        assert not show_answers((llama, other), "")
        server.shutdown()
    assert not show_answers((llama, llama), "")


def test_default_cells_of_llama_cpp_cover_where_regressions_hid() -> None:
    """Prompt, decoding, depth, cache, experts, PPL, KLD, logits, users, speculation."""
    names = _names(_shipped("llama_cpp"))
    dense = "asperf-target:Q4_K_M"
    kv = f"{dense} KV q8_0"
    assert len(names) == 25
    assert {
        ("pp128", dense),
        ("tg128", dense),
        ("tg128@d1024", "asperf-draft:Q4_K_M"),
        ("tg128@d1024", "asperf-draft:Q4_K_M KV q8_0"),
        ("tg128", "asperf-target+mixture:Q4_K_M"),
        ("ppl", dense),
        ("ppl", f"{dense} KV q8_0"),
        ("kld", dense),
        ("kld", f"{dense} KV q8_0"),
        ("kld", "asperf-target+mixture:Q4_K_M"),
        ("memory", dense),
        ("memory", kv),
        ("logits@c4", dense),
        ("logits@turns", dense),
        ("logits@c4", "asperf-target+mixture:Q4_K_M"),
        ("logits", dense),
        ("logits", f"{dense} KV q8_0"),
        ("ppl@d1024", dense),
        ("kld@d1024", dense),
        ("logits@d1024", dense),
        ("logits@d1024", kv),
        ("sd", "asperf-draft:Q8_0 → asperf-target:F16, k=4"),
    } <= set(names)


def test_what_an_engine_has_no_counterpart_of_is_said() -> None:
    """The binaries of llama.cpp show scores alone; MLX has all checks, and one more in 16 bits."""
    mlx, tools = _shipped("mlx"), _shipped("llama_tools")
    assert not mlx.left_out
    assert ("tg128@d1024", "asperf-draft:8bit KV 8bit on mlx") in _names(mlx)
    assert ("kld", "asperf-draft:F16 on mlx") in _names(mlx)
    assert [one.what for one in tools.left_out] == [
        "speculation",
        "logits of several users, of conversations and at depth, and memory",
    ]
    assert "sd" not in {workload for workload, _ in _names(tools)}


def test_own_models_get_every_cell() -> None:
    """Each of them, and a mixture of experts is theirs to name."""

    def sizes(ref: ModelRef) -> TimedSizes:
        return TimedSizes(512, 256 if ref is A else 4096)

    plan = default_cells((A, B), None, "llama_cpp", (), sizes)
    deep = [cell.name for cell in plan.cells if "@" in cell.name]
    assert deep.count("tg128@d256") == deep.count("tg128@d4096") == 2
    assert [one.what for one in plan.left_out] == ["speculation", "a mixture of experts"]


def test_an_encoder_gets_the_checks_that_have_a_meaning_for_it() -> None:
    """Its time, vectors and memory; other models get every check, and alone no pair does."""
    encoders, pair = {A: ("an encoder: it is bert", 256)}, (Pairing(B, None),)
    alone = default_cells((A,), None, "llama_cpp", pair, lambda _: SIZES, encoders=encoders)
    assert _names(alone) == [("pp128", "a"), ("embeddings", "a"), ("memory", "a")]
    assert [(one.what, one.reason) for one in alone.left_out] == [
        ("every other check of a", "it is an encoder: it is bert")
    ]
    both = default_cells((A, B), None, "llama_cpp", (), lambda _: SIZES, encoders=encoders)
    assert [name for name, what in _names(both) if what == "a"] == [n for n, _ in _names(alone)]
    assert ("tg128", "b") in _names(both)


def test_named_workloads_are_decided_on_each_model() -> None:
    """Speculation is of the pairs, or of each model's own text."""
    pair, sd = Pairing(A, B), GateCheck.SPECULATION
    plan = named_cells((A, B), (TG, sd, TG), (pair,))
    assert plan.cells == (GateCell(A, TG), GateCell(B, TG), GateCell(A, sd, pair))
    assert [cell.what for cell in named_cells((A,), (sd,), ()).cells] == ["ngram → a, k=4"]


def test_what_cannot_be_wrong_by_chance_shares_no_error() -> None:
    """Logits are compared once, and have no repetitions."""
    assert shared_by(_shipped("llama_cpp").cells) == 11
    assert shared_by([GateCell(A, GateCheck.LOGITS)]) == 1


@pytest.mark.parametrize(
    ("n_ctx", "depth"), [(None, 4096), (131072, 4096), (4096, 1024), (2048, 1024), (512, 256)]
)
def test_the_depth_fits_the_model(n_ctx: int | None, depth: int) -> None:
    """The largest with room for the timed work; on a processor alone less of both."""
    assert timed_sizes(n_ctx, has_gpu=True) == (512, depth)
    assert timed_sizes(n_ctx, has_gpu=False) == (128, min(depth, 1024))


def test_the_engine_is_the_one_that_both_builds_can_be_of() -> None:
    """The request counts first, and then the builds' engines."""
    mlx = tuple(CATALOGUE.find_build(f"mlx-lm=={v}", where="test") for v in ("0.31.3", "0.32.2"))
    current = CATALOGUE.find_build("current", where="test")
    assert engine_of(None, mlx, "llama_cpp") == "mlx"
    assert engine_of(None, (current, current), "llama_cpp") == "llama_cpp"
    assert engine_of("scripted", (current, current), "llama_cpp") == "scripted"
    with pytest.raises(ConfigError, match="not two builds of llama_cpp"):
        engine_of("llama_cpp", mlx, "llama_cpp")
    llama = CATALOGUE.find_build("llama-cpp-python==0.3.36", where="test")
    with pytest.raises(ConfigError, match="not two builds of one engine"):
        engine_of(None, (mlx[0], llama), "llama_cpp")


def test_unknown_workloads_are_refused_with_the_nearest() -> None:
    """A typo raises before anything is measured."""
    assert parse_gated("tg128@d4096", where="test") == Workload("tg", 128, 4096)
    assert parse_gated("sd", where="test") is GateCheck.SPECULATION
    assert parse_gated("kld@d1024", where="test") == GateCheck("kld", 1024)
    assert parse_gated("logits@c4", where="test") == GateCheck("logits", users=4)
    assert parse_gated("logits@turns", where="test") == GateCheck("logits", turns=True)
    for name in ("sd@d1024", "ppl@c4", "logits@c1", "logits@c65", "logits@d0", "ppl@turns"):
        with pytest.raises(ConfigError, match="is not a workload"):
            parse_gated(name, where="test")
    with pytest.raises(ConfigError, match="did you mean 'logits'"):
        parse_gated("logit", where="test")
