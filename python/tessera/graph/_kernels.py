"""Weights of PyTorch's convolutions as matrices of products, and back."""

from __future__ import annotations

import math

from torch import Tensor, nn


def matrix_of(weight: Tensor) -> Tensor:
    """[outputs, channels, sizes…] as [outputs, taps · channels], all channels of a tap together."""
    return weight.movedim(1, -1).flatten(1)


def transposed_matrix_of(weight: Tensor, groups: int = 1) -> Tensor:
    """[channels, outputs, sizes…] of a transposed convolution as [groups · taps · outputs, channels of a group]."""
    channels, outputs, *sizes = weight.shape
    parts = weight.reshape(groups, channels // groups, outputs, math.prod(sizes))
    return parts.permute(0, 3, 2, 1).reshape(-1, channels // groups)


def is_kernel(module: nn.Module, name: str) -> bool:
    """Whether a parameter is the weight of a convolution."""
    path, _, own = name.rpartition(".")
    return own == "weight" and isinstance(module.get_submodule(path), nn.modules.conv._ConvNd)


def matrix_of_parameter(module: nn.Module, name: str, weight: Tensor) -> Tensor:
    """As a graph has it: the weight of a convolution is a matrix."""
    if not is_kernel(module, name):
        return weight
    layer = module.get_submodule(name.rpartition(".")[0])
    assert isinstance(layer, nn.modules.conv._ConvNd)
    return transposed_matrix_of(weight, layer.groups) if layer.transposed else matrix_of(weight)


def parameter_of_matrix(module: nn.Module, name: str, matrix: Tensor) -> Tensor:
    """The reverse."""
    layer = module.get_submodule(name.rpartition(".")[0])
    assert isinstance(layer, nn.modules.conv._ConvNd)
    shape, taps = layer.weight.shape, math.prod(layer.kernel_size)
    if not layer.transposed:
        return matrix.reshape(shape[0], taps, shape[1]).transpose(1, 2).reshape(shape)
    parts = matrix.reshape(layer.groups, taps, shape[1], shape[0] // layer.groups)
    return parts.permute(0, 3, 2, 1).reshape(shape)
