"""Losses of spiking networks and regularisers of their activity. Sequences are [T, batch, features].

    ce_count_loss           cross-entropy of the numbers of spikes in a sequence
    ce_last_membrane_loss   … of the last membrane potentials of a readout
    ce_max_membrane_loss    … of the largest
    ce_mean_membrane_loss   … of their means
    mse_rate_loss           mean squared distance of firing rates from the rates wanted of the right and of other classes
    activity                the fraction of neurons that fire in a step
    upper_activity_loss     squares of neurons' rates above a limit
    lower_activity_loss     squares of neurons' rates below a limit

Targets are the numbers of classes [batch]; losses are means over the batch. All losses are plain functions of PyTorch.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

__all__ = [
    "activity",
    "ce_count_loss",
    "ce_last_membrane_loss",
    "ce_max_membrane_loss",
    "ce_mean_membrane_loss",
    "lower_activity_loss",
    "mse_rate_loss",
    "upper_activity_loss",
]


def _checked(sequence: Tensor, target: Tensor | None = None) -> Tensor:
    if sequence.dim() != 3:
        raise ValueError(f"the sequence has shape {tuple(sequence.shape)}; it must be [T, batch, features]")
    if target is not None and target.shape != sequence.shape[1:2]:
        raise ValueError(
            f"the target has shape {tuple(target.shape)}; for a sequence of shape {tuple(sequence.shape)} it is "
            f"({sequence.shape[1]},), the number of a class for each sample"
        )
    return sequence


def ce_count_loss(spikes: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(_checked(spikes, target).sum(0), target)


def ce_last_membrane_loss(membrane: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(_checked(membrane, target)[-1], target)


def ce_max_membrane_loss(membrane: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(_checked(membrane, target).amax(0), target)


def ce_mean_membrane_loss(membrane: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(_checked(membrane, target).mean(0), target)


def mse_rate_loss(spikes: Tensor, target: Tensor, correct_rate: float = 1.0, incorrect_rate: float = 0.0) -> Tensor:
    rates = _checked(spikes, target).mean(0)
    right = one_hot(target, rates.shape[1]).to(rates.dtype)
    wanted = incorrect_rate + (correct_rate - incorrect_rate) * right
    return ((rates - wanted) ** 2).mean()


def activity(spikes: Tensor) -> Tensor:
    return spikes.mean()


def _rates(spikes: Tensor) -> Tensor:
    """Spikes per step of each neuron, over the batch."""
    return _checked(spikes).mean((0, 1))


def upper_activity_loss(spikes: Tensor, limit: float) -> Tensor:
    return torch.relu(_rates(spikes) - limit).square().mean()


def lower_activity_loss(spikes: Tensor, limit: float) -> Tensor:
    return torch.relu(limit - _rates(spikes)).square().mean()
