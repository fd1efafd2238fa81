"""Structured layers of Tessera beside PyTorch: dense, and the same structure in PyTorch's operations.

    python bench/python/structured.py                          # N = 1024, batches of 64 and 256
    python bench/python/structured.py --size 4096 --batch 64 --structures butterfly monarch

For each structure, a layer N × N takes turns with nn.Linear, with the same formula compiled by torch.compile (unless
--no-compile), and for circulant, Toeplitz and fastfood with PyTorch's FFT or two dense products with Hadamard matrices.
Turns last half a millisecond or one run, so that other programs disturb all candidates alike; the least time counts.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import torch
from linear import Job, inferred, trained
from torch import Tensor, nn

import tessera
from tessera.nn import (
    BlockDiagonalLinear,
    ButterflyLinear,
    CirculantLinear,
    FastfoodLinear,
    LowRankLinear,
    MonarchLinear,
    PixelflyLinear,
    StructuredLinear,
    ToeplitzLinear,
    formulas,
)

LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "butterfly": lambda n: ButterflyLinear(n, n),
    "tied butterfly": lambda n: ButterflyLinear(n, n, tied=True),
    "monarch": lambda n: MonarchLinear(n, n, nblocks=1 << (n.bit_length() // 2)),
    "block diagonal": lambda n: BlockDiagonalLinear(n, n, nblocks=8),
    "pixelfly": lambda n: PixelflyLinear(n, n, block_size=64, rank=32),
    "fastfood": lambda n: FastfoodLinear(n, n),
    "circulant": lambda n: CirculantLinear(n, n),
    "toeplitz": lambda n: ToeplitzLinear(n, n),
    "low rank": lambda n: LowRankLinear(n, n, rank=32),
}


class ByFormula(nn.Module):
    """A layer in PyTorch's operations, with the same parameters."""

    def __init__(self, layer: StructuredLinear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer.reference(x)


class MatrixFastfood(nn.Module):
    """Fastfood with dense Hadamard matrices, as libraries without the transform compute it."""

    def __init__(self, layer: FastfoodLinear) -> None:
        super().__init__()
        self.layer = layer
        self.register_buffer("h", formulas.hadamard(torch.eye(layer.S.shape[1])))

    def forward(self, x: Tensor) -> Tensor:
        one = self.layer
        y = one.S[0] * ((one.G[0] * ((one.B[0] * x) @ self.h)[..., one.P[0]]) @ self.h)
        return y if one.bias is None else y + one.bias


def least(jobs: dict[str, Job], rounds: int) -> dict[str, float]:
    """Microseconds of each job, in turn."""
    repeats, times = {}, dict.fromkeys(jobs, math.inf)
    for name, job in jobs.items():
        for _ in range(3):
            job()
        start = time.perf_counter()
        job()
        repeats[name] = max(1, int(5e-4 / (time.perf_counter() - start)))
    for _ in range(rounds):
        for name, job in jobs.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                job()
            times[name] = min(times[name], 1e6 * (time.perf_counter() - start) / repeats[name])
    return times


def rivals(layer: nn.Module, compiles: bool) -> dict[str, nn.Module]:
    others: dict[str, nn.Module] = {}
    torch._dynamo.reset()
    if isinstance(layer, (CirculantLinear, ToeplitzLinear)):
        others["PyTorch's FFT"] = ByFormula(layer)
    elif isinstance(layer, FastfoodLinear):
        others["Hadamard matrices"] = MatrixFastfood(layer)
    if compiles and isinstance(layer, StructuredLinear) and not isinstance(layer, LowRankLinear):
        others["torch.compile"] = torch.compile(ByFormula(layer))  # type: ignore[assignment]
    return others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--structures", nargs="+", choices=LAYERS, default=list(LAYERS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--no-compile", action="store_true")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    tessera.set_num_threads(a.threads)
    print(f"PyTorch {torch.__version__}, {a.threads} threads, N = {a.size}; microseconds, and speed-up over nn.Linear")
    for batch in a.batch:
        x, dy = torch.randn(batch, a.size), torch.randn(batch, a.size)
        for structure in a.structures:
            layer = LAYERS[structure](a.size)
            modules = {"nn.Linear": nn.Linear(a.size, a.size), "tessera": layer, **rivals(layer, not a.no_compile)}
            passes = {
                "forward": least({name: inferred(module, x) for name, module in modules.items()}, a.rounds),
                "forward and backward": least({n: trained(m, x, dy) for n, m in modules.items()}, a.rounds),
            }
            for name, times in passes.items():
                columns = [f"{who} {t:.0f} ({times['nn.Linear'] / t:.2f})" for who, t in times.items()]
                print(f"batch {batch}, {structure}, {name}: {'; '.join(columns)}", flush=True)


if __name__ == "__main__":
    main()
