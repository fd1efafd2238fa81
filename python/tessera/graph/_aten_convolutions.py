"""PyTorch's convolutions as operations of a graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tessera.graph import _values as ops
from tessera.graph._aten import Call, Constant, handles, value_of
from tessera.graph._aten_vision import Images, sizes_of_each
from tessera.graph._convolution import convolution, transposed_convolution
from tessera.graph._kernels import matrix_of
from tessera.graph._parameters import Groups, Parameter
from tessera.graph._values import Value


def _matrix(call: Call, weight: Any, transposed: bool, groups: int, rows: int) -> Value:
    """The weight of a convolution as products take it; its values are a parameter of the graph."""
    if isinstance(weight, Parameter) and not weight.is_weight:
        weight = weight.value()
    if isinstance(weight, (Parameter, Constant)):
        tensor = weight.tensor
        matrix = matrix_of(tensor)
        if isinstance(weight, Constant):
            return Constant(call.graph, matrix).value()
        call.folded.add(weight.name)  # the matrix has its values in another order
        if groups == 1:
            return weight.as_matrix(matrix, rows)
        stays_dense = tensor.shape[1] == 1 or (transposed and tensor.shape[0] == groups)  # channel by channel
        return weight.as_matrix(matrix, rows, Groups(groups, math.prod(tensor.shape[2:])), may_be_sparse=not stays_dense)
    weight = value_of(weight)
    arranged = ops.permute(weight, (0, *range(2, len(weight.shape)), 1))
    return ops.reshape(arranged, (weight.shape[0], -1))


def _padding(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """The padding before each dimension, then the padding after each."""
    if not isinstance(padding, str):
        return sizes_of_each(padding, len(kernel), 0) * 2
    if padding == "valid":
        return [0] * (2 * len(kernel))
    totals = [far * (size - 1) for far, size in zip(dilation, kernel, strict=True)]
    return [*(total // 2 for total in totals), *(total - total // 2 for total in totals)]


def _convolve(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    output_padding: Any = None,
) -> Value:
    """A convolution; with an output padding, a transposed convolution."""
    shape = weight.shape
    kernel = shape[2:]
    if len(kernel) not in (1, 2):
        raise ValueError(f"convolutions over {len(kernel)} dimensions are not possible, only over 1 or 2")
    images = Images(value_of(x), len(kernel))
    transposed = output_padding is not None
    samples, *sizes, _ = images.last.shape
    pixels = sizes if transposed else call.shape[-len(kernel) :]
    far = sizes_of_each(dilation, len(kernel), 1)
    y = (transposed_convolution if transposed else convolution)(
        images.last,
        _matrix(call, weight, transposed, groups, samples * math.prod(pixels)),
        value_of(bias),
        kernel=list(kernel),
        stride=sizes_of_each(stride, len(kernel), 1),
        padding=_padding(padding, kernel, far),
        dilation=far,
        groups=groups,
        **({"output_padding": sizes_of_each(output_padding, len(kernel), 0)} if transposed else {}),
    )
    return images.first(call.named(y))


@handles("conv1d.default", "conv2d.default", "conv1d.padding", "conv2d.padding", lazy=True)
def _convolution(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    return _convolve(call, x, weight, bias, stride, padding, dilation, groups)


@handles("conv_transpose1d.default", "conv_transpose2d.input", lazy=True)
def _transposed(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Value:
    return _convolve(call, x, weight, bias, stride, padding, dilation, groups, output_padding)


@handles("convolution.default", lazy=True)
def _any_convolution(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Value:
    return _convolve(call, x, weight, bias, stride, padding, dilation, groups, output_padding if transposed else None)
