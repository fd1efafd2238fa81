"""Convolutions of images [samples, height, width, channels], and of sequences [samples, length, channels]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tessera import _tessera
from tessera._matrices import Matrix, adopt
from tessera.graph._values import Value, given, graph_of, id_of, sizes_along

Sizes: TypeAlias = int | Sequence[int]


def _window(x: Value, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> dict[str, list[int]]:
    sizes = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    return {name: sizes_along(x, of_all) for name, of_all in sizes.items()}


def convolution(
    x: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    kernel: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Value:
    """Convolve images or sequences, channels last, with a weight of [outputs, taps · channels / groups].

    The weight has for each output the channels of the first tap, then those of the next: PyTorch's
    `weight.movedim(1, -1).flatten(1)`. It is dense or sparse; blocks that divide the channels lie within a tap. A sparse
    weight of several groups is what `ungrouped_weight` makes of it. Padding is of both sides of each dimension, or first
    before each and then after each. With as many groups as channels a convolution is depthwise.
    """
    graph = graph_of("convolution", x, weight, *given(bias))
    window = _window(x, kernel, stride, padding, dilation)
    return Value(graph, graph.native.convolution(x.id, weight.id, id_of(bias), **window, groups=groups))


def ungrouped_weight(weight: Matrix, *, groups: int, taps: int) -> Matrix:
    """Return the sparse weight of a convolution in groups as `convolution` and `transposed_convolution` take it.

    From [outputs, taps · channels / groups] it becomes [outputs, taps · channels], with the groups on its diagonal; blocks
    and values keep their order. Raises ValueError for blocks that are not of one group and tap each.
    """
    of = (_tessera.whole_number(name, size, 1, 2**31 - 1) for name, size in (("groups", groups), ("taps", taps)))
    return adopt(_tessera.ungrouped_weight(weight, *of))


def transposed_convolution(
    x: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    kernel: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    output_padding: Sizes = 0,
) -> Value:
    """Add weight · x of each position to what its window sees, as PyTorch's transposed convolutions.

    The weight is that of the convolution of which this is the transpose, [channels, taps · outputs / groups]: PyTorch's
    `weight.movedim(1, -1).flatten(1)`. It is dense or sparse; a sparse weight of several groups is what `ungrouped_weight`
    makes of it, static or dynamic.
    """
    graph = graph_of("transposed_convolution", x, weight, *given(bias))
    window = _window(x, kernel, stride, padding, dilation)
    more = sizes_along(x, output_padding)
    return Value(
        graph,
        graph.native.transposed_convolution(x.id, weight.id, id_of(bias), **window, groups=groups, output_padding=more),
    )


def patches(x: Value, *, kernel: Sizes, stride: Sizes = 1, padding: Sizes = 0, dilation: Sizes = 1) -> Value:
    """What a window sees: [samples, positions…, taps · channels], tap by tap all channels, zeros beyond the image."""
    graph = graph_of("patches", x)
    return Value(graph, graph.native.patches(x.id, **_window(x, kernel, stride, padding, dilation)))


def fold(
    x: Value,
    sizes: Sequence[int],
    *,
    kernel: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
) -> Value:
    """Sum, in an image of these sizes, all that `patches` would see at the same place."""
    graph = graph_of("fold", x)
    window = _window(x, kernel, stride, padding, dilation)
    return Value(graph, graph.native.fold(x.id, **window, sizes=[int(size) for size in sizes]))
