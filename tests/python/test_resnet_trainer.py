"""The trainer of residual networks: it trains like `tessera train resnet`, with the same checkpoints; random crops."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera
from tessera import graph as tg
from tessera.vision import ImageSet, ImageSplit, ResnetTrainer, random_crops, synthetic_images

OPTIONS: dict[str, Any] = {"depth": 8, "batch": 16, "steps": 6, "lr": 0.05, "padding": 1, "seed": 3, "threads": 1}
OPTIONS["machine"] = tessera.Machine("host", threads=2)
SPARSE = {"density": 0.5, "block_size": 4, "every": 2}
#: Two small chips, each with a replica.
CHIPS: dict[str, Any] = {"batch": 8, "steps": 2, "micro_batches": 2, "replicas": 2}
CHIPS["machine"] = tessera.Machine("m2000", chips=2, tiles=4, tile_bytes=40_000_000)


def images() -> ImageSplit:
    return synthetic_images(80, 20, 3, height=12, width=12, channels=3)


def trainer_of(source: Any = None, **options: Any) -> ResnetTrainer:
    return ResnetTrainer(images() if source is None else source, **(OPTIONS | options))


def test_steps_have_losses_and_epochs_follow() -> None:
    trainer = trainer_of()
    assert (trainer.steps, trainer.steps_per_epoch, trainer.finished_steps) == (6, 4, 0)
    assert (trainer.history, trainer.best_epoch) == ((), None)
    losses = [trainer.step(), *trainer.train(2), *trainer.train()]
    assert len(losses) == 6 and np.isfinite(losses).all()
    assert trainer.finished_steps == 6 and trainer.train() == []
    assert [each.epoch for each in trainer.history] == [1, 2]
    assert trainer.history[0].loss == pytest.approx(np.mean(losses[:4]))
    best = trainer.history[trainer.best_epoch - 1]
    assert trainer.validate().accuracy == best.validation_accuracy
    assert trainer.validate().loss == best.validation_loss
    assert trainer.test().loss > 0
    assert "6 of 6 steps" in repr(trainer)
    with pytest.raises(ValueError, match="all 6 steps are done"):
        trainer.step()


def test_replicas_share_statistics_and_blocks_are_computed_again() -> None:
    halves = trainer_of(
        micro_batches=2, augment=False, replicas=2, norm_replicas=None, recompute=True, shard=True, offload=True
    )
    assert np.isfinite(halves.train(1)).all()
    with pytest.raises(ValueError, match="statistics of 3 replicas together"):
        trainer_of(replicas=2, norm_replicas=3)
    with pytest.raises(ValueError, match="blocks whose patterns change cannot be computed again"):
        trainer_of(recompute=True, **SPARSE)


@pytest.mark.parametrize(
    ("options", "has_same_bits"),
    [
        ({"overlap": False}, True),
        ({"shard_weights": 1}, True),
        ({"offload": 1, "offload_weights": 1, "offload_gradients": 1, "prefetch": True}, True),
        ({"shard_weights": 1, "offload": 1, "offload_weights": 1}, True),
        ({"groups": [tg.ParameterGroup("layer*.weight", shard_weights=True, offload_weights=True)]}, True),
        ({"shard": 1, "shard_gradients": 1}, False),
    ],
)
def test_places_of_values_change_no_results(options: dict[str, Any], has_same_bits: bool, tmp_path: Path) -> None:
    small = synthetic_images(32, 8, 3, height=8, width=8, channels=3)
    plain, placed = trainer_of(small, **CHIPS), trainer_of(small, **CHIPS, **options)
    names = {name.removesuffix("_from") for name in placed.settings.keys() - plain.settings.keys()}
    assert names == options.keys()
    tolerance = 0 if has_same_bits else 1e-6
    np.testing.assert_allclose(placed.train(), plain.train(), rtol=0, atol=tolerance)
    found = placed.state_dict()
    for name, values in plain.state_dict().items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=tolerance, err_msg=name)
    if has_same_bits:
        assert placed.validate().loss == plain.validate().loss
        plain.save(tmp_path / "plain.safetensors")
        placed.resume(tmp_path / "plain.safetensors")


def test_patterns_change_on_chips_as_on_a_host() -> None:
    small = synthetic_images(32, 8, 3, height=8, width=8, channels=3)
    options = CHIPS | SPARSE | {"steps": 6, "every": 1, "shard_weights": 1, "offload_weights": 1}
    on_chips, on_host = trainer_of(small, **options), trainer_of(small, **(options | {"machine": OPTIONS["machine"]}))
    for _ in range(3):
        assert on_chips.step() == pytest.approx(on_host.step(), rel=1e-3)
        assert on_chips.validate().loss == pytest.approx(on_host.validate().loss, rel=1e-3)


def test_estimates_count_what_lies_beside_the_chips() -> None:
    def bytes_beside(**options: Any) -> int:
        return trainer_of(**CHIPS, **options, only_estimates=True).estimate().streaming_bytes

    sizes = [bytes_beside(), bytes_beside(offload=1), bytes_beside(offload=1, offload_weights=1)]
    sizes.append(bytes_beside(offload=1, offload_weights=1, offload_gradients=1))
    assert sizes[0] == 0 and sizes == sorted(set(sizes))


def test_groups_of_parameters_have_settings_of_their_own() -> None:
    trainer = trainer_of(groups=[tg.ParameterGroup("layer1.*", lr_scale=0.0), tg.ParameterGroup("fc.*", lr_scale=2.0)])
    assert trainer.settings["groups"][0] == {"names": ["layer1.*"], "lr_scale": 0}
    before = trainer.state_dict()
    trainer.step()
    after = trainer.state_dict()
    np.testing.assert_array_equal(after["layer1.0.conv1.weight"], before["layer1.0.conv1.weight"])
    assert (after["layer2.0.conv1.weight"] != before["layer2.0.conv1.weight"]).any()
    with pytest.raises(TypeError, match="name parameters here"):
        trainer_of(groups=[tg.ParameterGroup(tg.Graph().parameter("w", (2,)))])


def test_a_memory_budget_says_which_blocks_are_computed_again() -> None:
    assert np.isfinite(trainer_of(recompute="fit").train(1)).all()
    with pytest.raises(ValueError, match="bytes more than its memory budget of 1000 bytes"):
        trainer_of(recompute=1000)
    for wrong in ("some", 4e8, None):
        with pytest.raises(TypeError, match='recompute must be True, False, a number of bytes or "fit", not'):
            trainer_of(recompute=wrong)
    for wrong in (0, -1, 2**64):
        with pytest.raises(ValueError, match=f"recompute is {wrong}; it must be from 1 to"):
            trainer_of(recompute=wrong)


@pytest.mark.parametrize("options", [{"lr_schedule": "step", "lr_decay_at": [0.5]}, SPARSE])
def test_it_resumes_bit_by_bit(options: dict[str, Any], tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole.safetensors", tmp_path / "stopped.safetensors"
    uninterrupted = trainer_of(**options)
    losses = uninterrupted.train(checkpoint=whole)
    begun = trainer_of(**options).train(3, checkpoint=stopped)
    second = trainer_of(**options)
    second.resume(stopped)
    assert second.finished_steps == 3
    second.test()
    assert begun + [second.step() for _ in range(3)] == losses
    second.save(stopped)
    assert stopped.read_bytes() == whole.read_bytes()
    third = trainer_of(**options)
    third.resume(whole)
    assert third.train() == []
    assert second.test().loss == third.test().loss == uninterrupted.test().loss


def test_the_tool_gives_the_same_bits(tmp_path: Path) -> None:
    tool = Path(os.environ.get("TESSERA_TEST_TOOL", ""))
    if not tool.is_file():
        pytest.skip("TESSERA_TEST_TOOL names no tool")
    own, other, both = (tmp_path / f"{name}.safetensors" for name in ("own", "tool", "both"))
    command = (
        "train resnet --depth 8 --images 80 --size 12 --batch 16 --seed 3 --tiles 2 --threads 1 --steps 6 --padding 2 "
        "--density 1/2 --block 4 --schedule rigl --every 2 --optimizer nesterov --lr 0.05 --lr-schedule step "
        "--lr-decay-at 0.4 --lr-decay 0.2 --label-smoothing 0.1 --checkpoint"
    )
    options = SPARSE | {"size": 12, "padding": 2, "optimizer": "nesterov", "label_smoothing": 0.1}
    options |= {"lr_schedule": "step", "lr_decay_at": (0.4,), "lr_decay": 0.2}
    subprocess.run([tool, *command.split(), other], check=True, capture_output=True, timeout=300)
    trainer = trainer_of(**options)
    trainer.train(3, checkpoint=both)
    trainer.train(checkpoint=own)
    assert own.read_bytes() == other.read_bytes()
    subprocess.run([tool, *command.split(), both, "--resume"], check=True, capture_output=True, timeout=300)
    assert both.read_bytes() == other.read_bytes()


def test_images_may_be_arrays() -> None:
    split = images()
    wanted = trainer_of().train(2)
    train, test = ((each.images, each.labels.astype(np.int64)) for each in (split.train, split.test))
    assert trainer_of((train, test)).train(2) == wanted


def test_augmentation_changes_what_is_trained_with() -> None:
    still = trainer_of(augment=False).train(2)
    assert trainer_of().train(2) != still
    assert "padding" not in trainer_of(augment=False, only_estimates=True).settings


def test_parameters_have_torchvisions_names(tmp_path: Path) -> None:
    trainer = trainer_of(**SPARSE)
    trainer.train(1)
    found = trainer.state_dict()
    net = tg.resnet(8, samples=1, size=12)
    wanted = {parameter.name: tuple(parameter.shape) for parameter in net.graph.parameters} | dict(net.kernels)
    assert {name: array.shape for name, array in found.items()} == wanted
    assert (found["layer1.0.conv1.weight"] == 0).mean() >= 0.5
    trainer.save_parameters(tmp_path / "net.safetensors")
    session = net.graph.session()
    session.load_parameters(net.parameters_of(found))
    split = images()
    pixels = np.moveaxis(split.test.images, 1, -1).astype(np.float32)
    flat = split.train.images.transpose(1, 0, 2, 3).reshape(3, -1).astype(np.float64)
    normalised = ((pixels - flat.mean(1)) / flat.std(1)).astype(np.float32)
    classes = [session.run(np.ascontiguousarray(image[None])).argmax() for image in normalised]
    # One of the 20 may be near to a tie.
    assert np.mean(classes == split.test.labels) == pytest.approx(trainer.test().accuracy, abs=0.051)


def test_estimates_need_no_training() -> None:
    trainer = trainer_of(only_estimates=True)
    estimate = trainer.estimate()
    assert isinstance(estimate, tg.Estimate) and estimate.seconds > 0
    assert "ResNet-8" in repr(estimate)
    with pytest.raises(ValueError, match="only estimates"):
        trainer.train()
    with pytest.raises(ValueError, match="estimates take one process: leave out process_group"):
        trainer_of(only_estimates=True, process_group=object())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 21}, "unknown depth 21 of a ResNet"),
        ({"shortcut": "none"}, "none"),
        ({"numbers": "fp8"}, "fp8"),
        ({"density": 0.0}, "the density is 0"),
        ({"block_size": 3}, "the block size is 3"),
        ({"density": 0.5, "drop_grow": "all"}, r"'all' \(choose from none, set, rigl\)"),
        ({"density": 0.5, "every": 0}, "every is 0"),
        ({"batch": 100}, "a batch of 100 is larger than the 72 images"),
        ({"epochs": 2}, "steps and epochs both say how long to train"),
        ({"padding": -1}, "padding is -1"),
        ({"size": 16}, "size is 16, and the images are"),
        ({"lr_schedule": "step", "lr_decay_at": (1.5,)}, "a schedule decays after 1.5 of the steps"),
        ({"replicas": 5}, "cannot be divided among 5 replicas"),
        ({"shard_weights": True}, "parameters are divided among replicas, but there is only one"),
        ({"shard_gradients": True}, "sums of gradients are divided among replicas, but there is only one"),
        ({"offload_gradients": -1}, "offload_gradients is -1"),
        ({"groups": [tg.ParameterGroup("missing", offload=True)]}, "no parameter has the name 'missing'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trainer_of(**options, only_estimates=True)


def test_images_of_other_kinds_are_refused(tmp_path: Path) -> None:
    split = images()
    pixels, labels = split.train.images, split.train.labels
    test = (split.test.images, split.test.labels)
    with pytest.raises(TypeError, match="images must be an ImageSplit, a pair of"):
        trainer_of(3)
    with pytest.raises(TypeError, match="images have elements of type float32; they must be uint8"):
        trainer_of(((pixels.astype(np.float32), labels), test))
    with pytest.raises(ValueError, match="79 labels of 80 images"):
        trainer_of(((pixels, labels[1:]), test))
    with pytest.raises(ValueError, match="images must have 4 dimensions"):
        trainer_of(((pixels[:, 0], labels), test))
    with pytest.raises(ValueError, match=r"images are \(80, 12, 12, 3\); they must be \[count, channels"):
        trainer_of(((np.moveaxis(pixels, 1, -1), labels), test))
    with pytest.raises(TypeError, match="labels have elements of type float64; they must be integers"):
        trainer_of(((pixels, labels / 2), test))
    with pytest.raises(ValueError, match="labels are from -1"):
        trainer_of(((pixels, labels.astype(np.int64) - 1 - labels.min()), test))
    with pytest.raises(ValueError, match="a label is 9; there are 9 classes"):
        trainer_of(ImageSplit("few", ImageSet(pixels, labels, 9), ImageSet(*test, 9)))
    with pytest.raises(ValueError, match="test images are 6 × 12"):
        trainer_of(((pixels, labels), (split.test.images[:, :, :6], split.test.labels)))
    with pytest.raises(RuntimeError):
        trainer_of(tmp_path)


def test_crops_are_parts_of_padded_images(rng: np.random.Generator) -> None:
    pixels = rng.integers(0, 256, (6, 3, 5, 7), dtype=np.uint8)
    crops = random_crops(pixels, seed=4, epoch=2, padding=2)
    assert crops.shape == pixels.shape and np.moveaxis(crops, 1, -1).flags.c_contiguous
    padded = np.pad(pixels, ((0, 0), (0, 0), (2, 2), (2, 2)))
    for image, crop in zip(padded, crops, strict=True):
        parts = [image[:, row : row + 5, col : col + 7] for row in range(5) for col in range(5)]
        assert any(np.array_equal(crop, part) or np.array_equal(crop, part[:, :, ::-1]) for part in parts)


def test_crops_follow_from_seed_epoch_and_number(rng: np.random.Generator) -> None:
    pixels = rng.integers(0, 256, (8, 1, 6, 6), dtype=np.uint8)
    crops = random_crops(pixels, seed=4, epoch=2)
    np.testing.assert_array_equal(random_crops(pixels[5:7], seed=4, epoch=2, numbers=[5, 6]), crops[5:7])
    assert not np.array_equal(random_crops(pixels, seed=4, epoch=3), crops)
    assert not np.array_equal(random_crops(pixels, seed=5, epoch=2), crops)
    with pytest.raises(ValueError, match="2 numbers of 8 images"):
        random_crops(pixels, numbers=[1, 2])
    with pytest.raises(TypeError, match="numbers have elements of type float64"):
        random_crops(pixels, numbers=np.ones(8))
    with pytest.raises(TypeError, match="they must be uint8"):
        random_crops(pixels.astype(np.int64))
    with pytest.raises(ValueError, match="padding is 2000"):
        random_crops(pixels, padding=2000)
