"""The structured layers: their parameters, initial values, and results."""

import copy
import io
import math
import pickle
import statistics

import numpy as np
import pytest

torch = pytest.importorskip("torch")
fft = pytest.importorskip("scipy.fft")
linalg = pytest.importorskip("scipy.linalg")

from tessera import nn
from tessera.nn import formulas


def layers(in_features, out_features, bias=True):
    """One of each kind."""
    cells = {"block_size": 8, "butterfly_size": 4, "rank": 3}
    hidden = max(in_features, out_features)
    chain = [(1, 5, -(-in_features // 4), 4), (2, -(-hidden // 2), 10, 1)]
    return {
        "butterfly": nn.ButterflyLinear(in_features, out_features, bias),
        "tied": nn.ButterflyLinear(in_features, out_features, bias, tied=True, increasing_stride=False),
        "blocks": nn.ButterflyLinear(in_features, out_features, bias, nblocks=3, increasing_stride=False),
        "permuted": nn.ButterflyLinear(in_features, out_features, bias, permutation=torch.randperm(in_features)),
        "block butterfly": nn.BlockButterflyLinear(in_features, out_features, bias, block_size=4),
        "pixelfly": nn.PixelflyLinear(in_features, out_features, bias, **cells),
        "monarch": nn.MonarchLinear(in_features, out_features, bias, nblocks=4),
        "block diagonal": nn.BlockDiagonalLinear(in_features, out_features, bias, nblocks=3, shuffle=True),
        "kronecker": nn.KroneckerLinear(in_features, out_features, bias, factors=chain),
        "fastfood": nn.FastfoodLinear(in_features, out_features, bias),
        "circulant": nn.CirculantLinear(in_features, out_features, bias),
        "toeplitz": nn.ToeplitzLinear(in_features, out_features, bias),
        "low rank": nn.LowRankLinear(in_features, out_features, bias, rank=2),
    }


KINDS = tuple(layers(16, 16))
SHAPES = [(16, 16), (24, 50), (50, 24), (33, 7)]


@pytest.mark.pairs(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [True, False])
def test_layers_are_their_formula_and_their_matrix(kind, shape, bias):
    torch.manual_seed(0)
    layer = layers(*shape, bias)[kind]
    dense = layer.to_dense().double()
    assert (dense.in_features, dense.out_features) == shape and (dense.bias is not None) == bias
    for batch in ((), (1,), (0,), (5,), (2, 3, 4)):
        x = torch.randn(*batch, shape[0])
        y = layer(x)
        assert y.shape == (*batch, shape[1]) and y.dtype == torch.float32
        assert torch.allclose(y.double(), dense(x.double()), atol=3e-5)
        assert torch.allclose(layer.reference(x.double()), dense(x.double()), atol=1e-5)


@pytest.mark.pairs(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_the_formula(kind, shape):
    torch.manual_seed(0)
    layer = layers(*shape)[kind]
    exact = copy.deepcopy(layer)
    x = torch.randn(2, 9, shape[0], requires_grad=True)
    x64 = x.detach().double().requires_grad_()
    dy = torch.randn(2, 9, shape[1])
    layer(x).backward(dy)
    exact.reference(x64).backward(dy.double())
    assert torch.allclose(x.grad.double(), x64.grad, atol=1e-4)
    for (name, parameter), other in zip(layer.named_parameters(), exact.parameters(), strict=True):
        assert torch.allclose(parameter.grad, other.grad, rtol=1e-4, atol=2e-4), name


def test_block_butterflies():
    layer = nn.BlockButterflyLinear(1024, 1024, bias=False, block_size=32)
    assert parameters(layer) == 5 * 1024 * 2 * 32
    assert [name for name, _ in layer.named_parameters()] == [f"factors.{i}.weight" for i in range(5)]
    assert layer.lr_scales()["factors.4.weight"] == 1024 / (64 * 5)
    identity = nn.BlockButterflyLinear(24, 50, bias=False, block_size=4, init="identity")
    assert torch.equal(identity.dense_weight(), torch.eye(50, 24))
    assert (layer.dense_weight() != 0).all()


def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_parameters_of_table_4():
    """Published counts: 1024 inputs, a hidden layer of 1024, an output layer of 10 (10,250 parameters)."""
    output = parameters(torch.nn.Linear(1024, 10))
    assert parameters(torch.nn.Linear(1024, 1024)) + output == 1_059_850
    assert parameters(nn.ButterflyLinear(1024, 1024, tied=True)) + 1024 + output == 16_390  # it has two biases
    assert parameters(nn.FastfoodLinear(1024, 1024)) + output == 14_346
    assert parameters(nn.CirculantLinear(1024, 1024)) + output == 12_298
    assert parameters(nn.LowRankLinear(1024, 1024, rank=1)) + output == 13_322
    assert parameters(nn.PixelflyLinear(1024, 1024, block_size=64, rank=32)) + output == 404_490


def parameters_of_pixelfly(butterfly_size, block_size, rank):
    """Number of parameters of the published network, with two biases in the hidden layer."""
    active = nn.flat_butterfly(1024, 1024, block_size, butterfly_size)
    return int(active.sum()) * block_size**2 + 2 * 1024 * rank + 2 * 1024 + 10_250


@pytest.mark.parametrize(
    ("sweep", "first", "mean", "deviation"),
    [
        ([(2**i, 32, 2) for i in range(1, 9)], 1_064_970, 450_570, 326_625),
        ([(2**7, 2**i, 2) for i in range(3, 8)], 81_930, 262_154, 184_638),
        ([(2**4, 2**4, 2**i) for i in range(1, 9)], 344_074, 470_538, 181_317),
    ],
)
def test_parameters_of_table_5(sweep, first, mean, deviation):
    """The published "means" are each sweep's first point, and the deviations are sample deviations."""
    counts = [parameters_of_pixelfly(*point) for point in sweep]
    assert counts[0] == first
    assert round(statistics.mean(counts)) == mean
    assert round(statistics.stdev(counts)) == deviation


def test_shapes_of_parameters():
    shapes = lambda layer: {name: tuple(p.shape) for name, p in layer.named_parameters()}  # noqa: E731
    assert shapes(nn.ButterflyLinear(1000, 2100)) == {"twiddle": (3, 1, 10, 512, 2, 2), "bias": (2100,)}
    assert shapes(nn.ButterflyLinear(8, 8, tied=True, bias=False)) == {"twiddle": (1, 7, 2, 2)}
    complex_layer = nn.ButterflyLinear(8, 8, complex=True, nblocks=2)
    assert shapes(complex_layer) == {"twiddle": (1, 2, 3, 4, 2, 2, 2), "bias": (8, 2)}
    assert shapes(nn.MonarchLinear(30, 50, False)) == {"blkdiag1": (4, 8, 8), "blkdiag2": (4, 13, 8)}
    assert shapes(nn.MonarchLinear(50, 30, False)) == {"blkdiag1": (4, 8, 13), "blkdiag2": (4, 8, 8)}
    assert shapes(nn.BlockDiagonalLinear(50, 30, False)) == {"weight": (4, 8, 13)}
    assert shapes(nn.FastfoodLinear(100, 200, False)) == {name: (2, 128) for name in "SGB"}
    assert shapes(nn.CirculantLinear(100, 200, False)) == {"c": (200,)}
    assert shapes(nn.ToeplitzLinear(100, 200, False)) == {"c": (299,)}
    assert shapes(nn.LowRankLinear(100, 200, False, rank=3)) == {"U": (200, 3), "V": (3, 100)}
    assert nn.PixelflyLinear(1024, 512, block_size=64).grouped_weight().shape == (1024, 4, 64)


# Exact transforms.


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("size", [2, 8, 64, 512])
def test_exact_transforms(size, tied):
    options = {"bias": False, "dtype": torch.float64, "tied": tied}
    indices = np.arange(size)
    fourier = np.exp(-2j * np.pi * np.outer(indices, indices) / size) / math.sqrt(size)
    for init, exact in (("dft", fourier), ("idft", fourier.conj())):
        layer = nn.ButterflyLinear(size, size, complex=True, init=init, **options)
        assert np.allclose(layer.dense_weight().numpy(), exact, atol=1e-12)
    layer = nn.ButterflyLinear(size, size, complex=True, init="dct", **options)
    exact = fft.dct(np.eye(size), norm="ortho", axis=0)
    assert np.allclose(layer.dense_weight().real.numpy(), exact, atol=1e-12)
    for increasing in (True, False):
        layer = nn.ButterflyLinear(size, size, increasing_stride=increasing, init="hadamard", **options)
        assert np.allclose(layer.dense_weight().numpy(), linalg.hadamard(size) / math.sqrt(size), atol=1e-12)


def test_transforms_of_values():
    torch.manual_seed(0)
    x = torch.randn(3, 64)
    layer = nn.ButterflyLinear(64, 64, False, complex=True, init="dft")
    assert torch.allclose(layer(x), torch.fft.fft(x, norm="ortho"), atol=1e-5)
    z = torch.randn(3, 64, dtype=torch.complex64)
    assert torch.allclose(layer(z), torch.fft.fft(z, norm="ortho"), atol=1e-5)
    layer = nn.ButterflyLinear(64, 64, False, complex=True, init="dct")
    assert torch.allclose(layer(x).real, torch.tensor(fft.dct(x.numpy(), norm="ortho")), atol=1e-5)


@pytest.mark.parametrize("increasing", [True, False])
def test_fourier_transform_without_permutation(increasing):
    exact = torch.fft.fft(torch.eye(16, dtype=torch.complex128), norm="ortho")
    options = {"complex": True, "increasing_stride": increasing, "dtype": torch.float64}
    layer = nn.ButterflyLinear(16, 16, False, init="fft_no_br", nblocks=2, **options)
    reverse = nn.bit_reversal(16)
    expected = exact[:, reverse] if increasing else exact[reverse]
    assert torch.allclose(layer.dense_weight(), expected)
    layer = nn.ButterflyLinear(16, 16, False, init="ifft_no_br", **options)
    assert torch.allclose(layer.dense_weight(), expected.conj())


@pytest.mark.parametrize("complex", [False, True])
def test_orthogonal_and_identity_butterflies(complex):
    torch.manual_seed(0)
    options = {"complex": complex, "nblocks": 2, "dtype": torch.float64}
    eye = torch.eye(32, dtype=torch.complex128 if complex else torch.float64)
    w = nn.ButterflyLinear(32, 32, init="ortho", **options).dense_weight()
    assert torch.allclose(w @ w.mH, eye)
    assert torch.allclose(nn.ButterflyLinear(32, 32, init="identity", **options).dense_weight(), eye)


@pytest.mark.parametrize("init", ["identity", "hadamard", "fft_no_br", "ifft_no_br", "dft", "idft", "dct"])
@pytest.mark.parametrize("tied", [True, False])
def test_transforms_of_one_number(init, tied):
    layer = nn.ButterflyLinear(1, 1, False, complex=True, tied=tied, init=init)
    assert torch.equal(layer.dense_weight(), torch.ones(1, 1, dtype=torch.complex64))
    x = torch.randn(3, 1)
    assert torch.allclose(layer(x).real, x)


@pytest.mark.parametrize("complex", [True, False])
def test_bits_are_reversed_over_all_places(complex):
    layer = nn.ButterflyLinear(6, 5, complex=complex, permutation="bit_reversal")
    whole = nn.ButterflyLinear(8, 5, complex=complex, permutation="bit_reversal")
    whole.load_state_dict(layer.state_dict())
    x = torch.randn(3, 6)
    padded = torch.nn.functional.pad(x, (0, 2))
    assert torch.equal(layer(x), whole(padded))
    dtype = torch.complex128 if complex else torch.float64
    assert torch.allclose(layer.reference(x.to(dtype)), whole.reference(padded.to(dtype)))
    plain = nn.ButterflyLinear(4, 4, permutation=[2, 0, 3, 1])
    assert plain.permutation.tolist() == [2, 0, 3, 1]


def test_two_permuted_butterflies_make_bpbp():
    torch.manual_seed(0)
    first = nn.ButterflyLinear(16, 16, False, permutation="bit_reversal")
    second = nn.ButterflyLinear(16, 16, False, permutation="bit_reversal")
    p = torch.eye(16)[nn.bit_reversal(16)]
    b1 = formulas.butterfly(torch.eye(16), first.twiddle, 16).t()
    b2 = formulas.butterfly(torch.eye(16), second.twiddle, 16).t()
    product = second.dense_weight() @ first.dense_weight()
    assert torch.allclose(product, b2 @ p @ b1 @ p, atol=1e-5)


# Initial values.


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.ButterflyLinear(512, 512, False),
        lambda: nn.ButterflyLinear(512, 512, False, nblocks=2),
        lambda: nn.BlockButterflyLinear(512, 512, False, block_size=16),
        lambda: nn.MonarchLinear(512, 512, False, nblocks=16, init="scaled"),
        lambda: nn.BlockDiagonalLinear(512, 512, False, nblocks=4, init="scaled"),
        lambda: nn.KroneckerLinear(512, 512, False, factors=[(64, 8, 8, 1), (8, 8, 8, 8), (1, 8, 8, 64)]),
        lambda: nn.FastfoodLinear(512, 512, False),
        lambda: nn.CirculantLinear(512, 512, False),
        lambda: nn.ToeplitzLinear(512, 512, False),
    ],
)
def test_initial_values_keep_the_scale(make):
    torch.manual_seed(0)
    scale = statistics.mean(float(make()(torch.randn(200, 512)).detach().square().mean()) for _ in range(8))
    assert 0.6 < scale < 1.6


def test_scaled_factors():
    torch.manual_seed(0)
    layer = nn.LowRankLinear(1024, 512, rank=64, init="scaled")
    assert float(layer.V.detach().std()) == pytest.approx(math.sqrt(1 / 1024) * math.sqrt(64 / 1024), rel=0.02)
    assert float(layer.U.detach().std()) == pytest.approx(math.sqrt(1 / 64), rel=0.02)
    layer = nn.LowRankLinear(1024, 512, rank=64)
    assert float(layer.V.detach().std()) == pytest.approx((64 * 1024) ** -0.5, rel=0.02)


def test_learning_rates_per_factor():
    module = torch.nn.Sequential(
        nn.ButterflyLinear(1024, 64), torch.nn.ReLU(), nn.MonarchLinear(64, 128, nblocks=8), torch.nn.Linear(128, 10)
    )
    rates = {}
    for group in nn.parameter_groups(module, 1e-3, betas=(0.9, 0.99)):
        assert group["betas"] == (0.9, 0.99)
        rates |= {id(parameter): group["lr"] for parameter in group["params"]}
    named = {name: rates[id(parameter)] for name, parameter in module.named_parameters()}
    assert named == pytest.approx(
        {
            "0.twiddle": 1e-3 * 1024 / (2 * 10),
            "0.bias": 1e-3,
            "2.blkdiag1": 1e-3 * 64 / (8 * 2),
            "2.blkdiag2": 1e-3 * 64 / (8 * 2),
            "2.bias": 1e-3,
            "3.weight": 1e-3,
            "3.bias": 1e-3,
        }
    )
    for kind, layer in layers(16, 24).items():
        known = dict(layer.named_parameters())
        assert set(layer.lr_scales()) == set(known) - {"bias"}, kind
    torch.optim.Adam(nn.parameter_groups(module, 1e-3))


# Pixelfly.


def test_flat_butterfly():
    active = nn.flat_butterfly(8, 8, 1, 8)
    expected = torch.zeros(8, 8, dtype=torch.bool)
    for row in range(8):
        for other in (row, row ^ 1, row ^ 2, row ^ 4):
            expected[row, other] = True
    assert torch.equal(active, expected)
    assert nn.flat_butterfly(8, 8, 1, 8, num_factors=1).sum() == 16


@pytest.mark.parametrize("rows,cols,block,cells", [(64, 64, 8, 4), (24, 40, 4, 8), (100, 70, 6, 8), (5, 9, 2, 16)])
def test_flat_butterfly_of_any_shape(rows, cols, block, cells):
    """A block is active if a point of it lies in an active cell of the stretched grid."""
    active = nn.flat_butterfly(rows, cols, block, cells)
    fine = 4 * cells  # points in each cell and feature
    expected = torch.zeros(-(-rows // block), -(-cols // block), dtype=torch.bool)
    centre_of = lambda size: (np.arange(fine * size) + 0.5) / fine  # noqa: E731
    y, x = centre_of(rows), centre_of(cols)
    cell_y, cell_x = (y * cells / rows).astype(int), (x * cells / cols).astype(int)
    for i in range(expected.shape[0]):
        for j in range(expected.shape[1]):
            ys = np.unique(cell_y[(y // block).astype(int) == i])
            xs = np.unique(cell_x[(x // block).astype(int) == j])
            difference = ys[:, None] ^ xs[None, :]
            expected[i, j] = bool(((difference & (difference - 1)) == 0).any())
    assert torch.equal(active, expected)


def test_repeated_flat_butterfly():
    square = nn.flat_butterfly(32, 32, 8, 4)
    assert torch.equal(nn.flat_butterfly(64, 32, 8, 4, stretch=False), square.repeat(2, 1))
    assert torch.equal(nn.flat_butterfly(32, 96, 8, 4, stretch=False), square.repeat(1, 3))
    with pytest.raises(ValueError, match="repeat no square pattern; stretch it"):
        nn.flat_butterfly(64, 48, 8, 4, stretch=False)


def test_pixelfly_loads_the_grouped_form():
    """The form of other implementations: block by block of the inputs, then gathered by output."""
    torch.manual_seed(0)
    features, block, cells = (32, 96), 8, 4
    layer = nn.PixelflyLinear(*features, block_size=block, butterfly_size=cells, rank=5)
    active = nn.flat_butterfly(features[1], features[0], block, cells)
    per_input = int(active.sum(0)[0])
    weight = torch.randn(features[0], per_input, block)
    saved = {
        "weight": weight,
        "lowrank_first.weight": torch.randn(5, features[0]),
        "lowrank_second.weight": torch.randn(features[1], 5),
        "lowrank_second.bias": torch.randn(features[1]),
        "butterfly_flat_indices": torch.zeros(3, dtype=torch.int64),
    }
    layer.load_state_dict(saved)
    x = torch.randn(7, features[0])
    products = weight.reshape(-1, per_input * block, block) @ x.t().reshape(-1, block, 7)
    products = products.reshape(-1, per_input, block, 7)
    y = torch.zeros(features[1] // block, block, 7)
    for column in range(features[0] // block):
        for number, row in enumerate(active[:, column].nonzero().reshape(-1)):
            y[row] += products[column, number]
    expected = y.reshape(-1, 7).t() + saved["lowrank_second.bias"]
    expected += x @ saved["lowrank_first.weight"].t() @ saved["lowrank_second.weight"].t()
    assert torch.allclose(layer(x), expected, atol=1e-4)
    assert torch.equal(layer.grouped_weight(), weight)
    with pytest.raises(RuntimeError, match=r"shape \(32, 2, 8\); this layer's is"):
        layer.load_state_dict({**saved, "weight": weight[:, :2]})
    with pytest.raises(ValueError, match="have no grouped form"):
        nn.PixelflyLinear(50, 30, block_size=8, butterfly_size=4, rank=2).grouped_weight()


@pytest.mark.parametrize("kind", KINDS)
def test_16_bit_inputs(kind):
    torch.manual_seed(0)
    layer = layers(24, 50)[kind]
    x = torch.randn(5, 24)
    y = layer(x.to(torch.bfloat16))
    assert y.dtype == torch.bfloat16
    assert torch.allclose(y.float(), layer(x), rtol=0.05, atol=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert torch.allclose(y.float(), layer(x), rtol=0.05, atol=0.1)
    y.float().sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in layer.parameters())


# As modules.


def test_checkpoints_without_a_permutation():
    layer = nn.ButterflyLinear(6, 8, permutation="bit_reversal")
    saved = nn.ButterflyLinear(6, 8).state_dict()
    layer.load_state_dict(saved)
    assert torch.equal(layer.twiddle, saved["twiddle"])
    assert torch.equal(layer.permutation, nn.bit_reversal(8))


@pytest.mark.parametrize("kind", KINDS)
def test_copies_and_files(kind):
    torch.manual_seed(0)
    layer, other = layers(24, 50)[kind], layers(24, 50)[kind]
    x = torch.randn(4, 24)
    y = layer(x)
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(again(x), y)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x), y)


def test_complex_checkpoints():
    torch.manual_seed(0)
    layer = nn.ButterflyLinear(16, 24, complex=True)
    twiddle, bias = torch.randn(2, 1, 4, 8, 2, 2, dtype=torch.complex64), torch.randn(24, dtype=torch.complex64)
    layer.load_state_dict({"twiddle": twiddle, "bias": bias})
    x = torch.randn(3, 16, dtype=torch.complex64)
    assert torch.allclose(layer(x), formulas.butterfly(x, twiddle, 24) + bias, atol=1e-5)
    assert torch.allclose(layer.to_dense()(x), layer(x), atol=1e-5)
    assert torch.allclose(layer.reference(x), layer(x), atol=1e-5)
    given = nn.ButterflyLinear(16, 24, complex=True, init=twiddle, bias=False)
    assert torch.allclose(given(x), formulas.butterfly(x, twiddle, 24), atol=1e-5)


def test_other_names_of_factors():
    torch.manual_seed(0)
    layer = nn.LowRankLinear(12, 8, False, rank=2)
    x, v, u = torch.randn(3, 12), torch.randn(2, 12), torch.randn(8, 2)
    for saved in ({"lr_weight1": v, "lr_weight2": u}, {"H": v, "G": u.t()}, {"V": v, "U": u}):
        layer.load_state_dict(saved)
        assert torch.allclose(layer(x), x @ v.t() @ u.t(), atol=1e-5)
    layer = nn.FastfoodLinear(8, 8, False)
    layer.load_state_dict({"S": torch.ones(8), "G": torch.ones(8), "B": torch.ones(8), "P": torch.arange(8)})
    assert torch.allclose(layer(x[:, :8]), x[:, :8], atol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.ButterflyLinear(0, 4), "in_features is 0; it must be from 1"),
        (lambda: nn.ButterflyLinear(4, 4, init="fft"), r"unknown init 'fft' \(choose from randn, ortho"),
        (lambda: nn.ButterflyLinear(4, 4, init="dft"), "needs complex=True"),
        (lambda: nn.ButterflyLinear(6, 8, complex=True, init="dft"), "not for 6 inputs"),
        (lambda: nn.ButterflyLinear(8, 8, complex=True, init="dft", nblocks=2), "in one block"),
        (lambda: nn.ButterflyLinear(8, 8, nblocks=2, tied=True), "nblocks is 2"),
        (lambda: nn.ButterflyLinear(8, 8, init=torch.ones(3)), r"shape \(3,\); twiddle is \(1, 1, 3, 4, 2, 2\)"),
        (lambda: nn.ButterflyLinear(3, 8, permutation=torch.tensor([0, 2, 2])), "each of 0 to 2 once"),
        (lambda: nn.MonarchLinear(8, 8, nblocks=0), "nblocks is 0"),
        (lambda: nn.KroneckerLinear(8, 8, factors=[]), "at least one is needed"),
        (lambda: nn.KroneckerLinear(8, 8, factors=[(2, 4, -4, 1)]), "c is -4; it must be from 1"),
        (lambda: nn.KroneckerLinear(8, 8, factors=[(2, 4, 4, 1), (1, 4, 4, 3)]), "8 outputs, the next 12 inputs"),
        (lambda: nn.KroneckerLinear(9, 8, factors=[(2, 4, 4, 1)]), "8 inputs to 8 outputs; the layer has 9 and 8"),
        (lambda: nn.LowRankLinear(8, 4, rank=5), "rank is 5; it must be from 1 to 4"),
        (lambda: nn.PixelflyLinear(8, 4, rank=5), "rank is 5; it must be from 0 to 4"),
        (lambda: nn.PixelflyLinear(8, 8, butterfly_size=6, rank=1), "a butterfly size of 6"),
        (lambda: nn.flat_butterfly(8, 8, 1, 4, num_factors=3), "3 butterfly factors; 4 cells have 1 to 2"),
        (lambda: nn.BlockButterflyLinear(8, 8, block_size=5), r"unknown block_size 5 \(choose from 4, 8, 16, 32\)"),
        (lambda: nn.PixelflyLinear(8, 8, block_size=-4), "block_size is -4; it must be from 1"),
        (lambda: nn.FastfoodLinear(4, 4, permutation=torch.arange(5)), "each of 0 to 3 once"),
        (lambda: nn.FastfoodLinear(4, 4, permutation=torch.zeros(4, dtype=torch.int64)), "each of 0 to 3 once"),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
    with pytest.raises(RuntimeError, match="run on the CPU, not on cuda"):
        nn.CirculantLinear(4, 4, device="cuda")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.ButterflyLinear(2.5, 3), "in_features must be a whole number, not 2.5"),
        (lambda: nn.MonarchLinear(3, "a"), "out_features must be a whole number, not 'a'"),
        (lambda: nn.MonarchLinear(8, 8, nblocks=2.5), "nblocks must be a whole number, not 2.5"),
        (lambda: nn.LowRankLinear(8, 8, rank=2.0), "rank must be a whole number, not 2.0"),
        (lambda: nn.PixelflyLinear(8, 8, block_size=None), "block_size must be a whole number, not None"),
        (lambda: nn.KroneckerLinear(8, 8, factors=[(1, 8, 8.0, 1)]), "c must be a whole number, not 8.0"),
        (lambda: nn.ButterflyLinear(4, 4, permutation=torch.tensor([0.5, 1, 2, 3])), "its indices must be integers"),
    ],
)
def test_sizes_and_indices_are_integers(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_the_default_rank_follows_the_size():
    assert nn.PixelflyLinear(784, 10).rank == 10 and nn.PixelflyLinear(784, 100).rank == 32
