"""Products with structured matrices, planned once for each structure and batch size."""

from __future__ import annotations

import atexit
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tessera import _tessera

# Products planned, at most: each structure, batch size and number of threads has its own.
_MOST_PRODUCTS = 256


class Product:
    """A planned product with the sizes of its parameters."""

    __slots__ = ("native", "shapes")

    def __init__(self, native: _tessera.StructuredProduct) -> None:
        self.native = native
        self.shapes: tuple[tuple[int, ...], ...] = tuple(native.parameters.values())

    def forward(self, x: Tensor, parameters: Sequence[Tensor], y: Tensor) -> None:
        x, held = _floats(x), [_floats(parameter) for parameter in parameters]
        self.native.run(x.data_ptr(), [each.data_ptr() for each in held], y.data_ptr())

    def gradients(
        self, x: Tensor, dy: Tensor, parameters: Sequence[Tensor], dx: Tensor | None, results: Sequence[Tensor]
    ) -> None:
        x, dy, held = _floats(x), _floats(dy), [_floats(parameter) for parameter in parameters]
        self.native.run_gradients(
            x.data_ptr(),
            dy.data_ptr(),
            [each.data_ptr() for each in held],
            0 if dx is None else dx.data_ptr(),
            [each.data_ptr() for each in results],
        )


def _floats(tensor: Tensor) -> Tensor:
    if tensor.dtype is not torch.float32:
        tensor = tensor.to(torch.float32)
    return tensor if tensor.is_contiguous() else tensor.contiguous()


_products: dict[tuple[Any, ...], Product] = {}
atexit.register(_products.clear)


def product_for(structure: tuple[Any, ...], batch: int) -> Product:
    """The product for a structure, as the functions below describe it."""
    key = (structure, batch, _tessera.default_threads())
    product = _products.get(key)
    if product is None:
        if len(_products) >= _MOST_PRODUCTS:
            _products.clear()
        kind, *sizes = structure
        described = kind(*(size.indices if isinstance(size, _Permutation) else size for size in sizes))
        product = _products[key] = Product(_tessera.StructuredProduct(described, batch))
    return product


# Descriptions of structures, which are keys. Each takes x and what its operator takes.


def butterfly(x: Tensor, twiddle: Tensor, out_features: int, increasing_stride: bool) -> tuple[Any, ...]:
    tied, is_complex = is_tied(twiddle), is_complex_butterfly(twiddle)
    inputs, blocks = x.shape[-2 if is_complex else -1], 1 if tied else twiddle.shape[1]
    return (_tessera.Butterfly, inputs, out_features, blocks, tied, is_complex, not increasing_stride)


def is_tied(twiddle: Tensor) -> bool:
    return twiddle.dim() < 6


def is_complex_butterfly(twiddle: Tensor) -> bool:
    return twiddle.dim() in (5, 7)


def kronecker(x: Tensor, weight: Tensor, a: int, b: int, c: int, d: int, out_features: int) -> tuple[Any, ...]:
    return (_tessera.Kronecker, a, b, c, d, x.shape[-1], out_features)


def circulant(x: Tensor, c: Tensor, out_features: int) -> tuple[Any, ...]:
    return (_tessera.Circulant, c.numel(), x.shape[-1], out_features)


def toeplitz(x: Tensor, c: Tensor) -> tuple[Any, ...]:
    return (_tessera.Toeplitz, x.shape[-1], c.numel() - x.shape[-1] + 1)


def fastfood(x: Tensor, S: Tensor, G: Tensor, B: Tensor, P: Tensor, out_features: int) -> tuple[Any, ...]:
    return (_tessera.Fastfood, x.shape[-1], out_features, _permutation_of(P))


class _Permutation:
    """The indices that a tensor held at a version."""

    __slots__ = ("indices", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.indices = tensor.detach().reshape(-1).numpy().copy()
        self.version = _version(tensor)


def _version(tensor: Tensor) -> int | None:
    try:
        return tensor._version
    except RuntimeError:  # tensors made in inference mode count no versions
        return None


# By the storage, whose Python object lives as long as its memory, and the place in it.
_permutations: dict[tuple[int, int, int], _Permutation] = {}
atexit.register(_permutations.clear)


def _permutation_of(tensor: Tensor) -> _Permutation:
    """The permutation of a tensor; read anew only if it has changed."""
    storage = tensor.untyped_storage()
    key = (id(storage), tensor.data_ptr(), tensor.numel())
    known, version = _permutations.get(key), _version(tensor)
    if known is not None and version is not None and known.version == version:
        return known
    read = _Permutation(tensor)
    if known is None:
        weakref.finalize(storage, _permutations.pop, key, None).atexit = False
    elif (known.indices == read.indices).all():
        known.version = version
        return known
    _permutations[key] = read
    return read
