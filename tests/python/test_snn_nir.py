"""Exchange of spiking networks by NIR, and through snnTorch."""

import pytest

torch = pytest.importorskip("torch")
nir = pytest.importorskip("nir", reason="needs the package nir")

import numpy as np
from torch.nn import Linear

from tessera import snn
from tessera.snn import Network, from_nir, to_nir

T, BATCH = 12, 5
ZERO = {"reset_mechanism": "zero", "reset_delay": False}


def currents(features, seed=0):
    return torch.rand(T, BATCH, features, generator=torch.Generator().manual_seed(seed))


def network_of(hidden, last=None, bias=True):
    torch.manual_seed(1)
    last = last or snn.Readout(0.8)
    network = Network(Linear(6, 8, bias=bias), hidden, Linear(8, 3, bias=False), last, backend="dense")
    with torch.no_grad():
        network[0].weight.abs_()
    return network


HIDDEN = {
    "Leaky": lambda: snn.Leaky(0.9, 0.8, **ZERO),
    "Leaky with each": lambda: snn.Leaky(0.5 + 0.4 * torch.rand(8), 0.5 + torch.rand(8), gain=0.7, **ZERO),
    "Synaptic": lambda: snn.Synaptic(0.6, 0.9, **ZERO),
    "RLeaky": lambda: snn.RLeaky(0.9, linear_features=8, **ZERO),
    "RLeaky without bias": lambda: snn.RLeaky(0.9, linear_features=8, recurrent_bias=False, **ZERO),
    "RLeaky one to one": lambda: snn.RLeaky(0.9, V=0.2 * torch.rand(8), all_to_all=False, **ZERO),
    "RSynaptic": lambda: snn.RSynaptic(0.6, 0.9, linear_features=8, **ZERO),
}


@pytest.mark.pairs(3)
@pytest.mark.parametrize("hidden", list(HIDDEN))
@pytest.mark.parametrize(
    "last", [lambda: snn.Readout(0.8), lambda: snn.Readout(0.8, 0.5), lambda: snn.Leaky(0.8, **ZERO)]
)
def test_round_trip(hidden, last, tmp_path):
    network = network_of(HIDDEN[hidden](), last())
    graph = to_nir(network, dt=1e-3)
    nir.write(tmp_path / "network.nir", graph)
    x = currents(6)
    for read in (graph, nir.read(tmp_path / "network.nir")):
        again = from_nir(read)
        assert [type(each) for each in again] == [type(each) for each in network]
        assert torch.allclose(again(x), network(x), rtol=1e-4, atol=1e-5)


def test_shapes_and_metadata():
    graph = to_nir(network_of(HIDDEN["Leaky"]()), dt=1e-3)
    lif = graph.nodes["1"]
    for name in ("tau", "r", "v_leak", "v_threshold", "v_reset"):
        assert getattr(lif, name).shape == (8,)
    assert np.allclose(1 - 1e-3 / lif.tau, 0.9) and np.allclose(lif.r * 1e-3 / lif.tau, 1) and not lif.v_reset.any()
    assert lif.metadata == {"dt": 1e-3, "reset_mechanism": "zero", "reset_delay": False}
    assert graph.metadata == {"dt": 1e-3}
    assert isinstance(graph.nodes["0"], nir.Affine) and isinstance(graph.nodes["2"], nir.Linear)
    assert isinstance(graph.nodes["3"], nir.LI)


def test_other_resets_are_warned_of_and_come_back():
    network = network_of(snn.Leaky(0.9))
    with pytest.warns(UserWarning, match="layer 1 resets by 'subtract' a step late"):
        graph = to_nir(network)
    again = from_nir(graph)
    assert (again[1].reset_mechanism, again[1].reset_delay) == ("subtract", True)
    x = currents(6)
    assert torch.allclose(again(x), network(x), rtol=1e-4, atol=1e-5)
    graph.nodes["1"].metadata = {}
    assert (from_nir(graph)[1].reset_mechanism, from_nir(graph)[1].reset_delay) == ("zero", False)


def test_scales_go_into_the_weights():
    ones = np.ones(8, np.float32)
    torch.manual_seed(2)
    weight = torch.rand(8, 6).numpy()
    graph = nir.NIRGraph.from_list(
        nir.Input(np.array([6])),
        nir.Linear(weight),
        nir.LIF(tau=1e-2 * ones, r=0.5 * ones, v_leak=0 * ones, v_threshold=0.02 * ones, v_reset=0 * ones),
        nir.Output(np.array([8])),
    )
    network = from_nir(graph, dt=1e-3)
    assert torch.allclose(network[1].beta, torch.tensor(0.9)) and torch.allclose(
        network[1].threshold, torch.tensor(0.02)
    )
    assert torch.allclose(network[0].weight, 0.05 * torch.from_numpy(weight))
    sparse = from_nir(graph, dt=1e-3, backend="sparse", gradient_threshold=0.0)
    x = (currents(6) > 0.8).float()
    assert torch.equal(sparse(x), network(x)) and network(x).sum() > 0


def snntorch_with_nir():
    pytest.importorskip("nirtorch", reason="needs nirtorch")
    return pytest.importorskip("snntorch", reason="needs snnTorch")


@pytest.mark.parametrize("kind", ["Leaky", "Synaptic"])
def test_snntorch_reads_what_is_written(kind):
    """It reads recurrent neurons as weights before neurons."""
    snntorch_with_nir()
    from snntorch.import_nir import import_from_nir

    network, x = network_of(HIDDEN[kind](), snn.Leaky(0.8, **ZERO)), currents(6)
    expected = network(x)
    theirs = import_from_nir(to_nir(network))
    state, found = None, []
    for step in x:
        out, state = theirs(step, state)
        found.append(out)
    assert torch.equal(torch.stack(found), expected) and 0 < expected.mean() < 1


@pytest.mark.parametrize("kind", ["Leaky", "Synaptic", "RLeaky"])
def test_what_snntorch_writes_is_read(kind):
    snntorch = snntorch_with_nir()
    from snntorch.export_nir import export_to_nir

    torch.manual_seed(3)
    arguments = {"init_hidden": True, **ZERO}
    of_hidden = {"beta": torch.full((8,), 0.9), "threshold": torch.ones(8), **arguments}
    if kind == "Synaptic":
        of_hidden["alpha"] = torch.full((8,), 0.6)
    if kind == "RLeaky":
        of_hidden["linear_features"] = 8
    layer = getattr(snntorch, kind)(**of_hidden)
    last = snntorch.Leaky(torch.full((3,), 0.8), torch.ones(3), **arguments)
    sequential = torch.nn.Sequential(Linear(6, 8), layer, Linear(8, 3), last)
    with torch.no_grad():
        for each in (sequential[0], sequential[2]):
            each.weight.abs_()
        ours, x = from_nir(export_to_nir(sequential, torch.rand(1, 6), ignore_dims=[0])), currents(6)
        for each in (layer, last):
            each.reset_mem()
        found = ours(x)
        assert torch.equal(found, torch.stack([sequential(step) for step in x])) and 0 < found.mean() < 1


def test_refused():
    with pytest.raises(ValueError, match="no time constant"):
        to_nir(network_of(snn.Leaky(1.0, **ZERO)))
    with pytest.raises(ValueError, match="it must be above 0"):
        to_nir(network_of(HIDDEN["Leaky"]()), dt=0)
    graph = to_nir(network_of(HIDDEN["Leaky"]()))
    with pytest.raises(ValueError, match="below the time step"):
        from_nir(graph, dt=1.0)
    graph.nodes["1"].v_leak = np.ones(8)
    with pytest.raises(ValueError, match="v_leak or v_reset"):
        from_nir(graph)
    graph.edges.append(("0", "2"))
    with pytest.raises(ValueError, match="one after the other"):
        from_nir(graph)
