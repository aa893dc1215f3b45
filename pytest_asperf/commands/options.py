"""The common part of all commands: options, their completion, reports, and how errors end them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar, get_args

import click
from click import Context, Parameter

from pytest_asperf.analysis.outcome import ExitCode
from pytest_asperf.config.setting_rules import ReportFormat, ReportTarget
from pytest_asperf.config.settings import DECLARED, MOST_KLD, flag, help_text, in_file
from pytest_asperf.errors import (
    SETTING_NAMES,
    AsperfError,
    ConfigError,
    ModelError,
    listing,
    printable,
    suggest,
)
from pytest_asperf.measure.workspace import Workspace

#: The present defaults; the environment may change them.
WORKLOADS: Final = (
    *("tg128", "tg128@d4096", "pp512", "ttft512", "itl128", "pp512+tg128"),
    *("jtg128", "jpp512", "ppl", "logits", "ppl@d1024", "logits@d1024", "sd"),
)


def setting_keys(_context: Context, _param: Parameter, incomplete: str) -> list[str]:
    """Keys of settings, up to the value."""
    return _beginning(incomplete, (f"{key}=" for key in DECLARED))


def models(_context: Context, _param: Parameter, incomplete: str) -> list[str]:
    """Names of models; behind a name's colon its quantizations."""
    from pytest_asperf.config.engines import level_names

    def names(project: Workspace) -> Iterable[str]:
        for spec in project.catalogue.models:
            levels = dict(spec.files) or level_names(spec.engine)
            yield from (f"{spec.name}:{level}" for level in levels) if is_level else [spec.name]

    is_level = ":" in incomplete
    return of_project(incomplete, names)


def builds(_context: Context, _param: Parameter, incomplete: str) -> list[str]:
    """Names of builds."""
    return of_project(
        incomplete, lambda project: ["current", *(b.name for b in project.catalogue.builds)]
    )


def workloads(_context: Context, _param: Parameter, incomplete: str) -> list[str]:
    """Names of workloads, the last of a list."""
    others, comma, _ = incomplete.rpartition(",")
    return _beginning(incomplete, (f"{others}{comma}{name}" for name in WORKLOADS))


def of_project(incomplete: str, names: Callable[[Workspace], Iterable[str]]) -> list[str]:
    """None if the configuration is invalid: the command will print the reason."""
    from pytest_asperf.commands.project import open_project

    with suppress(AsperfError):
        return _beginning(incomplete, names(open_project()))
    return []


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def number_from(least: float, most: float | None = None) -> Callable[[object], float]:
    """The type of an option that is a number in a range; a whole one if `least` is."""
    kind = type(least)

    def read(value: Any) -> float:
        with suppress(ValueError):
            number = kind(value)
            if least <= number and (most is None or number <= most):
                return number
        words = "whole number" if kind is int else "number"
        bounds = (f"{bound:,f}".rstrip("0").rstrip(".") for bound in (least, most or 0))
        among = f"of at least {next(bounds)}" if most is None else f"from {' to '.join(bounds)}"
        raise click.BadParameter(f"{printable(value, 80)!r} is not a {words} {among}")

    return read


def share(value: Any) -> float:
    """The type of an option that is a share up to 100 %: a fraction, or a number with a percent."""
    from pytest_asperf.analysis.limit_verdict import parse_percent

    try:
        fraction = parse_percent(value, where="", of_whole=True)
    except ConfigError as error:
        reason = f"{printable(value, 80)!r} is not usable: {error.remedy}"
        raise click.BadParameter(reason) from None
    if fraction > 1:
        raise click.BadParameter(f"{printable(value, 80)!r} is more than 100 %")
    return fraction


T = TypeVar("T", bound="Callable[..., Any]")

_SET: Final = "set_"


def end(code: int) -> None:
    """End the command with an exit code, unless it is 0."""
    if code:
        raise click.exceptions.Exit(code)


def code_of(error: AsperfError) -> ExitCode:
    """The exit code of a command that ends in an error."""
    return ExitCode.USAGE if isinstance(error, ConfigError | ModelError) else ExitCode.INVALID


def named(options: Collection[str], key: str, value: str) -> str:
    """A setting as an advice in a command names it that has these options."""
    if key in options:
        return f"the argument {key.upper()}"
    if flag(key) in options:
        return f"{flag(key)}={value}" if value else flag(key)
    if "--set" in options:
        return f"--set {key}={value or DECLARED[key].metavar}"
    return in_file(key, value)


class _Ends(click.Command):
    def invoke(self, ctx: click.Context) -> Any:
        """Run it; an error is printed while its options are known, so in its own words."""
        from pytest_asperf.commands.console import print_error  # loads rich

        options = frozenset(option for param in self.params for option in param.opts)
        outside = SETTING_NAMES.set(partial(named, options))
        try:
            return super().invoke(ctx)
        except AsperfError as error:
            print_error(error)
            ctx.exit(code_of(error))
        except KeyboardInterrupt:
            ctx.exit(ExitCode.INTERRUPTED)
        finally:
            SETTING_NAMES.reset(outside)


class Command(_Ends):
    """A command that ends with the exit code of its error."""


class Group(_Ends, click.Group):
    """A group of commands, of which one runs if none is named."""

    command_class = Command


command = partial(click.command, cls=Command)


def _keep(context: click.Context, key: str, value: object, option: str) -> None:
    if value is not None:
        context.find_root().ensure_object(dict)[key] = (value, option)


def _keep_typed(context: click.Context, param: click.Parameter, value: object) -> None:
    _keep(context, str(param.name).removeprefix(_SET), value, param.opts[0])


def _keep_set(context: click.Context, _: click.Parameter, values: Sequence[str]) -> None:
    for text in values:
        key, equals, value = text.partition("=")
        if key not in DECLARED or not equals:
            raise click.BadParameter(
                f"{printable(text, 80)!r} is no KEY=VALUE of a setting; docs/configuration.md "
                f"lists the keys{suggest(key, DECLARED)}"
            )
        _keep(context, key, [value] if DECLARED[key].is_list else value, f"--set {key}")


def settings(*keys: str, own: Mapping[str, str] | None = None) -> Callable[[T], T]:
    """Options of settings, and `--set` for every other one; `open_project` reads them.

    `own` has defaults that differ in this command.
    """

    def decorate(function: T) -> T:
        function = click.option(
            "--set",
            metavar="KEY=VALUE",
            multiple=True,
            expose_value=False,
            callback=_keep_set,
            shell_complete=setting_keys,
            help="Another setting of [tool.asperf], such as wait=30min; repeatable.",
        )(function)
        for key in reversed(keys):
            text = DECLARED[key].help if own and key in own else help_text(key)
            function = click.option(
                flag(key),
                _SET + key,
                metavar=DECLARED[key].metavar,
                expose_value=False,
                callback=_keep_typed,
                help=_sentence(text + (f" (default: {own[key]})" if own and key in own else "")),
            )(function)
        return function

    return decorate


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


#: Arguments and options of which the shell completes the names.
build_argument = partial(click.argument, shell_complete=builds)
model_option = partial(click.option, shell_complete=models)
workload_option = partial(click.option, shell_complete=workloads)

max_ppl_delta = click.option(
    "--max-ppl-delta",
    metavar="SHARE",
    default="1%",
    help="ΔPPL of the same file that is accepted (default: 1%).",
)


max_kld = click.option(
    "--max-kld",
    metavar="NATS",
    type=number_from(1e-6, 10.0),
    default=None,
    help=f"Mean KLD against the baseline that is accepted (default: {MOST_KLD:g} nats, or twice "
    "the baseline's own).",
)


def _targets(
    formats: Collection[str], _: click.Context, __: click.Parameter, words: Sequence[str]
) -> tuple[ReportTarget, ...]:
    """The targets; rejected before anything is measured."""
    return tuple(_target(formats, word) for word in words)


def _target(formats: Collection[str], word: str) -> ReportTarget:
    name, _, path = word.partition(":")
    if name not in formats or not path:
        raise click.BadParameter(
            f"{printable(word, 200)!r} is not FORMAT:FILE; FORMAT is one of {listing(formats)}, "
            f"and FILE may be - for the terminal{suggest(name, formats)}"
        )
    target = ReportTarget(name, Path(path))  # type: ignore[arg-type]  # one of the formats
    folder = target.path.parent
    if not folder.is_dir() or target.path.is_dir():
        reason = "it is a folder" if folder.is_dir() else "its folder does not exist"
        raise click.BadParameter(f"cannot write {target.path}: {reason}")
    return target


def reports(*formats: ReportFormat, required: bool = False) -> Callable[[T], T]:
    """The option that names reports to write, `FORMAT:FILE`."""
    known = formats or get_args(ReportFormat)
    option: Callable[[T], T] = click.option(
        "--report",
        "reports",
        callback=partial(_targets, known),
        metavar="FORMAT:FILE",
        multiple=True,
        required=required,
        help=f"Write a report; FORMAT is {', '.join(known)}, FILE - is the terminal. Repeatable.",
    )
    return option


def written(
    targets: Sequence[ReportTarget], made: Mapping[ReportFormat, Callable[[], str]]
) -> bool:
    """Write the reports; True if one of them is on the terminal, instead of the text."""
    for target in targets:
        text = made[target.format]()
        if target.is_terminal:
            click.echo(text, nl=not text.endswith("\n"))
            continue
        with writing(target.path) as stream:
            stream.write(text)
    return any(target.is_terminal for target in targets)


@contextmanager
def writing(file: Path) -> Iterator[TextIO]:
    """A file to write text to; ConfigError if that cannot be written."""
    try:
        with file.open("w", encoding="utf-8") as stream:
            yield stream
    except OSError as error:
        raise ConfigError(
            f"cannot write {file}: {error.strerror}", remedy="name a file in a folder that exists"
        ) from None
