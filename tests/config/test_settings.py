import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.config.address import Address
from pytest_asperf.config.catalogue import Catalogue
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.engines import LLAMA_FTYPES
from pytest_asperf.config.markers import (
    HardwareMark,
    LadderMark,
    Marks,
    ModelMark,
    QuantMark,
    parse_hardware,
    parse_ladder,
    parse_model,
    parse_quant,
)
from pytest_asperf.config.setting_rules import ReportTarget
from pytest_asperf.config.settings import Settings
from pytest_asperf.config.spec import ModelSpec
from pytest_asperf.errors import AsperfError, ConfigError
from pytest_asperf.plugin.parsing import parse_settings, read_marks, usage_errors
from pytest_asperf.plugin.registration import MARKERS, add_options

Configure = Callable[..., pytest.Config]

PARSERS = (parse_model, parse_quant, parse_ladder, parse_hardware)


class Options:
    """Give `add_options` to a pytester run, as the plugin does."""

    pytest_addoption = staticmethod(add_options)


@pytest.fixture(autouse=True)
def _no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Import none of the plugins that are installed here: that needs 0.8 s."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def configure(pytester: pytest.Pytester) -> Configure:
    """Return pytest's configuration for these command-line arguments."""

    def configure(*args: str) -> pytest.Config:
        pytester.plugins = [Options()]
        return pytester.parseconfig("-p", "no:asperf", *args)

    return configure


def catalogue(**settings: Any) -> Catalogue:
    """Return a catalogue with the default model and these settings of a file."""
    return Catalogue(Path("/root"), (ModelSpec("asperf-target"),), Settings(**settings))


def test_without_options_the_configuration_file_holds(configure: Configure) -> None:
    """An option that was not typed overrides nothing."""
    from_file = catalogue(hardware="m1", chunks=None, repetitions=3)
    assert parse_settings(configure(), from_file) == from_file.settings


def test_every_option_overrides_the_configuration_file(configure: Configure) -> None:
    """Each option arrives in the settings, with paths starting where pytest was called."""
    config = configure(
        "--asperf-hardware=4090",
        "--asperf-engine=llama_cpp",
        "--asperf-source=live",
        "--asperf-inconclusive=skip",
        "--asperf-model=models/x.gguf:Q6_K",
        "--asperf-role=draft=models/y.gguf",
        "--asperf-role=large=asperf-target:F16",
        "--asperf-findings=all",
        "--asperf-repetitions=5",
        "--asperf-chunks=7",
        f"--asperf-python={sys.executable}",
        "--asperf-report=json:a.json",
        "--asperf-report=json:/tmp/b:c.json",
    )
    here = config.invocation_params.dir
    assert parse_settings(config, catalogue(hardware="m1", repetitions=9)) == Settings(
        hardware="4090",
        engine="llama_cpp",
        source="live",
        inconclusive="skip",
        default_model=Address(f"{here}/models/x.gguf", "Q6_K"),
        slots={
            "target": Address(f"{here}/models/x.gguf", "Q6_K"),
            "draft": Address(f"{here}/models/y.gguf"),
            "large": Address("asperf-target", "F16"),
        },
        findings_scope="all",
        repetitions=5,
        chunks=7,
        python=Path(sys.executable),
        report=(
            ReportTarget("json", here / "a.json"),
            ReportTarget("json", Path("/tmp/b:c.json")),  # noqa: S108  # never written
        ),
    )


def test_all_chunks_can_be_asked_for(configure: Configure) -> None:
    """`--asperf-chunks=all` lifts a limit that the configuration file sets."""
    settings = parse_settings(configure("--asperf-chunks=all"), catalogue(chunks=7))
    assert settings.chunks is None


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--asperf-hardware=", "is not usable"),
        ("--asperf-engine=llama-cpp", "'llama-cpp' is not usable; did you mean 'llama_cpp'?"),
        ("--asperf-engine=x", "llama_cpp, llama_cpp_server, llama_server, llama_tools, mlx, mlx_"),
        ("--asperf-source=record", "did you mean 'recorded'?"),
        ("--asperf-source=tape", "one of auto, live, recorded"),
        ("--asperf-inconclusive=pass", "is not usable"),
        ("--asperf-model=asperf-tarket", "unknown model 'asperf-tarket'; did you mean 'asperf-ta"),
        ("--asperf-model=asperf-target:Q6K", "unknown quantization 'Q6K'"),
        ("--asperf-model=@target", "@target"),
        ("--asperf-role=target", "'target'"),
        ("--asperf-role=targt=asperf-target", "unknown model slot 'targt'; did you mean 'target'?"),
        ("--asperf-role=target=asperf-tarket", "target: unknown model 'asperf-tarket'; did you me"),
        ("--asperf-role=draft=@target", "@target"),
        ("--asperf-role=fake", "is not usable: unknown model slot 'fake'"),
        ("--asperf-findings=some", "is not usable"),
        ("--asperf-repetitions=0", "a whole number"),
        ("--asperf-repetitions=ten", "a whole number"),
        ("--asperf-repetitions=1_0", "a whole number"),
        ("--asperf-repetitions=²", "a whole number"),
        ("--asperf-chunks=-1", "a whole number"),
        ("--asperf-chunks=1.5", "a whole number"),
        ("--asperf-chunks=al", "a whole number"),
        ("--asperf-chunks=" + "9" * 5000, "is not usable"),
        ("--asperf-self-check=0", "self_check takes"),
        ("--asperf-max-pairs=0", "max_pairs takes"),
        ("--asperf-seed=-1", "seed takes"),
        ("--asperf-tolerance=5", 'write "5%" or 0.05'),
        ("--asperf-tolerance=1", 'write "1%" or 0.01'),
        ("--asperf-tolerance=0%", "tolerance takes"),
        ("--asperf-max-cv=0", 'max_cv takes a share such as "15%"'),
        ("--asperf-max-cv=-5%", 'max_cv takes a share such as "15%"'),
        ("--asperf-max-cv=15", 'max_cv takes a share such as "15%"'),
        ("--asperf-max-cv=nan", 'max_cv takes a share such as "15%"'),
        ("--asperf-nice=-21", "from -20 to 19"),
        ("--asperf-nice=20", "from -20 to 19"),
        ("--asperf-nice=1.5", "from -20 to 19"),
        ("--asperf-nice=--5", "from -20 to 19"),
        ("--asperf-nice=", "from -20 to 19"),
        ("--asperf-wait=soon", '"10min"'),
        ("--asperf-wait=-1", '"10min"'),
        ("--asperf-wait=10 days", '"10min"'),
        ("--asperf-wait=", '"10min"'),
        ("--asperf-wait=1e9", '"10min"'),
        ("--asperf-python=no-such-python", "no such program"),
        ("--asperf-python=./no-such-python", "no such"),
        ("--asperf-report=a.json", "FORMAT:PATH"),
        ("--asperf-report=pdf:a.pdf", "FORMAT:PATH"),
        ("--asperf-report=json:", "FORMAT:PATH"),
        ("--asperf-store=mysql://host/database", "is not usable"),
        ("--asperf-store=", "is not usable"),
        ("--asperf-store-keep=0", "a whole number"),
        ("--asperf-machine-timeout=soon", "is not usable"),
        ("--asperf-url=127.0.0.1:8080", "'127.0.0.1:8080' is not usable"),
        ("--asperf-url=http://user:secret@host", "has a user, a password or a query"),
        ("--asperf-url=http://127.0.0.1:1", "names a server, and the engine is llama_cpp"),
        ("--asperf-api-key-variable=sk-123", "the name of a variable of the environment"),
        ("--asperf-tools=.", "neither llama-bench nor llama-server"),
        ("--asperf-remote=rpc.example.org:50052", "may be a public address"),
    ],
)
def test_an_unusable_option_is_a_usage_error(configure: Configure, option: str, told: str) -> None:
    """The message names the option first, and says what can be meant; no password is in it."""
    config = configure(option)
    with pytest.raises(pytest.UsageError) as raised, usage_errors():
        parse_settings(config, catalogue())
    error = str(raised.value)
    assert error.startswith((option.partition("=")[0], "the URL of a server has a user"))
    assert told in error
    assert "what to do:" in error
    assert "secret" not in error


def test_a_role_is_named_once(configure: Configure) -> None:
    """Two models cannot have one."""
    config = configure("--asperf-role=target=asperf-draft", "--asperf-role=target=asperf-target")
    with pytest.raises(ConfigError, match="a model slot is named twice"):
        parse_settings(config, catalogue())


def test_a_folder_needs_an_engine_that_runs_its_programs(configure: Configure) -> None:
    """A folder given to another engine would be left out in silence."""
    config = configure("--asperf-tools=.")
    (config.invocation_params.dir / "llama-bench").touch()
    with pytest.raises(ConfigError, match=r"--asperf-tools names a folder, and the engine is"):
        parse_settings(config, catalogue())


def test_the_help_states_the_defaults(configure: Configure) -> None:
    """The defaults in the help are the actual ones."""
    config = configure()
    group = config._parser.getgroup("asperf")
    texts = {
        option.dest.removeprefix("asperf_"): option.attrs()["help"] for option in group.options
    }
    keys = ("hardware", "engine", "source", "inconclusive", "default_model", "findings_scope")
    for key in (*keys, "chunks"):
        assert f"(default: {getattr(Settings(), key)})" in texts[key]
    assert f"(default: {Settings().repetitions})" in texts["repetitions"]


def test_each_marker_parses_to_its_mark() -> None:
    """Positional and named arguments arrive, with quantizations in their canonical spelling."""
    assert parse_model(("m:Q6_K",), {"threads": 2, "flash_attn": "on"}, where="t") == ModelMark(
        Address("m", "Q6_K"), EngineSettings(threads=2, flash_attn="on")
    )
    assert parse_model((), {"name": "m"}, where="t") == ModelMark(Address("m"), EngineSettings())
    assert parse_quant(("q6_k",), {}, where="t") == QuantMark("Q6_K")
    assert parse_quant((), {"name": "Q6_K"}, where="t") == QuantMark("Q6_K")
    assert parse_ladder(("q8_0", "Q6_K"), {}, where="t") == LadderMark(("Q8_0", "Q6_K"), "F16")
    assert parse_ladder(("F16",), {"baseline": "f32"}, where="t") == LadderMark(("F16",), "F32")
    assert parse_hardware(("m1", "m2"), {"min_memory_gb": 0.5}, where="t") == HardwareMark(
        ("m1", "m2"), min_memory_gb=0.5
    )
    assert parse_hardware((), {"min_gpu_cores": 8, "min_cpu_cores": None}, where="t") == (
        HardwareMark((), min_gpu_cores=8)
    )


@pytest.mark.parametrize(
    ("parse", "args", "kwargs", "problem"),
    [
        (parse_model, (), {}, "0 arguments for name"),
        (parse_model, ("a", "b"), {}, "2 arguments for name"),
        (parse_model, ("a",), {"name": "b"}, "2 arguments for name"),
        (parse_model, (3,), {}, "3"),
        (parse_model, ("a",), {"thread": 1}, "unknown engine setting 'thread'; did you mean"),
        (parse_model, ("a",), {"threads": "1"}, "threads: '1' is not usable"),
        (parse_quant, (), {}, "0 arguments for name"),
        (parse_quant, ("Q6_K",), {"nmae": 1}, "unknown argument 'nmae'; did you mean 'name'?"),
        (parse_ladder, (), {}, "no quantization"),
        (parse_ladder, (["Q8_0", "Q6_K"],), {}, "['Q8_0', 'Q6_K']"),
        (parse_ladder, ("Q8_0", "q8_0"), {}, "Q8_0 is named twice"),
        (parse_ladder, ("F16",), {}, "no quantization other than the baseline F16"),
        (parse_ladder, ("Q8_0",), {"baselin": "F16"}, "unknown argument 'baselin'; did you mean"),
        (parse_ladder, ("Q8_0",), {"baseline": None}, "baseline: None"),
        (parse_hardware, (), {}, "it has no condition"),
        (parse_hardware, (), {"min_gpu_cores": None}, "it has no condition"),
        (parse_hardware, ("",), {}, "''"),
        (parse_hardware, (), {"min_memory": 64}, "unknown argument 'min_memory'; did you mean"),
        (parse_hardware, (), {"min_memory_gb": "64"}, "min_memory_gb: '64' is not usable"),
        (parse_hardware, (), {"min_memory_gb": float("nan")}, "min_memory_gb: nan is not usable"),
        (parse_hardware, (), {"min_memory_gb": float("inf")}, "min_memory_gb: inf is not usable"),
        (parse_hardware, (), {"min_memory_gb": True}, "min_memory_gb: True is not usable"),
        (parse_hardware, (), {"min_gpu_cores": 2.5}, "min_gpu_cores: 2.5 is not usable"),
        (parse_hardware, (), {"min_cpu_cores": 0}, "min_cpu_cores: 0 is not usable"),
    ],
)
def test_an_unusable_marker_is_refused(
    parse: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any], problem: str
) -> None:
    """The message starts with the test and names the argument."""
    with pytest.raises(ConfigError, match=rf"^test_x\.py::test_y: {re.escape(problem)}"):
        parse(args, kwargs, where="test_x.py::test_y")


@given(levels=st.lists(st.sampled_from(sorted(LLAMA_FTYPES)), unique=True, min_size=2))
def test_any_ladder_of_distinct_levels_is_kept_in_order(levels: list[str]) -> None:
    """Quantizations stay in their written order."""
    baseline, *rungs = levels
    mark = parse_ladder(tuple(rungs), {"baseline": baseline.lower()}, where="t")
    assert mark == LadderMark(tuple(rungs), baseline)


@given(
    args=st.lists(st.none() | st.booleans() | st.integers() | st.text(max_size=5), max_size=3),
    kwargs=st.dictionaries(
        st.sampled_from(["name", "baseline", "threads", "type_k", "min_memory_gb"]),
        st.none() | st.integers() | st.floats() | st.text(max_size=5),
        max_size=2,
    ),
)
def test_any_arguments_parse_or_are_refused(args: list[Any], kwargs: dict[str, Any]) -> None:
    """No argument of a marker ends in anything but a mark or our own error."""
    for parse in PARSERS:
        try:
            parse(tuple(args), kwargs, where="t")
        except AsperfError as error:
            problem = str(error)
            assert problem.startswith("t: ")


def collected(pytester: pytest.Pytester, source: str) -> pytest.Item:
    """Return the one test of a module with our markers registered."""
    markers = "\n    ".join(MARKERS)
    pytester.makeini(f"[pytest]\naddopts = -p no:asperf\nmarkers =\n    {markers}")
    (item,) = pytester.getitems(f"import pytest\nmark = pytest.mark\n{source}")
    return item


def test_the_closest_marker_of_each_kind_wins(pytester: pytest.Pytester) -> None:
    """A test's own markers go before its class's, and those before its module's."""
    item = collected(
        pytester,
        """
pytestmark = [mark.model("far"), mark.quant("Q2_K"), mark.hardware("m1")]
@mark.model("near", threads=2)
@mark.quant_ladder("Q8_0")
class TestIt:
    @mark.hardware("m2")
    def test_it(self): ...
""",
    )
    assert read_marks(item) == Marks(
        model=ModelMark(Address("near"), EngineSettings(threads=2)),
        ladder=LadderMark(("Q8_0",), "F16"),
        hardware=HardwareMark(("m2",)),
    )


def test_a_test_without_markers_has_no_marks(pytester: pytest.Pytester) -> None:
    """Nothing is invented."""
    assert read_marks(collected(pytester, "def test_it(): ...")) == Marks()


def test_a_level_and_a_ladder_at_one_place_are_refused(pytester: pytest.Pytester) -> None:
    """A test is measured at one quantization or along a sweep, not both."""
    item = collected(
        pytester, "@mark.quant('Q6_K')\n@mark.quant_ladder('Q8_0')\ndef test_it(): ..."
    )
    with pytest.raises(ConfigError, match=r"::test_it: both a quant and a quant_ladder marker"):
        read_marks(item)


def test_an_unusable_marker_names_the_test(pytester: pytest.Pytester) -> None:
    """A mistyped marker's argument raises with the test's name."""
    item = collected(pytester, "@mark.hardware('m1', min_memory_gb='x')\ndef test_it(): ...")
    with pytest.raises(ConfigError, match=r"\.py::test_it: @pytest\.mark\.hardware: min_memory_gb"):
        read_marks(item)
