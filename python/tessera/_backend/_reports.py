"""Reports on graphs and their weights, as data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tessera._layers import LayerReport, SparsityReport


@dataclass(frozen=True)
class GraphReport:
    """A report on one graph of `torch.compile(backend="tessera")`; printing it gives text and a table."""

    name: str  # as in the log: "graph 0, inference"
    sizes: tuple[Any, ...] = ()  # of the dimensions that the graph leaves open
    operators: int = 0
    taken: int = 0  # by sessions
    parts: int = 0  # each a session
    #: The operators that PyTorch computes, with the reason, and their numbers, such as
    #: {"aten.cumprod.default: there is no such operation": 2}.
    by_pytorch: dict[str, int] = field(default_factory=dict)
    error: str = ""  # makes PyTorch compute the whole graph
    #: Named by the graph and, in parentheses, by module; with predicted times once sessions have been called.
    weights: SparsityReport = field(default_factory=lambda: SparsityReport(False))

    def operators_text(self) -> str:
        if self.error:
            return f"{self.name}: PyTorch computes all of it: {self.error}"
        others = "".join(f"\n  {count} × {each}" for each, count in self.by_pytorch.items()) or " nothing"
        parts = "1 part" if self.parts == 1 else f"{self.parts} parts"
        taken = f"{self.taken} of {self.operators} operators are taken, in {parts}"
        return f"{self.name}: {taken}; PyTorch computes{others}"

    def __str__(self) -> str:
        return f"{self.operators_text()}\n{self.weights}"

    def to_json(self) -> dict[str, Any]:
        """All entries, for `json.dumps`."""
        return {
            "name": self.name,
            "sizes": list(self.sizes),
            "operators": self.operators,
            "taken": self.taken,
            "parts": self.parts,
            "by_pytorch": self.by_pytorch,
            "error": self.error,
            "weights": self.weights.to_json(),
        }


def dense(name: str, shape: Sequence[int], density: float, reason: str) -> LayerReport:
    """The report of a weight for which no sparse form is considered."""
    matrix = (shape[0], math.prod(shape[1:])) if shape else (1, 1)
    return LayerReport(name, matrix, density, False, reason, math.nan, math.nan)
