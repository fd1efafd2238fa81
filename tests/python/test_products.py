"""Weights and products against float64, in every memory order, from several threads."""

import threading

import numpy as np
import pytest

import tessera

M, K, N = 48, 64, 20


def weight_and_dense(block_size=4, density=0.25, **options):
    matrix = tessera.generate(M, K, density, block_size=block_size, seed=5)
    return tessera.Weight(matrix, **options), matrix.to_dense()


def close(actual, wanted, k=K, eps=np.finfo(np.float32).eps):
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=4 * eps * k)


@pytest.mark.parametrize("block_size", [1, 4, 8, 16])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("x_order", "CF")
@pytest.mark.parametrize("y_order", "CF")
def test_forward(rng, block_size, dynamic, x_order, y_order):
    weight, dense = weight_and_dense(block_size, dynamic=dynamic)
    x = np.asarray(rng.standard_normal((K, N)), np.float32, order=x_order)
    out = np.full((M, N), np.nan, np.float32, order=y_order)
    y = tessera.Spmm(weight, N)(x, out)
    assert y is out
    close(y, dense.astype(np.float64) @ x)


@pytest.mark.parametrize("block_size", [1, 16])
def test_input_gradient(rng, block_size):
    weight, dense = weight_and_dense(block_size)
    dy = rng.standard_normal((M, N)).astype(np.float32)
    close(tessera.Spmm(weight, N, transpose=True)(dy), dense.T.astype(np.float64) @ dy)


@pytest.mark.parametrize("block_size", [1, 4])
@pytest.mark.parametrize("dynamic", [False, True])
def test_sddmm(rng, block_size, dynamic):
    weight, dense = weight_and_dense(block_size, dynamic=dynamic)
    dy = rng.standard_normal((M, N)).astype(np.float32)
    x = rng.standard_normal((N, K)).astype(np.float32).T  # batch-major
    sddmm = tessera.Sddmm(weight, N)
    dw = sddmm(dy, x)
    values = weight.unpack(dw)
    gradient = tessera.Matrix((M, K), block_size, *weight.pattern, values).to_dense()
    close(gradient, (dy.astype(np.float64) @ x.T) * (dense != 0), N)
    again = sddmm(dy, x, out=dw.copy(), alpha=2, beta=0.5)
    close(again, 2.5 * dw, N)


def test_bias_and_activation(rng):
    weight, dense = weight_and_dense()
    x = rng.standard_normal((K, N)).astype(np.float32)
    bias = rng.standard_normal(M).astype(np.float32)
    spmm = tessera.Spmm(weight, N, bias=True, activation="relu")
    close(spmm(x, bias=bias), np.maximum(dense.astype(np.float64) @ x + bias[:, None], 0))
    with pytest.raises(ValueError, match="pass one"):
        spmm(x)
    with pytest.raises(ValueError, match="3 elements; Y has 48 rows"):
        spmm(x, bias=np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="unknown activation 'tanh'"):
        tessera.Spmm(weight, N, activation="tanh")


def test_alpha_and_beta(rng):
    weight, dense = weight_and_dense()
    x = rng.standard_normal((K, N)).astype(np.float32)
    y = rng.standard_normal((M, N)).astype(np.float32)
    wanted = 2 * (dense.astype(np.float64) @ x) - 3 * y
    close(tessera.Spmm(weight, N)(x, y, alpha=2, beta=-3), wanted)
    with pytest.raises(ValueError, match="pass it as out"):
        tessera.Spmm(weight, N)(x, beta=1)


def test_slices_are_used_in_place(rng):
    weight, dense = weight_and_dense()
    wide = rng.standard_normal((K, 3 * N)).astype(np.float32)
    out = np.zeros((M, 2 * N), np.float32)
    tessera.Spmm(weight, N)(wide[:, N : 2 * N], out[:, N:])
    close(out[:, N:], dense.astype(np.float64) @ wide[:, N : 2 * N])
    assert np.all(out[:, :N] == 0)


def test_one_column(rng):
    weight, dense = weight_and_dense()
    x = rng.standard_normal((K, 1)).astype(np.float32)
    close(tessera.Spmm(weight, 1)(x), dense.astype(np.float64) @ x)
    close(tessera.Spmm(weight, 1)(np.asfortranarray(x)), dense.astype(np.float64) @ x)
    column = rng.standard_normal((K, 5)).astype(np.float32)[:, 2:3]
    close(tessera.Spmm(weight, 1)(column), dense.astype(np.float64) @ column)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", np.float16])
def test_sixteen_bits(rng, dtype):
    weight, dense = weight_and_dense(dtype=dtype)
    x = rng.standard_normal((K, N)).astype(np.float32)
    close(tessera.Spmm(weight, N)(x), dense.astype(np.float64) @ x, eps=2**-8)


def test_dense_weight(rng):
    dense = rng.standard_normal((M, K)).astype(np.float32)
    x = rng.standard_normal((K, N)).astype(np.float32)
    for values in (dense, np.asfortranarray(dense)):
        weight = tessera.Weight.dense(values)
        assert weight.is_dense
        close(tessera.Spmm(weight, N)(x), dense.astype(np.float64) @ x, k=4 * K)


def test_values(rng):
    weight, _ = weight_and_dense()
    values = rng.standard_normal(weight.values().shape).astype(np.float32)
    weight.set_values(values)
    np.testing.assert_array_equal(weight.values(), values)
    packed = weight.pack(values)
    np.testing.assert_array_equal(packed, weight.packed_values)
    np.testing.assert_array_equal(weight.unpack(packed), values)
    weight.packed_values[:] = 0
    assert np.all(weight.values() == 0)
    with pytest.raises(ValueError, match="3 values for a weight of"):
        weight.set_values(np.zeros(3, np.float32))


def test_packed_formats(rng):
    for block_size in (1, 4):
        weight, _ = weight_and_dense(block_size)
        values = weight.values()
        there = tessera.permute_packed(0, weight.packed_format, weight.matrix(), values)
        np.testing.assert_array_equal(there, weight.packed_values)
        back = tessera.permute_packed(weight.packed_format, 0, weight.matrix(), there)
        np.testing.assert_array_equal(back, values)


def test_changing_patterns(rng):
    weight, dense = weight_and_dense(4, dynamic=True)
    assert weight.capacity == len(weight.matrix().col_indices)
    state = weight.packed_values.copy()
    drop = weight.weakest_blocks(5)
    grow = weight.random_empty_blocks(5, seed=1, step=0)
    weight.replace(drop, grow).apply(state)
    np.testing.assert_array_equal(state, weight.packed_values)
    for row, col in drop.tolist():
        dense[4 * row : 4 * row + 4, 4 * col : 4 * col + 4] = 0
    np.testing.assert_array_equal(weight.matrix().to_dense(), dense)
    stored = {tuple(block) for block in grow.tolist()}
    crow_indices, col_indices = weight.pattern
    rows = np.repeat(np.arange(M // 4), np.diff(crow_indices.astype(np.int64)))
    assert stored <= set(zip(rows.tolist(), col_indices.tolist(), strict=True))
    x = rng.standard_normal((K, N)).astype(np.float32)
    close(tessera.Spmm(weight, N)(x), dense.astype(np.float64) @ x)
    with pytest.raises(ValueError):
        weight.replace(drop, grow)  # dropped already


def test_strongest_empty_blocks():
    weight, dense = weight_and_dense(4, dynamic=True)
    gradient = np.zeros((M, K), np.float32)
    empty = weight.random_empty_blocks(1, seed=7, step=0)
    (row, col), = empty.tolist()
    gradient[4 * row + 1, 4 * col + 2] = -3
    np.testing.assert_array_equal(weight.strongest_empty_blocks(1, gradient), empty)
    np.testing.assert_array_equal(weight.strongest_empty_blocks(1, np.asfortranarray(gradient)), empty)


def test_patterns_beyond_the_capacity():
    weight, _ = weight_and_dense(4, density=0.25, dynamic=True)
    before = weight.matrix().to_dense()
    with pytest.raises(ValueError, match="blocks"):
        weight.set_matrix(tessera.generate(M, K, 0.5, block_size=4))
    np.testing.assert_array_equal(weight.matrix().to_dense(), before)
    static, _ = weight_and_dense(4)
    with pytest.raises(ValueError, match="static|dynamic"):
        static.set_matrix(tessera.generate(M, K, 0.25, block_size=4))


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.zeros((K, N + 1), np.float32), ValueError, "X is 64 × 21; it must be 64 × 20"),
        (np.zeros(K, np.float32), ValueError, "X is 64; it must be"),
        (np.zeros((K, N)), TypeError, "X has elements of type float64; they must be float32"),
        (np.zeros((K, 2 * N), np.float32)[:, ::2], ValueError, "X has strides of 40 and 2"),
        (np.zeros((K, N), np.float32)[::-1], ValueError, "X has strides of -20 and 1"),
        (np.broadcast_to(np.float32(0), (K, N)), ValueError, "X has strides of 0 and 0"),
        ([[0.0]], TypeError, "X must be an array"),
        (None, TypeError, "X must be an array"),
    ],
)
def test_bad_operands(x, error, message):
    weight, _ = weight_and_dense()
    with pytest.raises(error, match=message):
        tessera.Spmm(weight, N)(x)


def test_bad_results():
    weight, _ = weight_and_dense()
    x = np.zeros((K, N), np.float32)
    locked = np.zeros((M, N), np.float32)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="Y is read-only"):
        tessera.Spmm(weight, N)(x, locked)
    square = tessera.Weight(tessera.generate(K, K, 0.5))
    with pytest.raises(ValueError, match="overlap"):
        tessera.Spmm(square, N)(x, x)


def test_bad_weights():
    with pytest.raises(ValueError, match="block"):
        tessera.Weight(tessera.generate(8, 8, 0.5, block_size=2))
    with pytest.raises(ValueError, match="float32, float16, bfloat16"):
        tessera.Weight(tessera.generate(8, 8, 0.5), dtype="int8")
    with pytest.raises(ValueError, match="density"):
        tessera.generate(8, 8, float("nan"))


def test_threads_share_a_product(rng, two_threads):
    weight, dense = weight_and_dense()
    spmm = tessera.Spmm(weight, N)
    inputs = [rng.standard_normal((K, N)).astype(np.float32) for _ in range(8)]
    wanted = [spmm(x) for x in inputs]
    wrong = []

    def repeat(i):
        for _ in range(200):
            if not np.array_equal(spmm(inputs[i]), wanted[i]):
                wrong.append(i)

    threads = [threading.Thread(target=repeat, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_addresses(rng):
    weight, dense = weight_and_dense()
    x = rng.standard_normal((N, K)).astype(np.float32)  # batch-major
    y = np.empty((N, M), np.float32)
    values = weight.packed_values * 2
    tessera.Spmm(weight, N).run(x.ctypes.data, 0, True, y.ctypes.data, 0, True, values=values.ctypes.data)
    close(y, 2 * x.astype(np.float64) @ dense.T)


@pytest.mark.parametrize("requires", ["X", "Y", "dW"])
def test_tensors_that_require_gradients(rng, requires):
    torch = pytest.importorskip("torch")
    weight, _ = weight_and_dense()
    x, y, dw = torch.ones(K, N), torch.ones(M, N), torch.ones(weight.packed_size)
    {"X": x, "Y": y, "dW": dw}[requires].requires_grad_()
    with pytest.raises(TypeError, match=f"{requires} requires gradients, which this call does not compute: detach it"):
        if requires == "dW":
            tessera.Sddmm(weight, N)(y, x, out=dw)
        else:
            tessera.Spmm(weight, N)(x, out=y)
    assert bool((y == 1).all()) and bool((dw == 1).all())
    assert tessera.Spmm(weight, N)(x.detach(), out=y.detach()) is not None


def test_arrays_without_readable_memory():
    torch = pytest.importorskip("torch")
    spmm = tessera.Spmm(weight_and_dense()[0], N)
    for x in (np.ones((K, N), ">f4"), torch.ones(K, N, device="meta")):
        with pytest.raises(TypeError, match="X cannot be read in place|X lies on another device"):
            spmm(x)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda w: tessera.Spmm(w, -1), ValueError, "n is -1; it must be from 0"),
        (lambda w: tessera.Spmm(w, 3.0), TypeError, "n must be a whole number, not 3.0"),
        (lambda w: tessera.Spmm(w, 2**40), ValueError, "n is 1099511627776"),
        (lambda w: tessera.Spmm(w, 3, threads=-1), ValueError, "threads is -1"),
        (lambda w: tessera.Sddmm(w, 3, threads=10**5), ValueError, "threads is 100000; it must be from 0 to 4096"),
        (lambda w: tessera.Sddmm(w, None), TypeError, "n must be a whole number, not None"),
        (lambda w: tessera.Spmm(np.eye(3), 3), TypeError, "weight must be a tessera.Weight, not ndarray; prepack it"),
        (lambda w: tessera.Weight(np.eye(8), dynamic=-1), ValueError, "dynamic is -1"),
        (lambda w: tessera.Weight(np.eye(8), dynamic=2.5), TypeError, "dynamic must be a whole number"),
        (lambda w: w.weakest_blocks(-1), ValueError, "count is -1"),
        (lambda w: w.random_empty_blocks(1, -1, 0), ValueError, "seed is -1"),
        (lambda w: tessera.permute_packed(-1, 0, w.matrix(), w.values()), ValueError, "from_format is -1"),
    ],
)
def test_numbers_are_checked(call, error, message):
    weight, _ = weight_and_dense(dynamic=True)
    with pytest.raises(error, match=message):
        call(weight)


def test_whole_numbers_of_numpy():
    weight, _ = weight_and_dense()
    assert tessera.Spmm(weight, np.int64(3), threads=np.uint8(1)).n == 3
