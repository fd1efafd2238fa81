"""Parameters of PyTorch modules, to and from sessions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tessera.graph._kernels import is_kernel, matrix_of_parameter, parameter_of_matrix

if TYPE_CHECKING:
    from tessera.graph._session import Session
    from tessera.nn import SparseLinear


def read(session: Session, module: nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a module's values and patterns for all parameters of a session."""
    values, patterns = {}, {}
    for name, parameter in _matched(session, module).items():
        layer = _sparse_layer(module, name)
        if layer is None:
            tensor = parameter.detach()
            tensor = matrix_of_parameter(module, name, tensor) if _is_matrix(session, module, name, tensor) else tensor
            values[name] = _array(tensor).reshape(-1)
            continue
        patterns[name] = (layer.crow_indices.numpy(), layer.col_indices[: layer.blocks].numpy())
        values[name] = _array(layer.unpack(layer.weight)).reshape(-1)
    return values, patterns


@torch.no_grad()
def write(session: Session, module: nn.Module) -> None:
    """Set a module's parameters, and the buffers that it changes, to a session's values."""
    buffers = dict(module.named_buffers())
    for name in session._native.state:
        if name in buffers:
            buffers[name].copy_(torch.from_numpy(session.get(name)).reshape(buffers[name].shape))
    for name, parameter in _matched(session, module).items():
        layer = _sparse_layer(module, name)
        if layer is None:
            own = torch.from_numpy(session.get(name))
            is_matrix = _is_matrix(session, module, name, parameter)
            parameter.copy_(parameter_of_matrix(module, name, own) if is_matrix else own.reshape(parameter.shape))
            continue
        crow_indices, col_indices = (torch.from_numpy(array.astype(np.int32)) for array in session.pattern(name))
        rows, cols = layer.crow_indices, layer.col_indices[: layer.blocks]
        if not (torch.equal(crow_indices, rows) and torch.equal(col_indices, cols)):
            layer.set_pattern(crow_indices, col_indices)
        parameter.copy_(layer.pack(torch.from_numpy(session.get(name))))


def _matched(session: Session, module: nn.Module) -> dict[str, nn.Parameter]:
    found = dict(module.named_parameters(remove_duplicate=False))
    parameters = {}
    for name in session._native.parameters:
        if name not in found:
            raise ValueError(f"the module has no parameter {name!r}")
        expected = tuple(session._graph.shape(session._graph.find(name)))
        layer = _sparse_layer(module, name)
        shape = tuple(found[name].shape) if layer is None else (layer.out_features, layer.in_features)
        if _is_matrix(session, module, name, found[name]):
            shape = tuple(matrix_of_parameter(module, name, found[name]).shape)
        if shape != expected and not (_is_structured(module, name) and math.prod(shape) == math.prod(expected)):
            raise ValueError(f"the module's parameter {name!r} has shape {shape}; the session's {expected}")
        parameters[name] = found[name]
    return parameters


def _is_matrix(session: Session, module: nn.Module, name: str, parameter: torch.Tensor) -> bool:
    """Whether a session has the weight of a convolution as a matrix."""
    own = tuple(session._graph.shape(session._graph.find(name)))
    return is_kernel(module, name) and own != tuple(parameter.shape)


def _is_structured(module: nn.Module, name: str) -> bool:
    """Whether a graph may have a parameter as a matrix, with its last dimensions merged into one."""
    from tessera.nn import StructuredLinear

    parts = name.split(".")
    return any(isinstance(module.get_submodule(".".join(parts[:i])), StructuredLinear) for i in range(len(parts)))


def _sparse_layer(module: nn.Module, name: str) -> SparseLinear | None:
    from tessera.nn import SparseLinear

    path, _, own = name.rpartition(".")
    layer = module.get_submodule(path)
    return layer if isinstance(layer, SparseLinear) and own == "weight" else None


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    return tensor.detach().float().contiguous().numpy()
