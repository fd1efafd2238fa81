"""BERT's trainer: it trains like `tessera train bert`, with the same checkpoints, and has Hugging Face's names."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera
from tessera import graph as tg
from tessera.text import (
    BertTrainer,
    PretrainingCost,
    PretrainingPlan,
    TokenText,
    plan_pretraining,
    synthetic_text,
)

CONFIG = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
OPTIONS: dict[str, Any] = {"length": 48, "packs": 4, "steps": 12, "evaluate_every": 5, "seed": 5, "threads": 1}
OPTIONS["machine"] = tessera.Machine("host", threads=2)


def text() -> TokenText:
    return synthetic_text(vocabulary=80, documents=60, seed=3)


def trainer_of(config: Any = None, source: Any = None, **options: Any) -> BertTrainer:
    config = CONFIG if config is None else config
    return BertTrainer(config, text() if source is None else source, **(OPTIONS | options))


def test_steps_have_losses_and_evaluations_follow() -> None:
    trainer = trainer_of()
    assert (trainer.steps, trainer.finished_steps, trainer.evaluations) == (12, 0, ())
    losses = [trainer.step(), *trainer.train(5), *trainer.train()]
    assert len(losses) == 12 and np.isfinite(losses).all()
    assert trainer.finished_steps == 12 and trainer.train() == []
    assert [each.step for each in trainer.evaluations] == [5, 10, 12]
    for evaluation, part in zip(trainer.evaluations, (losses[:5], losses[5:10], losses[10:]), strict=True):
        assert evaluation.loss == pytest.approx(np.mean(part))
        assert evaluation.held_out_loss == pytest.approx(evaluation.masked_lm_loss + evaluation.next_sentence_loss)
    assert trainer.validate().held_out_loss == trainer.evaluations[-1].held_out_loss
    with pytest.raises(ValueError, match="all 12 steps are done"):
        trainer.step()


def test_groups_of_parameters_have_settings_of_their_own() -> None:
    groups = [tg.ParameterGroup("bert.embeddings.*", lr_scale=0.0, offload_weights=True)]
    trainer, all_trained = trainer_of(groups=groups), trainer_of()
    name = "bert.embeddings.word_embeddings.weight"
    before = trainer.state_dict()[name]
    assert trainer.step() == all_trained.step()
    np.testing.assert_array_equal(trainer.state_dict()[name], before)
    assert (all_trained.state_dict()[name] != before).any()
    with pytest.raises(TypeError, match="name parameters here"):
        trainer_of(groups=[tg.ParameterGroup(tg.Graph().parameter("w", (2,)))])


def test_estimates_take_one_process() -> None:
    with pytest.raises(ValueError, match="leave out process_group"):
        trainer_of(only_estimates=True, process_group=object())


def test_loss_scales_and_roundings_are_settings() -> None:
    assert trainer_of(numbers="mlperf-v1", loss_scale=1024).settings["loss_scale"] == 1024
    dynamic = trainer_of(numbers="mlperf-v1", loss_scale="dynamic").settings["loss_scale"]
    assert dynamic == {"initial": 65536, "grow_after": 2000}
    rounded = trainer_of(numbers="mlperf-v2", rounding={"state": "nearest"}).settings["rounding"]
    assert rounded == {"parameters": "stochastic", "state": "nearest", "partials": "stochastic"}
    assert trainer_of(numbers="mlperf-v1", loss_scale=64).train(2) == trainer_of(numbers="mlperf-v1").train(2)


def test_it_learns() -> None:
    losses = trainer_of(CONFIG | {"num_hidden_layers": 2}, steps=120, evaluate_every=120).train()
    assert np.mean(losses[-20:]) < np.mean(losses[:20]) - 0.1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"numbers": "mlperf-v2", "micro_batches": 2, "lr_schedule": "linear", "warmup": 3},
        {"numbers": "mlperf-v2", "loss_scale": "dynamic"},
        {"length": (32, 48), "packs": (6, 3), "steps": (5, 7), "optimizer": "adamw", "pack": "none"},
    ],
)
def test_it_resumes_bit_by_bit(options: dict[str, Any], tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole.safetensors", tmp_path / "stopped.safetensors"
    losses = trainer_of(**options).train(checkpoint=whole)

    first = trainer_of(**options, threads=2)
    begun = first.train(7, checkpoint=stopped)
    second = trainer_of(**options)
    second.resume(stopped)
    assert second.finished_steps == 7 and second.evaluations[0].step == 5
    second.validate()
    assert begun + [second.step() for _ in range(5)] == losses
    second.save(stopped)
    assert stopped.read_bytes() == whole.read_bytes()
    assert second.train(checkpoint=tmp_path / "again.safetensors") == []
    assert (tmp_path / "again.safetensors").read_bytes() == whole.read_bytes()


def test_the_tool_gives_the_same_bits(tmp_path: Path) -> None:
    tool = Path(os.environ.get("TESSERA_TEST_TOOL", ""))
    if not tool.is_file():
        pytest.skip("TESSERA_TEST_TOOL names no tool")
    own, other = tmp_path / "own.safetensors", tmp_path / "tool.safetensors"
    command = (
        "train bert --documents 60 --vocabulary 80 --seed 5 --length 48 --batch 4 --steps 6 --evaluate-every 4 "
        "--micro-batches 2 --numbers mlperf-v1 --partials f32 --optimizer adamw --betas 0.8,0.9 --lr 0.002 "
        "--lr-schedule polynomial --lr-power 2 --warmup 2 --clip-norm 1 --average sequence --max-per-pack 2 --tiles 2 "
        "--checkpoint"
    )
    subprocess.run([tool, *command.split(), other], check=True, capture_output=True, timeout=300)
    trainer = BertTrainer(
        "tiny",
        synthetic_text(vocabulary=80, documents=60, seed=5),
        seed=5,
        length=48,
        packs=4,
        steps=6,
        evaluate_every=4,
        micro_batches=2,
        numbers="mlperf-v1",
        partial_dtype="f32",
        optimizer="adamw",
        betas=(0.8, 0.9),
        lr=0.002,
        lr_schedule="polynomial",
        lr_power=2,
        warmup=2,
        clip_norm=1,
        average="sequence",
        max_per_pack=2,
        machine=tessera.Machine("host", threads=2),
    )
    trainer.train(checkpoint=own)
    assert own.read_bytes() == other.read_bytes()


def test_text_may_lie_in_files(tmp_path: Path) -> None:
    wanted = trainer_of().train(3)
    file = tmp_path / "tokens.safetensors"
    text().save(str(file))
    assert trainer_of(source=file).train(3) == wanted
    assert trainer_of(source=TokenText.load(str(file))).train(3) == wanted
    train, held_out = text().split(seed=OPTIONS["seed"])
    assert trainer_of(source=(train, held_out)).train(3) == wanted
    train.save(str(tmp_path / "train.safetensors"))
    held_out.save(str(tmp_path / "test.safetensors"))
    assert trainer_of(source=tmp_path).train(3) == wanted
    np.testing.assert_array_equal(TokenText.load(str(file)).tokens, text().tokens)
    with pytest.raises(ValueError, match="read-only"):
        TokenText.load(str(file)).tokens[0] = 1


def test_parameters_have_hugging_faces_names(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(vocab_size=80, **CONFIG)
    trainer = trainer_of(config)
    assert trainer.train(2) == trainer_of(config.to_dict()).train(2) == trainer_of().train(2)
    model = transformers.BertForPreTraining(config)
    found = trainer.state_dict()
    assert {name: array.shape for name, array in found.items()} == {
        name: tuple(each.shape) for name, each in model.named_parameters()
    }
    model.save_pretrained(tmp_path)
    trainer.save_parameters(tmp_path / "model.safetensors")
    again = dict(transformers.BertForPreTraining.from_pretrained(tmp_path).named_parameters())
    for name, array in found.items():
        np.testing.assert_array_equal(array, again[name].detach().numpy())
    other = trainer_of()
    other.load_parameters(tmp_path)
    assert other.validate().held_out_loss == trainer.validate().held_out_loss


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_attention_heads": 5}, "num_attention_heads is 5; it must be a divisor of hidden_size, 32"),
        ({"vocab_size": 81}, "the configuration's vocab_size is 81, and the text has 80 tokens"),
        ({"hidden_size": 0}, "hidden_size is 0; it must be from 1"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'; only 'gelu' is supported"),
        ({"type_vocab_size": 1}, "the number of token types"),
        ({"hidden_dropout_prob": 1.0}, "the dropout probability"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trainer_of(CONFIG | config)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 128}, "the length is 128; it must be at most the positions of the model, 64"),
        ({"length": ()}, "length has no items"),
        ({"packs": 100_000}, "larger than the"),
        ({"packs": (1, 2)}, "packs has 2 items: give one, or one for each of the 1 lengths"),
        ({"steps": 0}, "steps is 0; it must be from 1"),
        ({"epochs": 2}, "steps and epochs both say how long to train"),
        ({"steps": None, "epochs": 0}, "epochs is 0; it must be from 1"),
        ({"micro_batches": 3}, "cannot be divided into 3"),
        ({"pack": "all"}, r"unknown pack 'all' \(choose from optimal, none\)"),
        ({"pack": "none", "max_per_pack": 2}, "max_per_pack is for pack='optimal'"),
        ({"numbers": "fp8"}, "unknown numbers 'fp8'"),
        ({"rounding": "up"}, "unknown rounding 'up'"),
        ({"rounding": "stochastic"}, "numbers fp32 have none"),
        ({"rounding": {"state": "nearest"}}, "moments are FP32 with the numbers fp32, and not rounded"),
        ({"partial_dtype": "f32"}, "only products of 16 bits have partial sums of another type"),
        ({"loss_scale": "large"}, r"unknown loss_scale 'large' \(expected a number, or 'dynamic'\)"),
        ({"loss_scale": 0}, "the loss scale is 0; it must be positive"),
        ({"sum_dtype": "f16"}, "only gradients of 16-bit parameters have sums of another type"),
        ({"optimizer": "best"}, "unknown optimizer"),
        ({"lr_schedule": "steep"}, "steep"),
        ({"lr": -1}, "the learning rate"),
        ({"validation": 1.5}, "the fraction of documents held out"),
        ({"shard": True}, "is divided among replicas"),
        ({"offload_gradients": -1}, "offload_gradients is -1"),
        ({"groups": [tg.ParameterGroup("missing", lr_scale=0.5)]}, "no parameter has the name 'missing'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trainer_of(**options)


def test_arguments_of_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="text must be a TokenText, a pair of them, or the path of a file or folder"):
        trainer_of(source=3)
    with pytest.raises(TypeError, match="the configuration has no vocab_size"):
        trainer_of(3)
    with pytest.raises(TypeError, match="hidden_size must be a whole number, not 'x'"):
        trainer_of({"hidden_size": "x"})
    with pytest.raises(TypeError, match="packs must be a whole number"):
        trainer_of(packs=1.5)


def test_checkpoints_with_and_without_overlap_are_the_same(tmp_path: Path) -> None:
    checkpoint, late = tmp_path / "checkpoint.safetensors", trainer_of(overlap=False)
    assert late.settings["overlap"] is False
    late.train(2, checkpoint=checkpoint)
    trainer = trainer_of()
    trainer.resume(checkpoint)
    trainer.save(tmp_path / "other.safetensors")
    assert (tmp_path / "other.safetensors").read_bytes() == checkpoint.read_bytes()


def test_checkpoints_of_something_else_change_nothing(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.safetensors"
    trainer = trainer_of()
    trainer.train(2, checkpoint=file)
    for other, message in (
        (trainer_of(lr=0.5), "its lr is 0.01, now it is 0.5"),
        (trainer_of(source=synthetic_text(vocabulary=80, documents=60, seed=4)), "other data"),
    ):
        with pytest.raises(RuntimeError, match=message):
            other.resume(file)
        assert other.finished_steps == 0
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(RuntimeError, match=r"checkpoint\.safetensors: .*may be truncated"):
        trainer.resume(file)
    with pytest.raises(RuntimeError, match=r"nowhere\.safetensors"):
        trainer.resume(tmp_path / "nowhere.safetensors")
    assert trainer.finished_steps == 2
    with pytest.raises(RuntimeError, match=r"nowhere\.safetensors: cannot open the file"):
        trainer_of(source=tmp_path / "nowhere.safetensors")


INTERRUPTED = """
import os, signal, sys, threading, time
from tessera.text import BertTrainer, synthetic_text

config = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
options = dict(length=48, packs=4, steps=1_000_000, evaluate_every=3, seed=5, threads=2)
text = synthetic_text(vocabulary=80, documents=60, seed=3)
trainer = BertTrainer(config, text, **options)
signal.signal(signal.SIGINT, signal.default_int_handler)  # which shells ignore in the background

def interrupt():  # runs while the other thread trains
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    trainer.train(checkpoint=sys.argv[1])
except KeyboardInterrupt:
    resumed = BertTrainer(config, text, **options)
    resumed.resume(sys.argv[1])
    print(3 <= trainer.finished_steps == resumed.finished_steps, resumed.step() == trainer.step())
"""


def test_an_interruption_ends_a_step_and_training_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "checkpoint.safetensors")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout == "True True\n", done.stderr


def test_estimates_need_no_training() -> None:
    machine = tessera.Machine("gc200", tiles=64)
    trainer = trainer_of(machine=machine, only_estimates=True)
    estimate = trainer.estimate()
    assert isinstance(estimate, tg.Estimate)
    assert estimate.seconds > 0 and estimate.bytes["optimizer"] > estimate.bytes["parameter"] > 0
    assert "packs of 48 tokens" in repr(estimate)
    packs = trainer_of(machine=machine, only_estimates=True, estimate_packs=True).estimate()
    assert 0 < packs.cycles["compute"] <= estimate.cycles["compute"]
    with pytest.raises(ValueError, match="estimate_packs is for only_estimates=True"):
        trainer_of(machine=machine, estimate_packs=True)
    with pytest.raises(ValueError, match="only estimates"):
        trainer.train()
    with pytest.raises(ValueError, match="phase is 1; it must be from 0 to 0"):
        trainer.estimate(1)
    settings = trainer.settings
    assert (settings["hidden_size"], settings["vocab_size"], settings["seed"]) == (32, 80, 5)


TWO_LAYERS = CONFIG | {"num_hidden_layers": 2}
PLANNED: dict[str, Any] = {"length": 16, "packs": 2, "steps": 1, "threads": 1}


def two_chips() -> tessera.Machine:
    return tessera.Machine("m2000", chips=2, tiles=16, tile_bytes=8_000_000)


def plan_of(**options: Any) -> PretrainingPlan:
    return plan_pretraining(TWO_LAYERS, text(), two_chips(), **(PLANNED | options))


def test_a_plan_divides_a_step_among_chips() -> None:
    names: list[str] = []
    plan = plan_of(estimates=2, progress=lambda done, most, name: names.append(name))
    assert names and all(names) and not plan.stopped and not plan.out_of_time
    assert plan.considered >= len(plan.frontier) > 0 and plan.small_estimates >= 2
    assert plan.tile_bytes == 8_000_000
    figures = []
    for division in plan.frontier:
        cost = division.extrapolated
        assert isinstance(cost, PretrainingCost)
        assert cost.seconds is not None and cost.fullest_tile_bytes is not None
        assert division.options["replicas"] * division.options["stages"] == 2
        figures.append((cost.seconds, cost.fullest_tile_bytes))
    for (seconds, size), (slower, smaller) in pairwise(figures):
        assert seconds < slower and size > smaller

    assert plan.chosen is not None and plan.chosen in plan.estimated and len(plan.estimated) <= 2
    assert plan.chosen.estimated is not None and plan.chosen.estimated.fits and plan.overflow == ""
    options = PLANNED | plan.chosen.options
    trainer = BertTrainer(TWO_LAYERS, text(), machine=two_chips(), only_estimates=True, **options)
    assert trainer.estimate().seconds == plan.chosen.estimated.seconds


def test_a_plan_estimates_the_division_of_its_options() -> None:
    given = {"stages": 2, "stage_layers": (1, 1), "micro_batches": 2, "recompute": True}
    plan = plan_of(estimates=0, time_limit=1e-9, **given)
    assert plan.out_of_time and len(plan.estimated) == 1
    options = plan.estimated[0].options
    assert options["stage_layers"] == [1, 1] and options["recompute"] and options["pipeline"] == "sequential"
    assert options["micro_batches"] == 2 and options["shard"] is False
    beyond = plan_of(packs=4, replicas=4, estimates=0, time_limit=1e-9).estimated[0].estimated
    assert beyond is not None and not beyond.fits and beyond.seconds is None and "4 replicas" in beyond.overflow


def test_a_signal_ends_a_plan() -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(KeyboardInterrupt):
            plan_of()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_plan_ends_early_and_says_what_it_cannot_do() -> None:
    plan = plan_of(progress=lambda done, most, name: False)
    assert plan.stopped and plan.frontier == [] and plan.chosen is None

    def fail(done: int, most: int, name: str) -> None:
        raise LookupError(name)

    with pytest.raises(LookupError, match="network"):
        plan_of(progress=fail)
    with pytest.raises(ValueError, match="a plan is for a modelled machine"):
        plan_pretraining(TWO_LAYERS, text(), "host", **PLANNED)
    with pytest.raises(ValueError, match="unknown machine 'pod17'"):
        plan_pretraining(TWO_LAYERS, text(), "pod17", **PLANNED)
    with pytest.raises(ValueError, match="a time limit is 0"):
        plan_of(time_limit=-1)
    for margin in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="a margin is a fraction of 0 or more"):
            plan_of(margin=margin)
    with pytest.raises(TypeError, match="time_limit is '1 h'; it must be a number"):
        plan_of(time_limit="1 h")
    with pytest.raises(TypeError, match="estimates must be a whole number"):
        plan_of(estimates=1.5)
    with pytest.raises(TypeError, match="not callable"):
        plan_of(progress=True)
    with pytest.raises(ValueError, match="unknown pack 'all'"):
        plan_of(pack="all")
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        plan_of(colour="red")
    with pytest.raises(TypeError, match="in one process: leave out rank_timeout"):
        plan_of(rank_timeout=1)
