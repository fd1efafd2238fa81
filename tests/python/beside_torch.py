"""Training of a module's graph beside the module."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tessera import graph as tg

LOSSES = {"cross_entropy": F.cross_entropy, "mse": F.mse_loss}


class _WithLoss(nn.Module):
    def __init__(self, network, loss_of):
        super().__init__()
        self.network, self.loss_of = network, loss_of

    def forward(self, *inputs):
        return self.loss_of(self.network(*inputs[:-1]), inputs[-1])


def trains_like_pytorch(module, inputs, target, loss="cross_entropy", *, lr=0.1, steps=3, machine="host", atol=1e-4):
    """Some steps have the same losses, which are returned, and the same parameters at the end.

    The loss is one of a training step by its name, or a function that becomes part of the module.
    """
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    if isinstance(loss, str):
        prefix, loss_of = "", LOSSES[loss]
        step = tg.from_torch(module, inputs).training_step(loss, lr=lr)
    else:
        prefix, loss_of = "network.", loss
        graph = tg.from_torch(_WithLoss(module, loss), (*inputs, target))
        step = graph.training_step(graph.outputs["output"], lr=lr)
    session = step.session(machine)
    optimizer = torch.optim.SGD(module.parameters(), lr=lr)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss_of(module(*inputs), target)
        value.backward()
        optimizer.step()
        losses.append(value.item())
        assert session.run(*inputs, target) == pytest.approx(losses[-1], rel=1e-4)
    for name, values in module.named_parameters():
        np.testing.assert_allclose(session.get(prefix + name), values.detach(), rtol=1e-3, atol=atol)
    return losses
