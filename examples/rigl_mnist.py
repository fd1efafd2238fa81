"""Trains a network that is sparse from the start, and moves its weights to where they help most (RigL).

TESSERA_DATA=/path/to/data python examples/rigl_mnist.py --density 0.05 --epochs 10
"""

from __future__ import annotations

import argparse

import images
import torch
from tessera import sparse
from tessera.nn import SparseLinear
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--density", type=float, default=0.05, help="density of the sparse layers")
    parser.add_argument("--block-size", type=int, default=1, help="block size of the sparse layers")
    parser.add_argument("--hidden", type=int, default=512, help="features of the hidden layers")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the training images")
    parser.add_argument("--schedule", choices=["RigL", "SET", "none"], default="RigL", help="how the pattern changes")
    a = parser.parse_args()
    torch.manual_seed(1)
    name, training, test = images.load()

    options = {"density": a.density, "block_size": a.block_size, "dynamic": True}
    model = nn.Sequential(
        SparseLinear(784, a.hidden, activation="relu", **options),
        SparseLinear(a.hidden, a.hidden, activation="relu", **options),
        nn.Linear(a.hidden, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*training), batch_size=128, shuffle=True)
    schedule = None
    if a.schedule != "none":
        until = a.epochs * len(batches) * 3 // 4
        schedule = getattr(sparse, a.schedule)(model, optimizer, every=50, until=until)
    print(f"{name}, {a.schedule}, density {a.density}")
    for epoch in range(a.epochs):
        for x, labels in batches:
            loss = nn.functional.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if schedule is not None:
                schedule.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, accuracy {images.accuracy(model, test):.3f}")


if __name__ == "__main__":
    main()
