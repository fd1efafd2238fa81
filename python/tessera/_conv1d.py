"""The linear layers of `transformers` whose weight is [in, out], as in GPT-2."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

#: Names of parameters, also as `torch.nn.utils.prune` renames them, and of its masks.
_TENSORS = [f"{name}{end}" for name in ("weight", "bias") for end in ("", "_orig", "_mask")]


def is_conv1d(layer: nn.Module) -> bool:
    """Whether a layer is a `Conv1D`, x · W + b; its attributes decide, as `transformers` may not be installed."""
    if type(layer).__name__ != "Conv1D":
        return False
    weight, bias = getattr(layer, "weight", None), getattr(layer, "bias", None)
    if not isinstance(weight, Tensor) or not isinstance(bias, Tensor) or weight.dim() != 2:
        return False
    return bias.shape == weight.shape[1:] and getattr(layer, "nf", None) == weight.shape[1]


def as_linear(layer: nn.Module) -> nn.Linear:
    """A `Conv1D` as `torch.nn.Linear`, with the same tensors, transposed."""
    weight: Any = layer.weight
    linear = nn.Linear(weight.shape[0], weight.shape[1], device="meta")
    for name in _TENSORS:
        tensor = getattr(layer, name, None)
        if isinstance(tensor, Tensor):
            setattr(linear, name, nn.Parameter(tensor.detach().t(), requires_grad=tensor.requires_grad))
    return linear.train(layer.training)
