"""Kronecker-sparse factors: block-diagonal and Monarch matrices, and chains of any factors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tessera import _structured as operators
from tessera._arguments import chosen
from tessera._tessera import whole_number
from tessera.nn import formulas
from tessera.nn._structured import StructuredLinear, lr_scale, reordered, scaled_deviation

_INITS = ("uniform", "scaled", "empty")


def _initialise(weight: Tensor, inputs: int, outputs: int, init: str) -> None:
    """Draw uniformly like `torch.nn.Linear` with that number of inputs per output, or normally at a scale to learn."""
    if init == "uniform":
        bound = 1 / math.sqrt(inputs)
        nn.init.uniform_(weight, -bound, bound)
    elif init == "scaled":
        nn.init.normal_(weight, std=scaled_deviation(inputs, outputs))


class BlockDiagonalLinear(StructuredLinear):
    """A layer with a block-diagonal weight [nblocks, outputs per block, inputs per block].

    Numbers of features that `nblocks` does not divide are rounded up: additional inputs are zeros, additional outputs
    are dropped. `shuffle` deals the inputs out to the blocks in turn, as ShuffleNet does.
    """

    weight: nn.Parameter
    _order: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        nblocks: int = 4,
        shuffle: bool = False,
        init: str = "uniform",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, device)
        self.nblocks, self.shuffle = whole_number("nblocks", nblocks, 1), shuffle
        self.init = chosen("init", init, _INITS)
        shape = (nblocks, -(-out_features // nblocks), -(-in_features // nblocks))
        self.weight = nn.Parameter(torch.empty(shape, dtype=dtype))
        order = torch.arange(nblocks * shape[2]).reshape(nblocks, -1).t().reshape(-1) if shuffle else None
        self.register_buffer("_order", order, persistent=False)
        self._add_bias(bias, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _, outputs, inputs = self.weight.shape
        _initialise(self.weight, inputs, outputs, self.init)
        self._reset_bias()

    def _shuffled(self, x: Tensor) -> Tensor:
        order = self._buffers.get("_order")
        return x if order is None else reordered(x, order)

    def _product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        weight = self.weight
        a, b, c = weight.shape
        return operators.kronecker(bias, self._shuffled(x), weight, a, b, c, 1, self.out_features)

    def _formula(self, x: Tensor) -> Tensor:
        return formulas.block_diagonal(self._shuffled(x), self.weight.to(x.dtype), self.out_features)

    def lr_scales(self) -> Mapping[str, float]:
        return {"weight": lr_scale(self.in_features, self.weight.shape[2], 1)}

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, nblocks={self.nblocks}, shuffle={self.shuffle}"


class MonarchLinear(StructuredLinear):
    """A layer whose weight is a Monarch matrix (Dao et al. 2022): two block-diagonal factors and transpositions.

    With n = ⌈in_features / nblocks⌉ and m = ⌈out_features / nblocks⌉, `blkdiag1` is [nblocks, n, n] and `blkdiag2`
    [nblocks, m, n] if n < m, else [nblocks, m, n] and [nblocks, m, m]. √n blocks need the fewest parameters.
    """

    blkdiag1: nn.Parameter
    blkdiag2: nn.Parameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        nblocks: int = 4,
        init: str = "uniform",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, device)
        self.nblocks, self.init = whole_number("nblocks", nblocks, 1), chosen("init", init, _INITS)
        inputs, outputs = -(-in_features // nblocks), -(-out_features // nblocks)
        hidden = min(inputs, outputs)
        self.blkdiag1 = nn.Parameter(torch.empty(nblocks, hidden, inputs, dtype=dtype))
        self.blkdiag2 = nn.Parameter(torch.empty(nblocks, outputs, hidden, dtype=dtype))
        self._add_bias(bias, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for factor in (self.blkdiag1, self.blkdiag2):
            _initialise(factor, factor.shape[2], factor.shape[1], self.init)
        self._reset_bias()

    def _product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        first, second = self.blkdiag1, self.blkdiag2
        k, hidden, inputs = first.shape
        outputs = second.shape[1]
        h = operators.kronecker(None, x, first, k, hidden, inputs, 1, k * hidden)
        return operators.kronecker(bias, h, second, 1, outputs, hidden, k, self.out_features)

    def _formula(self, x: Tensor) -> Tensor:
        return formulas.monarch(x, self.blkdiag1.to(x.dtype), self.blkdiag2.to(x.dtype), self.out_features)

    def lr_scales(self) -> Mapping[str, float]:
        factors = {"blkdiag1": self.blkdiag1, "blkdiag2": self.blkdiag2}
        return {name: lr_scale(self.in_features, factor.shape[2], 2) for name, factor in factors.items()}

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, nblocks={self.nblocks}"


class KroneckerLinear(StructuredLinear):
    """A layer whose weight is a product of Kronecker-sparse factors, the general form of butterflies and Monarch.

    `factors` lists (a, b, c, d), in order of application: I_a ⊗ (any b × c blocks) ⊗ I_d, with a · c · d inputs and a ·
    b · d outputs. The first factor has at least `in_features` inputs, the last at least `out_features` outputs, and
    each other factor has as many inputs as the factor before has outputs. The parameters are `weights`, each [a, d, b,
    c].

        KroneckerLinear(1024, 1024, factors=[(32, 32, 32, 1), (1, 32, 32, 32)])        # Monarch
        KroneckerLinear(4096, 4096, factors=[(256, 16, 16, 1), (16, 16, 16, 16), (1, 16, 16, 256)])
    """

    weights: nn.ParameterList

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        factors: Sequence[tuple[int, int, int, int]],
        init: str = "scaled",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, device)
        self.factors = tuple(_checked_factor(*factor) for factor in factors)
        self.init = chosen("init", init, _INITS)
        _check_chain(self.factors, in_features, out_features)
        self.weights = nn.ParameterList(torch.empty(a, d, b, c, dtype=dtype) for a, b, c, d in self.factors)
        self._add_bias(bias, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in self.weights:
            _initialise(weight, weight.shape[3], weight.shape[2], self.init)
        self._reset_bias()

    def _product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        for last, (weight, (a, b, c, d)) in enumerate(zip(self.weights, self.factors, strict=True), 1):
            is_last = last == len(self.factors)
            outputs = self.out_features if is_last else a * b * d
            x = operators.kronecker(bias if is_last else None, x, weight, a, b, c, d, outputs)
        return x

    def _formula(self, x: Tensor) -> Tensor:
        for weight, (a, b, _, d) in zip(self.weights, self.factors, strict=True):
            x = formulas.kronecker(x, weight.to(x.dtype), a * b * d)
        return x[..., : self.out_features]

    def lr_scales(self) -> Mapping[str, float]:
        count = len(self.factors)
        return {f"weights.{i}": lr_scale(self.in_features, f[2], count) for i, f in enumerate(self.factors)}

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, factors={list(self.factors)}"


def _checked_factor(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    return whole_number("a", a, 1), whole_number("b", b, 1), whole_number("c", c, 1), whole_number("d", d, 1)


def _check_chain(factors: Sequence[tuple[int, int, int, int]], inputs: int, outputs: int) -> None:
    if not factors:
        raise ValueError("factors are empty; at least one is needed")
    for (a, b, _, d), (following_a, _, c, following_d) in zip(factors, factors[1:], strict=False):
        if a * b * d != following_a * c * following_d:
            raise ValueError(f"a factor has {a * b * d} outputs, the next {following_a * c * following_d} inputs")
    a, _, c, d = factors[0]
    last_a, b, _, last_d = factors[-1]
    if a * c * d < inputs or last_a * b * last_d < outputs:
        raise ValueError(
            f"the factors take {a * c * d} inputs to {last_a * b * last_d} outputs; the layer has {inputs} and {outputs}"
        )
