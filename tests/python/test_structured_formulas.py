"""The formulas of structured maps, compared with explicit matrices in float64."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
linalg = pytest.importorskip("scipy.linalg")

from tessera.nn import bit_reversal, formulas


def matrix_of(function, in_features, dtype=torch.float64):
    return function(torch.eye(in_features, dtype=dtype)).t()


def butterfly_matrix(twiddle, increasing):
    """Factor by factor: (y[p], y[p + s]) = T (x[p], x[p + s])."""
    stacks = []
    for stack in twiddle:
        size = stack.shape[0] + 1 if stack.ndim == 3 else 2 * stack.shape[2]
        levels = size.bit_length() - 1
        product = torch.eye(size, dtype=twiddle.dtype)
        for block in range(1 if stack.ndim == 3 else stack.shape[0]):
            for index in range(levels):
                level = index if increasing == (block % 2 == 0) else levels - 1 - index
                stride = 1 << level
                factor = torch.zeros(size, size, dtype=twiddle.dtype)
                for i in range(size // 2):
                    low = i % stride
                    p = 2 * (i - low) + low
                    t = stack[stride - 1 + low] if stack.ndim == 3 else stack[block, index, i]
                    for row in range(2):
                        for col in range(2):
                            factor[p + row * stride, p + col * stride] = t[row, col]
                product = factor @ product
        stacks.append(product)
    return torch.cat(stacks)


@pytest.mark.pairs(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("increasing", [True, False])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 1, 3, 4), (1, 3, 4, 8), (3, 2, 2, 2), (2, 7), (1, 15)])
def test_butterfly(shape, increasing, dtype):
    torch.manual_seed(0)
    twiddle = torch.randn(*shape, 2, 2, dtype=dtype)
    size = shape[1] + 1 if len(shape) == 2 else 2 * shape[3]
    exact = butterfly_matrix(twiddle, increasing)
    for inputs, outputs in ((size, exact.shape[0]), (size - 1, max(1, exact.shape[0] - 3))):
        got = matrix_of(lambda x: formulas.butterfly(x, twiddle, outputs, increasing_stride=increasing), inputs, dtype)
        assert torch.allclose(got, exact[:outputs, :inputs], atol=1e-12)


@pytest.mark.parametrize("a,b,c,d", [(1, 1, 1, 1), (2, 3, 4, 1), (1, 2, 3, 5), (3, 4, 2, 2)])
def test_kronecker(a, b, c, d):
    torch.manual_seed(0)
    weight = torch.randn(a, d, b, c, dtype=torch.float64)
    exact = torch.zeros(a * b * d, a * c * d, dtype=torch.float64)
    for i in range(a):
        for t in range(d):
            for r in range(b):
                for q in range(c):
                    exact[(i * b + r) * d + t, (i * c + q) * d + t] = weight[i, t, r, q]
    got = matrix_of(lambda x: formulas.kronecker(x, weight, a * b * d), a * c * d)
    assert torch.allclose(got, exact)
    equal = weight[:1, :1].expand(a, d, b, c)  # all blocks equal: a Kronecker product
    got = matrix_of(lambda x: formulas.kronecker(x, equal, a * b * d), a * c * d)
    eye = torch.eye
    assert torch.allclose(got, torch.kron(torch.kron(eye(a), weight[0, 0].contiguous()), eye(d)).double())


@pytest.mark.parametrize("k,q,p,l,s,r", [(4, 4, 4, 4, 4, 4), (2, 6, 5, 3, 2, 4), (3, 4, 2, 2, 5, 6)])
def test_monarch(k, q, p, l, s, r):  # noqa: E741
    """Two block-diagonal matrices, and the permutations between and after them."""
    torch.manual_seed(0)
    first, second = torch.randn(k, q, p, dtype=torch.float64), torch.randn(l, s, r, dtype=torch.float64)
    x = torch.randn(3, k * p, dtype=torch.float64)
    hidden = (x @ torch.block_diag(*first).t()).reshape(3, r, l).transpose(1, 2).reshape(3, l * r)
    y = (hidden @ torch.block_diag(*second).t()).reshape(3, l, s).transpose(1, 2).reshape(3, s * l)
    assert torch.allclose(formulas.monarch(x, first, second, s * l), y)
    diagonal = matrix_of(lambda x: formulas.block_diagonal(x, first, k * q), k * p)
    assert torch.allclose(diagonal, torch.block_diag(*first))


@pytest.mark.parametrize("size", [1, 2, 7, 16, 30])
def test_circulant_and_toeplitz(size):
    rng = np.random.default_rng(0)
    c = rng.standard_normal(size)
    for inputs, outputs in ((size, size), (max(1, size - 3), size), (size, max(1, size - 5))):
        got = matrix_of(lambda x: formulas.circulant(x, torch.tensor(c), outputs), inputs).numpy()
        assert np.allclose(got, linalg.circulant(c)[:outputs, :inputs])
        diagonals = rng.standard_normal(inputs + outputs - 1)
        exact = linalg.toeplitz(diagonals[inputs - 1 :], diagonals[:inputs][::-1])
        got = matrix_of(lambda x: formulas.toeplitz(x, torch.tensor(diagonals)), inputs).numpy()
        assert np.allclose(got, exact)


@pytest.mark.parametrize("size", [2, 16])
@pytest.mark.parametrize("stacks", [1, 3])
def test_fastfood(size, stacks):
    torch.manual_seed(0)
    s, g, b = torch.randn(3, stacks, size, dtype=torch.float64)
    p = torch.stack([torch.randperm(size) for _ in range(stacks)])
    h = torch.tensor(linalg.hadamard(size)).double() / size**0.5
    eye = torch.eye(size, dtype=torch.float64)
    exact = torch.cat([s[i].diag() @ h @ g[i].diag() @ eye[p[i]] @ h @ b[i].diag() for i in range(stacks)])
    got = matrix_of(lambda x: formulas.fastfood(x, s, g, b, p, stacks * size - 1), size - 1)
    assert torch.allclose(got, exact[: stacks * size - 1, : size - 1])


def test_bit_reversal():
    assert bit_reversal(1).tolist() == [0]
    assert bit_reversal(8).tolist() == [0, 4, 2, 6, 1, 5, 3, 7]
    with pytest.raises(ValueError, match="not for 12"):
        bit_reversal(12)


def test_gradients():
    torch.manual_seed(0)
    real = lambda *shape: torch.randn(*shape, dtype=torch.float64, requires_grad=True)  # noqa: E731
    p = torch.randperm(4).unsqueeze(0)
    for function, arguments in (
        (lambda x, t: formulas.butterfly(x, t, 5, increasing_stride=False), (real(2, 3), real(2, 2, 2, 2, 2, 2))),
        (lambda x, t: formulas.butterfly(x, t, 4), (real(2, 3), real(1, 3, 2, 2))),
        (lambda x, w: formulas.kronecker(x, w, 7), (real(2, 11), real(2, 2, 2, 3))),
        (lambda x, c: formulas.circulant(x, c, 3), (real(2, 4), real(5))),
        (formulas.toeplitz, (real(2, 4), real(6))),
        (lambda x, s, g, b: formulas.fastfood(x, s, g, b, p, 3), (real(2, 3), real(1, 4), real(1, 4), real(1, 4))),
    ):
        assert torch.autograd.gradcheck(function, arguments)
