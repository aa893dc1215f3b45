# mypy: disable-error-code="misc"
"""Fine-tune the shipped target under MLX's quantization, and write it quantized.

    python qat.py --out build/qat

For each quantization the target is its own teacher: the fine-tuned weights, quantized in every
forward pass, learn the distributions of the unquantized ones. Nothing but the quantization can be
learned away, so the twin that is quantized afterwards is the same model. Writes OUT/{3,4}bit, which
mlx-lm loads, and OUT/qat.json: held-out PPL and KLD of both, computed in float32 with the weights
that MLX computes with.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path

import data
import torch
import torch.nn.functional as F  # noqa: N812
from affine import BITS, GROUP_SIZE, fake_quantise, quantise
from model import TARGET, Llama
from optim import optimisers, rate, set_rate
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

SEED = 20261123
STDLIB_SHARE = 0.25
PACKAGE_TOKENS = 30_000_000
ROW = 1024
EVERY = 500
TARGET_FOLDER = Path("pytest_asperf/data/models/asperf-target")


def divergence(teacher_logits: Tensor, student_logits: Tensor) -> Tensor:
    """KL(teacher || student) in nats at every position."""
    truth, guess = (logits.float().log_softmax(-1) for logits in (teacher_logits, student_logits))
    return F.kl_div(guess, truth, log_target=True, reduction="none").sum(-1)


def loss_of(student: nn.Module, teacher: nn.Module, rows: Tensor, bits: int) -> Tensor:
    """Mean KL(teacher || quantized student) over rows [n, length]."""
    # Every matrix is of a Linear or an Embedding layer, and all of those mlx-lm quantizes.
    weights = {
        name: fake_quantise(p, bits) if p.ndim == 2 else p for name, p in student.named_parameters()
    }
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=rows.is_cuda):
        with torch.no_grad():
            truth = teacher(rows)
        guess = torch.func.functional_call(student, weights, (rows,))
    return divergence(truth, guess).mean()


def quantised(model: Llama, bits: int) -> Llama:
    """A copy whose weights have the values of the quantized ones."""
    # On the CPU, whose division is exact: these are the values that are shipped.
    weights = {
        name: quantise(p.cpu(), bits).values() if p.ndim == 2 else p.half().float()
        for name, p in model.state_dict().items()
    }
    copy = Llama(model.shape)
    copy.load_state_dict(weights)
    copy.to(model.cos.device)
    return copy


def quality(model: Llama, teacher: Llama, held_out: Tensor, rows: int = 32) -> dict[str, float]:
    """Held-out PPL and KL(teacher || model), over the positions that llama-perplexity scores."""
    torch.set_float32_matmul_precision("highest")
    with torch.no_grad():
        kld = [
            divergence(teacher(part)[:, data.SCORED], model(part)[:, data.SCORED])
            for part in data.chunked(held_out).split(rows)
        ]
    ppl = data.perplexity(model, held_out)
    torch.set_float32_matmul_precision("high")
    return {"ppl": ppl, "kld": torch.cat(kld).mean().item()}


def fine_tune(teacher: Llama, rows: data.Rows, bits: int, args: argparse.Namespace) -> Llama:
    """The teacher's weights, moved to where they bear the quantization."""
    student = Llama(teacher.shape)
    student.load_state_dict(teacher.state_dict())
    student.to(args.device)
    opts = optimisers(student, args.lr, 0.0)
    fast = torch.compile(loss_of, dynamic=False) if args.compile else loss_of
    began = time.monotonic()
    for step in range(args.steps):
        batch = rows.draw(args.tokens // ROW, ROW)[:, :ROW]
        loss = fast(student, teacher, batch, bits)
        loss.backward()
        set_rate(opts, args.lr * rate(step, args.steps, warmup=args.steps // 40, hold=args.hold))
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        for opt in opts:
            opt.step()
            opt.zero_grad(set_to_none=False)
        if step % EVERY == 0 or step + 1 == args.steps:
            seconds = time.monotonic() - began
            print(f"bits={bits} step={step + 1} kld={loss.item():.5f} s={seconds:.0f}", flush=True)
    return student


def export(model: Llama, bits: int, folder: Path, tokenizer: Path) -> None:
    """Write the folder that mlx-lm loads."""
    tensors: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        if value.ndim != 2:
            tensors[name] = value.half().cpu().contiguous()
            continue
        layer, matrix = name.removesuffix(".weight"), quantise(value.cpu(), bits)
        tensors[name] = matrix.packed(bits)
        tensors |= {f"{layer}.scales": matrix.scales, f"{layer}.biases": matrix.biases}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "mlx"})
    scheme = {"group_size": GROUP_SIZE, "bits": bits, "mode": "affine"}
    config = {**model.shape.hf_config(), "quantization": scheme, "quantization_config": scheme}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    shutil.copyfile(tokenizer, folder / "tokenizer.json")


def train(args: argparse.Namespace) -> dict[str, object]:
    """Fine-tune, measure and write every quantization; return the record."""
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    teacher = Llama(TARGET)
    teacher.load_state_dict(load_file(args.target / "model.safetensors"))
    teacher.to(args.device).requires_grad_(requires_grad=False)
    stdlib, packages, held_out = (
        data.stream(args.data / f"{n}.bin.xz", args.device)
        for n in ("stdlib", "packages", "heldout")
    )
    streams = [stdlib, packages[:PACKAGE_TOKENS]]
    held_out = held_out[: args.heldout]
    record: dict[str, object] = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if held_out.is_cuda else "cpu",
        "settings": {name: str(value) for name, value in vars(args).items()},
        "F16": quality(teacher, teacher, held_out),
    }
    print(f"F16 {record['F16']}", flush=True)
    for bits in args.bits:
        rows = data.Rows(streams, [STDLIB_SHARE, 1 - STDLIB_SHARE], SEED)
        before = quality(quantised(teacher, bits), teacher, held_out)
        print(f"bits={bits} PTQ {before}", flush=True)
        began = time.monotonic()
        student = fine_tune(teacher, rows, bits, args)
        after = quality(quantised(student, bits), teacher, held_out)
        print(f"bits={bits} QAT {after}", flush=True)
        seconds = round(time.monotonic() - began)
        record[f"{bits}bit"] = {"ptq": before, "qat": after, "seconds": seconds}
        export(student, bits, args.out / f"{bits}bit", args.target / "tokenizer.json")
        (args.out / "qat.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("build/train"))
    parser.add_argument("--target", type=Path, default=TARGET_FOLDER)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--bits", type=int, nargs="+", default=list(BITS))
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--hold", type=float, default=0.3)
    parser.add_argument("--heldout", type=int, default=None, help="score this many tokens only")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
