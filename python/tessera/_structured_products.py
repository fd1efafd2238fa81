"""Products with structured matrices, planned once for each structure and batch size."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tessera import _eager, _tessera
from tessera._planned import Planned
from tessera._prepared import floats

# The most products planned: each structure, batch size and number of threads has its own.
MOST_PRODUCTS = 256

default_threads = _tessera.default_threads


class Call:
    """A product for arguments of certain shapes."""

    __slots__ = ("batch", "native", "result")

    def __init__(self, native: _tessera.StructuredProduct, batch: int, result: tuple[int, ...]) -> None:
        self.native, self.batch, self.result = native, batch, result

    def forward(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """y in FP32."""
        x, held = _floats(x), [_floats(parameter) for parameter in parameters]
        y = x.new_empty(self.result)
        if self.batch:
            self.native.run(x.data_ptr(), [each.data_ptr() for each in held], y.data_ptr())
        return y

    def gradients(
        self, x: Tensor, dy: Tensor, parameters: Sequence[Tensor], needs_x: bool, needs_parameters: bool
    ) -> tuple[Tensor, ...]:
        """The gradients of x and the parameters in their types; empty if they are not needed."""
        xs, dys, held = _floats(x), _floats(dy), [_floats(parameter) for parameter in parameters]
        dx = torch.empty_like(xs) if needs_x else xs.new_empty(0)
        make = torch.empty_like if self.batch else torch.zeros_like
        results = [make(each) if needs_parameters else each.new_empty(0) for each in held]
        if self.batch:
            self.native.run_gradients(
                xs.data_ptr(),
                dys.data_ptr(),
                [each.data_ptr() for each in held],
                dx.data_ptr() if needs_x else 0,
                [each.data_ptr() for each in results] if needs_parameters else [],
            )
        return _as(x, dx), *[_as(given, result) for given, result in zip(parameters, results, strict=True)]


def layer_calls(parameters: int, has_bias: bool) -> _tessera.StructuredCalls:
    """An empty table of products for layers."""
    return _tessera.StructuredCalls(_eager.reader, parameters, has_bias)


def _floats(tensor: Tensor) -> Tensor:
    return floats(tensor).contiguous()


def _as(given: Tensor, result: Tensor) -> Tensor:
    return result if given.dtype is torch.float32 else result.to(given.dtype)


_products: Planned[tuple[Any, ...], _tessera.StructuredProduct] = Planned(MOST_PRODUCTS)
atexit.register(_products.clear)


def product_for(structure: tuple[Any, ...], batch: int, bias: bool) -> _tessera.StructuredProduct:
    """The product for a structure, as the functions below describe it."""
    key = (structure, batch, bias, default_threads())
    product = _products.get(key)
    if product is None:
        kind, *sizes = structure
        described = kind(*(size.indices if isinstance(size, _Permutation) else size for size in sizes))
        product = _products.add(key, _tessera.StructuredProduct(described, batch, bias=bias))
    return product


# Descriptions of structures, which are keys. Each takes x and the other arguments of its operator.


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
    return (_tessera.Fastfood, x.shape[-1], out_features, permutation_of(P))


class _Permutation:
    """The indices that a tensor held."""

    __slots__ = ("_bytes", "indices")

    def __init__(self, tensor: Tensor) -> None:
        self.indices = tensor.detach().reshape(-1).numpy().copy()
        self._bytes = self.indices.tobytes()

    def is_in(self, tensor: Tensor) -> bool:
        """Whether the tensor still holds the indices; only contents show writes by `.data` or a collective."""
        return self._bytes == tensor.numpy().tobytes()


# Permutations by their storage, whose Python object lives as long as its memory, and their place in it.
_permutations: dict[tuple[int, int, int], _Permutation] = {}
atexit.register(_permutations.clear)


def permutation_of(tensor: Tensor) -> _Permutation:
    """The permutation of a tensor: the same object until the tensor changes."""
    storage = tensor.untyped_storage()
    key = (id(storage), tensor.data_ptr(), tensor.numel())
    known = _permutations.get(key)
    if known is not None and known.is_in(tensor):
        return known
    if known is None:
        weakref.finalize(storage, _permutations.pop, key, None).atexit = False
    read = _permutations[key] = _Permutation(tensor)
    return read
