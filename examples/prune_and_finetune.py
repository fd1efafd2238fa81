"""Prunes a trained network by magnitude, trains what is left a little more, and saves it.

python examples/prune_and_finetune.py --density 0.1 --block-size 8
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import images
import tessera
import torch
from torch import nn


def train(model: nn.Module, data: images.Split, epochs: int, lr: float) -> float:
    """Returns the seconds per step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    batches = list(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data), batch_size=128, shuffle=True))
    start = time.perf_counter()
    for _ in range(epochs):
        for x, labels in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), labels).backward()
            optimizer.step()
    return (time.perf_counter() - start) / (epochs * len(batches))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--density", type=float, default=0.1, help="density after pruning")
    parser.add_argument("--block-size", type=int, default=8, help="block size of the sparse layers")
    parser.add_argument("--hidden", type=int, default=1024, help="features of the hidden layers")
    parser.add_argument("--epochs", type=int, default=5, help="passes over the training images")
    a = parser.parse_args()
    torch.manual_seed(1)
    name, training, test = images.load()

    model = nn.Sequential(
        nn.Linear(784, a.hidden), nn.ReLU(), nn.Linear(a.hidden, a.hidden), nn.ReLU(), nn.Linear(a.hidden, 10)
    )
    seconds = train(model, training, a.epochs, 1e-3)
    print(f"{name}, dense: accuracy {images.accuracy(model, test):.3f}, {seconds * 1e3:.1f} ms per step")

    report = tessera.sparsify_(
        model, a.density, a.block_size, rows=128, filter=lambda name, layer: layer.out_features > 10
    )
    print(report)
    print(f"pruned: accuracy {images.accuracy(model, test):.3f}")
    seconds = train(model, training, a.epochs, 5e-4)
    print(f"trained again: accuracy {images.accuracy(model, test):.3f}, {seconds * 1e3:.1f} ms per step")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sparse.pt"
        torch.save(model.state_dict(), path)
        dense = sum(layer.shape[0] * layer.shape[1] * 4 for layer in report.layers)
        print(f"saved in {path.stat().st_size / 1e6:.1f} MB; the dense layers alone had {dense / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
