"""Layers that skip the dispatcher, and cases in which they must not."""

import copy

import pytest

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

from tessera import _eager, nn

KINDS = ("butterfly", "complex", "monarch", "kronecker", "fastfood", "circulant", "toeplitz")


def layer_of(kind, bias=True):
    torch.manual_seed(0)
    return {
        "butterfly": lambda: nn.ButterflyLinear(24, 40, bias),
        "complex": lambda: nn.ButterflyLinear(24, 40, bias, complex=True, permutation=torch.randperm(24)),
        "monarch": lambda: nn.MonarchLinear(24, 40, bias),
        "kronecker": lambda: nn.KroneckerLinear(24, 40, bias, factors=[(4, 8, 6, 1), (1, 10, 8, 4)]),
        "fastfood": lambda: nn.FastfoodLinear(24, 40, bias),
        "circulant": lambda: nn.CirculantLinear(24, 40, bias),
        "toeplitz": lambda: nn.ToeplitzLinear(24, 40, bias),
    }[kind]()


def results(layer, x, dy):
    """The result, the gradients of x and the parameters."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = layer(x)
    y.backward(dy)
    return [y.detach(), x.grad, *(p.grad for p in layer.parameters())]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
def test_layers_compute_the_same_through_the_dispatcher(kind, bias, monkeypatch):
    layer = layer_of(kind, bias)
    x = torch.randn(2, 9, 24)
    dy = torch.randn_like(layer(x))
    eager = results(layer, x, dy)
    monkeypatch.setattr("tessera._eager.reader", None)
    dispatched = results(layer, x, dy)
    assert len(eager) == len(dispatched)
    for a, b in zip(eager, dispatched, strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize(("block_size", "dynamic"), [(1, False), (8, True)])
def test_sparse_layers_compute_the_same_through_the_dispatcher(activation, block_size, dynamic, monkeypatch):
    torch.manual_seed(0)
    layer = nn.SparseLinear(24, 40, density=0.3, block_size=block_size, dynamic=dynamic, activation=activation)
    x, dy = torch.randn(2, 9, 24), torch.randn(2, 9, 40)
    eager = results(layer, x, dy)
    with torch.no_grad():
        assert torch.allclose(layer(x), eager[0], atol=1e-6)
    monkeypatch.setattr("tessera._operators.is_eager", lambda *tensors: False)
    for a, b in zip(eager, results(layer, x, dy), strict=True):
        assert torch.equal(a, b)


def test_patterns_that_change_between_the_passes_are_noticed():
    layer = nn.SparseLinear(24, 40, density=0.3, dynamic=True)
    y = layer(torch.randn(3, 24, requires_grad=True))
    layer.set_pattern(layer.crow_indices.clone(), layer.col_indices.clone())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_gradients_that_are_needed(kind):
    layer = layer_of(kind)
    x = torch.randn(5, 24)
    dy = torch.randn_like(layer(x))
    everything = dict(
        zip(("y", "x", *(name for name, _ in layer.named_parameters())), results(layer, x, dy), strict=True)
    )
    for chosen in ("x", *(name for name, _ in layer.named_parameters())):
        for name, parameter in layer.named_parameters():
            parameter.requires_grad_(name == chosen)
        given = x.clone().requires_grad_(chosen == "x")
        target = given if chosen == "x" else layer.get_parameter(chosen)
        (alone,) = torch.autograd.grad(layer(given), target, dy)
        assert torch.allclose(alone, everything[chosen], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_of_layers(kind):
    layer = layer_of(kind)

    def penalty(function, dtype):
        x = torch.linspace(-1, 1, 3 * 24).reshape(3, 24).to(dtype).requires_grad_()
        y = function(x)
        (first,) = torch.autograd.grad((y.real if y.is_complex() else y).square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    exact = penalty(layer.reference, torch.float64)
    assert torch.allclose(
        penalty(layer, torch.float32).double(), exact, rtol=1e-3, atol=1e-3 * float(exact.abs().max())
    )


def test_types_of_parameters_and_inputs():
    layer = layer_of("butterfly").to(torch.bfloat16)
    x = torch.randn(6, 24, dtype=torch.bfloat16)
    y, dx, *gradients = results(layer, x, torch.randn(6, 40, dtype=torch.bfloat16))
    assert {t.dtype for t in (y, dx, *gradients)} == {torch.bfloat16}
    assert torch.allclose(y.float(), layer.reference(x.float()).to(torch.bfloat16).float(), rtol=0.05, atol=0.1)


def test_a_bias_may_change_between_the_passes():
    layer = layer_of("circulant")
    y = layer(torch.randn(3, 24))
    with torch.no_grad():
        layer.bias.add_(1)
    y.sum().backward()
    assert torch.equal(layer.bias.grad, torch.full((40,), 3.0))


def test_modes_see_operators():
    layer = layer_of("butterfly")
    x = torch.randn(3, 24)
    assert _eager.is_eager(x, layer.bias, layer.twiddle)
    seen = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Watch():
        layer(x).sum().backward()
    assert torch.ops.tessera.butterfly.default in seen and torch.ops.tessera.butterfly_backward.default in seen
    with torch.profiler.profile() as profile:
        layer(x)
    assert any(event.key == "tessera::butterfly" for event in profile.key_averages())
    with FlopCounterMode(display=False), torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16


def test_tensors_that_are_not_plain_go_to_the_dispatcher():
    layer = layer_of("circulant")
    z = torch.randn(3, 24, dtype=torch.complex64)
    conjugated = z.conj().imag
    assert conjugated.is_neg() and not _eager.is_eager(conjugated)
    assert torch.allclose(layer(conjugated), layer.reference(conjugated), atol=1e-5)

    class Subclass(torch.Tensor):
        pass

    x = torch.randn(3, 24)
    assert not _eager.is_eager(x.as_subclass(Subclass)) and not _eager.is_eager(x.to("meta"))
    assert torch.equal(layer(x.as_subclass(Subclass)), layer(x))
    with torch.inference_mode():
        assert _eager.is_eager(torch.randn(3, 24))
        layer(torch.randn(3, 24))
    mapped = torch.func.vmap(layer.reference)(x)
    assert torch.allclose(torch.func.functional_call(layer, dict(layer.named_parameters()), (x,)), mapped, atol=1e-5)


def test_tracers_see_operators():
    layer = nn.SparseLinear(24, 40, density=0.3)
    graph = torch.fx.symbolic_trace(layer)
    x = torch.randn(3, 24)
    assert torch.equal(graph(x), layer(x))


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("grad_enabled", [False, True])
def test_forward_mode_derivatives_of_sparse_layers(activation, grad_enabled):
    torch.manual_seed(0)
    layer = nn.SparseLinear(24, 40, density=0.3, activation=activation)
    x, dx = torch.randn(2, 3, 24)
    directions = {name: torch.randn_like(parameter) for name, parameter in layer.named_parameters()}
    if activation:
        reference = torch.nn.Sequential(layer.to_dense(), {"relu": torch.nn.ReLU, "gelu": torch.nn.GELU}[activation]())
        names = ("0.weight", "0.bias")
    else:
        reference, names = layer.to_dense(), ("weight", "bias")
    twin = copy.deepcopy(layer)
    twin.weight.data.copy_(directions["weight"])
    of_reference = dict(zip(names, (twin.dense_weight(), directions["bias"]), strict=True))

    def tangent(module, directions):
        with forward_ad.dual_level(), torch.set_grad_enabled(grad_enabled):
            parameters = {n: forward_ad.make_dual(p, directions[n]) for n, p in module.named_parameters()}
            y = torch.func.functional_call(module, parameters, (forward_ad.make_dual(x, dx),))
            return forward_ad.unpack_dual(y).tangent

    assert torch.allclose(tangent(layer, directions), tangent(reference, of_reference), atol=1e-5)
    jacobian = torch.func.jacfwd(layer)(x)
    assert torch.allclose(jacobian, torch.func.jacfwd(reference)(x), atol=1e-5)
