"""Matrices: files, and conversions from and to SciPy and NumPy."""

import gc

import numpy as np
import pytest
import scipy.sparse

import tessera
from tessera import graph as tg


def test_dense_arrays_lose_their_zeros(rng):
    dense = rng.standard_normal((7, 9)).astype(np.float32) * (rng.random((7, 9)) < 0.3)
    matrix = tessera.Matrix.of(dense)
    assert matrix.shape == (7, 9)
    assert len(matrix.values) == np.count_nonzero(dense)
    np.testing.assert_array_equal(matrix.to_dense(), dense)


@pytest.mark.parametrize("block_size", [1, 4])
def test_weights_of_convolutions_in_groups_become_whole(rng, block_size):
    kept = rng.random((24 // block_size, 72 // block_size)) < 0.4  # [outputs, 9 taps · 8 channels of a group]
    mask = np.kron(kept, np.ones((block_size, block_size), np.float32))
    dense = rng.standard_normal((24, 72)).astype(np.float32) * mask
    weight = tessera.Matrix.of(dense, block_size)
    whole = tg.ungrouped_weight(weight, groups=3, taps=9)
    assert isinstance(whole, tessera.Matrix) and whole.shape == (24, 216)
    np.testing.assert_array_equal(whole.values, weight.values)
    graph = tg.Graph()
    x = graph.input("x", (2, 6, 5, 24))
    for name, w in (("dense", graph.parameter("d", initial=dense)), ("sparse", graph.sparse_parameter("s", whole))):
        graph.output(name, tg.convolution(x, w, kernel=3, padding=1, groups=3))
    results = graph.session().run(rng.standard_normal((2, 6, 5, 24)).astype(np.float32))
    np.testing.assert_allclose(results["sparse"], results["dense"], rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="in blocks of 4 has no 3 groups of 18 taps"):
        tg.ungrouped_weight(tessera.Matrix.of(np.eye(24, 90, dtype=np.float32), 4), groups=3, taps=18)
    with pytest.raises(ValueError, match="groups"):
        tg.ungrouped_weight(weight, groups=0, taps=9)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_scipy_round_trip(rng, layout):
    wanted = scipy.sparse.random_array((30, 20), density=0.2, rng=rng, dtype=np.float32, format=layout)
    matrix = tessera.Matrix.of(wanted)
    np.testing.assert_array_equal(matrix.to_scipy().toarray(), wanted.toarray())


def test_duplicates_are_summed_and_columns_sorted():
    rows = scipy.sparse.csr_array((np.float32([1, 2, 4]), np.int32([3, 0, 3]), np.int32([0, 3])), shape=(1, 4))
    matrix = tessera.Matrix.of(rows)
    np.testing.assert_array_equal(matrix.col_indices, [0, 3])
    np.testing.assert_array_equal(matrix.values, [2, 5])
    assert rows.nnz == 3, "the argument is not changed"


def test_bsr_keeps_its_blocks(rng):
    blocks = scipy.sparse.bsr_array(rng.standard_normal((8, 12)).astype(np.float32), blocksize=(4, 4))
    matrix = tessera.Matrix.of(blocks)
    assert matrix.block_size == 4
    np.testing.assert_array_equal(matrix.to_scipy().toarray(), blocks.toarray())
    np.testing.assert_array_equal(tessera.Matrix.of(blocks, 4).col_indices, matrix.col_indices)


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
        (((2, 2), 1, [0, 1, 1], np.int64([0]), np.float32([1])), TypeError, "crow_indices must be an array"),
        (((2, 2), 1, np.int64([0, 1, 1]), np.int64([0]), np.float64([1])), TypeError, "float64"),
        (((2, 2), 1, np.int64([[0, 1, 1]]), np.int64([0]), np.float32([1])), ValueError, "one-dimensional"),
    ],
)
def test_malformed_arrays(arguments, error, message):
    with pytest.raises(error, match=message):
        tessera.Matrix(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((2, 2), 1, [0, 1, 1], [5], [1]), "column 5; there are 2"),
        (((2, 2), 1, [0, 5, 1], [0], [1]), "decreases from 5 to 1"),
        (((2, 2), 1, [0, 1], [0], [1]), "2 block rows need 3"),
        (((2, 2), 1, [0, 2, 2], [1, 0], [1, 2]), "column 0 comes after 1"),
        (((2, 2), 1, [0, 1, 1], [0], [1, 2]), "2 values"),
        (((2, 2), 0, [0, 1, 1], [0], [1]), "block_size is 0; it must be from 1"),
        (((-2, 2), 1, [0], [], []), "m is -2"),
    ],
)
def test_arrays_that_make_no_matrix(arguments, message):
    shape, block_size, crow_indices, col_indices, values = arguments
    with pytest.raises(ValueError, match=message):
        tessera.Matrix(shape, block_size, np.int64(crow_indices), np.int64(col_indices), np.float32(values))


def test_what_is_no_matrix():
    with pytest.raises(ValueError, match="two dimensions"):
        tessera.Matrix.of(np.zeros(3))
    with pytest.raises(ValueError, match="blocks of size 4"):
        tessera.Matrix.of(tessera.generate(8, 8, 0.5, block_size=4), 8)
    for matrix in (np.eye(2) * 1j, scipy.sparse.csr_array(np.eye(2) * 1j)):
        with pytest.raises(TypeError, match="elements of type complex128; it must be real"):
            tessera.Weight(matrix)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tessera.generate(-8, 8, 0.5), ValueError, "m is -8"),
        (lambda: tessera.generate(8, 2.5, 0.5), TypeError, "k must be a whole number, not 2.5"),
        (lambda: tessera.generate(8, 8, 0.5, seed=-1), ValueError, "seed is -1"),
        (lambda: tessera.generate(8, 8, 0.5, block_size=None), TypeError, "block_size must be a whole number"),
        (lambda: tessera.Matrix.of(np.eye(8), -4), ValueError, "block_size is -4"),
        (lambda: tessera.read_matrix("w.npy", seed=1.0), TypeError, "seed must be a whole number"),
    ],
)
def test_numbers_are_checked(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_copy_leaves_the_matrix_as_it_is():
    matrix = tessera.generate(500, 500, 0.5)
    values, first = matrix.values, matrix.values[:5].copy()
    copy = tessera.Matrix(matrix)
    copy.values[:] = 0
    del copy
    gc.collect()
    assert len(matrix.col_indices) == 125_000
    np.testing.assert_array_equal(values[:5], first)


class TestTensors:
    @pytest.fixture
    def dense(self, rng):
        torch = pytest.importorskip("torch")
        return torch.tensor(rng.standard_normal((8, 12)) * (rng.random((8, 12)) < 0.3))

    @pytest.mark.parametrize("layout", ["sparse_csr", "sparse_csc", "sparse_coo", "strided"])
    def test_elements(self, dense, layout):
        torch = pytest.importorskip("torch")
        tensor = dense if layout == "strided" else dense.to_sparse(layout=getattr(torch, layout))
        matrix = tessera.Matrix.of(tensor.requires_grad_())
        assert matrix.block_size == 1 and len(matrix.col_indices) == dense.count_nonzero()
        np.testing.assert_array_equal(matrix.to_dense(), dense.detach().float().numpy())

    @pytest.mark.parametrize(("blocks", "kept"), [((4, 4), 4), ((2, 3), 1)])
    def test_blocks(self, dense, blocks, kept):
        tensor = dense.bfloat16().to_sparse_bsr(blocks)
        matrix = tessera.Matrix.of(tensor)
        assert matrix.block_size == kept
        np.testing.assert_array_equal(matrix.to_dense(), dense.bfloat16().float().numpy())
        assert tessera.Matrix.of(tensor, 1).block_size == 1

    def test_weights(self, dense):
        weight = tessera.Weight(dense.float().to_sparse_bsr((4, 4)))
        assert weight.block_size == 4
        np.testing.assert_array_equal(weight.matrix().to_dense(), dense.float().numpy())

    def test_errors(self, dense):
        with pytest.raises(ValueError, match="two dimensions, not 3"):
            tessera.Matrix.of(dense.new_ones(2, 4, 12).to_sparse_csr())
        with pytest.raises(TypeError, match="complex128; it must be real"):
            tessera.Matrix.of((dense * 1j).to_sparse_csr())
