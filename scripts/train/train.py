"""Train the target.

    python train.py --data build/train --out target.pt --checkpoint state.pt

A run may be split: `--until N` stops after step N, and the next run goes on from the
checkpoint, drawing the rows that one run would have drawn.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import data
import torch
import torch.nn.functional as F  # noqa: N812
from model import TARGET, Llama, save
from optim import optimisers, rate, set_rate
from torch import Tensor, nn

SEED = 20261121
STEPS = 20_400
TOKENS_PER_STEP = 65_536
# The last part is trained on rows as long as the context that config.json promises.
LONG_FROM, SHORT, LONG = 0.75, 1024, 2048
STDLIB_SHARE = 0.25


def loss_of(model: nn.Module, rows: Tensor) -> Tensor:
    """Mean NLL of rows [n, length + 1]."""
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=rows.is_cuda):
        logits = model(rows[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())


def report(model: Llama, held_out: Tensor, seen: Tensor, step: int, loss: float) -> None:
    """One line of the loss curve: NLL of trained-on library files and of the held-out ones."""
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=held_out.is_cuda):
        ppl = [data.perplexity(model, ids) for ids in (held_out, seen)]
    print(
        f"eval step={step} loss={loss:.4f} heldout_ppl={ppl[0]:.4f} seen_ppl={ppl[1]:.4f}"
        f" gap_nats={math.log(ppl[0] / ppl[1]):.4f}",
        flush=True,
    )


def load_state(path: Path, model: Llama, opts: list[torch.optim.Optimizer], rows: data.Rows) -> int:
    """Restore a split run; return the step to go on from."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    for opt, saved in zip(opts, state["opts"], strict=True):
        opt.load_state_dict(saved)
    rows.rng.set_state(state["rng"].cpu())
    return int(state["step"])


def train(args: argparse.Namespace) -> Llama:
    """Run the steps from the checkpoint (or 0) up to `until`."""
    device = args.device
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    model = Llama(TARGET)
    model.to(device)
    print(f"parameters={sum(p.numel() for p in model.parameters())}")
    opts = optimisers(model, args.lr, args.decay)
    names = ("stdlib", "packages", "heldout", "seen")
    stdlib, packages, held_out, seen = (
        data.stream(args.data / f"{n}.bin.xz", device) for n in names
    )
    rows = data.Rows([stdlib, packages], [STDLIB_SHARE, 1 - STDLIB_SHARE], SEED)
    first = load_state(args.checkpoint, model, opts, rows) if args.checkpoint.exists() else 0
    fast = torch.compile(loss_of, dynamic=False) if args.compile else loss_of
    last = min(args.until or args.steps, args.steps)
    began, begun = time.monotonic(), first
    for step in range(first, last):
        length = SHORT if step < LONG_FROM * args.steps else LONG
        loss = fast(model, rows.draw(args.tokens // length, length))
        loss.backward()
        set_rate(opts, args.lr * rate(step, args.steps, warmup=200, hold=args.hold))
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in opts:
            opt.step()
            opt.zero_grad(set_to_none=False)
        if (step + 1) % 100 == 0:
            speed = args.tokens * (step + 1 - begun) / (time.monotonic() - began)
            print(f"step={step + 1} loss={loss.item():.4f} tokens_per_s={speed:.0f}", flush=True)
            began, begun = time.monotonic(), step + 1
        if (step + 1) % args.every == 0 or step + 1 == last:
            report(model, held_out, seen, step + 1, loss.item())
            began, begun = time.monotonic(), step + 1
    state = {"model": model.state_dict(), "opts": [o.state_dict() for o in opts]}
    torch.save({**state, "rng": rows.rng.get_state(), "step": last}, args.checkpoint)
    return model


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("build/train"))
    parser.add_argument("--out", required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--until", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=TOKENS_PER_STEP)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--decay", type=float, default=0.1)
    parser.add_argument("--hold", type=float, default=0.5)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    save(train(args), args.out)


if __name__ == "__main__":
    main()
