"""Products that are run or estimated on a machine."""

from __future__ import annotations

import html
import math
import os
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tessera import _tessera
from tessera._matrices import Matrix, seed_of
from tessera._products import type_name
from tessera._tessera import Machine

Mode: TypeAlias = Literal["static", "dynamic", "dense"]
Product: TypeAlias = Literal["forward", "input_gradient", "sddmm"]


class ProductResult:
    """A product Y = W·X, or of its gradients, on a machine.

    On the host seconds are measured, on a modelled machine they are the model's; `error` is the largest
    error of an element, relative to the sum of its absolute terms, against float64. Elements that are NaN or
    infinite there are `verified` if they are the same here, and have no such error: where W has some, `error` is NaN.
    A product that does not fit in the memory of the tiles has no times, and `overflow` says what fills it.
    """

    def __init__(self, result: _tessera.ProductResult) -> None:
        self._result = result
        self.fits: bool = result.fits
        self.overflow: str = result.overflow
        self.seconds: float | None = result.seconds
        self.predicted_seconds: float = result.predicted_seconds
        self.cycles: float | None = result.cycles
        #: Seconds by phase: "compute", "exchange", "sync", …
        self.phases: dict[str, float] = result.phases
        #: The columns of `memory`: "parameter", "gradient", …; "other" is code, vertex state, stacks and padding.
        self.purposes: list[str] = result.purposes
        self.verified: bool | None = result.verified
        self.error: float | None = result.error
        self.tolerance: float | None = result.tolerance
        #: The plan in one line.
        self.plan: str = result.plan.strip()

    @property
    def memory(self) -> NDArray[np.uint64]:
        """Bytes, tiles × purposes; on the host one row."""
        return self._result.memory

    def to_json(self) -> str:
        """Return what `tessera spmm --json` prints."""
        return self._result.to_json()

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write the page of `tessera spmm --report`: results, schedule, memory and plan."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._result.page())

    def _repr_html_(self) -> str:
        page = html.escape(self._result.page(), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 45em; border: 0"></iframe>'

    def __repr__(self) -> str:
        if not self.fits:
            return self.overflow.strip()
        note = "\nW has values that are NaN or infinite; what follows from them has no relative error."
        return self._result.details().strip() + (note if self.error is not None and math.isnan(self.error) else "")


def _full(matrix: Matrix, b: int = 8) -> Matrix:
    """Return the matrix with every block stored, of the size that dense kernels have."""
    m, k = matrix.shape
    rows, cols = -(-m // b), -(-k // b)
    padded = np.zeros((rows * b, cols * b), np.float32)
    padded[:m, :k] = matrix.to_dense()
    values = np.ascontiguousarray(padded.reshape(rows, b, cols, b).swapaxes(1, 2)).reshape(-1)
    return Matrix((m, k), b, np.arange(rows + 1) * cols, np.tile(np.arange(cols), rows), values)


def profile_product(
    matrix: Any,
    n: int,
    machine: Machine | str = "host",
    *,
    dtype: DTypeLike | str = "f32",
    mode: Mode = "static",
    planner: Literal["best", "vendor"] = "best",
    product: Product = "forward",
    block_size: int | None = None,
    execute: bool = True,
    verify: Literal["auto", "full", "sample", "none"] = "auto",
    seed: int = 1,
) -> ProductResult:
    """Multiply by n columns on a machine: plan, compile, run with synthetic X, and compare with float64.

    `matrix` is what `Weight` takes. `dtype` is that of W, on a modelled machine of X and Y too; there "f16-f32"
    has FP32 partial sums. `mode` "dynamic" plans for a pattern that may change, "dense" for a full one. `product`
    "input_gradient" is Wᵀ·dY, "sddmm" is dY·Xᵀ at the pattern. Without `execute`, times are accounted and nothing is
    multiplied.
    """
    taken = Matrix.of(matrix, block_size)
    n = _tessera.whole_number("n", n, 0)
    seed = seed_of(seed)
    if mode == "dense":
        taken = _full(taken)
    chosen = Machine(machine) if isinstance(machine, str) else machine
    if not isinstance(chosen, Machine):
        raise TypeError(f"machine must be a name or a Machine, not {machine!r}")
    name = "f16-f32" if dtype == "f16-f32" else type_name(dtype)
    result = ProductResult(
        _tessera.run_product(taken, n, chosen, name, mode, planner, product, execute, verify, seed)
    )
    if result.error is not None and product != "sddmm" and not np.isfinite(taken.values).all():
        result.error = math.nan
    return result
