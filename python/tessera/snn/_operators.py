"""The operator `torch.ops.tessera.spiking_neurons`: neurons that take currents, over whole sequences.

    (spikes, currents, potentials, membranes) = spiking_neurons(currents, dynamics, recurrent, initial, …)

`currents` is [T, batch, neurons]; `dynamics` [3, neurons] has decays of potentials, decays of currents, and thresholds;
`recurrent` is None, [neurons] (each neuron's weight to itself) or [neurons, neurons] from the row's neuron to the
column's; `initial` is None or [2, batch, neurons], potentials and currents before the first step. The other arguments
describe a neuron as in docs/spiking.md. Results that the neurons do not have are empty: spikes of neurons that do not
spike, currents of neurons that are not synaptic, and membranes (potentials after the reset) without `after_reset`; with
it, the potentials in `initial` are membranes too.

Computes in FP32; spikes have the type of `currents`. The operator `spiking_neurons_backward` computes gradients, and
has no gradient itself.
"""

from __future__ import annotations

import atexit
from typing import Any

import torch
from torch import Tensor

from tessera import _tessera
from tessera._operators import implement, library
from tessera._planned import Planned

_NEURON = (
    "bool spikes, bool synaptic, str reset, str reset_gradient, bool fires_at_threshold, str surrogate, float slope, "
    "float scale, float gain, bool after_reset"
)
_PARAMETERS = "Tensor dynamics, Tensor? recurrent, Tensor? initial"
_TAGS = (torch.Tag.pt2_compliant_tag,)

library.define(
    f"spiking_neurons(Tensor currents, {_PARAMETERS}, {_NEURON}) -> (Tensor, Tensor, Tensor, Tensor)", tags=_TAGS
)
library.define(
    "spiking_neurons_backward(Tensor? dspikes, Tensor? dcurrents, Tensor? dpotentials, Tensor? dmembranes, "
    f"Tensor currents, Tensor potentials, {_PARAMETERS}, {_NEURON}, bool needs_dynamics, bool needs_recurrent, "
    "bool needs_initial) -> (Tensor, Tensor, Tensor, Tensor)",
    tags=_TAGS,
)
spiking_neurons = torch.ops.tessera.spiking_neurons.default
spiking_neurons_backward = torch.ops.tessera.spiking_neurons_backward.default

# The most neurons planned: each kind, size and number of threads has its own.
_MOST = 256
_planned: Planned[tuple[Any, ...], _tessera.SpikingNeurons] = Planned(_MOST)
atexit.register(_planned.clear)


def _neurons_for(shape: torch.Size, recurrent: Tensor | None, neuron: tuple[Any, ...]) -> _tessera.SpikingNeurons:
    recurrence = 0 if recurrent is None else recurrent.dim()
    key = (shape, recurrence, neuron, _tessera.default_threads())
    found = _planned.get(key)
    if found is None:
        *kind, after_reset = neuron
        steps, batch, neurons = shape
        planned = _tessera.SpikingNeurons(_tessera.Neuron(*kind), neurons, steps, batch, recurrence, after_reset)
        found = _planned.add(key, planned)
    return found


def _check(currents: Tensor, dynamics: Tensor, recurrent: Tensor | None, initial: Tensor | None) -> None:
    if currents.dim() != 3:
        raise ValueError(f"currents have shape {tuple(currents.shape)}; it must be [T, batch, neurons]")
    _, batch, neurons = currents.shape
    if dynamics.shape != (3, neurons):
        raise ValueError(f"dynamics have shape {tuple(dynamics.shape)}; for {neurons} neurons it is (3, {neurons})")
    if recurrent is not None and recurrent.shape not in ((neurons,), (neurons, neurons)):
        raise ValueError(
            f"recurrent weights have shape {tuple(recurrent.shape)}; for {neurons} neurons it is ({neurons},) or "
            f"({neurons}, {neurons})"
        )
    if initial is not None and initial.shape != (2, batch, neurons):
        raise ValueError(
            f"initial states have shape {tuple(initial.shape)}; for these currents it is (2, {batch}, {neurons})"
        )


def _floats(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.to(torch.float32).contiguous()


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None or tensor.numel() == 0 else tensor.data_ptr()


def _results(currents: Tensor, neuron: tuple[Any, ...], make: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tensors for spikes, currents, potentials and membranes."""
    spikes, synaptic, after_reset = neuron[0], neuron[1], neuron[-1]
    shape, nothing = currents.shape, (0,)
    spiked = make(currents, shape if spikes else nothing, currents.dtype)
    return spiked, *(make(currents, shape if has else nothing, torch.float32) for has in (synaptic, True, after_reset))


def _empty(like: Tensor, shape: Any, dtype: torch.dtype) -> Tensor:
    return like.new_empty(shape, dtype=dtype)


def _zeros(like: Tensor, shape: Any, dtype: torch.dtype) -> Tensor:
    return like.new_zeros(shape, dtype=dtype)


def _forward_cpu(
    currents: Tensor, dynamics: Tensor, recurrent: Tensor | None, initial: Tensor | None, *neuron: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _check(currents, dynamics, recurrent, initial)
    if currents.numel() == 0:
        return _results(currents, neuron, _zeros)
    given = [_floats(each) for each in (currents, dynamics, recurrent, initial)]
    spiked, *states = _results(given[0], neuron, _empty)  # type: ignore[arg-type]
    native = _neurons_for(currents.shape, recurrent, neuron)
    native.forward([_address(each) for each in given], [_address(each) for each in (spiked, *states)])
    return spiked.to(currents.dtype), *states  # type: ignore[return-value]


def _forward_fake(
    currents: Tensor, dynamics: Tensor, recurrent: Tensor | None, initial: Tensor | None, *neuron: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _check(currents, dynamics, recurrent, initial)
    return _results(currents, neuron, _empty)


def _gradients(
    potentials: Tensor, parameters: tuple[Tensor | None, ...], needed: tuple[bool, ...], make: Any
) -> tuple[Tensor, ...]:
    """Tensors for the gradients of currents and, as far as they are needed, of parameters."""
    of_parameters = (
        make(potentials, p.shape if p is not None and wanted else (0,), torch.float32)
        for p, wanted in zip(parameters, needed, strict=True)
    )
    return make(potentials, potentials.shape, torch.float32), *of_parameters


def _backward_cpu(*arguments: Any) -> tuple[Tensor, ...]:
    upstream, (synaptic, potentials), parameters = arguments[:4], arguments[4:6], arguments[6:9]
    neuron, needed = arguments[9:-3], arguments[-3:]
    if potentials.numel() == 0:
        return _gradients(potentials, parameters, needed, _zeros)
    potentials, synaptic = potentials.contiguous(), synaptic.contiguous()
    gradients = _gradients(potentials, parameters, needed, _empty)
    held, inputs = [_floats(each) for each in upstream], [_floats(each) for each in parameters]
    dcurrents, ddynamics, drecurrent, dinitial = gradients
    native = _neurons_for(potentials.shape, parameters[1], neuron)
    native.gradients(
        [0, *(_address(each) for each in inputs)],
        [_address(potentials), _address(synaptic), *(_address(each) for each in held)],
        [_address(each) for each in (dcurrents, ddynamics, drecurrent, dinitial)],
    )
    return gradients


def _backward_fake(*arguments: Any) -> tuple[Tensor, ...]:
    return _gradients(arguments[5], arguments[6:9], arguments[-3:], _empty)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    currents, dynamics, recurrent, initial, *ctx.neuron = inputs
    ctx.set_materialize_grads(False)
    ctx.dtypes = [None if each is None else each.dtype for each in (currents, dynamics, recurrent, initial)]
    ctx.save_for_backward(output[1], output[2], dynamics, recurrent, initial)


def _backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
    needed = ctx.needs_input_grad[:4]
    gradients = spiking_neurons_backward(*upstream, *ctx.saved_tensors, *ctx.neuron, *needed[1:])
    found = (
        gradient.to(dtype) if wanted else None
        for gradient, dtype, wanted in zip(gradients, ctx.dtypes, needed, strict=True)
    )
    return *found, *([None] * len(ctx.neuron))


def _no_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    pass


def _no_second(ctx: Any, *gradients: Tensor) -> Any:
    raise RuntimeError("spiking neurons have no second derivatives: surrogate gradients are not derivatives")


implement("spiking_neurons", _forward_cpu, _forward_fake, _setup, _backward)
implement("spiking_neurons_backward", _backward_cpu, _backward_fake, _no_setup, _no_second)
