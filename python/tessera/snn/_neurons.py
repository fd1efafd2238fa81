"""Layers of spiking neurons that take currents, over whole sequences, with snnTorch's arguments."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from tessera._arguments import chosen
from tessera.snn._operators import spiking_neurons
from tessera.snn.surrogate import Surrogate, atan

_RESETS = ("subtract", "zero", "none")
_RESET_GRADIENTS = ("detached", "gated", "attached")
_REFUSED = {
    "init_hidden": "a call takes a whole sequence and keeps no states; pass them, if there are any",
    "inhibition": "each neuron fires by itself",
    "state_quant": "states are FP32",
}


def _tensor(value: float | Tensor) -> Tensor:
    tensor = torch.as_tensor(value)
    return tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())


def _arguments(of_constructor: dict[str, Any]) -> dict[str, Any]:
    """Return a constructor's arguments, given its local variables."""
    return {name: value for name, value in of_constructor.items() if name not in ("self", "__class__")}


class _Neurons(nn.Module):
    """The common base of the layers. Subclasses say which states they have."""

    beta: Tensor
    alpha: Tensor | None
    threshold: Tensor | None
    _spikes = True
    _keeps_input = False  # a late reset to zero keeps the new input

    def __init__(
        self,
        beta: float | Tensor,
        learn_beta: bool,
        alpha: float | Tensor | None = None,
        learn_alpha: bool = False,
        threshold: float | Tensor | None = None,
        learn_threshold: bool = False,
        spike_grad: Surrogate | None = None,
        surrogate_disable: bool = False,
        reset_mechanism: str = "none",
        reset_delay: bool = True,
        reset_gradient: str | None = None,
        fires_at_threshold: bool = False,
        gain: float = 1.0,
        **others: Any,
    ) -> None:
        super().__init__()
        for name, why in _REFUSED.items():
            if others.get(name):
                raise ValueError(f"{type(self).__name__} has no {name}: {why}")
        self._add("beta", beta, learn_beta)
        self._add("alpha", alpha, learn_alpha)
        self._add("threshold", threshold, learn_threshold)
        if spike_grad is not None and not isinstance(spike_grad, Surrogate):
            raise TypeError(
                f"spike_grad is a {type(spike_grad).__name__}; it must be a surrogate of tessera.snn.surrogate, such "
                "as tessera.snn.surrogate.atan()"
            )
        chosen("reset_mechanism", reset_mechanism, _RESETS)
        if reset_gradient is not None:
            chosen("reset_gradient", reset_gradient, _RESET_GRADIENTS)
        if not math.isfinite(gain):
            raise ValueError(f"a gain of {gain}; it must be finite")
        self.spike_grad = spike_grad or atan()
        self.surrogate_disable = surrogate_disable
        self.reset_mechanism, self.reset_delay = reset_mechanism, reset_delay
        self.reset_gradient = reset_gradient or ("gated" if reset_delay else "attached")
        self.fires_at_threshold, self.gain = fires_at_threshold, gain
        if self.reset == "late_zero" and self.reset_gradient == "attached":
            raise ValueError("the gradient of a late reset to zero cannot be attached: use gated or detached")

    def _add(self, name: str, value: float | Tensor | None, learns: bool) -> None:
        if value is None:
            self.register_buffer(name, None)
        elif learns:
            self.register_parameter(name, nn.Parameter(_tensor(value)))
        else:
            self.register_buffer(name, _tensor(value))

    @property
    def reset(self) -> str:
        """The name of the reset in docs/spiking.md."""
        if self.reset_mechanism == "none" or not self.reset_delay:
            return self.reset_mechanism
        if self.reset_mechanism == "zero" and self._keeps_input:
            return "zero"  # the same numbers
        return f"late_{self.reset_mechanism}"

    @property
    def after_reset(self) -> bool:
        """Whether the membrane potentials are potentials after a reset."""
        return self._spikes and not self.reset_delay and self.reset_mechanism != "none"

    def neuron(self) -> tuple[Any, ...]:
        """The operator's arguments except tensors."""
        surrogate = self.spike_grad
        return (
            self._spikes,
            self.alpha is not None,
            self.reset,
            self.reset_gradient,
            self.fires_at_threshold,
            surrogate.family,
            float(surrogate.slope),
            0.0 if self.surrogate_disable else float(surrogate.scale),
            float(self.gain),
            self.after_reset,
        )

    def dynamics(self, features: torch.Size) -> Tensor:
        """Decays, decays of currents and thresholds of each neuron, [3, neurons]."""
        beta = self._spread("beta", self.beta.clamp(0, 1), features)
        alpha = torch.zeros_like(beta)
        if self.alpha is not None:
            alpha = self._spread("alpha", self.alpha.clamp(0, 1), features)
        threshold = torch.zeros_like(beta)
        if self.threshold is not None:
            threshold = self._spread("threshold", self.threshold, features)
        return torch.stack((beta, alpha, threshold))

    def _spread(self, name: str, value: Tensor, features: torch.Size) -> Tensor:
        trailing = features[len(features) - value.dim() :] if value.dim() <= len(features) else None
        if trailing is None or any(n not in (1, size) for n, size in zip(value.shape, trailing, strict=True)):
            raise ValueError(
                f"{name} has shape {tuple(value.shape)}; for neurons {tuple(features)} it is one number or one for each"
            )
        return value.to(torch.float32).expand(features).reshape(-1)

    def _run(
        self, input_: Tensor, mem: Tensor | None, syn: Tensor | None, recurrent: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Spikes, synaptic currents and membrane potentials, all [T, batch, …]."""
        kind = type(self).__name__
        if not isinstance(input_, Tensor):
            raise TypeError(f"{kind} takes a tensor of currents [T, batch, …], not {type(input_).__name__}")
        if input_.dim() < 3:
            raise ValueError(f"the input of {kind} has shape {tuple(input_.shape)}; it must be [T, batch, …]")
        if not input_.is_floating_point():
            raise TypeError(f"the input of {kind} has elements of type {input_.dtype}; it must be floating-point")
        shape, features = input_.shape, input_.shape[2:]
        initial = None
        if mem is not None or syn is not None:
            states = [self._state(name, each, shape[1:]) for name, each in (("mem", mem), ("syn", syn))]
            zeros = input_.new_zeros(shape[1:], dtype=torch.float32)
            initial = torch.stack([zeros if each is None else each.to(torch.float32) for each in states]).flatten(2)
        spikes, currents, potentials, membranes = spiking_neurons(
            input_.flatten(2), self.dynamics(features), recurrent, initial, *self.neuron()
        )
        states = membranes if self.after_reset else potentials
        return (
            spikes.view(shape) if self._spikes else spikes,
            currents.view(shape) if self.alpha is not None else currents,
            states.view(shape),
        )

    @staticmethod
    def _state(name: str, state: Tensor | None, shape: torch.Size) -> Tensor | None:
        if state is not None and state.shape != shape:
            raise ValueError(f"{name} has shape {tuple(state.shape)}; for these currents it is {tuple(shape)}")
        return state

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        # snnTorch's layers have these as well.
        for name in ("reset_mechanism_val", "graded_spikes_factor"):
            if name not in self._buffers and name not in self._parameters:
                state_dict.pop(prefix + name, None)
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def extra_repr(self) -> str:
        parts = []
        for name in ("alpha", "beta", "threshold"):
            value = getattr(self, name)
            if value is not None:
                shown = f"{value.item():g}" if value.numel() == 1 else f"{tuple(value.shape)}"
                parts.append(f"{name}={shown}" + (" (learns)" if name in self._parameters else ""))
        if self._spikes:
            parts.append(f"reset_mechanism={self.reset_mechanism!r}, reset_delay={self.reset_delay}")
        return ", ".join(parts)


class Leaky(_Neurons):
    """Leaky integrate-and-fire neurons: `spikes, membrane = layer(currents)`, all [T, batch, …].

        u[t] = beta · v[t - 1] + currents[t],    spikes[t] = u[t] > threshold

    Arguments, defaults and results match `snntorch.Leaky` called step by step. A reset takes effect in the
    next step: "subtract" lowers the next potential by the threshold, "zero" sets the present potential to 0 before it
    decays, and the layer returns membrane potentials before the reset. With `reset_delay=False` the reset takes effect
    at once, the layer returns membrane potentials after the reset, and gradients pass the reset through the spike.
    `mem` is the membrane potential before the first step, as returned for the last step of the sequence before.
    """

    graded_spikes_factor: Tensor
    _keeps_input = True

    def __init__(
        self,
        beta: float | Tensor,
        threshold: float | Tensor = 1.0,
        spike_grad: Surrogate | None = None,
        surrogate_disable: bool = False,
        init_hidden: bool = False,
        inhibition: bool = False,
        learn_beta: bool = False,
        learn_threshold: bool = False,
        reset_mechanism: str = "subtract",
        state_quant: Any = False,
        output: bool = False,
        graded_spikes_factor: float | Tensor = 1.0,
        learn_graded_spikes_factor: bool = False,
        reset_delay: bool = True,
        *,
        reset_gradient: str | None = None,
        fires_at_threshold: bool = False,
        gain: float = 1.0,
    ) -> None:
        super().__init__(**_arguments(locals()))
        self._add("graded_spikes_factor", graded_spikes_factor, learn_graded_spikes_factor)
        self.is_graded = self._has_factor()

    def _has_factor(self) -> bool:
        factor = self.graded_spikes_factor
        return "graded_spikes_factor" in self._parameters or not bool((factor == 1).all())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *arguments)
        self.is_graded = self._has_factor()

    def forward(self, input_: Tensor, mem: Tensor | None = None) -> tuple[Tensor, Tensor]:
        spikes, _, membrane = self._run(input_, mem, None)
        return spikes * self.graded_spikes_factor if self.is_graded else spikes, membrane


class Synaptic(_Neurons):
    """Neurons with a synaptic current: `spikes, current, membrane = layer(currents)`, all [T, batch, …].

        i[t] = alpha · i[t - 1] + currents[t],    u[t] = beta · v[t - 1] + i[t]

    Arguments, defaults and results match `snntorch.Synaptic` called step by step. Resets are as for `Leaky`,
    but "zero" with a delay sets the next potential, including its new input, to 0.
    """

    def __init__(
        self,
        alpha: float | Tensor,
        beta: float | Tensor,
        threshold: float | Tensor = 1.0,
        spike_grad: Surrogate | None = None,
        surrogate_disable: bool = False,
        init_hidden: bool = False,
        inhibition: bool = False,
        learn_alpha: bool = False,
        learn_beta: bool = False,
        learn_threshold: bool = False,
        reset_mechanism: str = "subtract",
        state_quant: Any = False,
        output: bool = False,
        reset_delay: bool = True,
        *,
        reset_gradient: str | None = None,
        fires_at_threshold: bool = False,
        gain: float = 1.0,
    ) -> None:
        super().__init__(**_arguments(locals()))

    def forward(
        self, input_: Tensor, syn: Tensor | None = None, mem: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        return self._run(input_, mem, syn)


class OneToOne(nn.Module):
    """Recurrent weights of each neuron to itself."""

    V: Tensor

    def __init__(self, V: float | Tensor, learns: bool) -> None:
        super().__init__()
        value = _tensor(V)
        if learns:
            self.V = nn.Parameter(value)
        else:
            self.register_buffer("V", value)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.V


class _Recurrent(_Neurons):
    """Neurons that also take their own spikes of the step before."""

    recurrent: nn.Linear | OneToOne

    def __init__(
        self,
        V: float | Tensor,
        all_to_all: bool,
        linear_features: int | None,
        conv2d_channels: int | None,
        kernel_size: Any,
        learn_recurrent: bool,
        recurrent_bias: bool,
        **of_neurons: Any,
    ) -> None:
        super().__init__(**of_neurons)
        kind = type(self).__name__
        if conv2d_channels or kernel_size:
            raise ValueError(f"{kind} has no convolutions among its neurons: use linear_features, or all_to_all=False")
        if all_to_all and not linear_features:
            raise TypeError(f"with all_to_all, {kind} needs linear_features: the number of its neurons")
        if not all_to_all and linear_features:
            raise TypeError(f"with all_to_all=False, {kind} takes the weights V, and no linear_features")
        self.all_to_all, self.linear_features, self.learn_recurrent = all_to_all, linear_features, learn_recurrent
        if linear_features:
            self.recurrent = nn.Linear(linear_features, linear_features, bias=recurrent_bias)
            self.recurrent.requires_grad_(learn_recurrent)
        else:
            self.recurrent = OneToOne(V, learn_recurrent)
            self.V = self.recurrent.V  # by snnTorch's name as well

    def _run_recurrent(
        self, input_: Tensor, spk: Tensor | None, mem: Tensor | None, syn: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        if isinstance(self.recurrent, OneToOne):
            weight = self._spread("V", self.recurrent.V, input_.shape[2:])
        else:
            if input_.dim() > 0 and input_.shape[-1] != self.linear_features:
                raise ValueError(
                    f"the input has shape {tuple(input_.shape)}; its last dimension must be linear_features, "
                    f"{self.linear_features}"
                )
            if input_.dim() != 3:
                raise ValueError(
                    f"the input has shape {tuple(input_.shape)}; with all_to_all it is [T, batch, neurons]"
                )
            weight = self.recurrent.weight.t()
            if self.recurrent.bias is not None:
                input_ = input_ + self.recurrent.bias
        if spk is not None:
            self._state("spk", spk, input_.shape[1:])
            own = spk * self.recurrent.V if isinstance(self.recurrent, OneToOne) else spk @ weight
            input_ = torch.cat((input_[:1] + own, input_[1:]))
        return self._run(input_, mem, syn, weight)


class RLeaky(_Recurrent):
    """`Leaky` neurons that also take their own spikes of the step before: `spikes, membrane = layer(currents)`.

    Arguments, defaults and results match `snntorch.RLeaky` called step by step: with `all_to_all`, spikes pass
    through `recurrent`, a `torch.nn.Linear` with `linear_features` neurons (and a bias if `recurrent_bias`); otherwise
    each neuron's spike is multiplied by `V`. A delayed reset to "zero" sets the next potential, including its new
    input, to 0.
    """

    def __init__(
        self,
        beta: float | Tensor,
        V: float | Tensor = 1.0,
        all_to_all: bool = True,
        linear_features: int | None = None,
        conv2d_channels: int | None = None,
        kernel_size: Any = None,
        threshold: float | Tensor = 1.0,
        spike_grad: Surrogate | None = None,
        surrogate_disable: bool = False,
        init_hidden: bool = False,
        inhibition: bool = False,
        learn_beta: bool = False,
        learn_threshold: bool = False,
        learn_recurrent: bool = True,
        reset_mechanism: str = "subtract",
        state_quant: Any = False,
        output: bool = False,
        reset_delay: bool = True,
        *,
        recurrent_bias: bool = True,
        reset_gradient: str | None = None,
        fires_at_threshold: bool = False,
        gain: float = 1.0,
    ) -> None:
        super().__init__(**_arguments(locals()))

    def forward(self, input_: Tensor, spk: Tensor | None = None, mem: Tensor | None = None) -> tuple[Tensor, Tensor]:
        spikes, _, membrane = self._run_recurrent(input_, spk, mem, None)
        return spikes, membrane


class RSynaptic(_Recurrent):
    """`Synaptic` neurons that also take their own spikes: `spikes, current, membrane = layer(currents)`.

    Arguments, defaults and results match `snntorch.RSynaptic` called step by step; see `RLeaky`.
    """

    def __init__(
        self,
        alpha: float | Tensor,
        beta: float | Tensor,
        V: float | Tensor = 1.0,
        all_to_all: bool = True,
        linear_features: int | None = None,
        conv2d_channels: int | None = None,
        kernel_size: Any = None,
        threshold: float | Tensor = 1.0,
        spike_grad: Surrogate | None = None,
        surrogate_disable: bool = False,
        init_hidden: bool = False,
        inhibition: bool = False,
        learn_alpha: bool = False,
        learn_beta: bool = False,
        learn_threshold: bool = False,
        learn_recurrent: bool = True,
        reset_mechanism: str = "subtract",
        state_quant: Any = False,
        output: bool = False,
        reset_delay: bool = True,
        *,
        recurrent_bias: bool = True,
        reset_gradient: str | None = None,
        fires_at_threshold: bool = False,
        gain: float = 1.0,
    ) -> None:
        super().__init__(**_arguments(locals()))

    def forward(
        self,
        input_: Tensor,
        spk: Tensor | None = None,
        syn: Tensor | None = None,
        mem: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        return self._run_recurrent(input_, spk, mem, syn)


class Readout(_Neurons):
    """Leaky integrators, which do not fire: `membrane = layer(currents)`, both [T, batch, …].

        i[t] = alpha · i[t - 1] + currents[t],    u[t] = beta · u[t - 1] + gain · i[t]

    Without `alpha`, i is the input current. With a beta of 1, potentials add up all currents.
    """

    _spikes = False

    def __init__(
        self,
        beta: float | Tensor,
        alpha: float | Tensor | None = None,
        learn_beta: bool = False,
        learn_alpha: bool = False,
        *,
        gain: float = 1.0,
    ) -> None:
        super().__init__(beta, learn_beta, alpha, learn_alpha, gain=gain)

    def forward(self, input_: Tensor, mem: Tensor | None = None, syn: Tensor | None = None) -> Tensor:
        if syn is not None and self.alpha is None:
            raise ValueError("a Readout without alpha has no synaptic current")
        return self._run(input_, mem, syn)[2]
