"""Sparse networks that run fast: weights, products, training steps, modelled machines, sequence packing.

Needs only NumPy; SciPy, PyArrow, `datasets` and PyTorch are imported when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tessera import _config, graph, pack
from tessera._compiled import CompiledModel, load
from tessera._config import get_num_threads, set_num_threads, show_config
from tessera._images import ImageSet, ImageSplit, load_images, synthetic_images
from tessera._machines import ProductResult, profile_product
from tessera._matrices import Matrix, generate, read_matrix
from tessera._products import (
    Butterfly,
    Circulant,
    Fastfood,
    Kronecker,
    Sddmm,
    Spmm,
    StructuredProduct,
    Toeplitz,
    Weight,
    permute_packed,
)
from tessera._tessera import InspectedModel, Machine, Zeros
from tessera._zeros import inspect, zeros_of

_config.warn_without_kernels()

if TYPE_CHECKING:
    from tessera import nn, onnx, snn, sparse, text, vision
    from tessera._backend import backend, backend_reports
    from tessera._compile import compile
    from tessera._sparsify import sparsify_

__all__ = [
    "Butterfly",
    "Circulant",
    "CompiledModel",
    "Fastfood",
    "ImageSet",
    "ImageSplit",
    "InspectedModel",
    "Kronecker",
    "Machine",
    "Matrix",
    "ProductResult",
    "Sddmm",
    "Spmm",
    "StructuredProduct",
    "Toeplitz",
    "Weight",
    "Zeros",
    "backend",
    "backend_reports",
    "compile",
    "generate",
    "get_num_threads",
    "graph",
    "inspect",
    "load",
    "load_images",
    "nn",
    "onnx",
    "pack",
    "permute_packed",
    "profile_product",
    "read_matrix",
    "set_num_threads",
    "show_config",
    "snn",
    "sparse",
    "sparsify_",
    "synthetic_images",
    "text",
    "vision",
    "zeros_of",
]

#: The modules that need PyTorch, by function.
_WITH_PYTORCH = {
    "backend": "_backend",
    "backend_reports": "_backend",
    "compile": "_compile",
    "sparsify_": "_sparsify",
}


def __getattr__(name: str) -> Any:
    """Import names that need PyTorch, and modules that are programs too, when they are used."""
    if name in ("nn", "onnx", "snn", "sparse", "text", "vision"):
        return importlib.import_module(f"tessera.{name}")
    if name in _WITH_PYTORCH:
        return getattr(importlib.import_module(f"tessera.{_WITH_PYTORCH[name]}"), name)
    raise AttributeError(f"module 'tessera' has no attribute {name!r}")


def __dir__() -> list[str]:
    """All names, including names that are imported when they are used."""
    return sorted({*globals(), *__all__})
