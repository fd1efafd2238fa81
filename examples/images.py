"""MNIST as tensors, for the examples: from the folder that TESSERA_DATA names, else synthetic digits."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

Split = tuple[Tensor, Tensor]  # images [count, 784], labels [count]


def read_idx(path: Path) -> Tensor:
    """An IDX file of bytes, compressed by gzip."""
    with gzip.open(path) as file:
        data = file.read()
    dimensions = data[3]
    shape = np.frombuffer(data, ">i4", dimensions, offset=4)
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy())


def read_mnist(folder: Path, kind: str) -> Split:
    images = read_idx(folder / f"{kind}-images-idx3-ubyte.gz").flatten(1).float() / 255
    return images, read_idx(folder / f"{kind}-labels-idx1-ubyte.gz").long()


def synthetic_digits(count: int, seed: int) -> Split:
    """Ten smooth templates with noise."""
    templates = torch.rand(10, 1, 7, 7, generator=torch.Generator().manual_seed(0))
    templates = torch.nn.functional.interpolate(templates, size=28, mode="bilinear").flatten(1)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    return templates[labels] + 0.5 * torch.randn(count, 784, generator=generator), labels


def load() -> tuple[str, Split, Split]:
    """Name, training and test images; the first four fifths of MNIST's test images train where others are missing."""
    folder = Path(os.environ.get("TESSERA_DATA", "")) / "mnist"
    if (folder / "train-images-idx3-ubyte.gz").exists():
        return "MNIST", read_mnist(folder, "train"), read_mnist(folder, "t10k")
    if (folder / "t10k-images-idx3-ubyte.gz").exists():
        images, labels = read_mnist(folder, "t10k")
        cut = len(labels) * 4 // 5
        return "MNIST's test images", (images[:cut], labels[:cut]), (images[cut:], labels[cut:])
    return "synthetic digits", synthetic_digits(8000, seed=1), synthetic_digits(2000, seed=2)


@torch.inference_mode()
def accuracy(model: torch.nn.Module, test: Split) -> float:
    return (model(test[0]).argmax(1) == test[1]).float().mean().item()
