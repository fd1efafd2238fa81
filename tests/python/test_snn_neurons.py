"""Layers of spiking neurons: outputs and gradients equal step-by-step ones and snnTorch's; operators; errors."""

import copy
import itertools
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from snn_formulas import in_snntorch, steps

from tessera import snn
from tessera.snn import surrogate

T, BATCH, N = 16, 6, 21
RESETS = [(mechanism, delay) for mechanism in ("subtract", "zero", "none") for delay in (True, False)]
KINDS = ("Leaky", "Synaptic", "RLeaky", "RLeaky one to one", "RSynaptic", "RSynaptic one to one")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """One thread for PyTorch, which computes many small products here."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def layer_of(kind, mechanism, delay, per_neuron=True, spike_grad=None):
    """A layer whose parameters all learn."""
    torch.manual_seed(7)

    def parameter(low, high):
        return low + (high - low) * torch.rand(N) if per_neuron else torch.tensor((low + high) / 2)

    name, *one_to_one = kind.split(" ", 1)
    arguments = {
        "beta": parameter(0.6, 0.95),
        "threshold": parameter(0.8, 1.2),
        "learn_beta": True,
        "learn_threshold": True,
        "reset_mechanism": mechanism,
        "reset_delay": delay,
        "spike_grad": spike_grad,
    }
    if "Synaptic" in name:
        arguments |= {"alpha": parameter(0.3, 0.6), "learn_alpha": True}
    if name.startswith("R"):
        arguments |= {"all_to_all": False, "V": parameter(-0.3, 0.3)} if one_to_one else {"linear_features": N}
    return getattr(snn, name)(**arguments)


def currents(kind="Leaky"):
    """Currents such that a reset by subtraction leaves no potential above its threshold."""
    torch.manual_seed(3)
    return ((0.55 if "Synaptic" in kind else 1.0) * (0.8 * torch.rand(T, BATCH, N) - 0.15)).requires_grad_()


def differentiate(results, inputs):
    """The gradients of a random sum of the results."""
    random = torch.Generator().manual_seed(5)
    total = sum((torch.randn(each.shape, generator=random) * each).sum() for each in results if each is not None)
    gradients = torch.autograd.grad(total, inputs, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, inputs, strict=True)]


def unpack(layer, results):
    return results if layer.alpha is not None else (results[0], None, results[1])


def expect_same(layer, x, found, expected, given, others):
    assert torch.equal(found[0], expected[0]) and 0.02 < found[0].mean() < 0.6
    for each, right in zip(found[1:], expected[1:], strict=True):
        assert (each is None) == (right is None)
        assert each is None or torch.allclose(each, right, rtol=1e-4, atol=1e-5)
    names = ["input", *dict(layer.named_parameters())]
    for name, got, right in zip(names, differentiate(found, [x, *given]), differentiate(expected, [x, *others]),
                                strict=True):  # fmt: skip
        assert torch.allclose(got, right, rtol=1e-3, atol=2e-4 * float(1 + right.abs().max())), name


@pytest.mark.pairs(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("mechanism", "delay"), RESETS)
@pytest.mark.parametrize("per_neuron", [True, False])
def test_outputs_and_gradients_are_those_of_steps(kind, mechanism, delay, per_neuron):
    layer, x = layer_of(kind, mechanism, delay, per_neuron), currents(kind)
    found = unpack(layer, layer(x))
    parameters = list(layer.parameters())
    expect_same(layer, x, found, steps(layer, x), parameters, parameters)


@pytest.mark.pairs(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("mechanism", "delay"), RESETS)
def test_outputs_and_gradients_are_those_of_snntorch(kind, mechanism, delay):
    snntorch = pytest.importorskip("snntorch", reason="needs snnTorch")
    if not delay and kind.startswith("RSynaptic"):
        pytest.skip("snnTorch's RSynaptic has no reset without delay: it fails, or resets its argument")
    layer, x = layer_of(kind, mechanism, delay), currents(kind)
    other, expected = in_snntorch(snntorch, layer, x)
    found = unpack(layer, layer(x))
    named = dict(other.named_parameters())
    others = [named[name] for name, _ in layer.named_parameters()]
    expect_same(layer, x, found, expected, list(layer.parameters()), others)


def test_a_potential_that_stays_above_the_threshold_is_reset_once():
    """Where snnTorch compares less than it stores: by the definition a spike subtracts one threshold."""
    layer = snn.Leaky(1.0, reset_delay=False)
    spikes, membrane = layer(torch.tensor([3.5, 0.0, 0.0, 0.0]).reshape(4, 1, 1))
    assert spikes.flatten().tolist() == [1, 1, 1, 0] and membrane.flatten().tolist() == [2.5, 1.5, 0.5, 0.5]


@pytest.mark.parametrize("name", ["atan", "boxcar", "fast_sigmoid", "sigmoid", "superspike", "triangle"])
def test_surrogates(name):
    spike_grad = getattr(surrogate, name)(3.0, scale=0.7)
    layer, x = layer_of("Leaky", "subtract", True, spike_grad=spike_grad), currents()
    parameters = list(layer.parameters())
    expect_same(layer, x, unpack(layer, layer(x)), steps(layer, x), parameters, parameters)


@pytest.mark.parametrize("name", ["atan", "fast_sigmoid", "sigmoid"])
def test_surrogates_are_those_of_snntorch(name):
    theirs = pytest.importorskip("snntorch.surrogate", reason="needs snnTorch")
    # Beyond, snnTorch's sigmoid overflows.
    x = torch.linspace(-1, 1, 101, requires_grad=True)
    ours = getattr(surrogate, name)()
    (expected,) = torch.autograd.grad(getattr(theirs, name)()(x).sum(), x)
    (found,) = torch.autograd.grad(ours(x).sum(), x)
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_no_gradient_with_surrogate_disable():
    x = currents()
    spikes, _ = snn.Leaky(0.9, surrogate_disable=True)(x)
    assert spikes.sum() > 0 and not torch.autograd.grad(spikes.sum(), x)[0].any()


@pytest.mark.pairs(3)
@pytest.mark.parametrize("kind", ["Leaky", "Synaptic", "RLeaky", "RLeaky one to one", "RSynaptic"])
@pytest.mark.parametrize(("mechanism", "delay"), RESETS)
def test_sequences_continue_from_states(kind, mechanism, delay):
    layer, x = layer_of(kind, mechanism, delay), currents(kind)
    parameters = [x, *layer.parameters()]
    whole = layer(x)
    first = layer(x[:10])
    states = [each[-1] for each in (first if kind.startswith("R") else first[1:])]
    rest = layer(x[10:], *states)
    pieces = [torch.cat(each) for each in zip(first, rest, strict=True)]
    for piece, expected in zip(pieces, whole, strict=True):
        assert torch.allclose(piece, expected, atol=1e-6)
    # A spike that is an output of one piece and a reset of the next passes no gradient through the reset.
    if not (kind.startswith("R") and not delay):
        for found, right in zip(differentiate(pieces, parameters), differentiate(whole, parameters), strict=True):
            assert torch.allclose(found, right, rtol=1e-3, atol=2e-4 * float(1 + right.abs().max()))


def test_readouts_integrate():
    x = currents()
    membrane = snn.Readout(torch.full((N,), 0.9), learn_beta=True)(x)
    expected, states = torch.zeros(BATCH, N), []
    for current in x:
        expected = 0.9 * expected + current
        states.append(expected)
    assert torch.allclose(membrane, torch.stack(states), atol=1e-5)
    adds = snn.Readout(1.0, alpha=0.5)
    assert adds(torch.ones(2, 1, 1)).flatten().tolist() == [1, 2.5]


def test_features_have_any_shape():
    layer = snn.Leaky(torch.rand(3, 1, 4), learn_beta=True)
    x = torch.rand(T, BATCH, 3, 5, 4)
    spikes, membrane = layer(x)
    flat = snn.Leaky(layer.beta.detach().expand(3, 5, 4).reshape(-1))(x.flatten(2))
    assert torch.equal(spikes.flatten(2), flat[0]) and torch.equal(membrane.flatten(2), flat[1])
    spikes.sum().backward()
    assert layer.beta.grad.shape == (3, 1, 4)


def test_types_strides_and_empty_batches():
    layer, x = snn.Leaky(0.9), currents().detach()
    spikes, membrane = layer(x)
    strided = x.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert torch.equal(layer(strided)[1], membrane)
    doubles = x.double().requires_grad_()
    found = layer(doubles)
    assert found[0].dtype is torch.float64 and found[1].dtype is torch.float32
    found[0].sum().backward()
    assert doubles.grad.dtype is torch.float64
    assert layer(x.to(torch.bfloat16))[0].dtype is torch.bfloat16
    empty = torch.zeros(T, 0, N, requires_grad=True)
    layer(empty)[0].sum().backward()
    assert empty.grad.shape == empty.shape
    graded = snn.Leaky(0.9, graded_spikes_factor=2.0)
    assert torch.equal(graded(x)[0], 2 * spikes)
    loaded = snn.Leaky(0.9)
    loaded.load_state_dict(graded.state_dict())
    assert torch.equal(loaded(x)[0], 2 * spikes)


OPERATOR_ARGUMENTS = [
    # recurrent dimensions, initial states, synaptic, reset, gradient, after_reset
    (None, False, False, "late_subtract", "gated", False),
    (1, True, True, "subtract", "attached", True),
    (2, True, True, "late_zero", "gated", False),
]


@pytest.mark.parametrize(("recurrent", "initial", "synaptic", "reset", "gradient", "after_reset"), OPERATOR_ARGUMENTS)
def test_operator(recurrent, initial, synaptic, reset, gradient, after_reset):
    torch.manual_seed(1)
    tensors = [torch.rand(5, 3, 7), torch.rand(3, 7)]
    tensors.append(None if recurrent is None else 0.1 * torch.randn([7] * recurrent))
    tensors.append(torch.rand(2, 3, 7) if initial else None)
    tensors = [None if each is None else each.requires_grad_() for each in tensors]
    arguments = (*tensors, True, synaptic, reset, gradient, False, "arctan", 2.0, 1.0, 1.0, after_reset)
    torch.library.opcheck(torch.ops.tessera.spiking_neurons.default, arguments)


def test_compiled_without_breaks():
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(N, 30), snn.Leaky(0.9, learn_beta=True))
    recurrent = snn.RSynaptic(0.5, 0.9, linear_features=30)

    def network(x):
        return recurrent(model(x)[0])[2].sum()

    x = currents()
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    inputs = [x, *model.parameters(), *recurrent.parameters()]
    expected = torch.autograd.grad(network(x), inputs)
    for found, right in zip(torch.autograd.grad(compiled(x), inputs), expected, strict=True):
        assert torch.allclose(found, right, rtol=1e-4, atol=1e-5)


def test_exported():
    model = torch.nn.Sequential(torch.nn.Linear(N, 9), snn.Synaptic(0.5, 0.9))
    x = currents().detach()
    for found, expected in zip(torch.export.export(model, (x,)).module()(x), model(x), strict=True):
        assert torch.equal(found, expected)


def test_derivatives_of_derivatives_are_refused():
    x = currents()
    (gradient,) = torch.autograd.grad(snn.Leaky(0.9)(x)[0].sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        gradient.sum().backward()


def test_copies_pickles_and_state_of_snntorch():
    layer, x = layer_of("RLeaky", "zero", True), currents()
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x)[1], layer(x)[1])
    snntorch = pytest.importorskip("snntorch", reason="needs snnTorch")
    for kind in ("Leaky", "RSynaptic"):
        arguments = {"linear_features": N, "alpha": 0.5} if kind == "RSynaptic" else {}
        theirs = getattr(snntorch, kind)(beta=torch.rand(N), learn_beta=True, **arguments)
        ours = getattr(snn, kind)(beta=torch.rand(N), learn_beta=True, **arguments)
        ours.load_state_dict(theirs.state_dict())
        assert torch.equal(ours.beta, theirs.beta)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: snn.Leaky(0.9, reset_mechanism="soft"), ValueError, "unknown reset_mechanism 'soft'"),
        (lambda: snn.Leaky(0.9, init_hidden=True), ValueError, "Leaky has no init_hidden"),
        (lambda: snn.Synaptic(0.5, 0.9, inhibition=True), ValueError, "Synaptic has no inhibition"),
        (lambda: snn.Leaky(0.9, spike_grad=torch.relu), TypeError, "surrogate of tessera.snn.surrogate"),
        (lambda: snn.RLeaky(0.9), TypeError, "needs linear_features"),
        (lambda: snn.RLeaky(0.9, all_to_all=False, linear_features=3), TypeError, "no linear_features"),
        (lambda: snn.RLeaky(0.9, conv2d_channels=3, kernel_size=3), ValueError, "no convolutions"),
        (lambda: snn.Synaptic(0.5, 0.9, reset_mechanism="zero", reset_gradient="attached"), ValueError, "late reset"),
        (lambda: surrogate.atan(0), ValueError, "the slope must be above 0"),
        (lambda: snn.Leaky(0.9)(torch.rand(4, 5)), ValueError, r"it must be \[T, batch"),
        (lambda: snn.Leaky(0.9)(np.zeros((2, 2, 2))), TypeError, "takes a tensor of currents"),
        (lambda: snn.Leaky(0.9)(torch.zeros(2, 2, 2, dtype=torch.int64)), TypeError, "it must be floating-point"),
        (lambda: snn.Leaky(torch.rand(4))(torch.rand(2, 2, 3)), ValueError, "beta has shape"),
        (lambda: snn.Leaky(0.9)(torch.rand(2, 2, 3), torch.rand(3)), ValueError, "mem has shape"),
        (lambda: snn.RLeaky(0.9, linear_features=4)(torch.rand(2, 2, 3)), ValueError, "must be linear_features"),
        (lambda: snn.Readout(0.9)(torch.rand(2, 2, 3), syn=torch.rand(2, 3)), ValueError, "no synaptic current"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_losses():
    torch.manual_seed(0)
    spikes, membrane = (torch.rand(T, 4, 5) > 0.8).float(), torch.randn(T, 4, 5)
    target = torch.tensor([0, 3, 2, 4])
    cross = torch.nn.functional.cross_entropy
    f = snn.functional
    assert f.ce_count_loss(spikes, target) == cross(spikes.sum(0), target)
    assert f.ce_last_membrane_loss(membrane, target) == cross(membrane[-1], target)
    assert f.ce_max_membrane_loss(membrane, target) == cross(membrane.max(0).values, target)
    assert f.ce_mean_membrane_loss(membrane, target) == cross(membrane.mean(0), target)
    certain = torch.zeros(T, 4, 5)
    certain[:, torch.arange(4), target] = 1
    assert f.mse_rate_loss(certain, target) == 0 and f.mse_rate_loss(1 - certain, target) == 1
    assert f.activity(certain) == 0.2
    rates = spikes.mean((0, 1))
    assert torch.allclose(f.upper_activity_loss(spikes, 0.1), (rates - 0.1).clamp(min=0).square().mean())
    assert torch.allclose(f.lower_activity_loss(spikes, 0.3), (0.3 - rates).clamp(min=0).square().mean())
    with pytest.raises(ValueError, match="the number of a class for each sample"):
        f.ce_count_loss(spikes, target[:2])
    with pytest.raises(ValueError, match="it must be"):
        f.ce_count_loss(spikes[0], target)


def test_a_network_learns():
    """It learns to tell which of two groups of inputs is more active."""
    torch.manual_seed(0)
    model = torch.nn.ModuleList([torch.nn.Linear(10, 20), snn.Leaky(0.9, learn_beta=True), torch.nn.Linear(20, 2)])
    readout = snn.Readout(0.9)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in itertools.count():
        target = torch.randint(2, (32,))
        rates = torch.full((32, 2, 5), 0.1)
        rates[torch.arange(32), target] = 0.4
        x = (torch.rand(20, 32, 10) < rates.flatten(1)).float()
        loss = snn.functional.ce_mean_membrane_loss(readout(model[2](model[1](model[0](x))[0])), target)
        if loss < 0.1:
            break
        assert step < 200
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
