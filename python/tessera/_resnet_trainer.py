"""Training of residual networks with images, as `tessera train resnet` does it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tessera import _tessera
from tessera._arguments import checked_seed, checked_threads
from tessera._images import ImageSet, ImageSplit
from tessera._tessera import EpochResult, Machine, SampleScore
from tessera._trainer import Trainer, TrainerOptimizer, set_counts, set_learning, set_placement
from tessera.graph._estimate import Estimate, machine_for
from tessera.graph._ranks import communicator_of, on_each
from tessera.graph._resnet import Shortcut
from tessera.graph._training import Numbers, ParameterGroup, ScheduleKind

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

#: How patterns of sparse convolutions change: not at all, with random growth, or growth where gradients are largest.
DropGrow: TypeAlias = Literal["none", "set", "rigl"]
#: Images [count, channels, height, width] and their labels.
Arrays: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.integer[Any]]]


class ResnetTrainer(Trainer):
    """A ResNet with its images on a machine: training, evaluation and checkpoints of `tessera train resnet`.

    Images and network:
    - `images` is an `ImageSplit`, such as `load_images(folder, "cifar-10")`; or a pair of (images, labels) for training
      and for testing, of bytes [count, channels, height, width] and integers from 0; or the path of a folder of JPEG
      files, CLASS/*.jpg or train/CLASS/*.jpg and val/CLASS/*.jpg. Images in files are scaled to `size` pixels in each
      dimension (None: 224, or 32, depending on the depth); arrays keep their size. The fraction `validation` of the
      training images is set aside for validation.
    - `depth` and `shortcut` are as for `graph.resnet`, `numbers` as for `Graph.training_step`. With a `density` below
      1, all convolutions but the first are block-sparse, with blocks of `block_size`. `drop_grow` chooses how blocks
      are dropped and others grown, every `every` steps until the fraction `until` of all steps; at first the fraction
      `change` of the blocks is replaced.
    - With `augment`, training takes random crops of images padded by `padding` zeros, and flips (`random_crops`); from
      images in files it takes regions of random size.

    Steps:
    - A step takes `batch` images, in `micro_batches` equal parts. Each part is divided among `replicas` on equal parts
      of the machine's chips. The images of a replica are normalised by their own statistics, or the images of each
      group of `norm_replicas` consecutive replicas (None: all replicas) as one batch. With `recompute`, only the inputs
      of blocks are kept for backward passes; if it is a number of bytes or "fit", of as few blocks as fit these bytes
      of each tile (of a host in all), or the machine.
    - `overlap`, `shard`, `shard_weights`, `shard_gradients`, `offload`, `offload_weights`, `offload_gradients` and
      `prefetch` are as for `Graph.training_step`: they say where values lie and when they move. They change no bit of
      the results, except that with `shard` or `shard_gradients` the last bits may differ. `groups` are as there too;
      they name parameters.
    - Training takes `epochs` epochs, by default 30, or `steps` steps, and validates after each epoch and after the last
      step; then the parameters of the epoch with the best accuracy are restored.
    - The learning rate rises to `lr` in the first `warmup` steps. Then it falls as `lr_schedule` says: to `lr_end`
      times `lr` at the last step, polynomially with the exponent `lr_power`; or, as "step", by the factor `lr_decay`
      after each of the fractions `lr_decay_at` of all steps.
    - Parameters that `exclude` names, with `*` for any characters, have neither weight decay nor a trust ratio,
      whatever `groups` say; with LARS, if it names none, parameters of one dimension have neither.

    `machine` is a `Machine` or its name. `threads` is the number of threads of the host, 0 for the default; if the
    machine is "host", it is also its number of tiles. With the same options, images, tiles and instruction set,
    training gives the same bits as the tool, with any number of threads and also if it is stopped and resumed; trainer
    and tool can continue each other's checkpoints. A trainer with `only_estimates` takes no memory for parameters, and
    cannot train. Parameters have torchvision's names and shapes.

    The ranks of `process_group`, of `torch.distributed`, divide the replicas among them; by default every rank has one
    replica. They train as one process does, bit for bit (docs/ranks.md): each rank makes this trainer with the same
    options and images, takes the images of its own replicas, and makes the same calls. Rank 0 writes files; Ctrl-C in
    one rank ends `train` in all ranks, whose lists are shorter then. Where a rank fails, or gives no sign of life for
    `rank_timeout` seconds, the others raise RuntimeError. `divide_cores` is as for `Graph.session`.

    Raises ValueError for options that are out of range, contradict each other or do not fit the images, TypeError for
    options of a wrong type, and RuntimeError for files that cannot be read or are damaged, if there is not enough
    memory, and from `train` if the loss is not finite. Calls may come from several threads, and take turns.
    """

    _native: _tessera.ResnetTrainer

    def __init__(
        self,
        images: ImageSplit | tuple[Arrays, Arrays] | str | os.PathLike[str],
        *,
        depth: int = 20,
        shortcut: Shortcut | None = None,
        numbers: Numbers = "fp32",
        label_smoothing: float = 0.0,
        density: float = 1.0,
        block_size: int = 16,
        drop_grow: DropGrow = "rigl",
        change: float = 0.3,
        every: int = 100,
        until: float = 0.75,
        augment: bool = True,
        padding: int = 4,
        size: int | None = None,
        optimizer: TrainerOptimizer = "momentum",
        lr: float = 0.1,
        lr_schedule: ScheduleKind = "cosine",
        warmup: int = 0,
        lr_power: float = 1.0,
        lr_end: float = 0.0,
        lr_decay_at: Sequence[float] = (0.5, 0.75),
        lr_decay: float = 0.1,
        momentum: float = 0.9,
        betas: tuple[float, float] = (0.9, 0.999),
        bias_correction: bool = True,
        trust_coefficient: float = 0.001,
        weight_decay: float = 1e-4,
        exclude: Sequence[str] = (),
        groups: Iterable[ParameterGroup] = (),
        clip_norm: float | None = None,
        batch: int = 128,
        micro_batches: int = 1,
        replicas: int | None = None,
        norm_replicas: int | None = 1,
        recompute: bool | int | Literal["fit"] = False,
        overlap: bool = True,
        shard: bool | int = False,
        shard_weights: bool | int = False,
        shard_gradients: bool | int = False,
        offload: bool | int = False,
        offload_weights: bool | int = False,
        offload_gradients: bool | int = False,
        prefetch: bool = False,
        epochs: int | None = None,
        steps: int | None = None,
        validation: float = 0.1,
        seed: int = 0,
        machine: Machine | str = "host",
        threads: int = 0,
        host_io: bool = False,
        only_estimates: bool = False,
        process_group: ProcessGroup | None = None,
        rank_timeout: float = 10,
        divide_cores: bool = True,
    ) -> None:
        super().__init__(only_estimates, process_group)
        settings = _tessera.ResnetTrainingSettings(
            _tessera.whole_number("depth", depth), shortcut, numbers, optimizer, lr_schedule, drop_grow
        )
        seed = checked_seed(seed)
        set_learning(settings, locals())
        set_placement(settings, locals())
        set_counts(
            settings,
            ("block_size", block_size, 1),
            ("padding", padding, 0),
            ("batch", batch, 1),
            optional=(("size", size, 8), ("norm_replicas", norm_replicas, 1), ("steps", steps, 1)),
        )
        settings.label_smoothing, settings.density, settings.augment = label_smoothing, density, bool(augment)
        settings.set_drop_grow(change, _tessera.whole_number("every", every, 1), until)
        threads = checked_threads(threads)
        ranks = communicator_of(process_group, rank_timeout, divide_cores)
        self.machine, data = on_each(ranks, lambda: (machine_for(machine, threads), _native_images(images, size)))
        self._native = _tessera.ResnetTrainer(settings, data, self.machine, threads, bool(only_estimates), ranks)
        self._depth = depth

    def validate(self) -> SampleScore:
        """Evaluate the validation images: `loss` and `accuracy`. The results of `train` do not depend on this call."""
        with self._lock:
            return self._native.validate()

    def test(self) -> SampleScore:
        """Evaluate the test images in the same way; after the last step with the parameters of the best epoch."""
        with self._lock:
            return self._native.test()

    @property
    def history(self) -> tuple[EpochResult, ...]:
        """The epochs that `train` has finished, including epochs before a resumed checkpoint."""
        with self._lock:
            return tuple(self._native.history)

    @property
    def best_epoch(self) -> int | None:
        """The number, from 1, of the epoch with the best validation accuracy so far."""
        with self._lock:
            return self._native.best_epoch or None

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps that take each image of an epoch once; the last, incomplete step is left out."""
        return self._native.steps_per_epoch

    def estimate(self) -> Estimate:
        """The cost of a step: memory, and time by operation."""
        title = f"training step of ResNet-{self._depth}"
        with self._lock:
            return Estimate(self._native.step_cost(), self._native.graph(), self.machine, title)


def _native_images(
    images: ImageSplit | tuple[Arrays, Arrays] | str | os.PathLike[str], size: int | None
) -> _tessera.ImageArrays | _tessera.ImageFolder:
    if isinstance(images, (str, os.PathLike)):
        return _tessera.ImageFolder(os.fspath(images))
    if isinstance(images, tuple) and len(images) == 2:
        images = _split_of(*images)
    if not isinstance(images, ImageSplit):
        raise TypeError(f"images must be an ImageSplit, a pair of (images, labels) or a folder's path, not {images!r}")
    shape = images.train.images.shape
    if len(shape) == 4 and shape[1] > 4 >= shape[3]:
        raise ValueError(
            f"images are {shape}; they must be [count, channels, height, width], as np.moveaxis(images, -1, 1) is"
        )
    if size is not None and shape[2:] != (size, size):
        raise ValueError(f"size is {size}, and the images are {shape}: leave it out")
    classes = max(images.train.classes, images.test.classes)
    return _tessera.ImageArrays(images.name, *_arrays_of(images.train), *_arrays_of(images.test), classes)


def _split_of(train: Arrays, test: Arrays) -> ImageSplit:
    sets = [ImageSet(np.asarray(images), _labels(labels), 0) for images, labels in (train, test)]
    classes = 1 + max(int(each.labels.max(initial=0)) for each in sets)
    return ImageSplit("arrays", *(ImageSet(each.images, each.labels, classes) for each in sets))


def _labels(given: NDArray[np.integer[Any]]) -> NDArray[np.uint8]:
    labels = np.asarray(given)
    if labels.dtype.kind not in "iu":
        raise TypeError(f"labels have elements of type {labels.dtype}; they must be integers")
    if labels.size and not 0 <= labels.min() <= labels.max() <= 255:
        raise ValueError(f"labels are from {labels.min()} to {labels.max()}; they must be from 0 to 255")
    return labels.astype(np.uint8)


def _arrays_of(images: ImageSet) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    return np.ascontiguousarray(images.images), np.ascontiguousarray(_labels(images.labels))
