"""SparseLinear beside PyTorch's dense, CSR and BSR products, SparseLab's layer, and the C++ calls, in one run.

    python bench/python/linear.py                     # m = k = 4096, n = 512, density 1/16, FP32
    python bench/python/linear.py --block 16 --rounds 20

All take turns, so that other programs disturb all of them alike. Prints medians in milliseconds. Candidates that are
not installed, or that PyTorch does not implement, are left out. The last lines show the cost of using PyTorch's threads
and the kernels' in turn: a loop of one dense and one sparse layer, beside the sum of the times of each alone.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import torch

from tessera import _tessera
from tessera._threads import share_threads
from tessera.nn import SparseLinear

warnings.filterwarnings("ignore", "Sparse .* tensor support is in beta")

Job = Callable[[], object]


def medians(jobs: dict[str, Job], rounds: int) -> dict[str, float]:
    """Milliseconds of each job, in turn; jobs that PyTorch cannot do are left out."""
    times: dict[str, list[float]] = {}
    for name, job in list(jobs.items()):
        try:
            job()
            times[name] = []
        except (NotImplementedError, RuntimeError) as error:
            print(f"{name}: left out: {str(error).splitlines()[0]}")
            del jobs[name]
    for _ in range(rounds):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(of_job) for name, of_job in times.items()}


def report(title: str, result: dict[str, float]) -> None:
    print(title)
    for name, milliseconds in result.items():
        print(f"  {name:<28}{milliseconds:9.3f} ms")


def trained(layer: torch.nn.Module, x: torch.Tensor, dy: torch.Tensor) -> Job:
    """A step's forward and backward pass, with the gradient of x."""
    x = x.clone().requires_grad_()

    def step() -> None:
        x.grad = None
        layer.zero_grad()
        layer(x).backward(dy)

    return step


def inferred(layer: torch.nn.Module, x: torch.Tensor) -> Job:
    def step() -> None:
        with torch.inference_mode():
            layer(x)

    return step


def native_calls(layer: SparseLinear, x: torch.Tensor, dy: torch.Tensor) -> tuple[Job, Job]:
    """The C++ products on existing arrays: the forward product, and all three."""
    n = x.shape[0]
    weight, values = layer._native(), layer.weight.detach()
    forward = _tessera.Spmm(weight, n, bias=True)
    backward = _tessera.Spmm(weight, n, transpose=True)
    gradient = _tessera.Sddmm(weight, n)
    y, dx, dw = torch.empty_like(dy), torch.empty_like(x), torch.empty_like(values)
    address = torch.Tensor.data_ptr
    bias = address(layer.bias)

    def one() -> None:
        forward.run(address(x), 0, True, address(y), 0, True, bias, 1.0, 0.0, address(values))

    def three() -> None:
        one()
        backward.run(address(dy), 0, True, address(dx), 0, True, 0, 1.0, 0.0, address(values))
        gradient.run(address(dy), 0, True, address(x), 0, True, address(dw))

    return one, three


def rivals(layer: SparseLinear, x: torch.Tensor) -> dict[str, Job]:
    """PyTorch's sparse products, each also with the layout of X that suits it."""
    w, xt, b = layer.dense_weight(), x.t().contiguous(), layer.block_size
    csr = w.to_sparse_csr()
    jobs: dict[str, Job] = {
        "F.linear, CSR": lambda: torch.nn.functional.linear(x, csr),
        "CSR @ X (k × n)": lambda: csr @ xt,
    }
    if b > 1:
        bsr = w.to_sparse_bsr((b, b))
        jobs["F.linear, BSR"] = lambda: torch.nn.functional.linear(x, bsr)
        jobs["BSR @ X (k × n)"] = lambda: bsr @ xt
    return jobs


def sparselab_layer(dense: torch.nn.Linear, density: float) -> torch.nn.Module | None:
    try:
        import sparselab
    except ImportError:
        return None
    layer: torch.nn.Module = sparselab.SparseLinear(dense.in_features, dense.out_features, sparsity=1 - density)
    return layer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--in-features", type=int, default=4096)
    parser.add_argument("--out-features", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--density", type=float, default=1 / 16)
    parser.add_argument("--block", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--own-threads", action="store_true", help="use Tessera's own threads instead of PyTorch's")
    a = parser.parse_args()
    shares = share_threads(not a.own_threads)
    print(
        f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads; kernels on {'its' if shares else 'own'} ones"
    )
    x, dy = torch.randn(a.batch, a.in_features), torch.randn(a.batch, a.out_features)
    for block in a.block:
        dense = torch.nn.Linear(a.in_features, a.out_features)
        layer = SparseLinear.from_dense(dense, density=a.density, block_size=block)
        one, three = native_calls(layer, x, dy)
        forward = {"nn.Linear": inferred(dense, x), "SparseLinear": inferred(layer, x), "C++ call": one}
        training = {"nn.Linear": trained(dense, x, dy), "SparseLinear": trained(layer, x, dy), "three C++ calls": three}
        if block == 1 and (other := sparselab_layer(dense, a.density)) is not None:
            forward["SparseLab"], training["SparseLab"] = inferred(other, x), trained(other, x, dy)
        with torch.inference_mode():
            report(f"forward, b = {block}", medians(forward | rivals(layer, x), a.rounds))
        report(f"forward and backward, b = {block}", medians(training, a.rounds))

        def both(first: Job = forward["nn.Linear"], second: Job = forward["SparseLinear"]) -> None:
            first()
            second()

        alone = {name: medians({name: forward[name]}, a.rounds)[name] for name in ("nn.Linear", "SparseLinear")}
        turns = medians({"in turn": both}, a.rounds)["in turn"]
        print(
            f"dense and sparse in turn, b = {block}: {turns:.3f} ms, {turns / sum(alone.values()):.2f} of the sum alone"
        )


if __name__ == "__main__":
    main()
