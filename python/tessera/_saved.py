"""Sparse weights in state dicts, whatever packed format they are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tessera._prepared import Prepared, stored

_VALUES = 0  # the packed format that is the order of the pattern


class SavedWeight:
    """What a state dict holds of a layer: the pattern, and the values in some packed format."""

    def __init__(
        self, shape: tuple[int, int, int], weight: Tensor, crow: Tensor, col: Tensor, packed_format: Tensor
    ) -> None:
        for name, tensor in (("crow_indices", crow), ("col_indices", col), ("packed_format", packed_format)):
            if tensor.dtype not in (torch.int32, torch.int64) or tensor.dim() != 1:
                raise TypeError(
                    f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}; it must be int32, one dimension"
                )
        out_features, _, block_size = self.shape = shape
        rows = -(-out_features // block_size)
        if crow.numel() != rows + 1 or packed_format.numel() != 1:
            raise ValueError(
                f"crow_indices has {crow.numel()} entries, and the layer {rows} rows of blocks of {block_size}: it was "
                "saved with other sizes"
            )
        self.weight = weight
        self.capacity = col.numel()
        self.crow = crow.to(torch.int32)
        self.col = stored(crow, col).to(torch.int32)
        self.format = int(packed_format)

    @staticmethod
    def of(shape: tuple[int, int, int], state: Mapping[str, Any], prefix: str) -> SavedWeight | None:
        """None if something is missing, which loading reports."""
        names = ("weight", "crow_indices", "col_indices", "packed_format")
        if any(prefix + name not in state for name in names):
            return None
        return SavedWeight(shape, *(state[prefix + name] for name in names))

    def prepared(self, dynamic: bool, capacity: int | None = None) -> Prepared:
        col = self.col
        if capacity is not None:
            col = torch.cat((col, col.new_zeros(capacity - col.numel())))
        return Prepared(self.crow, col, *self.shape, dynamic)

    def unpack(self, packed: Tensor) -> Tensor:
        """The weight, or an optimizer's state, in the order of the pattern, FP32."""
        packed = packed.detach().float().contiguous()
        source = packed if self.format == _VALUES else torch.from_numpy(self._order().unpack(packed))
        if source.numel() != self.col.numel() * self.shape[2] ** 2:
            raise ValueError(f"{source.numel()} values for {self.col.numel()} blocks of {self.shape[2]}")
        return source

    def _order(self) -> Any:
        """The native weight whose packed order the values have."""
        for dynamic in (False, True):
            prepared = self.prepared(dynamic, self.capacity if dynamic else None)
            if prepared.packed_format == self.format and prepared.packed_size == self.weight.numel():
                return prepared.weight(torch.float32)
        raise ValueError(
            f"{self.weight.numel()} values in packed format {self.format}, which does not apply to {self.col.numel()} "
            f"blocks of {self.shape[2]}"
        )
