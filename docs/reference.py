"""Writes the pages of the reference from the code and the data: `python docs/reference.py`.

Whole pages, and parts of pages between `<!-- generated: NAME -->` and `<!-- end -->`. Each example
of a quantity is evaluated up to its comparison, which measures nothing, so that none can name a
quantity that does not exist, or compare it in another unit.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import runpy
import sys
import tomllib
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import click

import pytest_asperf
from pytest_asperf import strategies, testing
from pytest_asperf.analysis.guards.guard import Guard
from pytest_asperf.analysis.limit_verdict import read_limit
from pytest_asperf.analysis.metrics import EFFICIENCY_UNIT
from pytest_asperf.analysis.outcome import ExitCode
from pytest_asperf.analysis.stats.estimate import RATIO
from pytest_asperf.api.energy import Energy
from pytest_asperf.api.gate import Gate
from pytest_asperf.api.ladder import Ladder
from pytest_asperf.api.latency import Latency
from pytest_asperf.api.measurement_context import MeasurementContext, ModelUnderTest, NoRecord
from pytest_asperf.api.memory import Memory
from pytest_asperf.api.model import Model
from pytest_asperf.api.quantity import Quantity
from pytest_asperf.api.speculation import Speculation
from pytest_asperf.api.throughput import Throughput
from pytest_asperf.cli import app, every_command
from pytest_asperf.config.build_sources import Interpreter
from pytest_asperf.config.catalogue import Catalogue
from pytest_asperf.config.settings import DECLARED, OPTIONS, Settings, default_text, help_text
from pytest_asperf.config.spec import Build, ModelRef, ModelSpec, Pairing
from pytest_asperf.measure.workspace import Workspace
from pytest_asperf.plugin import fixtures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType

HERE: Final = Path(__file__).parent
SCHEMA: Final = Path(pytest_asperf.__file__).parent / "report" / "report.schema.json"
#: The module next to this one, whose folder is no package.
JSON_SCHEMA: Final = runpy.run_path(str(HERE / "json_schema.py"))

#: By fixture, an assertion on each of its quantities.
EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "throughput": (
        'throughput("tg128") >= "40 tok/s"',
        'throughput("tg128").cv < "1%"',
        'throughput("tg128").bandwidth_utilization >= "60%"',
    ),
    "latency": (
        'latency("ttft512") <= "250 ms"',
        'latency("itl128") <= "25 ms"',
        'latency("pp512+tg128") <= "3 s"',
        'latency("load") <= "2 s"',
        'latency("itl128").p95 <= "40 ms"',
        'latency("itl128").p99 <= "60 ms"',
        'latency("itl128").percentile(99.9) <= "80 ms"',
        'latency("ttft512").cv < "5%"',
        'latency("pp512+tg128").ttft <= "250 ms"',
        'latency("pp512+tg128").tpot <= "25 ms"',
        'latency("pp512+tg128").prefill_share <= "30%"',
        'latency("pp512+tg128").effective_rate >= "30 tok/s"',
        'latency("ttft512").handoff <= "10 ms"',
        'latency("load").peak_memory <= "2 GiB"',
        'latency.crossover("@coreml_hybrid", "@mlx_alone") <= 410',
    ),
    "energy": (
        'energy("tg128") <= "0.5 J/token"',
        'energy("tg128").rail("gpu") <= "0.3 J/token"',
        'energy("tg128").net <= "0.4 J/token"',
        'energy("tg128").power <= "30 W"',
    ),
    "memory": (
        'memory(4096) <= "8 GiB"',
        'memory(4096).weights <= "5 GiB"',
        'memory(4096).kv <= "1 GiB"',
        'memory(4096).compute <= "512 MiB"',
        'memory(4096).peak_rss <= "8 GiB"',
    ),
    "model": (
        'model.size <= "5 GiB"',
        'model.disk <= "5 GiB"',
        'model.disk_of("m.mlpackage", "m.mlmodelc") <= "5 GiB"',
        'model.placement("ANE", "m.mlpackage") >= "95%"',
        'model.kld("logits@c4") <= "0.02 nats"',
        'model.kld("logits").largest <= "1 nats"',
    ),
    "perplexity": (
        "perplexity.ppl <= 9.5",
        'perplexity.delta < "1%"',
        "perplexity.kld < 0.01",
        'perplexity.same_top >= "95%"',
    ),
    "ladder": (
        'ladder["Q8_0"].efficiency("tg128") >= 1.5',
        'ladder["Q4_K_M"].size / ladder["F16"].size <= "40%"',
        'ladder["Q4_K_M"].throughput("tg128") / ladder["F16"].throughput("tg128") >= 1.5',
        'ladder["Q4_K_M"].latency("ttft512") < ladder["F16"].latency("ttft512")',
        'ladder["Q4_K_M"].energy("tg128") < ladder["F16"].energy("tg128")',
        'ladder["Q4_K_M"].memory(4096) <= "4 GiB"',
    ),
    "speculation": (
        'speculation.gain >= "20%"',
        'speculation.acceptance >= "40%"',
        'speculation.acceptance_of("code") >= "60%"',
        "speculation.ratio >= 2.5",
        "speculation.break_even <= 2.5",
        "speculation.verify_cost(5) <= 1.2",
        'speculation.overhead_on("10.0.0.2:50052").change >= "-50%"',
        'speculation.overhead_on("10.0.0.2:50052").per_token <= "20 ms"',
        'speculation.overhead_on("10.0.0.2:50052").per_drafted_token <= "10 ms"',
    ),
    "gate": (
        'gate.candidate.throughput("tg128") / gate.baseline.throughput("tg128") >= 1.1',
        'gate.candidate.latency("ttft512") < gate.baseline.latency("ttft512")',
    ),
}
#: By example, the quantity, if its workload decides that.
WORDS: Final = {
    'latency("ttft512") <= "250 ms"': "TTFT: the median time until the first output token, ms.",
    'latency("itl128") <= "25 ms"': "ITL: the median time of each token of a generation, ms.",
    'latency("pp512+tg128") <= "3 s"': "E2E: the median time of a whole request, ms.",
    'latency("load") <= "2 s"': "The median time of a load until the first output token, ms.",
}
#: An example of each function.
FUNCTIONS: Final = (
    'assert_no_regression(gate("tg128", "pp512", "ppl"), tolerance="5%")',
    'assert_ppl_delta(perplexity, below="1%")',
    "assert_sd_gain(speculation, when_ratio=2.5)",
    "assert_lossless(speculation)",
    'assert_monotonic(ladder, "kld")',
    'assert_pareto_optimal(ladder, "Q4_K_M", objectives=("size", "tg128", "ppl"))',
    "assert_fits(model, hardware)",
    'assert_as_published(throughput("tg128"), "atom-paper/three-machines/m2ultra-76/tg")',
)
#: Statements about two quantities, or one on something else than the test's model.
COMPARISONS: Final = (
    ("one is larger than the other", 'throughput("tg128", engine="mlx") > throughput("tg128")'),
    ("a factor, in run pairs", 'throughput("tg128") / throughput("tg128@d4096") <= 1.3'),
    ("a difference", 'ladder["Q4_K_M"].delta - ladder["Q8_0"].delta < "4%"'),
    (
        "equal within 5 %",
        '1 / 1.05 <= latency("ttft512") / latency("ttft512", quant="Q4_K_M") <= 1.05',
    ),
    ("another model", 'energy("tg128", model="@other_draft") < energy("tg128")'),
    ("one runs as steadily", 'throughput("tg128").cv <= throughput("pp512").cv'),
)
_HEAD: Final = """\
<!-- Written by docs/reference.py. -->
# Which fixture, which quantity

A fixture gives measurements, a measurement has quantities, and a comparison of a quantity is a
verdict, which a test asserts. Each example can be copied into a test that takes its fixture.
[Writing tests](tests.md) has the rules of comparisons.

## Fixtures

"""
_COMPARING: Final = """
## Comparisons

`<`, `<=`, `>` and `>=` compare a quantity with a limit, or with another quantity of its unit. A
limit is a number in the unit of the quantity, or a text such as `"250 ms"`. Changes, shares and
factors also take a percentage, `"5%"`. `throughput("tg128").estimate` is the number with its
interval, for code that judges it. `assert energy("pp512").ran_on("ANE")` and
`assert model.scores("a text", n_ubatch=1).agrees` need no comparison.

"""
_UNITS: Final = {"": "none", RATIO: "factor", EFFICIENCY_UNIT: "factor per %"}


def quantities_page() -> str:
    """The page of quantities.

    Raises:
        ValueError: a quantity has no example.
        AsperfError: an example compares what cannot be compared.
    """
    values = fixture_values()
    parts = [_HEAD, table(("fixture", "type", "value"), _fixture_rows())]
    shown: set[tuple[str, str]] = set()
    for fixture, examples in EXAMPLES.items():
        rows = []
        for example in examples:
            quantity, owner, member = _compared(example, values)
            shown.add((owner.__name__, member))
            documented = type(quantity) if member == "__call__" else getattr(owner, member)
            what = WORDS.get(example) or _summary(documented)
            unit = _UNITS.get(quantity.unit, quantity.unit)
            rows.append((f"`assert {example}`", unit, what))
        parts += [f"\n## `{fixture}`\n\n", table(("example", "unit", "quantity"), rows)]
    if missing := quantities() - shown:
        raise ValueError(f"no example of {sorted(missing)}: add one to EXAMPLES")
    for _, example in COMPARISONS:
        _compared(example, values)
    comparisons = ((say, f"`assert {example}`") for say, example in COMPARISONS)
    parts += [_COMPARING, table(("to say", "write"), comparisons)]
    parts += ["\n## Functions\n\n", table(("example", "assertion"), _function_rows(values))]
    return "".join(parts)


def fixture_values() -> dict[str, Any]:
    """A value of each fixture that has quantities, which measures nothing before a comparison."""
    spec = ModelSpec("asperf-target")
    refs = {quant: ModelRef(spec, quant) for quant in ("F16", "Q8_0", "Q4_K_M")}

    def nothing(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("an example has measured something")

    def find(*, model: str | None, engine: str | None, quant: str | None) -> ModelUnderTest:
        other = replace(spec, name=f"{model or spec.name} {engine or ''}")
        return replace(variant, ref=ModelRef(other, quant))

    budget = Workspace(Catalogue(Path(), (), Settings(seed=0))).gate_budget
    runner = cast("Any", SimpleNamespace(build=SimpleNamespace(engine="llama_cpp")))
    bounds = cast("Any", nothing)
    context = MeasurementContext(
        runner, NoRecord(), bounds, Settings().max_cv, budget, nothing, find
    )
    variant = ModelUnderTest(refs["Q8_0"], context)
    ladder = Ladder(
        refs["F16"], {q: refs[q] for q in ("Q8_0", "Q4_K_M")}, context, tuple(refs.values())
    )
    build = Build("current", Interpreter(Path(sys.executable)))
    pairing = Pairing(refs["F16"], refs["Q8_0"])
    return {
        "throughput": Throughput(variant),
        "latency": Latency(variant),
        "energy": Energy(variant),
        "memory": Memory(variant),
        "model": Model(variant),
        "perplexity": ladder["Q8_0"],
        "ladder": ladder,
        "speculation": Speculation(pairing, budget, context, nothing),
        "gate": Gate(refs["F16"], (build, replace(build, name="new")), budget, context, pairing),
        "hardware": "m2ultra",
    }


def _compared(example: str, values: Mapping[str, Any]) -> tuple[Quantity, type, str]:
    """An example's first quantity, with the type that has it and its name there."""
    compare = cast("ast.Compare", ast.parse(example, mode="eval").body)
    nodes = [compare.left, *compare.comparators]
    sides = [_value(node, values) for node in nodes]
    for pair in pairwise(sides):
        limits = [side for side in pair if not isinstance(side, Quantity)]
        (quantity, *others) = [side for side in pair if isinstance(side, Quantity)]
        for limit in limits:
            signed = quantity.is_signed
            read_limit(">=", limit, quantity.unit, where=example, may_be_negative=signed)
        if others and others[0].unit != quantity.unit:
            raise ValueError(f"{example}: these are in {quantity.unit} and {others[0].unit}")
    node = next(n for n, side in zip(nodes, sides, strict=True) if isinstance(side, Quantity))
    node = node.left if isinstance(node, ast.BinOp) else node
    quantity = _value(node, values)
    node = node.func if isinstance(node, ast.Call) else node
    if isinstance(node, ast.Attribute):
        return quantity, type(_value(node.value, values)), node.attr
    return quantity, type(_value(node, values)), "__call__"


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    return eval(ast.unparse(node), dict(values))  # noqa: S307  # this file's own examples


def quantities() -> set[tuple[str, str]]:
    """Each property and method of a public type that gives a quantity, by type and name."""
    public = (getattr(pytest_asperf, name) for name in pytest_asperf.__all__)
    return {
        (kind.__name__, name)
        for kind in public
        if isinstance(kind, type) and kind is not Quantity
        for name, member in vars(kind).items()
        if name == "__call__" or not name.startswith("_")
        if _gives_quantity(member.fget if isinstance(member, property) else member)
    }


def _gives_quantity(member: object) -> bool:
    if not inspect.isfunction(member):
        return False
    returned = member.__annotations__.get("return")
    kind = member.__globals__.get(returned) if isinstance(returned, str) else returned
    return isinstance(kind, type) and issubclass(kind, Quantity)


def _fixture_rows() -> Iterable[tuple[str, ...]]:
    tree = ast.parse(Path(fixtures.__file__).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.returns:
            what = (ast.get_docstring(node) or "").partition("\n\n")[0]
            yield f"`{node.name}`", f"`{ast.unparse(node.returns)}`", " ".join(what.split())


def _function_rows(values: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    calls = [cast("ast.Call", ast.parse(example, mode="eval").body) for example in FUNCTIONS]
    names = [ast.unparse(call.func) for call in calls]
    if set(names) != {name for name in pytest_asperf.__all__ if name.startswith("assert_")}:
        raise ValueError(f"FUNCTIONS has {', '.join(names)}: an example of each function")
    for example, name, call in zip(FUNCTIONS, names, calls, strict=True):
        function = getattr(pytest_asperf, name)
        given = {str(word.arg): _value(word.value, values) for word in call.keywords}
        inspect.signature(function).bind(*(_value(arg, values) for arg in call.args), **given)
        yield f"`{example}`", _summary(function)


def _summary(documented: object) -> str:
    """The first paragraph of a docstring, on one line."""
    text = inspect.getdoc(documented) or ""
    return re.sub(r"\s+", " ", text.partition("\n\n")[0])


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [heads, ("---",) * len(heads), *rows]
    escaped = ((cell.replace("|", r"\|") for cell in line) for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


#: By heading, the public names, each with the members that a test may need.
NAMES: Final[dict[str, dict[str, str]]] = tomllib.loads(
    (HERE / "names.toml").read_text(encoding="utf-8")
)
#: Modules next to the package, with their public names.
MODULES: Final[dict[ModuleType, str]] = {
    strategies: "prompts workloads settings quants ladders bits bounded",
    testing: "check_engine write_script ConformanceError",
}
_NAMES_HEAD: Final = """\
<!-- Written by docs/reference.py. -->
# Python names

Everything that a test needs is imported from `pytest_asperf`. [Writing tests](tests.md) shows it in
use, and [Which fixture, which quantity](quantities.md) has an example of each quantity.
"""


def names_page() -> str:
    """The page of public names.

    Raises:
        ValueError: the page lacks a public name.
    """
    shown = {name for group in NAMES.values() for name in group}
    if missing := {name for name in pytest_asperf.__all__ if name[0] != "_"} - shown:
        raise ValueError(f"NAMES lacks {sorted(missing)}")
    parts = [_NAMES_HEAD]
    for heading, group in NAMES.items():
        parts.append(f"\n## {heading}\n")
        with_fields = heading == "Results"
        parts += [_entry(pytest_asperf, name, group[name], with_fields) for name in group]
    for module, names in MODULES.items():
        parts.append(f"\n## `{module.__name__}`\n\n{_prose(inspect.getdoc(module) or '')}\n")
        parts += [_entry(module, name, "", with_fields=False) for name in names.split()]
    return "".join(parts)


def _entry(module: ModuleType, name: str, members: str, with_fields: bool) -> str:  # noqa: FBT001
    value = getattr(module, name)
    words = inspect.getdoc(value) or ""
    if isinstance(value, type):
        before, _, after = words.partition("\n\nAttributes:\n")
        fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
        hidden = {one.name for one in fields if not one.repr}
        lines = after.partition("\n\n")[0].splitlines() if with_fields else []
        kept = [one for one in lines if one.strip().partition(":")[0] not in hidden]
        words = f"{before}\n\nAttributes:\n" + "\n".join(kept) if kept else before
    head = f"\n### `{name}{'' if isinstance(value, type) else _signature(value)}`\n"
    rows = [
        (f"`{_member_name(value, member)}`", _summary(inspect.getattr_static(value, member)))
        for member in members.split()
    ]
    listed = table(("member", "meaning"), rows) if rows else ""
    return f"{head}\n{_prose(words)}\n" + (f"\n{listed}" if listed else "")


def _member_name(kind: type, member: str) -> str:
    found = inspect.getattr_static(kind, member)
    if isinstance(found, property) or not callable(found):
        return f".{member}"
    arguments = _signature(found).replace("(self, ", "(").replace("(self)", "()")
    if member == "__getitem__":
        return f"[{arguments[1:-1]}]"
    return arguments if member == "__call__" else f".{member}{arguments}"


def _signature(function: Callable[..., object]) -> str:
    """The parameters without their types."""
    signature = inspect.signature(function)
    plain = [
        one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()
    ]
    return str(inspect.Signature(plain))


def _prose(docstring: str) -> str:
    """A docstring in Markdown: its sections become lists."""
    lines: list[str] = []
    is_section = False
    for line in docstring.replace("``", "`").splitlines():
        if re.fullmatch(r"[A-Z][a-z]+:", line):
            is_section = True
            lines += [line, ""]
        elif is_section and (item := re.fullmatch(r" {4}([\w*]+(?:, [\w*]+)*): (.*)", line)):
            lines.append(f"- `{item[1]}`: {item[2]}")
        elif is_section and line.startswith("    "):
            lines.append(f"  {line.strip()}" if lines[-1] else line.strip())
        else:
            is_section = is_section and not line
            lines.append(line)
    return "\n".join(lines)


def _options() -> str:
    return table(
        ("option", "key of `[tool.asperf]`", "effect"),
        (
            (f"`{option}={DECLARED[key].metavar}`", f"`{key}`", help_text(key))
            for option, key in OPTIONS.items()
        ),
    )


def _keys() -> str:
    keys = [key for key, one in DECLARED.items() if not one.metavar]
    return table(
        ("key", "default", "effect"),
        ((f"`{key}`", default_text(key), DECLARED[key].help) for key in keys),
    )


def _commands() -> str:
    sections = []
    for words, command in list(every_command())[1:]:
        context = click.Context(command, info_name=words, **app.context_settings)
        usage = " ".join(command.collect_usage_pieces(context))
        options = [one for one in command.get_params(context) if isinstance(one, click.Option)]
        records = [one.get_help_record(context) for one in options if "--help" not in one.opts]
        rows = [(f"`{name}`", effect) for name, effect in filter(None, records)]
        options_table = [table(("option", "effect"), rows)] if rows else []
        head = f"{'#' * min(3, len(words.split()))} `{words}`"
        parts = [head, inspect.cleandoc(command.help or ""), f"```text\n{words} {usage}\n```"]
        sections.append("\n\n".join([*parts, *options_table]))
    return "\n".join(f"{section.rstrip()}\n" for section in sections)


def _exit_codes() -> str:
    return table(("code", "meaning"), ((str(int(one)), one.meaning) for one in ExitCode))


def _addresses() -> str:
    text = (HERE.parent / "pyproject.toml").read_text(encoding="utf-8")
    urls: dict[str, str] = tomllib.loads(text)["project"]["urls"]
    return table(("address", "of"), ((f"<{url}>", name.lower()) for name, url in urls.items()))


def _pages() -> str:
    """The site's tree of pages, from the links of the index's own lists and tables."""
    index = (HERE / "index.md").read_text(encoding="utf-8").partition("<!--")[0].split("\n\n")
    placed: set[str] = set()
    trees = []
    for words, caption in _PARTS.items():
        linked = [re.findall(r"\]\(([a-z-]+)\.md", one) for one in index if one.startswith(words)]
        pages = [page for page in dict.fromkeys(chain(*linked)) if page not in placed]
        placed.update(pages)
        tree = ("```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```\n")
        trees.append("\n".join(tree))
    return "\n".join(trees)


def _guards() -> str:
    """A heading for each guard.

    Raises:
        ValueError: `guards.toml` lacks a guard, or has one that does not exist.
    """
    texts = tomllib.loads((HERE / "guards.toml").read_text(encoding="utf-8"))
    if different := texts.keys() ^ {str(guard) for guard in Guard}:
        raise ValueError(f"guards.toml and Guard differ in {sorted(different)}")
    return "\n".join(_guard(guard, **texts[guard]) for guard in sorted(Guard))


def _guard(guard: Guard, catches: str, rule: str, source: str = "") -> str:
    voids = "" if str(guard.consequence) == "WARNING" else f": {guard.voids}"
    lines = [
        f"### `{guard}`\n",
        f"- catches: {catches}",
        f"- rule: {rule}",
        f"- consequence: {guard.consequence}{voids}",
        f"- what to do: {guard.remedy}",
        *([f"- source: {source}"] if source else []),
    ]
    return "\n".join(lines) + "\n"


REGIONS: Final[dict[str, Callable[[], str]]] = {
    "options": _options,
    "keys": _keys,
    "commands": _commands,
    "exit codes": _exit_codes,
    "addresses": _addresses,
    "pages": _pages,
    "guards": _guards,
    "json": JSON_SCHEMA["tables"],
}
#: Parts of the site, by the first words of the index's lists and tables.
_PARTS: Final = {
    "**Start**": "Start",
    "| to": "How to",
    "| reference": "Reference",
    "| appendix": "Appendix",
}
_REGION: Final = re.compile(
    r"(<!-- generated: ([a-z ]+) -->\n\n)(?:(?!<!--).)*(\n<!-- end -->)", re.DOTALL
)


def files() -> dict[Path, str]:
    """The current text of every file that this module writes."""
    # The other pages need no plugin.
    from pytest_asperf.published.findings import load_findings  # noqa: PLC0415
    from pytest_asperf.published.pages import markdown  # noqa: PLC0415

    written = {
        HERE / "quantities.md": quantities_page(),
        HERE / "api.md": names_page(),
        HERE / "findings.md": markdown(load_findings()),
        SCHEMA: JSON_SCHEMA["schema_text"](),
    }
    for page in sorted(HERE.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if _REGION.search(text):
            written[page] = _REGION.sub(lambda one: one[1] + REGIONS[one[2]]() + one[3], text)
    return written


if __name__ == "__main__":
    for file, current in files().items():
        file.write_text(current, encoding="utf-8")
