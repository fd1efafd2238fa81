"""PyTorch's operators that take or add elements by their indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tessera.graph import _values as ops
from tessera.graph._aten import Call, Constant, handles, shaped, together, value_of
from tessera.graph._aten_shapes import taken
from tessera.graph._values import Truth, Value


def _from_start(ids: torch.Tensor, size: int, dim: int, *, may_be_negative: bool = True) -> torch.Tensor:
    """Constant indices of a dimension, counted from its start. Raises ValueError for indices out of range."""
    ids = ids.to(torch.int64)
    beyond = ids[(ids >= size) | (ids < (-size if may_be_negative else 0))]
    if beyond.numel():
        raise ValueError(f"the index {int(beyond[0])} is out of range for dimension {dim}, which has {size} elements")
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
    """Indices by the dimension of x; a constant mask becomes the indices of its true elements."""
    indices: dict[int, torch.Tensor | Value] = {}
    dim = 0
    for each in given:
        if isinstance(each, Constant) and each.tensor.dtype in (torch.bool, torch.uint8):
            mask, end = each.tensor, dim + each.tensor.dim()
            if tuple(mask.shape) != x.shape[dim:end]:
                raise ValueError(f"a mask of {list(mask.shape)} does not fit dimensions of {list(x.shape[dim:end])}")
            indices.update(zip(range(dim, end), mask.nonzero(as_tuple=True), strict=True))
            dim = end
            continue
        if isinstance(each, Constant):
            indices[dim] = each.tensor
        elif each is not None:
            indices[dim] = value_of(each)
            if isinstance(indices[dim], Truth):
                raise ValueError("the number of elements that a mask selects is not known in advance")
        dim += 1
    return indices


def _constant_rows(indices: Sequence[torch.Tensor], sizes: Sequence[int], dims: Sequence[int]) -> torch.Tensor:
    """Constant indices of several dimensions as indices of these dimensions merged into one."""
    rows = torch.zeros((), dtype=torch.int64)
    for each, size, dim in zip(indices, sizes, dims, strict=True):
        rows = rows * size + _from_start(each, size, dim)
    return rows


def _computed_rows(
    call: Call, indices: Sequence[torch.Tensor | Value], sizes: Sequence[int], dims: Sequence[int]
) -> Value:
    """Like `_constant_rows`, for computed indices: -1, which a run refuses, where an index is out of range."""
    if math.prod(sizes) > 2**31 - 1:
        raise ValueError(f"indices of {list(sizes)} elements are not possible: there must be fewer than 2³¹")
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
    if dims != list(range(first, first + count)):  # then PyTorch puts the indexed dimensions first
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


def _placed(call: Call, x: Value, rows: torch.Tensor | Value, values: Value) -> Value:
    """x with these rows replaced by values; if a row occurs twice, the last value counts, as in PyTorch on CPUs."""
    if isinstance(rows, Value):
        return ops.scatter(x, ops.reshape(rows, (-1,)), values)
    count = x.shape[0]
    places = torch.arange(count)
    for i, row in enumerate(rows.flatten().tolist()):
        places[row] = count + i
    ids = call.graph.constant(places.numpy(), dtype="u32")
    return ops.index_select(ops.concatenate([x, values], 0), 0, ids)


@handles("index_put.default", "_unsafe_index_put.default", lazy=True)
def _index_put(call: Call, x: Any, given: Sequence[Any], values: Any, accumulate: bool = False) -> Value:
    x, values = together(call, value_of(x), value_of(values))
    if (mask := _mask_of(given)) is not None:
        if math.prod(values.shape) != 1 or accumulate:
            raise ValueError("the number of elements that a mask selects is not known in advance: assign one value")
        mask = ops.reshape(mask, (*mask.shape, *[1] * (len(x.shape) - len(mask.shape))))
        return ops.where(mask, ops.reshape(values, ()), x)
    indices = _indices(x, given)
    dims, each = list(indices), list(indices.values())
    first, count = dims[0], len(dims)
    sizes = [x.shape[dim] for dim in dims]
    places = np.broadcast_shapes(*(tuple(index.shape) for index in each))
    order = [*dims, *(dim for dim in range(len(x.shape)) if dim not in indices)]
    rest = [x.shape[dim] for dim in order[count:]]
    are_neighbours = dims == list(range(first, first + count))
    before = first if are_neighbours else 0  # the values' dimensions before the indices' dimensions
    values = ops.expand(values, (*rest[:before], *places, *rest[before:]))
    if before:
        around = range(before, before + len(places))
        values = ops.permute(values, [*around, *(dim for dim in range(len(values.shape)) if dim not in around)])
    moved = ops.permute(x, order)
    flat = ops.reshape(moved, (math.prod(sizes), math.prod(rest)))
    rows = ops.reshape(values, (math.prod(places), math.prod(rest)))
    constants = [index for index in each if isinstance(index, torch.Tensor)]
    if len(constants) == len(each):
        ids: torch.Tensor | Value = _constant_rows(constants, sizes, dims).expand(places)
    else:
        ids = ops.expand(_computed_rows(call, each, sizes, dims), places)
    if accumulate:
        ids = ids if isinstance(ids, Value) else call.graph.constant(ids.contiguous().numpy(), dtype="u32")
        y = flat + ops.scatter_add(rows, 0, ops.reshape(ids, (-1,)), flat.shape[0])
    else:
        y = _placed(call, flat, ids, rows)
    return ops.permute(ops.reshape(y, moved.shape), [order.index(dim) for dim in range(len(order))])


def _mask_of(given: Sequence[Any]) -> Value | None:
    """The computed mask of the first dimensions, if the indices are such a mask."""
    if len(given) == 1 and not isinstance(given[0], Constant) and isinstance(mask := value_of(given[0]), Truth):
        return mask
    return None


@handles("index_copy.default", lazy=True)
def _index_copy(call: Call, x: Any, dim: int, ids: Any, source: Any) -> Value:
    x = value_of(x)
    dim %= len(x.shape)
    count = math.prod((ids.tensor if isinstance(ids, Constant) else ids).shape)
    shape = [*x.shape[:dim], count, *x.shape[dim + 1 :]]
    return _index_put(call, x, [*[None] * dim, ids], ops.reshape(value_of(source), shape))


@handles("index_fill.int_Scalar", "index_fill.int_Tensor", lazy=True)
def _index_fill(call: Call, x: Any, dim: int, ids: Any, value: Any) -> Value:
    x = value_of(x)
    filling = value_of(value)
    filling = filling if isinstance(filling, Value) else ops.value_of(filling, x)
    return _index_put(call, x, [*[None] * (dim % len(x.shape)), ids], filling)


def _elements(call: Call, x: Value, dim: int, ids: Value) -> Value:
    """The position in x of the element for each index along a dimension; out of range where the index is."""
    if math.prod(x.shape) > ops.MOST_EXACT:
        raise ValueError(f"indices of {list(x.shape)} are not possible: there must be at most 2²⁴ elements")
    places: list[torch.Tensor | Value] = list(torch.meshgrid(*map(torch.arange, ids.shape), indexing="ij"))
    fits = (ids >= 0) * (ids < x.shape[dim])
    places[dim] = ops.where(fits, ids, x.shape[dim])  # a run refuses x.shape[dim]
    return ops.reshape(_computed_rows(call, places, x.shape, range(len(x.shape))), (-1,))


def _cut(x: Value, shape: Sequence[int]) -> Value:
    """The first elements of each dimension, flattened."""
    for dim, (has, wanted) in enumerate(zip(x.shape, shape, strict=True)):
        x = ops.slice(x, dim, 0, wanted) if has != wanted else x
    return ops.reshape(x, (-1,))


@handles("scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce")
def _scatter(call: Call, x: Value, dim: int, ids: Value, source: Any, *, reduce: str | None = None) -> Value:
    if reduce not in (None, "add"):
        raise ValueError(f"the reduction {reduce!r} is not possible, only sums")
    x, source = together(call, x, source)
    if isinstance(source, Value):
        values = _cut(source, ids.shape)
    else:
        values = ops.expand(ops.value_of(source, x), (math.prod(ids.shape),))
    rows, flat = _elements(call, x, dim % len(x.shape), ids), ops.reshape(x, (-1,))
    y = ops.scatter(flat, rows, values) if reduce is None else flat + ops.scatter_add(values, 0, rows, flat.shape[0])
    return ops.reshape(y, x.shape)


@handles("scatter_reduce.two")
def _scatter_reduce(
    call: Call, x: Value, dim: int, ids: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    if reduce != "sum" or not include_self:
        raise ValueError("the only possible reduction is a sum that includes the present values")
    return _scatter(call, x, dim, ids, source, reduce="add")


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
def _scatter_add(call: Call, x: Value, dim: int, ids: Value, source: Value) -> Value:
    """x plus the values at positions given by indices along a dimension; in other dimensions values may be smaller."""
    return _scatter(call, x, dim, ids, source, reduce="add")
