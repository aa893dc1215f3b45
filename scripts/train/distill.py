"""Distil the draft from the target, first on the corpus, then on text the target writes."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import data
import torch
import torch.nn.functional as F  # noqa: N812
from generate import continue_rows
from model import DRAFT, Llama, load, save
from optim import optimisers, rate, set_rate
from torch import Tensor, nn

SEED = 20261122
STDLIB_SHARE = 0.4
PACKAGE_TOKENS = 30_000_000
PROMPT, NEW = 192, 192
TEMPERATURES = (0.0, 0.0, 0.5, 1.0)
CORPUS_ROW = 384


def distillation_loss(draft: nn.Module, target: nn.Module, rows: Tensor) -> Tensor:
    """KL(target || draft) plus the NLL of the target's greedy choice, which is the accepted one."""
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=rows.is_cuda):
        with torch.no_grad():
            truth = target(rows).float().log_softmax(-1)
        guess = draft(rows).float().log_softmax(-1)
    divergence = F.kl_div(guess, truth, log_target=True, reduction="none").sum(-1).mean()
    greedy = F.nll_loss(guess.flatten(0, 1), truth.argmax(-1).flatten())
    return divergence + greedy


def written_by(target: Llama, rows: data.Rows, count: int, batch: int) -> Tensor:
    """[count, PROMPT + NEW] ids: a corpus prompt and the target's continuation."""
    device = rows.tokens.device
    rng = torch.Generator(device).manual_seed(SEED)
    temperature = torch.tensor(TEMPERATURES, device=device).repeat(batch // len(TEMPERATURES))
    parts = []
    for _ in range(count // batch):
        prompts = rows.draw(batch, PROMPT)[:, :PROMPT]
        parts.append(continue_rows(target, prompts, NEW, temperature, rng).short())
    return torch.cat(parts)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("build/train"))
    parser.add_argument("--target", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--corpus-steps", type=int, default=5_000)
    parser.add_argument("--written-steps", type=int, default=10_000)
    parser.add_argument("--written-rows", type=int, default=196_608)
    parser.add_argument("--rows", type=int, default=192, help="rows of 384 tokens in a step")
    parser.add_argument("--batch", type=int, default=4_096, help="rows generated together")
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    target = load(args.target, args.device).requires_grad_(requires_grad=False)
    draft = Llama(DRAFT).to(args.device)
    print(f"parameters={sum(p.numel() for p in draft.parameters())}", flush=True)
    stdlib, packages, held_out = (
        data.stream(args.data / f"{n}.bin.xz", args.device)
        for n in ("stdlib", "packages", "heldout")
    )
    streams = [stdlib, packages[:PACKAGE_TOKENS]]
    corpus = data.Rows(streams, [STDLIB_SHARE, 1 - STDLIB_SHARE], SEED)
    began = time.monotonic()
    written = written_by(target, corpus, args.written_rows, args.batch)
    print(f"written {written.numel():,} tokens in {time.monotonic() - began:.0f} s", flush=True)
    fast = torch.compile(distillation_loss, dynamic=False) if args.compile else distillation_loss
    opts = optimisers(draft, args.lr, 0.05)
    steps = args.corpus_steps + args.written_steps
    for step in range(steps):
        if step < args.corpus_steps:
            rows = corpus.draw(args.rows, CORPUS_ROW)[:, :CORPUS_ROW]
        else:
            pick = torch.randint(
                len(written), (args.rows,), device=args.device, generator=corpus.rng
            )
            rows = written[pick].long()
        loss = fast(draft, target, rows)
        loss.backward()
        set_rate(opts, args.lr * rate(step, steps, warmup=200, hold=0.4))
        nn.utils.clip_grad_norm_(draft.parameters(), 1.0)
        for opt in opts:
            opt.step()
            opt.zero_grad(set_to_none=False)
        if (step + 1) % 500 == 0 or step + 1 == steps:
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=rows.is_cuda):
                ppl = data.perplexity(draft, held_out)
            print(
                f"step={step + 1} loss={loss.item():.4f} heldout_ppl={ppl:.4f}"
                f" seconds={time.monotonic() - began:.0f}",
                flush=True,
            )
    save(draft, args.out)


if __name__ == "__main__":
    main()
