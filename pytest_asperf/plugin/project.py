"""The folder whose settings count in a session: nearest to the tests, for any working folder."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from pytest_asperf.config.text_file import nearest_configuration
from pytest_asperf.errors import ConfigError, printable


def folder_of(config: pytest.Config, tests: Iterable[Path]) -> Path:
    """The folder of the configuration file that counts for tests in these files.

    Before the tests are known, the command line's paths are used. Tests without a file use the
    working folder's. Without any, it is pytest's root, as paths in markers start there.

    Raises:
        ConfigError: two files could be meant.
    """
    working = config.invocation_params.dir
    paths = sorted(set(tests) or set(_named(config)))
    # By its resolved path, a file counts once, for any links to it; `Path.resolve` raises for a
    # link to itself. Tests behind a link are in two places, and either may have a file.
    places = [*paths, *(Path(os.path.realpath(path)) for path in paths)]
    found: dict[str, Path] = {}
    for start in dict.fromkeys(path if path.is_dir() else path.parent for path in places):
        if file := nearest_configuration(start):
            found.setdefault(os.path.realpath(file), file)
    own = nearest_configuration(working)
    if own is not None:
        found.setdefault(os.path.realpath(own), own)
    if len(found) > 1:
        first, second, *_ = found.values()
        raise _two_files(first, second, is_own=second is own, working=working)
    if found:
        return next(iter(found.values())).parent
    # Without a pytest configuration, `--pyargs` puts the root into site-packages.
    return config.rootpath if config.inipath else working


def _named(config: pytest.Config) -> Iterator[Path]:
    """The files and folders that the command line names, without the modules of `--pyargs`."""
    for argument in config.args:
        path = config.invocation_params.dir / argument.partition("::")[0]
        if path.exists():
            yield path


def _two_files(first: Path, second: Path, *, is_own: bool, working: Path) -> ConfigError:
    files = f"{printable(first, 300)} and {printable(second, 300)}"
    if is_own:
        return ConfigError(
            f"two configuration files: {files}",
            why=f"the first is nearest to the tests, the second to the working folder ({working})",
            remedy=f"run pytest in {first.parent}, or keep the settings in one of the two files",
        )
    return ConfigError(
        f"two configuration files for the tests of one session: {files}",
        why="a session measures with one configuration",
        remedy=f"run the tests below {first.parent} and below {second.parent} separately",
    )
