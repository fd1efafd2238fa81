"""PyTorch's operators that take or add elements by their indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from tessera.graph import _values as ops
from tessera.graph._aten import Call, Constant, handles, shaped, value_of
from tessera.graph._aten_shapes import taken
from tessera.graph._values import Truth, Value


def _from_start(ids: torch.Tensor, size: int, dim: int, *, may_be_negative: bool = True) -> torch.Tensor:
    """Constant indices of a dimension, counted from its start. Raises ValueError for those beyond it."""
    ids = ids.to(torch.int64)
    beyond = ids[(ids >= size) | (ids < (-size if may_be_negative else 0))]
    if beyond.numel():
        raise ValueError(f"the index {int(beyond[0])} is none of dimension {dim}, which has {size} elements")
    return torch.where(ids < 0, ids + size, ids)


@handles("index_select.default", lazy=True)
def _index_select(call: Call, x: Any, dim: int, ids: Any) -> Value:
    x = value_of(x)
    if not isinstance(ids, Constant) or not x.shape:
        return ops.index_select(x, dim, value_of(ids))
    dim %= len(x.shape)
    places = _from_start(ids.tensor.flatten(), x.shape[dim], dim, may_be_negative=False)
    return taken(x, dim, places.tolist())


def _indices(x: Value, given: Sequence[Any]) -> dict[int, torch.Tensor | Value]:
    """Indices by the dimension of x that they are of; a constant mask is those of its elements that are true."""
    indices: dict[int, torch.Tensor | Value] = {}
    dim = 0
    for each in given:
        if isinstance(each, Constant) and each.tensor.dtype in (torch.bool, torch.uint8):
            mask, end = each.tensor, dim + each.tensor.dim()
            if tuple(mask.shape) != x.shape[dim:end]:
                raise ValueError(f"a mask of {list(mask.shape)} is none of dimensions of {list(x.shape[dim:end])}")
            indices.update(zip(range(dim, end), mask.nonzero(as_tuple=True), strict=True))
            dim = end
            continue
        if isinstance(each, Constant):
            indices[dim] = each.tensor
        elif each is not None:
            indices[dim] = value_of(each)
            if isinstance(indices[dim], Truth):
                raise ValueError("the number of elements that a mask selects is not known beforehand")
        dim += 1
    return indices


def _constant_rows(indices: Sequence[torch.Tensor], sizes: Sequence[int], dims: Sequence[int]) -> torch.Tensor:
    """Constant indices of dimensions as those of the one that they form."""
    rows = torch.zeros((), dtype=torch.int64)
    for each, size, dim in zip(indices, sizes, dims, strict=True):
        rows = rows * size + _from_start(each, size, dim)
    return rows


def _computed_rows(
    call: Call, indices: Sequence[torch.Tensor | Value], sizes: Sequence[int], dims: Sequence[int]
) -> Value:
    """As `_constant_rows`, of computed indices; below 0, which a run refuses, where one is beyond its dimension."""
    if math.prod(sizes) > 2**31 - 1:
        raise ValueError(f"indices of {list(sizes)} elements are not possible, only of fewer than 2³¹")
    rows: Value | None = None
    fits: Value | None = None
    for each, size, dim in zip(indices, sizes, dims, strict=True):
        if isinstance(each, torch.Tensor):
            own = call.graph.constant(_from_start(each, size, dim).numpy(), dtype="i32")
        else:
            given = ops.cast(each, "i32")
            own = ops.where(given < 0, given + size, given)
            own_fits = (own >= 0) * (own < size)
            fits = own_fits if fits is None else fits * own_fits
        rows = own if rows is None else rows * size + own
    assert rows is not None and fits is not None
    return rows if len(sizes) == 1 else ops.where(fits, rows, -1)


@handles("index.Tensor", lazy=True)
def _index(call: Call, x: Any, given: Sequence[Any]) -> Value:
    x = value_of(x)
    indices = _indices(x, given)
    dims, each = list(indices), list(indices.values())
    first, count = dims[0], len(dims)
    if dims != list(range(first, first + count)):  # then PyTorch has what is indexed before the others
        x = ops.permute(x, [*dims, *(dim for dim in range(len(x.shape)) if dim not in indices)])
        first = 0
    sizes, rest = x.shape[first : first + count], x.shape[first + count :]
    merged = ops.reshape(x, (*x.shape[:first], math.prod(sizes), *rest)) if count > 1 else x
    constants = [index for index in each if isinstance(index, torch.Tensor)]
    if len(constants) == len(each):
        chosen = taken(merged, first, _constant_rows(constants, sizes, dims).flatten().tolist())
    else:
        chosen = ops.index_select(merged, first, ops.reshape(_computed_rows(call, each, sizes, dims), (-1,)))
    return shaped(call, chosen)


@handles("gather.default")
def _gather(call: Call, x: Value, dim: int, ids: Value, sparse_grad: bool = False) -> Value:
    dim %= len(x.shape)
    for other, (has, wanted) in enumerate(zip(x.shape, ids.shape, strict=True)):
        if other != dim and has != wanted:
            x = ops.slice(x, other, 0, wanted)
    return ops.gather(x, dim, ids)


@handles("index_add.default")
def _index_add(call: Call, x: Value, dim: int, ids: Value, source: Value, *, alpha: float = 1) -> Value:
    added = ops.scatter_add(source, dim, ids, x.shape[dim])
    return x + (added if alpha == 1 else added * alpha)


@handles("scatter_add.default")
def _scatter_add(call: Call, x: Value, dim: int, ids: Any, source: Value) -> Value:
    """Sums of x and of the values that indices along a dimension name, which may be fewer in the others."""
    dim %= len(x.shape)
    shape = tuple(ids.shape)
    for other, (has, wanted) in enumerate(zip(source.shape, shape, strict=True)):
        source = ops.slice(source, other, 0, wanted) if has != wanted else source
    places: list[torch.Tensor | Value] = list(torch.meshgrid(*map(torch.arange, shape), indexing="ij"))
    fits = (ids >= 0) * (ids < x.shape[dim])
    places[dim] = ops.where(fits, ids, x.shape[dim])  # which a run refuses
    rows = _computed_rows(call, places, x.shape, range(len(x.shape)))
    added = ops.scatter_add(ops.reshape(source, (-1,)), 0, ops.reshape(rows, (-1,)), math.prod(x.shape))
    return x + ops.reshape(added, x.shape)
