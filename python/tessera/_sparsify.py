"""Replacing the dense layers of a model by sparse ones, where that saves time."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable

import torch
from torch import nn

from tessera import _blocks, _tessera
from tessera._layers import GAIN, LayerReport, SparsityReport
from tessera._prepared import STORED_TYPES
from tessera.nn import SparseLinear

# Sizes of the blocks that a dense product may be computed by; the fastest counts.
_DENSE_BLOCKS = (8, 16)


def sparsify_(
    model: nn.Module,
    density: float | None = None,
    block_size: int = 1,
    filter: Callable[[str, nn.Linear], bool] | None = None,
    *,
    rows: int,
    require_speedup: bool = True,
    measure: bool = False,
    dynamic: bool | int = False,
) -> SparsityReport:
    """Prune the linear layers of a model by magnitude and make them sparse, in place.

    Without a density, the zeros stay that are there: a weight's, or those of a mask of `torch.nn.utils.prune`.
    `filter(name, layer)` chooses among all `torch.nn.Linear`. `rows` is the number of rows of a layer's input, such as
    sentences times tokens. With `require_speedup`, layers whose sparse product would not be faster by a tenth stay
    dense, as they were; the report says which. So do layers that share parameters with other modules, and those whose
    type the kernels lack. Times are predicted, or with `measure` measured here, layer by layer. An error leaves the
    model as it was.
    """
    if rows < 1:
        raise ValueError(f"rows is {rows}; it is the number of rows of a layer's input, at least 1")
    if density is not None:
        _blocks.count_for(density, 1)  # refuses what is none
    report = SparsityReport(measure)
    asked = math.nan if density is None else density
    owners = Counter(id(p) for module in model.modules() for p in module._parameters.values() if p is not None)
    replacements: dict[nn.Module, SparseLinear] = {}
    for name, layer in model.named_modules():
        if type(layer) is not nn.Linear or (filter is not None and not filter(name, layer)):
            continue
        if name == "":
            raise ValueError("the model is itself a linear layer: use SparseLinear.from_dense()")
        shape = (layer.out_features, layer.in_features)
        obstacle = _obstacle(layer, owners)
        if obstacle:
            report.layers.append(LayerReport(name, shape, asked, False, obstacle, math.nan, math.nan, block_size, rows))
            continue
        sparse = SparseLinear.from_dense(layer, density=density, block_size=block_size, dynamic=dynamic)
        times = _measured(layer, sparse, rows) if measure else _predicted(sparse, rows)
        stays = require_speedup and times[1] > GAIN * times[0]
        if not stays:
            replacements[layer] = sparse
        reason = "stays dense: sparse would not be clearly faster" if stays else ""
        each = LayerReport(name, shape, sparse.density, not stays, reason, *times, block_size, rows)
        report.layers.append(each)
    _replace(model, replacements)
    return report


def _obstacle(layer: nn.Linear, owners: Counter[int]) -> str:
    """Why a layer cannot be sparse; empty if it can."""
    if layer.weight.dtype not in STORED_TYPES:
        return f"stays dense: weights of {layer.weight.dtype}, not float32, float16 or bfloat16"
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
    """Have an encoder call its layers: in inference PyTorch passes their weights to a kernel of its own."""
    if isinstance(module, nn.TransformerEncoderLayer):
        if isinstance(module.linear1, SparseLinear) or isinstance(module.linear2, SparseLinear):
            module.activation_relu_or_gelu = 0
    elif isinstance(module, nn.TransformerEncoder) and any(isinstance(m, SparseLinear) for m in module.modules()):
        module.use_nested_tensor = False


def _predicted(layer: SparseLinear, rows: int) -> tuple[float, float]:
    dense = min(_seconds(_full_weight(layer.out_features, layer.in_features, b), rows) for b in _DENSE_BLOCKS)
    return dense, _seconds(layer._native(), rows)


def _seconds(weight: _tessera.Weight, rows: int) -> float:
    return _tessera.Spmm(weight, rows).predicted_seconds(x_column_major=True, y_column_major=True)


def _full_weight(out_features: int, in_features: int, block_size: int) -> _tessera.Weight:
    """A weight in which every block is stored."""
    block_rows, block_cols = grid = _blocks.grid_of(out_features, in_features, block_size)
    crow, col = _blocks.csr_of(torch.arange(block_rows * block_cols), grid, block_rows * block_cols)
    return _tessera.Weight.without_values((out_features, in_features), block_size, crow, col)


def _measured(dense: nn.Linear, sparse: SparseLinear, rows: int) -> tuple[float, float]:
    x = torch.randn(rows, dense.in_features, dtype=dense.weight.dtype)
    times: tuple[list[float], list[float]] = [], []
    with torch.inference_mode():
        for _ in range(7):  # in turn, so that what else the computer does disturbs both
            for layer, of_layer in zip((dense, sparse), times, strict=True):
                start = time.perf_counter()
                layer(x)
                of_layer.append(time.perf_counter() - start)
    return statistics.median(times[0][1:]), statistics.median(times[1][1:])
