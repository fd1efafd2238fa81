"""Functions as modules, and training of a module's graph beside the module."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tessera import graph as tg

LOSSES = {"cross_entropy": F.cross_entropy, "mse": F.mse_loss}


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def compare(module, *inputs, rtol=1e-4, atol=1e-5):
    """A session of the module's graph, whose results equal the module's."""
    session = tg.from_torch(module, inputs).session()
    with torch.no_grad():
        expected = module(*inputs)
    np.testing.assert_allclose(session.run(*inputs), expected.numpy(), rtol=rtol, atol=atol)
    return session


def in_groups(count, of=8):
    """Cases (`first`, `of`) of `count` functions: groups of `of`, and in ./test --full each alone."""
    groups = [(first, of) for first in range(0, count, of)]
    return groups + [pytest.param(first, 1, marks=pytest.mark.full) for first in range(count)]


def compare_each(functions, inputs, rtol=1e-4, atol=1e-5):
    """Compare several functions of the same inputs in one graph, which takes less time than a graph for each."""
    module = Function(lambda *given: tuple(function(*given) for function in functions))
    found = tg.from_torch(module, inputs).session().run(*inputs)
    results = found.values() if isinstance(found, dict) else [found]
    with torch.no_grad():
        for number, (result, expected) in enumerate(zip(results, module(*inputs), strict=True)):
            np.testing.assert_allclose(result, expected.numpy(), rtol=rtol, atol=atol, err_msg=f"function {number}")


@torch.no_grad()
def expect_results(found, module, x):
    """PyTorch's results to 1e-4; where rounding errors grow, results as exact as PyTorch's, within a factor."""
    expected = module(x)
    found = torch.as_tensor(np.asarray(found))
    if (found - expected).abs().max() <= 1e-4 * expected.abs().max():
        return
    exact = copy.deepcopy(module).double()(x.double())
    error, own = ((y - exact).abs().max() / exact.abs().max() for y in (found, expected))
    assert error <= 16 * own, f"relative error {error:.2e}; PyTorch's is {own:.2e}"


class _WithLoss(nn.Module):
    def __init__(self, network, loss_of):
        super().__init__()
        self.network, self.loss_of = network, loss_of

    def forward(self, *inputs):
        return self.loss_of(self.network(*inputs[:-1]), inputs[-1])


def trains_like_pytorch(
    module,
    inputs,
    target,
    loss="cross_entropy",
    *,
    lr=0.1,
    steps=3,
    machine="host",
    rtol=1e-3,
    atol=1e-4,
    make_optimizer=torch.optim.SGD,
    **options,
):
    """Expect the same losses in some steps, and the same parameters at the end; returns the losses.

    `loss` is the name of a loss of training steps, or a function that becomes part of the module. `options` are options
    of the training step, and `make_optimizer` makes PyTorch's optimizer for them from parameters and a rate.
    """
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    if isinstance(loss, str):
        whole, loss_of = module, LOSSES[loss]
        step = tg.from_torch(module, inputs).training_step(loss, lr=lr, **options)
    else:
        whole, loss_of = _WithLoss(module, loss), loss
        graph = tg.from_torch(whole, (*inputs, target))
        step = graph.training_step(graph.outputs["output"], lr=lr, **options)
    session = step.session(machine)
    optimizer = make_optimizer(module.parameters(), lr)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss_of(module(*inputs), target)
        value.backward()
        if "clip_norm" in options:
            nn.utils.clip_grad_norm_(module.parameters(), options["clip_norm"])
        optimizer.step()
        losses.append(value.item())
        assert session.run(*inputs, target) == pytest.approx(losses[-1], rel=1e-4)
    assert_same_parameters(session, whole, rtol, atol)
    return losses


def assert_same_parameters(session, module, rtol=2e-4, atol=2e-5):
    trained = copy.deepcopy(module)
    session.copy_to(trained)
    for (name, ours), theirs in zip(trained.named_parameters(), module.parameters(), strict=True):
        np.testing.assert_allclose(ours.detach(), theirs.detach(), rtol=rtol, atol=atol, err_msg=name)
