"""Products that are run or estimated on a machine."""

from __future__ import annotations

import math
import os
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tessera import _tessera
from tessera._arguments import checked_seed
from tessera._matrices import Matrix, blocks_of
from tessera._pages import in_frame
from tessera._products import type_name
from tessera._tessera import Machine

Mode: TypeAlias = Literal["static", "dynamic", "dense"]
Product: TypeAlias = Literal["forward", "input_gradient", "sddmm"]


class ProductResult:
    """The result of a product Y = W·X, or of one of its gradients, on a machine.

    On the host, seconds are measured; on a modelled machine, the model predicts them. `error` is the largest error of
    an element against float64, relative to the sum of the element's absolute terms. Elements that are NaN or infinite
    in float64 are `verified` if the product's are the same, and have no such error; if W has such elements, `error` is
    NaN. A product that does not fit in the memory of the tiles has no times, and `overflow` says what fills the memory.
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
        """Bytes as an array [tiles, purposes]; on the host it has one row."""
        return self._result.memory

    def to_json(self) -> str:
        """Return the object that `tessera spmm --json` prints."""
        return self._result.to_json()

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write the page of `tessera spmm --report`: results, schedule, memory and plan."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._result.page())

    def _repr_html_(self) -> str:
        return in_frame(self._result.page())

    def __repr__(self) -> str:
        if not self.fits:
            return self.overflow.strip()
        note = "\nW has values that are NaN or infinite; what follows from them has no relative error."
        return self._result.details().strip() + (note if self.error is not None and math.isnan(self.error) else "")


def _full(matrix: Matrix, b: int = 8) -> Matrix:
    """Return the matrix with every block stored, of the size that dense kernels have."""
    blocks = blocks_of(matrix.to_dense(), b)
    rows, cols = blocks.shape[:2]
    values = np.ascontiguousarray(blocks).reshape(-1)
    return Matrix(matrix.shape, b, np.arange(rows + 1) * cols, np.tile(np.arange(cols), rows), values)


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

    `matrix` is any matrix that `Weight` takes. `dtype` is the type of W, and on a modelled machine of X and Y too;
    there "f16-f32" means FP16 with FP32 partial sums. `mode` "dynamic" plans for a pattern that may change, "dense" for
    a full pattern. `product` "input_gradient" is Wᵀ·dY, "sddmm" is dY·Xᵀ at the pattern of W. Without `execute`, times
    are estimated and nothing is multiplied.
    """
    taken = Matrix.of(matrix, block_size)
    n = _tessera.whole_number("n", n, 0)
    seed = checked_seed(seed)
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
