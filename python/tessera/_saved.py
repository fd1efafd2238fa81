"""Sparse weights in state dicts, whatever packed format they are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tessera._prepared import Prepared, stored

_VALUES = 0  # the packed format that is the order of the pattern
_NAMES = ("weight", "crow_indices", "col_indices", "packed_format")


def sizes_of(shape: tuple[int, int, int]) -> Tensor:
    """The entry of out_features, in_features and block_size in a state dict."""
    return torch.tensor(shape, dtype=torch.int64, device="cpu")


def _check_sizes(saved: Any, shape: tuple[int, int, int]) -> None:
    """Check saved sizes; files from before sizes were saved have none."""
    sizes = tuple(saved.tolist()) if isinstance(saved, Tensor) else saved
    if sizes != shape:
        raise ValueError(
            f"the state belongs to a layer with sizes {sizes} (out_features, in_features, block_size); this layer has "
            f"{shape}"
        )


def _indices(name: str, tensor: Any) -> Tensor:
    """An index tensor as the kernels take it. The pattern itself is checked when it is prepared."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}; it must be a tensor")
    if tensor.dtype not in (torch.int32, torch.int64) or tensor.dim() != 1:
        raise TypeError(f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}; it must be int32, one dimension")
    if tensor.is_meta:
        raise ValueError(f"{name} is on meta and holds nothing: save a layer that has values")
    indices = tensor.to("cpu", torch.int32)
    if indices.dtype is not tensor.dtype and not torch.equal(indices.to(tensor.dtype), tensor.cpu()):
        raise ValueError(f"{name} has entries beyond 32 bits")
    return indices.contiguous()


class SavedWeight:
    """The weight of a layer in a state dict: the pattern, and the values in some packed format."""

    def __init__(
        self, shape: tuple[int, int, int], weight: Tensor, crow: Tensor, col: Tensor, packed_format: Tensor
    ) -> None:
        if not isinstance(weight, Tensor):
            raise TypeError(f"the weight is a {type(weight).__name__}; it must be a tensor")
        crow = _indices("crow_indices", crow)
        col = _indices("col_indices", col)
        packed_format = _indices("packed_format", packed_format)
        out_features, _, block_size = self.shape = shape
        rows = -(-out_features // block_size)
        if crow.numel() != rows + 1 or packed_format.numel() != 1:
            raise ValueError(
                f"crow_indices has {crow.numel()} entries, and the layer {rows} rows of blocks of {block_size}: it was "
                "saved with other sizes"
            )
        self.weight = weight
        self.capacity = col.numel()
        self.crow = crow
        self.col = stored(crow, col)
        self.format = int(packed_format)

    @staticmethod
    def of(shape: tuple[int, int, int], state: Mapping[str, Any], prefix: str) -> SavedWeight | None:
        """The weight in a state dict; None without a pattern.

        Raises TypeError or ValueError if it is not the weight of a layer of this shape.
        """
        missing = [name for name in _NAMES if prefix + name not in state]
        if missing:
            if all(prefix + name not in state for name in _NAMES[1:]):
                return None
            raise ValueError(f"{', '.join(missing)} is missing: a weight and its pattern are loaded together")
        saved = SavedWeight(shape, *(state[prefix + name] for name in _NAMES))
        if prefix + "sizes" in state:
            _check_sizes(state[prefix + "sizes"], shape)
        return saved

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
