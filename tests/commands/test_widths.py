"""Lines fit the width that a terminal has, and what a user copies is not broken."""

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

import pytest_asperf
from pytest_asperf.cli import COMMANDS
from pytest_asperf.report.wrapping import wrapped
from tests.commands.conftest import Ended
from tests.syntax import nodes_of

#: Characters of a remedy: what does not fit is a page, or a command that lists it.
_LONGEST: Final = 240
#: Words of one of its clauses.
_MOST_WORDS: Final = 25
_MISTAKES: Final = {
    "gate current current --workload tg12x": "did you mean 'tg128'?",
    "gate CAND current": "unknown build 'CAND'",
    "gate current": "CAND is missing",
    "gate ./nope current": "there is no such file or folder",
    "gate current current --model asperf-target:Q9": "unknown quantization 'Q9'",
    "gate current current --tolerance 5tok": "'5tok' is not usable",
    "gate current current,type_k=q9": "'q9' is not usable",
    "gate current current --engine lama": "did you mean 'llama_cpp'?",
    "gate current current --report pdf:x": "is not FORMAT:FILE",
    "gate current current --set hardware=m9": "no hardware profile is called 'm9'",
    "gate --set nope=1": "lists the keys",
    "gate --set wiat=3": "did you mean 'wait'?",
    "gate current current --report htm:x": "the terminal; did you mean 'html'?",
    "gate current current --max-kld 20": "is not a number from 0.000001 to 10",
    "gate current current --model nope.gguf": "there is no file",
    "gate --tolerence 5%": "No such option '--tolerence'",
    "gat": "did you mean 'gate'?",
    "bisect current current": "is not known",
    "builds make nope": "unknown build 'nope'",
    "history": "no history is named",
    "history --store .": "is a folder",
    "report nope.json --report html:x.html": "cannot be read",
    "placement x": "is no Core ML model",
    "nightly current": "no history is named",
    "history shwo": "Did you mean 'show'?",
    "compare a.json b.json": "a.json is not a file",
    "audit --hardware m2ulta x.log": "did you mean 'm2ultra'?",
    "audit x.log": "",
    "predict --model asperf-targt": "did you mean 'asperf-target'?",
    "models lst": "Did you mean 'list'?",
    "calibrate --pairs 2": "is not a whole number of at least 5",
    "load htp://x": "'htp://x' is not usable",
    "doctor --rnu": "Did you mean '--run'?",
    "demo --set seed=x": "'x' is not usable",
    "init x.ggf": "there is no such file",
}
if "findings" in COMMANDS:  # a plugin's
    _MISTAKES["findings nope"] = "no finding is called 'nope'"


def too_wide(text: str, width: int) -> list[str]:
    """The lines that are wider, unless one word or command is all that they have."""
    wide = [line for line in text.splitlines() if len(line) > width]
    return [line for line in wide if len(re.sub("`[^`]*`", "X", line).split()) > 1]


def test_each_command_has_a_mistake() -> None:
    """A new command is typed wrongly here too."""
    assert {words.split()[0] for words in _MISTAKES} >= COMMANDS.keys()


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("words", _MISTAKES)
def test_an_error_fits_the_width(
    words: str,
    width: int,
    run_asperf: Callable[..., Ended],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Every mistake ends the command before a measurement, in lines of at most the width."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASPERF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", str(width))
    done = run_asperf(*words.split())
    assert done.returncode == 3
    assert _MISTAKES[words] in " ".join(done.stderr.split())
    assert too_wide(done.stdout + done.stderr, width) == []


def test_a_pipe_gets_whole_lines(
    run_asperf: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without COLUMNS nothing is broken for a file or a pipe."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    done = run_asperf("gate", "CAND", "current")
    assert len(done.stderr.splitlines()) == 2


def test_a_command_is_not_broken() -> None:
    """A command in backquotes is on one line, longer than the width if need be."""
    command = "`asperf gate llama-cpp-python==0.3.35 llama-cpp-python==0.3.36`"
    lines = wrapped(f"  what to do:     name both, as in {command}, or set it", 60)
    assert any(command in line for line in lines)
    assert lines[0] == "  what to do:     name both, as in"


def _literal(node: ast.expr) -> str:
    """The text of an expression, each value in it as one sign."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(_literal, parts))
        case ast.BinOp(left=left, right=right):
            return _literal(left) + _literal(right)
        case ast.IfExp(body=one, orelse=other):
            return max(_literal(one), _literal(other), key=len)
        case ast.Call(args=[first, *_]):
            return _literal(first)
    return "…"


def test_a_remedy_is_short() -> None:
    """No part of an error has more than 240 characters, or a clause of more than 25 words."""
    found = {
        f"{path.name}:{call.lineno}": text
        for path in Path(pytest_asperf.__file__).parent.rglob("*.py")
        for call in nodes_of(path)
        if isinstance(call, ast.Call)
        for word in call.keywords
        if word.arg in {"remedy", "opt_out", "why"}
        and (
            len(text := _literal(word.value)) > _LONGEST
            or max(len(clause.split()) for clause in re.split("[.;:] ", text)) > _MOST_WORDS
        )
    }
    assert found == {}
