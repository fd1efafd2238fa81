"""Gradients where there is no derivative, equal to PyTorch's: of equal elements, at bounds and at 0."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from test_random_graphs import ALL, BINARY, UNARY  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tessera import graph as tg  # noqa: E402

POINTS = [-6.0, -3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 6, 20, -20]
EQUAL = [[1.0, 3, 3, 0, 3], [0, 0, 0, 0, 0], [-2, -2, 5, 1, 5]]
OF_EQUAL = {
    "amax": {"dim": 1, "keepdim": False},
    "amin": {"dim": (0, 1), "keepdim": False},
    "clip": {"low": -2, "high": 3},
    "pow": {"exponent": 2.0},
    "softmax": {"dim": 1},
}


def _passes_at_bounds():
    """Whether this version of PyTorch gives elements at the bounds of clamp a gradient, as older versions do."""
    x = torch.ones((), requires_grad=True)
    x.clamp(max=1).backward()
    return bool(x.grad)


OF_CLAMP = pytest.mark.skipif(_passes_at_bounds(), reason="this PyTorch has another gradient at the bounds of clamp")


def slopes(function, *arrays):
    """Gradients in a graph: the change by a step with a learning rate of 1."""
    graph = tg.Graph()
    values = [graph.parameter(f"p{i}", initial=np.asarray(array, np.float32)) for i, array in enumerate(arrays)]
    weighted = function(*values)
    weighted = weighted * graph.constant(np.linspace(0.5, 2, int(np.prod(weighted.shape))).reshape(weighted.shape))
    session = graph.training_step(tg.sum(weighted), lr=1.0).session()
    session.run()
    return [np.asarray(array, np.float32) - session.get(f"p{i}") for i, array in enumerate(arrays)]


def slopes_in_torch(function, *arrays):
    values = [torch.tensor(array, dtype=torch.float32, requires_grad=True) for array in arrays]
    y = function(*values)
    (y * torch.linspace(0.5, 2, y.numel()).reshape(y.shape)).sum().backward()
    return [value.grad.numpy() for value in values]


def compare(of_graph, of_torch, *arrays):
    for found, expected in zip(slopes(of_graph, *arrays), slopes_in_torch(of_torch, *arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_value(name):
    points = POINTS if name not in ("log", "sqrt", "reciprocal", "rsqrt", "exp") else [0.5, 1, 2, 3]
    compare(getattr(tg, name), UNARY[name]["call"], points)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_functions_of_two_values(name):
    pairs = np.array([(a, b) for a in POINTS for b in POINTS]).T
    compare(getattr(tg, name), BINARY[name], *pairs)


@pytest.mark.parametrize("name", [pytest.param(n, marks=OF_CLAMP) if n == "clip" else n for n in OF_EQUAL])
def test_equal_elements_and_bounds(name):
    options = OF_EQUAL[name]
    compare(lambda x: getattr(tg, name)(x, **options), lambda x: ALL[name](x, **options), EQUAL)


BASES = np.array([0, 1, 1, 1, 0.5, 2, -1, -2, -1, 3, 1e3])
EXPONENTS = np.array([2, 3, -0.5, 0, 1, 1, 3, 2, 0, 0, -1])


def test_powers_where_bases_or_exponents_are_0_or_1():
    compare(lambda x: tg.pow(x, x.graph.constant(EXPONENTS)), lambda x: x ** torch.tensor(EXPONENTS).float(), BASES)
    positive = BASES > 0
    bases, exponents = BASES[positive], EXPONENTS[positive]
    compare(tg.pow, torch.pow, bases, exponents)


@pytest.mark.parametrize("exponent", [0, 65, 100, -66, 101])
def test_large_whole_powers(exponent):
    points = [-1, -1.05, 0.5, 1, 1.1] if exponent < 0 else [-1, -1.05, 0, 0.5, 1, 1.1]
    compare(lambda x: tg.pow(x, float(exponent)), lambda x: x**exponent, points)


class Of(nn.Module):
    def __init__(self, function, array):
        super().__init__()
        self.x, self.function = nn.Parameter(torch.tensor(array)), function

    def forward(self):
        y = self.function(self.x)
        return (y * torch.linspace(0.5, 2, y.numel()).reshape(y.shape)).sum()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.max(1).values,
        lambda x: x.min(0, keepdim=True)[0],
        lambda x: x.max() + x.min(),
        lambda x: x.amax((0, 1)) + x.amin(1),
        lambda x: x.reshape(3, 1, 5).expand(3, 2, 5).amax((1, 2)) + x.amin((0, 1)),
        lambda x: x.reshape(1, 3, 5).relu().amax((0, 2)),
        pytest.param(lambda x: x.clamp(-2, 3) + x.clamp(min=0) + x.clamp(max=0), marks=OF_CLAMP),
        pytest.param(lambda x: x.clamp(torch.zeros(5), torch.full((3, 5), 3.0)), marks=OF_CLAMP),
        pytest.param(lambda x: torch.clamp(torch.zeros(3, 5), x, x + 1), marks=OF_CLAMP),
        lambda x: torch.maximum(x, x.flip(1)) * torch.minimum(x, torch.zeros(())),
        lambda x: F.relu6(x * 2) + F.hardtanh(x, -2, 3) + F.hardtanh(x * 0.5) + F.hardtanh(x, 0, 1) + F.hardtanh(x, -1, 2),
        lambda x: F.hardsigmoid(x) + F.hardswish(x) + F.leaky_relu(x, 0.3) + F.leaky_relu(x, 2.0),
        lambda x: F.elu(x) + F.selu(x) + F.celu(x, 0.7) + F.softplus(x, 1, 3) + x.abs() + x.relu(),
        lambda x: sum(of(x * 4e6) for of in (torch.floor, torch.ceil, torch.round, torch.trunc)) + x,
        lambda x: F.threshold(x, 0, 0.5) + F.prelu(x, torch.tensor([0.3])) + F.softshrink(x, 1) + F.hardshrink(x, 3),
        lambda x: x.std(1) + x.var(1),
        lambda x: x.masked_fill(x == 3, -torch.inf).logsumexp(1) + torch.full((3, 5), -torch.inf).logsumexp(1) * 0,
        lambda x: torch._safe_softmax(x.masked_fill(x <= 0, -torch.inf), 1) * torch.arange(5),
        lambda x: F.l1_loss(x, x.flip(1), reduction="none") + F.smooth_l1_loss(x, x.flip(1), reduction="none"),
        lambda x: x.norm(dim=1) + F.normalize(x, dim=0)[:, 0] + x.sign().sum(1),
        lambda x: sum(torch.linalg.vector_norm(x, order, 1) for order in (0.5, 1.5, 3, 4, -1.5)),
    ],
)
def test_functions_of_modules(function):
    module = Of(function, EQUAL)
    graph = tg.from_torch(module, ())
    session = graph.training_step(graph.outputs["output"], lr=1.0).session()
    loss = module()
    loss.backward()
    np.testing.assert_allclose(session.run(), loss.item(), rtol=1e-4)
    np.testing.assert_allclose(np.array(EQUAL, np.float32) - session.get("x"), module.x.grad, rtol=1e-4, atol=1e-5)
