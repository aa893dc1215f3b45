"""Bad input on MLX, through pytest: an error in its own test, and none in its neighbours."""

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from pytest_asperf.config.engines import level_recipe
from pytest_asperf.engine_process import EngineBuild, Worker
from pytest_asperf.modelfiles.hub_cache import shipped_models
from tests.conftest import Draft
from tests.plugin.bad_input import assert_told, cases_of
from tests.plugin.conftest import Project

CONFIG = """
engine = "mlx"
default_model = "asperf-draft"
repetitions = 1
chunks = 2

[models.misnamed]
files = { 4bit = "sound" }

[models.published]
files = { Q8_0 = "sound.gguf" }

[models.mixed]
files = { F16 = "sound", 8bit = "other_start" }

[models.gguf]
gguf = "sound.gguf"
"""
TESTS = """
import pytest

addresses = [
    "./absent", "nobody/nothing", "./sound.gguf", "./no_config", "./no_tokenizer", "./no_weights",
    "./unknown_arch", "./wrong_shapes", "./truncated", "./corrupt", "./foreign_code",
    "./encoder",
]

@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.model(n), id=n.strip("./")) for n in addresses]
)
def test_folder(name, throughput):
    throughput("tg4").estimate

@pytest.mark.model("./sound")
def test_sound(throughput):
    throughput("tg4").estimate

@pytest.mark.quant("Q4_K_M")
def test_level_of_the_other_engine(throughput):
    throughput("tg4").estimate

@pytest.mark.quant_ladder("8bit", "Q4_0")
def test_rung_of_the_other_engine(ladder):
    pass

@pytest.mark.quant("4bits")
def test_no_level(throughput):
    throughput("tg4").estimate

@pytest.mark.quant("4bit-g48")
def test_group_size(throughput):
    throughput("tg4").estimate

@pytest.mark.model("misnamed")
def test_misnamed(throughput):
    throughput("tg4").estimate

@pytest.mark.model("published", engine="mlx")
def test_published_gguf(throughput):
    throughput("tg4").estimate

@pytest.mark.model("mixed")
@pytest.mark.quant_ladder("8bit")
def test_other_start(perplexity):
    perplexity.ppl.estimate

@pytest.mark.model("gguf:4bit")
def test_level_of_a_gguf_file(throughput):
    throughput("tg4").estimate

@pytest.mark.model("asperf-draft", threads=2)
def test_setting(throughput):
    throughput("tg4").estimate

@pytest.mark.model("asperf-draft", engine="mxl")
def test_engine(throughput):
    throughput("tg4").estimate

def test_context(throughput):
    throughput("tg4@d4000").estimate

@pytest.mark.model("./sound")
def test_sound_too(throughput):
    throughput("pp4").estimate
"""
#: By test: the phase that it fails in, and its message. A message is its four parts.
TOLD = {
    "test_folder[absent]": ("failure", ["absent: there is no such folder"]),
    "test_folder[nobody/nothing]": (
        "failure",
        ["nobody/nothing is neither the folder", "nothing is downloaded", "hf download nobody/"],
    ),
    "test_folder[sound.gguf]": ("failure", ["sound.gguf is a file", "casts most to F16"]),
    "test_folder[no_config]": ("failure", ["config.json cannot be read: No such file"]),
    "test_folder[no_tokenizer]": ("failure", ["no_tokenizer has no tokenizer"]),
    "test_folder[no_weights]": ("failure", ["no_weights", "it has no weights"]),
    "test_folder[unknown_arch]": ("failure", ["Model type zzama not supported"]),
    "test_folder[wrong_shapes]": ("failure", ["mlx load wrong_shapes", "shape"]),
    "test_folder[truncated]": ("failure", ["model.safetensors", "truncated"]),
    "test_folder[corrupt]": ("failure", ["model.safetensors", "not JSON"]),
    "test_folder[foreign_code]": ("failure", ["foreign.py", "trust"]),
    "test_folder[encoder]": ("failure", ["config.json is of an encoder", "is_causal is false"]),
    "test_level_of_the_other_engine": (
        "error",
        ["mlx has no quantization Q4_K_M; did you mean '4bit'?", "a quantization of llama_cpp"],
    ),
    "test_rung_of_the_other_engine": ("error", ["mlx has no quantization Q4_0"]),
    "test_no_level": ("error", ["unknown quantization '4bits'; did you mean '4bit'?"]),
    "test_group_size": ("failure", ["cannot be 4bit-g48", "not a multiple of 48"]),
    "test_misnamed": ("failure", ["sound is F16 by its own configuration, not 4bit"]),
    "test_published_gguf": ("failure", ["sound.gguf is a file, and MLX measures folders"]),
    "test_level_of_a_gguf_file": ("failure", ["sound.gguf is a file, and MLX measures folders"]),
    "test_other_start[8bit]": (
        "failure",
        ["mixed:F16 on mlx begins a text with BOS and mixed:8bit on mlx does not"],
    ),
    "test_setting": ("failure", ["MLX has no threads", "settings.llama_cpp"]),
    "test_engine": ("error", ["unknown engine 'mxl'; did you mean 'mlx'?"]),
    "test_context": ("failure", ["tg4@d4000 needs a context of 4004 tokens"]),
}


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory, draft: Draft, own_lock: str, mlx: EngineBuild
) -> Path:
    """A project with a folder of every kind of fault."""
    folder = tmp_path_factory.mktemp("bad")
    (spec,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    assert spec.hf_folder is not None
    weights = (spec.hf_folder / "model.safetensors").read_bytes()
    config = json.loads((spec.hf_folder / "config.json").read_text())
    changes: dict[str, dict[str, bytes | None]] = {
        "sound": {},
        "no_config": {"config.json": None},
        "no_tokenizer": {"tokenizer.json": None},
        "no_weights": {"model.safetensors": None},
        "unknown_arch": {"config.json": _json(config, model_type="zzama")},
        "wrong_shapes": {"config.json": _json(config, intermediate_size=64)},
        "foreign_code": {"config.json": _json(config, model_file="foreign.py")},
        "encoder": {"config.json": _json(config, is_causal=False)},
        "truncated": {"model.safetensors": weights[: len(weights) // 2]},
        "corrupt": {"model.safetensors": weights[:8] + b"!" + weights[9:]},
    }
    for name, files in changes.items():
        shutil.copytree(spec.hf_folder, folder / name)
        for file, content in files.items():
            (folder / name / file).unlink()
            if content is not None:
                (folder / name / file).write_bytes(content)
    with Worker(mlx) as worker:
        worker.quantize(spec.hf_folder, folder / "other_start", level_recipe("8bit", "mlx"))
    made = json.loads((folder / "other_start" / "config.json").read_text())
    (folder / "other_start" / "config.json").write_bytes(_json(made, bos_token_id=None))
    (folder / "sound.gguf").write_bytes(draft("F16").read_bytes())
    (folder / "conftest.py").write_text(own_lock)
    (folder / "asperf.toml").write_text(CONFIG)
    (folder / "test_bad.py").write_text(TESTS)
    return folder


def _json(config: dict[str, object], **changed: object) -> bytes:
    return json.dumps({**config, **changed}).encode()


@pytest.fixture(scope="module")
def told(folder: Path, command: list[str], environment: dict[str, str]) -> dict[str, ET.Element]:
    """One session over all of them: each test's element of the JUnit report."""
    return cases_of(command, folder, {**environment, "HF_HUB_CACHE": str(folder / "hub")})


@pytest.mark.parametrize("name", TOLD)
def test_it_is_an_error_of_its_own_test(told: dict[str, ET.Element], name: str) -> None:
    """It has the fault and the remedy, and shows no traceback."""
    assert_told(told[name], *TOLD[name])


@pytest.mark.parametrize("name", ["test_sound", "test_sound_too"])
def test_its_neighbours_are_measured(told: dict[str, ET.Element], name: str) -> None:
    """Sound tests of the same session pass."""
    assert len(told[name]) == 0, told[name][0].text


def test_an_interpreter_without_mlx(live: Project, bare_python: Path) -> None:
    """It names the extra to install, and adds that not every platform has the engine."""
    live.test(
        '@pytest.mark.quant("F16")\ndef test_it(throughput):\n    throughput("tg8").estimate\n'
    )
    result = live.run(f"--asperf-python={bare_python}", "--asperf-engine=mlx")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "mlx start: the engine reported an error (import): ModuleNotFoundError: No module *",
            "  what to do: *pip install 'pytest-asperf[[]mlx[]]'*does not run on this platform*",
        ]
    )
