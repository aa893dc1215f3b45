"""Programs that print what llama.cpp's printed once, or that with one fault.

What they print is recorded (`fixtures/tools`, of the shipped draft); only the numbers that repeat
the request are filled in. They are here for faults that no sound program shows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[2] / "fixtures" / "tools"

_SCRIPT = """#!{python} -IS
import json, os, signal, struct, sys, time
recorded, plan = {recorded!r}, json.loads({plan!r})
arguments = sys.argv[1:]

def read(name, mode="r"):
    with open(os.path.join(recorded, name), mode) as file:
        return file.read()

def option(name, default="0"):
    return arguments[arguments.index(name) + 1] if name in arguments else default

def harm(when):
    if plan.get("harm_when") != when:
        return
    sys.stdout.flush()
    with open(plan["pid_file"], "w") as file:
        file.write(str(os.getpid()))
    if plan["harm"] == "hang":
        time.sleep(3600)
    os.kill(os.getpid(), signal.SIGSEGV)

def bench():
    row = json.loads(read("bench.jsonl"))
    row |= {{"model_filename": option("-m"), "n_threads": int(option("-t", "2"))}}
    counts = {{"n_prompt": "-p", "n_gen": "-n", "n_depth": "-d"}}
    row |= {{cell: int(option(name)) for cell, name in counts.items()}}
    is_timed = "--no-warmup" not in arguments
    if is_timed:
        row |= plan.get("row", {{}})
        row = {{key: value for key, value in row.items() if key not in plan.get("without", [])}}
    log = read("bench.log")
    for line in plan.get("log_without", []):
        log = "\\n".join(one for one in log.split("\\n") if line not in one)
    sys.stderr.write(log + (plan.get("log", "") if is_timed else ""))
    if is_timed:
        harm("bench")
    text = json.dumps(row) + "\\n"
    sys.stdout.write(plan.get("prints", text) if is_timed else text)
    sys.exit(plan.get("status", 0) if is_timed else 0)

def perplexity():
    scores = read("scores.bin", "rb")
    n_ctx, head = int(option("-c")), 8 + 12
    n_tokens = 32
    tokens = scores[head : head + 4 * n_tokens]
    with open(option("--save-all-logits"), "wb", buffering=0) as out:
        if n_ctx == 1:
            out.write(scores[:8] + struct.pack("<iii", 1, 2048, n_tokens) + tokens)
            return
        sys.stderr.write(read("perplexity.log"))
        magic = plan.get("magic", "_logits_").encode()
        out.write(magic + scores[len(magic) : head + 4 * n_tokens])
        rows = scores[head + 4 * n_tokens:]
        chunks = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
        says = plan.get("says", ["[1]5.4815,", "[2]4.4997,"])
        for rows, said in zip(chunks[: plan.get("chunks", 2)], says):
            sys.stdout.write(said)
            sys.stdout.flush()
            time.sleep(0.05)  # what is printed is there before what is saved
            out.write(rows)
    harm("score")

if "--help" in arguments:
    print(read("bench_help.txt"))
elif "--version" in arguments:
    print(plan.get("version", read("version.txt")))
elif "--list-devices" in arguments:
    print(plan.get("devices", "Available devices:\\n  (none)"))
else:
    {{"llama-bench": bench, "llama-perplexity": perplexity}}[os.path.basename(sys.argv[0])]()
"""


def replayed_tools(folder: Path, **plan: Any) -> Path:
    """Write a folder of such programs.

    Args:
        folder: where to.
        plan: the fault. Of a timed llama-bench: `row` (cells over the recorded ones), `without`
            (cells), `log` (more lines), `log_without`, `prints`, `status`; `version`, `devices`.
            Of a scoring llama-perplexity: `magic`, `chunks` that it saves, `says` (what it prints).
            `harm` (`crash` or `hang`) with `harm_when` (`bench` or `score`) and `pid_file`.
    """
    plan["pid_file"] = str(folder / "pid")
    text = _SCRIPT.format(python=sys.executable, recorded=str(RECORDED), plan=json.dumps(plan))
    for name in ("llama-bench", "llama-perplexity"):
        path = folder / name
        path.write_text(text)
        path.chmod(0o755)
    return folder
