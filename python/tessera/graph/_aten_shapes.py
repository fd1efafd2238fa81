"""PyTorch's operators that change shapes, and select elements at fixed positions."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tessera.graph import _values as ops
from tessera.graph._aten import (
    Call,
    Constant,
    Split,
    Transposed,
    handles,
    in_result_type,
    in_shape,
    shaped,
    together,
    value_of,
)
from tessera.graph._parameters import Parameter
from tessera.graph._values import Value


@handles(
    "view.default",
    "_unsafe_view.default",
    "reshape.default",
    "flatten.using_ints",
    "unflatten.int",
    "squeeze.default",
    "squeeze.dim",
    "squeeze.dims",
    "unsqueeze.default",
    lazy=True,
)
def _reshape(call: Call, x: Any, *_: Any, **__: Any) -> Any:
    return in_shape(x if isinstance(x, Split) else value_of(x), call.shape)


@handles("expand.default", "expand_as.default")
def _expand(call: Call, x: Value, *_: Any, **__: Any) -> Value:
    return ops.expand(x, call.shape)


@handles("broadcast_tensors.default")
def _broadcast_tensors(call: Call, values: list[Value]) -> list[Value]:
    shape = np.broadcast_shapes(*(x.shape for x in values))
    return [ops.expand(x, shape) for x in values]


@handles("t.default", "transpose.int", "permute.default", "numpy_T.default", lazy=True)
def _transpose(call: Call, x: Any, *dims: Any) -> Any:
    known = x.of if isinstance(x, Transposed) else x if isinstance(x, (Parameter, Split)) else value_of(x)
    count = len(known.shape)
    order = list(range(count))
    if len(dims) == 1:
        order = [dim % count for dim in dims[0]]
    elif len(dims) == 2:
        first, second = (dim % builtins.max(1, count) for dim in dims)
        if count > 0:
            order[first], order[second] = second, first
    else:
        order.reverse()
    if order == list(range(count)):
        return x
    if isinstance(known, Split):
        return known.permuted(order)
    if order[:-2] != list(range(count - 2)):
        return ops.permute(value_of(x), order)
    return known if isinstance(x, Transposed) else Transposed(known)


@handles("slice.Tensor")
def _slice_if_any(call: Call, x: Value, *how: Any, **named: Any) -> Value | Constant:
    if 0 in call.shape:  # graphs have no empty values, but cat() takes empty constants
        return Constant(call.graph, torch.zeros(call.shape, dtype=call.dtype))
    return _slice(call, x, *how, **named)


def _slice(
    call: Call, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    dim %= len(x.shape)
    begin, stop, _ = builtins.slice(start, end).indices(x.shape[dim])
    if step != 1:
        return taken(x, dim, range(begin, stop, step))
    return x if (begin, stop) == (0, x.shape[dim]) else ops.slice(x, dim, begin, stop)


def taken(x: Value, dim: int, places: Sequence[int]) -> Value:
    """Elements of a dimension, by their positions."""
    order = list(range(len(x.shape)))
    order[dim], order[-1] = order[-1], order[dim]
    is_permutation = sorted(places) == list(range(x.shape[dim]))
    select = ops.permute_features if is_permutation else ops.select_features
    return ops.permute(select(ops.permute(x, order), places), order)


def _windows(
    size: Sequence[int], window: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> list[int]:
    """Where the elements of sliding windows lie in a padded image, in the order [rows, columns, positions]."""
    rows, cols = (each + 2 * around for each, around in zip(size, padding, strict=True))
    steps = [
        [range(at * far, length - far * (wide - 1) + at * far, step) for at in range(wide)]
        for length, wide, far, step in zip((rows, cols), window, dilation, stride, strict=True)
    ]
    return [row * cols + col for down in steps[0] for across in steps[1] for row in down for col in across]


@handles("im2col.default")
def _unfold(call: Call, x: Value, window: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    places = _windows(x.shape[-2:], window, dilation, padding, stride)
    for dim, around in zip((-2, -1), padding, strict=True):
        x = ops.pad(x, len(x.shape) + dim, around, around) if around else x
    flat = ops.reshape(x, (*x.shape[:-2], -1))
    return shaped(call, ops.select_features(flat, places))


@handles("col2im.default")
def _fold(call: Call, x: Value, size: Any, window: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    places = call.graph.constant(_windows(size, window, dilation, padding, stride), dtype="u32")
    rows, cols = (each + 2 * around for each, around in zip(size, padding, strict=True))
    values = ops.reshape(x, (*call.shape[:-2], -1))
    y = ops.reshape(ops.scatter_add(values, len(values.shape) - 1, places, rows * cols), (*call.shape[:-2], rows, cols))
    for dim, (each, around) in enumerate(zip(size, padding, strict=True), len(y.shape) - 2):
        y = ops.slice(y, dim, around, around + each) if around else y
    return y


@handles("unfold.default")
def _windows_of(call: Call, x: Value, dim: int, size: int, step: int) -> Value:
    """Sliding windows of a dimension; the elements of a window become the last dimension."""
    dim %= len(x.shape)
    begins = range(0, x.shape[dim] - size + 1, step)
    y = taken(x, dim, [begin + at for begin in begins for at in range(size)])
    y = ops.reshape(y, (*x.shape[:dim], len(begins), size, *x.shape[dim + 1 :]))
    count = len(y.shape)
    return ops.permute(y, [*(each for each in range(count) if each != dim + 1), dim + 1])


@handles("diagonal.default")
def _diagonal(call: Call, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    count = len(x.shape)
    dim1, dim2 = dim1 % count, dim2 % count
    rows, cols = x.shape[dim1], x.shape[dim2]
    moved = ops.permute(x, [*(dim for dim in range(count) if dim not in (dim1, dim2)), dim1, dim2])
    places = [row * cols + row + offset for row in range(rows) if 0 <= row + offset < cols]
    return ops.select_features(ops.reshape(moved, (*moved.shape[:-2], rows * cols)), places)


@handles("copy.default")
def _copy(call: Call, x: Value, source: Value, *_: Any) -> Value:
    return ops.expand(in_result_type(call, source), call.shape)


@handles("slice_scatter.default")
def _slice_scatter(
    call: Call, x: Value, source: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    dim %= len(x.shape)
    begin, stop, _ = builtins.slice(start, end).indices(x.shape[dim])
    places = list(range(x.shape[dim]))
    places[begin:stop:step] = range(x.shape[dim], x.shape[dim] + source.shape[dim])
    return taken(ops.concatenate(together(call, x, source), dim), dim, places)


@handles("select_scatter.default")
def _select_scatter(call: Call, x: Value, source: Value, dim: int, index: int) -> Value:
    dim %= len(x.shape)
    index %= x.shape[dim]
    source = ops.reshape(source, (*x.shape[:dim], 1, *x.shape[dim + 1 :]))
    return _slice_scatter(call, x, source, dim, index, index + 1)


@handles("flip.default")
def _flip(call: Call, x: Value, dims: Sequence[int]) -> Value:
    for dim in dims:
        x = taken(x, dim % len(x.shape), range(x.shape[dim] - 1, -1, -1))
    return x


@handles("roll.default")
def _roll(call: Call, x: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    if not dims:
        return ops.reshape(_roll(call, ops.reshape(x, (-1,)), shifts, [0]), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size, at = x.shape[dim], -shift % x.shape[dim]
        if at:
            parts = [_slice(call, x, dim, at, size), _slice(call, x, dim, 0, at)]
            x = ops.concatenate(parts, dim % len(x.shape))
    return x


@handles("pixel_shuffle.default")
def _pixel_shuffle(call: Call, x: Value, factor: int) -> Value:
    height, width = x.shape[-2:]
    blocks = ops.reshape(x, (-1, factor, factor, height, width))
    return shaped(call, ops.permute(blocks, (0, 3, 1, 4, 2)))


@handles("pixel_unshuffle.default")
def _pixel_unshuffle(call: Call, x: Value, factor: int) -> Value:
    height, width = x.shape[-2:]
    blocks = ops.reshape(x, (-1, height // factor, factor, width // factor, factor))
    return shaped(call, ops.permute(blocks, (0, 2, 4, 1, 3)))


@handles("repeat.default", "tile.default")
def _repeat(call: Call, x: Value, repeats: Sequence[int]) -> Value:
    count = builtins.max(len(repeats), len(x.shape))
    x = ops.reshape(x, (*[1] * (count - len(x.shape)), *x.shape))
    for dim, times in enumerate([*[1] * (count - len(repeats)), *repeats]):
        x = ops.concatenate([x] * times, dim) if times > 1 else x
    return x


@handles("repeat_interleave.self_int")
def _repeat_interleave(call: Call, x: Value, times: int, dim: int | None = None, **_: Any) -> Value:
    x, at = (ops.reshape(x, (-1,)), 0) if dim is None else (x, dim % len(x.shape))
    outer, inner = math.prod(x.shape[: at + 1]), math.prod(x.shape[at + 1 :])
    return shaped(call, ops.expand(ops.reshape(x, (outer, 1, inner)), (outer, times, inner)))


@handles("tril.default", "triu.default")
def _triangle(call: Call, x: Value, diagonal: int = 0) -> Value:
    ones = torch.ones(x.shape[-2:])
    mask = ones.tril(diagonal) if call.operator == "aten.tril.default" else ones.triu(diagonal)
    return ops.where(call.graph.constant(mask.numpy(), dtype=x.dtype), x, 0)


@handles("unbind.int")
def _unbind(call: Call, x: Value, dim: int = 0) -> list[Value]:
    dim %= len(x.shape)
    shape = [*x.shape[:dim], *x.shape[dim + 1 :]]
    return [ops.reshape(ops.slice(x, dim, i, i + 1), shape) for i in range(x.shape[dim])]


@handles("zeros_like.default", "new_zeros.default", "empty_like.default", "new_empty.default", lazy=True)
def _zeros(call: Call, *_: Any, **__: Any) -> Constant:
    return Constant(call.graph, torch.zeros(call.shape, dtype=call.dtype))


@handles("ones_like.default", "new_ones.default", lazy=True)
def _ones(call: Call, *_: Any, **__: Any) -> Constant:
    return Constant(call.graph, torch.ones(call.shape, dtype=call.dtype))


@handles("full_like.default", lazy=True)
def _full_like(call: Call, x: Any, value: float, **_: Any) -> Constant:
    return Constant(call.graph, torch.full(call.shape, value, dtype=call.dtype))


@handles("new_full.default", lazy=True)
def _new_full(call: Call, x: Any, size: Any, value: float, **_: Any) -> Constant:
    return Constant(call.graph, torch.full(call.shape, value, dtype=call.dtype))


@handles("narrow.default")
def _narrow(call: Call, x: Value, dim: int, start: int, length: int) -> Value:
    return _slice(call, x, dim, start, start + length)


@handles("select.int")
def _select(call: Call, x: Value, dim: int, index: int) -> Value:
    dim %= len(x.shape)
    index %= x.shape[dim]
    return shaped(call, _slice(call, x, dim, index, index + 1))


@handles("split_with_sizes.default")
def _split(call: Call, x: Value, sizes: Sequence[int], dim: int = 0) -> list[Value]:
    return ops.split(x, sizes, dim % len(x.shape))


@handles("split.Tensor")
def _split_evenly(call: Call, x: Value, size: int, dim: int = 0) -> list[Value]:
    length = x.shape[dim]
    return [_slice(call, x, dim, begin, begin + size) for begin in range(0, length, size)]


@handles("cat.default", lazy=True)
def _cat(call: Call, parts: list[Any], dim: int = 0) -> Value:
    # A constant without elements begins a list.
    values = [value_of(part) for part in parts if not (isinstance(part, Constant) and part.tensor.numel() == 0)]
    return values[0] if len(values) == 1 else ops.concatenate(together(call, *values), dim % len(call.shape))


@handles("pad.default")
def _pad(call: Call, x: Value, padding: Sequence[int], mode: str = "constant", value: float | None = None) -> Value:
    if mode == "constant":
        return _constant_pad(call, x, padding, value or 0)
    for i in range(0, len(padding), 2):  # from the last dimension
        dim = len(x.shape) - 1 - i // 2
        if padding[i] or padding[i + 1]:
            x = taken(x, dim, _places_around(x.shape[dim], padding[i], padding[i + 1], mode))
    return x


def _places_around(size: int, before: int, after: int, mode: str) -> list[int]:
    """The positions of the elements of a dimension and of its padding."""
    places = range(-before, size + after)
    if mode == "replicate":
        return [builtins.min(builtins.max(at, 0), size - 1) for at in places]
    if mode == "circular":
        return [at % size for at in places]
    if mode != "reflect":
        raise ValueError(f"padding by {mode!r} is not possible")
    return [size - 1 - builtins.abs(size - 1 - builtins.abs(at)) for at in places]


@handles("constant_pad_nd.default")
def _constant_pad(call: Call, x: Value, padding: Sequence[int], value: float = 0) -> Value:
    for i in range(0, len(padding), 2):  # from the last dimension
        dim, before, after = len(x.shape) - 1 - i // 2, padding[i], padding[i + 1]
        x = _slice(call, x, dim, builtins.max(0, -before), x.shape[dim] - builtins.max(0, -after))
        if before > 0 or after > 0:
            x = ops.pad(x, dim, builtins.max(0, before), builtins.max(0, after), value)
    return x


@handles("stack.default")
def _stack(call: Call, values: list[Value], dim: int = 0) -> Value:
    dim %= len(call.shape)
    shape = [*call.shape[:dim], 1, *call.shape[dim + 1 :]]
    return ops.concatenate([ops.reshape(x, shape) for x in together(call, *values)], dim)
