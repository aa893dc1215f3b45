"""An interpreter that runs the real worker with the real engine, and does harm."""

import sys
from contextlib import suppress
from pathlib import Path

_INTERPRETER = """#!{python} -I
{how}
import ctypes, importlib.abc, importlib.util, json, os, resource, signal, sys, time

code = sys.argv[3]
sys.argv = ["-c", *sys.argv[4:]]

def reply_fd():
    return int(sys.argv[5])

def out_of_memory():
    room = 2 ** 20 * 64 + int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    bytearray(2 ** 31)

def flood():
    while True:
        os.write(reply_fd(), b"x" * 2 ** 16)

def closes():
    os.close(reply_fd())
    time.sleep(3600)  # else it might end by itself, when it answers

def noisy():
    for _ in range(2 ** 2):  # four times what a pipe holds
        os.write(1, b"\\x1b[2J" + b"x" * 2 ** 16)

def refuses():
    raise Refused

class Refused(Exception):
    pass

def result(**changed):
    def change(answer):
        answer["result"] |= changed
        return answer
    return change

HARMS = dict(
    killed=lambda: os.kill(os.getpid(), signal.SIGKILL),
    crashes=lambda: os.kill(os.getpid(), signal.SIGSEGV),
    aborts=os.abort,
    exits=lambda: os._exit(0),
    stopped=lambda: os.kill(os.getpid(), signal.SIGSTOP),
    hangs=lambda: time.sleep(3600),
    out_of_memory=out_of_memory,
    garbage=lambda: os.write(reply_fd(), b"\\xff\\x00 no message\\n"),
    foreign=lambda: os.write(reply_fd(), b'{{"v": 1, "id": 0, "ok": true, "result": {{}}}}\\n'),
    flood=flood,
    closes=closes,
    noisy=noisy,
    refuses=refuses,
)
CHANGES = dict(
    infinite=result(elapsed_ns=1e308 * 10),
    endless=result(elapsed_ns=10 ** 400),
    too_few=result(n_tokens=1),
    empty=lambda answer: {{"ok": True, "result": {{}}}},
)

{chosen}

def harm(module):
    answer = module.Server.answer
    def harmed(self, request):
        name = chosen(request)
        try:
            HARMS.get(name, int)()
        except MemoryError:
            return module._failure("memory", "the engine's process ran out of memory")
        except Refused:
            return module._failure("unsupported", "this build cannot")
        return CHANGES.get(name, lambda found: found)(answer(self, request))
    module.Server.answer = harmed
    # The language's own reader and writer take an infinite number, as another program's may.
    module.encode = lambda message: json.dumps({{"v": 1, **message}}).encode() + b"\\n"

# The harm comes before the engine is imported, or after it in a fork of a process that has it.
head, _, last = code.rstrip().rpartition("\\n")
exec(head)
harm(sys.modules["asperf_worker.main"])
{before_import}
# In a fork this is not the package, which a later import brings whole.
if getattr(sys.modules.get("llama_cpp"), "__name__", "") == "llama_cpp.llama_cpp":
    del sys.modules["llama_cpp"]
exec(last)
"""
#: The second line of one whose harm is the same after the engine's import.
_FORKED = "# forked"


def write_interpreter(path: Path, chosen: str, before_import: str = "", replaced: str = "") -> Path:
    """Write an interpreter.

    Args:
        path: where to.
        chosen: defines a function of that name, which names the harm that a request meets.
        before_import: runs before the engine is imported.
        replaced: replaces functions of the engine's library.
    """
    path.write_text(
        _INTERPRETER.format(
            python=sys.executable,
            how="# started" if before_import else _FORKED,
            chosen=chosen,
            before_import=before_import or replaced,
        )
    )
    path.chmod(0o755)
    return path


def may_be_forked(path: Path) -> bool:
    """True if it is such an interpreter, and runs as well in a process that has the engine."""
    head = f"#!{sys.executable} -I\n{_FORKED}\n".encode()
    with suppress(OSError), path.open("rb") as file:
        return file.read(len(head)) == head
    return False
