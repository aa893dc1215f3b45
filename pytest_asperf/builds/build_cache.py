"""From a build's name to the command that starts a worker, made at its first use."""

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_asperf.builds import environment, programs
from pytest_asperf.builds.environment import interpreter_of
from pytest_asperf.builds.machine_code import require_usable
from pytest_asperf.builds.programs import compile_facts, extract_tar, make_programs
from pytest_asperf.builds.step import Job
from pytest_asperf.builds.store import MadeBuild, Recipe, empty, finish, finished, note_use
from pytest_asperf.builds.surroundings import child_environment, run_program
from pytest_asperf.config.build_sources import (
    Archive,
    Checkout,
    Interpreter,
    MadeSource,
    Packages,
    ServerUrl,
    Source,
    ToolsFolder,
    has_programs,
    runs_on,
    source_text,
)
from pytest_asperf.config.engines import FOLDER_ENGINES, PROGRAM_ENGINES, Engine
from pytest_asperf.config.progress import Notify
from pytest_asperf.config.settings import NICE
from pytest_asperf.config.spec import Build
from pytest_asperf.engine_process import EngineBuild
from pytest_asperf.errors import Advice, AsperfError, BuildError, ConfigError, printable, shown
from pytest_asperf.hardware.machine_lock import MachineQueue
from pytest_asperf.modelfiles.cache import explained, locked

_SHORT_HASH: Final = 10
_WHY: Final = "the binaries are built from it"


def declared_checkout(source: Checkout, _cache: Path) -> dict[str, Any]:
    """The facts that decide a build of a checkout and that are known without running git."""
    repository = source.repository
    if not (repository / ".git").exists():
        raise BuildError(
            f"{printable(repository)} is not a git checkout",
            why=_WHY,
            remedy="name the folder of a clone of llama.cpp: "
            "git clone https://github.com/ggml-org/llama.cpp",
        )
    return {"kind": "checkout", **compile_facts(source.env, source.cmake)}


def checkout_recipe(source: Checkout, cache: Path) -> Recipe:
    """Everything that decides a build of a commit; git looks up the commit."""
    declared = declared_checkout(source, cache)
    commit = _commit(source)
    return Recipe(f"llama.cpp {commit[:_SHORT_HASH]}", {**declared, "commit": commit})


def make_commit(source: Checkout, recipe: Recipe, job: Job) -> dict[str, Any]:
    """Build a commit's binaries in a job's folder; the result has their paths."""
    commit = recipe.facts["commit"]
    what = f"{printable(source.repository)} does not count the commits before {commit}"
    number = _asked(source, ("rev-list", "--count", commit), what, remedy="clone it again")
    says = (f"-DLLAMA_BUILD_NUMBER={number}", f"-DLLAMA_BUILD_COMMIT={commit[:_SHORT_HASH]}")
    export = partial(_export, source, commit)
    return make_programs(job, export, env=source.env, cmake=(*says, *source.cmake))


def _export(source: Checkout, commit: str, tree: Path) -> None:
    """Write a commit's files to a folder."""
    command = _git_command(source, "archive", "--format=tar", commit)
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, env=child_environment(())) as archive,
        tarfile.open(fileobj=archive.stdout, mode="r|") as tar,
    ):
        extract_tar(tar, tree)


def _commit(source: Checkout) -> str:
    """A commit's full hash, checked to be one of llama.cpp's."""
    repository, named = source.repository, shown(source.commit, 80)
    commit = _asked(
        source,
        ("rev-parse", "--verify", "--end-of-options", f"{source.commit}^{{commit}}"),
        f"{printable(repository)} has no commit {named}",
        remedy=f"name a hash, tag or branch that it has; git -C {printable(repository)} fetch "
        "--tags gets those that are newer",
    )
    _asked(
        source,
        ("cat-file", "-e", f"{commit}:CMakeLists.txt"),
        f"{printable(repository)} at {named} is not llama.cpp: it has no CMakeLists.txt",
        remedy="name a checkout of llama.cpp, at a commit that is built by CMake",
    )
    return commit


def _asked(source: Checkout, words: tuple[str, ...], what: str, *, remedy: str) -> str:
    """The answer of git, or the error if it rejects the command."""
    status, printed, log = run_program(_git_command(source, *words))
    if status:
        detail = f"  | {printable(log.strip(), 300)}"
        raise BuildError(what, why=_WHY, remedy=remedy, detail=detail)
    return printed.strip()


def _git_command(source: Checkout, *words: str) -> list[str]:
    git = shutil.which("git")
    if git is None:
        raise BuildError(
            f"{printable(source.repository)} cannot be read: no git on PATH",
            remedy="install git",
            opt_out="build the commit yourself, and name the folder of its binaries",
        )
    return [git, "-C", str(source.repository), *words]


#: Prefixes of packages whose version names the compute backend.
_TELLING: Final = ("llama-cpp", "mlx", "numpy")


@dataclass(frozen=True, slots=True)
class ReadyBuild:
    """A build that a worker can be started on, and where it is in the cache if it was made."""

    engine: EngineBuild
    made: MadeBuild | None = None

    def rows(self) -> tuple[tuple[str, str], ...]:
        """How it was made as label and text, for the run record."""
        if self.made is None:
            return ()
        facts, found = self.made.facts, self.made.found
        variables = [f"{name}={text}" for name, text in facts.get("compiles_with", {}).items()]
        details = ", ".join([*facts.get("cmake", ()), *variables, *_packages(found)])
        return (("made", printable(f"{self.made.title}{': ' if details else ''}{details}", 400)),)


class BuildCache:
    """Makes builds, each once; a failure is remembered and not tried again.

    It waits for the machine's measurement lock, because compilers would disturb a measurement.
    Engines of its builds get the nice value. `python` has the llama-cpp-python that loads the
    libraries of a release or commit.
    """

    def __init__(
        self,
        cache: Path,
        *,
        lock_path: Path,
        notify: Notify,
        wait_s: float = 600.0,
        nice: int = NICE,
        python: Path | None = None,
    ) -> None:
        self._cache = cache
        self._queue = MachineQueue(lock_path, notify.wait, wait_s)
        self._notify = notify
        self._nice = nice
        self._python = python or Path(sys.executable)
        self._known: dict[Source, MadeBuild | AsperfError] = {}
        self._possible: set[Source] = set()

    def ready(self, build: Build, engine: Engine) -> ReadyBuild:
        """The build that a worker starts from, made if need be.

        Raises:
            ConfigError: a build of another engine.
            BuildError: it cannot be made.
            CacheError: the cache cannot be written to.
        """
        source = build.source
        require_engine(build, engine)
        own = EngineBuild(engine, Path(sys.executable), nice=self._nice)
        if isinstance(source, Interpreter):
            return ReadyBuild(replace(own, python=source.python))
        if isinstance(source, ServerUrl):
            return ReadyBuild(replace(own, url=source.url))
        if isinstance(source, ToolsFolder):
            return ReadyBuild(self._of_folder(own, source.folder))
        made = self.made(source)
        if has_programs(source):
            return ReadyBuild(self._of_folder(own, made.folder / str(made.found["folder"])), made)
        python, libraries = interpreter_of(made.folder), made.found.get("libraries")
        folder = made.folder / str(libraries) if libraries else None
        return ReadyBuild(
            replace(own, python=python, libraries=folder, has_own_libraries=True), made
        )

    def _of_folder(self, own: EngineBuild, folder: Path) -> EngineBuild:
        """An engine of a folder's binaries, or of the libraries next to them."""
        require_usable(folder)
        if own.engine in FOLDER_ENGINES:
            return replace(own, tools=folder)
        for place in (folder, folder.parent / "lib"):
            if any((place / name).exists() for name in ("libllama.so", "libllama.dylib")):
                require_usable(place)
                return replace(own, python=self._python, libraries=place)
        raise BuildError(
            f"{folder} has no libllama, which the engine {own.engine} loads",
            why="its binaries were linked with llama.cpp inside, or are of another system",
            remedy=Advice("measure the binaries on llama_tools or llama_server", "engine"),
        )

    def existing(self, build: Build, engine: Engine) -> ReadyBuild | None:
        """The build if it need not be made first, None if it can be made; makes nothing.

        Raises:
            ConfigError: a build of another engine.
            BuildError: it is neither made nor can be.
        """
        source = build.source
        require_engine(build, engine)
        if isinstance(source, MadeSource) and not self._is_made(source):
            self._require_parts(source)
            return None
        return self.ready(build, engine)

    def _is_made(self, source: MadeSource) -> bool:
        if source in self._known:
            return True
        return _whole(recipe_of(source, cache=self._cache).folder(self._cache)) is not None

    def _require_parts(self, source: MadeSource) -> None:
        if source not in self._possible:
            _way(source).require(source)
            self._possible.add(source)

    def made(self, source: MadeSource) -> MadeBuild:
        """A build in the cache, made if need be; raises as `ready` does."""
        if source not in self._known:
            try:
                self._known[source] = self._made(source)
            except AsperfError as error:
                self._known[source] = error
        known = self._known[source]
        if isinstance(known, AsperfError):
            raise known.with_traceback(None)
        return known

    def _made(self, source: MadeSource) -> MadeBuild:
        recipe = recipe_of(source, cache=self._cache)
        folder = recipe.folder(self._cache)
        made = _whole(folder)
        if made is None:
            self._require_parts(source)
            with explained(folder.parent):
                folder.parent.mkdir(parents=True, exist_ok=True)
            with self._queue.turn(), locked(folder, self._notify.wait):
                made = _whole(folder) or self._make(source, recipe, folder)
        note_use(folder)
        return made

    def _make(self, source: MadeSource, recipe: Recipe, folder: Path) -> MadeBuild:
        title = printable(recipe.title, 120)
        way = _way(source)
        self._notify.wait(f"{title} is being {way.how} the first time")
        job = Job(title, folder, self._notify)
        try:
            with explained(folder.parent):
                if not way.is_resumed:
                    empty(folder)
                folder.mkdir(exist_ok=True)
                job.log.write_bytes(b"")
            return finish(folder, recipe, way.make(source, recipe, job))
        except BaseException as error:
            # A stopped compilation is resumed next time.
            if isinstance(error, Exception) or not way.is_resumed:
                empty(folder)
            raise
        finally:
            self._notify.done()


class _Way(NamedTuple):
    """How builds of one kind of source are made."""

    how: str  #: in words
    #: the facts that decide it and that are known without running anything
    declared: Callable[[Any, Path], dict[str, Any]]
    recipe: Callable[[Any, Path], Recipe]  #: everything that decides it
    require: Callable[[Any], object]  #: raises BuildError if a part is missing or of another system
    #: makes it in a job's folder; the result is where its parts are
    make: Callable[[Any, Recipe, Job], dict[str, Any]]
    is_resumed: bool = False  #: True if an interrupted one continues from its present state


def _way(source: MadeSource) -> _Way:
    compiled = "compiled, which may last minutes,"
    match source:
        case Archive():
            of_archive = (programs.declared_archive, programs.archive_recipe)
            return _Way("unpacked", *of_archive, programs.folder_in, programs.unpack_release)
        case Checkout():
            of_commit = (declared_checkout, checkout_recipe, programs.require_cmake, make_commit)
            return _Way(compiled, *of_commit, is_resumed=True)
        case Packages() if has_programs(source):
            of_source = (programs.declared_source, programs.source_recipe)
            make = programs.make_source
            return _Way(compiled, *of_source, programs.require_source, make, is_resumed=True)
    return _Way(
        "installed, or compiled, which may last minutes,",
        environment.declared_environment,
        environment.environment_recipe,
        programs.require_distributions,
        environment.make_environment,
    )


def made_of(source: MadeSource, made: Iterable[MadeBuild], *, cache: Path) -> list[str]:
    """The folders' names of finished builds of a source, found without running anything.

    Neither the version of its interpreter is known then, nor the commit of a branch.

    Raises:
        BuildError: a file or the checkout is missing.
    """
    declared = _way(source).declared(source, cache)
    return [
        one.folder.name
        for one in made
        if one.made_at is not None and {**one.facts, **declared} == one.facts
    ]


def recipe_of(source: MadeSource, *, cache: Path) -> Recipe:
    """Everything that decides a build; raises BuildError if a file or commit is missing.

    It runs the interpreter of an environment, or git in a checkout.
    """
    return _way(source).recipe(source, cache)


def require_source(build: Build, *, cache: Path) -> None:
    """Raise BuildError for a build from a file or checkout that does not exist; runs nothing."""
    if isinstance(build.source, MadeSource):
        _way(build.source).declared(build.source, cache)


def require_engine(build: Build, engine: Engine) -> None:
    """Raise ConfigError for a build of one engine and a model of another."""
    if runs_on(build.source, engine):
        return
    if engine in PROGRAM_ENGINES or not isinstance(build.source, Packages):
        raise ConfigError(
            f"the engine is {engine}, and the build {build.name} is {source_text(build.source)}",
            why="binaries, servers and libraries time different things; only measurements "
            "of one kind can be compared",
            remedy=Advice(
                "name two folders of binaries, or two commits of a checkout, for llama_tools, "
                "llama_server or command; two URLs for openai; or two builds of a library",
                "engine",
            ),
        )
    (own, *_) = sorted(build.source.engines)
    raise ConfigError(
        f"the engine is {engine}, and the build {build.name} is one of {own}",
        why="an engine cannot be compared with a release of another",
        remedy=Advice(f"name a build of {engine}, or measure the model on {own}", engine=own),
    )


def _whole(folder: Path) -> MadeBuild | None:
    """A finished build that still starts: an interpreter's links may be broken."""
    made = finished(folder)
    if made is None:
        return None
    place = folder / str(made.found["folder"]) if "folder" in made.found else interpreter_of(folder)
    return made if place.exists() else None


def _packages(found: Mapping[str, Any]) -> list[str]:
    """The packages that compute, and the number of the others."""
    packages: dict[str, str] = found.get("packages", {})
    telling = [name for name in packages if name.lower().replace("_", "-").startswith(_TELLING)]
    others = len(packages) - len(telling)
    return [
        *(f"{name} {packages[name]}" for name in telling),
        *([f"{others} other packages"] if others else []),
    ]
