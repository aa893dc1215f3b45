"""The failures of an engine's process, and what to do then."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.analysis.guards import Guard
from pytest_asperf.config.engines import EXTRAS
from pytest_asperf.errors import Advice, EngineError, printable

if TYPE_CHECKING:
    from pytest_asperf.config.engines import Engine

_REPORT: Final = "the log below is the engine's own; report it to the engine with the model named"
_MEMORY: Final = (
    "SIGKILL mostly comes from the kernel when memory runs out: use a smaller model, level or "
    "context; the kernel's log says whether it was that"
)
_COMPILED: Final = (
    "if llama.cpp was compiled on another processor, or by gcc 12 on one with AMX, compile it with "
    "CMAKE_ARGS=-DGGML_NATIVE=OFF; else report it to the engine with its log and the model named"
)


class WorkerError(EngineError):
    """The worker died, hung or spoke nonsense; it is gone."""

    breaks_measurement = True

    def __init__(self, what: str, *, did: str = "crashed", manner: str = "", **parts: Any) -> None:
        super().__init__(what, **parts)
        self.did, self.manner = did, manner


class EngineRefusedError(EngineError):
    """The engine answered that it cannot do what was asked; the worker lives on."""

    def __init__(self, kind: str, message: str, *, engine: Engine, request: str, log: str) -> None:
        package = f"'pytest-asperf[{EXTRAS.get(engine, engine)}]'"
        super().__init__(
            f"{request}: the engine refused ({kind}): {message}",
            remedy=str(_REMEDIES.get(kind, "read the engine's log below")).format(package=package),
            detail=log,
        )
        self.kind = kind
        self.breaks_measurement = kind in _BREAKING
        self.is_unfit = kind == "context"
        self.did, self.manner = _DONE.get(kind, ("refused", printable(message, _LONGEST_MANNER)))


#: Refusals in the middle of the work, whose figures would be of broken decodes.
_BREAKING: Final = {
    *(Guard.BROKEN_LOGITS, "command", "decode", "group", "internal", "logits", "non-finite"),
    *("position", "remote", "rollback", "server", "tool"),
}

#: What is no refusal, by its kind.
_DONE: Final = {"memory": ("ran out of memory", ""), "internal": ("failed inside", "")}
_LONGEST_MANNER: Final = 100
_LONGEST_LINE: Final = 300

_REMEDIES: Final = {
    Guard.BROKEN_LOGITS: Guard.BROKEN_LOGITS.remedy,
    "command": "run the command line by hand, and compare its output with what the phase reads",
    "context": "ask for less context, or for a smaller depth",
    "decode": "the engine failed while computing; its log says where",
    "group": "look at the log of the process that failed, or leave `processes` out",
    "import": Advice(
        "install the engine: pip install {package} (if pip finds none, it does not run on this "
        "platform or Python), or name the interpreter that has it",
        "python",
    ),
    "kv-cache": "choose another type for the KV cache, or leave it out",
    "libraries": "name libraries that this system and llama-cpp-python fit, or declare the build "
    "with the llama-cpp-python of about their time: requirements = ['llama-cpp-py-sync==0.9102', "
    "'llama-cpp-python==0.3.23']; measure a release's programs with --engine=llama_tools",
    "load": "check the file with: asperf models verify, or load it with the engine's own tools",
    "memory": "use a smaller model, level or context, or close other programs",
    "non-finite": "the model's output holds NaN or infinity or overflows: the file or kernel is "
    "broken",
    "remote": "start ggml-rpc-server of the same commit there, and end its other clients: it "
    "serves one at a time",
    "server": "see what the server logged, and whether it answers curl; a server that we do not "
    "start has its own log",
    "url": Advice("name its URL", "url"),
    "settings": "leave them out, or give them for the engine that has them: "
    "settings.llama_cpp = {{ ... }} of the model",
    "rollback": "speculate with models of attention only, or leave rollback at auto, which uses "
    "the engine's checkpoints where it has them",
    "program": "correct `run` of the model's phases, or install the program",
    "quantize": "choose a level that this file can be quantized to",
    "tool": "run the program by hand; report it to llama.cpp with the model named",
    "tools": Advice("name a folder that has all of llama.cpp's programs", "tools"),
    "unsupported": Advice("measure it on an engine that can", "engine"),
    "version": "set what both versions have, or leave this version out",
}


def died(engine: Engine, op: str, status: int, log: str, explains: str = "") -> WorkerError:
    """A process that ended during an operation, with the status that Python gives it.

    `explains` is the line of its log that says why it ended, if there is one.
    """
    how, manner, remedy = "", f"exited with status {status}", _REPORT
    if status < 0:
        how, manner = "was ended by ", signal.Signals(-status).name
    if status == -signal.SIGKILL:
        remedy = _MEMORY
    if engine == "llama_cpp" and -status in {signal.SIGSEGV, signal.SIGILL}:
        remedy = _COMPILED
    told = f"; its log has: {printable(explains, _LONGEST_LINE)}" if explains else ""
    return WorkerError(
        f"{engine} {op}: the engine's process {how}{manner}{told}",
        why="nothing was measured, and the next measurement starts a fresh process",
        remedy=remedy,
        detail=log,
        manner=manner,
    )
