import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_asperf.config.address import Address
from pytest_asperf.config.catalogue import Catalogue, load_catalogue
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.engines import Engine
from pytest_asperf.config.setting_rules import ReportTarget
from pytest_asperf.config.settings import Settings
from pytest_asperf.config.spec import ModelSpec
from pytest_asperf.errors import ConfigError

Load = Callable[..., Catalogue]

SHIPPED = (
    ModelSpec("asperf-target", hf_folder=Path("/shipped/target")),
    ModelSpec("asperf-draft", hf_folder=Path("/shipped/draft")),
)


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load the catalogue of a project with this configuration file."""

    def load(text: str, *, file: str = "asperf.toml") -> Catalogue:
        (tmp_path / file).write_text(text, encoding="utf-8")
        return load_catalogue(tmp_path, SHIPPED)

    return load


def test_a_project_without_a_file_has_the_shipped_models_and_defaults(tmp_path: Path) -> None:
    """Nothing needs to be configured."""
    assert load_catalogue(tmp_path, SHIPPED) == Catalogue(tmp_path, SHIPPED, Settings())


def test_every_setting_is_read(load: Load, tmp_path: Path) -> None:
    """Each key of the file arrives in the settings, with paths starting at the file."""
    catalogue = load(
        f"""
        hardware = "m2ultra"
        engine = "llama_cpp"
        source = "recorded"
        inconclusive = "xfail"
        default_model = "asperf-draft:q6_k"
        repetitions = 3
        chunks = "all"
        cache = "build/cache"
        python = '{sys.executable}'
        report = ["json:out/report.json"]
        """
    )
    assert catalogue.settings == Settings(
        hardware="m2ultra",
        engine="llama_cpp",
        source="recorded",
        inconclusive="xfail",
        default_model=Address("asperf-draft", "q6_k"),
        slots={"target": Address("asperf-draft", "q6_k")},
        repetitions=3,
        chunks=None,
        cache=tmp_path / "build/cache",
        python=Path(sys.executable),
        report=(ReportTarget("json", tmp_path / "out/report.json"),),
    )


def test_an_interpreter_is_a_path_or_a_name(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path starts at the file and keeps its links; a bare name is looked up on PATH."""
    link = tmp_path / "venv" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(link.parent))
    for written in ("venv/bin/python", "python"):
        assert load(f"python = '{written}'").settings.python == link


@pytest.mark.parametrize(
    ("file", "section"),
    [
        ("asperf.toml", ""),
        ("asperf.toml", "tool.asperf."),
        ("pyproject.toml", "tool.asperf."),
    ],
)
def test_models_are_read_from_either_file(
    load: Load, tmp_path: Path, file: str, section: str
) -> None:
    """A model is declared alike in both; in asperf.toml, [tool.asperf] may be left out."""
    catalogue = load(
        f"""
        [{section}models.one]
        hf = "hf/one"
        corpus = "wiki.txt"
        settings = {{threads = 4, n_gpu_layers = 0, flash_attn = "on", type_k = "q8_0",
            type_v = "f16", n_batch = 512, n_ubatch = 128}}
        [{section}models.two]
        gguf = "/models/two.gguf"
        [{section}models.three]
        files = {{q6_K = "three-q6.gguf", F16 = "../three.gguf"}}
        """.replace(",\n            ", ", "),
        file=file,
    )
    assert catalogue.models == (
        *SHIPPED,
        ModelSpec(
            "one",
            hf_folder=tmp_path / "hf/one",
            hub_id="hf/one",
            corpus=tmp_path / "wiki.txt",
            settings=EngineSettings(4, 0, "on", "q8_0", "f16", n_batch=512, n_ubatch=128),
        ),
        ModelSpec("two", gguf=Path("/models/two.gguf")),
        ModelSpec(
            "three",
            files=(("Q6_K", tmp_path / "three-q6.gguf"), ("F16", tmp_path / "../three.gguf")),
        ),
    )


def test_settings_in_both_files_are_refused(load: Load) -> None:
    """Two files with settings are named, because one would be silently left out."""
    load("[tool.asperf]\nrepetitions = 3", file="pyproject.toml")
    with pytest.raises(ConfigError, match=r"both pyproject\.toml .* and asperf\.toml"):
        load("repetitions = 3")


@pytest.mark.parametrize("text", ["", "[project]\nname = 'x'", "[tool.ruff]\n", "[tool.asperf]\n"])
def test_a_file_without_our_settings_does_not_count(load: Load, text: str) -> None:
    """A pyproject.toml for other tools is fine in addition to asperf.toml."""
    load(text, file="pyproject.toml")
    assert load("repetitions = 3").settings.repetitions == 3


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("chunk = 3", "asperf.toml: unknown key 'chunk'; did you mean 'chunks'?"),
        ("chunks = 0", "asperf.toml: chunks: 0 is not usable"),
        ("chunks = true", "asperf.toml: chunks: True is not usable"),
        ("repetitions = '3'", "asperf.toml: repetitions: '3' is not usable"),
        ("hardware = ''", "asperf.toml: hardware: '' is not usable"),
        ("hardware = ['m1']", "asperf.toml: hardware: ['m1'] is not usable"),
        ("engine = 'llama.cpp'", "engine: 'llama.cpp' is not usable; did you mean 'llama_cpp'?"),
        ("inconclusive = 'skipp'", "inconclusive: 'skipp' is not usable; did you mean 'skip'?"),
        ("source = 1", "asperf.toml: source: 1 is not usable"),
        ("cache = 3", "asperf.toml: cache: 3 is not usable"),
        ("cache = '~nobody-of-this-name/x'", "asperf.toml: cache: '~nobody-of-this-name/x'"),
        ('cache = "a\\u0000b"', r"asperf.toml: cache: 'a\x00b' is not usable"),
        ("python = 'no-such-python'", "python: 'no-such-python' is not usable: no such program"),
        ('python = "a\\u0000b"', r"asperf.toml: python: 'a\x00b' is not usable"),
        ("report = 'json:x'", "asperf.toml: report: 'json:x' is not usable"),
        ("report = ['jason:x']", "['jason:x'] is not usable; did you mean 'json'?"),
        ("report = ['json:']", "asperf.toml: report: ['json:'] is not usable"),
        ("default_model = 'asperf-tarket'", "asperf.toml: default_model: unknown model"),
        ("models = 3", "asperf.toml: models: 3 is not usable"),
        ("models.mine = 3", "asperf.toml: models.mine: 3 is not usable"),
        ("models.mine = {}", "asperf.toml: models.mine: a model has exactly one of hf, gguf"),
        ("models.mine = {hf = 'a', gguf = 'b'}", "models.mine: a model has exactly one of"),
        ("models.mine.ggfu = 'x'", "models.mine: unknown key 'ggfu'; did you mean 'gguf'?"),
        ("models.mine.gguf = 3", "asperf.toml: models.mine.gguf: 3 is not usable"),
        ("models.mine.files = []", "asperf.toml: models.mine.files: [] is not usable"),
        ("models.mine.files = {}", "asperf.toml: models.mine.files: {} is not usable"),
        ("models.mine.files.Q6_K = 1", "asperf.toml: models.mine.files.Q6_K: 1 is not usable"),
        ("models.mine.files.Q6K = 'x'", "models.mine.files: unknown quantization 'Q6K'"),
        ("models.mine.files = {Q6_K='x', q6_k='y'}", "files: quantization Q6_K is named twice"),
        (
            "models.mine = {gguf = 'x', settings = {threads = '4'}}",
            "asperf.toml: models.mine.settings.threads: ",
        ),
        (
            "models.mine = {gguf = 'x', settings = {thread = 4}}",
            "unknown engine setting 'thread'; did you mean 'threads'?",
        ),
        (
            "models.mine = {gguf = 'x', settings = {type_k = ['f16']}}",
            "asperf.toml: models.mine.settings.type_k: ['f16'] is not usable",
        ),
        ("models.mine = {gguf = 'x', settings = 3}", "models.mine.settings: 3 is not usable"),
        ("models.asperf-target.gguf = 'x'", "'asperf-target' is already the name of a shipped"),
        ("models.Asperf-Target.gguf = 'x'", "'asperf-target' is already the name of a shipped"),
        ("models = {a.gguf = 'x', A.gguf = 'y'}", "'a' is already the name of another model"),
        ("models.'a:b'.gguf = 'x'", "asperf.toml: models.'a:b': not a usable model name"),
        ("models.'a.gguf'.gguf = 'x'", "models.a.gguf: not a usable model name"),
        ("models.'..'.gguf = 'x'", "models.'..': not a usable model name"),
        (f"models.{'a' * 65}.gguf = 'x'", "not a usable model name"),
    ],
)
def test_an_unusable_entry_is_named(load: Load, text: str, place: str) -> None:
    """The message names the file, the key's path and the written value."""
    with pytest.raises(ConfigError, match=re.escape(place)):
        load(text)


def test_the_valid_keys_are_listed(load: Load) -> None:
    """A mistyped key raises with the list of all keys."""
    with pytest.raises(ConfigError, match=r"builds, cache, .*chunks, default_model, .* models, "):
        load("nonsense = 1", file="asperf.toml")


def test_a_place_in_pyproject_is_named_in_full(load: Load) -> None:
    """In pyproject.toml the key's path starts with tool.asperf."""
    with pytest.raises(ConfigError, match=r"^pyproject\.toml: tool\.asperf\.models\.mine\.gguf: "):
        load("[tool.asperf.models.mine]\ngguf = 3", file="pyproject.toml")


def test_invalid_toml_is_reported_with_its_place(load: Load) -> None:
    """A slip in the file is found by its line and column."""
    with pytest.raises(ConfigError, match=r"asperf\.toml is not valid TOML: .*line 2, column 10"):
        load("chunks = 3\nengine = oops")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are named by their place."""
    (tmp_path / "asperf.toml").write_bytes(b'a = "\xff"')
    with pytest.raises(ConfigError, match="is not UTF-8: byte 5"):
        load_catalogue(tmp_path, SHIPPED)


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    """An unreadable file does not count as absent."""
    (tmp_path / "asperf.toml").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        load_catalogue(tmp_path, SHIPPED)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\nchunks = 1" + "0" * 5000, "has a number out of range in line 2"),
        ("chunks = 0x" + "f" * 6000, "has an integer of more than 64 bits: chunks"),
        ("[models.a]\nfiles = [1, 18446744073709551616]", "64 bits: models.a.files.1"),
        ("a" + ".a" * 5000 + " = 1", "nested too deeply"),
    ],
)
def test_numbers_that_toml_does_not_have_are_refused(load: Load, text: str, told: str) -> None:
    """A number out of range ends in a message that names its line or key."""
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert told in caught.value.what


@pytest.mark.parametrize("key", ["call_timeout_s", "max_seconds"])
def test_times_beyond_a_week_are_refused(load: Load, key: str) -> None:
    """A time that no system call accepts is rejected at its place."""
    with pytest.raises(ConfigError) as caught:
        load(f"{key} = 1000000000000")
    assert caught.value.remedy == f"{key} takes a whole number from 1 to 604800"


def test_a_value_of_a_megabyte_is_not_repeated(load: Load) -> None:
    """A message stays readable for any file content."""
    with pytest.raises(ConfigError, match=r"models\.m\.settings\.n_gpu_layers") as caught:
        load(f'[models.m]\ngguf = "m.gguf"\nsettings = {{ n_gpu_layers = "{"9" * 2**20}" }}')
    assert len(str(caught.value)) < 10_000


@pytest.mark.parametrize("shares", ['"0/0"', '"1,1"', '"-1/1"', '"1/"', "[1, 1]", '"nan/1"'])
def test_shares_that_are_none(load: Load, shares: str) -> None:
    """Shares of the layers are numbers from 0, parted by slashes, one of them above 0."""
    with pytest.raises(ConfigError, match=r"models\.m\.settings\.tensor_split") as caught:
        load(f'[models.m]\ngguf = "m.gguf"\nsettings = {{ tensor_split = {shares} }}')
    assert '"1/1"' in caught.value.remedy


def test_a_pipe_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    """An endless file is not read to the end."""
    os.mkfifo(tmp_path / "asperf.toml")
    with pytest.raises(ConfigError, match=r"asperf\.toml cannot be read: it is a pipe"):
        load_catalogue(tmp_path, SHIPPED)


def test_nesting_without_end_is_refused(load: Load) -> None:
    """A hostile file ends in a message, not in a traceback."""
    with pytest.raises(ConfigError, match="nested too deeply"):
        load("a = " + "[" * 100_000)


def test_a_model_may_name_its_engine_and_settings_for_each(load: Load) -> None:
    """The test's engine wins over the model's, and that over the session's."""
    catalogue = load(
        """
        engine = "scripted"
        [models.m]
        hf = "m"
        engine = "mlx"
        settings = { n_batch = 64, llama_cpp = { threads = 2, n_batch = 128 } }
        [models.n]
        hf = "n"
        """
    )

    def found(name: str, engine: Engine | None = None) -> ModelSpec:
        return catalogue.find(name, where="t", engine=engine).spec

    assert (found("m").engine, found("m").settings) == ("mlx", EngineSettings(n_batch=64))
    other = found("m", "llama_cpp")
    # A setting for one engine overrides the setting for all.
    assert (other.engine, other.settings) == ("llama_cpp", EngineSettings(threads=2, n_batch=128))
    assert found("n").engine == "scripted"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('engine = "mxl"', "models.m.engine: unknown engine 'mxl'; did you mean 'mlx'?"),
        (
            "settings = { mlx = { threds = 1 } }",
            "models.m.settings.mlx: unknown engine setting 'threds'",
        ),
        (
            "settings = { llama = { threads = 1 } }",
            "models.m.settings: unknown engine setting 'llama'",
        ),
    ],
)
def test_an_unknown_engine_of_a_model_is_refused(load: Load, lines: str, told: str) -> None:
    """The key is named."""
    with pytest.raises(ConfigError) as caught:
        load(f'[models.m]\nhf = "m"\n{lines}')
    assert told in caught.value.what
