"""PyTorch's operators on images as operations of a graph.

PyTorch puts the channels before the other dimensions, a graph's operations put them last: each operation stands
between two permutations, and a session removes permutations that undo each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tessera.graph import _values as ops
from tessera.graph import _vision as vision
from tessera.graph._aten import Call, Constant, handles, value_of
from tessera.graph._parameters import Parameter
from tessera.graph._values import Value


def channels_last(x: Value) -> Value:
    """[N, channels, …] as [N, …, channels]."""
    count = len(x.shape)
    return ops.permute(x, (0, *range(2, count), 1))


def channels_first(x: Value) -> Value:
    count = len(x.shape)
    return ops.permute(x, (0, count - 1, *range(1, count - 1)))


class Images:
    """Values as images; the dimension of samples may be missing."""

    def __init__(self, x: Value, dimensions: int) -> None:
        self.is_single = len(x.shape) == dimensions + 1
        if not self.is_single and len(x.shape) != dimensions + 2:
            raise ValueError(f"images of {list(x.shape)} are not possible for {dimensions} dimensions")
        self.last = channels_last(ops.reshape(x, (1, *x.shape)) if self.is_single else x)

    def first(self, y: Value) -> Value:
        y = channels_first(y)
        return ops.reshape(y, y.shape[1:]) if self.is_single else y


def sizes_of_each(sizes: Any, dimensions: int, otherwise: int) -> list[int]:
    if isinstance(sizes, int):
        return [sizes] * dimensions
    given = [int(size) for size in sizes or [otherwise]]
    return given * dimensions if len(given) == 1 else given


# Pooling.


def _dimensions(call: Call) -> int:
    return 1 if "1d" in call.operator else 2


def _pool(
    pool: Callable[..., Value], call: Call, x: Value, window: Any, stride: Any, padding: Any, **more: Any
) -> Value:
    count = _dimensions(call)
    images = Images(x, count)
    sizes = sizes_of_each(window, count, 1)
    strides = sizes_of_each(stride, count, 1) if stride else sizes
    return images.first(pool(images.last, sizes, stride=strides, padding=sizes_of_each(padding, count, 0), **more))


@handles("max_pool1d.default", "max_pool2d.default")
def _max_pool(
    call: Call, x: Value, window: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Value:
    far = sizes_of_each(dilation, _dimensions(call), 1)
    return _pool(vision.max_pool, call, x, window, stride, padding, dilation=far, ceil=ceil)


@handles("max_pool2d_with_indices.default")
def _max_pool_with_indices(call: Call, *args: Any, **kwargs: Any) -> list[Value | None]:
    return [_max_pool(call, *args, **kwargs), None]  # the positions of the maxima are not computed


@handles("avg_pool1d.default", "avg_pool2d.default")
def _average_pool(
    call: Call,
    x: Value,
    window: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    counts_padding: bool = True,
    divisor: int | None = None,
) -> Value:
    return _pool(
        vision.average_pool, call, x, window, stride, padding, ceil=ceil, counts_padding=counts_padding, divisor=divisor
    )


@handles("adaptive_avg_pool1d.default", "adaptive_avg_pool2d.default", "_adaptive_avg_pool2d.default")
def _adaptive_average_pool(call: Call, x: Value, sizes: Any) -> Value:
    images = Images(x, len(sizes))
    return images.first(vision.adaptive_average_pool(images.last, list(sizes)))


@handles("adaptive_max_pool1d.default", "adaptive_max_pool2d.default")
def _adaptive_max_pool(call: Call, x: Value, sizes: Any) -> list[Value | None]:
    images = Images(x, len(sizes))
    return [images.first(vision.adaptive_max_pool(images.last, list(sizes))), None]


# Normalisation.


def _tensor(known: Any) -> torch.Tensor | None:
    return known.tensor if isinstance(known, (Parameter, Constant)) else None


def _given_norm(
    call: Call, x: Value, weight: Any, bias: Any, mean: Any, variance: Any, eps: float
) -> Value:
    """Normalise with given statistics, by a factor and an offset; for inference these are constants, and foldable."""
    given = (weight, bias, mean, variance)
    of, added, average, spread = tensors = [_tensor(each) for each in given]
    is_computed = any(tensor is None and each is not None for each, tensor in zip(given, tensors, strict=True))
    if call.weights is None or is_computed or average is None or spread is None:
        others = (value_of(each) for each in (mean, variance, weight, bias))
        return vision.batch_norm(x, *others, eps=eps)
    factor = torch.rsqrt(spread.double() + eps) * (1.0 if of is None else of.double())
    offset = (0.0 if added is None else added.double()) - average.double() * factor
    call.folded.update(each.name for each in (weight, bias) if isinstance(each, Parameter))
    constants = (call.graph.constant(each.float().numpy(), dtype=x.dtype) for each in (factor, offset))
    scale, shift = constants
    return x * scale + shift


@handles("batch_norm.default", "_native_batch_norm_legit_no_training.default", lazy=True)
def _batch_norm(call: Call, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *rest: Any) -> Any:
    x = value_of(x)
    if call.operator == "aten.batch_norm.default":
        training, _, eps, *_ = rest
        if training:
            raise ValueError("the running statistics are changed: export the module in evaluation mode")
        return channels_first(_given_norm(call, channels_last(x), weight, bias, mean, variance, eps))
    y = channels_first(_given_norm(call, channels_last(x), weight, bias, mean, variance, rest[-1]))
    return [y, None, None]


@handles("_native_batch_norm_legit_functional.default", lazy=True)
def _training_norm(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value | None]:
    """Normalise with the statistics of the batch, which enter the running statistics with the weight `momentum`."""
    last = channels_last(value_of(x))
    of = [value_of(each) for each in (weight, bias)]
    if not training:
        y = vision.batch_norm(last, value_of(mean), value_of(variance), *of, eps=eps)
        return [channels_first(y), None, None, value_of(mean), value_of(variance)]
    y, average, spread = vision.batch_norm_of_batch(last, *of, eps=eps, replicas=call.replicas_of_norm(mean))
    running = [
        value_of(old) * (1 - momentum) + new * momentum for old, new in ((mean, average), (variance, spread))
    ]
    return [channels_first(y), None, None, *running]


@handles("_native_batch_norm_legit.no_stats", lazy=True)
def _norm_without_statistics(
    call: Call, x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> list[Value | None]:
    last = channels_last(value_of(x))
    replicas = call.replicas_of_norm(None)
    y, _, _ = vision.batch_norm_of_batch(last, value_of(weight), value_of(bias), eps=eps, replicas=replicas)
    return [channels_first(y), None, None]


@handles("group_norm.default")
def _group_norm(
    call: Call,
    x: Value,
    groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Value:
    return channels_first(vision.group_norm(channels_last(x), groups, weight, bias, eps=eps))


@handles("instance_norm.default")
def _instance_norm(
    call: Call,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    of_input: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Value:
    last = channels_last(x)
    if of_input:
        return channels_first(vision.group_norm(last, x.shape[1], weight, bias, eps=eps))
    assert mean is not None and variance is not None
    return channels_first(vision.batch_norm(last, mean, variance, weight, bias, eps=eps))


@handles("feature_dropout.default")
def _feature_dropout(call: Call, x: Value, p: float, train: bool) -> Value:
    """Dropout of whole channels of samples."""
    if not train or p == 0:
        return x
    call.refuse_draws()
    ones = call.graph.constant(torch.ones(*x.shape[:2], *[1] * (len(x.shape) - 2)).numpy(), dtype=x.dtype)
    return x * ops.dropout(ones, p)


# Interpolation.


def _interpolated(
    x: Value, sizes: Sequence[int], mode: vision.Mode, align_corners: bool, factors: Any, exact: bool = False
) -> Value:
    if mode == "nearest":
        coordinates: vision.Coordinates = "half_pixel" if exact else "asymmetric"
        rounding: vision.Rounding = "half_up" if exact else "floor"
    else:
        coordinates, rounding = "align_corners" if align_corners else "half_pixel", "floor"
    given = [float(factor) for factor in factors] if factors and all(factors) else None
    y = vision.interpolate(
        channels_last(x), list(sizes), mode=mode, coordinates=coordinates, rounding=rounding, factors=given
    )
    return channels_first(y)


@handles(
    *(f"upsample_nearest{d}d.{kind}" for d in (1, 2) for kind in ("default", "vec")),
    *(f"_upsample_nearest_exact{d}d.{kind}" for d in (1, 2) for kind in ("default", "vec")),
)
def _nearest(call: Call, x: Value, _sizes: Any, *factors: Any) -> Value:
    given = factors[0] if len(factors) == 1 and isinstance(factors[0], (list, tuple)) else factors
    return _interpolated(x, call.shape[2:], "nearest", False, given, "exact" in call.operator)


@handles(
    *(f"upsample_linear1d.{kind}" for kind in ("default", "vec")),
    *(f"upsample_{mode}2d.{kind}" for mode in ("bilinear", "bicubic") for kind in ("default", "vec")),
)
def _between(call: Call, x: Value, _sizes: Any, align_corners: bool, *factors: Any) -> Value:
    given = factors[0] if len(factors) == 1 and isinstance(factors[0], (list, tuple)) else factors
    mode: vision.Mode = "cubic" if "bicubic" in call.operator else "linear"
    return _interpolated(x, call.shape[2:], mode, align_corners, given)


def is_mean_of_images(x: Value, dims: Any) -> bool:
    """Whether a mean is taken over the pixels of images."""
    count = len(x.shape)
    if dims is None or isinstance(dims, int) or count < 3:
        return False
    return sorted(dim % count for dim in dims) == list(range(2, count))


def mean_of_images(x: Value) -> Value:
    return channels_first(vision.adaptive_average_pool(channels_last(x), 1))

