"""Trains a spiking network on images by latency: the brighter a pixel, the earlier it fires, once.

    TESSERA_DATA=/path/to/data python examples/spiking_mnist.py --hidden 256 --epochs 5

The layers pass lists of spikes (`--backend sparse`); neurons whose potential stays below `--gradient-threshold` take no
part in the gradients.
"""

from __future__ import annotations

import argparse
import time

import images
import torch
from tessera import snn
from torch import Tensor, nn

STEPS = 25


def latencies(pixels: Tensor) -> snn.SpikeEvents:
    """Spikes of images [count, 784]; dark pixels have none."""
    steps = ((1 - pixels.clamp(0, 1)) * STEPS).long()
    spikes = torch.zeros(STEPS + 1, *pixels.shape, dtype=torch.bool)
    spikes.scatter_(0, steps.unsqueeze(0), pixels.unsqueeze(0) > 0.2)
    return snn.SpikeEvents.from_dense(spikes[:STEPS])


def network_of(arguments: argparse.Namespace) -> snn.Network:
    options = {"gradient_threshold": arguments.gradient_threshold} if arguments.backend == "sparse" else {}
    network = snn.Network(
        nn.Linear(784, arguments.hidden, bias=False),
        snn.Leaky(0.9, reset_mechanism="zero", reset_delay=False, spike_grad=snn.surrogate.superspike(5.0)),
        nn.Linear(arguments.hidden, 10, bias=False),
        snn.Readout(0.95),
        backend=arguments.backend,
        **options,
    )
    nn.init.normal_(network[0].weight, 0.03, 0.12)
    return network


@torch.inference_mode()
def accuracy(network: snn.Network, events: snn.SpikeEvents, labels: Tensor) -> float:
    return (network(events).amax(0).argmax(1) == labels).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=256, help="features of the hidden layers")
    parser.add_argument("--epochs", type=int, default=5, help="passes over the training images")
    parser.add_argument("--batch", type=int, default=128, help="samples per step")
    parser.add_argument("--backend", choices=("sparse", "dense"), default="sparse", help="backend of the network")
    parser.add_argument("--gradient-threshold", type=float, default=0.5, help="neurons below it pass no gradients")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    name, (pixels, labels), (test_pixels, test_labels) = images.load()
    train, test = latencies(pixels), latencies(test_pixels)
    print(f"{name}: {train}")
    network = network_of(arguments)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    for epoch in range(arguments.epochs):
        start = time.perf_counter()
        for samples in torch.randperm(len(labels)).split(arguments.batch):
            membrane = network(train[:, samples])
            loss = snn.functional.ce_max_membrane_loss(membrane, labels[samples])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        seconds = time.perf_counter() - start
        listed = ""
        if arguments.backend == "sparse":
            counts = network.counts[0]
            places = membrane.shape[0] * membrane.shape[1] * arguments.hidden
            listed = f", {counts.spikes / places:.1%} fire, {counts.candidates / places:.1%} more pass gradients"
        right = accuracy(network, test, test_labels)
        print(f"epoch {epoch + 1}: accuracy {right:.3f}, {seconds:.1f} s{listed}")


if __name__ == "__main__":
    main()
