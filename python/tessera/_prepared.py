"""Patterns prepared for the kernels, found again by the index tensors that describe them."""

from __future__ import annotations

import atexit
import hashlib
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tessera import _tessera
from tessera._blocks import check_block_size
from tessera._planned import Planned

# The most products planned for one pattern: each number of columns, type and epilogue has its own.
_MOST_PRODUCTS = 256

#: Types of values that the kernels read.
STORED_TYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_NOTHING = 0  # the address of an absent array


def floats(tensor: Tensor) -> Tensor:
    """The tensor in FP32. Raises TypeError for other types than real floating-point ones, which could lose values."""
    if tensor.dtype is torch.float32:
        return tensor
    check_real(tensor)
    return tensor.to(torch.float32)


def check_real(*tensors: Tensor) -> None:
    for tensor in tensors:
        if not tensor.is_floating_point():
            raise TypeError(f"an operand of {tensor.dtype}: use a real floating-point type")


class Operand:
    """A matrix of activations as the kernels take it: in place if one of its strides is 1, in FP32."""

    __slots__ = ("column_major", "leading", "matrix", "n")

    def __init__(self, tensor: Tensor) -> None:
        tensor = floats(tensor)
        if tensor.dim() != 2:
            tensor = tensor.reshape(-1, tensor.shape[-1])
        self.n, features = tensor.shape
        across, along = tensor.stride()
        if along != 1 or (across < features and self.n > 1):
            if across == 1 and along >= self.n:
                self.column_major, self.leading, self.matrix = False, along, tensor
                return
            tensor, across = tensor.contiguous(), features
        self.column_major, self.leading, self.matrix = True, across if self.n > 1 else 0, tensor


class Prepared:
    """A pattern prepared for the kernels, with the products planned for it. The values are the caller's."""

    def __init__(
        self, crow: Tensor, col: Tensor, out_features: int, in_features: int, block_size: int, dynamic: bool
    ) -> None:
        self.shape = (out_features, in_features, block_size, dynamic)
        self.capacity = col.numel() if dynamic else None
        self.weights: dict[torch.dtype, _tessera.Weight] = {}
        self.products: Planned[tuple[Any, ...], Any] = Planned(_MOST_PRODUCTS)
        self.dense_gradient: Tensor | None = None
        self._collects = False
        of_float = _tessera.Weight.without_values(
            (out_features, in_features), block_size, crow, stored(crow, col), "f32", self.capacity
        )
        self.weights[torch.float32] = of_float
        self.packed_size = of_float.packed_size
        self.packed_format = of_float.packed_format

    def weight(self, dtype: torch.dtype) -> _tessera.Weight:
        """The native weight, without values, for values of a type."""
        found = self.weights.get(dtype)
        if found is None:
            found = self.weights[dtype] = self.weights[torch.float32].with_type(STORED_TYPES[dtype])
        return found

    def set_pattern(self, crow: Tensor, col: Tensor) -> _tessera.Relocation:
        """Change the pattern of a dynamic weight, and say how values move."""
        col = stored(crow, col)
        relocations = {dtype: weight.set_pattern(crow, col) for dtype, weight in self.weights.items()}
        return relocations[torch.float32]

    def collect_dense_gradient(self, collects: bool) -> None:
        """Make sddmm() also sum the gradient of the dense matrix from now on, or forget this gradient."""
        self._collects = collects
        self.dense_gradient = None

    def go_on_collecting(self, former: Prepared) -> None:
        """Take over the collection of gradients from a pattern that this one replaces."""
        self._collects, self.dense_gradient = former._collects, former.dense_gradient

    def _product(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        product = self.products.get(key)
        return self.products.add(key, make()) if product is None else product

    def linear(self, x: Operand, weight: Tensor, bias: Tensor | None, activation: str, y: Tensor) -> None:
        dtype, n, has_bias = weight.dtype, x.n, bias is not None
        product = self._product(
            (dtype, n, has_bias, activation),
            lambda: _tessera.Spmm(self.weight(dtype), n, bias=has_bias, activation=activation),
        )
        product.run(
            x.matrix.data_ptr(),
            x.leading,
            x.column_major,
            y.data_ptr(),
            0,
            True,
            _NOTHING if bias is None else bias.data_ptr(),
            1.0,
            0.0,
            weight.data_ptr(),
        )

    def input_grad(self, dy: Operand, weight: Tensor, dx: Tensor) -> None:
        dtype, n = weight.dtype, dy.n
        product = self._product((dtype, n), lambda: _tessera.Spmm(self.weight(dtype), n, transpose=True))
        product.run(
            dy.matrix.data_ptr(),
            dy.leading,
            dy.column_major,
            dx.data_ptr(),
            0,
            True,
            _NOTHING,
            1.0,
            0.0,
            weight.data_ptr(),
        )

    def sddmm(self, dy: Operand, x: Operand, dw: Tensor) -> None:
        n = dy.n
        product = self._product((n,), lambda: _tessera.Sddmm(self.weight(torch.float32), n))
        product.run(
            dy.matrix.data_ptr(),
            dy.leading,
            dy.column_major,
            x.matrix.data_ptr(),
            x.leading,
            x.column_major,
            dw.data_ptr(),
        )
        if not self._collects:
            return
        if self.dense_gradient is None:
            self.dense_gradient = dy.matrix.t() @ x.matrix
        else:
            self.dense_gradient.addmm_(dy.matrix.t(), x.matrix)


def stored(crow: Tensor, col: Tensor) -> Tensor:
    """The column indices in use, without unused capacity."""
    count = int(crow[-1]) if crow.numel() > 0 else 0
    if not 0 <= count <= col.numel():
        raise ValueError(f"crow_indices ends with {count}, but there are {col.numel()} column indices")
    return col[:count]


def _versions(crow: Tensor, col: Tensor, packed_format: Tensor) -> tuple[int, int, int] | None:
    try:
        return crow._version, col._version, packed_format._version
    except RuntimeError:  # tensors made in inference mode count no versions: their contents are compared
        return None


class _Entry:
    """A prepared pattern and the tensors it was made from."""

    __slots__ = ("digest", "others", "prepared", "versions")

    def __init__(self, prepared: Prepared, crow: Tensor, col: Tensor, packed_format: Tensor, digest: bytes) -> None:
        self.prepared = prepared
        self.others = (crow.data_ptr(), packed_format.data_ptr())
        self.versions = _versions(crow, col, packed_format)
        self.digest = digest


# Entries by the storage of col_indices, whose Python object lives as long as its memory, and the place in it.
_entries: dict[tuple[int, int], _Entry] = {}
atexit.register(_entries.clear)


def _digest(crow: Tensor, col: Tensor) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for tensor in (crow, stored(crow, col)):
        digest.update(tensor.numpy().data)
    return digest.digest()


def _check_indices(crow: Tensor, col: Tensor, packed_format: Tensor, out_features: int, block_size: int) -> None:
    for name, tensor in (("crow_indices", crow), ("col_indices", col), ("packed_format", packed_format)):
        if tensor.dtype is not torch.int32 or tensor.dim() != 1 or not tensor.is_contiguous():
            raise TypeError(f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}; it must be int32 and contiguous")
    check_block_size(block_size)
    rows = -(-out_features // block_size)
    if crow.numel() != rows + 1 or packed_format.numel() != 1:
        raise ValueError(
            f"crow_indices has {crow.numel()} entries and packed_format {packed_format.numel()}; {out_features} "
            f"outputs with blocks of {block_size} need {rows + 1}, and one"
        )


def _prepare(
    crow: Tensor,
    col: Tensor,
    packed_format: Tensor,
    shape: tuple[int, int, int, bool],
    entry: _Entry | None,
) -> Prepared:
    """The pattern of new or changed index tensors."""
    out_features, in_features, block_size, dynamic = shape
    if min(out_features, in_features) < 1:
        raise ValueError(f"a weight of {out_features} × {in_features}; both must be at least 1")
    _check_indices(crow, col, packed_format, out_features, block_size)
    digest = _digest(crow, col)
    prepared = None
    if entry is not None and entry.prepared.shape == shape and entry.prepared.capacity in (None, col.numel()):
        if entry.digest == digest:
            prepared = entry.prepared
        elif dynamic and int(packed_format) == entry.prepared.packed_format:
            prepared = entry.prepared
            prepared.set_pattern(crow, col)
    if prepared is None:
        prepared = Prepared(crow, col, out_features, in_features, block_size, dynamic)
    if int(packed_format) != prepared.packed_format:
        raise ValueError(
            f"the weight is in packed format {int(packed_format)}; its kernels read format {prepared.packed_format}: "
            "load it with load_state_dict(), which converts"
        )
    remember(prepared, crow, col, packed_format, digest)
    return prepared


def remember(
    prepared: Prepared, crow: Tensor, col: Tensor, packed_format: Tensor, digest: bytes | None = None
) -> None:
    """Let operators find a prepared pattern by these index tensors, for as long as they live."""
    storage = col.untyped_storage()
    key = (id(storage), col.data_ptr())
    if key not in _entries:
        weakref.finalize(storage, _entries.pop, key, None).atexit = False
    _entries[key] = _Entry(prepared, crow, col, packed_format, digest or _digest(crow, col))


def known(col: Tensor) -> Prepared | None:
    """The pattern that was last prepared for these index tensors, whether they have changed since or not."""
    entry = _entries.get((id(col.untyped_storage()), col.data_ptr()))
    return None if entry is None else entry.prepared


def prepared_for(
    crow: Tensor,
    col: Tensor,
    packed_format: Tensor,
    out_features: int,
    in_features: int,
    block_size: int,
    dynamic: bool,
) -> Prepared:
    """The prepared pattern that these index tensors describe; prepared anew only if they have changed.

    PyTorch counts changes, except changes by way of `.data`, which are not noticed.
    """
    entry = _entries.get((id(col.untyped_storage()), col.data_ptr()))
    shape = (out_features, in_features, block_size, dynamic)
    if (
        entry is not None
        and entry.prepared.shape == shape
        and entry.others == (crow.data_ptr(), packed_format.data_ptr())
        and entry.versions is not None
        and entry.versions == _versions(crow, col, packed_format)
    ):
        return entry.prepared
    return _prepare(crow, col, packed_format, shape, entry)
