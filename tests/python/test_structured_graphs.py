"""Modules with structured layers as graphs: the same results, training steps, and parameters back."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from beside_torch import trains_like_pytorch
from tessera import graph as tg
from tessera import nn

pytestmark = pytest.mark.filterwarnings("ignore")


def layers():
    torch.manual_seed(0)
    return {
        "butterfly": nn.ButterflyLinear(24, 40),
        "blocks": nn.ButterflyLinear(24, 40, nblocks=2, increasing_stride=False),
        "tied": nn.ButterflyLinear(32, 32, tied=True, permutation="bit_reversal"),
        "monarch": nn.MonarchLinear(24, 40),
        "padded": nn.ButterflyLinear(24, 40, permutation="bit_reversal"),
        "block diagonal": nn.BlockDiagonalLinear(24, 40),
        "shuffled": nn.BlockDiagonalLinear(24, 40, nblocks=3, shuffle=True),
        "padded and shuffled": nn.BlockDiagonalLinear(25, 40, nblocks=4, shuffle=True),
        "kronecker": nn.KroneckerLinear(24, 40, factors=[(2, 5, 6, 2), (1, 10, 5, 4)]),
        "fastfood": nn.FastfoodLinear(24, 40),
        "circulant": nn.CirculantLinear(24, 40),
        "toeplitz": nn.ToeplitzLinear(24, 40),
        "low rank": nn.LowRankLinear(24, 40, rank=3),
        "pixelfly": nn.PixelflyLinear(24, 40, block_size=4, rank=3),
    }


@pytest.mark.parametrize("kind", tuple(layers()))
def test_results_and_training_steps(kind):
    layer = layers()[kind]
    module = torch.nn.Sequential(layer, torch.nn.Tanh(), torch.nn.Linear(layer.out_features, 5))
    x, target = torch.randn(6, layer.in_features), torch.randn(6, 5)
    session = tg.from_torch(module, x).session()
    assert np.allclose(session.run(x), module(x).detach(), rtol=1e-4, atol=1e-5)
    trains_like_pytorch(module, x, target, "mse", lr=0.05, atol=1e-5)
    session.copy_from(module)
    assert np.allclose(session.run(x), module(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("machine", ("host", "bow"))
@pytest.mark.parametrize("tied", (False, True))
def test_complex_butterflies_take_pairs(machine, tied):
    torch.manual_seed(3)
    layer = nn.ButterflyLinear(8, 12, bias=False, complex=True, tied=tied)
    x, target = torch.randn(5, 16), torch.randn(5, 24)
    graph = tg.Graph()
    shape = layer.twiddle.shape[: 1 if tied else 3]
    twiddle = graph.parameter("twiddle", (*shape, layer.twiddle.numel() // math.prod(shape)))
    y = tg.butterfly(graph.input("x", x.shape), twiddle, 12, tied=tied, complex=True)
    graph.output("y", y)
    session = graph.session(machine)
    session.load_parameters({"twiddle": layer.twiddle.detach().numpy().reshape(twiddle.shape)})
    exact = torch.view_as_real(layer(torch.view_as_complex(x.reshape(5, 8, 2)))).reshape(5, 24)
    np.testing.assert_allclose(session.run(x), exact.detach(), rtol=1e-4, atol=1e-5)

    graph = graph.training_step("mse", "sgd", lr=0.5)
    session = graph.session(machine)
    session.load_parameters({"twiddle": layer.twiddle.detach().numpy().reshape(twiddle.shape)})
    session.run(x, target)
    (exact - target).square().mean().backward()
    trained = layer.twiddle - 0.5 * layer.twiddle.grad
    np.testing.assert_allclose(
        session.get("twiddle").reshape(trained.shape), trained.detach(), rtol=1e-3, atol=1e-5
    )


def test_complex_layers_are_refused():
    module = nn.ButterflyLinear(8, 8, complex=True)
    with pytest.raises(tg.UnsupportedModuleError, match="ButterflyLinear"):
        tg.from_torch(module, torch.randn(2, 8))


def test_features_are_selected():
    class Select(torch.nn.Module):
        def forward(self, x):
            return x.index_select(-1, torch.tensor([0, 0, 1]))

    x = torch.randn(2, 3)
    assert np.array_equal(tg.from_torch(Select(), x).session().run(x), x[:, [0, 0, 1]])


def test_features_are_padded():
    class Pad(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.pad(x, (1, 2, 0, 1), value=3.0)

    x = torch.randn(2, 3)
    assert np.array_equal(tg.from_torch(Pad(), x).session().run(x), Pad()(x))


def test_bpbp_is_two_permuted_butterflies():
    graph = tg.Graph()
    y = tg.linear_layer(graph.input("x", (5, 11)), 7, "w", structure="bpbp")
    graph.output("y", y)
    session = graph.session()
    sizes = ((11, 16), (16, 7))
    layers = [nn.ButterflyLinear(*size, False, tied=True, permutation="bit_reversal") for size in sizes]
    for layer, name in zip(layers, ("w.twiddle1", "w.twiddle2"), strict=True):
        layer.twiddle.data = torch.as_tensor(session.get(name)).reshape(layer.twiddle.shape)
    x = torch.randn(5, 11)
    assert np.allclose(session.run(x), torch.nn.Sequential(*layers)(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ("butterfly", "blocks", "tied", "fastfood"))
def test_unfused_forms(kind):
    layer, x = layers()[kind], torch.randn(6, layers()[kind].in_features)
    merged = tg.from_torch(layer, x)
    unfused = tg.from_torch(layer, x, form="unfused")
    assert str(unfused).count("\n") > str(merged).count("\n") + 10
    assert np.allclose(unfused.session().run(x), merged.session().run(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"unknown form 'merged' \(choose from fused, unfused"):
        tg.from_torch(layer, x, form="merged")


@pytest.mark.parametrize(
    "structure", ("dense", "butterfly", "bpbp", "pixelfly", "fastfood", "circulant", "low-rank", "monarch")
)
def test_linear_layers_by_structure(structure):
    x = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    results = []
    for form in ("fused", "unfused"):
        graph = tg.Graph()
        y = tg.linear_layer(
            graph.input("x", (5, 64)), 64, "hidden", structure=structure, rank=2, block_size=8, form=form
        )
        graph.output("y", y)
        results.append(graph.session().run(x))
    assert np.allclose(*results, rtol=1e-4, atol=1e-5)
    assert np.abs(results[0]).max() > 0.1
