"""Spiking networks of Tessera beside snnTorch, Norse, SpikingJelly and PyTorch: forward and backward through time.

    python bench/python/spiking.py build/release/bench/spiking/bench_spiking
    python bench/python/spiking.py build/release/bench/spiking/bench_spiking --case 1 --rounds 3

bench_spiking draws inputs and weights, so that every hidden layer fires as often as planned, and writes them to files.
All others read them, and must find the same number of spikes. Cases are 0: 700-256-20, 1: 700-1024-1024-20, 2:
700-200r-20, and 3: as 0, with 32 samples. Tessera and "torch.compile" pass gradients only where a potential is above
ϑ_grad, so the gradients of other libraries differ. Norse's also differ because they pass through the reset, and its
SuperSpike does not read alpha. Contestants take turns, Tessera in its own process; the least time of each counts.
"torch.compile" is written by hand: dense products over all steps, the steps of a layer in functions that torch.compile
fuses, and a backward pass that keeps only potentials. "snn sparse" and "snn dense" are tessera.snn.Network with its
backends, with lists of inputs made in advance. Libraries that are not installed are left out, even the package tessera.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy
import torch
from torch import Tensor

BETA = 0.95
SLOPE = 10.0
SIZES = [[700, 256, 20], [700, 1024, 1024, 20], [700, 200, 20], [700, 256, 20]]
CHUNK = 10  # steps that are compiled together


class SuperSpike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient / (SLOPE * x.abs() + 1) ** 2


def steps_forward(
    current: Tensor, v: Tensor, s: Tensor, recurrent: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    potentials, spikes = [], []
    for x in current.unbind(0):
        u = BETA * v + (x if recurrent is None else x + s @ recurrent)
        s = (u > 1).to(u.dtype)
        v = u * (1 - s)
        potentials.append(u)
        spikes.append(s)
    return torch.stack(potentials), torch.stack(spikes), v


def steps_backward(
    upstream: Tensor, potentials: Tensor, g: Tensor, bar: Tensor, recurrent: Tensor | None
) -> tuple[Tensor, Tensor]:
    found = []
    for ds, u in zip(reversed(upstream.unbind(0)), reversed(potentials.unbind(0)), strict=True):
        if recurrent is not None:
            ds = ds + g @ recurrent.t()
        g = BETA * g + torch.where(u > bar, ds / (SLOPE * (u - 1).abs() + 1) ** 2, 0)
        found.append(g)
    return torch.stack(found[::-1]), g


def leak_forward(current: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    found = []
    for x in current.unbind(0):
        v = BETA * v + x
        found.append(v)
    return torch.stack(found), v


class Compiled:
    """Functions of a few steps, fused."""

    def __init__(self) -> None:
        self.forward = torch.compile(steps_forward)
        self.backward = torch.compile(steps_backward)
        self.leak = torch.compile(leak_forward)


def in_chunks(values: Tensor) -> list[Tensor]:
    return list(values.split(CHUNK))


class HandWritten:
    """The reset is detached: gradients decay as without a reset, and begin where potentials are above `bar`."""

    def __init__(self, weights: list[Tensor], recurrent: Tensor | None, bar: Tensor, steps: Compiled) -> None:
        self.weights, self.recurrent, self.bar, self.steps = weights, recurrent, bar, steps

    def run(self, x: Tensor, upstream: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        inputs, potentials = [x], []
        for weight in self.weights[:-1]:
            v = torch.zeros(x.shape[1], weight.shape[1])
            u, s = [], []
            last = torch.zeros_like(v)
            for chunk in in_chunks(inputs[-1] @ weight):
                of_chunk, fired, v = self.steps.forward(chunk, v, last, self.recurrent)
                last = fired[-1]
                u.append(of_chunk)
                s.append(fired)
            potentials.append(u)
            inputs.append(torch.cat(s))
        v = torch.zeros(x.shape[1], self.weights[-1].shape[1])
        for chunk in in_chunks(inputs[-1] @ self.weights[-1]):
            _, v = self.steps.leak(chunk, v)
        gradients, found, g = [], [], torch.zeros_like(v)
        for chunk in in_chunks(upstream.flip(0)):
            of_chunk, g = self.steps.leak(chunk, g)
            found.append(of_chunk)
        dx = torch.cat(found).flip(0)
        for i in reversed(range(len(self.weights))):
            flat = dx.flatten(0, 1)
            gradients.insert(0, inputs[i].flatten(0, 1).t() @ flat)
            if i == 0:
                break
            ds = dx @ self.weights[i].t()
            g, found = torch.zeros_like(ds[0]), []
            for chunk, u in zip(reversed(in_chunks(ds)), reversed(potentials[i - 1]), strict=True):
                of_chunk, g = self.steps.backward(chunk, u, g, self.bar, self.recurrent)
                found.append(of_chunk)
            dx = torch.cat(found[::-1])
            if self.recurrent is not None:
                gradients.insert(0, inputs[i][:-1].flatten(0, 1).t() @ dx[1:].flatten(0, 1))
        return inputs[1:], gradients


Neurons = Callable[[Tensor, Tensor | None], Tensor]


def with_feedback(current: Tensor, spikes: list[Tensor], recurrent: Tensor | None) -> Tensor:
    return current if recurrent is None or not spikes else current + spikes[-1] @ recurrent


class Library:
    """Layers of weights, and `neurons`, which turn the currents [T, batch, neurons] of a hidden layer into spikes."""

    def __init__(self, weights: list[Tensor], recurrent: Tensor | None, neurons: Neurons) -> None:
        self.weights = [weight.clone().requires_grad_() for weight in weights]
        self.recurrent = None if recurrent is None else recurrent.clone().requires_grad_()
        self.neurons = neurons

    def parameters(self) -> list[Tensor]:
        return in_order(self.weights, self.recurrent)

    def run(self, x: Tensor, upstream: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        spikes = []
        for weight in self.parameters():
            weight.grad = None
        for weight in self.weights[:-1]:
            x = self.neurons(x @ weight, self.recurrent)
            spikes.append(x)
        v, potentials = torch.zeros(1), []
        for current in (x @ self.weights[-1]).unbind(0):
            v = BETA * v + current
            potentials.append(v)
        torch.stack(potentials).backward(upstream)
        return spikes, [weight.grad for weight in self.parameters()]


def in_order(weights: list[Tensor], recurrent: Tensor | None) -> list[Tensor]:
    """The weights in the order of bench_spiking: recurrent weights after the first weights."""
    return weights if recurrent is None else [weights[0], recurrent, *weights[1:]]


def snntorch_neurons() -> Neurons:
    import snntorch

    leaky = snntorch.Leaky(
        beta=BETA, spike_grad=snntorch.surrogate.fast_sigmoid(slope=SLOPE), reset_mechanism="zero", init_hidden=False
    )

    def run(currents: Tensor, recurrent: Tensor | None) -> Tensor:
        membrane, spikes = leaky.reset_mem(), []
        for current in currents.unbind(0):
            spike, membrane = leaky(with_feedback(current, spikes, recurrent), membrane)
            spikes.append(spike)
        return torch.stack(spikes)

    return run


def norse_neurons() -> Neurons:
    from norse.torch.functional.lif_box import LIFBoxFeedForwardState, LIFBoxParameters, lif_box_feed_forward_step

    parameters = LIFBoxParameters(tau_mem_inv=torch.tensor((1 - BETA) * 1000), alpha=torch.tensor(SLOPE))

    def run(currents: Tensor, recurrent: Tensor | None) -> Tensor:
        state, spikes = LIFBoxFeedForwardState(v=torch.zeros_like(currents[0])), []
        for current in currents.unbind(0):
            current = with_feedback(current, spikes, recurrent)
            spike, state = lif_box_feed_forward_step(current / (1 - BETA), state, parameters, dt=0.001)
            spikes.append(spike)
        return torch.stack(spikes)

    return run


def spikingjelly_neurons() -> Neurons:
    from spikingjelly.activation_based import functional, neuron, surrogate

    node = neuron.LIFNode(
        tau=1 / (1 - BETA),
        decay_input=False,
        v_threshold=1.0,
        v_reset=0.0,
        surrogate_function=surrogate.ATan(),
        detach_reset=True,
        step_mode="m",
    )

    def run(currents: Tensor, recurrent: Tensor | None) -> Tensor:
        functional.reset_net(node)
        if recurrent is None:
            return node(currents)
        node.step_mode = "s"
        spikes: list[Tensor] = []
        for current in currents.unbind(0):
            spikes.append(node(with_feedback(current, spikes, recurrent)))
        return torch.stack(spikes)

    return run


LIBRARIES = {"snnTorch": snntorch_neurons, "Norse": norse_neurons, "SpikingJelly": spikingjelly_neurons}


class Snn:
    """A network of tessera.snn."""

    def __init__(self, weights: list[Tensor], recurrent: Tensor | None, x: Tensor, backend: str, bar: float) -> None:
        from tessera import snn

        settings = {
            "reset_mechanism": "zero",
            "reset_gradient": "detached",
            "spike_grad": snn.surrogate.superspike(SLOPE),
        }
        layers: list[torch.nn.Module] = []
        for i, weight in enumerate(weights):
            linear = torch.nn.Linear(*weight.shape, bias=False)
            linear.weight.data = weight.t().contiguous()
            neurons: torch.nn.Module
            if i + 1 == len(weights):
                neurons = snn.Readout(BETA)
            elif recurrent is None:
                neurons = snn.Leaky(BETA, **settings)
            else:
                neurons = snn.RLeaky(
                    BETA, linear_features=weight.shape[1], recurrent_bias=False, reset_delay=False, **settings
                )
                neurons.recurrent.weight.data = recurrent.t().contiguous()
            layers += [linear, neurons]
        options = {}
        if backend == "sparse":  # capacities are far above 4 %
            options = {"gradient_threshold": bar, "capacities": [weight.shape[1] // 6 for weight in weights[:-1]]}
        self.network = snn.Network(*layers, backend=backend, **options)
        self.x = snn.SpikeEvents.from_dense(x) if backend == "sparse" else x

    def run(self, x: Tensor, upstream: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        self.network.zero_grad()
        if self.network.backend == "sparse":
            self.network(self.x).backward(upstream)
            spikes = [torch.tensor(count.spikes) for count in self.network.counts[:-1]]
            assert not any(count.dropped_candidates for count in self.network.counts)
        else:
            potentials, spikes = self.network(self.x, return_counts=True)
            potentials.backward(upstream)
        return spikes, [parameter.grad.t() for parameter in self.network.parameters()]


class Case:
    """The work, as bench_spiking wrote it."""

    def __init__(self, bench: str, number: int, threads: int, folder: Path) -> None:
        self.bench, self.number, self.threads = bench, number, threads
        self.sizes = SIZES[number]
        self.tessera_milliseconds(0.1, folder)
        self.batch = 32 if number == 3 else 256
        read = lambda name: torch.from_numpy(numpy.load(folder / f"{name}.npy"))  # noqa: E731
        self.x = read("inputs").unflatten(0, (-1, self.batch)).contiguous()
        self.upstream = read("upstream").unflatten(0, (-1, self.batch)).contiguous()
        parameters = [read(f"parameter{i}") for i in range(len(list(folder.glob("parameter*.npy"))))]
        self.weights = [p for p in parameters if p.shape[0] > 1]
        self.gradients = [read(f"gradient{i}") for i in range(len(self.weights))]
        self.recurrent = self.weights.pop(1) if number == 2 else None
        self.spikes = [int(count) for count in read("spikes").flatten()]
        self.bar = read("gradient_threshold").flatten()[0]

    def tessera_milliseconds(self, seconds: float, folder: Path | None = None) -> tuple[float, str]:
        command = [self.bench, str(self.threads), str(seconds), str(self.number)]
        if folder is not None:
            command.append(str(folder))
        line = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
        return float(line.split()[-5]), line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", help="the program bench_spiking")
    parser.add_argument("--case", type=int, default=0, choices=range(4))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        case = Case(arguments.bench, arguments.case, arguments.threads, Path(folder))
    contestants: dict[str, HandWritten | Library | Snn] = {
        "torch.compile": HandWritten(case.weights, case.recurrent, case.bar, Compiled())
    }
    for name, neurons in LIBRARIES.items():
        try:
            contestants[name] = Library(case.weights, case.recurrent, neurons())
        except ImportError as error:
            print(f"without {name}: {error}")

    for backend in ("sparse", "dense"):
        try:
            contestants[f"snn {backend}"] = Snn(case.weights, case.recurrent, case.x, backend, float(case.bar))
        except ImportError as error:
            print(f"without tessera.snn: {error}")

    counts, differences, least = {"tessera": case.spikes}, {}, {"tessera": math.inf}
    for name, contestant in contestants.items():
        spikes, gradients = contestant.run(case.x, case.upstream)  # compiles
        counts[name] = [int(s.sum()) for s in spikes]
        differences[name] = max(
            float((found - ours).norm() / found.norm()) for found, ours in zip(gradients, case.gradients, strict=True)
        )
        least[name] = math.inf
    line = ""
    for _ in range(arguments.rounds):
        milliseconds, line = case.tessera_milliseconds(0.5)
        least["tessera"] = min(least["tessera"], milliseconds)
        for name, contestant in contestants.items():
            start = time.perf_counter()
            contestant.run(case.x, case.upstream)
            least[name] = min(least[name], 1e3 * (time.perf_counter() - start))
    print(line)
    for name, milliseconds in least.items():
        ratio = milliseconds / least["tessera"]
        difference = f"gradients {differences[name]:.1%} apart" if name in differences else ""
        print(f"{name:<14} {milliseconds:9.1f} ms {ratio:6.1f} x  spikes {counts[name]} {difference}")


if __name__ == "__main__":
    main()
