"""Labelled images: data sets in their official formats, and synthetic ones."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessera import _tessera


@dataclass(frozen=True)
class ImageSet:
    """Images of one size with the class of each."""

    images: NDArray[np.uint8]  #: [count, channels, height, width]
    labels: NDArray[np.uint8]  #: [count], less than `classes`
    classes: int

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class ImageSplit:
    """Images for training and testing."""

    name: str
    train: ImageSet
    test: ImageSet


def load_images(folder: str | os.PathLike[str], name: str = "") -> ImageSplit:
    """Read "mnist" or "cifar-10" (default: what is there) under their official file names, in `folder` or below it.

    MNIST's files (IDX) may be compressed by gzip; if those for training are missing, the last fifth of the test images
    tests and the others train. CIFAR-10 is read in its binary version. Raises RuntimeError, naming the file, for
    missing and malformed ones.
    """
    return _split(_tessera.load_images(os.fspath(folder), name))


def synthetic_images(
    train: int, test: int, seed: int = 0, *, height: int = 28, width: int = 28, classes: int = 10
) -> ImageSplit:
    """Make images of a few smooth templates per class, shifted, scaled and with noise."""
    counts = {"train": train, "test": test, "height": height, "width": width, "classes": classes}
    checked = {name: _tessera.whole_number(name, count) for name, count in counts.items()}
    seed = _tessera.whole_number("seed", seed, 0, 2**64 - 1)
    return _split(_tessera.synthetic_images(seed=seed, **checked))


def _split(parts: tuple[Any, ...]) -> ImageSplit:
    name, train, test = parts
    return ImageSplit(name, ImageSet(*train), ImageSet(*test))
