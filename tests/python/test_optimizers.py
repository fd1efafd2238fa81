"""LAMB and LARS beside the algorithms of their papers, groups of parameters, and schedules."""

from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tessera  # noqa: E402
from beside_torch import trains_like_pytorch  # noqa: E402
from tessera import graph as tg  # noqa: E402
from tessera.nn import SparseLinear  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

BATCH, INPUTS, HIDDEN, CLASSES = 32, 12, 24, 5


def norm(x):
    return np.sqrt(np.sum(np.square(x)))


class Lamb:
    """Algorithm 2 of You et al. (2020), in float64, with their scaling function φ(z) = z."""

    def __init__(self, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, bias_correction=True):
        self.betas, self.eps, self.weight_decay, self.bias_correction = betas, eps, weight_decay, bias_correction
        self.m, self.v, self.t = {}, {}, 0

    def step(self, parameters, gradients, lr, excluded=()):
        self.t += 1
        b1, b2 = self.betas
        for name, g in gradients.items():
            x = parameters[name]
            m = self.m[name] = b1 * self.m.get(name, np.zeros_like(x)) + (1 - b1) * g
            v = self.v[name] = b2 * self.v.get(name, np.zeros_like(x)) + (1 - b2) * g**2
            if self.bias_correction:
                m, v = m / (1 - b1**self.t), v / (1 - b2**self.t)
            r = m / (np.sqrt(v) + self.eps)
            if name in excluded:
                parameters[name] = x - lr * r
                continue
            u = r + self.weight_decay * x
            ratio = norm(x) / norm(u) if norm(x) > 0 and norm(u) > 0 else 1.0
            parameters[name] = x - lr * ratio * u


class Lars:
    """Algorithm 1 of You et al. (2017), in float64."""

    def __init__(self, momentum=0.9, weight_decay=0.01, trust_coefficient=0.001):
        self.momentum, self.weight_decay, self.trust = momentum, weight_decay, trust_coefficient
        self.v = {}

    def step(self, parameters, gradients, lr, excluded=()):
        for name, g in gradients.items():
            w = parameters[name]
            decay = 0.0 if name in excluded else self.weight_decay
            rate = 1.0
            if name not in excluded and norm(w) > 0 and norm(g) > 0:
                rate = self.trust * norm(w) / (norm(g) + decay * norm(w))
            self.v[name] = self.momentum * self.v.get(name, 0.0) + lr * rate * (g + decay * w)
            parameters[name] = w - self.v[name]


def network(layer=nn.Linear):
    torch.manual_seed(3)
    return nn.Sequential(layer(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES))


def batch(step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn((BATCH, INPUTS), generator=generator)
    return x, (x @ torch.linspace(-1, 1, INPUTS * CLASSES).reshape(INPUTS, CLASSES)).argmax(1)


def in_float64(optimizer, lr_of, steps, excluded=()):
    """Losses, and parameters at the end, with gradients by PyTorch in float64."""
    module = network().double()
    parameters = {name: p.detach().numpy().copy() for name, p in module.named_parameters()}
    losses = []
    for step in range(steps):
        with torch.no_grad():
            for name, p in module.named_parameters():
                p.copy_(torch.from_numpy(parameters[name]))
        module.zero_grad()
        x, labels = batch(step)
        loss = F.cross_entropy(module(x.double()), labels)
        loss.backward()
        gradients = {name: p.grad.numpy() for name, p in module.named_parameters()}
        optimizer.step(parameters, gradients, lr_of(step), excluded)
        losses.append(loss.item())
    return losses, parameters


def training_step(**options):
    return tg.from_torch(network(), batch(0)[0]).training_step(**options)


def run(session, steps, first=0):
    return [float(session.run(*batch(step))) for step in range(first, first + steps)]


def assert_like(session, losses, expected_losses, parameters, tolerance):
    np.testing.assert_allclose(losses, expected_losses, rtol=tolerance, atol=tolerance)
    for name, array in parameters.items():
        np.testing.assert_allclose(session.get(name).reshape(array.shape), array, rtol=tolerance, atol=tolerance)


# An epsilon beside which rounding of FP32 gradients is small.
LAMB = {"betas": (0.9, 0.99), "eps": 1e-4, "weight_decay": 0.02}
LARS = {"weight_decay": 0.01, "trust_coefficient": 0.02}
OURS = {
    "lamb": ("lamb", LAMB, partial(Lamb, **LAMB), 0.02),
    "lamb without bias correction": (
        "lamb",
        LAMB | {"bias_correction": False},
        partial(Lamb, **LAMB, bias_correction=False),
        0.01,
    ),
    "lars": ("lars", LARS, partial(Lars, **LARS), 0.5),
    "lars without momentum": ("lars", LARS | {"momentum": 0.0}, partial(Lars, **LARS, momentum=0.0), 0.5),
}
BIASES = ("0.bias", "2.bias")


@pytest.mark.pairs(2)
@pytest.mark.parametrize("excluded", [(), BIASES])
@pytest.mark.parametrize("name", OURS)
def test_a_hundred_steps_of_the_papers_algorithms(name, excluded):
    optimizer, options, reference_of, lr = OURS[name]
    groups = [tg.ParameterGroup("*.bias", weight_decay=0.0, trust_ratio=False)] if excluded else []
    expected_losses, parameters = in_float64(reference_of(), lambda step: lr, 100, excluded)
    step = training_step(optimizer=optimizer, lr=lr, groups=groups, **options)
    session = step.session(tessera.Machine("host", threads=2), threads=1)
    losses = run(session, 100)
    assert losses[-1] < 0.7 * losses[0]
    assert_like(session, losses, expected_losses, parameters, 2e-3)


@pytest.mark.parametrize("name", ["lamb", "lars"])
def test_on_a_tiled_machine(name):
    optimizer, options, reference_of, lr = OURS[name]
    expected_losses, parameters = in_float64(reference_of(), lambda step: lr, 10)
    session = training_step(optimizer=optimizer, lr=lr, **options).session(tessera.Machine("bow", tiles=24))
    assert_like(session, run(session, 10), expected_losses, parameters, 1e-3)


@pytest.mark.parametrize("name", ["lamb", "lars"])
def test_norms_of_sparse_weights_are_those_of_their_values(name):
    """A sparse layer trains as a dense one whose zeros stay."""
    optimizer, options, reference_of, lr = OURS[name]
    reference = reference_of()
    torch.manual_seed(4)
    layer = SparseLinear(16, 32, density=0.5, block_size=8)
    module = nn.Sequential(layer, nn.Tanh(), nn.Linear(32, CLASSES))
    x, labels = torch.randn(BATCH, 16), torch.randint(CLASSES, (BATCH,))
    session = tg.from_torch(module, x).training_step(optimizer=optimizer, lr=lr, **options).session()
    dense = nn.Sequential(layer.to_dense(), nn.Tanh(), nn.Linear(32, CLASSES)).double()
    dense[2].load_state_dict(module[2].state_dict())
    mask = layer.mask().double()
    parameters = {each: p.detach().numpy().copy() for each, p in dense.named_parameters()}
    for _ in range(10):
        with torch.no_grad():
            for each, p in dense.named_parameters():
                p.copy_(torch.from_numpy(parameters[each]))
        dense.zero_grad()
        loss = F.cross_entropy(dense(x.double()), labels)
        loss.backward()
        dense[0].weight.grad *= mask
        reference.step(parameters, {each: p.grad.numpy() for each, p in dense.named_parameters()}, lr)
        assert session.run(x, labels) == pytest.approx(loss.item(), rel=1e-4)
    np.testing.assert_allclose(session.matrix("0.weight").to_dense(), parameters["0.weight"], rtol=1e-3, atol=1e-4)


def grouped(make, parameters, lr):
    """PyTorch's groups: biases do not decay, and the first layer learns at half the rate."""
    first, first_bias, *others = parameters
    weights, biases = others[::2], others[1::2]
    return make(
        [
            {"params": [first], "lr": lr / 2},
            {"params": [first_bias], "lr": lr / 2, "weight_decay": 0.0},
            {"params": weights},
            {"params": biases, "weight_decay": 0.0},
        ],
        lr=lr,
    )


@pytest.mark.parametrize(
    ("options", "make"),
    [
        ({"optimizer": "sgd", "momentum": 0.9}, partial(torch.optim.SGD, momentum=0.9, weight_decay=0.1)),
        ({"optimizer": "adam"}, partial(torch.optim.Adam, weight_decay=0.1)),
        ({"optimizer": "adamw"}, partial(torch.optim.AdamW, weight_decay=0.1)),
    ],
)
def test_groups_of_pytorch(options, make):
    groups = [tg.ParameterGroup("*.bias", weight_decay=0.0), tg.ParameterGroup(["0.weight", "0.bias"], lr_scale=0.5)]
    trains_like_pytorch(
        network(),
        *batch(0),
        lr=0.05,
        steps=6,
        weight_decay=0.1,
        groups=groups,
        make_optimizer=lambda parameters, lr: grouped(make, list(parameters), lr),
        **options,
    )


@pytest.mark.parametrize("name", ["w", "*"])
def test_parameters_of_a_graph_as_a_group(name):
    graph = tg.Graph()
    w, v = graph.parameter(name, (3,), 1.0), graph.parameter("v", (3,), 1.0)
    loss = tg.sum(w * v)
    step = graph.training_step(loss, lr=0.5, groups=[tg.ParameterGroup([w], lr_scale=0.0)])
    session = step.session()
    session.run()
    assert np.array_equal(session.get(name), np.ones(3))
    assert np.array_equal(session.get("v"), np.full(3, 0.5))
    other = tg.Graph().parameter(name, (3,), 1.0)
    with pytest.raises(ValueError, match="belongs to another graph"):
        graph.training_step(loss, groups=[tg.ParameterGroup([other], lr_scale=0.0)])
    with pytest.raises(ValueError, match="is in a group of parameters, but is not a parameter"):
        graph.training_step(loss, groups=[tg.ParameterGroup(loss, lr_scale=0.0)])


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="no parameter has the name '9.bias' of a group; there are 0.bias"):
        training_step(groups=[tg.ParameterGroup("9.bias")])
    with pytest.raises(ValueError, match="a group of parameters is empty: name some, such as"):
        training_step(groups=[tg.ParameterGroup([], lr_scale=0.5)])
    with pytest.raises(ValueError, match=r"unknown optimizer 'lion' \(choose from sgd, adam, adamw, lamb, lars\)"):
        training_step(optimizer="lion")
    with pytest.raises(ValueError, match="nesterov is for 'sgd', not for 'lars'"):
        training_step(optimizer="lars", nesterov=True)
    with pytest.raises(ValueError, match="momentum is for 'sgd' and 'lars', not for 'lamb': use betas"):
        training_step(optimizer="lamb", momentum=0.9)
    for optimizer in ("sgd", "lars"):
        for options in ({"betas": (0.9, 0.999)}, {"eps": 1e-8}, {"bias_correction": False}):
            with pytest.raises(ValueError, match=f"are for 'adam', 'adamw' and 'lamb', not for '{optimizer}'"):
                training_step(optimizer=optimizer, **options)
    for optimizer in ("sgd", "adam", "adamw", "lamb"):
        with pytest.raises(ValueError, match=f"trust_coefficient is for 'lars', not for '{optimizer}'"):
            training_step(optimizer=optimizer, trust_coefficient=0.001)
    with pytest.raises(ValueError, match="the trust coefficient is 0"):
        training_step(optimizer="lars", trust_coefficient=0.0)
    with pytest.raises(ValueError, match=r"'steep' \(choose from constant, linear, polynomial, cosine, step\)"):
        tg.Schedule("steep", 10)
    with pytest.raises(ValueError, match="a schedule decays after 2 of the steps"):
        tg.Schedule("step", 10, decay_at=(0.5, 2))
    with pytest.raises(ValueError, match="a cosine schedule has no decay"):
        tg.Schedule("cosine", 10, decay=0.5)
    with pytest.raises(ValueError, match="leaves none to decay in"):
        tg.Schedule("linear", 10, warmup=10)
    with pytest.raises(ValueError, match="a packing factor of 0.5"):
        tg.betas_of_packs((0.9, 0.999), 0.5)


def rates(scheduler_of, steps, lr=0.5):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr)
    scheduler = scheduler_of(optimizer)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def test_schedules_are_those_of_transformers():
    transformers = pytest.importorskip("transformers")
    theirs = {
        tg.Schedule("constant", warmup=7): partial(
            transformers.get_constant_schedule_with_warmup, num_warmup_steps=7
        ),
        tg.Schedule("linear", 50, warmup=7): partial(
            transformers.get_linear_schedule_with_warmup, num_warmup_steps=7, num_training_steps=50
        ),
        tg.Schedule("cosine", 50, warmup=7): partial(
            transformers.get_cosine_schedule_with_warmup, num_warmup_steps=7, num_training_steps=50
        ),
        tg.Schedule("polynomial", 50, warmup=7, power=2.0, end=0.1): partial(
            transformers.get_polynomial_decay_schedule_with_warmup,
            num_warmup_steps=7,
            num_training_steps=50,
            lr_end=0.05,
            power=2.0,
        ),
    }
    for schedule, scheduler_of in theirs.items():
        ours = [0.5 * schedule.factor(step) for step in range(51)]
        np.testing.assert_allclose(ours, rates(scheduler_of, 51), rtol=1e-12, atol=1e-12)


def test_a_step_schedule_is_pytorchs():
    schedule = tg.Schedule("step", 40, decay_at=[0.5, 0.74], decay=0.2)
    assert schedule == tg.Schedule("step", 40, decay_at=(0.5, 0.74), decay=0.2)
    ours = [0.5 * schedule.factor(step) for step in range(41)]
    theirs = partial(torch.optim.lr_scheduler.MultiStepLR, milestones=[20, 30], gamma=0.2)
    np.testing.assert_allclose(ours, rates(theirs, 41), rtol=1e-12)


@pytest.mark.parametrize("optimizer", ["lamb", "adamw", "lars"])
def test_a_resumed_training_is_that_without_a_break(optimizer, tmp_path):
    options = {"optimizer": optimizer, "lr": 0.02, "schedule": tg.Schedule("cosine", 20, warmup=4, end=0.1)}
    whole = training_step(**options).session(threads=2)
    losses = run(whole, 20)
    first = training_step(**options).session(threads=2)
    run(first, 9)
    first.save(tmp_path / "state.safetensors")
    second = training_step(**options).session(threads=2, seed=5)
    second.load(tmp_path / "state.safetensors")
    second.step = 10
    assert run(second, 11, first=9) == losses[9:]
    for name, array in whole.parameters().items():
        assert np.array_equal(second.get(name), array), name


def test_a_schedule_changes_the_rate():
    schedule = tg.Schedule("linear", 6, warmup=2)
    scheduled = training_step(lr=0.1, momentum=0.9, schedule=schedule).session()
    by_hand = training_step(lr=0.1, momentum=0.9).session()
    for step in range(6):
        by_hand.lr = 0.1 * schedule.factor(step)
        assert scheduled.run(*batch(step)) == by_hand.run(*batch(step))


def test_moments_of_packs():
    assert tg.betas_of_packs((0.9, 0.999), 2.0) == pytest.approx((0.81, 0.998001))
    assert tg.packs_per_batch(1000, 2.0) == 500
