import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.config.engines import (
    ENGINES,
    LLAMA_FTYPES,
    Engine,
    MlxScheme,
    level_engines,
    level_names,
    level_recipe,
    mlx_scheme,
    parse_engine,
    parse_level,
)
from pytest_asperf.errors import ConfigError
from pytest_asperf.verdicts.engine_matching import matching_level

GGUF: set[Engine] = {"llama_cpp", "llama_tools", "llama_server", "llama_cpp_server"}
MLX: set[Engine] = {"mlx", "mlx_server"}


@pytest.mark.parametrize(
    ("name", "level", "engines"),
    [
        ("q4_k_m", "Q4_K_M", GGUF),
        ("4BIT", "4bit", MLX),
        ("4bit-g64", "4bit", MLX),
        ("3bit-g32", "3bit-g32", MLX),
        ("MXFP4", "mxfp4", MLX),
        ("bf16", "BF16", GGUF | MLX),
        ("F16", "F16", GGUF | MLX),
    ],
)
def test_a_name_says_which_engines_have_it(name: str, level: str, engines: set[Engine]) -> None:
    """Case does not matter, one quantization has one spelling, and a script means any."""
    assert level_engines(name) == (level, frozenset({*engines, "scripted", "command"}))


@pytest.mark.parametrize("name", ["", "7bit", "4bit-g0", "4bit-g", "4-bit", "Q4", "4bit-g32x"])
def test_what_is_no_level_is_none(name: str) -> None:
    """Near misses do not count as the similar name."""
    assert level_engines(name) is None


@given(engine=st.sampled_from(["llama_cpp", "mlx"]), data=st.data())
def test_every_listed_level_is_one_of_its_engine(engine: Engine, data: st.DataObject) -> None:
    """A name in an error can be requested, is its own spelling, and has a recipe."""
    level = data.draw(st.sampled_from(level_names(engine)))
    assert parse_level(level.swapcase(), where="t", engine=engine) == level
    assert level_recipe(level, engine)


@given(bits=st.sampled_from([2, 3, 4, 5, 6, 8]), group=st.integers(1, 9999))
def test_a_scheme_and_its_name_are_one(bits: int, group: int) -> None:
    """Bits and group size are distinguished in any combination."""
    scheme = MlxScheme(bits, group)
    assert mlx_scheme(scheme.level) == scheme


@pytest.mark.parametrize(
    ("level", "engine", "told"),
    [
        ("Q4_K_M", "mlx", "mlx has no quantization Q4_K_M; did you mean '4bit'?"),
        ("IQ3_XXS", "mlx", "did you mean '3bit'?"),
        ("8bit", "llama_cpp", "llama_cpp has no quantization 8bit; did you mean 'Q8_0'?"),
        ("mxfp4", "llama_cpp", "did you mean 'Q4_K_M'?"),
        ("4bits", "mlx", "unknown quantization '4bits'; did you mean '4bit'?"),
        ("Q6K", "llama_cpp", "unknown quantization 'Q6K'; did you mean 'Q6_K'?"),
    ],
)
def test_another_engines_level_is_refused_with_the_nearest(
    level: str, engine: Engine, told: str
) -> None:
    """Each message lists the possible quantizations of this engine."""
    with pytest.raises(ConfigError) as caught:
        parse_level(level, where="t", engine=engine)
    assert told in caught.value.what


def test_a_level_can_be_read_before_the_engine_is_known() -> None:
    """A marker is read at collection, where only its spelling can be judged."""
    assert parse_level("q6_k", where="t") == "Q6_K"
    assert parse_level("6BIT", where="t") == "6bit"


@given(st.text())
def test_any_text_is_an_engine_or_refused(name: str) -> None:
    """Only the names are accepted."""
    if name in ENGINES:
        assert parse_engine(name, where="t") == name
    else:
        with pytest.raises(ConfigError, match="t: unknown engine"):
            parse_engine(name, where="t")


def test_the_recipes_are_the_engines_own_words() -> None:
    """llama.cpp's number, MLX's arguments."""
    assert level_recipe("Q4_K_M", "llama_cpp") == {"ftype": LLAMA_FTYPES["Q4_K_M"]}
    assert level_recipe("4bit-g32", "mlx") == {"bits": 4, "group_size": 32, "mode": "affine"}
    assert level_recipe("mxfp4", "mlx") == {"bits": 4, "group_size": 32, "mode": "mxfp4"}
    assert level_recipe("F16", "mlx") == {"dtype": "float16"}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_matches_levels_or_says_that_it_has_none(engine: Engine) -> None:
    """A server has the quantizations of its library; an external server has none."""
    if engine in {"scripted", "command"} | GGUF:
        assert matching_level("Q4_K_M", engine, where="test") == "Q4_K_M"
    elif engine in MLX:
        assert matching_level("Q4_K_M", engine, where="test") == "4bit-g32"
    else:
        with pytest.raises(ConfigError, match="has no quantization that matches Q4_K_M"):
            matching_level("Q4_K_M", engine, where="test")
