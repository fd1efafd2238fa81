"""The time of a layer's call from Python, beside the time of the products that it calls in C++, on one thread.

    python bench/python/calls.py                     # a ButterflyLinear of N = 1024, with batches of 1 and 64
    python bench/python/calls.py --small             # layers of 64 × 64 with a batch of 8, whose products are short

Jobs take turns. Prints least times in microseconds. Through the dispatcher, PyTorch sees the operators, as it has to in
torch.compile or under a dispatch mode; otherwise layers call the kernels directly.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator

import torch
from linear import Job, inferred, trained
from structured import least
from torch import Tensor, nn

import tessera
from tessera import _eager
from tessera._structured_products import butterfly, product_for
from tessera.nn import ButterflyLinear, MonarchLinear, SparseLinear


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Layers call their operators by the dispatcher, as if something had to see them."""
    _eager._WATCHERS.append(lambda: True)
    try:
        yield
    finally:
        _eager._WATCHERS.pop()


def through_dispatcher(job: Job) -> Job:
    def run() -> None:
        with watched():
            job()

    return run


class Operator(nn.Module):
    """A layer's operator and its bias, as the dispatcher sees them."""

    def __init__(self, layer: ButterflyLinear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        one = self.layer
        y: Tensor = torch.ops.tessera.butterfly.default(x, one.twiddle, one.out_features, one.increasing_stride)
        return y + one.bias


def recorded(layer: nn.Module, x: Tensor) -> Job:
    """A forward pass that keeps what gradients need."""
    return lambda: layer(x)


def native_calls(layer: ButterflyLinear, x: Tensor, dy: Tensor) -> tuple[Job, Job]:
    """The forward product with its bias, and with the gradients of x and the parameters, on arrays that exist."""
    structure = butterfly(x, layer.twiddle, layer.out_features, layer.increasing_stride)
    product = product_for(structure, x.shape[0], True)
    held = [layer.twiddle, layer.bias]
    y, dx = torch.empty_like(dy), torch.empty_like(x)
    gradients = [torch.empty_like(each) for each in held]

    def addresses(tensors: list[Tensor]) -> list[int]:
        return [each.data_ptr() for each in tensors]

    def forward() -> None:
        product.run(x.data_ptr(), addresses(held), y.data_ptr())

    def both() -> None:
        forward()
        product.run_gradients(x.data_ptr(), dy.data_ptr(), addresses(held), dx.data_ptr(), addresses(gradients))

    return forward, both


def show(title: str, times: dict[str, float]) -> None:
    print(f"{title}: " + "; ".join(f"{name} {microseconds:.3g}" for name, microseconds in times.items()), flush=True)


def butterfly_calls(batch: int, rounds: int) -> None:
    layer, x, dy = ButterflyLinear(1024, 1024), torch.randn(batch, 1024), torch.randn(batch, 1024)
    forward, both = native_calls(layer, x, dy)
    operator = Operator(layer)
    jobs = {
        "forward, C++": forward,
        "inference": inferred(layer, x),
        "gradients recorded": recorded(layer, x),
        "inference, dispatcher": inferred(operator, x),
        "gradients recorded, dispatcher": recorded(operator, x),
        "forward and backward, C++": both,
        "layer": trained(layer, x, dy),
        "layer, dispatcher": trained(operator, x, dy),
    }
    show(f"batch {batch}", least(jobs, rounds))


def small_calls(rounds: int) -> None:
    layers: dict[str, nn.Module] = {
        "butterfly": ButterflyLinear(64, 64),
        "nn.Linear": nn.Linear(64, 64),
        "Monarch": MonarchLinear(64, 64, nblocks=8),
        "SparseLinear": SparseLinear.from_dense(nn.Linear(64, 64), density=1 / 4, block_size=16),
    }
    x, dy = torch.randn(8, 64), torch.randn(8, 64)
    jobs: dict[str, Job] = {}
    for name, layer in layers.items():
        inference, record, train = inferred(layer, x), recorded(layer, x), trained(layer, x, dy)
        jobs |= {f"{name}, inference": inference, f"{name}, recorded": record, f"{name}, both passes": train}
        if name == "SparseLinear":
            passes = (("inference", inference), ("recorded", record), ("both passes", train))
            jobs |= {f"{name}, dispatcher, {each}": through_dispatcher(job) for each, job in passes}
    for name, microseconds in least(jobs, rounds).items():
        print(f"  {name:<42}{microseconds:8.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="measure small layers instead")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--rounds", type=int, default=60)
    a = parser.parse_args()
    torch.set_num_threads(1)
    tessera.set_num_threads(1)
    print(f"PyTorch {torch.__version__}, 1 thread; microseconds")
    if a.small:
        small_calls(a.rounds)
        return
    for batch in a.batch:
        butterfly_calls(batch, a.rounds)


if __name__ == "__main__":
    main()
