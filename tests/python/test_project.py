"""Projections of dense layers onto structures."""

import math

import pytest

torch = pytest.importorskip("torch")
linalg = pytest.importorskip("scipy.linalg")

from tessera import nn


def dense_of(out_features, in_features, seed=0, **options):
    torch.manual_seed(seed)
    return torch.nn.Linear(in_features, out_features, **options)


def relative_error(layer, dense):
    exact = dense.weight.detach().double()
    return float((layer.dense_weight().double() - exact).norm() / exact.norm())


STRUCTURES = {
    "butterfly": {},
    "monarch": {"nblocks": 4},
    "block_diagonal": {"nblocks": 3},
    "low_rank": {"rank": 3},
    "pixelfly": {"block_size": 4, "butterfly_size": 8, "rank": 3},
    "circulant": {},
    "toeplitz": {},
}


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("shape", [(32, 32), (50, 24), (24, 50), (17, 33)])
@pytest.mark.parametrize("bias", [True, False])
def test_projections_of_any_shape(structure, shape, bias):
    dense = dense_of(*shape, bias=bias).eval()
    layer, error = nn.project(dense, structure, **STRUCTURES[structure])
    assert 0 < error < 1 and error == pytest.approx(relative_error(layer, dense), rel=1e-4)
    assert (layer.in_features, layer.out_features, layer.training) == (shape[1], shape[0], False)
    assert (layer.bias is not None) == bias and (not bias or torch.equal(layer.bias, dense.bias))
    again = nn.project(layer.to_dense(), structure, **STRUCTURES[structure])  # a matrix with the structure stays
    assert again.error < (5e-2 if structure == "pixelfly" else 1e-5)


@pytest.mark.parametrize("size", [2, 4, 32, 256])
def test_transforms_are_found_exactly(size):
    hadamard = torch.tensor(linalg.hadamard(size)).double() / math.sqrt(size)
    assert nn.project(hadamard, "butterfly", sweeps=0).error < 1e-12
    fourier = torch.fft.fft(torch.eye(size, dtype=torch.complex128), norm="ortho")
    layer, error = nn.project(fourier, "butterfly", permutation="bit_reversal", sweeps=0)
    assert error < 1e-12
    z = torch.randn(3, size, dtype=torch.complex64)
    assert torch.allclose(layer.float()(z), torch.fft.fft(z, norm="ortho"), atol=1e-5)
    assert nn.project(fourier.inverse(), "butterfly", increasing_stride=False, permutation="bit_reversal").error < 2


@pytest.mark.pairs(2)
@pytest.mark.parametrize("increasing", [True, False])
@pytest.mark.parametrize("shape", [(32, 32), (20, 50), (50, 20), (64, 7)])
@pytest.mark.parametrize("complex", [False, True])
def test_butterflies_are_found_exactly(shape, increasing, complex):
    torch.manual_seed(0)
    options = {"increasing_stride": increasing, "complex": complex}
    layer = nn.ButterflyLinear(*shape, bias=False, dtype=torch.float64, **options)
    assert nn.project(layer.dense_weight(), "butterfly", sweeps=0, **options).error < 1e-12


def test_sweeps_improve_butterflies():
    dense = dense_of(64, 64)
    errors = [nn.project(dense, "butterfly", sweeps=sweeps).error for sweeps in (0, 1, 5, 50)]
    assert errors == sorted(errors, reverse=True) and errors[-1] < errors[0]


def test_sweeps_solve_for_each_factor():
    """At the end, no factor has a gradient."""
    dense = dense_of(16, 16)
    layer, _ = nn.project(dense.double(), "butterfly", sweeps=1000)
    matrix = layer.reference(torch.eye(16, dtype=torch.float64)).t() - layer.bias.unsqueeze(1)
    (matrix - dense.weight.detach()).square().sum().backward()
    assert float(layer.twiddle.grad.abs().max()) < 1e-2


@pytest.mark.parametrize("shape", [(32, 32), (20, 50), (50, 20)])
def test_low_rank_is_the_optimum(shape):
    dense = dense_of(*shape)
    values = torch.linalg.svdvals(dense.weight.detach().double())
    for rank in (1, 5, 20):
        optimum = float(values[rank:].norm() / values.norm())
        assert nn.project(dense, "low_rank", rank=rank).error == pytest.approx(optimum, abs=1e-6)


@pytest.mark.parametrize("shape,nblocks", [((32, 32), 4), ((30, 50), 4), ((50, 30), 7), ((16, 64), 4), ((9, 9), 5)])
def test_monarch(shape, nblocks):
    torch.manual_seed(0)
    layer = nn.MonarchLinear(*shape, bias=False, nblocks=nblocks, dtype=torch.float64)
    assert nn.project(layer.dense_weight(), "monarch", nblocks=nblocks).error < 1e-12
    dense = dense_of(shape[1], shape[0], dtype=torch.float64)
    found, error = nn.project(dense, "monarch", nblocks=nblocks)
    moved = [torch.nn.Parameter(p.detach() + 1e-3 * torch.randn_like(p)) for p in (found.blkdiag1, found.blkdiag2)]
    found.blkdiag1, found.blkdiag2 = moved
    assert relative_error(found, dense) > error


def test_means_of_diagonals():
    torch.manual_seed(0)
    for shape in ((12, 12), (12, 7), (7, 12)):
        for structure, kind in (("circulant", nn.CirculantLinear), ("toeplitz", nn.ToeplitzLinear)):
            layer = kind(*shape, bias=False, dtype=torch.float64)
            assert nn.project(layer.dense_weight(), structure).error < 1e-12
    matrix = torch.randn(9, 9, dtype=torch.float64)
    layer, error = nn.project(matrix, "circulant")
    for step in torch.randn(5, 9, dtype=torch.float64):
        moved = nn.CirculantLinear(9, 9, False, dtype=torch.float64)
        moved.c.data = layer.c.detach() + 0.01 * step
        assert float((moved.dense_weight() - matrix).norm() / matrix.norm()) > error


def test_pixelfly_is_better_than_its_parts():
    dense = dense_of(64, 64)
    options = {"block_size": 8, "butterfly_size": 8}
    both = nn.project(dense, "pixelfly", rank=8, **options).error
    assert both < nn.project(dense, "pixelfly", rank=0, **options).error
    assert both < nn.project(dense, "low_rank", rank=8).error
    rough = nn.project(dense, "pixelfly", rank=8, sweeps=1, **options).error
    assert both < rough


@pytest.mark.parametrize("matrix", [torch.eye(40), torch.zeros(40, 40), 1e-20 * torch.eye(40).roll(20, 0)])
def test_pixelflies_of_matrices_with_little_outside_of_blocks(matrix):
    assert nn.project(matrix, "pixelfly", block_size=8).error < 1e-3  # with more factors than places outside


@pytest.mark.parametrize("shape", [(16, 16), (20, 50), (50, 20)])
@pytest.mark.parametrize("permutation", ["bit_reversal", "random"])
def test_permuted_butterflies(shape, permutation):
    torch.manual_seed(0)
    options = {"permutation": torch.randperm(shape[0]) if permutation == "random" else permutation}
    layer = nn.ButterflyLinear(*shape, bias=False, dtype=torch.float64, **options)
    assert nn.project(layer.dense_weight(), "butterfly", sweeps=0, **options).error < 1e-12


def test_complex_layers_of_real_ones():
    dense = dense_of(8, 8)
    layer, error = nn.project(dense, "butterfly", complex=True)
    assert error <= nn.project(dense, "butterfly").error + 1e-6
    assert torch.equal(layer.bias[:, 0], dense.bias) and not layer.bias[:, 1].any()


@pytest.mark.parametrize("shape", [(37, 100), (100, 60), (64, 64), (50, 24)])
def test_pixelflies_are_found(shape):
    torch.manual_seed(0)
    layer = nn.PixelflyLinear(*shape, bias=False, block_size=8, rank=1, dtype=torch.float64)
    assert nn.project(layer.dense_weight(), "pixelfly", block_size=8, rank=1).error < 5e-3


def test_errors():
    dense = dense_of(8, 8)
    with pytest.raises(ValueError, match=r"unknown projection 'fastfood' \(choose from butterfly, monarch"):
        nn.project(dense, "fastfood")
    with pytest.raises(ValueError, match="have no projection: train them"):
        nn.project(dense, "butterfly", nblocks=2)
    with pytest.raises(ValueError, match=r"not the shape \(8,\)"):
        nn.project(torch.ones(8), "circulant")
    with pytest.raises(TypeError, match=r"a weight of torch\.int64"):
        nn.project(torch.ones(8, 8, dtype=torch.int64), "circulant")
    with pytest.raises(ValueError, match="infinite or NaN"):
        nn.project(torch.full((8, 8), math.nan), "monarch")
    with pytest.raises(ValueError, match="init is not an option"):
        nn.project(dense, "monarch", init="scaled")
    with pytest.raises(ValueError, match="not to 'monarch'"):
        nn.project(torch.ones(8, 8, dtype=torch.complex64), "monarch")
