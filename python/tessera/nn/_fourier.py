"""Layers on fast transforms: circulant and Toeplitz matrices, and fastfood."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tessera import _structured as operators
from tessera.nn import _transforms, formulas
from tessera.nn._sparse import made_on_cpu
from tessera.nn._structured import StructuredLinear, lr_scale


class _Shifted(StructuredLinear):
    """A layer whose rows are one vector `c`, shifted from row to row."""

    c: nn.Parameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, device)
        self.c = nn.Parameter(torch.empty(self._elements(), dtype=dtype))
        self._add_bias(bias, dtype)
        self.reset_parameters()

    def _elements(self) -> int:
        raise NotImplementedError

    def reset_parameters(self) -> None:
        nn.init.normal_(self.c, std=1 / math.sqrt(self.in_features))
        self._reset_bias()

    def lr_scales(self) -> Mapping[str, float]:
        return {"c": 1.0}


class CirculantLinear(_Shifted):
    """A layer whose weight is circulant: W[i, j] = c[(i - j) mod n], with n the larger number of features."""

    def _elements(self) -> int:
        return max(self.in_features, self.out_features)

    def _product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        return operators.circulant(bias, x, self.c, self.out_features)

    def _formula(self, x: Tensor) -> Tensor:
        return formulas.circulant(x, self.c.to(x.dtype), self.out_features)


class ToeplitzLinear(_Shifted):
    """A layer whose weight has equal elements along each diagonal: W[i, j] = c[i - j + in_features - 1]."""

    def _elements(self) -> int:
        return self.in_features + self.out_features - 1

    def _product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        return operators.toeplitz(bias, x, self.c)

    def _formula(self, x: Tensor) -> Tensor:
        return formulas.toeplitz(x, self.c.to(x.dtype))


class FastfoodLinear(StructuredLinear):
    """A layer with weight S · H · G · Π · H · B (Le et al. 2013): three learned diagonals and a fixed permutation.

    H is the Hadamard matrix of N, the power of two that holds the inputs, divided by √N: activations keep their scale.
    (To load the `S` of a layer with unnormalised matrices, multiply it by N.) For more outputs, several such
    products of the same input are stacked: `S`, `G`, `B` and the buffer `P` are [stacks, N].
    """

    S: nn.Parameter
    G: nn.Parameter
    B: nn.Parameter
    P: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        permutation: Tensor | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features)
        size = 1 << _transforms.levels_for(in_features)
        shape = (-(-out_features // size), size)
        with made_on_cpu(self, device):
            for name in ("S", "G", "B"):
                self.register_parameter(name, nn.Parameter(torch.empty(shape, dtype=dtype)))
            if permutation is None:
                permutation = torch.stack([torch.randperm(size) for _ in range(shape[0])])
            self.register_buffer("P", _transforms.checked_permutation(permutation, shape))
            self._add_bias(bias, dtype)
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the diagonals as for random features; the permutation stays."""
        size = self.G.shape[1]
        with torch.no_grad():
            self.G.normal_()
            lengths = torch.distributions.Chi2(torch.tensor(float(size))).sample(self.S.shape).sqrt()
            self.S.copy_(lengths / self.G.float().norm(dim=1, keepdim=True))
            self.B.copy_(torch.randint(0, 2, self.B.shape) * 2 - 1)
        self._reset_bias()

    def _product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        return operators.fastfood(bias, x, self.S, self.G, self.B, self.P, self.out_features)

    def _formula(self, x: Tensor) -> Tensor:
        s, g, b = (diagonal.to(x.dtype) for diagonal in (self.S, self.G, self.B))
        return formulas.fastfood(x, s, g, b, self.P, self.out_features)

    def lr_scales(self) -> Mapping[str, float]:
        return dict.fromkeys(("S", "G", "B"), lr_scale(self.in_features, 1, 3))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        for name in ("S", "G", "B", "P"):
            value = state_dict.get(prefix + name)
            if isinstance(value, Tensor) and value.dim() == 1:
                state_dict[prefix + name] = value.unsqueeze(0)
        super()._load_from_state_dict(state_dict, prefix, *arguments)
