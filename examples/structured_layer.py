"""Trains networks whose hidden layer has a structured weight, and compares them with a dense one.

    TESSERA_DATA=/path/to/data python examples/structured_layer.py --hidden 1024 --epochs 5

Then the dense layer is projected to each structure that has a projection, and trained a little more.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable

import images
import torch
from tessera.nn import (
    ButterflyLinear,
    CirculantLinear,
    FastfoodLinear,
    LowRankLinear,
    MonarchLinear,
    PixelflyLinear,
    parameter_groups,
    project,
)
from torch import nn

INPUTS = 784
Layer = Callable[[int], nn.Module]
LAYERS: dict[str, Layer] = {
    "dense": lambda n: nn.Linear(INPUTS, n),
    "butterfly": lambda n: ButterflyLinear(INPUTS, n),
    "pixelfly": lambda n: PixelflyLinear(INPUTS, n, rank=8),
    "monarch": lambda n: MonarchLinear(INPUTS, n, nblocks=16, init="scaled"),
    "fastfood": lambda n: FastfoodLinear(INPUTS, n),
    "circulant": lambda n: CirculantLinear(INPUTS, n),
    "low rank": lambda n: LowRankLinear(INPUTS, n, rank=16, init="scaled"),
}
PROJECTIONS = {
    "butterfly": {},
    "pixelfly": {"rank": 8},
    "monarch": {"nblocks": 16},
    "low_rank": {"rank": 16},
}


def train(model: nn.Module, data: images.Split, epochs: int, lr: float, per_factor: bool) -> float:
    """Returns the seconds per step."""
    groups = parameter_groups(model, lr) if per_factor else model.parameters()
    optimizer = torch.optim.Adam(groups, lr=lr)
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data), batch_size=128, shuffle=True)
    start, steps = time.perf_counter(), 0
    for _ in range(epochs):
        for x, labels in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), labels).backward()
            optimizer.step()
            steps += 1
    return (time.perf_counter() - start) / steps


def network(layer: nn.Module, hidden: int) -> nn.Module:
    return nn.Sequential(layer, nn.ReLU(), nn.Linear(hidden, 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=1024, help="features of the hidden layers")
    parser.add_argument("--epochs", type=int, default=5, help="passes over the training images")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--same-lr", action="store_true", help="use the same learning rate for all parameters")
    parser.add_argument("--layers", nargs="+", choices=LAYERS, default=list(LAYERS), help="layers to compare")
    a = parser.parse_args()
    name, training, test = images.load()
    print(f"{name}, hidden layer {INPUTS} to {a.hidden}")
    trained = {}
    for kind in a.layers:
        torch.manual_seed(1)
        model = trained[kind] = network(LAYERS[kind](a.hidden), a.hidden)
        seconds = train(model, training, a.epochs, a.lr, not a.same_lr)
        parameters = sum(p.numel() for p in model[0].parameters())
        accuracy = images.accuracy(model, test)
        print(f"{kind:<10} {parameters:>8} parameters, accuracy {accuracy:.3f}, {1e3 * seconds:.2f} ms per step")
    for structure, options in PROJECTIONS.items():
        if "dense" not in trained:
            break
        model = copy.deepcopy(trained["dense"])
        model[0], error = project(model[0], structure, **options)
        before = images.accuracy(model, test)
        train(model, training, 1, a.lr / 10, False)
        after = images.accuracy(model, test)
        print(f"dense to {structure}: error {error:.3f}, accuracy {before:.3f}; trained again {after:.3f}")


if __name__ == "__main__":
    main()
