"""The cost of changing patterns, 5 % of the blocks every 50 steps, as a fraction of training.

    python bench/python/schedules.py              # one layer, m = k = 4096, n = 512, density 1/16, SGD with momentum

A step is forward, backward and update. A change is the time of `schedule.step()` when it is due; for RigL also the
extra time of the step before, whose backward pass computes the dense gradient too. All times are medians.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from tessera import sparse
from tessera.nn import SparseLinear

EVERY = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--density", type=float, default=1 / 16)
    parser.add_argument("--block", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--changes", type=int, default=5)
    a = parser.parse_args()
    x, dy = torch.randn(a.batch, a.features), torch.randn(a.batch, a.features)
    for block in a.block:
        for name in ("Magnitude", "SET", "RigL"):
            layer = SparseLinear(a.features, a.features, density=a.density, block_size=block, dynamic=True)
            optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3, momentum=0.9)
            # If patterns change at every second step, there are equally many steps of both kinds.
            if name == "Magnitude":
                schedule = sparse.Magnitude(layer, optimizer, density=a.density / 2, every=2, until=20)
            else:
                schedule = getattr(sparse, name)(layer, optimizer, fraction=0.05, every=2)
            steps: tuple[list[float], list[float]] = [], []
            changes = []
            for step in range(2 * a.changes):
                start = time.perf_counter()
                layer(x.clone().requires_grad_()).backward(dy)
                optimizer.step()
                optimizer.zero_grad()
                middle = time.perf_counter()
                schedule.step()
                steps[step % 2].append(middle - start)
                if step % 2:
                    changes.append(time.perf_counter() - middle)
            plain, before = (statistics.median(times[1:]) for times in steps)
            change = statistics.median(changes[1:]) + (max(0.0, before - plain) if name == "RigL" else 0.0)
            part = change / (EVERY * plain)
            times_of = f"step {plain * 1e3:7.1f} ms, change {change * 1e3:7.1f} ms"
            print(f"{name:<10} b = {block:<3} {times_of}, every {EVERY} steps {part:.1%} of training")


if __name__ == "__main__":
    main()
