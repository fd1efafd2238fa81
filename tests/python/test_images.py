"""Labelled images: official formats and synthetic ones."""

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import tessera


def write_idx(path: Path, array: np.ndarray) -> None:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    with gzip.open(path, "wb") as file:
        file.write(header + array.astype(np.uint8).tobytes())


def write_mnist(folder: Path, count: int) -> np.ndarray:
    images = np.random.default_rng(0).integers(0, 256, (count, 28, 28))
    write_idx(folder / "t10k-images-idx3-ubyte.gz", images)
    write_idx(folder / "t10k-labels-idx1-ubyte.gz", np.arange(count) % 10)
    return images


def test_mnist_without_training_files_is_divided(tmp_path):
    images = write_mnist(tmp_path, 50)
    split = tessera.load_images(tmp_path)
    assert split.name.startswith("MNIST")
    assert (len(split.train), len(split.test), split.train.classes) == (40, 10, 10)
    assert split.train.images.shape == (40, 1, 28, 28)
    assert split.train.images.dtype == np.uint8
    np.testing.assert_array_equal(split.test.images[:, 0], images[40:])
    np.testing.assert_array_equal(split.test.labels, np.arange(40, 50) % 10)


def test_images_outlive_their_split(tmp_path):
    images = write_mnist(tmp_path, 50)
    pixels = tessera.load_images(tmp_path, "mnist").train.images
    np.testing.assert_array_equal(pixels[:, 0], images[:40])


def test_bad_files_are_named(tmp_path):
    with pytest.raises(RuntimeError, match="no images of MNIST or CIFAR-10"):
        tessera.load_images(tmp_path)
    with pytest.raises(ValueError, match="unknown set of images 'svhn'"):
        tessera.load_images(tmp_path, "svhn")
    write_mnist(tmp_path, 50)
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(RuntimeError, match="t10k-images-idx3-ubyte.gz"):
        tessera.load_images(tmp_path)


def test_synthetic_images_follow_from_the_seed():
    a, b = (tessera.synthetic_images(30, 6, seed, height=8, width=12, classes=4) for seed in (1, 2))
    assert a.train.images.shape == (30, 1, 8, 12)
    assert a.test.images.shape == (6, 1, 8, 12)
    assert a.train.labels.max() < 4
    assert not np.array_equal(a.train.images, b.train.images)
    colours = tessera.synthetic_images(3, 1, 1, height=8, width=12, classes=4, channels=3)
    assert colours.train.images.shape == (3, 3, 8, 12)
    again = tessera.synthetic_images(30, 6, 1, height=8, width=12, classes=4)
    np.testing.assert_array_equal(a.test.images, again.test.images)
    with pytest.raises(ValueError, match="classes"):
        tessera.synthetic_images(1, 1, classes=0)
    with pytest.raises(ValueError, match="train is -1"):
        tessera.synthetic_images(-1, 1)
    with pytest.raises(TypeError, match="height must be a whole number, not 2.5"):
        tessera.synthetic_images(1, 1, height=2.5)


@pytest.mark.parametrize("layer", ["PixelflyLinear", "ButterflyLinear", "MonarchLinear", "FastfoodLinear"])
def test_layers_learn_mnist(layer):
    """784 inputs, which is not a power of two."""
    folder = os.environ.get("TESSERA_DATA")
    if not folder or not (Path(folder) / "mnist").exists():
        pytest.skip("TESSERA_DATA names no folder with mnist/")
    torch = pytest.importorskip("torch")
    from tessera import nn

    torch.manual_seed(0)
    split = tessera.load_images(folder, "mnist")
    options = {"PixelflyLinear": {"rank": 8}, "MonarchLinear": {"nblocks": 16}}.get(layer, {})
    hidden = getattr(nn, layer)(784, 256, **options)
    model = torch.nn.Sequential(hidden, torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.Adam(nn.parameter_groups(model, 1e-3))
    x, y = (torch.from_numpy(part) for part in (split.train.images, split.train.labels))
    x, y = x.flatten(1).float() / 255, y.long()
    for batch in torch.randperm(len(y))[:30000].split(100):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        found = model(torch.from_numpy(split.test.images).flatten(1).float() / 255).argmax(1).numpy()
    assert (found == split.test.labels).mean() > 0.75
