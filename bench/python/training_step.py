"""A training step by tessera.graph beside PyTorch's eager mode, fused optimizer and torch.compile, in one run.

    python bench/python/training_step.py                 # two networks, dense and 90 % sparse; SGD with momentum
    python bench/python/training_step.py --rounds 100 --threads 1 --optimizer adam

All take turns, so that other programs disturb all of them alike. Prints least times and medians in milliseconds, each
with the speed-up over the best way of PyTorch, which always trains the dense network. Each step takes a batch of
tensors and returns its loss.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import tessera
from tessera import graph as tg
from tessera.nn import SparseLinear

Step = Callable[[], float]
RATE = 0.01
NETWORKS = {"1024-1024-10, batch 50": ((1024, 1024, 10), 50), "784-1024-1024-10, batch 256": ((784, 1024, 1024, 10), 256)}
KINDS = {"dense": None, "10 % dynamic, b = 16": 16, "10 % dynamic, b = 1": 1}


def network(sizes: tuple[int, ...], block: int | None) -> nn.Sequential:
    """A network in which all layers but the last are sparse, if there is a block size."""
    layers: list[nn.Module] = []
    for k, m in zip(sizes, sizes[1:], strict=False):
        last = m == sizes[-1]
        dense = nn.Linear(k, m)
        sparse = block is not None and not last
        layers += [SparseLinear.from_dense(dense, density=0.1, block_size=block, dynamic=True) if sparse else dense]
        layers += [] if last else [nn.ReLU()]
    return nn.Sequential(*layers)


def optimizer_of(module: nn.Module, name: str, fused: bool) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(module.parameters(), RATE, momentum=0.9, fused=fused)
    return torch.optim.Adam(module.parameters(), RATE, fused=fused)


def in_pytorch(
    module: nn.Module, name: str, x: Tensor, labels: Tensor, *, fused: bool, compiled: bool = False
) -> Step:
    optimizer = optimizer_of(module, name, fused)

    def loss_of(x: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(module(x), labels)

    forward = torch.compile(loss_of) if compiled else loss_of

    def step() -> float:
        optimizer.zero_grad()
        loss = forward(x, labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def in_tessera(module: nn.Module, name: str, x: Tensor, labels: Tensor, threads: int) -> Step:
    momentum = 0.9 if name == "sgd" else 0.0
    step = tg.from_torch(module, x).training_step("cross_entropy", name, lr=RATE, momentum=momentum)
    session = step.session(threads=threads)
    return lambda: float(session.run(x, labels))


def steps_of(sizes: tuple[int, ...], batch: int, block: int | None, name: str, threads: int) -> dict[str, Step]:
    x, labels = torch.randn(batch, sizes[0]), torch.randint(sizes[-1], (batch,))
    dense = network(sizes, None)
    ours = dense if block is None else network(sizes, block)
    steps = {
        "PyTorch, eager": in_pytorch(copy.deepcopy(dense), name, x, labels, fused=False),
        "PyTorch, fused": in_pytorch(copy.deepcopy(dense), name, x, labels, fused=True),
        "PyTorch, compiled": in_pytorch(copy.deepcopy(dense), name, x, labels, fused=True, compiled=True),
    }
    if block is not None:
        steps["SparseLinear, fused"] = in_pytorch(copy.deepcopy(ours), name, x, labels, fused=True)
    return steps | {"tessera.graph": in_tessera(ours, name, x, labels, threads)}


def measured(steps: dict[str, Step], rounds: int) -> dict[str, tuple[float, float]]:
    """Least time and median of each, in milliseconds."""
    for step in steps.values():
        for _ in range(5):
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: (min(of_step), statistics.median(of_step)) for name, of_step in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    tessera.set_num_threads(a.threads)
    print(f"PyTorch {torch.__version__}, {a.threads} threads, {a.optimizer}")
    for title, (sizes, batch) in NETWORKS.items():
        for kind, block in KINDS.items():
            torch.manual_seed(1)
            result = measured(steps_of(sizes, batch, block, a.optimizer, a.threads), a.rounds)
            best = [min(of[i] for name, of in result.items() if name.startswith("PyTorch")) for i in (0, 1)]
            print(f"{title}, {kind}")
            for name, of in result.items():
                columns = (f"{of[i]:9.3f} ms{best[i] / of[i]:6.2f} ×" for i in (0, 1))
                print(f"  {name:<22}{'   '.join(columns)}")


if __name__ == "__main__":
    main()
