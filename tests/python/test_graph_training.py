"""Training steps beside PyTorch's: the same losses and parameters."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tessera  # noqa: E402
from tessera import graph as tg  # noqa: E402
from tessera.nn import SparseLinear  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

STEPS = 6
BATCH = 20
RATE = 0.05

OPTIMIZERS = {
    "sgd": ({}, lambda p: torch.optim.SGD(p, RATE)),
    "momentum": ({"momentum": 0.9}, lambda p: torch.optim.SGD(p, RATE, momentum=0.9)),
    "nesterov": (
        {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1},
        lambda p: torch.optim.SGD(p, RATE, momentum=0.8, nesterov=True, weight_decay=0.1),
    ),
    "adam": ({"optimizer": "adam"}, lambda p: torch.optim.Adam(p, RATE)),
    "adam with decay": (
        {"optimizer": "adam", "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1},
        lambda p: torch.optim.Adam(p, RATE, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
    ),
    "adamw": ({"optimizer": "adamw"}, lambda p: torch.optim.AdamW(p, RATE)),
    "clipped": ({"momentum": 0.9, "clip_norm": 0.1}, lambda p: torch.optim.SGD(p, RATE, momentum=0.9)),
}


def mlp(hidden=32):
    return nn.Sequential(nn.Linear(24, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 10))


def batches(shape=(BATCH, 24), classes=10):
    generator = torch.Generator().manual_seed(7)
    for _ in range(STEPS):
        yield torch.randn(shape, generator=generator), torch.randint(classes, (shape[0],), generator=generator)


def train_in_pytorch(module, make_optimizer, loss, data, clip_norm=None):
    optimizer = make_optimizer(module.parameters())
    losses = []
    for x, target in data:
        optimizer.zero_grad()
        value = loss(module(x), target)
        value.backward()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(module.parameters(), clip_norm)
        optimizer.step()
        losses.append(value.item())
    return losses


def assert_same_parameters(session, module, rtol=2e-4, atol=2e-5):
    trained = copy.deepcopy(module)
    session.copy_to(trained)
    for (name, ours), theirs in zip(trained.named_parameters(), module.parameters(), strict=True):
        np.testing.assert_allclose(ours.detach(), theirs.detach(), rtol=rtol, atol=atol, err_msg=name)


def check(module, options, make_optimizer, machine="host", steps=STEPS, **tolerances):
    data = list(batches())[:steps]
    session = (
        tg.from_torch(module, data[0][0]).training_step("cross_entropy", lr=RATE, **options).session(machine)
    )
    ours = [session.run(x, labels) for x, labels in data]
    theirs = train_in_pytorch(module, make_optimizer, F.cross_entropy, data, options.get("clip_norm"))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    assert_same_parameters(session, module, **tolerances)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_dense(name):
    torch.manual_seed(1)
    check(mlp(), *OPTIMIZERS[name])


@pytest.mark.parametrize("name", ["momentum", "adamw", "clipped"])
@pytest.mark.parametrize(("block_size", "dynamic"), [(1, False), (1, True), (4, False), (16, True)])
def test_sparse(name, block_size, dynamic):
    torch.manual_seed(2)
    module = nn.Sequential(
        SparseLinear(24, 32, density=0.5, block_size=block_size, dynamic=dynamic, activation="relu"),
        SparseLinear(32, 48, density=0.5, block_size=block_size, dynamic=dynamic, activation="gelu"),
        nn.Linear(48, 10),
    )
    check(module, *OPTIMIZERS[name])


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
    data = list(batches())
    session = tg.from_torch(sparse, data[0][0]).training_step(optimizer="sgd", lr=RATE, momentum=0.9).session()
    ours = [session.run(x, labels) for x, labels in data]
    theirs = train_in_pytorch(dense, OPTIMIZERS["momentum"][1], F.cross_entropy, data)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    for i in masks:
        trained = session.matrix(f"{i}.weight").to_dense()
        np.testing.assert_allclose(trained, dense[i].weight.detach(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["nesterov", "adam"])
def test_on_a_tiled_machine(name):
    torch.manual_seed(4)
    bow = tessera.Machine("bow", tiles=24)
    check(mlp(16), *OPTIMIZERS[name], machine=bow, steps=3, rtol=2e-3, atol=2e-4)


def test_encoder_block_by_mean_squared_error():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

        def forward(self, x):
            return x + self.down(F.gelu(self.up(x)))

    torch.manual_seed(5)
    module = Block()
    data = [(x, torch.randn(x.shape)) for x, _ in batches((4, 6, 16))]
    step = tg.from_torch(module, data[0][0]).training_step("mse", "adamw", lr=RATE)
    assert [value.name for value in step.inputs if value.name != "lr"] == ["x", "target", "step"]
    session = step.session()
    ours = [session.run(x, target) for x, target in data]
    theirs = train_in_pytorch(module, OPTIMIZERS["adamw"][1], F.mse_loss, data)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    assert_same_parameters(session, module)


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
