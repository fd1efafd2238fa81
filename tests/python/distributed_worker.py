"""One rank of a run that test_distributed.py starts: trains sparse layers under DDP or FSDP2, and saves its state."""

import argparse
import os
import signal

import torch
import torch.distributed as dist

from tessera import sparse
from tessera.nn import SparseLinear

BATCH = 32


def model_of(block_size):
    torch.manual_seed(3)
    options = {"density": 0.3, "block_size": block_size, "dynamic": True}
    return torch.nn.Sequential(SparseLinear(40, 64, **options), torch.nn.ReLU(), SparseLinear(64, 24, **options))


def batch_of(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(BATCH, 40, generator=generator), torch.randn(BATCH, 24, generator=generator)


def wrapped(model, mode):
    if mode == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    if mode == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for layer in model:
            if isinstance(layer, SparseLinear):
                fully_shard(layer)
        fully_shard(model)
    return model


def state_of(parts):
    """The whole state of a run, whatever is sharded."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    model, optimizer, schedule = parts
    options = StateDictOptions(full_state_dict=True)
    model_state, optimizer_state = get_state_dict(model, optimizer, options=options)
    return {"model": model_state, "optimizer": optimizer_state, "schedule": schedule.state_dict()}


def resume(parts, state):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

    model, optimizer, schedule = parts
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
        options=StateDictOptions(full_state_dict=True),
    )
    schedule.load_state_dict(state["schedule"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["one", "ddp", "fsdp2"])
    parser.add_argument("--block-size", type=int, default=1)
    parser.add_argument("--schedule", default="RigL")
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--out", required=True, help="what rank 0 saves at the end")
    parser.add_argument("--checkpoint", help="saved after each step, and where a run goes on")
    parser.add_argument("--die-after", type=int, help="the step after which the last rank is killed")
    a = parser.parse_args()
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if a.mode != "one":
        dist.init_process_group("gloo")
    model = wrapped(model_of(a.block_size), a.mode)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = getattr(sparse, a.schedule)(model, optimizer, fraction=0.3, every=3)
    parts = model, optimizer, schedule
    if a.checkpoint and os.path.exists(a.checkpoint):
        resume(parts, torch.load(a.checkpoint))
    for step in range(schedule.steps, a.steps):
        x, target = (t.chunk(world)[rank] for t in batch_of(step))
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), target).backward()
        optimizer.step()
        schedule.step()
        if a.checkpoint:
            state = state_of(parts)
            if rank == 0:
                torch.save(state, a.checkpoint + ".new")
                os.replace(a.checkpoint + ".new", a.checkpoint)
            dist.barrier()
        if a.die_after == step + 1 and rank == world - 1:
            os.kill(os.getpid(), signal.SIGKILL)
    state = state_of(parts)
    patterns = [b for name, b in model.named_buffers() if name.endswith("indices")]
    if a.mode != "one":  # all ranks have the same patterns
        for mine in patterns:
            first = mine.clone()
            dist.broadcast(first, 0)
            assert torch.equal(first, mine), f"rank {rank} has another pattern"
    if rank == 0:
        torch.save(state["model"], a.out)
    if a.mode != "one":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
