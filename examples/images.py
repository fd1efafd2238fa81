"""MNIST as tensors, for the examples: from the folder that TESSERA_DATA names, else synthetic digits."""

from __future__ import annotations

import os
from pathlib import Path

import tessera
import torch
from torch import Tensor

Split = tuple[Tensor, Tensor]  # images [count, 784], labels [count]


def tensors(images: tessera.ImageSet) -> Split:
    return torch.from_numpy(images.images).flatten(1).float() / 255, torch.from_numpy(images.labels).long()


def synthetic_digits(count: int, seed: int) -> Split:
    """Ten smooth templates with noise."""
    templates = torch.rand(10, 1, 7, 7, generator=torch.Generator().manual_seed(0))
    templates = torch.nn.functional.interpolate(templates, size=28, mode="bilinear").flatten(1)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    return templates[labels] + 0.5 * torch.randn(count, 784, generator=generator), labels


def load() -> tuple[str, Split, Split]:
    """Name, training and test images."""
    folder = os.environ.get("TESSERA_DATA", "")
    if (Path(folder) / "mnist").is_dir():
        split = tessera.load_images(folder, "mnist")
        return split.name, tensors(split.train), tensors(split.test)
    return "synthetic digits", synthetic_digits(8000, seed=1), synthetic_digits(2000, seed=2)


@torch.inference_mode()
def accuracy(model: torch.nn.Module, test: Split) -> float:
    return (model(test[0]).argmax(1) == test[1]).float().mean().item()
