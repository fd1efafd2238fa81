"""One rank of a run that test_ranks.py starts: trains replicas together with others, and saves their common state."""

import argparse
import os
import signal
import threading
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from tessera import graph as tg
from tessera.graph import _ranks
from tessera.text import BertTrainer, synthetic_text
from tessera.vision import ResnetTrainer, synthetic_images

ROWS, REPLICAS = 10, 4
LACKED = "lacked.toml"


def training_step(norm=False):
    """The step of a small network; with `norm`, it has a norm over all replicas."""
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 5))
    if norm:
        module[1] = nn.Sequential(nn.SyncBatchNorm(16), nn.ReLU())
    graph = tg.from_torch(module, torch.randn(ROWS, 12))
    return graph.training_step("cross_entropy", "adamw", lr=0.05, replicas=REPLICAS, shard=1)


def staged_step(stages, pipeline="1f1b", places=()):
    """The step of a network with a layer on each stage, and one micro-batch for each replica of other steps."""
    layer = tg.Graph()
    x, weight = layer.input("x", (ROWS, 12)), layer.input("weight", (12, 12))
    layer.output("y", x + tg.dropout(tg.tanh(tg.linear(x, weight)), 0.1))
    graph = tg.Graph()
    h = graph.input("x", (ROWS, 12))
    for stage in range(stages):
        own = graph.parameter(f"weight{stage}", (12, 12), tg.normal(0.2))
        h = graph.call(layer, h, own, stage=stage)["y"]
    graph.output("logits", h)
    if places:
        graph.place_stages(places)
    return graph.training_step("cross_entropy", "adamw", lr=0.05, micro_batches=REPLICAS, pipeline=pipeline)


def interrupt_next_exchange():
    """Returns an event: once it is set, this process gets Ctrl-C while it exchanges messages."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in the background
    begins, exchange = threading.Event(), _ranks._Ranks.exchange

    def interrupted(self, sent, received):
        if begins.is_set():
            begins.clear()
            signal.raise_signal(signal.SIGINT)
        exchange(self, sent, received)

    _ranks._Ranks.exchange = interrupted
    return begins


def lacks(a):
    """Whether this rank shall lack a file that the others have."""
    return a.lack and int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1


def train_bert(group, a):
    """Train for some of 8 steps, from the checkpoint if there is one."""
    interruption = interrupt_next_exchange()
    config = {
        "hidden_size": 32,
        "num_hidden_layers": a.stages,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
    }
    text = LACKED if lacks(a) else synthetic_text(vocabulary=80, documents=60, seed=3)
    options = {"length": 48, "packs": 4, "steps": 8, "evaluate_every": 3, "seed": 5, "threads": 1, "shard": 1}
    if a.stages > 1:
        options |= {"stages": a.stages, "pipeline": "1f1b", "micro_batches": 2, "shard": False}
    replicas = None if group is not None else 1 if a.stages > 1 else 2
    trainer = BertTrainer(
        config, text, **options, replicas=replicas, process_group=group, rank_timeout=a.timeout
    )
    if Path(a.out).exists():
        trainer.resume(a.out)
    if not a.interrupt:
        assert len(trainer.train(a.steps, checkpoint=a.out)) == a.steps
        assert all(np.isfinite(values).all() for values in trainer.state_dict().values())
        return
    before, is_last = trainer.finished_steps, dist.get_rank() == dist.get_world_size() - 1
    if is_last:
        interruption.set()
    try:
        losses = trainer.train(a.steps, checkpoint=a.out)
    except KeyboardInterrupt:
        assert is_last
    else:
        assert not is_last and len(losses) == 1
    assert trainer.finished_steps == before + 1


def train_resnet(group, a):
    """Train for some of 6 steps, from the checkpoint if there is one, with a norm over all replicas."""
    images = LACKED if lacks(a) else synthetic_images(80, 20, 3, height=12, width=12, channels=3)
    trainer = ResnetTrainer(
        images,
        depth=8,
        batch=16,
        steps=6,
        lr=0.05,
        padding=1,
        seed=3,
        replicas=2 if group is None else None,
        norm_replicas=None,
        shard=1000,
        threads=1,
        process_group=group,
        rank_timeout=a.timeout,
    )
    if Path(a.out).exists():
        trainer.resume(a.out)
    assert len(trainer.train(a.steps, checkpoint=a.out)) == a.steps
    assert np.isfinite(trainer.validate().loss)
    assert all(np.isfinite(values).all() for values in trainer.state_dict().values())


def batch_of(step):
    random = np.random.default_rng(step)
    x = random.standard_normal((REPLICAS * ROWS, 12), np.float32)
    return x, random.integers(0, 5, REPLICAS * ROWS, np.int32)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True, help="where the parameters and the state are saved at the end")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--timeout", type=float, default=60, help="seconds for which ranks wait for each other")
    parser.add_argument("--checkpoints", help="a folder of the state after each step, the last of which is loaded")
    parser.add_argument("--seed-of-last", type=int, default=0, help="the seed of the last rank")
    parser.add_argument("--die-after", type=int, help="the step after which the last rank is killed")
    parser.add_argument("--cores", help="a folder for what processors each rank may use then")
    parser.add_argument("--keep-cores", action="store_true")
    parser.add_argument("--norm", action="store_true", help="have a batch norm over all replicas")
    parser.add_argument("--bert", action="store_true", help="train BERT, with its checkpoints as the file at the end")
    parser.add_argument("--resnet", action="store_true", help="train a residual network likewise")
    parser.add_argument("--stages", type=int, default=1, help="each of which is a rank's, instead of replicas")
    parser.add_argument("--pipeline", default="1f1b")
    parser.add_argument("--places", type=int, nargs="*", help="of stages, several of which may share one")
    parser.add_argument("--lack", action="store_true", help="let the last rank take its data, or machine, from no file")
    parser.add_argument("--interrupt", action="store_true", help="the last rank, in its first step of BERT")
    a = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    group = None
    if world > 1:
        dist.init_process_group("gloo", timeout=timedelta(seconds=a.timeout))
        group = dist.group.WORLD
    if a.bert or a.resnet:
        (train_bert if a.bert else train_resnet)(group, a)
        if group is not None:
            dist.destroy_process_group()
        return
    is_last = rank == world - 1
    seed = a.seed_of_last if is_last else 0
    done = 0
    if a.checkpoints is not None:
        done = max((int(file.stem) for file in Path(a.checkpoints).iterdir()), default=0)
    made = staged_step(a.stages, a.pipeline, a.places) if a.stages > 1 else training_step(a.norm)
    session = made.session(
        LACKED if lacks(a) else "host",
        threads=1,
        seed=seed,
        process_group=group,
        rank_timeout=a.timeout,
        divide_cores=not a.keep_cores,
    )
    if a.cores is not None:
        Path(a.cores, str(rank)).write_text(repr(sorted(os.sched_getaffinity(0))))
    if done:
        session.load(Path(a.checkpoints, f"{done}.safetensors"))
        session.step = done + 1
    for step in range(done, a.steps):
        # The ranks of a replica have the same rows.
        x, labels = batch_of(step) if a.stages > 1 else (np.split(each, world)[rank] for each in batch_of(step))
        session.run(x, labels)
        if a.checkpoints is not None:
            session.save(Path(a.checkpoints, f"{step + 1}.safetensors"))
        if a.die_after == step + 1 and is_last:
            os.kill(os.getpid(), signal.SIGKILL)
    if a.stages == 1:
        assert session.sent_bytes == (a.steps - done) * session.cost().sent_bytes
    assert (session.cost().sent_bytes > 0) == (world > 1)
    session.save(a.out)
    if group is not None:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
