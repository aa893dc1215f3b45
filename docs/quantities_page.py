"""Writes docs/quantities.md, the list of all quantities: `python docs/quantities_page.py`.

The page's words, units and types are the code's. Each example is evaluated up to its comparison,
which measures nothing, so that none can name what does not exist, or compare it in another unit.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import pytest_asperf
from pytest_asperf.analysis.limit_verdict import read_limit
from pytest_asperf.analysis.metrics import EFFICIENCY_UNIT
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
from pytest_asperf.config.build_sources import Interpreter
from pytest_asperf.config.catalogue import Catalogue
from pytest_asperf.config.settings import Settings
from pytest_asperf.config.spec import Build, ModelRef, ModelSpec, Pairing
from pytest_asperf.measure.workspace import Workspace
from pytest_asperf.plugin import fixtures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PAGE: Final = Path(__file__).with_name("quantities.md")

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
#: What is to be said of two quantities, or of one on something else than the test's model.
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
<!-- Written by docs/quantities_page.py. -->
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


def page() -> str:
    """The page's text.

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
            read_limit(limit, quantity.unit, where=example, may_be_negative=signed)
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
    kind = member.__globals__.get(str(returned))
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


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
