"""Stochastic rounding and loss scales of graphs."""

import numpy as np
import pytest

import tessera
from tessera import graph as tg


def rounding_graph(dtype, size=4000, seed=0):
    graph = tg.Graph()
    x = graph.input("x", (size,))
    graph.output("y", tg.cast(x, dtype, rounding="stochastic", seed=seed))
    return graph


@pytest.mark.parametrize(("dtype", "distance"), [("f16", 2**-10), ("bf16", 2**-7)])
def test_a_cast_rounds_to_both_neighbours(dtype, distance):
    session = rounding_graph(dtype).session()
    x = np.full(4000, 1 + distance / 4, np.float32)
    first, second = (np.asarray(session.run(x), np.float32) for _ in range(2))
    assert set(first) == {1, 1 + distance}
    assert abs(np.mean(first == 1) - 0.75) < 4 * (0.75 * 0.25 / 4000) ** 0.5
    assert (first != second).any()
    session.step = 1
    np.testing.assert_array_equal(session.run(x), first)
    exact = np.full(4000, 1 + distance, np.float32)
    np.testing.assert_array_equal(np.asarray(session.run(exact), np.float32), exact)


def test_machines_threads_and_seeds(rng):
    x = rng.standard_normal(4000).astype(np.float32)
    one, three = (rounding_graph("f16").session(threads=threads).run(x) for threads in (1, 3))
    np.testing.assert_array_equal(one, three)
    np.testing.assert_array_equal(one, rounding_graph("f16").session("gc200").run(x))
    assert (one != rounding_graph("f16", seed=3).session().run(x)).any()


def step_of_layer(**options):
    graph = tg.Graph()
    x = graph.input("x", (4, 20), "bf16")
    w = graph.parameter("w", (30, 20), 1.0, dtype="bf16")
    graph.output("loss", tg.sum(tg.cast(tg.linear(x, w), "f32")) * 0.25)
    return graph.training_step(graph.outputs["loss"], lr=2**-11, **options)


def test_small_updates_are_taken_on_average():
    x = np.ones((4, 20), np.float32)
    moved = {}
    for rounding in ("nearest", "stochastic"):
        session = step_of_layer(rounding=rounding).session(threads=2)
        for _ in range(32):
            session.run(x)
        moved[rounding] = 1 - np.asarray(session.get("w"), np.float32).mean()
    assert moved["nearest"] == 0
    assert abs(moved["stochastic"] - 32 * 2**-11) < 4 * (32 * 2**-11 * 2**-8 / 600) ** 0.5


def test_state_of_16_bits():
    step = step_of_layer(optimizer="adam", state_dtype="bf16", rounding="stochastic", seed=4)
    session, again = step.session(), step.session()
    for each in (session, again):
        for _ in range(3):
            each.run(np.ones((4, 20), np.float32))
    for name, values in session.state().items():
        np.testing.assert_array_equal(values, again.state()[name])
    wide = step_of_layer(optimizer="adam").estimate("host").bytes["optimizer"]
    assert 2 * step.estimate("host").bytes["optimizer"] == wide


def test_each_store_may_be_rounded_otherwise():
    x = np.ones((4, 20), np.float32)
    moved = {}
    for store in ("parameters", "state", "partials"):
        session = step_of_layer(rounding={store: "stochastic"}).session(threads=2)
        for _ in range(32):
            session.run(x)
        moved[store] = 1 - np.asarray(session.get("w"), np.float32).mean()
    assert moved["parameters"] > 0 and moved["state"] == moved["partials"] == 0


def test_a_dynamic_loss_scale_leaves_steps_out():
    session = step_of_layer(optimizer="adamw", rounding="stochastic", loss_scale="dynamic", scale_growth=2).session()
    good, bad = np.ones((4, 20), np.float32), np.full((4, 20), np.inf, np.float32)
    session.run(good)
    before = {**session.parameters(), **session.state()}
    session.run(bad)
    for name, values in {**session.parameters(), **session.state()}.items():
        if not name.startswith("loss_scale"):
            np.testing.assert_array_equal(values, before[name], name)
    assert session.get("loss_scale") == 32768
    session.run(good)
    session.run(good)
    assert session.get("loss_scale") == 65536
    assert session.get("loss_scale.skipped_steps") == 1


def test_a_fixed_loss_scale():
    plain, scaled = (step_of_layer(loss_scale=scale).session() for scale in (None, 64))
    for session in (plain, scaled):
        session.lr = 0.5
        session.run(np.ones((4, 20), np.float32))
    np.testing.assert_array_equal(plain.get("w"), scaled.get("w"))


@pytest.mark.parametrize("machine", [None, tessera.Machine("bow", tiles=8)])
@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, True),
        ({"sum_dtype": np.float16}, False),
        ({"numbers": "mlperf-slides"}, True),
        ({"numbers": "mlperf-v1"}, False),
        ({"numbers": "mlperf-v2"}, False),
    ],
)
def test_sums_in_fp32_keep_gradients_that_fp16_loses(options, kept, machine):
    micro_batches, tiny = 128, 2.0**-13
    graph = tg.Graph()
    x = graph.input("x", (1, 8), "f16")
    w = graph.parameter("w", initial=np.ones(8), dtype="f16")
    loss = tg.sum(tg.cast(x * w, "f32"))
    step = graph.training_step(loss, "sgd", lr=float(micro_batches), micro_batches=micro_batches, **options)
    session = step.session(machine) if machine else step.session()
    gradients = np.full((micro_batches, 8), tiny, np.float16)
    gradients[0] = 1
    session.run(gradients)
    np.testing.assert_array_equal(session.get("w"), np.full(8, -(micro_batches - 1) * tiny if kept else 0))


def test_partial_sums_in_fp32_are_nearer_on_tiles():
    rng = np.random.default_rng(3)
    x, w = (rng.uniform(0.5, 1, shape).astype(np.float16) for shape in ((8, 4096), (16, 4096)))
    w[:, 2048:] *= -1
    exact = x.astype(np.float64) @ w.T.astype(np.float64)

    def result(dtype, *rounding):
        graph = tg.Graph()
        weight = graph.parameter("w", initial=w.astype(np.float32), dtype="f16")
        graph.output("y", tg.linear(graph.input("x", x.shape, "f16"), weight))
        if dtype is not None:
            graph.set_partial_sums(dtype, *rounding)
        return graph.session(tessera.Machine("bow", tiles=64)).run(x)

    def error(dtype):
        return np.abs(result(dtype) - exact).max()

    assert error("f32") < 0.07
    assert error("f16") == error(None) > 2 * error(np.float32)
    rounded = [result("f16", "stochastic", seed) for seed in (1, 1, 2)]
    assert np.array_equal(rounded[0], rounded[1]) and not np.array_equal(rounded[0], rounded[2])
    with pytest.raises(ValueError, match="partial sums of products cannot be u32"):
        tg.Graph().set_partial_sums("u32")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partial_dtype": "u32"}, "partial sums of products cannot be u32"),
        ({"sum_dtype": "u32"}, "sums of gradients cannot be u32"),
        ({"rounding": "up"}, "unknown rounding 'up'"),
        ({"rounding": {"parameters": "up"}}, "unknown rounding 'up'"),
        ({"rounding": {"moments": "nearest"}}, "unknown kind of rounding 'moments' \\(choose from parameters, state, partials\\)"),
        ({"loss_scale": "static"}, "unknown loss_scale 'static'"),
        ({"loss_scale": -1.0}, "loss scale is -1; it must be positive"),
        ({"scale_growth": 0}, "scale_growth is 0"),
        ({"state_dtype": "u32"}, "an optimizer's state cannot be u32"),
        ({"seed": -1}, "seed is -1"),
        ({"numbers": "mlperf-v1", "sum_dtype": "f32"}, "give either numbers or partial_dtype, sum_dtype"),
        ({"numbers": "mlperf-v2", "state_dtype": "f32"}, "give either numbers or partial_dtype, sum_dtype"),
        ({"numbers": "mlperf-v1", "rounding": "nearest"}, "give either numbers or partial_dtype, sum_dtype"),
    ],
)
def test_mistakes_in_training(options, message):
    with pytest.raises(ValueError, match=message):
        step_of_layer(**options)


def test_mistakes_in_casts():
    graph = tg.Graph()
    x = graph.input("x", (3,))
    with pytest.raises(ValueError, match="unknown rounding 'down'"):
        tg.cast(x, "f16", rounding="down")
    with pytest.raises(ValueError, match="for 'f16' and 'bf16', not for 'u32'"):
        tg.cast(x, "u32", rounding="stochastic")
    with pytest.raises(ValueError, match="different graphs"):
        tg.cast(x, "f16", rounding="stochastic", step=tg.Graph().step())
