"""Operations of image networks besides convolution: pooling, normalisation, interpolation.

Values are channels last: [samples, height, width, channels], or [samples, length, channels].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from tessera._tessera import whole_number
from tessera.graph._values import Attribute, Sizes, Value, apply, given, graph_of, id_of, sizes_along

Mode: TypeAlias = Literal["nearest", "linear", "cubic"]
Coordinates: TypeAlias = Literal[
    "half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric"
]
Rounding: TypeAlias = Literal["floor", "ceil", "half_down", "half_up"]


def _window(
    x: Value, window: Sizes, stride: Sizes | None, padding: Sizes, dilation: Sizes, ceil: bool
) -> dict[str, Attribute]:
    around = sizes_along(x, padding)
    sizes = sizes_along(x, window)
    return {
        "window": sizes,
        "stride": sizes if stride is None else sizes_along(x, stride),
        "padding": around if len(around) == 2 * len(sizes) else around * 2,
        "dilation": sizes_along(x, dilation),
        "ceil": int(ceil),
    }


def max_pool(
    x: Value,
    window: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil: bool = False,
) -> Value:
    """Compute the largest element of each window; the first of equal maxima gets the gradient, as in PyTorch.

    The stride is the window's sizes by default. Padding has one number for both sides of each dimension, or the numbers
    before each dimension and then the numbers after each; padding is never the maximum. With `ceil`, the number of
    windows is rounded up.
    """
    return apply("max_pool", x, **_window(x, window, stride, padding, dilation, ceil))


def average_pool(
    x: Value,
    window: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil: bool = False,
    counts_padding: bool = True,
    divisor: int | None = None,
) -> Value:
    """Compute the mean of each window; padding counts unless `counts_padding` is false or `divisor` is given."""
    if divisor is not None and divisor < 1:
        raise ValueError(f"average_pool: the divisor is {divisor}; it must be at least 1")
    attributes = _window(x, window, stride, padding, dilation, ceil)
    return apply("average_pool", x, **attributes, counts_padding=int(counts_padding), divisor=divisor or 0)


def adaptive_max_pool(x: Value, sizes: Sizes) -> Value:
    """Compute the largest element of each window, with `sizes` windows in each dimension, placed as by PyTorch."""
    return apply("max_pool", x, sizes=sizes_along(x, sizes))


def adaptive_average_pool(x: Value, sizes: Sizes) -> Value:
    """Compute the mean of each window, with `sizes` windows in each dimension, placed as by PyTorch.

    With size 1, the window has all elements of the dimension.
    """
    return apply("average_pool", x, sizes=sizes_along(x, sizes))


def batch_norm(
    x: Value,
    mean: Value,
    variance: Value,
    weight: Value | None = None,
    bias: Value | None = None,
    *,
    eps: float = 1e-5,
) -> Value:
    """Compute (x − mean) / √(variance + ε) · weight + bias by channel, with given statistics, as in evaluation."""
    graph = graph_of("batch_norm", x, mean, variance, *given(weight, bias))
    return Value(graph, graph.native.batch_norm(x.id, mean.id, variance.id, id_of(weight), id_of(bias), eps))


def batch_norm_of_batch(
    x: Value,
    weight: Value | None = None,
    bias: Value | None = None,
    *,
    eps: float = 1e-5,
    replicas: int | None = 1,
) -> tuple[Value, Value, Value]:
    """Compute `batch_norm` with the statistics of the batch, as in training; return the mean and the variance as well.

    The returned variance is divided by the number of elements less one, like PyTorch's running variance. Statistics are
    taken over each replica's own batch, or over the batches of each group of `replicas` consecutive replicas together
    (None: of all replicas); in a graph without replicas, over its batch. State is the same in all replicas, so it takes
    `mean_over_replicas` of the statistics.
    """
    graph = graph_of("batch_norm_of_batch", x, *given(weight, bias))
    group = 0 if replicas is None else whole_number("replicas", replicas, 1)
    y, mean, variance = graph.native.batch_norm_of_batch(x.id, id_of(weight), id_of(bias), eps, group)
    return Value(graph, y), Value(graph, mean), Value(graph, variance)


def group_norm(
    x: Value, groups: int, weight: Value | None = None, bias: Value | None = None, *, eps: float = 1e-5
) -> Value:
    """Normalise equal groups of the channels of each sample; one group for each channel is instance normalisation."""
    graph = graph_of("group_norm", x, *given(weight, bias))
    return Value(graph, graph.native.group_norm(x.id, groups, id_of(weight), id_of(bias), eps))


def interpolate(
    x: Value,
    sizes: Sizes,
    *,
    mode: Mode = "linear",
    coordinates: Coordinates = "half_pixel",
    rounding: Rounding = "floor",
    factors: Sequence[float] | None = None,
    cubic: float = -0.75,
) -> Value:
    """Interpolate between the elements of images, to `sizes` elements in each dimension.

    Elements and results are areas (`half_pixel`), or points whose first and last ones coincide (`align_corners`),
    or only their first ones (`asymmetric`). `rounding` says which element is nearest; `factors` are
    the scale factors, if they are not the ratios of the sizes.
    """
    attributes: dict[str, Attribute] = {"sizes": sizes_along(x, sizes), "mode": mode, "coordinates": coordinates}
    if mode == "nearest":
        attributes["rounding"] = rounding
    if mode == "cubic":
        attributes["cubic"] = cubic
    all_factors = [float(factor) for factor in factors or ()]
    if all_factors and len(all_factors) != len(x.shape) - 2:
        raise ValueError(f"interpolate: there are {len(all_factors)} factors for {len(x.shape) - 2} dimensions")
    for dim, factor in enumerate(all_factors):
        attributes[f"factor_{dim}"] = factor
    return apply("interpolate", x, **attributes)
