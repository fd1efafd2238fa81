"""PyTorch's reductions as operations of a graph."""

from __future__ import annotations

import math
from typing import Any

from tessera.graph import _values as ops
from tessera.graph._aten import Call, as_truth, handles, in_result_type, shaped
from tessera.graph._aten_vision import is_mean_of_images, mean_of_images
from tessera.graph._parameters import type_of
from tessera.graph._values import Truth, Value


@handles("sum.default", "sum.dim_IntList")
def _sum(call: Call, x: Value, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
    if isinstance(x, Truth) and math.prod(x.shape) <= ops.MOST_EXACT:
        return ops.cast(ops.sum(ops.cast(x, "f32"), dims, keepdim), type_of(call.dtype, allow_integers=True))
    return ops.sum(in_result_type(call, x), dims, keepdim)


@handles("mean.default", "mean.dim")
def _mean(call: Call, x: Value, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
    x = in_result_type(call, x)
    return shaped(call, mean_of_images(x)) if is_mean_of_images(x, dims) else ops.mean(x, dims, keepdim)


@handles("any.default", "any.dim", "any.dims")
def _any(call: Call, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return ops.amax(ops.cast(as_truth(x), "f32"), dims, keepdim)


@handles("all.default", "all.dim", "all.dims")
def _all(call: Call, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return ops.amin(ops.cast(as_truth(x), "f32"), dims, keepdim)


@handles("max.default", "amax.default")
def _max(call: Call, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return ops.amax(x, dims, keepdim)


@handles("min.default", "amin.default")
def _min(call: Call, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return ops.amin(x, dims, keepdim)


def _arg(x: Value, dim: int | None, keepdim: bool, sign: int) -> Value:
    if dim is None:
        x, dim = ops.reshape(x, (-1,)), 0
    # Reverses the order of integers, without overflow.
    x = x if sign > 0 else -x - 1 if x.is_integer else -x
    return ops.cast(ops.argmax(x, dim, keepdim), "i32")


@handles("argmax.default")
def _argmax(call: Call, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return shaped(call, _arg(x, dim, keepdim, 1))


@handles("argmin.default")
def _argmin(call: Call, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return shaped(call, _arg(x, dim, keepdim, -1))


def _first_most(x: Value, dim: int, keepdim: bool) -> Value:
    """The maximum, whose gradient goes to the first of equal elements."""
    if x.is_integer:
        return ops.amax(x, dim, keepdim)
    dim %= len(x.shape)
    order = [*[each for each in range(len(x.shape)) if each != dim], dim]
    y = ops.apply("max", ops.permute(x, order), over="columns", ties="first")
    kept = [1] if keepdim else []
    return ops.reshape(y, [*x.shape[:dim], *kept, *x.shape[dim + 1 :]])


@handles("max.dim")
def _max_and_place(call: Call, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
    if not x.shape:
        return [x, call.graph.constant(0, dtype="i32")]
    return [_first_most(x, dim, keepdim), _arg(x, dim, keepdim, 1)]


@handles("min.dim")
def _min_and_place(call: Call, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
    if not x.shape:
        return [x, call.graph.constant(0, dtype="i32")]
    least = ops.amin(x, dim, keepdim) if x.is_integer else -_first_most(-x, dim, keepdim)
    return [least, _arg(x, dim, keepdim, -1)]


@handles("cumsum.default")
def _cumsum(call: Call, x: Value, dim: int, **_: Any) -> Value:
    dtype = type_of(call.dtype, allow_integers=True) if call.dtype is not None else x.dtype
    return ops.cumsum(ops.cast(x, dtype), dim)


def _variance(call: Call, x: Value, dims: Any, correction: Any, keepdim: bool) -> tuple[Value, Value]:
    """The variance and the mean, in FP32."""
    x = ops.cast(x, "f32")
    mean = ops.mean(x, dims, keepdim=True)
    count = math.prod(x.shape) / math.prod(mean.shape)
    correction = 1 if correction is None else float(correction)
    if correction >= count:
        raise ValueError(f"the variance of {count:.0f} elements with a correction of {correction} is not possible")
    variance = ops.mean(ops.square(x - mean), dims, keepdim) * (count / (count - correction))
    return variance, mean if keepdim else ops.reshape(mean, variance.shape)


def _root(x: Value) -> Value:
    """The square root, with the gradient 0 at 0, as in PyTorch's standard deviations and norms."""
    is_none = ops.equal(x, 0)
    return ops.where(is_none, 0.0, ops.sqrt(ops.where(is_none, 1.0, x)))


def _power_of_size(size: Value, order: float) -> Value:
    """A power whose gradient at 0 is 0 even for orders below 1, as in PyTorch's norms; there the slope is infinite."""
    if order >= 1:
        return ops.pow(size, order)
    is_none = ops.equal(size, 0)
    return ops.where(is_none, 0.0 if order > 0 else math.inf, ops.pow(ops.where(is_none, 1.0, size), order))


def _norm(x: Value, order: float, dims: Any, keepdim: bool) -> Value:
    if order == 2:
        return _root(ops.sum(ops.square(x), dims, keepdim))
    size = ops.abs(x)
    if math.isinf(order):
        return (ops.amax if order > 0 else ops.amin)(size, dims, keepdim)
    if order == 0:
        return ops.sum(ops.not_equal(size, 0), dims, keepdim)
    if order == 1:
        return ops.sum(size, dims, keepdim)
    total = ops.sum(_power_of_size(size, order), dims, keepdim)
    if order < 0:
        return ops.pow(total, 1 / order)
    is_none = ops.equal(total, 0)  # where the root has no derivative
    return ops.where(is_none, 0.0, ops.pow(ops.where(is_none, 1.0, total), 1 / order))


@handles("linalg_vector_norm.default")
def _vector_norm(
    call: Call, x: Value, order: float = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Value:
    return shaped(call, in_result_type(call, _norm(ops.cast(x, "f32"), order, dims, keepdim)))


@handles("cdist.default", "_cdist_forward.default")
def _distances(call: Call, a: Value, b: Value, order: float = 2.0, *_: Any) -> Value:
    rows = ops.reshape(a, (*a.shape[:-1], 1, a.shape[-1]))
    cols = ops.reshape(b, (*b.shape[:-2], 1, *b.shape[-2:]))
    return in_result_type(call, _norm(ops.cast(rows, "f32") - ops.cast(cols, "f32"), order, -1, False))


@handles("prod.default", "prod.dim_int")
def _prod(call: Call, x: Value, dim: int | None = None, keepdim: bool = False, **_: Any) -> Value:
    x, dim = (ops.reshape(x, (-1,)), 0) if dim is None else (x, dim % max(1, len(x.shape)))
    x = in_result_type(call, x)
    while x.shape and x.shape[dim] > 1:
        half, size = x.shape[dim] // 2, x.shape[dim]
        product = ops.slice(x, dim, 0, half) * ops.slice(x, dim, half, 2 * half)
        x = product if size == 2 * half else ops.concatenate([product, ops.slice(x, dim, size - 1, size)], dim)
    return shaped(call, x)


@handles("var.correction", "var.dim")
def _var(call: Call, x: Value, dims: Any = None, correction: Any = 1, keepdim: bool = False) -> Value:
    return in_result_type(call, _variance(call, x, dims, correction, keepdim)[0])


@handles("std.correction", "std.dim")
def _std(call: Call, x: Value, dims: Any = None, correction: Any = 1, keepdim: bool = False) -> Value:
    return in_result_type(call, _root(_variance(call, x, dims, correction, keepdim)[0]))


@handles("var_mean.correction", "var_mean.dim")
def _var_mean(call: Call, x: Value, dims: Any = None, correction: Any = 1, keepdim: bool = False) -> list[Value]:
    return [ops.cast(each, x.dtype) for each in _variance(call, x, dims, correction, keepdim)]


@handles("std_mean.correction", "std_mean.dim")
def _std_mean(call: Call, x: Value, dims: Any = None, correction: Any = 1, keepdim: bool = False) -> list[Value]:
    variance, mean = _variance(call, x, dims, correction, keepdim)
    return [ops.cast(_root(variance), x.dtype), ops.cast(mean, x.dtype)]


@handles("count_nonzero.default", "count_nonzero.dim_IntList")
def _count(call: Call, x: Value, dims: Any = None) -> Value:
    return _sum(call, as_truth(x), dims)


@handles("logsumexp.default")
def _logsumexp(call: Call, x: Value, dims: Any, keepdim: bool = False) -> Value:
    wide = ops.cast(x, "f32")
    most = ops.amax(wide, dims, keepdim=True)
    most = ops.where(ops.equal(ops.abs(most), math.inf), 0.0, most)
    total = ops.sum(ops.exp(wide - most), dims, keepdim=True)
    is_none = ops.equal(total, 0)
    y = ops.where(is_none, -math.inf, ops.log(total + is_none) + most)
    return shaped(call, in_result_type(call, y))


@handles("softmax.int", "_softmax.default")
def _softmax(call: Call, x: Value, dim: int, *_: Any, **__: Any) -> Value:
    return ops.softmax(in_result_type(call, x), dim)


@handles("_safe_softmax.default")
def _safe_softmax(call: Call, x: Value, dim: int, *_: Any, **__: Any) -> Value:
    """A softmax that gives zeros where all elements are -inf."""
    x = in_result_type(call, x)
    is_none = ops.equal(ops.amax(x, dim, keepdim=True), -math.inf)
    return ops.where(is_none, 0.0, ops.softmax(ops.where(is_none, 0.0, x), dim))


@handles("log_softmax.int", "_log_softmax.default")
def _log_softmax(call: Call, x: Value, dim: int, *_: Any, **__: Any) -> Value:
    return ops.log_softmax(in_result_type(call, x), dim)
