"""The forms of a model's layers whose weights have zeros."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tessera import _tessera

#: A layer gains if it takes at most this fraction of the dense layer's time: predictions err by about a tenth.
GAIN: float = _tessera.GAIN


@dataclass(frozen=True)
class LayerReport:
    """The form of one layer, and why. Times are seconds of one product.

    A time is NaN where it is not known: for a layer that cannot be sparse, whose density is then the density asked for
    (NaN if none was), and for block sizes that cannot be the fastest.
    """

    name: str
    shape: tuple[int, int]  # out_features, in_features
    density: float  # of the blocks that are stored
    is_sparse: bool
    reason: str  # why it stayed dense; else empty
    dense_seconds: float  # measured if requested, else predicted
    sparse_seconds: float
    block_size: int = 1
    rows: int = 0  # of the layer's input
    copy_bytes: int = 0  # of a separate sparse form, where other operations take the dense weight; else 0

    @property
    def speedup(self) -> float:
        return self.dense_seconds / self.sparse_seconds

    def to_json(self) -> dict[str, Any]:
        """All entries, for `json.dumps`; unknown entries are None."""

        def known(value: Any) -> Any:
            return None if isinstance(value, float) and math.isnan(value) else value

        return {name: known(value) for name, value in asdict(self).items()}


@dataclass(frozen=True)
class SparsityReport:
    """The layers of a model whose weights may be sparse; printing it gives a table."""

    is_measured: bool
    layers: list[LayerReport] = field(default_factory=list)

    @property
    def speedup(self) -> float:
        """The speed-up of all these layers together, in their present forms."""
        timed = [each for each in self.layers if not math.isnan(each.dense_seconds)]
        timed = [each for each in timed if not (each.is_sparse and math.isnan(each.sparse_seconds))]
        now = sum(each.sparse_seconds if each.is_sparse else each.dense_seconds for each in timed)
        return sum(each.dense_seconds for each in timed) / now if timed else 1.0

    def __str__(self) -> str:
        how = "measured" if self.is_measured else "predicted"
        heads = ("layer", "outputs × inputs", "rows", "density", "b", "dense ms", "sparse ms", "speed-up", "")
        rows = [heads, *map(_row, self.layers)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines.append(f"{how}: these layers together {self.speedup:.2f}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """All entries, for `json.dumps`; unknown times are None."""
        return {"is_measured": self.is_measured, "layers": [each.to_json() for each in self.layers]}

    @staticmethod
    def from_json(json: dict[str, Any]) -> SparsityReport:
        def layer(fields: dict[str, Any]) -> LayerReport:
            fields = {name: math.nan if value is None else value for name, value in fields.items()}
            return LayerReport(**{**fields, "shape": tuple(fields["shape"])})

        return SparsityReport(json["is_measured"], [layer(each) for each in json["layers"]])


def kinds_text(seconds: Mapping[str, float]) -> str:
    """Where the time of a call goes, by kind of operation."""
    whole = sum(seconds.values())
    unit, count = ("milliseconds", 1e3) if whole >= 1e-3 else ("microseconds", 1e6)
    parts = ", ".join(f"{kind} {each * count:.2f}" for kind, each in seconds.items())
    return f"{unit} of a call: {whole * count:.2f}, of which {parts}"


def _milliseconds(seconds: float) -> str:
    """Milliseconds to the microsecond; short times with two digits."""
    return f"{seconds * 1e3:{'.2g' if 0 < seconds < 1e-5 else '.3f'}}"


def _row(layer: LayerReport) -> tuple[str, ...]:
    times = (*map(_milliseconds, (layer.dense_seconds, layer.sparse_seconds)), f"{layer.speedup:.2f}")
    times = tuple("" if time == "nan" else time for time in times)
    shape = f"{layer.shape[0]} × {layer.shape[1]}"
    b = str(layer.block_size) if layer.is_sparse else ""
    form = layer.reason or "sparse"
    if layer.copy_bytes:
        form += f", a copy of {layer.copy_bytes / 1e6:.2f} MB"
    return layer.name, shape, str(layer.rows), f"{layer.density:.3g}", b, *times, form
