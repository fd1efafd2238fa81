"""Weights and planned products on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from tessera import _tessera
from tessera._arguments import chosen
from tessera._matrices import Matrix, adopt
from tessera._tessera import (
    Butterfly,
    Circulant,
    Fastfood,
    Kronecker,
    Sddmm,
    Spmm,
    StructuredProduct,
    Toeplitz,
    permute_packed,
)

__all__ = [
    "Butterfly",
    "Circulant",
    "Fastfood",
    "Kronecker",
    "Sddmm",
    "Spmm",
    "StructuredProduct",
    "Toeplitz",
    "Weight",
    "permute_packed",
]

_TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def type_name(dtype: DTypeLike | str) -> str:
    """Return the library's name of a type of NumPy or PyTorch: "f32", "f16" or "bf16"."""
    name = dtype if isinstance(dtype, str) else str(dtype).removeprefix("torch.")
    if name in _TYPES.values():
        return name
    if name not in _TYPES:
        name = np.dtype(dtype).name
    return _TYPES[chosen("type of a weight", name, _TYPES)]


class Weight(_tessera.Weight):
    """A weight matrix, prepacked for the kernels once for every number of columns.

    `matrix` is a Matrix, a sparse matrix of SciPy or PyTorch (`torch.sparse_csr`, `torch.sparse_bsr`), or a
    two-dimensional array, whose zeros are dropped. With `block_size`, elements are covered with aligned blocks of 4, 8,
    16 or 32. `dynamic` is the maximum number of blocks of a pattern that may change; `True` stands for the present
    number. Raises TypeError for complex numbers, ValueError for another number of dimensions.
    """

    def __init__(
        self,
        matrix: Any,
        block_size: int | None = None,
        *,
        dtype: DTypeLike | str = "f32",
        dynamic: bool | int = False,
    ) -> None:
        taken = Matrix.of(matrix, block_size)
        capacity = len(taken.col_indices) if dynamic is True else None
        if not isinstance(dynamic, bool):
            capacity = _tessera.whole_number("dynamic", dynamic, 0, 2**63 - 1)
        super().__init__(taken, type_name(dtype), capacity)

    @classmethod
    def dense(cls, values: Any, *, dtype: DTypeLike | str = "f32") -> Weight:
        """Prepack every element of a two-dimensional array."""
        weight = cls.__new__(cls)
        shape = np.shape(values)
        if len(shape) != 2:
            raise ValueError(f"a weight must have two dimensions, not {len(shape)}")
        _tessera.Weight.__init__(weight, values, shape, type_name(dtype))
        return weight

    def matrix(self) -> Matrix:
        """Return the pattern and the values."""
        return adopt(super().matrix())

    def __repr__(self) -> str:
        m, k = self.shape
        kind = "dense" if self.is_dense else f"block size {self.block_size}"
        return f"Weight({m} × {k}, {self.non_zeros} non-zeros, {kind}, {self.dtype})"
