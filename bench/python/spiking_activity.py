"""Lists of spikes beside dense sequences: tessera.snn.Network with both backends, over activities.

    python bench/python/spiking_activity.py
    python bench/python/spiking_activity.py --layers 700,1024,1024,20 --rounds 3

A given fraction of the inputs and of every hidden layer fires: the weights of each layer are scaled accordingly. ϑ_grad
is such that 1.6 times as many neurons are listed. Both backends run forward and backward through time on the same
weights and inputs, in turns. Prints the least time of each, and the activity at which dense sequences become faster.
"""

from __future__ import annotations

import argparse
import math
import time

import torch
from torch import Tensor, nn

from tessera import set_num_threads, snn

BETA = 0.95
LISTED = 1.6  # listed neurons per neuron that fires
ACTIVITIES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)


def neurons() -> snn.Leaky:
    surrogate = snn.surrogate.superspike(10)
    return snn.Leaky(BETA, reset_mechanism="zero", reset_gradient="detached", spike_grad=surrogate)


def scaled(linear: nn.Linear, x: Tensor, activity: float) -> Tensor:
    """Scale the weights, so that the fraction `activity` of the neurons fires in a step; return the potentials."""
    least, most = 1e-3, 1e3
    currents, layer = x @ linear.weight.t(), neurons()
    for _ in range(30):
        middle = math.sqrt(least * most)
        if layer(currents * middle)[0].mean() < activity:
            least = middle
        else:
            most = middle
    linear.weight.mul_(most)
    return layer(currents * most)[1]


@torch.no_grad()
def networks(sizes: list[int], x: Tensor, activity: float) -> tuple[snn.Network, snn.Network, float]:
    """A sparse and a dense network with the same weights, and the listed fraction of the hidden layers."""
    layers: list[nn.Module] = []
    potentials: list[Tensor] = []
    inputs = x
    for before, size in zip(sizes[:-2], sizes[1:-1], strict=True):
        linear = nn.Linear(before, size, bias=False)
        potentials.append(scaled(linear, inputs, activity))
        layers += [linear, neurons()]
        inputs = (potentials[-1] > 1).float()
    layers += [nn.Linear(sizes[-2], sizes[-1], bias=False), snn.Readout(BETA)]
    every = torch.cat([v.flatten() for v in potentials])
    above = torch.kthvalue(every, every.numel() - round(min(1.0, LISTED * activity) * (every.numel() - 1)))
    threshold = min(float(above.values), 0.99)
    room = [int((v > threshold).sum(-1).max()) for v in potentials]
    sparse = snn.Network(*layers, backend="sparse", gradient_threshold=threshold, capacities=room)
    return sparse, snn.Network(*layers, backend="dense"), float((every > threshold).float().mean())


def seconds(network: snn.Network, x: snn.SpikeEvents | Tensor, upstream: Tensor) -> float:
    network.zero_grad()
    start = time.perf_counter()
    network(x).backward(upstream)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="700,256,20")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    set_num_threads(arguments.threads)
    torch.manual_seed(1)
    sizes = [int(size) for size in arguments.layers.split(",")]
    upstream = torch.randn(arguments.steps, arguments.batch, sizes[-1])
    print("  fires   listed  sparse, ms  dense, ms   ratio")
    before: tuple[float, float] | None = None
    crossover = None
    for activity in ACTIVITIES:
        x = (torch.rand(arguments.steps, arguments.batch, sizes[0]) < activity).float()
        sparse, dense, listed = networks(sizes, x, activity)
        events = snn.SpikeEvents.from_dense(x)
        least = [math.inf, math.inf]
        for _ in range(arguments.rounds):
            least[0] = min(least[0], seconds(sparse, events, upstream))
            least[1] = min(least[1], seconds(dense, x, upstream))
        ratio = least[1] / least[0]
        print(f"{activity:7.1%} {listed:8.1%} {1e3 * least[0]:11.1f} {1e3 * least[1]:10.1f} {ratio:7.2f}", flush=True)
        if before is not None and before[1] >= 1 > ratio:
            share = math.log(before[1]) / math.log(before[1] / ratio)
            crossover = before[0] * (activity / before[0]) ** share
        before = (activity, ratio)
    print("lists are faster throughout" if crossover is None else f"equal at {crossover:.0%}")


if __name__ == "__main__":
    main()
