"""Labelled images: data sets in their official formats, and synthetic images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tessera import _tessera
from tessera._arguments import checked_seed


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
    """Read "mnist" or "cifar-10" (default: the data set that is there) under its official file names, in `folder` or
    below it.

    MNIST's files (IDX) may be compressed by gzip; if the training files are missing, the last fifth of the test images
    becomes the test set, and the other images the training set. CIFAR-10 is read in its binary version. Raises
    RuntimeError, naming the file, for missing and malformed files.
    """
    return _split(_tessera.load_images(os.fspath(folder), name))


def synthetic_images(
    train: int, test: int, seed: int = 0, *, height: int = 28, width: int = 28, classes: int = 10, channels: int = 1
) -> ImageSplit:
    """Make images of a few smooth templates per class, shifted, scaled and with noise."""
    counts = {"train": train, "test": test, "height": height, "width": width, "classes": classes, "channels": channels}
    checked = {name: _tessera.whole_number(name, count) for name, count in counts.items()}
    seed = checked_seed(seed)
    return _split(_tessera.synthetic_images(seed=seed, **checked))


def random_crops(
    images: NDArray[np.uint8],
    *,
    seed: int = 0,
    epoch: int = 0,
    numbers: Sequence[int] | NDArray[np.integer[Any]] | None = None,
    padding: int = 4,
) -> NDArray[np.uint8]:
    """Random crops of padded images, each flipped or not, as `tessera train resnet` takes them in an epoch.

    `images` are bytes [count, channels, height, width], and so is the result, in memory with the channels last, as
    PyTorch's `channels_last`; `np.moveaxis(crops, 1, -1)` is contiguous, as graphs take images. `padding` zeros are
    added on each side. A crop is a function of `seed`, `epoch` and the image's number only; `numbers` has the number of
    each image in its data set, by default 0, 1, ….

    Raises ValueError for other shapes, TypeError for other types.
    """
    given = np.ascontiguousarray(images)
    keys = np.arange(len(given)) if numbers is None else np.asarray(numbers)
    if keys.dtype.kind not in "iu" and keys.size:
        raise TypeError(f"numbers have elements of type {keys.dtype}; they must be integers")
    crops: NDArray[np.uint8] = cast(
        "NDArray[np.uint8]",
        _tessera.random_crops(
            given,
            np.ascontiguousarray(keys, np.int64),
            checked_seed(seed),
            _tessera.whole_number("epoch", epoch),
            _tessera.whole_number("padding", padding, 0, 1024),
        ),
    )
    return np.moveaxis(crops, -1, 1)


def _split(parts: tuple[Any, ...]) -> ImageSplit:
    name, train, test = parts
    return ImageSplit(name, ImageSet(*train), ImageSet(*test))
