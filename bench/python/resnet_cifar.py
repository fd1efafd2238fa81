"""ResNets trained beside PyTorch: ResNet-20 on CIFAR-10, dense and with 90 % zeros, and a step of ResNet-50.

    python bench/python/resnet_cifar.py                     # times of a step, then five epochs of each, of three seeds
    python bench/python/resnet_cifar.py --epochs 30 --kinds dense b16
    python bench/python/resnet_cifar.py --time              # times alone; some minutes, most of them in torch.compile
    python bench/python/resnet_cifar.py --step              # instead a step of ResNet-50 on 20 images of 224 × 224
    python bench/python/resnet_cifar.py --step --ways eager channels-last compiled compiled-channels-last
    python bench/python/resnet_cifar.py --synthetic 2000 --epochs 1 --seeds 1     # without the data set

CIFAR-10 is read from --data, or from the folder that TESSERA_DATA names. Both libraries train with the same schedule
(He et al. 2016: a tenth of the learning rate after half and three quarters of all steps), batches, weight decay, random
crops and flips, and distributions of initial weights; a tenth of the images is held out to choose the best epoch, which
is tested. Sparse convolutions, all but the first, are dynamic (RigL).

Candidates take turns; a step includes its crops and the copy to FP32. Prints the least time and the median in
milliseconds, and the least time as a fraction of PyTorch's least time in any of --ways. By default these are all ways
for ResNet-20, and all but compiled ones for ResNet-50, which takes minutes to compile on two cores. Beside an accuracy
stands the mean time of a step in that training, in which patterns change, but not in turns with the others. Each
measurement is reported on stderr.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from progress import tell
from torch import Tensor, nn

import tessera
from tessera import graph as tg
from tessera.vision import ImageSplit, ResnetTrainer, load_images, random_crops, synthetic_images

BATCH, RATE, MOMENTUM, DECAY, HELD_OUT = 128, 0.1, 0.9, 1e-4, 0.1
#: Options of Tessera's trainer.
KINDS: dict[str, dict[str, Any]] = {
    "dense": {},
    "b16": {"density": 0.1, "block_size": 16, "drop_grow": "rigl"},
    "b1": {"density": 0.1, "block_size": 1, "drop_grow": "rigl"},
}
#: Ways to run PyTorch: whether channels lie last in memory, and whether the model is compiled.
WAYS = {
    "eager": (False, False),
    "channels-last": (True, False),
    "compiled": (False, True),
    "compiled-channels-last": (True, True),
}
#: The default ways for ResNet-50.
STEP_WAYS = [way for way, (_, is_compiled) in WAYS.items() if not is_compiled]

Job = Callable[[], float]


class Block(nn.Module):
    """Two convolutions beside a shortcut without parameters (option A of He et al.)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.stride, self.further = stride, width - channels

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(nn.functional.relu(self.bn1(self.conv1(x)))))
        if self.further:
            x = nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.further))
        return nn.functional.relu(y + x)


class Resnet20(nn.Module):
    """ResNet-20, with initial weights like `tessera.graph.resnet`, except that nn.Linear has PyTorch's."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        blocks: list[nn.Module] = []
        for width in (16, 32, 64):
            channels, stride = (16, 1) if width == 16 else (width // 2, 2)
            blocks += [Block(channels, width, stride), Block(width, width, 1), Block(width, width, 1)]
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(64, 10)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        features = self.blocks(nn.functional.relu(self.bn1(self.conv1(x)))).mean((2, 3))
        logits: Tensor = self.fc(features)
        return logits


class InPyTorch:
    """Steps of a module in one of the ways to run PyTorch."""

    def __init__(self, module: nn.Module, way: str) -> None:
        is_last, is_compiled = WAYS[way]
        self.format = torch.channels_last if is_last else torch.contiguous_format
        self.module = module.to(memory_format=self.format)
        self.optimizer = torch.optim.SGD(
            module.parameters(), RATE, momentum=MOMENTUM, weight_decay=DECAY, fused=True
        )
        self.loss_of = torch.compile(self._loss_of) if is_compiled else self._loss_of

    def _loss_of(self, x: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.module(x), labels)

    def step(self, x: Tensor, labels: Tensor) -> float:
        self.optimizer.zero_grad()
        loss = self.loss_of(x, labels)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def statistics_of(pixels: NDArray[np.uint8]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel."""
    sums, squares = np.zeros(pixels.shape[1]), np.zeros(pixels.shape[1])
    for first in range(0, len(pixels), 1000):
        part = pixels[first : first + 1000].astype(np.float64)
        sums += part.sum((0, 2, 3))
        squares += (part * part).sum((0, 2, 3))
    count = pixels.size / pixels.shape[1]
    mean = sums / count
    deviation = np.sqrt(squares / count - mean * mean)
    of_channels = torch.from_numpy(np.stack([mean, deviation]).astype(np.float32)).view(2, 1, -1, 1, 1)
    return of_channels[0], of_channels[1]


def tell_epoch(epoch: int, accuracy: float) -> None:
    tell(f"  epoch {epoch}: accuracy {100 * accuracy:.2f} % on the held-out images")


class TrainingInPyTorch:
    """ResNet-20 as `ResnetTrainer` trains it."""

    def __init__(self, images: ImageSplit, way: str, options: argparse.Namespace, seed: int) -> None:
        torch.manual_seed(seed)
        self.images, self.seed, self.finished = images, seed, 0
        self.network = InPyTorch(Resnet20(), way)
        order = np.random.default_rng(seed).permutation(len(images.train))
        held_out = round(HELD_OUT * len(order))
        self.held_out, self.training = order[:held_out], order[held_out:]
        self.steps_per_epoch = len(self.training) // BATCH
        self.steps = options.epochs * self.steps_per_epoch
        self.schedule = tg.Schedule(options.schedule, self.steps)
        self.mean, self.deviation = statistics_of(images.train.images)
        self.order = self.training

    def normalised(self, pixels: NDArray[np.uint8]) -> Tensor:
        x = (torch.from_numpy(pixels).float() - self.mean) / self.deviation
        return x.contiguous(memory_format=self.network.format)

    def step(self) -> float:
        epoch, within = divmod(self.finished, self.steps_per_epoch)
        if within == 0:
            self.order = np.random.default_rng((self.seed, epoch)).permutation(self.training)
        which = self.order[within * BATCH : (within + 1) * BATCH]
        crops = random_crops(self.images.train.images[which], seed=self.seed, epoch=epoch, numbers=which)
        labels = torch.from_numpy(self.images.train.labels[which]).long()
        for group in self.network.optimizer.param_groups:
            group["lr"] = RATE * self.schedule.factor(self.finished)
        self.finished += 1
        return self.network.step(self.normalised(crops), labels)

    @torch.no_grad()
    def accuracy(self, pixels: NDArray[np.uint8], labels: NDArray[np.uint8]) -> float:
        module, at_once, right = self.network.module.eval(), 500, 0
        for first in range(0, len(labels), at_once):
            part = slice(first, first + at_once)
            found = module(self.normalised(pixels[part])).argmax(1).numpy()
            right += int((found == labels[part]).sum())
        module.train()
        return right / len(labels)

    def run(self) -> tuple[float, float]:
        """The test accuracy of the epoch that is best on the held-out images, and seconds of a step."""
        best, tested, seconds = -1.0, 0.0, 0.0
        train, test = self.images.train, self.images.test
        while self.finished < self.steps:
            start = time.perf_counter()
            for _ in range(self.steps_per_epoch):
                self.step()
            seconds += time.perf_counter() - start
            accuracy = self.accuracy(train.images[self.held_out], train.labels[self.held_out])
            tell_epoch(self.finished // self.steps_per_epoch, accuracy)
            if accuracy > best:
                best, tested = accuracy, self.accuracy(test.images, test.labels)
        return tested, seconds / self.steps


def trainer_of(images: ImageSplit, kind: str, options: argparse.Namespace, seed: int, **further: Any) -> ResnetTrainer:
    length = further or {"epochs": options.epochs}
    return ResnetTrainer(
        images,
        depth=20,
        batch=BATCH,
        lr=RATE,
        momentum=MOMENTUM,
        weight_decay=DECAY,
        lr_schedule=options.schedule,
        validation=HELD_OUT,
        seed=seed,
        threads=options.threads,
        **KINDS[kind],
        **length,
    )


def run_of(trainer: ResnetTrainer) -> tuple[float, float]:
    """The test accuracy, and seconds of a step. The last step of an epoch also evaluates, and is not timed."""
    seconds, timed = 0.0, 0
    while trainer.finished_steps < trainer.steps:
        start = time.perf_counter()
        timed += len(trainer.train(max(1, trainer.steps_per_epoch - 1)))
        seconds += time.perf_counter() - start
        trainer.train(1)
        tell_epoch(len(trainer.history), trainer.history[-1].validation_accuracy)
    return trainer.test().accuracy, seconds / timed


def milliseconds(job: Job) -> tuple[float, float]:
    """Milliseconds of a job, and its result."""
    start = time.perf_counter()
    result = job()
    return 1e3 * (time.perf_counter() - start), result


def warm_up(jobs: dict[str, Job], calls: int) -> dict[str, float]:
    """The result of each job's first call, in which some jobs compile."""
    results = {}
    for name, job in jobs.items():
        taken, results[name] = milliseconds(job)
        tell(f"{name}, first step: {taken:,.0f} ms")
        for _ in range(calls - 1):
            job()
    return results


def times_of(jobs: dict[str, Job], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each, in turn."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(rounds):
        for name, job in jobs.items():
            time.sleep(0.05)  # threads of the previous job spin for a while
            taken, _ = milliseconds(job)
            times[name].append(taken)
            tell(f"{name}, turn {turn + 1} of {rounds}: {taken:,.1f} ms")
    return times


def report_times(title: str, times: dict[str, list[float]]) -> dict[str, Any]:
    rivals = {name: min(each) for name, each in times.items() if name.startswith("PyTorch")}
    best = min(rivals.values(), default=float("nan"))
    print(title)
    rows = {}
    for name, each in times.items():
        row = {"least_ms": min(each), "median_ms": statistics.median(each), "of_best": min(each) / best}
        print(f"  {name:<32}{row['least_ms']:10.2f} ms{row['median_ms']:10.2f} ms{row['of_best']:8.3f}")
        rows[name] = row
    return {"title": title, "best": min(rivals, key=rivals.__getitem__, default=None), "times": rows}


def compare_times(images: ImageSplit, options: argparse.Namespace) -> dict[str, Any]:
    jobs: dict[str, Job] = {
        f"PyTorch, {way}": TrainingInPyTorch(images, way, options, 0).step for way in options.ways
    }
    many = 1_000_000  # so that training does not end
    jobs |= {f"Tessera, {kind}": trainer_of(images, kind, options, 0, steps=many).step for kind in options.kinds}
    warm_up(jobs, 3)
    title = f"ResNet-20, {BATCH} × 32 × 32, {options.threads} threads: least, median, least / PyTorch's least"
    return report_times(title, times_of(jobs, options.rounds))


def compare_accuracy(images: ImageSplit, options: argparse.Namespace, way: str) -> list[dict[str, Any]]:
    rows = []
    for name in (f"PyTorch, {way}", *(f"Tessera, {kind}" for kind in options.kinds)):
        runs = []
        for seed in range(options.seeds):
            tell(f"{name}, seed {seed}:")
            if name.startswith("PyTorch"):
                runs.append(TrainingInPyTorch(images, way, options, seed).run())
            else:
                runs.append(run_of(trainer_of(images, name.removeprefix("Tessera, "), options, seed)))
            tell(f"{name}, seed {seed}: {runs[-1][0]:.4f}, {1e3 * runs[-1][1]:.1f} ms")
        accuracies, seconds = ([run[i] for run in runs] for i in (0, 1))
        rows.append({"name": name, "accuracies": accuracies, "mean": statistics.mean(accuracies)})
        rows[-1]["step_ms"] = 1e3 * statistics.mean(seconds)
    print(f"accuracy after {options.epochs} epochs: of each seed, mean, points over PyTorch, ms of a step")
    for row in rows:
        each = " ".join(f"{100 * accuracy:6.2f}" for accuracy in row["accuracies"])
        over = 100 * (row["mean"] - rows[0]["mean"])
        print(f"  {row['name']:<32}{each}{100 * row['mean']:9.2f}{over:+8.2f}{row['step_ms']:10.1f}")
    return rows


def compare_step(options: argparse.Namespace) -> dict[str, Any]:
    """ResNet-50; all begin with the same weights, and have the same first loss."""
    import torchvision

    torch.manual_seed(0)
    module = torchvision.models.resnet50()
    count, size = options.images, options.size
    x, labels = torch.randn(count, 3, size, size), torch.randint(1000, (count,))
    net = tg.resnet(50, samples=count, size=size, training=True)
    step = net.graph.training_step("cross_entropy", lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    session = step.session(threads=options.threads)
    session.load_parameters(net.parameters_of(module.state_dict()))
    tell("Tessera has compiled")
    last, numbers = x.permute(0, 2, 3, 1).contiguous(), labels.int()
    jobs: dict[str, Job] = {}
    for way in options.ways:
        own = InPyTorch(copy.deepcopy(module), way)
        arranged = x.contiguous(memory_format=own.format)
        jobs[f"PyTorch, {way}"] = lambda own=own, arranged=arranged: own.step(arranged, labels)  # type: ignore[misc]
    jobs["Tessera"] = lambda: float(session.run(last, numbers))
    first = warm_up(jobs, 1)
    spread = max(first.values()) / min(first.values()) - 1
    assert spread < 1e-3, f"first losses differ: {first}"
    title = f"ResNet-50, {count} × {size} × {size}, {options.threads} threads: least, median, least / PyTorch's least"
    result = report_times(title, times_of(jobs, options.rounds))
    ratio = result["times"]["Tessera"]["of_best"]
    ways = ", ".join(options.ways)
    print(f"  Tessera takes {ratio:.3f} of the time of PyTorch's best, {result['best']}, of: {ways}")
    return result | {"ratio": ratio}


def images_of(options: argparse.Namespace) -> ImageSplit:
    if options.synthetic:
        return synthetic_images(options.synthetic, options.synthetic // 4, height=32, width=32, channels=3)
    folder = options.data or os.environ.get("TESSERA_DATA")
    if not folder:
        sys.exit("CIFAR-10 needs its folder: pass --data FOLDER, set TESSERA_DATA, or ask for --synthetic images")
    return load_images(folder, "cifar-10")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of CIFAR-10's binary version (default: TESSERA_DATA)")
    parser.add_argument("--synthetic", type=int, default=0, help="train on this number of synthetic images instead")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--schedule", choices=["step", "cosine"], default="step")
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS), help="kinds of Tessera's networks")
    parser.add_argument(
        "--ways", nargs="*", choices=list(WAYS), help="ways to run PyTorch (default: all; ResNet-50: all but compiled)"
    )
    parser.add_argument("--time", action="store_true", help="measure only the times of a step")
    parser.add_argument("--step", action="store_true", help="measure a step of ResNet-50 instead")
    parser.add_argument("--images", type=int, default=20, help="number of images in a step of ResNet-50")
    parser.add_argument("--size", type=int, default=224, help="pixels of these images in each dimension")
    parser.add_argument("--rounds", type=int, help="turns of each network (default: 20; ResNet-50: 5)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for the measurements")
    options = parser.parse_args()
    if options.ways is None:
        options.ways = STEP_WAYS if options.step else list(WAYS)
    if not options.ways:
        parser.error("--ways names none")
    if options.rounds is None:
        options.rounds = 5 if options.step else 20
    return options


def main() -> None:
    options = parsed()
    torch.set_num_threads(options.threads)
    tessera.set_num_threads(options.threads)
    found: dict[str, Any] = {"torch": torch.__version__, "threads": options.threads}
    if options.step:
        found["step"] = compare_step(options)
    else:
        images = images_of(options)
        found |= {"images": images.name, "epochs": options.epochs, "schedule": options.schedule}
        found["times"] = compare_times(images, options)
        if not options.time:
            way = found["times"]["best"].removeprefix("PyTorch, ")
            found["accuracy"] = compare_accuracy(images, options, way)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
