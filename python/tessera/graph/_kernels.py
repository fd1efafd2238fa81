"""Weights of PyTorch's convolutions as matrices of products, and back."""

from __future__ import annotations

import math

from torch import Tensor, nn


def matrix_of(weight: Tensor) -> Tensor:
    """Reorder [outputs, channels, sizes…] to [outputs, taps · channels], with all channels of a tap together.

    The weight of a transposed convolution, [channels, outputs, sizes…], is reordered likewise.
    """
    return weight.movedim(1, -1).flatten(1)


def is_kernel(module: nn.Module, name: str) -> bool:
    """Whether a parameter is the weight of a convolution."""
    path, _, own = name.rpartition(".")
    return own == "weight" and isinstance(module.get_submodule(path), nn.modules.conv._ConvNd)


def matrix_of_parameter(module: nn.Module, name: str, weight: Tensor) -> Tensor:
    """A parameter as a graph has it: the weight of a convolution becomes a matrix."""
    return matrix_of(weight) if is_kernel(module, name) else weight


def parameter_of_matrix(module: nn.Module, name: str, matrix: Tensor) -> Tensor:
    """The inverse of `matrix_of_parameter`."""
    layer = module.get_submodule(name.rpartition(".")[0])
    assert isinstance(layer, nn.modules.conv._ConvNd)
    shape, taps = layer.weight.shape, math.prod(layer.kernel_size)
    return matrix.reshape(shape[0], taps, shape[1]).transpose(1, 2).reshape(shape)
