"""Training steps beside PyTorch's: the same losses and parameters."""

import copy
import json
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tessera  # noqa: E402
from beside_torch import assert_same_parameters, trains_like_pytorch  # noqa: E402
from tessera import graph as tg  # noqa: E402
from tessera.nn import SparseLinear  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

STEPS = 6
BATCH = 20
RATE = 0.05

SGD, Adam = torch.optim.SGD, torch.optim.Adam
OPTIMIZERS = {
    "sgd": ({}, SGD),
    "momentum": ({"momentum": 0.9}, partial(SGD, momentum=0.9)),
    "nesterov": (
        {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1},
        partial(SGD, momentum=0.8, nesterov=True, weight_decay=0.1),
    ),
    "adam": ({"optimizer": "adam"}, Adam),
    "adam with decay": (
        {"optimizer": "adam", "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1},
        partial(Adam, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
    ),
    "adamw": ({"optimizer": "adamw"}, torch.optim.AdamW),
    "clipped": ({"momentum": 0.9, "clip_norm": 0.1}, partial(SGD, momentum=0.9)),
}


def mlp(hidden=32):
    return nn.Sequential(nn.Linear(24, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 10))


def batches(shape=(BATCH, 24), classes=10):
    generator = torch.Generator().manual_seed(7)
    for _ in range(STEPS):
        yield torch.randn(shape, generator=generator), torch.randint(classes, (shape[0],), generator=generator)


def check(module, name, rtol=2e-4, atol=2e-5, steps=STEPS, **more):
    options, make_optimizer = OPTIMIZERS[name]
    options = {**options, **more, "make_optimizer": make_optimizer}
    trains_like_pytorch(module, *next(batches()), lr=RATE, steps=steps, rtol=rtol, atol=atol, **options)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_dense(name):
    torch.manual_seed(1)
    check(mlp(), name)


@pytest.mark.pairs(2)
@pytest.mark.parametrize("name", ["momentum", "adamw", "clipped"])
@pytest.mark.parametrize(("block_size", "dynamic"), [(1, False), (1, True), (4, False), (16, True)])
def test_sparse(name, block_size, dynamic):
    torch.manual_seed(2)
    module = nn.Sequential(
        SparseLinear(24, 32, density=0.5, block_size=block_size, dynamic=dynamic, activation="relu"),
        SparseLinear(32, 48, density=0.5, block_size=block_size, dynamic=dynamic, activation="gelu"),
        nn.Linear(48, 10),
    )
    check(module, name)


def test_sparse_beside_masked_dense():
    torch.manual_seed(3)
    dense = mlp()
    layers = [
        SparseLinear.from_dense(layer, density=0.3, block_size=8) if isinstance(layer, nn.Linear) else layer
        for layer in list(dense)[:-1]
    ]
    sparse = nn.Sequential(*layers, copy.deepcopy(dense[-1]))
    masks = {i: layer.mask() for i, layer in enumerate(layers) if isinstance(layer, SparseLinear)}
    for i, mask in masks.items():
        dense[i].weight.data *= mask
        dense[i].weight.register_hook(lambda gradient, mask=mask: gradient * mask)
    x, labels = next(batches())
    session = tg.from_torch(sparse, x).training_step(optimizer="sgd", lr=RATE, momentum=0.9).session()
    optimizer = SGD(dense.parameters(), RATE, momentum=0.9)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(dense(x), labels)
        loss.backward()
        optimizer.step()
        assert session.run(x, labels) == pytest.approx(loss.item(), rel=1e-4)
    for i in masks:
        trained = session.matrix(f"{i}.weight").to_dense()
        np.testing.assert_allclose(trained, dense[i].weight.detach(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["nesterov", "adam"])
def test_on_a_tiled_machine(name):
    torch.manual_seed(4)
    bow = tessera.Machine("bow", tiles=24)
    check(mlp(16), name, machine=bow, steps=3, rtol=2e-3, atol=2e-4)


def test_encoder_block_by_mean_squared_error():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

        def forward(self, x):
            return x + self.down(F.gelu(self.up(x)))

    torch.manual_seed(5)
    module, x, target = Block(), torch.randn(4, 6, 16), torch.randn(4, 6, 16)
    step = tg.from_torch(module, x).training_step("mse", "adamw", lr=RATE)
    assert [value.name for value in step.inputs if value.name != "lr"] == ["x", "target", "step"]
    trains_like_pytorch(module, x, target, "mse", lr=RATE, make_optimizer=torch.optim.AdamW, optimizer="adamw")


def test_the_rate_changes():
    torch.manual_seed(6)
    module = mlp()
    data = list(batches())
    session = tg.from_torch(module, data[0][0]).training_step(lr=RATE, momentum=0.9).session()
    optimizer = torch.optim.SGD(module.parameters(), RATE, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for x, labels in data:
        optimizer.zero_grad()
        F.cross_entropy(module(x), labels).backward()
        optimizer.step()
        session.run(x, labels)
        schedule.step()
        session.lr = schedule.get_last_lr()[0]
    assert_same_parameters(session, module)


def test_tensors_are_used_in_place():
    assert tessera._tessera.is_bound_in_place(torch.randn(8, 4), "f32", [8, 4])
    assert tessera._tessera.is_bound_in_place(torch.zeros(8, 4, dtype=torch.bfloat16), "bf16", [8, 4])
    assert not tessera._tessera.is_bound_in_place(torch.randn(4, 8).t(), "f32", [8, 4])
    assert not tessera._tessera.is_bound_in_place(torch.zeros(8, dtype=torch.int64), "u32", [8])


def test_outputs_of_replicas_have_the_rows_of_all():
    module = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 10))
    graph = tg.from_torch(module, torch.randn(BATCH, 24))
    step = graph.training_step("cross_entropy", lr=RATE, replicas=4, keep=["output"])
    session = step.session("m2000")
    x, labels = torch.randn(4 * BATCH, 24), torch.randint(0, 10, (4 * BATCH,))
    expected = module(x).detach()
    found = session.run(x, labels.to(torch.int32))
    assert found["output"].shape == (4 * BATCH, 10)
    assert np.allclose(found["output"], expected, atol=1e-4)


def test_sums_over_replicas_may_begin_before_the_last_gradient():
    module = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 10))
    graph = tg.from_torch(module, torch.randn(BATCH, 24))
    machine = tessera.Machine("m2000", chips=2, tiles=8, link_gb_per_second=0.01)
    steps = [graph.training_step("cross_entropy", lr=RATE, replicas=2, overlap=overlap) for overlap in (False, True)]
    sessions = [step.session(machine) for step in steps]
    x, labels = torch.randn(2 * BATCH, 24).numpy(), torch.randint(0, 10, (2 * BATCH,), dtype=torch.int32).numpy()
    for _ in range(2):
        np.testing.assert_array_equal(*(session.run(x, labels) for session in sessions))
    for name, values in sessions[0].state().items():
        np.testing.assert_array_equal(sessions[1].state()[name], values)
    assert ["beside it" in session.program() for session in sessions] == [False, True]
    assert steps[1].estimate(machine).under_way == []  # without stages there are no lanes


def test_a_single_replica_has_no_state_to_divide():
    graph = tg.from_torch(nn.Linear(24, 10), torch.randn(BATCH, 24))
    with pytest.raises(ValueError, match="is divided among replicas, but there is only one: ask for several"):
        graph.training_step("cross_entropy", shard=True)
    with pytest.raises(ValueError, match="parameters are divided among replicas, but there is only one"):
        graph.training_step("cross_entropy", shard_weights=True)
    with pytest.raises(ValueError, match="sums of gradients are divided among replicas, but there is only one"):
        graph.training_step("cross_entropy", micro_batches=2, shard_gradients=True)


def test_replicas_may_divide_parameters():
    graph = tg.from_torch(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 5)), torch.randn(10, 12))
    x, labels = torch.randn(20, 12).numpy(), torch.randint(0, 5, (20,), dtype=torch.int32).numpy()
    machine = tessera.Machine("m2000", tiles=8, chips=2)
    whole, divided = (
        graph.training_step("cross_entropy", "adamw", replicas=2, **options)
        for options in ({}, {"shard": 1, "shard_weights": 1})
    )
    sessions = [step.session(machine, seed=1) for step in (whole, divided)]
    for _ in range(2):
        np.testing.assert_array_equal(*(session.run(x, labels) for session in sessions))
    for name, values in sessions[0].state().items():
        np.testing.assert_array_equal(sessions[1].state()[name], values)


def test_replicas_may_divide_sums_of_gradients():
    graph = tg.from_torch(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 5)), torch.randn(10, 12))
    x, labels = torch.randn(40, 12).numpy(), torch.randint(0, 5, (40,), dtype=torch.int32).numpy()
    machine = tessera.Machine("m2000", tiles=8, chips=2)
    groups = [tg.ParameterGroup("*.bias", shard_gradients=False)]
    whole, divided, some, beside = (
        graph.training_step("cross_entropy", momentum=0.9, micro_batches=2, replicas=2, shard=1, **options)
        for options in (
            {},
            {"shard_gradients": 1},
            {"shard_gradients": 1, "groups": groups},
            {"shard_gradients": 1, "offload_gradients": 1},
        )
    )
    sessions = [step.session(machine, seed=1) for step in (whole, divided, some, beside)]
    for _ in range(2):
        losses = [session.run(x, labels) for session in sessions]
        np.testing.assert_allclose(losses, np.full(4, losses[0]), rtol=1e-5)
    states = [session.state() for session in sessions]
    for name, values in states[0].items():
        for state in states[1:3]:
            np.testing.assert_allclose(state[name], values, rtol=1e-3, atol=1e-5)
        np.testing.assert_array_equal(states[3][name], states[1][name])
    assert beside.estimate(machine).streaming_bytes > 0


def test_replicas_combine_values_in_groups():
    graph = tg.Graph()
    x = graph.input("x", (2, 3))
    w = graph.parameter("w", (3,), tg.constant(1))
    centred = x * w - tg.mean_over_replicas(tg.mean(x * w, dim=[0]), 2)
    graph.output("centred", centred)
    loss = tg.mean(tg.square(centred) * x)
    step = graph.training_step(loss, lr=RATE, replicas=4, keep=["centred"])
    session = step.session(tessera.Machine("m2000", tiles=8))
    values = torch.randn(8, 3)
    found = session.run(values.numpy())["centred"]
    weight = torch.ones(3, requires_grad=True)
    scaled = (values * weight).reshape(2, 4, 3)  # a group has four rows
    expected = scaled - scaled.mean(1, keepdim=True)
    np.testing.assert_allclose(found.reshape(2, 4, 3), expected.detach(), atol=1e-5)
    (expected.square() * values.reshape(2, 4, 3)).mean().backward()
    np.testing.assert_allclose(session.get("w"), 1 - RATE * weight.grad, atol=1e-5)
    with pytest.raises(ValueError, match="groups of 3 replicas, of which there are 4"):
        uneven = tg.Graph()
        y = tg.sum_over_replicas(uneven.input("x", (2, 3)) * uneven.parameter("w", (3,)), 3)
        uneven.training_step(tg.mean(y), replicas=4).session("m2000")
    with pytest.raises(ValueError, match="group"):
        tg.mean_over_replicas(x, 0)


def test_the_state_of_the_optimizer_may_lie_beside_the_chips():
    graph = tg.from_torch(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 5)), torch.randn(10, 12))
    x, labels = torch.randn(10, 12).numpy(), torch.randint(0, 5, (10,), dtype=torch.int32).numpy()
    machine = tessera.Machine("gc200", tiles=8)
    near, far = (graph.training_step("cross_entropy", "adamw", offload=offload) for offload in (False, 1))
    sessions = [step.session(machine, seed=1) for step in (near, far)]
    for _ in range(2):
        losses = [session.run(x, labels) for session in sessions]
        np.testing.assert_array_equal(*losses)
    for name, values in sessions[0].state().items():
        np.testing.assert_array_equal(sessions[1].state()[name], values)
    estimate = far.estimate(machine)
    assert estimate.bytes.get("optimizer", 0) < near.estimate(machine).bytes["optimizer"]
    assert estimate.streaming_bytes >= sum(v.nbytes for name, v in sessions[0].state().items() if "moment" in name)
    assert "in streaming memory" in repr(estimate)
    assert far.session().run(x, labels) == near.session().run(x, labels)  # on hosts it is the same
    with pytest.raises(ValueError, match="use a machine that has"):
        far.session(tessera.Machine("gc200", tiles=8, streaming_bytes=0))


def test_weights_and_sums_of_gradients_may_lie_beside_the_chips():
    graph = tg.from_torch(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 5)), torch.randn(10, 12))
    x, labels = torch.randn(20, 12).numpy(), torch.randint(0, 5, (20,), dtype=torch.int32).numpy()
    machine = tessera.Machine("gc200", tiles=8)
    groups = [tg.ParameterGroup("*.bias", offload_weights=False, offload=True)]
    near, far, some, ahead = (
        graph.training_step("cross_entropy", "adamw", micro_batches=2, **options)
        for options in (
            {},
            {"offload_weights": 1, "offload_gradients": 1},
            {"offload_weights": 1, "offload_gradients": 1, "groups": groups},
            {"offload_weights": 1, "offload_gradients": 1, "prefetch": True},
        )
    )
    sessions = [step.session(machine, seed=1) for step in (near, far, some, ahead)]
    for _ in range(2):
        expected, *losses = [session.run(x, labels) for session in sessions]
        for loss in losses:
            np.testing.assert_array_equal(loss, expected)
    for name, values in sessions[0].state().items():
        for session in sessions[1:]:
            np.testing.assert_array_equal(session.state()[name], values)
    of_weights = sum(values.nbytes for name, values in sessions[0].state().items() if "moment" not in name)
    bytes_of = [step.estimate(machine).streaming_bytes for step in (near, far, some)]
    slow = tessera.Machine("gc200", tiles=8, streaming_gb_per_second=1)  # slower than the busiest tile
    assert ahead.estimate(slow).seconds < far.estimate(slow).seconds
    assert bytes_of[0] == 0
    assert bytes_of[1] >= 2 * of_weights  # and sums of their gradients
    assert bytes_of[2] >= 2 * of_weights + (16 + 5) * 4  # two moments of the biases instead of these
    with pytest.raises(ValueError, match="offload_weights"):
        graph.training_step("cross_entropy", offload_weights=-1)


def test_activations_of_a_pipeline_may_lie_beside_the_chips():
    layer = tg.Graph()
    y = tg.gelu(layer.input("x", (6, 16)) * layer.input("w", (16,)))
    layer.output("y", y)
    graph = tg.Graph()
    h = graph.input("x", (6, 16))
    for stage in range(2):
        h = graph.call(layer, h, graph.parameter(f"w{stage}", (16,), tg.constant(1)), stage=stage)["y"]
    near, far = (
        graph.training_step(
            tg.mean(tg.square(h)), micro_batches=8, pipeline="grouped", offload_activations=least, lr=RATE
        )
        for least in (False, 1)
    )
    machine = tessera.Machine("m2000", chips=2, tiles=8)
    x = torch.randn(48, 16).numpy()
    sessions = [step.session(machine) for step in (near, far)]
    np.testing.assert_array_equal(*(session.run(x) for session in sessions))
    for name in ("w0", "w1"):
        np.testing.assert_array_equal(*(session.get(name) for session in sessions))
    assert near.estimate(machine).streaming_bytes == 0 < far.estimate(machine).streaming_bytes
    with pytest.raises(ValueError, match="a sequential pipeline has none in flight"):
        graph.training_step(tg.mean(tg.square(h)), micro_batches=8, offload_activations=True)


def test_times_have_transfers_from_and_to_the_host_if_asked_for():
    graph = tg.from_torch(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 5)), torch.randn(10, 12))
    step = graph.training_step("cross_entropy", "sgd")
    machine = tessera.Machine("gc200", tiles=8)
    without, estimate = step.estimate(machine), step.estimate(machine, host_io=True)
    assert without.host_io is None and "host" not in without.cycles and "host_io" not in json.loads(without.to_json())
    sent, fetched, seconds = estimate.host_io
    assert sent >= 10 * 12 * 4 + 10 * 4
    assert fetched >= 4
    assert seconds == pytest.approx(2 * 10e-6 + (sent + fetched) / 12.5e9)
    assert estimate.seconds == pytest.approx(without.seconds + seconds)
    assert estimate.cycles["host"] == pytest.approx(seconds * 1.33e9)
    assert json.loads(estimate.to_json())["host_io"] == {"bytes_in": sent, "bytes_out": fetched, "seconds": seconds}
    assert f"{sent:,} bytes from the host and {fetched:,} to it" in repr(estimate)
    assert "transfers from and to the host" in estimate.page()
    session = step.session(machine, host_io=True)
    session.run(torch.randn(10, 12).numpy(), torch.randint(0, 5, (10,), dtype=torch.int32).numpy())
    assert session.seconds == pytest.approx(estimate.seconds)
    with pytest.raises(ValueError, match="has the other's host_io"):
        graph.session(share=session, host_io=True)
    with pytest.raises(ValueError, match="has no link to a host"):
        step.estimate("gc200", host_io=True, host_link_gb_per_second=0)
    assert step.estimate("host", host_io=True).host_io is None


def test_patterns_change_between_runs_of_other_threads():
    import threading

    graph = tg.Graph()
    patterns = [tessera.generate(64, 48, 0.25, block_size=8, seed=seed) for seed in (3, 4)]
    weight = graph.sparse_parameter("w", patterns[0], dynamic=200)
    graph.output("y", tg.linear(graph.input("x", (3, 48)), weight))
    session = graph.session()
    x = np.ones((3, 48), np.float32)
    session.set_pattern("w", patterns[1].crow_indices, patterns[1].col_indices)
    session.set_pattern("w", patterns[0].crow_indices, patterns[0].col_indices)
    expected = session.run(x)  # blocks that both patterns have keep their values, new ones are 0
    done = threading.Event()

    def change():
        while not done.is_set():
            for pattern in patterns:
                session.set_pattern("w", pattern.crow_indices, pattern.col_indices)

    other = threading.Thread(target=change)
    other.start()
    try:
        for _ in range(300):
            assert np.array_equal(session.run(x), expected)
            matrix = session.matrix("w")
            assert any(np.array_equal(matrix.col_indices, pattern.col_indices) for pattern in patterns)
    finally:
        done.set()
        other.join()


@pytest.mark.parametrize("block_size", [1, 4])
def test_a_sparse_table_trains_with_its_head(rng, block_size):
    kept = np.kron(rng.random((40 // block_size, 24 // block_size)) < 0.3, np.ones((block_size, block_size)))
    table = (rng.standard_normal((40, 24)) * kept).astype(np.float32)
    ids, labels = rng.integers(0, 40, 20), rng.integers(0, 40, 20)

    def trained(is_sparse):
        graph = tg.Graph()
        rows = graph.input("ids", (20,), "i32")
        if is_sparse:
            w = graph.sparse_parameter("w", table, block_size)
        else:
            w = graph.parameter("w", initial=table)
        graph.output("logits", tg.linear(tg.tanh(tg.embedding(rows, w)), w))
        session = graph.training_step("cross_entropy", "sgd", lr=0.1).session(threads=2)
        return session.run(ids, labels), session

    (loss, sparse), (expected, dense) = trained(True), trained(False)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    found = sparse.matrix("w").to_dense()
    np.testing.assert_allclose(found, dense.get("w") * kept, atol=1e-6)
    assert not np.allclose(found, table, atol=1e-4)


def test_stop_gradient():
    graph = tg.Graph()
    x, w = graph.input("x", (4,)), graph.parameter("w", (4,), tg.constant(3))
    loss = tg.sum(w * tg.stop_gradient(w * x))  # of w: w · x, not 2 · w · x
    step = graph.training_step(loss, "sgd", lr=0.5)
    session = step.session()
    assert session.run(np.ones(4, np.float32)) == pytest.approx(36)
    np.testing.assert_allclose(session.parameters()["w"], 1.5)
