"""External programs as an engine: command lines that are run to their end for each request.

The only evidence of such a program is its output, the duration of its process, and its file. So
every figure is either read from its output or timed from outside, and a contradiction between the
two is an error. A failure's message begins with its name: `no-times`, `times-exceed-wall`, ...
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from .engine import Asked, Facts, LoadedModel, RefusalError, Timing, files_sha256
from .printed import number_of
from .served_model import served_facts, sizes_of, unseen_context
from .served_prompts import is_near, new_beginning
from .tool_process import ToolRun

#: The kind of an error in the middle of the work.
_KIND: Final = "command"
_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)\}")
#: Runs for one timed request: the tokens of a prompt are known once it ran.
_TRIES: Final = 12
_CHARACTERS_PER_TOKEN: Final = 3.5
#: Clocks differ, and a program may begin to count before its process is seen to run.
_CLOCK_SHARE: Final = 1.02
_CLOCK_NS: Final = 5_000_000
_OUTPUT_KEPT: Final = 2000
_CANNOT: Final = {
    **dict.fromkeys(
        ("tokenize", "prompt", "generate", "first_token", "logits", "score", "step"),
        "an external program accepts texts and shows neither tokens nor logits: PPL, logits and "
        "speculation need the engine llama_cpp, llama_tools or mlx",
    ),
    **dict.fromkeys(
        ("step_ns", "itl"),
        "an external program prints no time of each token; assert on the rate, tg128",
    ),
    "memory": "an external program does not report its allocations by purpose; "
    'latency("ttft512").peak_memory is the peak of its process',
    "users": "an external program serves one request at a time",
    "slow_by": "an external program cannot be slowed by a share; llama_cpp and scripted can",
    "quantize": "an external program is given its files as they are: declare them under "
    "`files`, by quantization",
}


class NoTimesError(RefusalError):
    """A program ended well and printed no time: mlx_lm does at an empty output.

    llama.cpp's binaries lose their last lines at times, as another thread writes them.
    """


class CommandEngine:
    """The engine: the folder for the placeholder `{tools}`."""

    def __init__(self, folder: str = "") -> None:
        self._folder = folder

    def describe(self) -> Facts:
        """The folder of binaries, if one is named; the programs belong to a model."""
        files = [path for path in sorted(Path(self._folder).glob("*")) if path.is_file()]
        return {
            "engine": "command",
            "library": "command line",
            "version": "unknown",
            "library_path": self._folder or sys.executable,
            "library_sha256": files_sha256(files) if self._folder else None,
            "devices": [],
            "default_threads": None,
            "cannot": _CANNOT,
        }

    def load(self, path: str, settings: dict[str, Any]) -> CommandModel:
        """Find the programs of a pipeline, which a file of asperf's describes."""
        described = json.loads(Path(path).read_text("utf-8"))
        described["runs"] = str(Path(path).parent)
        fixed = {"tools": self._folder, "model": described["model"], "python": sys.executable}
        return CommandModel(described, {**fixed, **settings}, settings)

    def quantize(self, *_: object) -> NoReturn:
        """Raise: programs run files as they are."""
        raise RefusalError("unsupported", _CANNOT["quantize"])


@dataclass(frozen=True, slots=True)
class PhaseRun:
    """One program's run."""

    name: str
    printed: Printed
    wall_ns: int
    peak_rss_bytes: int
    text: str
    proof: dict[str, str]


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """The runs of all programs for one request."""

    phases: tuple[PhaseRun, ...]
    n_output: int
    by_wall: bool  #: whether whole processes are timed, with start, load and end

    @property
    def last(self) -> PhaseRun:
        """The program that generates."""
        return self.phases[-1]

    @property
    def n_prompt(self) -> int:
        """Tokens of the prompt, by the program that read most of it."""
        return max(phase.printed.n_prompt for phase in self.phases)

    @property
    def prompt_ns(self) -> int | None:
        """The prompt's time in all programs by their own clocks; None if none prints it."""
        times_ns = [ns for phase in self.phases if (ns := phase.printed.prompt_ns) is not None]
        return sum(times_ns) if times_ns else None

    @property
    def rest_ns(self) -> int:
        """From the first token to the last one."""
        return round(self.last.printed.step_ns * (self.n_output - 1))

    @property
    def first_token_ns(self) -> int | None:
        """Until the first token; None if it is unknown.

        For one program it is the time of the prompt, if no total is printed. Several programs have
        the KV handoff in between, so they need a total.
        """
        if self.by_wall:
            return sum(phase.wall_ns for phase in self.phases) - self.rest_ns
        if all(phase.printed.has_total for phase in self.phases):
            return sum(phase.printed.total_ns for phase in self.phases) - self.rest_ns
        return self.prompt_ns if len(self.phases) == 1 else None

    @property
    def handoff_ns(self) -> int | None:
        """The time in several programs outside prompt and generation; None if unknown."""
        first_ns, prompt_ns = self.first_token_ns, self.prompt_ns
        if len(self.phases) == 1 or first_ns is None or prompt_ns is None:
            return None
        # The step that gives the first token may be counted as generation.
        own_ns = self.last.printed.step_ns if self.last.printed.n_steps >= self.n_output else 0
        return max(0, first_ns - prompt_ns - round(own_ns))

    def timing(self, work: Asked) -> Timing:
        """The time of a workload."""
        first_ns = self.prompt_ns if work.kind == "pp" and not self.by_wall else self.first_token_ns
        parts_ns = {
            "pp": (first_ns,), "ttft": (first_ns,), "tg": (self.rest_ns,),
            "request": (first_ns, self.rest_ns),
        }[work.kind]  # fmt: skip
        steps_ns = tuple(ns for ns in parts_ns if ns is not None)
        if len(steps_ns) < len(parts_ns) or sum(steps_ns) <= 0:
            raise RefusalError(
                _KIND,
                f"no-times: {' and '.join(phase.name for phase in self.phases)} printed no time of "
                f'{work.kind}; several programs need `total` or `handoff`, or clock = "wall"',
            )
        return Timing(
            work.n_tokens, sum(steps_ns), steps_ns if work.kind == "request" else (), None
        )


class CommandModel(LoadedModel):
    """A pipeline whose programs were found.

    Args:
        described: the pipeline, as `config.pipeline` writes it.
        values: values of the placeholders.
        settings: the engine settings among them.
    """

    def __init__(self, described: Facts, values: Facts, settings: Facts) -> None:
        self._phases, self._folder = described["phases"], Path(described["folder"])
        self._by_wall, self._runs = described["clock"] == "wall", described["runs"]
        self._values = {key: str(value) for key, value in values.items() if value not in {None, ""}}
        self._n_characters: dict[int, int] = {}
        self._per_token = _CHARACTERS_PER_TOKEN
        self._n_silent = 0
        self.peak_rss_bytes = 0
        taken = {name for phase in self._phases for word in phase["run"]
                 for name in _PLACEHOLDER.findall(word)}  # fmt: skip
        self._require_values(taken, settings)
        self._programs = [self._program(phase["run"][0]) for phase in self._phases]
        threads = settings.get("threads", 0)
        self.facts = served_facts(
            " → ".join(map(_identity, self._programs))
            + (", whole processes timed" if self._by_wall else ""),
            description=f"pipeline of {len(self._phases)} programs",
            threads=threads,
            layers_offloaded=settings.get("n_gpu_layers", 0),
            programs=[str(program) for program in self._programs],
            loads_each_run=True,
        )
        kv = {key: settings.get(key, "unknown") for key in ("type_k", "type_v", "flash_attn")}
        self._fixed_context = {**unseen_context(None, "unknown"), **kv, "threads": threads or None}
        self.context: Facts = dict(self._fixed_context)

    def _require_values(self, taken: set[str], settings: Facts) -> None:
        if unused := sorted(settings.keys() - taken):
            raise RefusalError("settings", f"no program's command line has {{{unused[0]}}}")
        ours = {"prompt", "prompt_file", "n_tokens", "handoff"}
        for name in sorted(taken - self._values.keys() - ours):
            what = {
                "tools": "name the folder of binaries (the setting `tools`)",
                "model": "name its file",
            }
            remedy = what.get(name, f"set {name} in the model's settings")
            raise RefusalError("program", f"a command line has {{{name}}}: {remedy}")

    def _program(self, word: str) -> Path:
        name = self._filled(word, {})
        path = self._folder / name if "/" in name else Path(shutil.which(name) or "")
        if not path.is_file() or not os.access(path, os.X_OK):
            raise RefusalError("program", f"program-not-found: there is no program {name}")
        return path

    def _filled(self, word: str, more: Mapping[str, str]) -> str:
        values = {**self._values, **more}
        # Other braces, such as JSON's, belong to the program.
        return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), word)

    def serve(self, work: Asked) -> Timing:
        """Time one request; see `LoadedModel.serve`."""
        n_prompt, n_output = _sizes(work)
        run = self._fitting(work.text, n_prompt, n_output)
        timing = run.timing(work)
        self.peak_rss_bytes = max(phase.peak_rss_bytes for phase in run.phases)
        self.context = {
            **self._fixed_context,
            "handoff_ns": run.handoff_ns,
            "proof": ", ".join(f"{k} {v}" for p in run.phases for k, v in p.proof.items()) or None,
            "output": run.last.text[:_OUTPUT_KEPT],
            "repeated_without_times": self._n_silent,
            "wall_ns": [phase.wall_ns for phase in run.phases],
        }
        return timing

    def output(self, prompt: str, n_tokens: int) -> str:
        """The text of so many tokens after a prompt."""
        for _ in range(_TRIES):
            with suppress(NoTimesError):
                return self._run(prompt, n_tokens).last.text
        raise RefusalError(
            _KIND, f"no-times: printed no time that its reader finds, {_TRIES} times"
        )

    def _fitting(self, text: str, n_prompt: int, n_output: int) -> PipelineRun:
        """A run with as many tokens as requested; others are not counted."""
        problem, self._n_silent = "", 0
        for _ in range(_TRIES):
            try:
                run = self._sized(new_beginning(n_prompt), text, n_prompt, n_output)
            except NoTimesError as err:
                problem = str(err)
                self._n_silent += 1
                continue
            n_steps = run.last.printed.n_steps
            if n_steps >= n_output - 1:
                return run
            problem = (
                f"fewer-tokens: {run.last.name} generated {n_steps} after the first, and "
                f"{n_output - 1} were requested; have it ignore the text's end"
            )
        raise RefusalError(_KIND, f"{problem} ({_TRIES} times)")

    def _sized(self, begins: str, text: str, n_prompt: int, n_output: int) -> PipelineRun:
        """A run with a prompt of as many tokens, by the program's own count."""
        low, high = 0, len(text)
        for _ in range(_TRIES):
            run = self._run(self._prompt(begins, text, n_prompt), n_output)
            if is_near(run.n_prompt, n_prompt):
                return run
            off, now = n_prompt - run.n_prompt, self._n_characters[n_prompt]
            low, high = (now, high) if off > 0 else (low, now)
            then = now + round(off * self._per_token)
            # If tokens are shorter or longer than the mean, a step may go too far.
            self._n_characters[n_prompt] = then if low < then < high else (low + high) // 2
        raise RefusalError(
            _KIND, f"the prompt had {run.n_prompt} tokens, and {n_prompt} were requested"
        )

    def _prompt(self, begins: str, text: str, n_prompt: int) -> str:
        guess = round(n_prompt * self._per_token) - len(begins)
        n_characters = max(0, self._n_characters.setdefault(n_prompt, guess))
        if n_characters > len(text):
            raise RefusalError("context", f"the text is too short for {n_prompt} tokens")
        return begins + text[:n_characters]

    def _run(self, prompt: str, n_output: int) -> PipelineRun:
        # Files of a killed process are removed by its number.
        with tempfile.TemporaryDirectory(prefix=f"{os.getpid()}-", dir=self._runs) as folder:
            file = Path(folder) / "prompt.txt"
            file.write_text(prompt, "utf-8")
            more = {
                "prompt": prompt,
                "prompt_file": str(file),
                "n_tokens": str(n_output),
                "handoff": str(Path(folder) / "handoff"),
            }
            runs = tuple(
                self._phase_run(phase, program, more)
                for phase, program in zip(self._phases, self._programs, strict=True)
            )
        run = PipelineRun(runs, n_output, self._by_wall)
        if not run.n_prompt:
            raise NoTimesError(_KIND, "no-times: no program printed the tokens of its prompt")
        self._per_token = len(prompt) / run.n_prompt
        return run

    def _phase_run(self, phase: Facts, program: Path, more: Mapping[str, str]) -> PhaseRun:
        arguments = [self._filled(word, more) for word in phase["run"][1:]]
        with ExitStack() as stack:
            source = more["prompt_file"] if phase["stdin"] else os.devnull
            stdin = stack.enter_context(Path(source).open("rb")).fileno()
            began_ns = time.perf_counter_ns()
            run = ToolRun(program, arguments, folder=self._folder, kind=_KIND, stdin=stdin)
            run.finish()
            wall_ns = time.perf_counter_ns() - began_ns
        output, log = run.output, run.log
        lines = [*log, *output.splitlines()]
        printed = read_printed(phase["reader"], lines)
        if isinstance(printed, str):
            raise NoTimesError(_KIND, str(run.failure(f"no-times: printed {printed}")))
        counted_ns = max(printed.total_ns, (printed.prompt_ns or 0) + printed.generated_ns)
        if counted_ns > _CLOCK_SHARE * wall_ns + _CLOCK_NS:
            raise run.failure(
                f"times-exceed-wall: printed {counted_ns / 1e9:.3f} s, and its process lasted "
                f"{wall_ns / 1e9:.3f} s"
            )
        return PhaseRun(
            program.name,
            printed,
            wall_ns,
            max(run.peak_rss_bytes, printed.memory_bytes),
            generated_text(phase["reader"], output, "\n".join(log)),
            _shown(phase["proof"], lines, run),
        )

    def close(self) -> None:
        """Nothing runs between two requests."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise RefusalError("unsupported", _CANNOT["generate"])

    tokenize = prompt = generate = first_token = logits = _refuse


def _sizes(work: Asked) -> tuple[int, int]:
    """Tokens of the prompt, and of the output."""
    if work.users > 1:
        raise RefusalError("unsupported", _CANNOT["users"])
    if work.kind == "itl":
        raise RefusalError("unsupported", _CANNOT["itl"])
    return sizes_of(work, 1, "a program's prompt is read from an empty context")


def _shown(proof: Sequence[Sequence[str]], lines: Sequence[str], run: ToolRun) -> dict[str, str]:
    """The printed proof of a program; an error if it is missing."""
    shown = {}
    for what, pattern in proof:
        match = next((m for line in lines if (m := re.search(pattern, line))), None)
        if match is None:
            raise run.failure(f"path-mismatch: printed nothing that shows {what} ({pattern})")
        shown[what] = (match[1] if match.re.groups else match[0]) or ""
    return shown


def _identity(program: Path) -> str:
    """A program by its path, size and digest."""
    size, digest = program.stat().st_size, files_sha256([program.resolve()])
    return f"{program} ({size} bytes, sha256 {digest[:12]})"


_NS: Final = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_BYTES: Final = {"gb": 1e9, "gib": 2.0**30, "mb": 1e6, "mib": 2.0**20}
#: Characters of a line that patterns are searched in.
_SEARCHED: Final = 4000


@dataclass(frozen=True, slots=True)
class Printed:
    """The facts that a program printed about itself; None or 0 if it printed none."""

    n_prompt: int = 0
    prompt_ns: int | None = None
    n_steps: int = 0  #: steps that `generated_ns` is the time of
    generated_ns: int = 0
    total_ns: int = 0  #: from the loaded model to the last token, or the sum of the parts
    has_total: bool = False  #: True if the program counts time outside prompt and generation
    memory_bytes: int = 0

    @property
    def step_ns(self) -> float:
        """The time of one step."""
        return self.generated_ns / self.n_steps if self.n_steps else 0.0


def read_printed(reader: Facts | None, lines: Sequence[str]) -> Printed | str:
    """A program's lines as all patterns of its reader give them; otherwise the missing parts."""
    if reader is None:
        return Printed()
    found = dict(_from_json(reader["keys"], lines) if reader["keys"] else ())
    for pattern in reader["patterns"]:
        searched = (re.search(pattern, line[:_SEARCHED]) for line in lines)
        if not (matches := [match for match in searched if match]):
            return f"nothing that matches {pattern}"
        found |= {key: text for key, text in matches[-1].groupdict().items() if text}
    numbers = {
        key: number for key, text in found.items() if (number := number_of(text)) is not None
    }
    if lacking := [key for key, _ in reader["keys"] if key not in numbers]:
        return f"no {lacking[0]}"
    return _printed(numbers, counts_first=reader["counts_first"])


def generated_text(reader: Facts | None, output: str, log: str) -> str:
    """The generated text: the part that the program's reader marks, otherwise all of its output."""
    if reader is None or not reader["text"]:
        return output.strip()
    pattern = re.compile(reader["text"], re.DOTALL)
    match = pattern.search(output) or pattern.search(log)
    return str(match["text"]).strip() if match else ""


def _printed(numbers: dict[str, float], *, counts_first: bool) -> Printed:
    n_prompt = int(numbers.get("prompt_tokens", 0))
    n_steps = max(0, int(numbers.get("generated_tokens", 0)) - counts_first)
    prompt_ns = _time(numbers, "prompt", n_prompt)
    # A rate is of the tokens as they were counted, and its time is theirs.
    generated_ns = _time(numbers, "generated", n_steps + counts_first) or 0
    total_ns, handoff_ns = _time(numbers, "total"), _time(numbers, "handoff")
    parts_ns = (prompt_ns or 0) + generated_ns + (handoff_ns or 0)
    memory = [
        numbers[f"memory_{u}"] * size for u, size in _BYTES.items() if f"memory_{u}" in numbers
    ]
    return Printed(
        n_prompt,
        prompt_ns,
        n_steps,
        generated_ns if n_steps else 0,
        parts_ns if total_ns is None else total_ns,
        has_total=total_ns is not None or handoff_ns is not None,
        memory_bytes=round(max(memory, default=0)),
    )


def _time(numbers: dict[str, float], of: str, n_tokens: int = 0) -> int | None:
    """A time as it was printed, or that of tokens at a rate."""
    for unit, factor in _NS.items():
        if f"{of}_{unit}" in numbers:
            return round(numbers[f"{of}_{unit}"] * factor)
    rate = numbers.get(f"{of}_tps", 0.0)
    return round(1e9 * n_tokens / rate) if rate else None


def _from_json(keys: Iterable[Sequence[str]], lines: Iterable[str]) -> Iterator[tuple[str, Any]]:
    for line in lines:
        try:
            entry = json.loads(line) if line.lstrip().startswith("{") else None
        except (ValueError, RecursionError):
            continue
        for field, path in keys:
            value: Any = entry
            for part in path.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if value is not None:
                yield field, value
