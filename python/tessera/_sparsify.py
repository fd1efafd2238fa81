"""Replacing the dense layers of a model by sparse layers, where that saves time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from tessera import _blocks
from tessera._choice import least_seconds, predict
from tessera._conv1d import as_linear, is_conv1d
from tessera._layers import GAIN, LayerReport, SparsityReport
from tessera._matrices import Matrix
from tessera._prepared import STORED_TYPES
from tessera.nn import SparseLinear


def sparsify_(
    model: nn.Module,
    density: float | None = None,
    block_size: int = 1,
    filter: Callable[[str, Any], bool] | None = None,
    *,
    rows: int,
    require_speedup: bool = True,
    measure: bool = False,
    dynamic: bool | int = False,
) -> SparsityReport:
    """Prune the linear layers of a model by magnitude and make them sparse, in place.

    Without a density, present zeros stay: the zeros of a weight, or of a mask of `torch.nn.utils.prune`. `filter(name,
    layer)` chooses among all `torch.nn.Linear`, and all `Conv1D` of `transformers`. `rows` is the number of rows of a
    layer's input, such as sentences times tokens. With `require_speedup`, layers whose sparse product would not be at
    least a tenth faster stay dense, as they were; the report lists them. Layers that share parameters with other
    modules, and layers whose type the kernels do not support, stay dense too. Times are predicted, or with `measure`
    measured on the host, layer by layer. An error leaves the model as it was.
    """
    if rows < 1:
        raise ValueError(f"rows is {rows}; it is the number of rows of a layer's input, at least 1")
    if density is not None:
        _blocks.count_for(density, 1)  # refuses a density out of range
    report = SparsityReport(measure)
    asked = math.nan if density is None else density
    owners = Counter(id(p) for module in model.modules() for p in module._parameters.values() if p is not None)
    replacements: dict[nn.Module, SparseLinear] = {}
    for name, layer in model.named_modules():
        linear = as_linear(layer) if is_conv1d(layer) else layer
        if type(linear) is not nn.Linear or (filter is not None and not filter(name, layer)):
            continue
        if name == "":
            raise ValueError("the model is itself a linear layer: use SparseLinear.from_dense()")
        shape = (linear.out_features, linear.in_features)
        obstacle = _obstacle(layer, linear.weight.dtype, owners)
        if obstacle:
            report.layers.append(LayerReport(name, shape, asked, False, obstacle, math.nan, math.nan, block_size, rows))
            continue
        sparse = SparseLinear.from_dense(linear, density=density, block_size=block_size, dynamic=dynamic)
        before, after, reason = predict(_matrix(sparse), rows, linear.weight.dtype)
        if measure:
            before, after = _measured(layer, sparse, rows)
            reason = "" if after <= GAIN * before else reason or "measured to be no faster"
        reason = reason if require_speedup else ""
        if not reason:
            replacements[layer] = sparse
        each = LayerReport(name, shape, sparse.density, not reason, reason, before, after, block_size, rows)
        report.layers.append(each)
    _replace(model, replacements)
    return report


def _obstacle(layer: nn.Module, dtype: torch.dtype, owners: Counter[int]) -> str:
    """Why a layer cannot be sparse; empty if it can."""
    if dtype not in STORED_TYPES:
        return f"stays dense: weights of {dtype}, not float32, float16 or bfloat16"
    shared = [name for name, parameter in layer.named_parameters() if owners[id(parameter)] > 1]
    return f"stays dense: shares its {' and '.join(shared)} with another module" if shared else ""


def _replace(model: nn.Module, replacements: dict[nn.Module, SparseLinear]) -> None:
    """Put layers in the places of others, under all their names."""
    for module in list(model.modules()):
        for name, child in module._modules.items():
            if child in replacements:
                module._modules[name] = replacements[child]
    for module in model.modules():
        _leave_fast_path(module)


def _leave_fast_path(module: nn.Module) -> None:
    """Let an encoder call its layers: in inference PyTorch would pass their weights to its own kernel."""
    if isinstance(module, nn.TransformerEncoderLayer):
        if isinstance(module.linear1, SparseLinear) or isinstance(module.linear2, SparseLinear):
            module.activation_relu_or_gelu = 0
    elif isinstance(module, nn.TransformerEncoder) and any(isinstance(m, SparseLinear) for m in module.modules()):
        module.use_nested_tensor = False


def _matrix(layer: SparseLinear) -> Matrix:
    """The layer's pattern, without its values."""
    crow, col = layer.crow_indices.numpy(), layer.col_indices[: layer.blocks].numpy()
    values = np.zeros(layer.blocks * layer.block_size**2, np.float32)
    return Matrix((layer.out_features, layer.in_features), layer.block_size, crow, col, values)


def _measured(dense: nn.Module, sparse: SparseLinear, rows: int) -> list[float]:
    x = torch.randn(rows, sparse.in_features, dtype=sparse.weight.dtype)
    with torch.inference_mode():
        return least_seconds([lambda: dense(x), lambda: sparse(x)])
