"""Graphs, their sessions and estimates, without PyTorch."""

import itertools
import json
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse

import tessera
from tessera import graph as tg


def mlp(batch=8, inputs=12, hidden=16, classes=5, **x_type):
    graph = tg.Graph()
    x = graph.input("x", (batch, inputs), **x_type)
    first = graph.parameter("first.weight", (hidden, inputs), tg.uniform(0.3))
    h = tg.relu(tg.linear(x, first, graph.parameter("first.bias", (hidden,))))
    y = tg.linear(h, graph.parameter("second.weight", (classes, hidden), tg.normal(0.2)))
    graph.output("logits", y)
    return graph


def at_step(graph, step):
    session = graph.training_step(optimizer="adam").session()
    session.step = step
    return session.run(np.ones((8, 12)), np.zeros(8, int))


def test_values_have_shape_type_and_name():
    graph = mlp()
    x = graph.find("x")
    assert (x.shape, x.dtype, x.name) == ((8, 12), "f32", "x")
    assert [value.name for value in graph.inputs] == ["x"]
    assert [value.name for value in graph.parameters] == ["first.weight", "first.bias", "second.weight"]
    assert graph.outputs["logits"].shape == (8, 5)
    h = tg.relu(x)
    h.name = "h"
    assert graph.find("h") == h and h != x and "f32[8, 12]" in repr(h)
    text = str(graph)
    assert "parameter first.weight: f32[16, 12]" in text and "relu" in text and "output logits" in text


def run(graph, *arrays):
    return graph.session(tessera.Machine("host", threads=2), threads=1).run(*arrays)


def evaluate(function, *arrays):
    """A function of values, run on arrays."""
    graph = tg.Graph()
    values = [graph.input(f"x{i}", np.shape(array)) for i, array in enumerate(arrays)]
    graph.output("y", function(*values))
    return run(graph, *(np.asarray(array, np.float32) for array in arrays))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda a, b: a + b, lambda a, b: a + b),
        (lambda a, b: a - b * 2, lambda a, b: a - b * 2),
        (lambda a, b: a / (1 + tg.square(b)), lambda a, b: a / (1 + b * b)),
        (lambda a, b: 3 - a / 4 + 2 / (tg.abs(b) + 1), lambda a, b: 3 - a / 4 + 2 / (np.abs(b) + 1)),
        (lambda a, b: tg.maximum(a, b) * -tg.minimum(a, b), lambda a, b: -np.maximum(a, b) * np.minimum(a, b)),
        (
            lambda a, b: (a < b) + 2 * (a <= 0) - (a > 0.5) * (b >= a),
            lambda a, b: (a < b) + 2.0 * (a <= 0) - (a > 0.5) * (b >= a),
        ),
        (lambda a, b: tg.where(tg.equal(a, b), a, 2) + tg.not_equal(a, a), lambda a, b: np.where(a == b, a, 2)),
        (lambda a, b: tg.clip(a, -0.2, 0.4) + tg.clip(b, high=0), lambda a, b: a.clip(-0.2, 0.4) + b.clip(None, 0)),
        (lambda a, b: tg.cast(tg.cast(a * 9, "u32") * 3 - 1 + 2, "f32"), lambda a, b: np.trunc(9 * a.clip(0)) * 3 + 1),
        (
            lambda a, b: a - tg.amax(a, -1, keepdim=True) + tg.mean(b),
            lambda a, b: a - a.max(1, keepdims=True) + b.mean(),
        ),
        (lambda a, b: tg.softmax(a), lambda a, b: np.exp(a) / np.exp(a).sum(1, keepdims=True)),
        (lambda a, b: tg.cast(tg.cast(a, "f16"), "f32"), lambda a, b: a.astype(np.float16).astype(np.float32)),
    ],
)
def test_operations(rng, function, expected):
    a, b = rng.uniform(-1, 1, (2, 10, 7)).astype(np.float32)
    np.testing.assert_allclose(evaluate(function, a, b), expected(a, b), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("divisor", [3, 7, 8, 0.25, 41, -41, 49, 0.1, 1e-36, 1e36])
def test_quotients_are_those_of_numpy(divisor):
    x = np.float32(divisor) * np.arange(-50, 50, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(lambda x: x / divisor, x), x / np.float32(divisor))
    x[50] = 1
    np.testing.assert_array_equal(evaluate(lambda x: divisor / x, x), np.float32(divisor) / x)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((3, 4, 5), (4, 1)),
        ((2, 1, 4, 5), (3, 1, 5)),
        ((2, 3, 1, 1), (4, 5)),
        ((2, 1, 3, 1, 4), (5, 1, 2, 1)),
        ((6, 1), (1, 7)),
    ],
)
def test_values_are_broadcast(rng, first, second):
    a, b = rng.standard_normal(first).astype(np.float32), rng.standard_normal(second).astype(np.float32)
    np.testing.assert_allclose(evaluate(lambda a, b: a - b * 2, a, b), a - 2 * b, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(evaluate(lambda a, b: tg.where(a > b, a, b), a, b), np.maximum(a, b))
    graph = tg.Graph()
    graph.parameter("a", initial=a)
    graph.parameter("b", initial=b)
    loss = tg.sum(tg.square(graph.find("a") * graph.find("b")))
    session = graph.training_step(loss, lr=0.5).session()
    session.run()
    of_a = (a * b**2).sum(
        tuple(i for i in range(-len(second), 0) if i >= -len(first) and np.shape(a)[i] == 1), keepdims=True
    )
    extra = of_a.ndim - a.ndim
    np.testing.assert_allclose(session.get("a"), a - of_a.sum(tuple(range(extra))).reshape(first), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_operations_along_a_dimension(rng, dim):
    x = rng.standard_normal((4, 5, 6)).astype(np.float32)
    exp = np.exp(x)
    np.testing.assert_allclose(evaluate(lambda v: tg.softmax(v, dim), x), exp / exp.sum(dim, keepdims=True), rtol=1e-5)
    expected = x - np.log(exp.sum(dim, keepdims=True))
    np.testing.assert_allclose(evaluate(lambda v: tg.log_softmax(v, dim), x), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(evaluate(lambda v: tg.cumsum(v, dim), x), x.cumsum(dim), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(evaluate(lambda v: tg.argmax(v, dim), x), x.argmax(dim))
    padded = evaluate(lambda v: tg.pad(v, dim % 3, 2, 1, 0.5), x)
    np.testing.assert_array_equal(
        padded, np.pad(x, [(2, 1) if i == dim % 3 else (0, 0) for i in range(3)], constant_values=0.5)
    )
    parts = evaluate(lambda v: tg.concatenate(tg.split(v, [1, x.shape[dim] - 1], dim % 3)[::-1], dim % 3), x)
    np.testing.assert_array_equal(parts, np.roll(x, -1, dim))


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_positions(rng, interleaved):
    x = rng.standard_normal((2, 3, 5, 8)).astype(np.float32)
    angles = np.arange(5)[:, None] * 100.0 ** (-np.arange(4) / 4)
    pairs = x.reshape(2, 3, 5, 4, 2) if interleaved else np.stack([x[..., :4], x[..., 4:]], -1)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)
    pairs = np.stack([turned.real, turned.imag], -1)
    expected = pairs.reshape(x.shape) if interleaved else np.concatenate([pairs[..., 0], pairs[..., 1]], -1)
    found = evaluate(lambda v: tg.rotary(v, base=100.0, interleaved=interleaved), x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    tables = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    again = evaluate(lambda v, cos, sin: tg.rotary(v, cos, sin, interleaved=interleaved), x, *tables)
    np.testing.assert_allclose(again, expected, rtol=1e-4, atol=1e-5)


def test_wrong_options_of_cross_entropy():
    graph = tg.Graph()
    x, labels = graph.input("x", (4, 10)), graph.input("labels", (4,), np.uint32)
    with pytest.raises(ValueError, match="smoothing is 2"):
        tg.cross_entropy(x, labels, smoothing=2.0)
    with pytest.raises(ValueError, match="no reduction 'max'"):
        tg.cross_entropy(x, labels, reduction="max")
    with pytest.raises(ValueError, match="need one of each class"):
        tg.cross_entropy(x, labels, weight=graph.constant([1.0, 2.0]))
    with pytest.raises(ValueError, match="targets are probabilities"):
        tg.cross_entropy(x, x, ignored=3)


def test_wrong_numbers():
    x = tg.Graph().input("x", (3,), np.uint32)
    with pytest.raises(ValueError, match="only whole numbers from 0"):
        x * 1.5
    with pytest.raises(ValueError, match="unknown approximation of gelu 'erf'"):
        tg.gelu(x, "erf")
    with pytest.raises(ValueError, match="bounds"):
        tg.clip(tg.Graph().input("x", (3,)), 2, 1)


SHAPES = [(7,), (4, 6), (3, 4, 5), (2, 3, 1, 4), (2, 3, 2, 3, 4)]


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_reductions_take_any_dimensions(rng, shape, keepdim):
    x = rng.standard_normal(shape).astype(np.float32)
    reductions = {"sum": np.sum, "mean": np.mean, "amax": np.max, "amin": np.min}
    dims = [None, *(each for n in range(1, len(shape) + 1) for each in itertools.combinations(range(len(shape)), n))]
    graph = tg.Graph()
    value = graph.input("x", shape)
    expected = {}
    for name, exact in reductions.items():
        for dim in dims:
            given = -1 if dim == (len(shape) - 1,) else dim
            key = f"{name} {dim}"
            graph.output(key, getattr(tg, name)(value, given, keepdim))
            expected[key] = exact(x, axis=dim, keepdims=keepdim)
    found = run(graph, x)
    for key, array in expected.items():
        assert np.shape(found[key]) == array.shape, key
        np.testing.assert_allclose(found[key], array, rtol=2e-5, atol=2e-5, err_msg=key)


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_dimensions_are_permuted(rng, shape):
    x = rng.standard_normal(shape).astype(np.float32)
    graph = tg.Graph()
    value = graph.input("x", shape)
    orders = list(itertools.permutations(range(len(shape))))[:: max(1, len(shape) - 3)]
    for order in orders:
        graph.output(str(order), tg.permute(value, [dim - len(shape) for dim in order]) * 1)
    found = run(graph, x)
    found = found if isinstance(found, dict) else {str(orders[0]): found}
    for order in orders:
        np.testing.assert_array_equal(found[str(order)], x.transpose(order), err_msg=str(order))


def test_parameters_constants_and_types(rng):
    graph = tg.Graph()
    x = graph.input("x", (4, 6), np.float16)
    w = rng.standard_normal((3, 6)).astype(np.float16)
    y = tg.linear(x, graph.parameter("w", initial=w, dtype="f16"))
    graph.output("y", tg.cast(y, "f32") + graph.constant([1.0, 2.0, 3.0]))
    graph.output("half", y)
    array = rng.standard_normal((4, 6)).astype(np.float16)
    results = run(graph, array)
    assert results["half"].dtype == np.float16 and results["y"].dtype == np.float32
    exact = array.astype(np.float32) @ w.astype(np.float32).T
    np.testing.assert_allclose(results["y"], exact + [1, 2, 3], atol=5e-3)


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_sparse_parameters(rng, block_size):
    matrix = tessera.generate(32, 48, 0.3, block_size=block_size, seed=1)
    x = rng.standard_normal((10, 48)).astype(np.float32)
    for given in (matrix, tessera.Weight(matrix), matrix.to_scipy()):
        graph = tg.Graph()
        w = graph.sparse_parameter("w", given, dynamic=True)
        graph.output("y", tg.linear(graph.input("x", (10, 48)), w))
        session = graph.session()
        np.testing.assert_allclose(session.run(x), x @ matrix.to_dense().T, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(session.matrix("w").to_dense(), matrix.to_dense())
        values = session.parameters()["w"]
        blocks = len(matrix.col_indices)
        assert values.shape == ((blocks,) if block_size == 1 else (blocks, block_size, block_size))


def test_patterns_change(rng):
    b = 8
    before = tessera.generate(32, 48, 0.3, block_size=b, seed=1)
    after = tessera.generate(32, 48, 0.25, block_size=b, seed=2)
    graph = tg.Graph()
    w = graph.sparse_parameter("w", before, dynamic=len(before.col_indices) + 5)
    graph.output("y", tg.linear(graph.input("x", (10, 48)), w))
    session, other = graph.session(), graph.session(seed=3)
    session.set_pattern("w", after.crow_indices, after.col_indices)
    crow_indices, col_indices = session.pattern("w")
    np.testing.assert_array_equal(col_indices, after.col_indices)
    in_both = (before.to_dense() != 0) & (_with_ones(after).to_dense() != 0)
    expected = before.to_dense() * in_both
    np.testing.assert_array_equal(session.matrix("w").to_dense(), expected)
    x = rng.standard_normal((10, 48)).astype(np.float32)
    np.testing.assert_allclose(session.run(x), x @ expected.T, rtol=1e-4, atol=1e-5)
    other.copy_from(session)
    np.testing.assert_array_equal(other.run(x), session.run(x))
    np.testing.assert_array_equal(other.pattern("w")[0], crow_indices)


def two_weights(second, **options):
    """A graph of two sparse weights; the second has this number of spare blocks."""
    graph = tg.Graph()
    x = graph.input("x", (10, 48))
    matrix = tessera.generate(32, 48, 0.3, block_size=8, seed=1)
    weights = [
        graph.sparse_parameter(name, matrix, dynamic=len(matrix.col_indices) + spare)
        for name, spare in (("first", 8), ("second", second))
    ]
    graph.output("y", tg.linear(x, weights[0]) + tg.linear(x, weights[1]))
    return graph.session(**options)


def test_copies_take_all_or_nothing():
    source, target = two_weights(8, seed=1), two_weights(0, seed=2)
    other = tessera.generate(32, 48, 0.28, block_size=8, seed=5)
    source.set_pattern("first", other.crow_indices, other.col_indices)
    crow_indices, col_indices = source.pattern("second")
    column = next(c for c in range(6) if c not in col_indices[: crow_indices[1]])
    larger = np.sort(np.append(col_indices[: crow_indices[1]], column)), col_indices[crow_indices[1] :]
    source.set_pattern("second", crow_indices + (np.arange(len(crow_indices)) > 0), np.concatenate(larger))
    before = {name: (target.pattern(name), values) for name, values in target.parameters().items()}
    with pytest.raises(ValueError, match="capacity"):
        target.copy_from(source)
    for name, (pattern, values) in before.items():
        np.testing.assert_array_equal(target.pattern(name)[0], pattern[0])
        np.testing.assert_array_equal(target.pattern(name)[1], pattern[1])
        np.testing.assert_array_equal(target.parameters()[name], values)
    fits = two_weights(8, seed=2)
    fits.copy_from(source)
    for name, values in source.parameters().items():
        np.testing.assert_array_equal(fits.parameters()[name], values)
        np.testing.assert_array_equal(fits.pattern(name)[1], source.pattern(name)[1])


def _with_ones(matrix):
    return tessera.Matrix(
        matrix.shape, matrix.block_size, matrix.crow_indices, matrix.col_indices, np.ones_like(matrix.values)
    )


def classifier_step(**options):
    return mlp(batch=20).training_step("cross_entropy", "sgd", lr=0.1, momentum=0.9, **options)


def batch(rng, rows=20):
    return rng.standard_normal((rows, 12)).astype(np.float32), rng.integers(0, 5, rows)


def test_steps_train(rng):
    session = classifier_step().session(threads=2, seed=4)
    x, labels = batch(rng)
    losses = [session.run(x, labels) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0] and session.step == 61
    assert isinstance(losses[0], np.float32) and session.seconds > 0
    assert set(session.state()) == {f"{name}.velocity" for name in session.parameters()}


def test_arrays_by_position_name_and_kind(rng):
    x, labels = batch(rng)
    step = classifier_step(keep=["logits"])
    runs = [
        lambda s: s.run(x, labels),
        lambda s: s.run(labels=labels, x=x),
        lambda s: s.run(x, labels=labels.astype(np.uint32)),
        lambda s: s.run(np.asfortranarray(x), labels.astype(np.uint8)),
        lambda s: s.run(x.astype(np.float64), list(map(int, labels))),
    ]
    results = [call(step.session(seed=1)) for call in runs]
    for result in results:
        assert result["logits"].shape == (20, 5)
        np.testing.assert_array_equal(result["logits"], results[0]["logits"])
        assert result["loss"] == results[0]["loss"]


def test_contiguous_arrays_are_used_in_place():
    graph = tg.Graph()
    x = graph.input("x", (1024, 1024))
    graph.output("y", tg.sum(x))
    session = graph.session(threads=1)
    array = np.zeros((1024, 1024), np.float32)
    assert tessera._tessera.is_bound_in_place(array, "f32", [1024, 1024])
    assert not tessera._tessera.is_bound_in_place(array.T[:, ::2].T, "f32", [512, 1024])
    assert not tessera._tessera.is_bound_in_place(array.astype(np.float64), "f32", [1024, 1024])
    array.flags.writeable = False
    assert session.run(array) == 0


def test_evaluation_takes_parameters_from_training(rng):
    graph = mlp(batch=20)
    training = classifier_step(keep=["logits"]).session(seed=2)
    evaluation = graph.session(seed=9)
    x, labels = batch(rng)
    for _ in range(3):
        training.run(x, labels)
    evaluation.copy_from(training)
    np.testing.assert_allclose(evaluation.run(x), training.run(x, labels)["logits"], rtol=1e-5, atol=1e-6)
    again = graph.session()
    again.load_parameters(evaluation.parameters())
    np.testing.assert_array_equal(again.run(x), evaluation.run(x))


def test_evaluation_shares_parameters_of_training(rng):
    training = classifier_step(keep=["logits"]).session(seed=2)
    evaluation = mlp(batch=4).session(share=training)
    x, labels = batch(rng)
    for _ in range(3):
        expected = mlp(batch=4).session()
        expected.load_parameters(training.parameters())
        np.testing.assert_allclose(evaluation.run(x[:4]), expected.run(x[:4]), rtol=1e-5, atol=1e-6)
        training.run(x, labels)
    with pytest.raises(ValueError, match="another session's"):
        evaluation.load_parameters(training.parameters())
    with pytest.raises(ValueError, match=r"first.weight is .*; the owner's is"):
        mlp(hidden=17).session(share=training)


def test_measured_runs(rng):
    session = classifier_step().session()
    measured = session.measure(*batch(rng))
    assert measured.seconds > 0 and session.step == 2
    assert sum(operation.seconds for operation in measured.operations) <= measured.seconds


def test_files_resume_bit_by_bit(rng, tmp_path):
    step = classifier_step()
    whole, first = step.session(seed=1), step.session(seed=1)
    x, labels = batch(rng)
    for _ in range(3):
        whole.run(x, labels), first.run(x, labels)
    first.save(tmp_path / "state.safetensors")
    resumed = step.session(seed=8)
    resumed.load(tmp_path / "state.safetensors")
    for _ in range(3):
        assert whole.run(x, labels) == resumed.run(x, labels)
    for name, values in whole.parameters().items():
        np.testing.assert_array_equal(values, resumed.parameters()[name])


def test_micro_batches_give_the_gradient_of_all(rng):
    x, labels = batch(rng, 60)
    small = mlp(batch=20).training_step("cross_entropy", "sgd", lr=0.1, micro_batches=3).session(seed=1)
    large = mlp(batch=60).training_step("cross_entropy", "sgd", lr=0.1).session(seed=1)
    for _ in range(3):
        np.testing.assert_allclose(small.run(x, labels), large.run(x, labels), rtol=1e-5)
    for name, values in small.parameters().items():
        np.testing.assert_allclose(values, large.parameters()[name], rtol=1e-4, atol=1e-6)


def test_functions_are_called_with_other_parameters(rng):
    block = tg.Graph()
    x, w = block.input("x", (4, 8)), block.input("w", (8, 8))
    block.output("y", x + tg.relu(tg.linear(x, w)))
    block.output("most", tg.amax(x))
    graph = tg.Graph()
    value = graph.input("x", (4, 8))
    for i in range(3):
        value = graph.call(block, value, graph.parameter(f"w{i}", (8, 8), tg.normal(0.3)))["y"]
    graph.output("y", value)
    session = graph.session()
    array = expected = rng.standard_normal((4, 8)).astype(np.float32)
    for weight in session.parameters().values():
        expected = expected + np.maximum(expected @ weight.T, 0)
    np.testing.assert_allclose(session.run(array), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="2 inputs is called with 1"):
        graph.call(block, value)


def recurrent_step():
    step = tg.Graph()
    x, h = step.input("x", (4, 3)), step.input("h", (4, 5))
    w, u = step.input("w", (5, 3)), step.input("u", (5, 5))
    after = tg.tanh(tg.linear(x, w) + tg.linear(h, u))
    step.output("next", after)
    step.output("states", after)
    step.output("energy", tg.mean(tg.square(after)))
    return step


@pytest.mark.parametrize("backwards", [False, True])
def test_loops_repeat_a_function(rng, backwards):
    graph = tg.Graph()
    w, u = graph.parameter("w", (5, 3), tg.normal(0.5)), graph.parameter("u", (5, 5), tg.normal(0.5))
    results = graph.loop(
        recurrent_step(),
        graph.input("x", (24, 3)),
        graph.input("h", (4, 5)),
        w,
        u,
        count=6,
        indexed=["x"],
        carried={"h": "next"},
        stacked=["states"],
        summed=["energy"],
        scale=0.5,
        reversed=backwards,
    )
    for name, value in results.items():
        graph.output(name, value)
    session = graph.session(seed=3)
    x, h = rng.standard_normal((6, 4, 3)).astype(np.float32), np.zeros((4, 5), np.float32)
    found = session.run(x.reshape(24, 3), h)
    weights = session.parameters()
    states, energy = np.zeros((6, 4, 5)), 0.0
    for i in reversed(range(6)) if backwards else range(6):
        h = states[i] = np.tanh(x[i] @ weights["w"].T + h @ weights["u"].T)
        energy += 0.5 * np.mean(h**2)
    np.testing.assert_allclose(found["states"], states.reshape(24, 5), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["next"], h, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["energy"], energy, rtol=1e-4)


def test_loops_train_and_say_what_they_do_not_take():
    graph = tg.Graph()
    w, u = graph.parameter("w", (5, 3), tg.normal(0.5)), graph.parameter("u", (5, 5), tg.normal(0.5))
    x, h = graph.input("x", (24, 3)), graph.input("h", (4, 5))
    loop = {"count": 6, "indexed": ["x"], "carried": {"h": "next"}}
    graph.output("y", graph.loop(recurrent_step(), x, h, w, u, **loop)["next"])
    step = graph.training_step("mse", "adam", lr=0.02).session(seed=1)
    arrays = np.ones((24, 3), np.float32), np.zeros((4, 5), np.float32), np.full((4, 5), 0.5, np.float32)
    losses = [float(step.run(*arrays)) for _ in range(60)]
    assert losses[-1] < 0.2 * losses[0]
    with pytest.raises(ValueError, match="has no input 'z'"):
        graph.loop(recurrent_step(), x, h, w, u, count=2, indexed=["z"])
    with pytest.raises(ValueError, match="number of passes is 0"):
        graph.loop(recurrent_step(), x, h, w, u, count=0)


def test_functions_drop_out_by_the_step_of_their_caller():
    function = tg.Graph()
    function.output("y", tg.dropout(function.input("x", (64, 64)), 0.5))
    graph = tg.Graph()
    x = graph.input("x", (64, 64))
    for name, number in {"a": None, "b": None, "c": 3, "d": 3}.items():
        graph.output(name, graph.call(function, x, number=number)["y"])
    session = graph.session()
    first, second = (session.run(np.ones((64, 64), np.float32)) for _ in range(2))
    np.testing.assert_array_equal(first["c"], first["d"])
    assert (first["a"] != first["b"]).any()
    assert all((first[name] != second[name]).any() for name in first)
    with pytest.raises(ValueError, match="at least 1"):
        graph.call(function, x, number=0)


def test_functions_may_grow_after_a_call(rng):
    function = tg.Graph()
    function.output("y", 2 * function.input("x", (3,)))
    graph = tg.Graph()
    y = graph.call(function, graph.input("x", (3,)))["y"]
    function.output("a", tg.relu(function.find("x")))
    graph.output("both", y + graph.call(function, y)["a"])
    x = rng.standard_normal(3).astype(np.float32)
    np.testing.assert_allclose(graph.session().run(x), 2 * x + np.maximum(2 * x, 0), rtol=1e-6)


def test_frozen_parameters_stay(rng):
    graph = mlp(batch=20)
    graph.freeze("first.weight")
    session = graph.training_step("cross_entropy", "adam", lr=0.1).session(seed=1)
    before = session.parameters()
    session.run(*batch(rng))
    after = session.parameters()
    np.testing.assert_array_equal(before["first.weight"], after["first.weight"])
    assert not np.array_equal(before["second.weight"], after["second.weight"])


def test_dropout_statistics():
    graph = tg.Graph()
    graph.output("y", tg.dropout(graph.input("x", (256, 256)), 0.3, seed=5))
    x = np.ones((256, 256), np.float32)
    sessions = [graph.session(threads=threads) for threads in (1, 2)]
    masks = [session.run(x) for session in sessions for _ in range(2)]
    for mask in masks:
        assert set(np.unique(mask)) == {np.float32(0), np.float32(1) / np.float32(0.7)}
        assert abs((mask == 0).mean() - 0.3) < 0.01
    np.testing.assert_array_equal(masks[0], masks[2])
    assert (masks[0] != masks[1]).mean() > 0.3
    with_rest = graph.session()
    with_rest.step = 2
    np.testing.assert_array_equal(with_rest.run(x), masks[1])


def test_replicas_give_the_gradient_of_all(rng):
    x, labels = batch(rng, 40)
    whole = mlp(batch=40).training_step("cross_entropy", "sgd", lr=0.1).session(seed=1)
    step = mlp(batch=10).training_step("cross_entropy", "sgd", lr=0.1, replicas=4)
    session = step.session(tessera.Machine("m2000", tiles=8), seed=1)
    for _ in range(3):
        np.testing.assert_allclose(session.run(x, labels), whole.run(x, labels), rtol=1e-5)
    for name, values in session.parameters().items():
        np.testing.assert_allclose(values, whole.parameters()[name], rtol=1e-4, atol=1e-6)
    estimate = step.estimate(tessera.Machine("m2000", tiles=8))
    assert [chip for chip, _, _ in estimate.chips] == [0, 1, 2, 3]
    assert estimate.links and not estimate.placements
    assert [name for name, _, _ in estimate.passes][:4] == [
        "move permutations",
        "decompose",
        "remove unused",
        "fuse",
    ]
    assert json.loads(estimate.to_json())["links"][0]["bytes"] > 0


def test_replicas_may_divide_the_state_of_the_optimizer(rng):
    x, labels = batch(rng, 20)
    machine = tessera.Machine("m2000", tiles=8, chips=2)
    whole, parts = (mlp(batch=10).training_step("cross_entropy", "adamw", replicas=2, shard=shard) for shard in (False, 1))
    sessions = [step.session(machine, seed=1) for step in (whole, parts)]
    for _ in range(2):
        losses = [session.run(x, labels) for session in sessions]
        np.testing.assert_array_equal(*losses)
    for name, values in sessions[0].state().items():
        np.testing.assert_array_equal(sessions[1].state()[name], values)
    large, small = (step.estimate(machine).bytes["optimizer"] for step in (whole, parts))
    assert small < 0.7 * large
    for shard in (-1, 1.5):
        with pytest.raises((ValueError, TypeError), match="shard"):
            mlp(batch=10).training_step("cross_entropy", replicas=2, shard=shard)


def test_graphs_are_placed_on_chips():
    estimate = mlp().estimate(tessera.Machine("m2000", tiles=8))
    chosen = [placement for placement, _, _, is_chosen in estimate.placements if is_chosen]
    assert chosen == ["1 of 4 chips"] and "1 of 4 chips" in repr(estimate)
    assert 0 < estimate.balance <= 1


def test_calls_are_stages_on_chips_of_their_own():
    layer = tg.Graph()
    layer.output("y", tg.relu(tg.linear(layer.input("x", (8, 16)), layer.input("w", (16, 16)))))
    graph = tg.Graph()
    h = graph.input("x", (8, 16))
    for stage in range(2):
        h = graph.call(layer, h, graph.parameter(f"w{stage}", (16, 16)), stage=stage)["y"]
    looped = graph.loop(layer, h, graph.parameter("w", (16, 16)), count=2, carried={"x": "y"}, stage=1)["y"]
    graph.output("y", looped)
    machine = tessera.Machine("m2000", tiles=8, chips=2)
    estimate = graph.estimate(machine)
    assert [chip for chip, _, _ in estimate.chips] == [0, 1] and not estimate.placements
    x = np.linspace(-1, 1, 128, dtype=np.float32).reshape(8, 16)
    on_chips, on_host = (graph.session(each, seed=1).run(x=x) for each in (machine, "host"))
    np.testing.assert_allclose(on_chips, on_host, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="stage is -1"):
        graph.call(layer, h, h, stage=-1)


def test_chips_work_as_one_on_request():
    graph, machine = mlp(), tessera.Machine("m2000", tiles=8)
    estimate = graph.estimate(machine, on_chips=2)
    assert [chip for chip, _, _ in estimate.chips] == [0, 1] and not estimate.placements
    x = np.ones(graph.find("x").shape, np.float32)
    np.testing.assert_allclose(
        graph.session(machine, on_chips=2).run(x=x), graph.session("host").run(x=x), rtol=1e-4, atol=1e-6
    )
    with pytest.raises(ValueError, match="5 chips are to work as one; m2000 has 4"):
        graph.estimate(machine, on_chips=5)


@pytest.mark.parametrize("drawn", ["dropout_step", "step"])
def test_dropout_with_adam_and_micro_batches(drawn):
    graph = tg.Graph()
    w = graph.parameter("w", (4, 64), tg.uniform(0.1))
    x = tg.dropout(graph.input("x", (8, 64)), 0.5, step=graph.input(drawn, (), "u32"))
    graph.output("y", tg.linear(x, w))
    session = graph.training_step("mse", "adam", micro_batches=2).session()
    loss = session.run(np.ones((16, 64), np.float32), np.zeros((16, 4), np.float32))
    assert np.isfinite(loss)


def test_same_step_on_a_tiled_machine(rng):
    step = classifier_step()
    bow = step.session(tessera.Machine("bow", tiles=16), threads=2, seed=1)
    host = step.session(seed=1)
    x, labels = batch(rng)
    for _ in range(3):
        np.testing.assert_allclose(bow.run(x, labels), host.run(x, labels), rtol=1e-4)
    for name, values in host.parameters().items():
        np.testing.assert_allclose(bow.parameters()[name], values, rtol=1e-3, atol=1e-5)
    assert bow.seconds == step.estimate("bow", tiles=16).seconds


def test_estimates(tmp_path):
    estimate = classifier_step().estimate("gc200")
    assert estimate.fits and estimate.overflow == ""
    assert estimate.seconds > 0 and estimate.machine.name == "gc200"
    assert sum(estimate.cycles.values()) == pytest.approx(estimate.seconds * estimate.machine.clock_hz)
    assert estimate.memory.shape == (estimate.machine.tiles, len(estimate.purposes))
    assert estimate.memory.sum(1).max() == estimate.fullest_tile_bytes
    assert {"parameter", "optimizer", "stash"} <= set(estimate.bytes)
    assert {operation.operation for operation in estimate.operations} >= {"linear", "cross_entropy"}
    assert sum(operation.seconds for operation in estimate.operations) <= estimate.seconds * (1 + 1e-9)
    described = json.loads(estimate.to_json())
    assert described["seconds"] == estimate.seconds and described["fits"]
    assert len(described["operations"]) == len(estimate.operations)
    assert "gc200" in repr(estimate) and "linear" in repr(estimate)
    estimate.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.lower().startswith("<!doctype html>") and "Memory, tile by tile" in page
    inline = estimate._repr_html_()
    assert inline.startswith("<iframe srcdoc=") and "<script" not in inline
    on_host = classifier_step().estimate("host")
    assert on_host.memory.shape[0] == 1 and on_host.seconds > 0


def test_runs_release_the_gil(rng):
    graph = tg.Graph()
    x = graph.input("x", (512, 1024))
    for i in range(8):
        x = tg.linear(x, graph.parameter(f"w{i}", (1024, 1024), tg.uniform(0.03)))
    graph.output("y", x)
    session = graph.session(threads=1)
    array = rng.standard_normal((512, 1024)).astype(np.float32)
    results, progress = [], []
    runner = threading.Thread(target=lambda: results.append(session.run(array)))
    runner.start()
    while runner.is_alive():
        progress.append(1)
    runner.join()
    assert len(results) == 1 and len(progress) > 1


def test_sessions_take_turns(rng):
    session = classifier_step().session()
    x, labels = batch(rng)
    threads = [threading.Thread(target=lambda: [session.run(x, labels) for _ in range(5)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert session.step == 21


def test_numpy_is_enough():
    code = "import sys, tessera.graph; assert not {'torch', 'scipy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda g: g.input("x", (3,)), ValueError, "value 'x' already"),
        (lambda g: g.input("z", (3, 0)), ValueError, "at least 1"),
        (lambda g: g.input("z", (3, 2.5)), TypeError, "a size must be a whole number, not 2.5"),
        (lambda g: g.input("z", (3, 2**40)), ValueError, "a size is 1099511627776"),
        (lambda g: g.input("z", (1,) * 6), ValueError, "at most 5"),
        (lambda g: g.input("z", (3,), "f8"), ValueError, "unknown type"),
        (lambda g: g.parameter("w"), ValueError, "give a shape"),
        (lambda g: g.parameter("w", (3,), np.ones(4)), ValueError, r"shape \(4,\) for a parameter of shape \(3,\)"),
        (lambda g: g.parameter("w", (1,), [float("nan")]), ValueError, "finite"),
        (lambda g: g.parameter("n", initial=[0.5], dtype="u32"), ValueError, "0.5 is not a value of u32"),
        (lambda g: g.add_state("n", 2**24 + 1, "i32"), ValueError, r"n: initial integers beyond 2\^24"),
        (lambda g: g.find("nothing"), ValueError, "no value 'nothing'"),
        (lambda g: g.output("x", g.find("x")), ValueError, "an input has this name"),
        (lambda g: g.freeze("x"), ValueError, "no parameter 'x'"),
        (lambda g: tg.relu(3), TypeError, "not a value of a graph"),
        (lambda g: g.find("x") + mlp().find("x"), ValueError, "different graphs"),
        (lambda g: tg.mean(3), TypeError, "not a value of a graph"),
        (lambda g: tg.cast(3, "f16"), TypeError, "not a value of a graph"),
        (lambda g: g.output("y", 3), TypeError, "not a value of a graph"),
        (lambda g: tg.butterfly(g.find("x"), mlp().find("first.bias"), 12), ValueError, "different graphs"),
        (lambda g: tg.fastfood(g.find("x"), *[mlp().find("x")] * 3, range(16), 12), ValueError, "different graphs"),
        (lambda g: tg.dropout(g.find("x"), 0.5, step=mlp().step()), ValueError, "different graphs"),
        (lambda g: tg.dropout(g.find("x"), seed=-1), ValueError, "seed is -1; it must be from 0 to 18446744073709551615"),
        (lambda g: tg.dropout(g.find("x"), seed=0.5), TypeError, "seed must be a whole number, not 0.5"),
        (lambda g: tg.linear_layer(g.find("x"), 8, "layer", seed=2**64), ValueError, "seed is 18446744073709551616; it must"),
        (lambda g: g.call(3), TypeError, "a function must be a Graph, not 3"),
        (lambda g: g.call(g), ValueError, "cannot call itself"),
        (lambda g: tg.reshape(g.find("x"), (-1, 7)), ValueError, "a size of -1"),
        (lambda g: tg.linear(g.find("x"), g.find("second.weight")), ValueError, "linear: .* does not match"),
        (lambda g: tg.sum(g.find("x"), 2), ValueError, "has no dimension 2"),
        (lambda g: tg.sum(g.find("x"), "rows"), TypeError, "whole number, not 'rows'"),
        (lambda g: tg.mean(g.find("x"), (0, -2)), ValueError, "name one twice"),
        (lambda g: tg.permute(g.find("x"), (0, 0)), ValueError, "each of the 2 dimensions of .* once"),
        (lambda g: tg.concatenate([], 0), ValueError, "no values"),
        (lambda g: tg.split(g.find("x"), [2, 3], 1), ValueError, r"parts of \[2, 3\] elements do not add up"),
        (lambda g: g.training_step("hinge"), ValueError, "unknown loss 'hinge'"),
        (lambda g: g.training_step(mlp().outputs["logits"]), ValueError, "another graph"),
        (lambda g: g.training_step(optimizer="lion"), ValueError, "unknown optimizer 'lion'"),
        (lambda g: g.training_step(optimizer="adam", momentum=0.9), ValueError, "for 'sgd'"),
        (lambda g: g.training_step(momentum=1.5), ValueError, "momentum is 1.5"),
        (lambda g: g.training_step(output="y"), ValueError, "no output 'y'"),
        (lambda g: g.training_step(keep=["y"]), ValueError, "no output 'y' to keep"),
        (lambda g: g.training_step(clip_norm=-1.0), ValueError, "clipping norm"),
        (lambda g: g.session("cray"), ValueError, "unknown machine"),
        (lambda g: g.session(threads=-1), ValueError, "threads is -1; it must be from 0 to 4096"),
        (lambda g: g.session(seed=0.5), TypeError, "seed must be a whole number"),
        (lambda g: g.estimate(on_chips=-1), ValueError, "on_chips is -1"),
        (lambda g: g.estimate("bow", tile=3), ValueError, "tile"),
        (lambda g: g.session().run(), TypeError, "input 'x' is missing"),
        (lambda g: g.session().run(1, 2), TypeError, "the inputs are x"),
        (lambda g: g.session().run(y=1), TypeError, "no input 'y'"),
        (lambda g: g.session().run(np.ones((8, 12)), x=1), TypeError, "no input|twice|inputs"),
        (lambda g: g.session().run(np.ones((8, 13))), ValueError, r"x has shape \[8, 13\]; it must be \[8, 12\]"),
        (lambda g: g.session().run(np.ones((8, 12), int)), TypeError, "floating-point"),
        (lambda g: g.session().load_parameters({"first.bias": [1]}), ValueError, "missing parameters"),
        (lambda g: g.session(share=3), TypeError, "share must be a Session, not 3"),
        (lambda g: g.session().load_parameters(dict.fromkeys(g.session().parameters(), 1j)), TypeError, "complex"),
        (lambda g: at_step(g, -1), ValueError, "step is -1"),
        (lambda g: at_step(g, 2**32), ValueError, "step is 4294967296"),
        (lambda g: g.session().get("nothing"), ValueError, "no parameter or state 'nothing'"),
        (lambda g: g.session().set_pattern("first.weight", [0], [0]), ValueError, "not sparse"),
        (lambda g: g.session().load("missing.safetensors"), RuntimeError, "missing.safetensors"),
    ],
)
def test_mistakes(call, error, message):
    with pytest.raises(error, match=message):
        call(mlp())


def test_mistakes_in_labels(rng):
    session = classifier_step().session()
    x, _ = batch(rng)
    with pytest.raises(ValueError, match="labels has the entry -1"):
        session.run(x, np.full(20, -1))
    with pytest.raises(TypeError, match="labels .* of integers"):
        session.run(x, np.zeros(20))
    assert session.step == 1


def test_a_bsr_matrix_keeps_its_blocks(rng):
    dense = rng.standard_normal((16, 16)).astype(np.float32)
    graph = tg.Graph()
    w = graph.sparse_parameter("w", scipy.sparse.bsr_array(dense, blocksize=(4, 4)), dynamic=True)
    assert w.shape == (16, 16) and "block 4" in str(graph)
