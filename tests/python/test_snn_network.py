"""Networks that pass lists of spikes: against dense layers, capacities, events, operators, wrong arguments."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import Linear

from tessera import snn
from tessera.snn import Network, SpikeEvents, _network_operators

T, BATCH, INPUTS = 20, 9, 30


def spikes(features=INPUTS, activity=0.1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(T, BATCH, features, generator=generator) < activity).float()


def layers(kind="Leaky", last="Readout", learns=False, **settings):
    torch.manual_seed(4)

    def each(low, high):
        return low + (high - low) * torch.rand(25) if learns else (low + high) / 2

    arguments = {"beta": each(0.7, 0.9), "threshold": each(0.9, 1.1), "learn_beta": learns, "learn_threshold": learns}
    if "Synaptic" in kind:
        arguments |= {"alpha": each(0.3, 0.6), "learn_alpha": learns}
    if kind.startswith("R"):
        arguments |= {"linear_features": 25, "recurrent_bias": False}
    hidden = getattr(snn, kind)(**arguments, **settings)
    end = snn.Readout(0.9, learn_beta=learns) if last == "Readout" else snn.Leaky(0.8)
    modules = [Linear(INPUTS, 25, bias=False), hidden, Linear(25, 7, bias=False), end]
    with torch.no_grad():
        modules[0].weight.add_(0.06).mul_(1.2 if "Synaptic" in kind else 2.0)
        modules[2].weight.add_(0.1)
    return modules


def gradients(network, x):
    result = network(x)
    generator = torch.Generator().manual_seed(6)
    network.zero_grad()
    (result * torch.randn(result.shape, generator=generator)).sum().backward()
    return result, [parameter.grad for parameter in network.parameters()]


SETTINGS = [
    {},
    {"reset_mechanism": "zero"},
    {"reset_mechanism": "none"},
    {"reset_delay": False},
    {"reset_mechanism": "zero", "reset_delay": False},
    {"reset_mechanism": "zero", "reset_gradient": "detached", "gain": 1.5, "fires_at_threshold": True},
]


@pytest.mark.every_nth(5)
@pytest.mark.parametrize("kind", ["Leaky", "Synaptic", "RLeaky", "RSynaptic"])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("learns", [False, True])
def test_sparse_is_dense_where_all_is_listed(kind, settings, learns):
    sparse = Network(*layers(kind, learns=learns, **settings))
    dense = Network(*copy.deepcopy(list(sparse)), backend="dense")
    x = spikes()
    result, found = gradients(sparse, SpikeEvents.from_dense(x))
    expected, right = gradients(dense, x)
    assert torch.allclose(result, expected, rtol=1e-4, atol=1e-4)
    for (name, _), got, exact in zip(sparse.named_parameters(), found, right, strict=True):
        assert torch.allclose(got, exact, rtol=1e-3, atol=3e-4 * float(1 + exact.detach().abs().max())), name
    counts = sparse.counts
    assert 0.02 * T * BATCH * 25 < counts[0].spikes < 0.8 * T * BATCH * 25
    assert counts[0].spikes + counts[0].candidates == T * BATCH * 25 and counts[1] == (0, 0, 0, 0)


def test_the_last_layer_may_spike():
    sparse = Network(*layers(last="Leaky"))
    dense = Network(*sparse, backend="dense")
    x = spikes()
    (result, found), (expected, right) = gradients(sparse, x), gradients(dense, x)
    assert torch.equal(result, expected) and result.sum() > 0
    right = [each.clone() for each in right]
    _, found = gradients(sparse, x)
    for got, exact in zip(found, right, strict=True):
        assert torch.allclose(got, exact, rtol=1e-3, atol=1e-3)


def test_states_are_as_long_as_they_need():
    """The formula for compilers against the sizes that the library needs."""
    for kind in ("Leaky", "RSynaptic"):
        for settings in SETTINGS:
            for trains, learns in ((False, False), (True, False), (True, True)):
                network = Network(*layers(kind, learns=learns, **settings), capacities=[6])
                kind_of = (network._described, [6, 0], trains, learns, False)
                for steps, batch in ((1, 1), (13, 5)):
                    native = _network_operators._native(steps, batch, INPUTS, kind_of)
                    room = _network_operators._state_bytes(steps, batch, kind_of)
                    assert room - 64 * 14 <= native.state_bytes <= room


def test_capacities_and_thresholds():
    x = SpikeEvents.from_dense(spikes())
    few = Network(*layers(), gradient_threshold=0.7, capacities=[3], seed=5)
    few(x)
    counts = few.counts[0]
    assert counts.dropped_spikes > 0 and counts.spikes <= 3 * T * BATCH
    with torch.no_grad():
        first, again = few(x), few(x)  # both are of the same step
    assert torch.equal(first, again)
    assert few.step == 1
    few.seed = 6
    with torch.no_grad():
        assert not torch.equal(few(x), first)
    few.most_listed = 1
    few(x)
    assert few.counts[0].spikes <= T * BATCH

    # A gradient passes only above the threshold: the higher it is, the fewer pass.
    candidates = []
    for threshold in (None, 0.5, 0.9):
        network = Network(*layers(), gradient_threshold=threshold)
        network(x)
        assert network.counts[0].dropped_spikes == 0
        candidates.append(network.counts[0].candidates)
    assert candidates[0] > candidates[1] > candidates[2] > 0


@pytest.mark.parametrize("kind", ["Leaky", "RSynaptic"])
def test_losses_on_the_activity_of_hidden_layers(kind):
    torch.manual_seed(3)
    deep = [*layers(kind)[:2], Linear(25, 12, bias=False), snn.Leaky(0.8), Linear(12, 4, bias=False), snn.Readout(0.9)]
    with torch.no_grad():
        deep[2].weight.add_(0.15)
    sparse = Network(*deep)
    dense = Network(*copy.deepcopy(deep), backend="dense")
    x, found = spikes(), []
    for network in (sparse, dense):
        membrane, counts = network(x, return_counts=True)
        assert [each.shape for each in counts] == [(BATCH, 25), (BATCH, 12)] and counts[1].sum() > 0
        random = torch.Generator().manual_seed(6)
        weights = [torch.randn(each.shape, generator=random) for each in (membrane, *counts)]
        sum((w * each).sum() for w, each in zip(weights, (membrane, *counts), strict=True)).backward()
        found.append([*counts, *(parameter.grad for parameter in network.parameters())])
    for got, exact in zip(*found, strict=True):
        assert torch.allclose(got, exact, rtol=1e-3, atol=3e-4 * float(1 + exact.detach().abs().max()))


def test_several_passes_await_their_gradients():
    network = Network(*layers())
    one, two = (SpikeEvents.from_dense(spikes(seed=seed)) for seed in (1, 2))
    _, of_one = gradients(network, one)
    _, of_two = gradients(network, two)
    first, second = network(one), network(two)
    generator = torch.Generator().manual_seed(6)
    random = torch.randn(first.shape, generator=generator)
    for result, expected in ((first, of_one), (second, of_two)):
        network.zero_grad()
        (result * random).sum().backward()
        for parameter, right in zip(network.parameters(), expected, strict=True):
            assert torch.equal(parameter.grad, right)


def test_operator(monkeypatch):
    # States are compared bit by bit, also where nothing is written.
    monkeypatch.setattr(
        _network_operators,
        "_new_state",
        lambda ids, kind: ids.new_zeros((_network_operators._state_bytes(*ids.shape[:2], kind),), dtype=torch.uint8),
    )
    network = Network(*layers(learns=True))
    events = SpikeEvents.from_dense(spikes()[:5])
    parameters = [p.detach().clone().requires_grad_() for p in network._parameters_of_layers()]
    kind = (network._described, [0, 0], True, True, True)
    arguments = (events.ids, events.num, parameters, *kind, 0.0, 2**32 - 1, 0, 0)
    torch.library.opcheck(torch.ops.tessera.spiking_network.default, arguments)


def test_compiled_without_breaks():
    network = Network(*layers("RLeaky", learns=True))
    x = SpikeEvents.from_dense(spikes())
    result, right = gradients(network, x)
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    network.zero_grad()
    found = compiled(x)
    generator = torch.Generator().manual_seed(6)
    (found * torch.randn(found.shape, generator=generator)).sum().backward()
    assert torch.equal(found, result)
    for parameter, expected in zip(network.parameters(), right, strict=True):
        assert torch.allclose(parameter.grad, expected)


def test_states_are_those_of_sequential():
    network = Network(*layers("RLeaky", learns=True))
    assert list(network.state_dict()) == list(torch.nn.Sequential(*layers("RLeaky", learns=True)).state_dict())
    other = copy.deepcopy(network)
    x = spikes()
    assert torch.equal(other(x), network(x))


@pytest.mark.parametrize("activity", [0.0, 0.05, 1.0])
def test_events_from_dense(activity):
    dense = spikes(activity=activity)
    events = SpikeEvents.from_dense(dense)
    assert events.shape == (T, BATCH, INPUTS) and events.count() == dense.sum()
    assert torch.equal(events.to_dense(), dense)
    assert torch.equal(SpikeEvents.from_dense(dense.bool(), capacity=INPUTS).to_dense(), dense)
    assert torch.equal(events[:, [3, 1]].to_dense(), dense[:, [3, 1]])
    assert torch.equal(events[2:5, 4:].to_dense(), dense[2:5, 4:])


def test_events_with_many_features():
    dense = torch.zeros(1, 1, 65_536)
    dense[0, 0, [0, 32_767, 32_768, 65_535]] = 1
    events = SpikeEvents.from_dense(dense)
    assert torch.equal(events.to_dense(), dense)
    network = Network(Linear(65_536, 2, bias=False), snn.Readout(0.5))
    assert torch.allclose(network(events), network[1](network[0](dense)), atol=1e-6)


def test_events_from_structured_arrays():
    kind = np.dtype([("x", np.int16), ("y", np.int16), ("t", np.int64), ("p", bool)])
    one = np.array([(1, 0, 100, True), (2, 1, 130, False), (2, 1, 139, False), (0, 2, 199, True)], kind)
    two = np.array([(0, 0, 7, False)], kind)
    events = SpikeEvents.from_events([one, two], 4, (3, 3, 2), dt=30)
    frames = torch.zeros(4, 2, 2, 3, 3)
    frames[0, 0, 1, 0, 1] = frames[1, 0, 0, 1, 2] = frames[3, 0, 1, 2, 0] = frames[0, 1, 0, 0, 0] = 1
    assert torch.equal(events.to_dense(), frames.flatten(2))
    assert SpikeEvents.from_events(one, 3, (3, 3, 2), dt=30).count() == 2  # the last comes later
    stretched = SpikeEvents.from_events(one, 10, (3, 3, 2)).to_dense()
    assert stretched.sum() == 3 and stretched[9].sum() == 1  # two are in one step
    seconds = one.astype([("x", np.int16), ("y", np.int16), ("t", np.float64), ("p", bool)])
    seconds["t"] *= 1e-6
    assert SpikeEvents.from_events(seconds, 9, (3, 3, 2)).to_dense().nonzero()[:, 0].tolist() == [0, 2, 3, 8]
    assert SpikeEvents.from_events(seconds[:1], 9, (3, 3, 2)).to_dense().nonzero()[:, 0].tolist() == [0]
    units = np.array([(5, 10), (3, 10)], [("x", np.int64), ("t", np.int64)])
    assert SpikeEvents.from_events(units, 1, (700, 1, 1)).to_dense().nonzero()[:, 2].tolist() == [3, 5]
    assert SpikeEvents.from_events(np.array([], kind), 3, (3, 3, 2)).count() == 0
    with pytest.raises(ValueError, match="events with y from 0 to 2; the sensor has 0 to 1"):
        SpikeEvents.from_events(one, 4, (3, 2, 2))
    with pytest.raises(TypeError, match="not a structured array"):
        SpikeEvents.from_events([np.zeros((3, 4))], 4, (3, 3, 2))


def small(*neurons, **options):
    return Network(Linear(4, 3, bias=False), *neurons, **options)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Network(), ValueError, "needs layers"),
        (lambda: small(), TypeError, "by turns"),
        (lambda: small(torch.nn.ReLU()), TypeError, "ReLU"),
        (lambda: small(snn.Readout(0.9), Linear(3, 2), snn.Readout(0.9)), ValueError, "must be the last"),
        (lambda: small(snn.Leaky(0.9), Linear(2, 2), snn.Readout(0.9)), ValueError, "2 inputs"),
        (lambda: small(snn.Leaky(torch.rand(5))), ValueError, "beta of layer 1 has 5 elements"),
        (lambda: small(snn.Leaky(0.9), backend="auto"), ValueError, "unknown backend 'auto'"),
        (lambda: Network(Linear(4, 3), snn.Leaky(0.9)), ValueError, "layer 0 has a bias"),
        (lambda: small(snn.RLeaky(0.9, linear_features=3)), ValueError, "layer 1 has a recurrent bias"),
        (lambda: small(snn.RLeaky(0.9, all_to_all=False)), ValueError, "one-to-one"),
        (lambda: small(snn.Leaky(0.9, graded_spikes_factor=2.0)), ValueError, "graded spikes"),
        (lambda: small(snn.Leaky(0.9), backend="dense", capacities=[2]), ValueError, "the backend is dense"),
        (lambda: small(snn.Leaky(0.9), capacities=[4]), ValueError, "a capacity of 4 for 3 neurons"),
        (lambda: small(snn.Leaky(0.9), capacities=[1, 1, 1]), ValueError, "3 capacities"),
        (lambda: small(snn.Leaky(0.9)).counts, RuntimeError, "no sequence has run"),
        (lambda: small(snn.Leaky(0.9))(torch.ones(2, 2, 5)), ValueError, "5 features; the first layer has 4"),
        (lambda: small(snn.Leaky(0.9))(torch.full((2, 2, 4), 0.5)), ValueError, "must be 0 or 1"),
        (lambda: SpikeEvents.from_dense(torch.ones(3, 4)), ValueError, r"it must be \[T, batch, features\]"),
        (lambda: SpikeEvents.from_dense(torch.ones(1, 1, 4), capacity=3), ValueError, "a step has 4 spikes"),
        (lambda: SpikeEvents.from_dense(torch.ones(1, 1, 4))[0], TypeError, "index events by"),
        (lambda: SpikeEvents(torch.zeros(1, 1, 2), torch.zeros(1, 1, 2), 3), TypeError, "int16 and int32"),
        (lambda: SpikeEvents.from_events([], 0, (1, 1, 1)), ValueError, "there must be at least one"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_the_faster_backend_is_chosen():
    network = Network(*layers())
    events = SpikeEvents.from_dense(spikes())
    network(events).sum().backward()
    kept = [parameter.grad.clone() for parameter in network.parameters()]
    seconds = network.choose_backend(events, rounds=1)
    assert set(seconds) == {"sparse", "dense"} and network.backend == min(seconds, key=seconds.get)
    assert network.step == 1
    for parameter, grad in zip(network.parameters(), kept, strict=True):
        torch.testing.assert_close(parameter.grad, grad)
    assert Network(*layers()).requires_grad_(False).choose_backend(spikes(), rounds=1).keys() == seconds.keys()
    limited = Network(*layers(), capacities=[12])
    with pytest.raises(ValueError, match="have other gradients"):
        limited.choose_backend(events)
    with pytest.raises(ValueError, match="0 rounds"):
        network.choose_backend(events, rounds=0)


# Graphs.


def with_resets_now(last="Readout", learns=False):
    return Network(*layers("Leaky", last, learns, reset_delay=False, reset_mechanism="zero"))


@pytest.mark.parametrize("machine", ["host", "gc200"])
@pytest.mark.parametrize("last", ["Readout", "Leaky"])
def test_graphs_give_what_networks_give(machine, last):
    network = with_resets_now(last)
    events = SpikeEvents.from_dense(spikes())
    graph = network.graph(T, BATCH, events.capacity)
    with torch.inference_mode():
        wanted = network(events)
    wanted = wanted.sum(0) if last == "Leaky" else wanted.max(0).values
    np.testing.assert_allclose(graph.session(machine).run(**events.arrays()), wanted, rtol=1e-4, atol=1e-5)


def test_graphs_limit_decays_as_networks_do():
    network = with_resets_now(learns=True)
    with torch.no_grad():
        network[1].beta[::2] = 1.5
        network[-1].beta.fill_(-0.25)
        events = SpikeEvents.from_dense(spikes())
        wanted = network(events).max(0).values
    found = network.graph(T, BATCH, events.capacity).session().run(**events.arrays())
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("machine", "learns"), [("host", False), ("host", True), ("gc200", False)])
def test_graphs_train_as_networks_do(machine, learns):
    network = with_resets_now(learns=learns)
    trained = copy.deepcopy(network)
    events, labels = SpikeEvents.from_dense(spikes()), torch.arange(BATCH) % 7
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    loss = torch.nn.functional.cross_entropy(network(events).max(0).values, labels)
    loss.backward()
    optimizer.step()
    step = trained.graph(T, BATCH, events.capacity).training_step("cross_entropy", "sgd", lr=0.1)
    session = step.session(machine)
    found = session.run(**events.arrays(), labels=labels.numpy().astype(np.uint32))
    assert found == pytest.approx(loss.item(), rel=1e-4)
    trained.copy_from(session)
    for (name, a), b in zip(network.named_parameters(), trained.parameters(), strict=True):
        np.testing.assert_allclose(b.detach(), a.detach(), rtol=2e-3, atol=2e-5, err_msg=name)


def test_graphs_say_what_a_machine_needs():
    graph = with_resets_now().graph(T, BATCH, 8, neurons_per_tile=[4, 0])
    estimate = graph.training_step("cross_entropy", "adam").estimate("gc200")
    assert estimate.fits and estimate.cycles["exchange"] > 0
    with pytest.raises(ValueError, match="neurons per tile are given of 1 spiking layers; there are 2"):
        with_resets_now().graph(T, BATCH, 8, neurons_per_tile=[4]).estimate("gc200")


def test_graphs_refuse_what_lists_lack():
    with pytest.raises(ValueError, match="layer 0 has a bias"):
        Network(Linear(8, 4), snn.Leaky(0.9), backend="dense").graph(T, BATCH, 8)
    with pytest.raises(ValueError, match="unknown potential 'middle'"):
        with_resets_now().graph(T, BATCH, 8, potential="middle")
    with pytest.raises(ValueError, match="no parameter '0.weight'"):
        other = Network(Linear(8, 4, bias=False), snn.Leaky(0.9)).graph(T, BATCH, 8)
        graph = type(other)()
        graph.output("y", graph.input("x", (2, 2)) + 1.0)
        with_resets_now().copy_from(graph.session())


def test_ids_are_checked():
    events = SpikeEvents.from_dense(spikes())
    arrays = events.arrays()
    session = with_resets_now().graph(T, BATCH, events.capacity).session()
    with pytest.raises(ValueError, match="entries must be from 0 to 65535"):
        session.run(**{**arrays, "in.ids": arrays["in.ids"].astype(np.int64) + 65536})


@pytest.mark.parametrize("backend", ["dense", "sparse"])
def test_layers_that_are_replaced_are_computed(backend):
    network = Network(Linear(8, 16, bias=False), snn.Leaky(0.9), Linear(16, 4, bias=False), snn.Readout(0.9), backend=backend)
    events = (torch.rand(5, 3, 8) < 0.5).float()
    network(events)
    network[0] = Linear(8, 16, bias=False)
    same = Network(*network, backend=backend)
    assert torch.equal(network(events), same(events))
    network[0] = Linear(8, 16)
    if backend == "sparse":
        with pytest.raises(ValueError, match="layer 0 has a bias"):
            network(events)
