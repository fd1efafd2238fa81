"""The common base of the layers with structured weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tessera._operators import checked_shape
from tessera.nn._sparse import check_layer


class StructuredLinear(nn.Module):
    """y = x · Wᵀ + bias, where W is a product of a few factors: the base class of the structured layers.

    `forward` computes in FP32 on the CPU, for an `x` [..., in_features] of any floating-point type. `reference`
    computes the same by the structure's formula (`tessera.nn.formulas`), in any type on any device.
    """

    in_features: int
    out_features: int
    bias: nn.Parameter | None

    def __init__(self, in_features: int, out_features: int, device: Any = None) -> None:
        super().__init__()
        check_layer(in_features, out_features, device)
        self.in_features, self.out_features = in_features, out_features

    def _add_bias(self, bias: bool, dtype: torch.dtype | None, *shape: int) -> None:
        """Register a bias, or None."""
        if not bias:
            self.register_parameter("bias", None)
            return
        self.bias = nn.Parameter(torch.empty(shape or (self.out_features,), dtype=dtype))

    def _reset_bias(self) -> None:
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features)
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        checked_shape("x", x, self.in_features)
        parameters = self._parameters  # directly: attributes of modules take longer to find
        # A bias that is computed, for instance by a parametrization, is not in `parameters`.
        return self._product(x, parameters["bias"] if "bias" in parameters else self.bias)

    def reference(self, x: Tensor) -> Tensor:
        """The layer by its formula, with parameters in the type of `x`."""
        y = self._formula(checked_input(x, self.in_features))
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def _product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x · Wᵀ + bias by compiled code."""
        raise NotImplementedError

    def _formula(self, x: Tensor) -> Tensor:
        """x · Wᵀ by the formula."""
        raise NotImplementedError

    def dense_weight(self) -> Tensor:
        """W as a matrix [out_features, in_features], a copy without gradient."""
        with torch.no_grad():
            columns = self._formula(torch.eye(self.in_features, dtype=torch.float64))
            parameter = next(p for name, p in self.named_parameters() if name != "bias")
            return columns.t().to(parameter.dtype).contiguous()

    def to_dense(self) -> nn.Linear:
        """The same layer as a `torch.nn.Linear`."""
        weight = self.dense_weight()
        linear = nn.Linear(self.in_features, self.out_features, self.bias is not None, dtype=weight.dtype)
        linear.weight.data = weight
        if self.bias is not None:
            linear.bias.data.copy_(self.bias.detach())
        return linear.train(self.training)

    def lr_scales(self) -> Mapping[str, float]:
        """For each factor, its learning rate relative to a dense layer's; see `parameter_groups`."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def checked_input(x: Tensor, in_features: int) -> Tensor:
    """An `x` with `in_features` features, in a type that parameters may have."""
    checked_shape("x", x, in_features)
    if not (x.is_floating_point() or x.is_complex()):
        raise TypeError(f"an operand of {x.dtype}: use a floating-point type")
    return x


def reordered(x: Tensor, permutation: Tensor) -> Tensor:
    """x[..., permutation], where places that x lacks at its end are zeros."""
    missing = permutation.numel() - x.shape[-1]
    return (nn.functional.pad(x, (0, missing)) if missing else x).index_select(-1, permutation)


def scaled_deviation(inputs: int, outputs: int) -> float:
    """The standard deviation of a factor with these numbers of inputs per output and of outputs per input."""
    return math.sqrt(1 / inputs) * min(1.0, math.sqrt(outputs / inputs))


def lr_scale(in_features: int, factor_inputs: float, factors: int) -> float:
    return in_features / (factor_inputs * factors)


def parameter_groups(module: nn.Module, lr: float, **options: Any) -> list[dict[str, Any]]:
    """Groups for an Adam-like optimizer, where a factor's learning rate follows from its size.

    A factor with k inputs per output, in a layer with n inputs and f factors, has the learning rate lr · n / (k · f),
    so that outputs change as fast as the outputs of a dense layer at `lr` (Qiu et al. 2024). All other parameters have
    `lr`. `options` go into every group.
    """
    scales: dict[nn.Parameter, float] = {}
    for layer in module.modules():
        of_factors = getattr(layer, "lr_scales", None)
        if of_factors is not None:
            scales.update((layer.get_parameter(name), scale) for name, scale in of_factors().items())
    groups: dict[float, list[nn.Parameter]] = {}
    for parameter in module.parameters():
        groups.setdefault(scales.get(parameter, 1.0), []).append(parameter)
    return [{"params": members, "lr": lr * scale, **options} for scale, members in groups.items()]
