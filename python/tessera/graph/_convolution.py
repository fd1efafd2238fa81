"""Convolutions of images [samples, height, width, channels], and of sequences [samples, length, channels]."""

from __future__ import annotations

from collections.abc import Sequence
from tessera import _tessera
from tessera._matrices import Matrix, adopt
from tessera.graph._values import Sizes, Value, given, graph_of, id_of, sizes_along


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
    """Convolve images or sequences, channels last, with a weight [outputs, taps · channels / groups].

    For each output, the weight has all channels of the first tap, then all channels of the next tap, and so on:
    PyTorch's `weight.movedim(1, -1).flatten(1)`. It is dense or sparse; blocks whose size divides the channels lie
    within a tap. For several groups, a sparse weight has the form that `ungrouped_weight` returns. Padding has one
    number for both sides of each dimension, or the numbers before each dimension and then the numbers after each. With
    as many groups as channels, a convolution is depthwise.
    """
    graph = graph_of("convolution", x, weight, *given(bias))
    window = _window(x, kernel, stride, padding, dilation)
    return Value(graph, graph.native.convolution(x.id, weight.id, id_of(bias), **window, groups=groups))


def ungrouped_weight(weight: Matrix, *, groups: int, taps: int) -> Matrix:
    """Return the sparse weight of a convolution in groups, as `convolution` and `transposed_convolution` take it.

    From [outputs, taps · channels / groups] it becomes [outputs, taps · channels], with the groups on its diagonal;
    blocks and values keep their order. Raises ValueError for a block that does not lie within one group and one tap.
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
    """Add weight · x of each position to the elements under its window, as PyTorch's transposed convolutions do.

    The weight is the weight of the convolution whose transpose this is, [channels, taps · outputs / groups]: PyTorch's
    `weight.movedim(1, -1).flatten(1)`. It is dense or sparse, static or dynamic; for several groups, a sparse weight
    has the form that `ungrouped_weight` returns.
    """
    graph = graph_of("transposed_convolution", x, weight, *given(bias))
    window = _window(x, kernel, stride, padding, dilation)
    more = sizes_along(x, output_padding)
    return Value(
        graph,
        graph.native.transposed_convolution(x.id, weight.id, id_of(bias), **window, groups=groups, output_padding=more),
    )


def patches(x: Value, *, kernel: Sizes, stride: Sizes = 1, padding: Sizes = 0, dilation: Sizes = 1) -> Value:
    """The elements under the window at each position: [samples, positions…, taps · channels].

    They are ordered by tap, then by channel; elements beyond the image are zeros.
    """
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
    """Sum patches into an image of these sizes, the adjoint of `patches`.

    Each element is the sum of the patch elements that `patches` would take from its position.
    """
    graph = graph_of("fold", x)
    window = _window(x, kernel, stride, padding, dilation)
    return Value(graph, graph.native.fold(x.id, **window, sizes=[int(size) for size in sizes]))
