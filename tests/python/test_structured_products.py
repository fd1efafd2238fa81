"""Structured products of NumPy arrays."""

import numpy as np
import pytest

import tessera


def test_kronecker_factors():
    rng = np.random.default_rng(0)
    a, b, c, d, batch = 3, 4, 5, 2, 7
    product = tessera.StructuredProduct(tessera.Kronecker(a, b, c, d), batch)
    assert product.batch == batch and product.parameters == {"weight": (a, d, b, c)}
    weight = rng.standard_normal((a, d, b, c), np.float32)
    x = rng.standard_normal((batch, a * c * d), np.float32)
    dy = rng.standard_normal((batch, a * b * d), np.float32)
    parts, of_y = x.reshape(batch, a, c, d), dy.reshape(batch, a, b, d)
    y = np.einsum("idrq,niqd->nird", weight, parts).reshape(batch, -1)
    assert np.allclose(product(x, weight), y, atol=1e-5)
    dx, dw = product.gradients(x, dy, weight)
    assert np.allclose(dx, np.einsum("idrq,nird->niqd", weight, of_y).reshape(batch, -1), atol=1e-5)
    assert np.allclose(dw, np.einsum("nird,niqd->idrq", of_y, parts), atol=1e-5)
    assert product.predicted_seconds() > 0 and "predicted" in product.plan()
    columns = tessera.StructuredProduct(tessera.Kronecker(a, b, c, d), batch, transposed=True)
    assert np.allclose(columns(np.ascontiguousarray(x.T), weight), y.T, atol=1e-5)


def test_circulant_matrices():
    rng = np.random.default_rng(0)
    product = tessera.StructuredProduct(tessera.Circulant(12, outputs=9), 4)
    c, x = rng.standard_normal(12, np.float32), rng.standard_normal((4, 12), np.float32)
    matrix = c[(np.arange(9)[:, None] - np.arange(12)) % 12]
    assert np.allclose(product(x, c), x @ matrix.T, atol=1e-5)


def test_errors():
    product = tessera.StructuredProduct(tessera.Kronecker(2, 3, 3, 1), 4)
    x, weight = np.ones((4, 6), np.float32), np.ones((2, 1, 3, 3), np.float32)
    with pytest.raises(ValueError, match="x has 5 elements; 24 are needed"):
        product(x[0, :5].copy(), weight)
    with pytest.raises(ValueError, match="0 parameters; a kronecker has 1"):
        product(x)
    with pytest.raises(ValueError, match="not contiguous"):
        product(np.ones((6, 4), np.float32).T, weight)
    with pytest.raises(TypeError, match="weight is float64; it must be float32"):
        product(x, weight.astype(np.float64))
    with pytest.raises(ValueError, match="number of inputs"):
        tessera.StructuredProduct(tessera.Kronecker(2, 3, 3, 1, inputs=7), 4)
