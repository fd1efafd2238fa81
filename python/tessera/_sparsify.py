"""Replacing the dense layers of a model by sparse ones, where that saves time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from tessera import _blocks, _tessera
from tessera.nn import SparseLinear

# Sizes of the blocks that a dense product may be computed by; the fastest counts.
_DENSE_BLOCKS = (8, 16)

# A layer gains if it takes at most this part of the dense one's time: times err by about a tenth.
_GAIN = 0.9


@dataclass(frozen=True)
class LayerReport:
    """What became of one layer. Times are those of a forward pass of the batch, in seconds."""

    name: str
    shape: tuple[int, int]  # out_features, in_features
    density: float
    is_sparse: bool
    reason: str  # why it stayed dense; else empty
    dense_seconds: float  # measured if requested, else predicted
    sparse_seconds: float

    @property
    def speedup(self) -> float:
        return self.dense_seconds / self.sparse_seconds


@dataclass(frozen=True)
class SparsifyReport:
    """The layers of a model that `sparsify_` considered; printing it gives a table."""

    batch: int
    is_measured: bool
    layers: list[LayerReport] = field(default_factory=list)

    @property
    def speedup(self) -> float:
        """Of all these layers together, as they are now."""
        now = sum(each.sparse_seconds if each.is_sparse else each.dense_seconds for each in self.layers)
        return sum(each.dense_seconds for each in self.layers) / now if self.layers else 1.0

    def __str__(self) -> str:
        how = "measured" if self.is_measured else "predicted"
        rows = [("layer", "outputs × inputs", "density", "dense ms", "sparse ms", "speed-up", "")]
        for each in self.layers:
            times = f"{each.dense_seconds * 1e3:.3f}", f"{each.sparse_seconds * 1e3:.3f}", f"{each.speedup:.2f}"
            shape = f"{each.shape[0]} × {each.shape[1]}"
            rows.append((each.name, shape, f"{each.density:.3g}", *times, each.reason or "sparse"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines.append(f"{how} for a batch of {self.batch}: these layers together {self.speedup:.2f}")
        return "\n".join(lines)


def sparsify_(
    model: nn.Module,
    density: float,
    block_size: int = 1,
    filter: Callable[[str, nn.Linear], bool] | None = None,
    *,
    batch: int,
    require_speedup: bool = True,
    measure: bool = False,
    dynamic: bool | int = False,
) -> SparsifyReport:
    """Prune the linear layers of a model by magnitude and make them sparse, in place.

    `filter(name, layer)` chooses among all `torch.nn.Linear`. `batch` is the number of rows of a layer's input, such as
    sentences times tokens. With `require_speedup`, layers whose sparse product would not be faster by a tenth stay
    dense, as they were; the report says which. Times are predicted, or with `measure` measured here, layer by layer.
    """
    if batch < 1:
        raise ValueError(f"batch is {batch}; it is the number of rows of a layer's input, at least 1")
    report = SparsifyReport(batch, measure)
    for name, layer in list(model.named_modules()):
        if type(layer) is not nn.Linear or (filter is not None and not filter(name, layer)):
            continue
        if name == "":
            raise ValueError("the model is itself a linear layer: use SparseLinear.from_dense()")
        sparse = SparseLinear.from_dense(layer, density=density, block_size=block_size, dynamic=dynamic)
        times = _measured(layer, sparse, batch) if measure else _predicted(sparse, batch)
        stays = require_speedup and times[1] > _GAIN * times[0]
        if not stays:
            model.set_submodule(name, sparse)
        shape = (layer.out_features, layer.in_features)
        reason = "stays dense: sparse would not be clearly faster" if stays else ""
        report.layers.append(LayerReport(name, shape, sparse.density, not stays, reason, *times))
    return report


def _predicted(layer: SparseLinear, batch: int) -> tuple[float, float]:
    dense = min(_seconds(_full_weight(layer.out_features, layer.in_features, b), batch) for b in _DENSE_BLOCKS)
    return dense, _seconds(layer._native(), batch)


def _seconds(weight: _tessera.Weight, batch: int) -> float:
    return _tessera.Spmm(weight, batch).predicted_seconds(x_column_major=True, y_column_major=True)


def _full_weight(out_features: int, in_features: int, block_size: int) -> _tessera.Weight:
    """A weight in which every block is stored."""
    rows, cols = grid = _blocks.grid_of(out_features, in_features, block_size)
    crow, col = _blocks.csr_of(torch.arange(rows * cols), grid, rows * cols)
    return _tessera.Weight.without_values((out_features, in_features), block_size, crow, col)


def _measured(dense: nn.Linear, sparse: SparseLinear, batch: int) -> tuple[float, float]:
    x = torch.randn(batch, dense.in_features, dtype=dense.weight.dtype)
    times: tuple[list[float], list[float]] = [], []
    with torch.inference_mode():
        for _ in range(7):  # in turn, so that what else the computer does disturbs both
            for layer, of_layer in zip((dense, sparse), times, strict=True):
                start = time.perf_counter()
                layer(x)
                of_layer.append(time.perf_counter() - start)
    return statistics.median(times[0][1:]), statistics.median(times[1][1:])
