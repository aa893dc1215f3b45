"""MLX in several processes of this host that share a model, as mlx.launch starts them.

Each has a part of every layer (mlx-lm's `shard`, tensor parallelism) and computes at the same time
as all others. The first is the worker; it forwards each request about a shared model to the others,
and accepts no answer that differs from theirs.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import mlx.core as mx

from .engine import RefusalError
from .wire import decode, encode

#: The command that started this process: interpreter, `-I -c` and its code, folder, engine and nice
#: value.
_COMMAND: Final = 7
#: The facts that must be equal in all processes.
_ALIKE: Final = ("tokens", "n_tokens", "logits")


def require_group(group: Any, n_processes: int) -> Any:
    """A group, if it has that many processes: MLX goes on alone if they do not find another."""
    if group.size() != n_processes:
        raise RefusalError(
            "group", f"{n_processes} processes were requested, and MLX's group has {group.size()}"
        )
    return group


class MlxGroup:
    """This process and those that it starts; `rank` and `hosts` are of one that was started."""

    def __init__(self, rank: str, hosts: str) -> None:
        self.rank = int(rank)
        self._others: list[_Other] = []
        self._shared: set[object] = set()
        if hosts:
            self._name(hosts)

    def _name(self, hosts: str) -> None:
        """The variables that mlx.launch sets, for this process."""
        os.environ |= {"MLX_RANK": str(self.rank), "MLX_HOSTFILE": hosts}

    def join(self, n_processes: int) -> Any:
        """The group by its sockets (`ring`); an error if it does not have that many processes."""
        return require_group(mx.distributed.init(strict=True, backend="ring"), n_processes)

    def mirrored(
        self, request: dict[str, Any], answer: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> dict[str, Any]:
        """The answer to a request, which other processes work on too if a shared model needs it."""
        others = self._others if self._concerns(request) else []
        for other in others:
            other.ask(request)
        reply = answer(request)
        theirs = [other.answer() for other in others]
        if not others or not reply["ok"]:
            return reply
        for rank, result in enumerate(theirs, 1):
            if wrong := _difference(reply["result"], result):
                what = f"process {rank + 1} of {len(others) + 1} {wrong}"
                return {"ok": False, "kind": "group", "message": what, "trace": ""}
        if request["op"] == "load":
            results = [reply["result"], *(their["result"] for their in theirs)]
            parts = " and ".join(f"{result['own_mib']:.1f}" for result in results)
            reply["result"]["group"] = f"{len(results)} processes by ring, of {parts} MiB"
        return reply

    def _concerns(self, request: dict[str, Any]) -> bool:
        op, args = request["op"], request.get("args", {})
        names = {*args.get("models", ()), *map(args.get, ("model", "pair", "target", "draft"))}
        if op == "clear":
            self._shared.clear()
        elif op == "load":
            self._shared.discard(args["model"])
            if (n_processes := args["settings"].get("processes", 1)) > 1:
                self._shared.add(args["model"])
                if not self._others and not self.rank:
                    self._start(n_processes)
        elif op == "pair_open" and names & self._shared:
            self._shared.add(args["pair"])
        return op in {"load", "unload", "clear"} or bool(names & self._shared)

    def _start(self, n_processes: int) -> None:
        with ExitStack() as stack:
            free = [stack.enter_context(socket.socket()) for _ in range(n_processes)]
            for one in free:
                one.bind(("127.0.0.1", 0))
            addresses = [[f"127.0.0.1:{one.getsockname()[1]}"] for one in free]
        self._hosts = tempfile.NamedTemporaryFile("w")  # noqa: SIM115  # removed with this process
        json.dump(addresses, self._hosts)
        self._hosts.flush()
        self._name(self._hosts.name)
        self._others = [_Other(rank, self._hosts.name) for rank in range(1, n_processes)]


class _Other:
    """Another process, which ends with this one."""

    def __init__(self, rank: int, hosts: str) -> None:
        requests, self._requests = os.pipe()
        replies, its_replies = os.pipe()
        fds = (requests, its_replies, os.dup(2))
        command = [*sys.orig_argv[:_COMMAND], *map(str, fds), str(rank), hosts]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=fds)
        for fd in fds:
            os.close(fd)
        self._replies = os.fdopen(replies, "rb")
        self.answer()  # that it is there

    def ask(self, request: dict[str, Any]) -> None:
        """Have it begin; an obstacle shows in its answer."""
        data = encode({key: request[key] for key in ("id", "op", "args") if key in request})
        try:
            os.write(self._requests, data)
        except BrokenPipeError:
            return

    def answer(self) -> dict[str, Any]:
        """Its answer, a failure if it ended."""
        line = self._replies.readline()
        return decode(line) if line else {"ok": False, "message": "ended"}


def _difference(result: dict[str, Any], theirs: dict[str, Any]) -> str:
    if not theirs["ok"]:
        return f"failed: {theirs['message']}"
    differing = [key for key in _ALIKE if result.get(key) != theirs["result"].get(key)]
    return f"found other {', '.join(differing)}" if differing else ""
