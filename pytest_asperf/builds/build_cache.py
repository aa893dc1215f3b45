"""From a build that a user names to what a worker starts from, made the first time it is wanted."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.builds.checkout import checkout_recipe, declared_checkout, make_tools
from pytest_asperf.builds.environment import (
    declared_environment,
    environment_recipe,
    interpreter_of,
    make_environment,
)
from pytest_asperf.builds.job import Job
from pytest_asperf.builds.store import MadeBuild, Recipe, empty, finish, finished, note_use
from pytest_asperf.config.build_sources import (
    Checkout,
    Interpreter,
    Packages,
    ServerUrl,
    Source,
    ToolsFolder,
    runs_on,
    source_text,
)
from pytest_asperf.config.engines import PROGRAM_ENGINES
from pytest_asperf.config.settings import NICE
from pytest_asperf.engine_process import EngineBuild
from pytest_asperf.errors import AsperfError, ConfigError, printable
from pytest_asperf.hardware.machine_lock import MachineQueue
from pytest_asperf.modelfiles.cache import locked
from pytest_asperf.modelfiles.cache_errors import explained

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_asperf.config.engines import Engine
    from pytest_asperf.config.progress import Notify
    from pytest_asperf.config.spec import Build

#: How packages begin whose version says what computes.
_TELLING: Final = ("llama-cpp", "mlx", "numpy")


@dataclass(frozen=True, slots=True)
class ReadyBuild:
    """A build that a worker can be started on, and where it is in the cache if it was made."""

    engine: EngineBuild
    made: MadeBuild | None = None

    def rows(self) -> tuple[tuple[str, str], ...]:
        """How it was made as label and text, for proof of path."""
        if self.made is None:
            return ()
        facts, found = self.made.facts, self.made.found
        variables = [f"{name}={text}" for name, text in facts.get("compiles_with", {}).items()]
        details = ", ".join([*facts.get("cmake", ()), *variables, *_packages(found)])
        return (("made", printable(f"{self.made.title}{': ' if details else ''}{details}", 400)),)


class BuildCache:
    """Makes builds, each once; a failure is remembered and not tried again.

    It waits for the machine's measurement lock, because compilers would disturb a measurement.
    Engines of its builds take the nice value.
    """

    def __init__(
        self,
        cache: Path,
        *,
        lock_path: Path,
        notify: Notify,
        wait_s: float = 600.0,
        nice: int = NICE,
    ) -> None:
        self._cache = cache
        self._queue = MachineQueue(lock_path, notify.wait, wait_s)
        self._notify = notify
        self._nice = nice
        self._known: dict[Source, MadeBuild | AsperfError] = {}

    def ready(self, build: Build, engine: Engine) -> ReadyBuild:
        """The build that a worker starts from, made if need be.

        Raises:
            ConfigError: a build of another engine.
            BuildError: it cannot be made.
            CacheError: the cache cannot be written to.
        """
        source = build.source
        require_engine(build, engine)
        if isinstance(source, Interpreter):
            return ReadyBuild(EngineBuild(engine, source.python, nice=self._nice))
        own = EngineBuild(engine, Path(sys.executable), nice=self._nice)
        if isinstance(source, ServerUrl):
            return ReadyBuild(replace(own, url=source.url))
        if isinstance(source, ToolsFolder):
            return ReadyBuild(replace(own, tools=source.folder))
        made = self.made(source)
        if isinstance(source, Checkout):
            return ReadyBuild(replace(own, tools=_measurement(made).parent), made)
        return ReadyBuild(replace(own, python=interpreter_of(made.folder)), made)

    def made(self, source: Packages | Checkout) -> MadeBuild:
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

    def _made(self, source: Packages | Checkout) -> MadeBuild:
        recipe = recipe_of(source, cache=self._cache)
        folder = recipe.folder(self._cache)
        made = _whole(folder)
        if made is None:
            with explained(folder.parent):
                folder.parent.mkdir(parents=True, exist_ok=True)
            with self._queue.turn(), locked(folder, self._notify.wait):
                made = _whole(folder) or self._make(source, recipe, folder)
        note_use(folder)
        return made

    def _make(self, source: Packages | Checkout, recipe: Recipe, folder: Path) -> MadeBuild:
        title = printable(recipe.title, 120)
        how = "compiled" if isinstance(source, Checkout) else "installed, or compiled"
        self._notify.wait(f"{title} is being {how}, which may take minutes the first time")
        job = Job(title, folder, self._notify)
        try:
            with explained(folder.parent):
                if isinstance(source, Packages):
                    empty(folder)
                folder.mkdir(exist_ok=True)
                job.log.write_bytes(b"")
            if isinstance(source, Checkout):
                found = make_tools(source, recipe.facts["commit"], job)
            else:
                found = make_environment(source, job)
            return finish(folder, recipe, found)
        except BaseException as error:
            # A stopped compilation is resumed next time.
            if isinstance(error, Exception) or isinstance(source, Packages):
                empty(folder)
            raise
        finally:
            self._notify.done()


def made_of(source: Packages | Checkout, made: Iterable[MadeBuild], *, cache: Path) -> list[str]:
    """The folders' names of finished builds of a source, found without running anything.

    Neither the version of its interpreter is known then, nor the commit that a branch means.

    Raises:
        BuildError: a file or the checkout is missing.
    """
    declared = _declared(source, cache)
    return [
        one.folder.name
        for one in made
        if one.made_at is not None and {**one.facts, **declared} == one.facts
    ]


def recipe_of(source: Packages | Checkout, *, cache: Path) -> Recipe:
    """Everything that decides a build; raises BuildError if a file or commit is missing.

    It runs the interpreter of an environment, or git in a checkout.
    """
    if isinstance(source, Checkout):
        return checkout_recipe(source)
    return environment_recipe(source, cache=cache)


def require_source(build: Build, *, cache: Path) -> None:
    """Raise BuildError for a build from a file or checkout that does not exist; runs nothing."""
    if isinstance(build.source, Packages | Checkout):
        _declared(build.source, cache)


def require_engine(build: Build, engine: Engine) -> None:
    """Raise ConfigError for a build of one engine and a model of another."""
    if runs_on(build.source, engine):
        return
    if engine in PROGRAM_ENGINES or not isinstance(build.source, Packages):
        raise ConfigError(
            f"the engine is {engine}, and the build {build.name} is {source_text(build.source)}",
            why="programs, servers and libraries time different things; only measurements "
            "of one kind can be compared",
            remedy="name two folders of programs, or two commits of a checkout, with "
            "--asperf-engine=llama_tools, llama_server or command; two URLs with openai; or two "
            "builds of a library without",
        )
    (own, *_) = sorted(build.source.engines)
    raise ConfigError(
        f"the engine is {engine}, and the build {build.name} is one of {own}",
        why="an engine cannot be compared with a release of another",
        remedy=f"measure on {own} with --asperf-engine={own} or engine = {own!r} of the model, or "
        f"name a build of {engine}",
    )


def _declared(source: Packages | Checkout, cache: Path) -> dict[str, Any]:
    """The facts that decide a build and that are known without running anything."""
    if isinstance(source, Checkout):
        return declared_checkout(source)
    return declared_environment(source, cache=cache)


def _whole(folder: Path) -> MadeBuild | None:
    """A finished build that still starts: what an interpreter links to may have gone."""
    made = finished(folder)
    if made is None:
        return None
    program = _measurement(made) if "programs" in made.found else interpreter_of(folder)
    return made if program.exists() else None


def _measurement(made: MadeBuild) -> Path:
    return made.folder / str(made.found["programs"]["llama-bench"])


def _packages(found: Mapping[str, Any]) -> list[str]:
    """The packages that compute, and the number of the others."""
    packages: dict[str, str] = found.get("packages", {})
    telling = [name for name in packages if name.lower().replace("_", "-").startswith(_TELLING)]
    others = len(packages) - len(telling)
    return [
        *(f"{name} {packages[name]}" for name in telling),
        *([f"{others} other packages"] if others else []),
    ]
