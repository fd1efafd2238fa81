"""Networks of spiking layers that pass lists of spikes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tessera._arguments import chosen
from tessera.graph import Graph, Session
from tessera.snn._events import SpikeEvents
from tessera.snn._graphs import Potential, copy_from, graph_of
from tessera.snn._network_operators import describe, layers_of, spiking_network
from tessera.snn._neurons import Leaky, OneToOne, _Neurons, _Recurrent

_BACKENDS = ("sparse", "dense")
_NO_THRESHOLD = float(torch.finfo(torch.float32).min)
_NO_LIMIT = 2**32 - 1


class SpikeCounts(NamedTuple):
    """Counts of a layer in the last sequence: spikes and candidates that were listed, and that were dropped because a
    list was full.
    """

    spikes: int
    candidates: int
    dropped_spikes: int
    dropped_candidates: int


class Network(nn.Sequential):
    """Layers of `torch.nn.Linear` and neurons by turns, as one operator over whole sequences.

        network = Network(Linear(700, 256, bias=False), Leaky(0.95), Linear(256, 20, bias=False), Readout(0.95))
        membrane = network(SpikeEvents.from_dense(spikes))     # [T, batch, 20]

    The result is the last layer's: the membrane potentials of a `Readout`, or else spikes. Parameters have the same
    names as in a `torch.nn.Sequential`.

    `backend="sparse"` passes lists of spikes from layer to layer, forward and backward, so that its time grows with
    activity. A gradient passes a neuron in a step only if the neuron's potential is above `gradient_threshold` (ϑ_grad)
    and the neuron is listed; `capacities` are the capacities of the lists of each layer of neurons, None for all
    neurons. By default gradients equal the gradients of dense layers. If a list is full, it prefers spikes to
    candidates, and drops neurons at random; `counts` has the numbers of listed and dropped neurons, and `most_listed`
    lowers the limit. All of these but `capacities`, and `seed` and `step` (the number of the next sequence to train
    on), may be changed between calls. `backend="dense"` computes the same with dense layers, one after the other, with
    gradients of all neurons. `choose_backend` measures which backend is faster.

    Features that a backend does not have are refused: `"sparse"` has no biases, no one-to-one recurrence and no graded
    spikes, and its inputs have no gradient.
    """

    def __init__(
        self,
        *layers: nn.Module,
        backend: str = "sparse",
        gradient_threshold: float | None = None,
        capacities: Sequence[int | None] | None = None,
        most_listed: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(*layers)
        self.backend = chosen("backend", backend, _BACKENDS)
        self.gradient_threshold, self.most_listed = gradient_threshold, most_listed
        self.seed, self.step = seed, 0
        self._counts: Tensor | None = None
        self._given_capacities = capacities
        _checked_capacities(capacities, self.pairs)
        if backend == "dense" and (gradient_threshold is not None or capacities is not None or most_listed is not None):
            raise ValueError("gradient_threshold, capacities and most_listed are for lists; the backend is dense")
        if backend == "sparse":
            self._check_sparse()
        self._described = self._description()

    @property
    def pairs(self) -> list[tuple[nn.Linear, _Neurons]]:
        """Each linear layer with its neurons, as the network has them now."""
        return _pairs(list(self))

    @property
    def _capacities(self) -> list[int]:
        return _checked_capacities(self._given_capacities, self.pairs)

    def _check_sparse(self) -> None:
        for place, (linear, neurons) in enumerate(self.pairs):
            _check_sparse(place, linear, neurons)

    @property
    def counts(self) -> list[SpikeCounts]:
        """Counts of each layer of neurons in the last sequence; zeros for layers without spikes."""
        if self._counts is None:
            raise RuntimeError("no sequence has run through lists of spikes yet")
        return [SpikeCounts(*each) for each in self._counts.tolist()]

    def forward(self, input: SpikeEvents | Tensor, return_counts: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Compute the result from spikes; a tensor [T, batch, features] of zeros and ones is converted to lists if the
        backend needs them.

        With `return_counts`, also returns the spike counts of each hidden layer's neurons, [batch, neurons], through
        which gradients pass, for losses on activity.
        """
        if self.backend == "dense":
            result, spiked = self._dense(input.to_dense() if isinstance(input, SpikeEvents) else input)
            return (result, spiked) if return_counts else result
        if torch._C._are_functorch_transforms_active():
            raise NotImplementedError(
                "a network on lists of spikes under a transform of torch.func: use loss.backward(), or backend='dense'"
            )
        events = input if isinstance(input, SpikeEvents) else SpikeEvents.from_dense(input)
        first = self.pairs[0][0].in_features
        if events.features != first:
            raise ValueError(f"spikes of {events.features} features; the first layer has {first} inputs")
        if not torch.compiler.is_compiling():
            self._check_sparse()
            self._described = self._description()
        parameters = self._parameters_of_layers()
        trains = torch.is_grad_enabled() and any(each.requires_grad for each in parameters)
        learns = trains and any(each.requires_grad for each in self._dynamics())
        result, spiked, counts, _ = spiking_network(
            events.ids,
            events.num,
            parameters,
            self._described,
            self._capacities,
            trains,
            learns,
            return_counts,
            _NO_THRESHOLD if self.gradient_threshold is None else float(self.gradient_threshold),
            _NO_LIMIT if self.most_listed is None else int(self.most_listed),
            self.seed,
            self.step,
        )
        self._counts = counts
        if trains:
            self.step += 1
        membrane: Tensor = result
        if not return_counts:
            return membrane
        return membrane, list(spiked.split([linear.out_features for linear, _ in self.pairs[:-1]], 1))

    def choose_backend(self, input: SpikeEvents | Tensor, rounds: int = 3) -> dict[str, float]:
        """Choose the faster backend for input like this: measure the seconds of a forward and a backward pass, and
        return them.

        Lists are faster where few neurons fire. Limits of lists change gradients, so a network with a
        `gradient_threshold`, `capacities` or `most_listed` is refused. The parameters' `grad` does not change.
        """
        if self.gradient_threshold is not None or self.most_listed is not None or any(self._capacities):
            raise ValueError("lists with a gradient_threshold, capacities or most_listed have other gradients")
        if rounds < 1:
            raise ValueError(f"{rounds} rounds; there must be at least one")
        self._check_sparse()
        before, step = self.backend, self.step
        seconds: dict[str, float] = {}
        try:
            for self.backend in _BACKENDS:
                seconds[self.backend] = min([self._time_of_pass(input) for _ in range(rounds + 1)][1:])
        except BaseException:
            self.backend = before
            raise
        finally:
            self.step = step
        self.backend = min(seconds, key=seconds.__getitem__)
        return seconds

    def _time_of_pass(self, input: SpikeEvents | Tensor) -> float:
        learned = [parameter for parameter in self.parameters() if parameter.requires_grad]
        start = time.perf_counter()
        with torch.set_grad_enabled(bool(learned)):
            result = self(input)
            if learned:
                torch.autograd.grad(result.sum(), learned, allow_unused=True)
        return time.perf_counter() - start

    def graph(
        self,
        steps: int,
        batch: int,
        capacity: int,
        *,
        potential: Potential = "maximum",
        activity: tuple[float, float] = (0.02, 0.04),
        neurons_per_tile: Sequence[int] = (),
    ) -> Graph:
        """The network as a `tessera.graph.Graph`, to train it on other machines, or to estimate the cost.

            step = network.graph(100, 48, events.capacity).training_step("cross_entropy", "adam")
            step.estimate("gc200")
            session = step.session("gc200")
            loss = session.run(**events.arrays(), labels=labels)
            network.copy_from(session)

        The graph's inputs are the lists "in.ids" and "in.num" with this `capacity`, its output is "logits" [batch,
        neurons]: the spike counts of the last layer, or the last, maximum or mean of its membrane potentials, as
        `potential` says. `activity` has the fractions of inputs that fire and of neurons that are listed in a step, for
        planning. `neurons_per_tile` is for tiled machines, a number for each layer; 0: as few as the number of tiles
        allows. The graph has the network's present `gradient_threshold` and `seed`.
        """
        self._check_sparse()
        return graph_of(
            self,
            layers_of(self._description()),
            (steps, batch, capacity),
            self._capacities,
            _NO_THRESHOLD if self.gradient_threshold is None else float(self.gradient_threshold),
            potential,
            activity,
            neurons_per_tile,
        )

    def copy_from(self, session: Session) -> None:
        """Read the parameters from a session of `graph()`, or of its training step."""
        copy_from(self, session)

    def _dense(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        spiked = []
        for linear, neurons in self.pairs:
            found = neurons(linear(x))
            x = found[0] if isinstance(found, tuple) else found
            spiked.append(x.sum(0) if neurons._spikes else x)
        return x, spiked[:-1]

    def _description(self) -> str:
        return describe(
            [
                {
                    "inputs": linear.in_features,
                    "neurons": linear.out_features,
                    "neuron": neurons.neuron()[:-1],
                    "recurrent": isinstance(neurons, _Recurrent),
                    "decay_per_neuron": neurons.beta.numel() > 1,
                    "current_decay_per_neuron": neurons.alpha is not None and neurons.alpha.numel() > 1,
                    "threshold_per_neuron": neurons.threshold is not None and neurons.threshold.numel() > 1,
                }
                for linear, neurons in self.pairs
            ]
        )

    def _parameters_of_layers(self) -> list[Tensor]:
        found = []
        for linear, neurons in self.pairs:
            found.append(linear.weight.t())
            if isinstance(neurons, _Recurrent):
                found.append(neurons.recurrent.weight.t())  # type: ignore[operator]
            found.append(neurons.beta.clamp(0, 1).reshape(1, -1))
            if neurons.alpha is not None:
                found.append(neurons.alpha.clamp(0, 1).reshape(1, -1))
            if neurons.threshold is not None:
                found.append(neurons.threshold.reshape(1, -1))
        return found

    def _dynamics(self) -> list[Tensor]:
        return [
            each
            for _, neurons in self.pairs
            for each in (neurons.beta, neurons.alpha, neurons.threshold)
            if each is not None
        ]

    def extra_repr(self) -> str:
        return f"backend={self.backend!r}"


def _pairs(layers: Sequence[nn.Module]) -> list[tuple[nn.Linear, _Neurons]]:
    pairs: list[tuple[nn.Linear, _Neurons]] = []
    for place, (linear, neurons) in enumerate(zip(layers[::2], [*layers[1::2], None], strict=False)):
        if not isinstance(linear, nn.Linear) or not isinstance(neurons, _Neurons):
            raise TypeError(
                f"layers {2 * place} and {2 * place + 1} are {type(linear).__name__} and {type(neurons).__name__}; a "
                "network has a torch.nn.Linear and then neurons of tessera.snn, by turns"
            )
        if pairs and pairs[-1][0].out_features != linear.in_features:
            raise ValueError(
                f"layer {2 * place} has {linear.in_features} inputs, and the one before {pairs[-1][0].out_features} "
                "neurons"
            )
        if pairs and not pairs[-1][1]._spikes:
            raise ValueError(f"layer {2 * place - 1} has no spikes, so it must be the last")
        for name in ("beta", "alpha", "threshold"):
            value = getattr(neurons, name)
            if value is not None and value.numel() not in (1, linear.out_features):
                raise ValueError(
                    f"{name} of layer {2 * place + 1} has {value.numel()} elements; its {linear.out_features} neurons "
                    "need one, or one each"
                )
        pairs.append((linear, neurons))
    if not pairs:
        raise ValueError("a network needs layers")
    return pairs


def _check_sparse(place: int, linear: nn.Linear, neurons: _Neurons) -> None:
    def refuse(layer: int, what: str) -> None:
        raise ValueError(f"layer {layer} has {what}: use backend='dense'")

    if linear.bias is not None:
        refuse(2 * place, "a bias, which lists of spikes lack (bias=False)")
    if isinstance(neurons, _Recurrent):
        if isinstance(neurons.recurrent, OneToOne):
            refuse(2 * place + 1, "one-to-one recurrence, which lists of spikes lack")
        elif neurons.recurrent.bias is not None:
            refuse(2 * place + 1, "a recurrent bias, which lists of spikes lack (recurrent_bias=False)")
        elif neurons.linear_features != linear.out_features:
            raise ValueError(
                f"layer {2 * place + 1} has {neurons.linear_features} neurons; the layer before has "
                f"{linear.out_features} outputs"
            )
    if isinstance(neurons, Leaky) and neurons.is_graded:
        refuse(2 * place + 1, "graded spikes, which lists of spikes lack")


def _checked_capacities(
    capacities: Sequence[int | None] | None, pairs: Sequence[tuple[nn.Linear, _Neurons]]
) -> list[int]:
    """The capacity of the lists of each layer, 0 for all neurons."""
    if capacities is None:
        return [0] * len(pairs)
    spiking = [pair for pair in pairs if pair[1]._spikes]
    if len(capacities) not in (len(spiking), len(pairs)):
        raise ValueError(f"{len(capacities)} capacities; the network has {len(spiking)} layers that spike")
    found = [each or 0 for each in capacities] + [0] * (len(pairs) - len(capacities))
    for (linear, _), capacity in zip(pairs, found, strict=True):
        if not 0 <= capacity <= linear.out_features:
            raise ValueError(f"a capacity of {capacity} for {linear.out_features} neurons; it is 1 to all, or None")
    return found
