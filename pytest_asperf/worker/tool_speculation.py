"""Speculation by llama.cpp's own program: llama-speculative-simple's counts.

It writes its results through a log that a thread of its own empties, and now and then it ends
before that has (build 1 of 0.5.0-dev: 2 to 4 of 40 runs, with exit status 0 and the text whole).
Such a run has measured nothing and is repeated; the result takes no part in that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .engine import RefusalError
from .printed.speculation_log import SpeculationReader, SpeculationRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .tool_process import ToolRun
    from .tool_remote import Placement

Reply = dict[str, Any]

_SPECULATE: Final = "llama-speculative-simple"
_ATTEMPTS: Final = 4


def speculate(
    placement: Placement, arguments: Sequence[str], prompt: str, *, n_new: int, k: int, n_vocab: int
) -> Reply:
    """Generate greedily with a draft, once; the last round may go past `n_new` tokens.

    The arguments name both models.

    The program rounds `elapsed_ns` of the decode phase to 1 ms. `n_accepted` is None where the
    target replays accepted tokens from checkpoints: the program counts those as accepted again.
    """
    tools = placement.tools
    if "--spec-draft-n-max" not in tools.help(_SPECULATE):
        raise RefusalError("tools", f"this build's {_SPECULATE} takes other options than are known")
    options = ["--spec-type", "draft-simple", "--spec-draft-n-max", str(k)]
    # With the log that says which buffers are on a server.
    options += ["--temp", "0", "-n", str(n_new), "-lv", "4"]
    for _ in range(_ATTEMPTS):
        with placement.watched() as before:
            placed = placement.options(_SPECULATE, drafts=True)
            command = (*arguments, *options, *placed)
            run = tools.start_on(_SPECULATE, prompt, *command, watch=placement.watch)
            run.finish()
            reader = SpeculationReader()
            for line in run.log:
                reader.feed(line)
            runs = reader.runs()
            counted = runs[-1] if runs else None
            if counted is not None:
                steps = {"of_target": counted.rounds, "of_draft": counted.n_drafted}
                placement.require(run, before, n_vocab, **steps)
                break
    counts = _checked(run, counted, k)
    if counts.decoded is None:
        raise run.failure("exited with 0 and timed nothing")
    return {
        "n_emitted": counts.n_predict,
        "n_drafted": counts.n_drafted,
        "n_accepted": None if counts.uses_checkpoints else counts.n_accept,
        "elapsed_ns": round(counts.decoded[1] * 1e9),
        "uses_checkpoints": counts.uses_checkpoints,
        "text": run.output.strip(),
    }


def _checked(run: ToolRun, counts: SpeculationRun | None, k: int) -> SpeculationRun:
    if counts is None:
        raise run.failure("exited with 0 and counted nothing")
    if counts.k != k:
        raise run.failure(f"was asked for {k} drafted tokens a round and reports {counts.k}")
    if not (counts.n_predict > 0 and 0 <= counts.n_accept <= counts.n_drafted):
        raise run.failure(
            f"counted {counts.n_accept} accepted of {counts.n_drafted} drafted tokens and "
            f"{counts.n_predict} emitted"
        )
    if counts.n_drafted > k * counts.rounds:
        raise run.failure(f"counted {counts.n_drafted} drafted tokens in {counts.rounds} rounds")
    return counts
