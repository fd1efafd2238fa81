"""Surrogate gradients, which replace the derivative of the step function by which a neuron fires.

Each function returns a `Surrogate` for `spike_grad=` of the layers. With x the distance from the threshold:

    atan          alpha/2 / (1 + (π/2 · alpha · x)²)
    fast_sigmoid  1 / (slope · |x| + 1)²
    superspike    the same, with the slope of Finkbeiner et al.
    sigmoid       slope · σ(slope · x) · (1 - σ(slope · x))
    triangle      max(0, 1 - slope · |x|)
    boxcar        slope where |x| < 1 / (2 · slope)

each times `scale`. The names and slopes of the first two and of `sigmoid` are snnTorch's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tessera._arguments import chosen

__all__ = ["Surrogate", "atan", "boxcar", "fast_sigmoid", "sigmoid", "superspike", "triangle"]

_FAMILIES = ("superspike", "fast_sigmoid", "arctan", "triangle", "sigmoid", "boxcar")


@dataclass(frozen=True)
class Surrogate:
    """A step function with a derivative from a family of functions. `surrogate(x)` is 1 where x > 0, and else 0."""

    family: str
    slope: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        chosen("surrogate", self.family, _FAMILIES)
        if not (0 < self.slope < math.inf and math.isfinite(self.scale)):
            raise ValueError(
                f"a surrogate of slope {self.slope} and scale {self.scale}; the slope must be above 0, both finite"
            )

    def __call__(self, x: Tensor) -> Tensor:
        spikes: Tensor = _Step.apply(x, self)
        return spikes

    def derivative(self, x: Tensor) -> Tensor:
        k, distance = self.slope, x.abs()
        if self.family == "arctan":
            y = k / 2 / (1 + (math.pi / 2 * k * x) ** 2)
        elif self.family == "triangle":
            y = (1 - k * distance).clamp(min=0)
        elif self.family == "sigmoid":
            s = torch.sigmoid(k * x)
            y = k * s * torch.sigmoid(-k * x)
        elif self.family == "boxcar":
            y = k * (distance < 1 / (2 * k)).to(x.dtype)
        else:
            y = 1 / (k * distance + 1) ** 2
        return self.scale * y


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, surrogate: Surrogate) -> Tensor:
        ctx.surrogate = surrogate
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return gradients[0] * ctx.surrogate.derivative(x), None


def atan(alpha: float = 2.0, *, scale: float = 1.0) -> Surrogate:
    return Surrogate("arctan", alpha, scale)


def fast_sigmoid(slope: float = 25.0, *, scale: float = 1.0) -> Surrogate:
    return Surrogate("fast_sigmoid", slope, scale)


def superspike(slope: float = 10.0, *, scale: float = 1.0) -> Surrogate:
    return Surrogate("superspike", slope, scale)


def sigmoid(slope: float = 25.0, *, scale: float = 1.0) -> Surrogate:
    return Surrogate("sigmoid", slope, scale)


def triangle(slope: float = 1.0, *, scale: float = 1.0) -> Surrogate:
    return Surrogate("triangle", slope, scale)


def boxcar(slope: float = 1.0, *, scale: float = 1.0) -> Surrogate:
    return Surrogate("boxcar", slope, scale)
