"""llama.cpp's programs with a model on another machine: their options, and the proof of it."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .engine import RefusalError
from .printed.engine_log import buffers_mib

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .rpc_remote import Remote, Work
    from .tool_process import Toolbox, ToolRun

_DEVICE: Final = re.compile(r"^ +(\S+): .+ \(\d{1,9} MiB, ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of a program's target and draft: a server, or None for this machine."""

    tools: Toolbox
    target: Remote | None = None
    draft: Remote | None = None

    @property
    def remotes(self) -> tuple[Remote, ...]:
        """The servers, in the order in which the program counts their devices."""
        return tuple(dict.fromkeys(filter(None, (self.target, self.draft))))

    def greet(self) -> None:
        """Refuse servers that are absent or busy: a program would end, or hang."""
        for remote in self.remotes:
            remote.greet()

    @contextmanager
    def watched(self) -> Iterator[Mapping[Remote, Work]]:
        """The work of each server before a program's run, for `require`.

        If the program fails, the failure is the server's where that is gone, or where RPC is what
        it names. Afterwards the connections end that were held for the count of bytes.
        """
        self.greet()
        try:
            yield {remote: remote.work_so_far() for remote in self.remotes}
        except RefusalError as err:
            if err.kind != "tool" or not self.remotes:
                raise
            gone = [wrong for remote in self.remotes if (wrong := _wrong_with(remote))]
            if not gone and "RPC" not in str(err):
                raise
            raise RefusalError("remote", "; ".join([*gone, str(err)])) from err
        finally:
            for remote in self.remotes:
                remote.release()

    def watch(self, pid: int, line: str) -> None:
        """Count the connections of a program from the line on that says what is on a server."""
        for remote in self.remotes:
            if "buffer size =" in line and f"[{remote.endpoint}]" in line:
                remote.hold(pid)

    def options(self, program: str, *, drafts: bool = False) -> list[str]:
        """The devices of each model, by name: a draft would follow its target."""
        if not self.remotes:
            return []
        if "--rpc" not in self.tools.help(program):
            raise RefusalError(
                "remote", f"this build's {program} has no RPC: -DGGML_RPC=ON adds it"
            )
        names: dict[Remote | None, list[str]] = {}
        for remote in self.remotes:
            first = sum(map(len, names.values()))
            names[remote] = [f"RPC{first + index}" for index in range(remote.greeting["n_devices"])]
        if self.target is None or (drafts and self.draft is None):
            listed = self.tools.run(program, "--list-devices").output
            names[None] = _DEVICE.findall(listed) or ["none"]
        separator = "/" if program == "llama-bench" else ","
        endpoints = ",".join(remote.endpoint for remote in self.remotes)
        options = ["--rpc", endpoints, "-dev", separator.join(names[self.target])]
        return options + (["-devd", ",".join(names[self.draft])] if drafts else [])

    def require(
        self,
        run: ToolRun,
        before: Mapping[Remote, Work],
        n_vocab: int,
        *,
        of_target: int = 0,
        of_draft: int = 0,
    ) -> None:
        """Refuse a run whose servers did not compute these steps of the target and of the draft."""
        buffers = buffers_mib(run.log)
        for remote in self.remotes:
            remote.require_weights(buffers)
            n_steps = of_target * (remote is self.target) + of_draft * (remote is self.draft)
            remote.require_work(before[remote], n_steps, n_vocab)


def _wrong_with(remote: Remote) -> str:
    remote.release()
    try:
        remote.greet()
    except RefusalError as err:
        return str(err)
    return ""
