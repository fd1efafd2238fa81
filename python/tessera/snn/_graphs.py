"""Networks of spiking layers as graphs, to train them on other machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from tessera import _tessera
from tessera._arguments import chosen
from tessera.graph import Graph, Session
from tessera.graph._values import Value

if TYPE_CHECKING:
    from tessera.snn._network import Network

Potential: TypeAlias = Literal["last", "maximum", "mean"]
_POTENTIALS = get_args(Potential)  # in the order of the library's numbers


def graph_of(
    network: Network,
    layers: list[_tessera.SpikingLayer],
    sizes: tuple[int, int, int],
    capacities: list[int],
    gradient_threshold: float,
    potential: Potential,
    activity: tuple[float, float],
    neurons_per_tile: Sequence[int],
) -> Graph:
    chosen("potential", potential, _POTENTIALS)
    graph = Graph()
    parameters = [
        graph.parameter(name, initial=_of_graph(_used(name, values.detach())).numpy())
        for name, values in named_parameters(network)
    ]
    graph._frozen = {name for name, values in named_parameters(network) if not values.requires_grad}
    learns = any(values.requires_grad for name, values in named_parameters(network) if not name.endswith("weight"))
    steps, batch, capacity = sizes
    lists, potentials = graph.native.spiking(
        steps,
        batch,
        capacity,
        layers,
        [parameter.id for parameter in parameters],
        capacities,
        learns,
        graph.constant(gradient_threshold, name="gradient_threshold").id,
        graph.step().id,
        network.seed,
        activity,
        list(neurons_per_tile),
    )
    if potentials is not None:
        logits = graph.native.readout(potentials, batch, _POTENTIALS.index(potential))
    else:
        ids, num, _ = lists[-1]
        logits = graph.native.spike_counts(ids, num, batch, network.pairs[-1][0].out_features)
    graph.output("logits", Value(graph, logits))
    return graph


def named_parameters(network: Network) -> list[tuple[str, Tensor]]:
    """Parameters in the order in which layers take them, by their names in the module."""
    found = []
    for place, (linear, neurons) in enumerate(network.pairs):
        found.append((f"{2 * place}.weight", linear.weight))
        of_neurons = dict(neurons.named_parameters()) | dict(neurons.named_buffers())
        for name in ("recurrent.weight", "beta", "alpha", "threshold"):
            if name in of_neurons:
                found.append((f"{2 * place + 1}.{name}", of_neurons[name]))
    return found


@torch.no_grad()
def copy_from(network: Network, session: Session) -> None:
    values = session.parameters()
    found = []  # nothing changes if one does not fit
    for name, to in named_parameters(network):
        if name not in values:
            raise ValueError(f"the session has no parameter {name!r}")
        given = torch.from_numpy(values[name])
        if given.shape != _of_graph(to).shape:
            raise ValueError(
                f"{name} has shape {tuple(given.shape)} in the session; it must be {tuple(_of_graph(to).shape)}"
            )
        found.append((to, given.t() if to.dim() == 2 else given.reshape(to.shape)))
    for to, given in found:
        to.copy_(given)


def _used(name: str, values: Tensor) -> Tensor:
    """A parameter as layers use it: decays are clipped to [0, 1]."""
    return values.clamp(0, 1) if name.endswith((".alpha", ".beta")) else values


def _of_graph(values: Tensor) -> Tensor:
    """A parameter as a graph has it: weights are [inputs, neurons], parameters of neurons have one row."""
    return (values.t() if values.dim() == 2 else values.reshape(1, -1)).contiguous()
