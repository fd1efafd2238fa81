"""The operator `torch.ops.tessera.spiking_network`: layers that take lists of spikes, over whole sequences.

    (result, spiked, counts, state) = spiking_network(ids, num, parameters, layers, …)

`ids` and `num` are as in `SpikeEvents`. `parameters` has for each layer, as far as it has them, weights [inputs,
neurons], recurrent weights [neurons, neurons], decays, decays of currents and thresholds; `layers` says which, in JSON.
`result` [T, batch, neurons] is the last layer's: the membrane potentials of a readout, else spikes. `spiked` [batch,
neurons] has the spike counts of all neurons in hidden layers; it is empty if `counts_spikes` is false. `counts`
[layers, 4] has the numbers of spikes and candidates that were listed, and of both that were dropped because a list was
full. `state` has the values that the gradient operator `spiking_network_backward` needs; that operator has no gradient
itself.
"""

from __future__ import annotations

import atexit
import functools
import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tessera import _tessera
from tessera._operators import library, refuse_device
from tessera._planned import Planned
from tessera.snn._operators import _no_second, _no_setup

_TAGS = (torch.Tag.pt2_compliant_tag,)
_KIND = "str layers, int[] capacities, bool trains, bool learns, bool counts_spikes"

library.define(
    f"spiking_network(Tensor ids, Tensor num, Tensor[] parameters, {_KIND}, float gradient_threshold, int most_listed, "
    "int seed, int step) -> (Tensor, Tensor, Tensor, Tensor)",
    tags=_TAGS,
)
library.define(
    "spiking_network_backward(Tensor dresult, Tensor dspiked, Tensor ids, Tensor num, Tensor[] parameters, Tensor state, "
    f"{_KIND}) -> Tensor[]",
    tags=_TAGS,
)
spiking_network = torch.ops.tessera.spiking_network.default
spiking_network_backward = torch.ops.tessera.spiking_network_backward.default

# The most networks planned: each batch size has its own.
_MOST = 64
_planned: Planned[tuple[Any, ...], _tessera.SpikingNetwork] = Planned(_MOST)
atexit.register(_planned.clear)

Kind = tuple[str, Sequence[int], bool, bool, bool]


def describe(layers: Sequence[dict[str, Any]]) -> str:
    """The argument `layers`, from arguments of `_tessera.SpikingLayer` and, for its neuron, of `_tessera.Neuron`."""
    return json.dumps(layers)


@functools.cache
def _layers(description: str) -> list[dict[str, Any]]:
    layers: list[dict[str, Any]] = json.loads(description)
    return layers


def _network_for(ids: Tensor, kind: Kind) -> _tessera.SpikingNetwork:
    description, capacities, *others = kind
    key = (ids.shape, description, tuple(capacities), *others, _tessera.default_threads())
    found = _planned.get(key)
    if found is None:
        steps, batch, capacity = ids.shape
        found = _planned.add(key, _native(steps, batch, capacity, kind))
    return found


def _native(steps: int, batch: int, capacity: int, kind: Kind) -> _tessera.SpikingNetwork:
    description, capacities, *others = kind
    return _tessera.SpikingNetwork(layers_of(description), steps, batch, capacity, list(capacities), *others)


def layers_of(description: str) -> list[_tessera.SpikingLayer]:
    return [
        _tessera.SpikingLayer(**{**layer, "neuron": _tessera.Neuron(*layer["neuron"])})
        for layer in _layers(description)
    ]


@functools.cache
def _state_size(description: str, capacities: tuple[int, ...], trains: bool, learns: bool) -> tuple[int, int, int]:
    return _tessera.spiking_state_size(layers_of(description), list(capacities), trains, learns)


def _state_bytes(steps: int, batch: int, kind: Kind) -> int:
    """Bytes of a state, or a little more; works for sizes that a compiler leaves open, too."""
    description, capacities, trains, learns, _ = kind
    per_step_and_sample, per_sample, fixed = _state_size(description, tuple(capacities), trains, learns)
    return steps * batch * per_step_and_sample + batch * per_sample + fixed


def _held(parameters: Sequence[Tensor]) -> list[Tensor]:
    return [each.to(torch.float32).contiguous() for each in parameters]


def _check(ids: Tensor, num: Tensor, parameters: Sequence[Tensor], kind: Kind) -> None:
    if ids.dtype is not torch.int16 or num.dtype is not torch.int32 or ids.dim() != 3:
        raise TypeError(f"ids are {ids.dtype} and num {num.dtype}; as in SpikeEvents, they must be int16 and int32")
    if num.shape != (*ids.shape[:2], 2):
        raise ValueError(f"num has shape {tuple(num.shape)}; for ids {tuple(ids.shape)} it is [T, batch, 2]")
    needed = sum(2 + layer["recurrent"] + layer["neuron"][0] + layer["neuron"][1] for layer in _layers(kind[0]))
    if len(parameters) != needed:
        raise ValueError(f"{len(parameters)} parameters; these layers have {needed}")


def _results(ids: Tensor, kind: Kind, make: Any) -> tuple[Tensor, Tensor]:
    """Tensors for the result and the numbers of spikes."""
    *hidden, last = _layers(kind[0])
    counted = sum(layer["neurons"] for layer in hidden) if kind[-1] else 0
    steps, batch, _ = ids.shape
    return make((steps, batch, last["neurons"]), dtype=torch.float32), make((batch, counted), dtype=torch.float32)


def _new_state(ids: Tensor, kind: Kind) -> Tensor:
    steps, batch, _ = ids.shape
    return ids.new_empty((_state_bytes(steps, batch, kind),), dtype=torch.uint8)


# In the following, `arguments` are a kind, the gradient's threshold, the most neurons listed, the seed, and the step.


def _forward_cpu(
    ids: Tensor, num: Tensor, parameters: Sequence[Tensor], *arguments: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    kind: Any = arguments[:5]
    _check(ids, num, parameters, kind)
    state = _new_state(ids, kind)
    if ids.shape[0] == 0 or ids.shape[1] == 0:
        return *_results(ids, kind, torch.zeros), torch.zeros(len(kind[1]), 4, dtype=torch.int64), state
    native, held = _network_for(ids, kind), _held(parameters)
    result, spiked = _results(ids, kind, torch.empty)
    ids, num, at = ids.contiguous(), num.contiguous(), state.data_ptr()
    threshold, most, seed, step = arguments[5:]
    addresses = [p.data_ptr() for p in held]
    native.forward(ids.data_ptr(), num.data_ptr(), addresses, threshold, most, seed, step, at, result.data_ptr())
    if spiked.numel():
        native.count_hidden(at, spiked.data_ptr())
    return result, spiked, torch.tensor(native.counts(at), dtype=torch.int64), state


def _forward_fake(
    ids: Tensor, num: Tensor, parameters: Sequence[Tensor], *arguments: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    kind: Any = arguments[:5]
    _check(ids, num, parameters, kind)
    counts = ids.new_empty((len(kind[1]), 4), dtype=torch.int64)
    return *_results(ids, kind, ids.new_empty), counts, _new_state(ids, kind)


def _learned(parameters: Sequence[Tensor], kind: Sequence[Any]) -> list[int]:
    """The places of the parameters that have gradients."""
    if kind[3]:
        return list(range(len(parameters)))
    places, first = [], 0
    for layer in _layers(kind[0]):
        spikes, synaptic = layer["neuron"][:2]
        places += [first, *([first + 1] if layer["recurrent"] else [])]
        first += 2 + layer["recurrent"] + spikes + synaptic
    return places


def _backward_cpu(
    dresult: Tensor,
    dspiked: Tensor,
    ids: Tensor,
    num: Tensor,
    parameters: Sequence[Tensor],
    state: Tensor,
    *kind: Any,
) -> list[Tensor]:
    learned = [parameters[i] for i in _learned(parameters, kind)]
    if dresult.numel() == 0:
        return [each.new_zeros(each.shape, dtype=torch.float32) for each in learned]
    native, held = _network_for(ids, kind), _held(parameters)
    gradients = [each.new_empty(each.shape, dtype=torch.float32) for each in learned]
    ids, num = ids.contiguous(), num.contiguous()
    dresult, dspiked = _held((dresult, dspiked))
    native.gradients(
        ids.data_ptr(),
        num.data_ptr(),
        [p.data_ptr() for p in held],
        state.data_ptr(),
        dresult.data_ptr(),
        dspiked.data_ptr(),
        [g.data_ptr() for g in gradients],
    )
    return gradients


def _backward_fake(*arguments: Any) -> list[Tensor]:
    parameters, kind = arguments[4], arguments[6:]
    places = _learned(parameters, kind)
    return [parameters[i].new_empty(parameters[i].shape, dtype=torch.float32) for i in places]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ids, num, parameters, *ctx.kind = inputs[:8]
    ctx.mark_non_differentiable(*output[2:])
    ctx.save_for_backward(ids, num, output[3], *parameters)


def _backward(ctx: Any, dresult: Tensor, dspiked: Tensor, *others: Tensor) -> tuple[Any, ...]:
    ids, num, state, *parameters = ctx.saved_tensors
    found = spiking_network_backward(dresult, dspiked, ids, num, parameters, state, *ctx.kind)
    gradients: list[Tensor | None] = [None] * len(parameters)
    for place, gradient in zip(_learned(parameters, tuple(ctx.kind)), found, strict=True):
        gradients[place] = gradient.to(parameters[place].dtype)
    return None, None, gradients, *([None] * 9)


for _name, _cpu, _fake, _prepare, _derivative in (
    ("spiking_network", _forward_cpu, _forward_fake, _setup, _backward),
    ("spiking_network_backward", _backward_cpu, _backward_fake, _no_setup, _no_second),
):
    library.impl(_name, _cpu, "CPU")
    library.impl(_name, refuse_device, "CUDA")
    torch.library.register_fake(f"tessera::{_name}", _fake, lib=library)
    torch.library.register_autograd(f"tessera::{_name}", _derivative, setup_context=_prepare, lib=library)
