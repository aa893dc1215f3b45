# mypy: disable-error-code="misc"
"""Muon for the matrices, AdamW for the embedding and the norms, one schedule for both."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def orthogonalise(update: Tensor) -> Tensor:
    """Newton-Schulz iteration of Muon (Jordan et al. 2024) on a stack of matrices [n, r, c]."""
    x = update.bfloat16() if update.is_cuda else update.float()
    wide = x.shape[-1] >= x.shape[-2]
    x = x if wide else x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x if wide else x.mT


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised; scaled to AdamW's usual update size."""

    def __init__(self, params: list[Tensor], lr: float, momentum: float, decay: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "decay": decay})

    def step(self, closure: None = None) -> None:  # type: ignore[override, unused-ignore] # noqa: ARG002
        """One update; matrices of one shape go through the iteration together."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[Tensor]] = {}
            for p in group["params"]:
                by_shape.setdefault(tuple(p.shape), []).append(p)
            with torch.no_grad():
                for params in by_shape.values():
                    self._update(params, group)

    def _update(self, params: list[Tensor], group: dict[str, float]) -> None:
        grads = torch.stack([p.grad for p in params])
        state = self.state[params[0]]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(grads)
        state["momentum"].lerp_(grads, 1 - group["momentum"])
        update = orthogonalise(grads.lerp(state["momentum"], group["momentum"]))
        scale = 0.2 * max(params[0].shape) ** 0.5
        keep = 1 - group["lr"] * group["decay"]
        for p, u in zip(params, update, strict=True):
            p.mul_(keep).add_(u.to(p.dtype), alpha=-group["lr"] * scale)


def optimisers(model: nn.Module, lr: float, decay: float) -> list[torch.optim.Optimizer]:
    """Muon on the layers' matrices, AdamW on the rest (no decay on the norms)."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    embedding = [p for n, p in model.named_parameters() if "embed" in n]
    norms = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": embedding, "weight_decay": decay}, {"params": norms, "weight_decay": 0.0}]
    fused = embedding[0].is_cuda
    return [
        Muon(matrices, lr=lr, momentum=0.95, decay=decay),
        torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-10, fused=fused),
    ]


def rate(step: int, steps: int, *, warmup: int, hold: float) -> float:
    """Warm up, stay until `hold` of the steps, then linearly to zero."""
    if step < warmup:
        return (step + 1) / warmup
    return min(1.0, (steps - step) / (steps * (1 - hold)))


def set_rate(opts: list[torch.optim.Optimizer], lr: float) -> None:
    """Set every group's learning rate."""
    for opt in opts:
        for group in opt.param_groups:
            group["lr"] = lr
