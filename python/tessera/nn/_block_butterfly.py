"""Block butterflies: chains of block-sparse factors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tessera import _blocks, _tessera
from tessera._arguments import chosen
from tessera.nn._sparse import SparseLinear, made_on_cpu
from tessera.nn._structured import StructuredLinear, lr_scale, scaled_deviation


class _Factor(SparseLinear):
    """A static sparse weight with the blocks of a factor."""

    def __init__(self, shape: tuple[int, int], active: Tensor, block_size: int, dtype: torch.dtype | None) -> None:
        nn.Module.__init__(self)
        self._build(shape, active.reshape(-1).nonzero().reshape(-1), False, block_size, False, None, dtype)


class BlockButterflyLinear(StructuredLinear):
    """A layer whose weight is a block butterfly (Chen et al. 2021), in place of a dense layer of any shape.

    Each number of a butterfly's factors becomes a block of b × b, with the `block_size` b (4, 8, 16 or 32): there are
    log₂(n / b) factors with 2 n b parameters each, where n is `in_features` rounded up to a power of two times b. For
    more than n outputs, several butterflies of the same input are stacked. `factors` are sparse layers in order of
    application, by increasing stride, and compute as `SparseLinear` does, without a permutation between them.
    """

    factors: nn.ModuleList

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        block_size: int = 32,
        init: str = "scaled",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features)
        _blocks.check_block_size(block_size, _blocks.BLOCK_SIZES[1:])  # 1: ButterflyLinear
        self.block_size, self.init = block_size, chosen("init", init, ("scaled", "identity", "empty"))
        patterns = [torch.from_numpy(p) for p in _tessera.block_butterfly(out_features, in_features, block_size)]
        hidden = [pattern.shape[0] * block_size for pattern in patterns[:-1]]
        shapes = zip([*hidden, out_features], [in_features, *hidden], strict=True)
        with made_on_cpu(self, device):
            self.factors = nn.ModuleList(
                _Factor(shape, active, block_size, dtype) for shape, active in zip(shapes, patterns, strict=True)
            )
            self._add_bias(bias, dtype)
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the factors normally, so that activations keep their size, or set each to the identity."""
        inputs = 2 * self.block_size
        for factor in self._chain():
            if self.init == "scaled":
                values = torch.empty(factor._stored_values()).normal_(std=scaled_deviation(inputs, inputs))
            elif self.init == "identity":
                matrix = torch.eye(factor.out_features, factor.in_features)
                values = _blocks.gather_blocks(matrix, factor._positions(), self.block_size)
            else:
                continue
            factor._pack(values)
        self._reset_bias()

    def _chain(self) -> list[_Factor]:
        return [factor for factor in self.factors if isinstance(factor, _Factor)]

    def _product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        *others, last = self._chain()
        for factor in others:
            x = factor(x)
        return last._product(x, bias)

    def _formula(self, x: Tensor) -> Tensor:
        for factor in self._chain():
            x = x @ factor._matrix().to(x.dtype).t()
        return x

    def lr_scales(self) -> Mapping[str, float]:
        count = len(self.factors)
        scale = lr_scale(self.in_features, 2 * self.block_size, count)
        return {f"factors.{i}.weight": scale for i in range(count)}

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, block_size={self.block_size}"
