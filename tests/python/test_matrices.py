"""Matrices: files, and conversions from and to SciPy and NumPy."""

import numpy as np
import pytest
import scipy.sparse

import tessera


def test_dense_arrays_lose_their_zeros(rng):
    dense = rng.standard_normal((7, 9)).astype(np.float32) * (rng.random((7, 9)) < 0.3)
    matrix = tessera.Matrix.of(dense)
    assert matrix.shape == (7, 9)
    assert len(matrix.values) == np.count_nonzero(dense)
    np.testing.assert_array_equal(matrix.to_dense(), dense)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_scipy_round_trip(rng, layout):
    wanted = scipy.sparse.random_array((30, 20), density=0.2, rng=rng, dtype=np.float32, format=layout)
    matrix = tessera.Matrix.of(wanted)
    np.testing.assert_array_equal(matrix.to_scipy().toarray(), wanted.toarray())


def test_duplicates_are_summed_and_columns_sorted():
    rows = scipy.sparse.csr_array((np.float32([1, 2, 4]), np.int32([3, 0, 3]), np.int32([0, 3])), shape=(1, 4))
    matrix = tessera.Matrix.of(rows)
    np.testing.assert_array_equal(matrix.indices, [0, 3])
    np.testing.assert_array_equal(matrix.values, [2, 5])
    assert rows.nnz == 3, "the argument is not changed"


def test_bsr_keeps_its_blocks(rng):
    blocks = scipy.sparse.bsr_array(rng.standard_normal((8, 12)).astype(np.float32), blocksize=(4, 4))
    matrix = tessera.Matrix.of(blocks)
    assert matrix.block_size == 4
    np.testing.assert_array_equal(matrix.to_scipy().toarray(), blocks.toarray())
    np.testing.assert_array_equal(tessera.Matrix.of(blocks, 4).indices, matrix.indices)


def test_elements_are_covered_with_blocks(rng):
    dense = rng.standard_normal((10, 6)).astype(np.float32) * (rng.random((10, 6)) < 0.1)
    matrix = tessera.Matrix.of(dense, 4)
    assert matrix.block_size == 4
    np.testing.assert_array_equal(matrix.to_dense(), dense)
    np.testing.assert_array_equal(matrix.to_scipy().toarray(), dense)


def test_arrays_are_views():
    matrix = tessera.generate(16, 16, 0.5, seed=3)
    matrix.values[:] = 2
    assert np.all(matrix.values == 2)
    assert matrix.to_dense().sum() == 2 * 128


def test_views_outlive_the_matrix():
    values = tessera.generate(64, 64, 0.5, seed=3).values
    assert np.all(np.abs(values) <= 1) and np.all(values != 0)


def test_files(tmp_path, rng):
    dense = rng.standard_normal((5, 6)).astype(np.float32)
    np.save(tmp_path / "w.npy", dense)
    np.testing.assert_array_equal(tessera.read_matrix(tmp_path / "w.npy").to_dense(), dense)
    with pytest.raises(RuntimeError, match="missing.npy"):
        tessera.read_matrix(tmp_path / "missing.npy")
    with pytest.raises(ValueError, match=r"\.smtx"):
        tessera.read_matrix(tmp_path / "w.txt")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (((2, 2), 1, np.int64([0, 1, -1]), np.int64([0]), np.float32([1])), ValueError, "entry 2 is -1"),
        (((2, 2), 1, np.float32([0, 1, 1]), np.int64([0]), np.float32([1])), TypeError, "float32"),
        (((2, 2), 1, [0, 1, 1], np.int64([0]), np.float32([1])), TypeError, "indptr must be an array"),
        (((2, 2), 1, np.int64([0, 1, 1]), np.int64([0]), np.float64([1])), TypeError, "float64"),
        (((2, 2), 1, np.int64([[0, 1, 1]]), np.int64([0]), np.float32([1])), ValueError, "one-dimensional"),
    ],
)
def test_malformed_arrays(arguments, error, message):
    with pytest.raises(error, match=message):
        tessera.Matrix(*arguments)


def test_malformed_patterns_are_rejected_when_used():
    outside = tessera.Matrix((2, 2), 1, np.int64([0, 1, 1]), np.int64([5]), np.float32([1]))
    with pytest.raises((ValueError, RuntimeError), match="column"):
        tessera.Weight(outside)
    with pytest.raises(ValueError, match="two dimensions"):
        tessera.Matrix.of(np.zeros(3))
    with pytest.raises(ValueError, match="blocks of size 4"):
        tessera.Matrix.of(tessera.generate(8, 8, 0.5, block_size=4), 8)
