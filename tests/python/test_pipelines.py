"""Pipelines: schedules as data, and training steps whose micro-batches go through stages.

TESSERA_TEST_PYTHON_GRAPHS sets the number of random graphs in each part.
"""

import os
import random
from xml.etree import ElementTree

import numpy as np
import pytest

import tessera
from tessera import graph as tg

KINDS = ("sequential", "grouped", "interleaved", "1f1b")
NAMES = {"F": "forward", "R": "recomputed", "B": "backward"}
PASSES = tuple(NAMES.values())


def test_schedules_are_printed_and_analysed():
    schedule = tg.pipeline_schedule("1f1b", stages=2, micro_batches=3, recompute={1})
    assert str(schedule) == (
        "stage 0: F0 F1 ..... B0 F2    B1 ..... B2\nstage 1: .. F0 R0 B0 F1 R1 B1 F2 R2 B2 ..\n"
    )
    assert schedule.of_stage(1)[:3] == [("forward", 0), ("recomputed", 0), ("backward", 0)]
    analysis = tg.pipeline_schedule("1f1b", 4, 32).analyse()
    assert analysis.used == pytest.approx(32 / 35)
    assert analysis.in_flight == [4, 3, 2, 1]
    picture = ElementTree.fromstring(schedule.svg())
    names = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "R2" in names and "stage 1" in names
    assert schedule._repr_svg_() == schedule.svg([(1, 2), (1, 2)]) != schedule.svg([(1, 2), (2, 4)])
    slow_end = tg.pipeline_schedule("grouped", 2, 4).analyse([(1, 2), (2, 4)])
    assert slow_end.busy == [12, 24]


def test_schedules_are_lists_of_actions():
    schedule = tg.pipeline_schedule("1f1b", stages=2, micro_batches=2)
    actions = schedule.actions(replicas=True)
    assert str(actions) == (
        "chips 0: 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD:1\n"
        "chips 1: 1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1REDUCE_GRAD:0 1SEND_B1\n"
    )
    assert actions.of_place(1)[0] == ("1RECV_F0", "RECV_F", 1, 0, 0, None)
    last = actions.of_stage(0)[-1]
    assert str(last) == "0REDUCE_GRAD:1" and last.bucket == 1 and last.micro_batch is None and last.peer is None
    assert actions.buckets == [([1], 0), ([0], 0)] and actions.places == [0, 1]
    assert str(tg.read_actions(str(actions))) == str(actions)
    assert actions.analyse() == schedule.analyse()
    split = tg.pipeline_schedule("zb-h1", stages=2, micro_batches=3)
    assert split.of_stage(0)[2:4] == [("input gradient", 0), ("weight gradient", 0)]
    assert split.analyse().used > tg.pipeline_schedule("1f1b", 2, 3).analyse().used
    assert [str(action) for action in split.actions().of_stage(0)][-2:] == ["0I2", "0W2"]
    assert actions.analyse(sending=0.5).used < actions.analyse().used
    assert schedule.actions(places=[0, 0]).analyse().used == 1
    with pytest.raises(ValueError, match="a list of actions has 1F0 before 1RECV_F0"):
        tg.read_actions("0F0 0SEND_F0\n1F0 1RECV_F0")
    with pytest.raises(ValueError, match="never ends: chips 0 before 0RECV_B0"):
        tg.read_actions("0F0 0RECV_B0 0SEND_F0 0B0\n1RECV_F0 1F0 1B0 1SEND_B0")
    for places in ([], [0], [0, 2]):
        with pytest.raises(ValueError, match="place"):
            schedule.actions(places=places)


def stages(count, micro_batches, pipeline="sequential", recompute=(), again=False, by_calls=True, **options):
    """A training step of layers with dropout, one on each stage that calls name."""
    layer = tg.Graph()
    x = layer.input("x", (6, 16))
    layer.output("y", x + tg.dropout(tg.tanh(tg.linear(x, layer.input("w", (16, 16)))), 0.25))
    graph = tg.Graph()
    h = graph.input("x", (6, 16))
    for stage in range(count):
        weight = graph.parameter(f"w{stage}", (16, 16), tg.normal(0.2))
        h = graph.call(layer, h, weight, stage=stage if by_calls else None, recompute=again)["y"]
    graph.output("logits", h)
    return graph.training_step(
        "cross_entropy", "adam", micro_batches=micro_batches, pipeline=pipeline, recompute=recompute, **options
    )


def trained(step, machine=None):
    session = step.session(machine, seed=3) if machine else step.session(threads=2, seed=3)
    rng = np.random.default_rng(0)
    rows = 6 * 4 * 2
    for _ in range(2):
        session.run(rng.normal(size=(rows, 16)), rng.integers(16, size=rows))
    return {name: session.get(name) for name in ("w0", "w1")}


@pytest.mark.parametrize("pipeline", (*KINDS, "zb-h1"))
def test_every_pipeline_gives_the_same_bits(pipeline):
    machines = [None, tessera.Machine("m2000", chips=2, tiles=8)]
    for machine in machines:
        expected = trained(stages(2, 8), machine)
        for settings in ({}, {"recompute": {0}}, {"again": True}):
            found = trained(stages(2, 8, pipeline, **settings), machine)
            for name, values in expected.items():
                np.testing.assert_array_equal(found[name], values)


LAYERS = (
    lambda h, z: tg.tanh(h) + z,
    lambda h, z: tg.dropout(tg.gelu(h), 0.3) * z,
    lambda h, z: tg.layer_norm(h + z),
    lambda h, z: tg.relu(h) + tg.tanh(z),
)


def random_step(seed, stages, shares, is_whole=False, again=False, **options):
    """Layers on stages, or without stages, that take results of any earlier layers.

    If `shares`, several stages may take one weight. If `again`, some layers compute their forward passes again.
    """
    rng = random.Random(seed)
    bodies = []
    for layer in LAYERS:
        body = tg.Graph()
        x, w, z = body.input("x", (4, 8)), body.input("w", (8, 8)), body.input("z", (4, 8))
        if rng.random() < 0.4:
            body.output("further", tg.tanh(x + z))
        body.output("y", layer(tg.linear(x, w), z))
        bodies.append(body)
    graph = tg.Graph()
    values, weights = [graph.input("x", (4, 8))], []
    for stage in range(stages):
        if not shares:
            weights = []
        for layer in range(rng.randint(1, 2)):
            if not weights or rng.random() < 0.7:
                weights.append(graph.parameter(f"w{stage}.{layer}", (8, 8), tg.normal(0.4)))
            weight = rng.choice(weights) if rng.random() < 0.4 else weights[-1]
            x = values[-1] if rng.random() < 0.8 else rng.choice(values)
            how = {"stage": None if is_whole else stage, "recompute": rng.random() < 0.3 and again}
            values += graph.call(rng.choice(bodies), x, weight, rng.choice(values), **how).values()
        if rng.random() < 0.2:
            values.append(values[-1] * 2 + rng.choice(values))
    loss = tg.mean(tg.square(values[-1] + rng.choice(values)))
    graph.output("loss", loss)
    # With a smaller epsilon, a gradient that is zero except for rounding changes Adam's updates.
    optimizer = rng.choice([{"optimizer": "sgd"}, {"optimizer": "adam", "eps": 1e-2}])
    return graph.training_step(loss, **optimizer, **options)


def random_pipeline(rng, stages, pipeline):
    options = {"pipeline": pipeline, "recompute": {s for s in range(stages) if rng.random() < 0.4}}
    options |= rng.choice([{}, {}, {"offload": 1, "offload_weights": 1}])
    if pipeline != "sequential" and stages > 1 and rng.random() < 0.3:
        options["offload_activations"] = 1
    return options


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("has_tiles", [False, True])
def test_random_pipelines_of_random_graphs_give_the_same_bits(has_tiles, part, tmp_path):
    def results(machine, rows, step):
        session, inputs = step.session(machine, seed=7), np.random.default_rng(1)
        losses = [session.run(inputs.normal(size=(rows, 8))) for _ in range(2)]
        return {"loss": np.array(losses)} | session.state()

    file = tmp_path / "chips.toml"
    for seed in range(part, 4 * int(os.environ.get("TESSERA_TEST_PYTHON_GRAPHS", "6")), 4):
        rng = random.Random(seed)
        stages, replicas = rng.randint(1, 4), rng.choice([1, 1, 2])
        given = {"micro_batches": rng.choice([2 * stages, 4 * stages, 3, 5]), "replicas": replicas}
        rows = 4 * given["micro_batches"] * replicas
        chips = stages * replicas
        of_several = 'topology = "all-to-all"\n' if chips > 1 else ""
        file.write_text(f'like = "m2000"\ntiles = 6\nchips = {chips}\n{of_several}')
        machine = tessera.Machine(str(file)) if has_tiles else tessera.Machine("host", threads=1)
        # Gradients of a weight are summed on each stage first. On tiles, layers that share a chip, and those that
        # compute forward passes again, may have other layouts.
        shares = rng.random() < 0.5
        is_whole = not has_tiles and not shares
        expected = results(machine, rows, random_step(seed, stages, shares, is_whole, again=has_tiles, **given))
        for pipeline in (*KINDS, "zb-h1"):
            if pipeline == "grouped" and given["micro_batches"] % (2 * stages) != 0:
                continue
            options = random_pipeline(rng, stages, pipeline) | given
            found = results(machine, rows, random_step(seed, stages, shares, again=True, **options))
            assert found.keys() == expected.keys()
            tolerance = 1e-5 if has_tiles and pipeline == "zb-h1" else 0  # its two passes have separate layouts
            for name, values in expected.items():
                what = f"{name} of graph {seed}, {stages} stages, {options}"
                np.testing.assert_allclose(found[name], values, rtol=tolerance, atol=tolerance, err_msg=what)


@pytest.mark.parametrize("pipeline", (*KINDS, "zb-h1"))
def test_layers_on_stages_give_the_bits_of_the_whole(pipeline):
    expected = trained(stages(4, 8, by_calls=False))
    for given in (4, ["w2"], {"w0": 0, "w1": 0, "w3": 1}, 1, []):
        step = stages(4, 8, pipeline, by_calls=False, stages=given)
        for name, values in trained(step).items():
            np.testing.assert_array_equal(values, expected[name], f"{given}")


def test_layers_on_stages_are_placed_as_calls_are():
    machine = tessera.Machine("m2000", chips=2, tiles=8)
    expected = trained(stages(2, 8, "1f1b"), machine)
    step = stages(2, 8, "1f1b", by_calls=False, stages=["w1"])
    for name, values in trained(step, machine).items():
        np.testing.assert_array_equal(values, expected[name])
    assert step.estimate(machine).actions.places == [0, 1]
    assert stages(4, 8, "1f1b", by_calls=False, stages=2, replicas=2).estimate("m2000", tiles=8).actions.stages == 2


def test_wrong_stages_are_refused():
    def refused(message, given, error=ValueError, **options):
        with pytest.raises(error, match=message):
            stages(4, 8, by_calls=False, stages=given, **options)

    refused("a graph of 4 layers with parameters of their own is to have 5 stages: it can have 1 to 4", 5)
    refused("stages name 'w9', and no layer has a parameter of this name: layers begin with 'w0', 'w1'", ["w9"])
    refused("'w3' is to be on stage 0, and layers before it are on stage 1", {"w1": 1, "w3": 0})
    refused("stage 1 has no layers: 'w1' is to be on stage 2", {"w1": 2})
    refused("stage 0 has no layers: 'w0' is to be on stage 1, and is the first one", ["w0"])
    refused("name each layer once", ["w1", "w1"])
    refused("a single text is", "w1")
    refused("stages is 0", 0)
    refused("'w2' is to be on stage 1, and layers before it are on stage 2", ["w2", "w1"])
    for given in (None, True, 1.5, {"w1"}):
        refused("stages must be a whole number, a list or dict of names", given, TypeError)
    for given in ([1, 2], [["w1"]], b"w1", {1: 1}):
        refused("stages are named by layers, such as", given, TypeError)
    with pytest.raises(ValueError, match="the graph has stages already"):
        stages(2, 8, stages=2)


def layers(recompute=(), again=False):
    """A training step of layers that are calls of one function."""
    layer = tg.Graph()
    x, w = layer.input("x", (64, 64)), layer.input("w", (64, 64))
    layer.output("y", x + tg.dropout(tg.tanh(tg.linear(tg.gelu(tg.linear(x, w)), w)), 0.25))
    graph = tg.Graph()
    h = graph.input("x", (64, 64))
    for i in range(6):
        h = graph.call(layer, h, graph.parameter(f"w{i}", (64, 64), tg.normal(0.1)), recompute=again)["y"]
    loss = tg.mean(h * h)
    graph.output("loss", loss)
    return graph.training_step(loss, "adam", micro_batches=4, recompute=recompute)


def test_a_memory_budget_gives_the_same_bits():
    for machine in (tessera.Machine("host", threads=2), tessera.Machine("m2000", chips=1, tiles=6)):
        kept, least = (layers(again=again).estimate(machine).fullest_tile_bytes for again in (False, True))
        assert least < kept
        step = layers((kept + least) // 2)
        estimate = step.estimate(machine)
        assert estimate.fits and estimate.fullest_tile_bytes <= (kept + least) // 2
        assert estimate.passes[0][0] == "recompute"
        sessions = [each.session(machine, seed=3) for each in (layers(), step)]
        assert sessions[1].cost().bytes == estimate.bytes
        for session in sessions:
            session.run(np.random.default_rng(0).normal(size=(64 * 4, 64)))
        for name in ("w0", "w5"):
            np.testing.assert_array_equal(sessions[1].get(name), sessions[0].get(name))
        for make in (layers(1000).estimate, layers(1000).session):
            with pytest.raises(ValueError, match="bytes more than its memory budget of 1000 bytes"):
                make(machine)
    small = tessera.Machine("m2000", chips=1, tiles=6, tile_bytes=172_000)
    assert not layers().estimate(small).fits
    assert layers("fit").estimate(small).fits


@pytest.mark.parametrize("places", [[0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0]])
def test_stages_that_share_chips_give_the_same_bits(places):
    machine = tessera.Machine("m2000", chips=2, tiles=6)
    expected = trained(stages(4, 8), tessera.Machine("m2000", chips=4, tiles=6))
    for pipeline in KINDS[1:]:
        for recompute in ({1}, {0, 2}, {1, 3}, {0, 1, 2}, {1, 2, 3}):
            step = stages(4, 8, pipeline, recompute)
            step.place_stages(places)
            for name, values in trained(step, machine).items():
                np.testing.assert_array_equal(values, expected[name], f"{pipeline}, {recompute}")


def test_stages_that_share_a_table_give_the_same_bits():
    layer = tg.Graph()
    x = layer.input("x", (4, 16))
    layer.output("y", x + tg.gelu(tg.linear(x, layer.input("w", (16, 16)))))
    graph = tg.Graph()
    table = graph.parameter("table", (11, 16), tg.normal(0.3))
    h = tg.embedding(graph.input("ids", (4,), "u32"), table)
    for stage in range(4):
        h = graph.call(layer, h, graph.parameter(f"w{stage}", (16, 16), tg.normal(0.2)), stage=stage)["y"]
    loss = tg.cross_entropy(tg.linear(h, table), graph.input("labels", (4,), "u32"))
    graph.output("loss", loss)
    rng = np.random.default_rng(0)
    arrays = rng.integers(11, size=32), rng.integers(11, size=32)

    def step(machine, **options):
        session = graph.training_step(loss, micro_batches=8, **options).session(machine, seed=3)
        return float(session.run(*arrays)), session.state()

    for machine in (tessera.Machine("host", threads=2), tessera.Machine("m2000", tiles=6)):
        expected_loss, expected = step(machine)
        for pipeline in KINDS[1:]:
            for recompute in ({0}, {1}, {0, 2}):
                found_loss, found = step(machine, pipeline=pipeline, recompute=recompute)
                assert found_loss == expected_loss, (pipeline, recompute)
                for name, values in expected.items():
                    np.testing.assert_array_equal(found[name], values, f"{pipeline}, {recompute}")


def test_estimates_have_a_lane_for_each_chip():
    estimate = stages(2, 8, "1f1b", {0}).estimate(tessera.Machine("m2000", chips=2, tiles=8))
    schedule = tg.pipeline_schedule("1f1b", 2, 8, {0})
    assert [chip for chip, _ in estimate.lanes] == [0, 1]
    for stage, (_, spans) in enumerate(estimate.lanes):
        assert spans[0][3] == 0
        assert all(span[4] == after[3] for span, after in zip(spans, spans[1:]))
        assert spans[-1][4] == pytest.approx(sum(estimate.cycles.values()))
        passes = [(kind, micro_batch) for kind, of, micro_batch, _, _ in spans if kind in PASSES and of == stage]
        assert passes == schedule.of_stage(stage)
        listed = [(NAMES[a.kind], a.micro_batch) for a in estimate.actions.of_place(stage) if a.kind in NAMES]
        assert listed == schedule.of_stage(stage)
    assert [str(action) for action in estimate.actions.of_place(1)][:4] == ["1RECV_F0", "1F0", "1RECV_F1", "1B0"]
    assert stages(2, 8).estimate(tessera.Machine("m2000", chips=2, tiles=8)).actions is None
    assert "Pipeline" in estimate.page()
    assert stages(2, 8, "1f1b").estimate("bow").lanes == []


def estimate_of_equal_stages(kind, width):
    """Four stages of equal work, 32 micro-batches."""
    layer = tg.Graph()
    x, weight = layer.input("x", (128, width)), layer.input("w", (width, width))
    layer.output("y", tg.relu(tg.linear(tg.gelu(tg.linear(x, weight)), weight)))
    graph = tg.Graph()
    h = graph.input("x", (128, width))
    for stage in range(4):
        h = graph.call(layer, h, graph.parameter(f"w{stage}", (width, width), tg.normal(0.1)), stage=stage)["y"]
    loss = tg.mean(h)
    graph.output("loss", loss)
    step = graph.training_step(loss, micro_batches=32, pipeline=kind)
    return step.estimate(tessera.Machine("m2000", chips=4, tiles=6))


def test_stages_keep_what_their_schedule_has_in_flight():
    stashes = {kind: estimate_of_equal_stages(kind, 48).bytes["stash"] for kind in KINDS}
    # A stage keeps three values of each micro-batch, and of some another one on its way to the next stage. With one
    # micro-batch at a time, values of different stages share memory.
    of_value = 4 * 128 * 48
    for kind, stash in stashes.items():
        in_flight = sum(tg.pipeline_schedule(kind, 4, 32).analyse().in_flight)
        least = 1 if kind == "sequential" else 3
        assert least * in_flight * of_value <= stash <= 4 * in_flight * of_value, kind
    assert stashes["sequential"] < stashes["interleaved"] < stashes["grouped"]


def test_stages_work_as_long_as_the_closed_form_says():
    closed = {"sequential": 1 / 4, "grouped": 32 / 38, "interleaved": 32 / 35, "1f1b": 32 / 35}
    for kind in KINDS:
        estimate = estimate_of_equal_stages(kind, 192)
        waiting = [end - begin for _, spans in estimate.lanes for name, _, _, begin, end in spans if name == "waiting"]
        used = 1 - sum(waiting) / (4 * sum(estimate.cycles.values()))
        analysed = tg.pipeline_schedule(kind, 4, 32).analyse().used
        # Updates and loss are work too, which counts where stages wait most.
        assert used == pytest.approx(analysed, rel=0.03 if kind == "sequential" else 0.02), kind
        assert used > 0.98 * closed[kind], kind
        assert kind == "sequential" or used > 0.8, kind


@pytest.mark.parametrize("chips", [2, 4, 16])
def test_sums_over_replicas_take_what_a_ring_needs(chips):
    graph = tg.Graph()
    graph.output("y", tg.sum_over_replicas(graph.input("x", (4096, 4096))))
    graph.replicate(chips)
    estimate = graph.estimate(tessera.Machine("pod16", chips=chips))
    bound = 2 * (chips - 1) / chips * 4 * 4096**2 / 48e9  # 48 GB/s over each link
    assert bound <= estimate.seconds <= 1.05 * bound


def test_replicas_have_their_own_rows():
    graph = tg.Graph()
    x = graph.input("x", (4, 8))
    graph.output("y", x - tg.mean_over_replicas(x))
    graph.replicate(2)
    given = np.arange(64, dtype=np.float32).reshape(8, 8)
    expected = given - np.tile((given[:4] + given[4:]) / 2, (2, 1))
    for session in (graph.session(threads=1), graph.session(tessera.Machine("m2000", chips=2, tiles=4))):
        np.testing.assert_array_equal(session.run(given), expected)
    with pytest.raises(ValueError, match="replicated already"):
        graph.replicate(2)
    with pytest.raises(ValueError, match="must be from 0"):
        tg.Graph().replicate(-1)


def test_weights_may_lie_elsewhere_without_training():
    def run(machine, places):
        graph = tg.Graph()
        weight = graph.parameter("w", (32, 32), tg.normal(0.2))
        graph.output("y", tg.linear(graph.input("x", (4, 32)), weight))
        graph.replicate(2)
        for place in places:
            getattr(graph, place)(weight)
        given = np.arange(256, dtype=np.float32).reshape(8, 32)
        return graph.estimate(machine).streaming_bytes, graph.session(machine, seed=3).run(given)

    machine = tessera.Machine("m2000", chips=2, tiles=8)
    _, expected = run(machine, ())
    for places, least, most in ((("shard",), 0, 0), (("offload",), 4096, 5000), (("shard", "offload"), 2048, 2500)):
        streaming, found = run(machine, places)
        assert least <= streaming <= most, places
        np.testing.assert_array_equal(found, expected)
    graph = tg.Graph()
    with pytest.raises(ValueError, match="'x' is neither a parameter"):
        graph.offload(graph.input("x", (4, 4)))
    with pytest.raises(ValueError, match="'x' is not a parameter"):
        graph.shard(graph.inputs[0])


@pytest.mark.parametrize("options", [{}, {"replicas": 2, "shard": 1, "offload": 1}, {"offload_activations": 1}])
def test_a_run_costs_what_its_estimate_says(options):
    machine = tessera.Machine("m2000", chips=2 * options.get("replicas", 1), tiles=8)
    for pipeline in KINDS[1:]:
        step = stages(2, 8, pipeline, {0}, **options)
        estimate, session = step.estimate(machine), step.session(machine, seed=3)
        rows = 6 * 8 * options.get("replicas", 1)
        session.run(np.zeros((rows, 16)), np.zeros(rows, np.int64))
        for field in ("seconds", "cycles", "bytes", "chips", "links", "lanes", "streaming_bytes"):
            assert getattr(session.cost(), field) == getattr(estimate, field), (pipeline, field)


def test_wrong_pipelines_are_refused():
    with pytest.raises(ValueError, match="sequential, grouped, interleaved, 1f1b"):
        stages(2, 8, "gpipe")
    with pytest.raises(ValueError, match="a multiple of 4 micro-batches, not 6"):
        stages(2, 6, "grouped").session(threads=1)
    with pytest.raises(ValueError, match="stage 2 is to be recomputed; the stages are 0 to 1"):
        stages(2, 8, "1f1b", {2}).session(threads=1)
    for recompute in (True, None, "all", 1.5):
        message = 'recompute must be numbers of stages, such as {0, 1}, a number of bytes or "fit", not'
        with pytest.raises(TypeError, match=message):
            stages(2, 8, "1f1b", recompute)
    for recompute in (0, -1):
        with pytest.raises(ValueError, match=f"recompute is {recompute}; it must be from 1 to"):
            stages(2, 8, "1f1b", recompute)
    for recompute in (True, 1, None, "fit"):
        with pytest.raises(TypeError, match="recompute must be numbers of stages, such as {0, 1}, not"):
            tg.pipeline_schedule("1f1b", 2, 8, recompute)
    for given in (-1, 2.5, float("nan"), "2"):
        with pytest.raises((TypeError, ValueError), match="micro_batches (is|must be)"):
            stages(2, given)
        with pytest.raises((TypeError, ValueError), match="replicas (is|must be)"):
            stages(2, 8, replicas=given)
    with pytest.raises(ValueError, match="unknown pipeline 'None'"):
        stages(2, 8, None)
    with pytest.raises(ValueError, match="4 stages cannot share the 2 chips of m2000 equally"):
        stages(4, 8).session(tessera.Machine("m2000", chips=2, tiles=8))
    graph = tg.Graph()
    with pytest.raises(ValueError, match="none on part 1"):
        graph.place_stages([0, 2])
