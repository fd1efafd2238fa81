"""Layers under the transforms of `torch.func`."""

import warnings

import pytest

torch = pytest.importorskip("torch")

from test_structured_layers import layers
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap

from tessera import nn

SPARSE = {
    "sparse": {"density": 0.5},
    "relu": {"density": 0.5, "activation": "relu"},
    "gelu": {"density": 0.5, "activation": "gelu", "block_size": 4},
}
KINDS = (*layers(16, 16), *SPARSE)


def layer_of(kind, seed=0):
    torch.manual_seed(seed)
    return nn.SparseLinear(24, 10, **SPARSE[kind]) if kind in SPARSE else layers(24, 10)[kind]


def setting(kind):
    """A layer, a loss of its parameters and an input, and an input."""
    layer = layer_of(kind)

    def loss(parameters, x):
        return functional_call(layer, parameters, (x,)).square().sum()

    return layer, loss, torch.randn(4, 24)


def parameters_of(layer):
    return {name: p.detach() for name, p in layer.named_parameters()}


def gradients_of(layer, x):
    """Gradients by autograd."""
    x = x.clone().requires_grad_()
    found = torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])
    return found[0], dict(zip(parameters_of(layer), found[1:], strict=True))


def close(actual, expected):
    return torch.allclose(actual, expected, rtol=1e-3, atol=1e-3 * float(expected.detach().abs().max()))


@pytest.fixture(autouse=True)
def _loops_of_vmap():
    """vmap calls operators in a loop, and warns that this is slow."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        yield


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind):
    layer, loss, x = setting(kind)
    of_parameters, of_x = grad(loss, (0, 1))(parameters_of(layer), x)
    expected_x, expected = gradients_of(layer, x)
    assert close(of_x, expected_x)
    assert all(close(of_parameters[name], expected[name]) for name in expected)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_each_sample(kind):
    layer, loss, x = setting(kind)
    found = vmap(grad(loss), (None, 0))(parameters_of(layer), x)
    for i, sample in enumerate(x):
        _, expected = gradients_of(layer, sample)
        assert all(close(found[name][i], expected[name]) for name in expected)


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_and_jacobians(kind):
    layer, loss, x = setting(kind)
    parameters = parameters_of(layer)
    found = grad(lambda x: grad(loss, 1)(parameters, x).square().sum())(x)
    given = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(layer(given).square().sum(), given, create_graph=True)
    assert close(found, torch.autograd.grad(first.square().sum(), given)[0])
    rows = [torch.autograd.grad(layer(given[0])[i], given)[0][0] for i in range(10)]
    assert close(jacrev(layer)(x[0]), torch.stack(rows))


@pytest.mark.parametrize("kind", KINDS)
def test_ensembles(kind):
    models = [layer_of(kind, seed) for seed in range(3)]
    for model in models[1:] if kind in SPARSE else ():  # of one pattern
        model.load_state_dict({**models[0].state_dict(), "bias": model.bias})
    parameters, buffers = stack_module_state(models)
    x = torch.randn(4, 24)
    found = vmap(lambda *state: functional_call(models[0], state, (x,)))(parameters, buffers)
    for y, model in zip(found, models, strict=True):
        assert close(y, model(x))


def test_transforms_leave_grad_mode_as_it_is():
    _, loss, x = setting("butterfly")
    layer = layer_of("butterfly")
    with torch.no_grad():
        found = grad(loss)(dict(layer.named_parameters()), x)
    assert not any(gradient.requires_grad for gradient in found.values())
    found = grad(loss)(dict(layer.named_parameters()), x)
    assert all(gradient.requires_grad for gradient in found.values())


@pytest.mark.parametrize("learns", [True, False])
def test_forward_derivatives_of_structured_layers_are_refused(learns):
    layer, _, x = setting("butterfly")
    with pytest.raises(NotImplementedError, match="jvp"):
        torch.func.jvp(layer.requires_grad_(learns), (x,), (torch.ones_like(x),))


def test_forward_derivatives_are_refused_by_name():
    layer, _, x = setting("butterfly")
    with pytest.raises(NotImplementedError, match=r"butterfly.*no forward derivatives.*use grad"):
        torch.func.jvp(layer, (x,), (torch.ones_like(x),))


def neurons(kind):
    from tessera import snn

    return {
        "leaky": lambda: snn.Leaky(beta=0.9, learn_beta=True),
        "synaptic": lambda: snn.Synaptic(alpha=0.8, beta=0.9, learn_beta=True),
        "recurrent": lambda: snn.RLeaky(beta=0.9, linear_features=5, learn_beta=True),
    }[kind]()


@pytest.mark.parametrize("kind", ["leaky", "synaptic", "recurrent"])
def test_gradients_of_neurons(kind):
    torch.manual_seed(3)
    layer, x = neurons(kind), torch.randn(6, 3, 5)

    def loss(parameters, x):
        out = functional_call(layer, parameters, (x,))
        return (out[0] if isinstance(out, tuple) else out).sum()

    parameters = dict(layer.named_parameters())
    expected = torch.autograd.grad(loss(parameters, x), list(parameters.values()))
    detached = parameters_of(layer)
    found = grad(loss)(detached, x)
    assert all(close(found[name], each) for name, each in zip(parameters, expected, strict=True))
    each = vmap(grad(loss, argnums=1), (None, 0))(detached, torch.stack((x, 2 * x)))
    assert close(each[1], grad(loss, argnums=1)(detached, 2 * x))
    with pytest.raises(RuntimeError, match="no second derivatives"):
        grad(lambda x: grad(loss, argnums=1)(detached, x).sum())(x)
    with pytest.raises(NotImplementedError, match="no forward derivatives"):
        torch.func.jvp(lambda x: loss(detached, x), (x,), (x,))


def test_networks_on_lists_refuse_transforms():
    from tessera import snn

    network = snn.Network(torch.nn.Linear(8, 6, bias=False), snn.Leaky(beta=0.9))
    x = (torch.rand(5, 2, 8) < 0.3).float()

    def loss(parameters):
        out = functional_call(network, parameters, (x,))
        return (out[0] if isinstance(out, tuple) else out).sum()

    for transform in (grad(loss), lambda p: torch.func.jvp(loss, (p,), (p,))):
        with pytest.raises(NotImplementedError, match=r"use loss\.backward\(\)"):
            transform(parameters_of(network))


@pytest.mark.parametrize(
    "kind", ["SparseLinear", "PixelflyLinear", "BlockButterflyLinear", "FastfoodLinear", "ButterflyLinear"]
)
def test_layers_are_made_on_meta(kind):
    options = {"density": 0.5} if kind == "SparseLinear" else {}
    with torch.device("meta"):
        layer = getattr(nn, kind)(64, 64, **options)
    assert all(tensor.is_meta for tensor in (*layer.parameters(), *layer.buffers()))
    same = getattr(nn, kind)(64, 64, **options)
    layer.load_state_dict(same.state_dict(), assign=True)
    x = torch.randn(3, 64)
    assert close(layer(x), same(x))


def test_writes_to_indices_are_seen_and_checked():
    layer = nn.SparseLinear(24, 10, density=0.5)
    with pytest.raises(ValueError, match="a block in column 99"):
        layer.col_indices.copy_(torch.full_like(layer.col_indices, 99))
        layer(torch.randn(2, 24))
