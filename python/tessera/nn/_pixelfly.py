"""Pixelated butterflies: a flat block butterfly and a matrix of low rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tessera import _blocks, _tessera
from tessera._tessera import whole_number
from tessera.nn._sparse import SparseLinear, check_layer, made_on_cpu
from tessera.nn._structured import checked_input, lr_scale


def flat_butterfly(
    out_features: int,
    in_features: int,
    block_size: int,
    butterfly_size: int,
    *,
    num_factors: int | None = None,
    stretch: bool = True,
) -> Tensor:
    """The blocks of a matrix that a flat block butterfly has: booleans [block rows, block columns].

    On a grid of `butterfly_size` × `butterfly_size` cells, the diagonal and the places of the first `num_factors`
    butterfly factors (default: all) are active. Cells are stretched over the matrix, and a block is active if an
    element of it is. With stretch=False, a rectangular matrix repeats a square pattern instead: blocks of the longer
    side are dealt out in turn.
    """
    check_layer(in_features, out_features, None)
    whole_number("block_size", block_size, 1)
    cells = whole_number("butterfly_size", butterfly_size, 2)
    count = 0 if num_factors is None else whole_number("num_factors", num_factors, 1)
    return torch.from_numpy(_tessera.flat_butterfly(out_features, in_features, block_size, cells, count, stretch))


class PixelflyLinear(SparseLinear):
    """A layer whose weight is the sum of a sparse and a low-rank matrix (Chen et al. 2021), of any shape.

    The sparse weight has the blocks of `flat_butterfly`, and is stored like the weight of a static `SparseLinear`:
    `weight` holds its values in packed order. `lowrank_first` and `lowrank_second` are [rank, in_features] and
    [out_features, rank]; `rank` is 32 by default, or what the layer's size allows; rank=0 leaves them out.
    `load_state_dict` also takes the forms of other implementations: a weight [in_features, active blocks, block_size],
    which `grouped_weight` returns, and the bias in `lowrank_second`.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        block_size: int = 32,
        butterfly_size: int | None = None,
        rank: int | None = None,
        num_factors: int | None = None,
        stretch: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        nn.Module.__init__(self)
        check_layer(in_features, out_features, None)
        if butterfly_size is None:
            cells = min(in_features, out_features) // whole_number("block_size", block_size, 1)
            butterfly_size = max(2, 1 << max(0, cells.bit_length() - 1))
        most = min(in_features, out_features)
        rank = min(32, most) if rank is None else whole_number("rank", rank, 0, most)
        options: dict[str, Any] = {"num_factors": num_factors, "stretch": stretch}
        active = flat_butterfly(out_features, in_features, block_size, butterfly_size, **options)
        self.pattern_block_size, self.butterfly_size, self.rank = block_size, butterfly_size, rank
        stored_size = max(b for b in _blocks.BLOCK_SIZES if block_size % b == 0)
        finer = active.repeat_interleave(block_size // stored_size, 0).repeat_interleave(block_size // stored_size, 1)
        rows, cols = _blocks.grid_of(out_features, in_features, stored_size)
        with made_on_cpu(self, device):
            positions = finer[:rows, :cols].reshape(-1).nonzero().reshape(-1)
            self._build((out_features, in_features), positions, bias, stored_size, False, None, dtype)
            self.lowrank_first = nn.Linear(in_features, rank, bias=False, dtype=dtype) if rank else None
            self.lowrank_second = nn.Linear(rank, out_features, bias=False, dtype=dtype) if rank else None
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw both parts uniformly, each as for a separate layer."""
        super().reset_parameters()
        for part in (self.lowrank_first, self.lowrank_second):
            if part is not None:
                part.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        if self.lowrank_first is None or self.lowrank_second is None:
            return y
        hidden = nn.functional.linear(x, self.lowrank_first.weight.to(x.dtype)).to(y.dtype)
        # In place: one pass over y less.
        rows = y.view(-1, self.out_features)
        rows.addmm_(hidden.reshape(-1, self.rank), self.lowrank_second.weight.to(y.dtype).t())
        return y

    def reference(self, x: Tensor) -> Tensor:
        """The layer by its formula, with parameters in the type of `x`."""
        x = checked_input(x, self.in_features)
        y = x @ self._matrix().to(x.dtype).t()
        if self.lowrank_first is not None and self.lowrank_second is not None:
            y = y + x @ self.lowrank_first.weight.to(x.dtype).t() @ self.lowrank_second.weight.to(x.dtype).t()
        return y if self.bias is None else y + self.bias.to(x.dtype)

    def sparse_weight(self) -> Tensor:
        """The sparse part as a matrix [out_features, in_features], a copy without gradient."""
        return super().dense_weight()

    def dense_weight(self) -> Tensor:
        """W as a matrix [out_features, in_features], a copy without gradient."""
        weight = super().dense_weight()
        if self.lowrank_first is None or self.lowrank_second is None:
            return weight
        first, second = self.lowrank_first.weight.detach(), self.lowrank_second.weight.detach()
        return (weight.double() + second.double() @ first.double()).to(weight.dtype)

    def grouped_weight(self) -> Tensor:
        """The sparse part as [in_features, active blocks, block_size], if all block columns have equally many blocks.
        """
        b = self.pattern_block_size
        active, grid = self._active_blocks()
        blocks = _blocks.blocks_of(super().dense_weight(), b).transpose(0, 1)[active]
        return blocks.reshape(grid * b, -1, b)

    def _active_blocks(self) -> tuple[Tensor, int]:
        """The blocks of the pattern, by block column, and the number of columns."""
        b = self.pattern_block_size
        active = (_blocks.blocks_of(self.mask(), b).sum((2, 3)) > 0).t()
        if self.in_features % b or self.out_features % b or active.sum(1).unique().numel() != 1:
            raise ValueError("the blocks of this layer's columns differ in number or size: they have no grouped form")
        return active, active.shape[0]

    def _set_grouped_weight(self, grouped: Tensor) -> None:
        b = self.pattern_block_size
        active, cols = self._active_blocks()
        per_column = int(active[0].sum())
        if grouped.shape != (self.in_features, per_column, b):
            expected = (self.in_features, per_column, b)
            raise ValueError(f"the weight has shape {tuple(grouped.shape)}; this layer's is {expected}")
        blocks = torch.zeros(*active.shape, b, b, dtype=grouped.dtype)
        blocks[active] = grouped.reshape(-1, b, b)
        matrix = blocks.permute(1, 2, 0, 3).reshape(self.out_features, cols * b)
        self._pack(_blocks.gather_blocks(matrix, self._positions(), self.block_size))

    def lr_scales(self) -> Mapping[str, float]:
        """For each factor, its learning rate relative to a dense layer's; see `parameter_groups`."""
        scales = {"weight": lr_scale(self.in_features, self.density * self.in_features, 1)}
        if self.rank:
            scales["lowrank_first.weight"] = lr_scale(self.in_features, self.in_features, 2)
            scales["lowrank_second.weight"] = lr_scale(self.in_features, self.rank, 2)
        return scales

    def extra_repr(self) -> str:
        parts = [f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"]
        parts.append(f"block_size={self.pattern_block_size}, butterfly_size={self.butterfly_size}, rank={self.rank}")
        return ", ".join(parts)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        weight = state_dict.get(prefix + "weight")
        if isinstance(weight, Tensor) and weight.dim() == 3:
            state_dict.pop(prefix + "butterfly_flat_indices", None)
            bias = state_dict.pop(prefix + "lowrank_second.bias", None)
            if bias is not None:
                state_dict[prefix + "bias"] = bias
            try:
                self._set_grouped_weight(weight)
            except ValueError as error:
                arguments[-1].append(f"{prefix.removesuffix('.') or 'the layer'}: {error}")
                return
            for name in ("weight", "crow_indices", "col_indices", "packed_format"):
                state_dict[prefix + name] = self.state_dict()[name]
        super()._load_from_state_dict(state_dict, prefix, *arguments)
