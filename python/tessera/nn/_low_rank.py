"""Weights of low rank."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tessera._arguments import chosen
from tessera._prepared import check_real
from tessera._tessera import whole_number
from tessera.nn._structured import StructuredLinear, lr_scale, scaled_deviation

_INITS = ("normal", "uniform", "scaled", "empty")


class LowRankLinear(StructuredLinear):
    """A layer with weight U · V, of `rank` r: `U` [out_features, r] and `V` [r, in_features], two dense products.

    `init` is "normal" (both factors with standard deviation (r · in_features)^-½, as in the literature), "uniform" (as
    two layers of `torch.nn.Linear`) or "scaled" (which keeps the scale of activations).
    """

    U: nn.Parameter
    V: nn.Parameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        rank: int,
        init: str = "normal",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, device)
        self.rank = whole_number("rank", rank, 1, min(in_features, out_features))
        self.init = chosen("init", init, _INITS)
        self.U = nn.Parameter(torch.empty(out_features, rank, dtype=dtype))
        self.V = nn.Parameter(torch.empty(rank, in_features, dtype=dtype))
        self._add_bias(bias, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for factor in (self.V, self.U):
            outputs, inputs = factor.shape
            if self.init == "normal":
                nn.init.normal_(factor, std=1 / math.sqrt(self.rank * self.in_features))
            elif self.init == "uniform":
                nn.init.uniform_(factor, -1 / math.sqrt(inputs), 1 / math.sqrt(inputs))
            elif self.init == "scaled":
                nn.init.normal_(factor, std=scaled_deviation(inputs, outputs))
        self._reset_bias()

    def _product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        check_real(x)
        dtype = x.dtype
        first: Tensor = self.V
        second: Tensor = self.U
        if first.dtype is not dtype:
            first, second = first.to(dtype), second.to(dtype)
            bias = None if bias is None else bias.to(dtype)
        return nn.functional.linear(nn.functional.linear(x, first), second, bias)

    def _formula(self, x: Tensor) -> Tensor:
        return x @ self.V.to(x.dtype).t() @ self.U.to(x.dtype).t()

    def lr_scales(self) -> Mapping[str, float]:
        inputs = {"V": self.in_features, "U": self.rank}
        return {name: lr_scale(self.in_features, count, 2) for name, count in inputs.items()}

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rank={self.rank}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        """Also takes factors as other implementations name them: lr_weight1 and lr_weight2, or G and H."""
        for name, other, is_transposed in (
            ("V", "lr_weight1", False),
            ("U", "lr_weight2", False),
            ("V", "H", False),
            ("U", "G", True),
        ):
            value = state_dict.pop(prefix + other, None)
            if isinstance(value, Tensor):
                state_dict[prefix + name] = value.t() if is_transposed else value
        super()._load_from_state_dict(state_dict, prefix, *arguments)
