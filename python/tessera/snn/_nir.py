"""Exchange of networks with other libraries in NIR, the Neuromorphic Intermediate Representation (pip install nir)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tessera.snn._network import Network
from tessera.snn._neurons import Leaky, OneToOne, Readout, RLeaky, RSynaptic, Synaptic, _Neurons, _Recurrent

_DT = 1e-4


def _nir() -> Any:
    try:
        import nir
    except ImportError as error:
        raise ImportError("exchange by NIR needs the package nir: pip install nir") from error
    return nir


# Export.


def to_nir(network: nn.Sequential, dt: float = _DT) -> Any:
    """Convert a network of alternating `torch.nn.Linear` and neurons of `tessera.snn`, such as a `Network`, to a
    `nir.NIRGraph`.

    Decays become time constants, beta = 1 - dt/tau. NIR's neurons reset to a potential (here 0) at once. A layer that
    resets in another way says so in the metadata of its node, beside dt, with a warning, since other libraries do not
    read the metadata.
    """
    nir = _nir()
    if not (dt > 0 and math.isfinite(dt)):
        raise ValueError(f"a time step of {dt}; it must be above 0, in seconds")
    nodes: dict[str, Any] = {}
    pairs = network.pairs if isinstance(network, Network) else Network(*network, backend="dense").pairs
    for place, (linear, neurons) in enumerate(pairs):
        nodes[str(2 * place)] = _linear_node(nir, linear.weight, linear.bias)
        nodes[str(2 * place + 1)] = _neuron_node(nir, neurons, linear.out_features, dt, 2 * place + 1)
    nodes = {
        "input": nir.Input(input_type={"input": np.array([pairs[0][0].in_features])}),
        **nodes,
        "output": nir.Output(output_type={"output": np.array([pairs[-1][0].out_features])}),
    }
    names = list(nodes)
    return nir.NIRGraph(nodes=nodes, edges=list(zip(names, names[1:], strict=False)), metadata={"dt": dt})


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = tensor.detach().to(torch.float32).numpy().copy()
    return array


def _linear_node(nir: Any, weight: Tensor, bias: Tensor | None) -> Any:
    if bias is None:
        return nir.Linear(weight=_array(weight))
    return nir.Affine(weight=_array(weight), bias=_array(bias))


def _time_constant(name: str, decay: Tensor, neurons: int, dt: float, place: int) -> np.ndarray[Any, Any]:
    values = np.broadcast_to(decay.detach().clamp(0, 1).double().numpy().reshape(-1), (neurons,))
    if (values >= 1).any():
        raise ValueError(f"{name} of layer {place} is 1, which has no time constant: NIR needs one below")
    constants: np.ndarray[Any, Any] = (dt / (1 - values)).astype(np.float32)
    return constants


def _neuron_node(nir: Any, layer: _Neurons, neurons: int, dt: float, place: int) -> Any:
    if isinstance(layer, Leaky) and layer.is_graded:
        raise ValueError(f"layer {place} has graded spikes, which NIR lacks")
    zeros = np.zeros(neurons, np.float32)
    tau = _time_constant("beta", layer.beta, neurons, dt, place)
    gain = np.float32(layer.gain)
    arguments: dict[str, Any] = {"r": gain * tau / np.float32(dt), "v_leak": zeros, "metadata": {"dt": dt}}
    if layer.alpha is None:
        arguments["tau"] = tau
    else:
        synaptic = _time_constant("alpha", layer.alpha, neurons, dt, place)
        arguments |= {"tau_mem": tau, "tau_syn": synaptic, "w_in": synaptic / np.float32(dt)}
    if isinstance(layer, Readout):
        return (nir.LI if layer.alpha is None else nir.CubaLI)(**arguments)
    assert layer.threshold is not None
    threshold = np.broadcast_to(_array(layer.threshold).reshape(-1), (neurons,)).copy()
    mechanism, delay = layer.reset_mechanism, layer.reset_delay
    arguments |= {"v_threshold": threshold, "v_reset": zeros}
    arguments["metadata"] |= {"reset_mechanism": mechanism, "reset_delay": delay}
    if mechanism != "zero" or delay:
        warnings.warn(
            f"layer {place} resets by {mechanism!r}{' a step late' if delay else ''}; NIR's neurons reset to v_reset "
            "at once, so other libraries will compute something else: use reset_mechanism='zero', reset_delay=False",
            stacklevel=3,
        )
    node = (nir.LIF if layer.alpha is None else nir.CubaLIF)(**arguments)
    if not isinstance(layer, _Recurrent):
        return node
    if isinstance(layer.recurrent, OneToOne):
        weight = np.diag(np.broadcast_to(_array(layer.recurrent.V).reshape(-1), (neurons,)))
        recurrent = nir.Linear(weight=weight)
    else:
        recurrent = _linear_node(nir, layer.recurrent.weight, layer.recurrent.bias)
    shape = np.array([neurons])
    return nir.NIRGraph(
        nodes={
            "input": nir.Input(input_type={"input": shape}),
            "lif": node,
            "w_rec": recurrent,
            "output": nir.Output(output_type={"output": shape}),
        },
        edges=[("input", "lif"), ("lif", "w_rec"), ("w_rec", "lif"), ("lif", "output")],
        metadata={"dt": dt},
    )


# Import.


def from_nir(graph: Any, dt: float | None = None, backend: str = "dense", **options: Any) -> Network:
    """Convert a `nir.NIRGraph` to a `Network`; Affine or Linear nodes alternate with LIF, CubaLIF, LI or CubaLI,
    recurrent or not.

    `dt` is the time step; by default the step in the metadata of the graph or a node, or else 1e-4 s. Neurons reset to
    zero at once, or as the metadata says. Scales of inputs are multiplied into the weights. `options` are options of
    `Network`.
    """
    nir = _nir()
    if dt is not None and not (dt > 0 and math.isfinite(dt)):
        raise ValueError(f"a time step of {dt}; it must be above 0, in seconds")
    nodes = _chain(nir, graph)
    if len(nodes) % 2:
        raise ValueError(f"the graph has {len(nodes)} layers; it must have weights and neurons by turns")
    layers: list[nn.Module] = []
    for (weights_name, weights), (name, neurons) in zip(nodes[::2], nodes[1::2], strict=True):
        if not isinstance(weights, (nir.Affine, nir.Linear)):
            raise ValueError(f"node {weights_name!r} is a {type(weights).__name__}; before neurons, weights are needed")
        layers += _layers_of(nir, weights, name, neurons, dt or graph.metadata.get("dt"))
    return Network(*layers, backend=backend, **options)


def _chain(nir: Any, graph: Any) -> list[tuple[str, Any]]:
    """The nodes between input and output, neurons that are connected with recurrent weights as one graph."""
    following: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for start, end in dict.fromkeys(graph.edges):
        following[start].append(end)
    starts = [name for name, node in graph.nodes.items() if isinstance(node, nir.Input)]
    if len(starts) != 1:
        raise ValueError(f"the graph has {len(starts)} inputs; it must have one")
    at = starts[0]
    chain: list[tuple[str, Any]] = []
    while True:
        ends = following[at]
        recurrent = [end for end in ends if following[end] == [at]]
        onward = [end for end in ends if end not in recurrent]
        if recurrent:
            node = graph.nodes[at]
            chain[-1] = (at, _Recurrence(node, graph.nodes[recurrent[0]]))
        if len(onward) != 1 or len(recurrent) > 1 or len(chain) > len(graph.nodes):
            raise ValueError(f"node {at!r} is followed by {ends}; a network has its layers one after the other")
        at = onward[0]
        node = graph.nodes[at]
        if isinstance(node, nir.Output):
            return chain
        chain.append((at, _Recurrence.of(nir, at, node) if isinstance(node, nir.NIRGraph) else node))


class _Recurrence:
    """Neurons and the weights of their own spikes."""

    def __init__(self, neurons: Any, weights: Any) -> None:
        self.neurons, self.weights = neurons, weights

    @classmethod
    def of(cls, nir: Any, name: str, graph: Any) -> _Recurrence:
        chain = _chain(nir, graph)
        if len(chain) != 1 or not isinstance(chain[0][1], _Recurrence):
            raise ValueError(f"graph {name!r} has {len(chain)} layers; inside another it must be recurrent neurons")
        return chain[0][1]


def _one_or_each(values: np.ndarray[Any, Any]) -> Tensor:
    values = np.asarray(values, np.float64).reshape(-1)
    chosen = values[0] if (values == values[0]).all() else values
    return torch.as_tensor(chosen, dtype=torch.float32)


def _layers_of(nir: Any, weights: Any, name: str, node: Any, dt: float | None) -> tuple[nn.Linear, _Neurons]:
    recurrence = node if isinstance(node, _Recurrence) else None
    neurons = recurrence.neurons if recurrence is not None else node
    kinds = {nir.LIF: (RLeaky, Leaky), nir.CubaLIF: (RSynaptic, Synaptic)}
    if not isinstance(neurons, (nir.LIF, nir.CubaLIF, nir.LI, nir.CubaLI)) or (
        recurrence is not None and not isinstance(neurons, (nir.LIF, nir.CubaLIF))
    ):
        raise ValueError(f"node {name!r} is a {type(neurons).__name__}; known are LIF, CubaLIF, LI and CubaLI")
    step = float(dt or neurons.metadata.get("dt", _DT))
    cuba = isinstance(neurons, (nir.CubaLIF, nir.CubaLI))
    tau = np.asarray(neurons.tau_mem if cuba else neurons.tau, np.float64)
    if np.any(neurons.v_leak) or np.any(getattr(neurons, "v_reset", 0)):
        raise ValueError(f"node {name!r} has a v_leak or v_reset that is not 0, which Tessera's neurons lack")
    arguments: dict[str, Any] = {"beta": _one_or_each(1 - step / tau)}
    scale = np.asarray(neurons.r, np.float64) * step / tau
    if cuba:
        tau_syn = np.asarray(neurons.tau_syn, np.float64)
        arguments["alpha"] = _one_or_each(1 - step / tau_syn)
        scale = scale * np.asarray(neurons.w_in, np.float64) * step / tau_syn
    if (
        float(torch.as_tensor(arguments["beta"]).min()) < 0
        or float(torch.as_tensor(arguments.get("alpha", 0)).min()) < 0
    ):
        raise ValueError(f"node {name!r} has a time constant below the time step of {step} s: pass a smaller dt")
    linear = _linear(nir, weights, scale)
    if isinstance(neurons, (nir.LI, nir.CubaLI)):
        return linear, Readout(**arguments)
    metadata = neurons.metadata
    arguments["threshold"] = _one_or_each(neurons.v_threshold)
    arguments["reset_mechanism"] = str(metadata.get("reset_mechanism", "zero"))
    arguments["reset_delay"] = bool(metadata.get("reset_delay", False))
    recurrent_kind, kind = kinds[type(neurons)]
    if recurrence is None:
        return linear, kind(**arguments)
    return linear, _recurrent(nir, recurrent_kind, arguments, recurrence.weights, name, scale)


def _linear(nir: Any, weights: Any, scale: np.ndarray[Any, Any]) -> nn.Linear:
    """A linear layer whose results are multiplied by a scale, which is left out if it is 1 up to rounding."""
    weight = np.asarray(weights.weight, np.float64)
    if weight.ndim != 2:
        raise ValueError(f"weights of shape {weight.shape}; they must be a matrix")
    scale = np.broadcast_to(scale.reshape(-1), (weight.shape[0],))
    if np.allclose(scale, 1, rtol=1e-5):
        scale = np.ones_like(scale)
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=isinstance(weights, nir.Affine))
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(weight * scale[:, None]))
        if isinstance(weights, nir.Affine):
            linear.bias.copy_(torch.from_numpy(np.asarray(weights.bias, np.float64) * scale))
    return linear


def _recurrent(
    nir: Any, kind: Callable[..., _Recurrent], arguments: dict[str, Any], weights: Any, name: str, scale: Any
) -> _Recurrent:
    if not isinstance(weights, (nir.Affine, nir.Linear)):
        raise ValueError(f"the recurrent weights of node {name!r} are a {type(weights).__name__}, not Affine or Linear")
    linear = _linear(nir, weights, scale)
    matrix, neurons = linear.weight.detach(), linear.out_features
    if linear.bias is None and neurons > 1 and torch.equal(matrix, torch.diag(matrix.diagonal())):
        return kind(**arguments, all_to_all=False, V=matrix.diagonal().clone())
    layer = kind(**arguments, linear_features=neurons, recurrent_bias=linear.bias is not None)
    layer.recurrent.load_state_dict(linear.state_dict())
    return layer
