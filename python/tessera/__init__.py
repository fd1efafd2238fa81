"""Sparse networks that run fast: weights and products for CPUs, modelled machines, sequence packing.

Needs NumPy alone; SciPy, PyArrow, `datasets` and PyTorch are imported when used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tessera._matrices import Matrix, generate, read_matrix
from tessera._products import Sddmm, Spmm, Weight, permute_packed

if TYPE_CHECKING:
    from tessera import nn, sparse
    from tessera._sparsify import sparsify_

__all__ = [
    "Matrix",
    "Sddmm",
    "Spmm",
    "Weight",
    "generate",
    "nn",
    "permute_packed",
    "read_matrix",
    "sparse",
    "sparsify_",
]


def __getattr__(name: str) -> Any:
    """Import what needs PyTorch when it is used."""
    if name in ("nn", "sparse"):
        return importlib.import_module(f"tessera.{name}")
    if name == "sparsify_":
        return importlib.import_module("tessera._sparsify").sparsify_
    raise AttributeError(f"module 'tessera' has no attribute {name!r}")
