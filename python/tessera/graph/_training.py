"""Optimizers by their names, groups of parameters, and schedules of the learning rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from tessera import _tessera
from tessera._arguments import chosen
from tessera.graph._values import Rounding, Value, is_stochastic

if TYPE_CHECKING:
    from tessera.graph._graph import Graph

Optimizer: TypeAlias = Literal["sgd", "adam", "adamw", "lamb", "lars"]
#: Types, rounding and loss scale of a training, by name.
Numbers: TypeAlias = Literal["fp32", "bf16", "mlperf-v1", "mlperf-v2", "mlperf-slides"]
#: The rounding of everything stored in 16 bits, or of each kind by name.
StoreRounding: TypeAlias = Rounding | Mapping[Literal["parameters", "state", "partials"], Rounding]
#: Whether all stores round stochastically; and parameters, state and partial sums separately, None: like all stores.
Roundings: TypeAlias = tuple[bool | None, bool | None, bool | None, bool | None]
ScheduleKind: TypeAlias = Literal["constant", "linear", "polynomial", "cosine", "step"]


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters of a training step with settings of their own; a setting that is None is the optimizer's.

    `parameters` are names, in which `*` stands for any characters, or parameters of the graph. If several groups have a
    parameter, the last group with a setting counts. `lr_scale` is a factor of the learning rate. Without a
    `trust_ratio`, LAMB and LARS train a parameter as AdamW and SGD do. `shard`, `shard_weights`, `shard_gradients`,
    `offload`, `offload_weights` and `offload_gradients` override the choice by size in `training_step`.
    """

    parameters: str | Value | Iterable[str | Value]
    lr_scale: float | None = None
    weight_decay: float | None = None
    trust_ratio: bool | None = None
    shard: bool | None = None
    shard_weights: bool | None = None
    shard_gradients: bool | None = None
    offload: bool | None = None
    offload_weights: bool | None = None
    offload_gradients: bool | None = None

    def _native(self, graph: Graph | None) -> _tessera.ParameterGroup:
        several = [self.parameters] if isinstance(self.parameters, (str, Value)) else list(self.parameters)
        values = [each for each in several if isinstance(each, Value)]
        names = [each for each in several if not isinstance(each, Value)]
        if values and graph is None:
            raise TypeError(f"{values[0]!r} is of a graph: name parameters here")
        return _tessera.ParameterGroup(
            [graph._own(each).id for each in values] if graph is not None else [],
            names,
            self.lr_scale,
            self.weight_decay,
            self.trust_ratio,
            self.shard,
            self.shard_weights,
            self.shard_gradients,
            self.offload,
            self.offload_weights,
            self.offload_gradients,
        )


@dataclass(frozen=True)
class Schedule:
    """The learning rate of each step as a factor of the given rate. It depends only on the number of the step.

    In the first `warmup` steps it rises linearly from 0. Until step `steps`, warm-up included, it falls to `end`:
    "linear", "polynomial" (with an exponent, `power`) or "cosine"; or it is "constant". "step" multiplies it by `decay`
    after each fraction of all steps in `decay_at`, by default as in He et al. 2016.
    """

    kind: ScheduleKind = "constant"
    steps: int = 0
    warmup: int = 0
    power: float = 1.0
    end: float = 0.0
    decay_at: Sequence[float] = (0.5, 0.75)
    decay: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "decay_at", tuple(self.decay_at))
        _tessera.whole_number("steps", self.steps)
        _tessera.whole_number("warmup", self.warmup)
        self._native()

    def _native(self) -> _tessera.Schedule:
        return _tessera.Schedule(*astuple(self))

    def factor(self, finished: int) -> float:
        """The factor after a number of finished steps, as PyTorch's schedulers count them: 0 before the first step."""
        return self._native().factor(_tessera.whole_number("finished", finished))


def native_optimizer(
    name: str,
    momentum: float | None,
    nesterov: bool,
    betas: tuple[float, float] | None,
    eps: float | None,
    weight_decay: float | None,
    bias_correction: bool,
    trust_coefficient: float | None,
) -> _tessera.Sgd | _tessera.Adam | _tessera.Lamb | _tessera.Lars:
    chosen("optimizer", name, get_args(Optimizer))
    if nesterov and name != "sgd":
        raise ValueError(f"nesterov is for 'sgd', not for {name!r}")
    has_moments = name not in ("sgd", "lars")
    if not has_moments and (betas is not None or eps is not None or not bias_correction):
        raise ValueError(f"betas, eps and bias_correction are for 'adam', 'adamw' and 'lamb', not for {name!r}")
    if trust_coefficient is not None and name != "lars":
        raise ValueError(f"trust_coefficient is for 'lars', not for {name!r}")
    if name == "sgd":
        return _tessera.Sgd(momentum or 0.0, weight_decay or 0.0, nesterov)
    if name == "lars":
        trust = 0.001 if trust_coefficient is None else trust_coefficient
        return _tessera.Lars(0.9 if momentum is None else momentum, weight_decay or 0.0, trust)
    if momentum:
        raise ValueError(f"momentum is for 'sgd' and 'lars', not for {name!r}: use betas")
    decay = (0.0 if name == "adam" else 0.01) if weight_decay is None else weight_decay
    betas = (0.9, 0.999) if betas is None else betas
    if name == "lamb":
        return _tessera.Lamb(betas, 1e-6 if eps is None else eps, decay, bias_correction)
    return _tessera.Adam(betas, 1e-8 if eps is None else eps, decay, name == "adamw", bias_correction)


def native_groups(groups: Iterable[ParameterGroup], graph: Graph | None) -> list[_tessera.ParameterGroup]:
    """Return groups of a graph's parameters; without a graph, by names alone."""
    return [group._native(graph) for group in groups]


def betas_of_packs(betas: tuple[float, float], packing_factor: float) -> tuple[float, float]:
    """Betas for batches of packs, β₁ᵖ and β₂ᵖ for p sequences per pack (Krell et al. 2021).

    Measured in sequences, moments of batches of packs then decay as fast as moments of batches of as many single
    sequences.
    """
    return _tessera.betas_of_packs(betas, packing_factor)


def packs_per_batch(sequences: int, packing_factor: float) -> int:
    """Return the number of packs that hold as many sequences as a batch without packing; at least 1."""
    return _tessera.packs_per_batch(_tessera.whole_number("sequences", sequences, 1), packing_factor)


def native_roundings(rounding: StoreRounding | None) -> Roundings:
    if rounding is None:
        return None, None, None, None
    if not isinstance(rounding, Mapping):
        return is_stochastic(rounding), None, None, None
    stores = ("parameters", "state", "partials")
    own = {chosen("kind of rounding", kind, stores): is_stochastic(each) for kind, each in rounding.items()}
    return None, own.get("parameters"), own.get("state"), own.get("partials")
