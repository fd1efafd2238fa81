"""Magnitude, SET and RigL: the blocks that they drop and grow; state follows."""

import copy

import pytest

torch = pytest.importorskip("torch")

from tessera import _blocks, sparse
from tessera.nn import SparseLinear, load_optimizer_state

SIZES = [1, 8]


def model_of(block_size, seed=0, density=0.3):
    torch.manual_seed(seed)
    options = {"density": density, "block_size": block_size, "dynamic": True}
    return torch.nn.Sequential(SparseLinear(40, 64, **options), torch.nn.ReLU(), SparseLinear(64, 24, **options))


def optimizer_of(model):
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def step_of(model, optimizer, generator):
    x, target = torch.randn(32, 40, generator=generator), torch.randn(32, 24, generator=generator)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), target).backward()
    optimizer.step()
    return x, target


def dense_of(layer, packed):
    values = layer.unpack(packed)
    return _blocks.scatter_blocks(values, layer._positions(), layer._shape(), layer.block_size)


@pytest.mark.parametrize("block_size", SIZES)
@pytest.mark.parametrize("kind", ["SET", "RigL"])
def test_drops_the_weakest_and_state_follows(block_size, kind):
    model = model_of(block_size)
    optimizer = optimizer_of(model)
    schedule = getattr(sparse, kind)(model, optimizer, fraction=0.4, every=3)
    generator = torch.Generator().manual_seed(1)
    for _ in range(2):
        step_of(model, optimizer, generator)
        assert not schedule.step()
    step_of(model, optimizer, generator)
    before = copy.deepcopy(model)
    moments = [dense_of(m, optimizer.state[m.weight]["exp_avg"]) for m in (model[0], model[2])]
    gradients = [dense_of(m, m.weight.grad) for m in (model[0], model[2])]
    assert schedule.step()
    layers = zip((before[0], before[2]), (model[0], model[2]), moments, gradients, strict=True)
    for old, layer, moment, gradient in layers:
        scores = _blocks.blocks_of(old.dense_weight().abs(), block_size).sum((2, 3)).reshape(-1)
        stored = old._positions()
        count = int(0.4 * stored.numel())
        weakest = stored[scores[stored].sort().indices[:count]]
        kept = torch.zeros(scores.numel(), dtype=torch.bool)
        kept[stored] = True
        kept[weakest] = False
        now = torch.zeros_like(kept)
        now[layer._positions()] = True
        assert layer.blocks == old.blocks
        assert bool((now | ~kept).all())  # kept blocks are there
        mask = old.mask() & layer.mask()
        assert torch.equal(layer.dense_weight(), old.dense_weight() * mask)
        assert torch.equal(dense_of(layer, optimizer.state[layer.weight]["exp_avg"]), moment * mask)
        assert torch.equal(dense_of(layer, layer.weight.grad), gradient * mask)
    for _ in range(4):
        step_of(model, optimizer, generator)
        schedule.step()
    for layer in (model[0], model[2]):
        assert torch.equal(layer.pack(layer.unpack(layer.weight)), layer.weight)


@pytest.mark.parametrize("block_size", SIZES)
@pytest.mark.parametrize("accumulate", [1, 3])
def test_rigl_grows_where_a_masked_dense_model_has_the_largest_gradient(block_size, accumulate):
    model = model_of(block_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    schedule = sparse.RigL(model, optimizer, fraction=0.5, every=2)
    generator = torch.Generator().manual_seed(1)
    step_of(model, optimizer, generator)
    schedule.step()
    reference = torch.nn.Sequential(model[0].to_dense(), torch.nn.ReLU(), model[2].to_dense())
    optimizer.zero_grad()
    for _ in range(accumulate):
        x, target = torch.randn(32, 40, generator=generator), torch.randn(32, 24, generator=generator)
        for m in (model, reference):
            torch.nn.functional.mse_loss(m(x), target).backward()
    optimizer.step()
    before = [copy.deepcopy(layer) for layer in (model[0], model[2])]
    schedule.step()
    for old, layer, dense in zip(before, (model[0], model[2]), (reference[0], reference[2]), strict=True):
        values = _blocks.blocks_of(old.dense_weight().abs(), block_size).sum((2, 3)).reshape(-1)
        stored = old._positions()
        count = int(0.5 * stored.numel())
        remaining = stored[values[stored].sort(descending=True).indices[: stored.numel() - count]]
        scores = _blocks.blocks_of(dense.weight.grad.abs(), block_size).sum((2, 3)).reshape(-1)
        scores[remaining] = -1
        grown = scores.sort(descending=True).indices[:count]
        expected = torch.cat((remaining, grown)).sort().values
        assert torch.equal(layer._positions(), expected)


def test_rigl_needs_the_gradient():
    model = model_of(1)
    schedule = sparse.RigL(model, optimizer_of(model), every=1)
    with pytest.raises(RuntimeError, match="no gradient to grow by"):
        schedule.step()


def test_set_resumes_with_the_same_patterns():
    def run(stop):
        model = model_of(1)
        optimizer = optimizer_of(model)
        schedule = sparse.SET(model, optimizer, every=2, seed=5)
        generator = torch.Generator().manual_seed(1)
        for step in range(8):
            if step == stop:
                states = copy.deepcopy((model.state_dict(), optimizer.state_dict(), schedule.state_dict()))
                model = model_of(1, seed=9)
                optimizer = optimizer_of(model)
                schedule = sparse.SET(model, optimizer, every=2, seed=5)
                model.load_state_dict(states[0])
                optimizer.load_state_dict(states[1])
                schedule.load_state_dict(states[2])
            step_of(model, optimizer, generator)
            schedule.step()
        return model

    whole, resumed = run(None), run(5)
    for a, b in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("block_size", SIZES)
def test_magnitude_prunes_gradually(block_size):
    model = model_of(block_size, density=0.5)
    optimizer = optimizer_of(model)
    schedule = sparse.Magnitude(model, optimizer, density=0.1, every=5, until=18)
    generator = torch.Generator().manual_seed(1)
    sizes = [model[0].weight.shape, model[0].col_indices.shape]
    densities = []
    for _ in range(20):
        step_of(model, optimizer, generator)
        if schedule.step():
            densities.append(model[0].density)
    assert len(densities) == 4 and densities == sorted(densities, reverse=True)
    assert densities[-1] == _blocks.count_for(0.1, model[0]._grid()[0] * model[0]._grid()[1]) / (
        model[0]._grid()[0] * model[0]._grid()[1]
    )
    assert [model[0].weight.shape, model[0].col_indices.shape] == sizes
    with pytest.raises(ValueError, match=r"cannot be pruned to 0\.9"):
        sparse.Magnitude(model, optimizer, density=0.9, until=3)


def test_random_positions_are_uniform():
    taken = torch.tensor([1, 2, 3, 8])
    counts = torch.zeros(12)
    for seed in range(3000):
        chosen = sparse._random_others(taken, 12, 3, torch.Generator().manual_seed(seed))
        assert chosen.numel() == 3 and not set(chosen.tolist()) & set(taken.tolist())
        counts[chosen] += 1
    expected = 3000 * 3 / 8
    others = counts[[0, 4, 5, 6, 7, 9, 10, 11]]
    assert ((others - expected).abs() < 6 * expected**0.5).all()
    assert sparse._random_others(taken, 12, 100, torch.Generator()).numel() == 8


def test_largest_finds_the_same_as_sorting():
    torch.manual_seed(0)
    for scores in (torch.rand(3_000_000), torch.rand(3_000_000).pow(8), torch.zeros(2_000_000)):
        in_order = scores.sort().values
        for count in (1, 1000, 200_000):
            found = _blocks.largest(scores, count)
            assert found.unique().numel() == count
            assert torch.equal(scores[found].sort().values, in_order[-count:])


@pytest.mark.parametrize("assign", [False, True])
def test_rigl_goes_on_after_a_model_is_loaded(assign):
    model = model_of(1)
    optimizer = optimizer_of(model)
    schedule = sparse.RigL(model, optimizer, every=2)
    generator = torch.Generator().manual_seed(1)
    step_of(model, optimizer, generator)
    assert not schedule.step()
    model.load_state_dict(copy.deepcopy(model.state_dict()), assign=assign)
    step_of(model, optimizer, generator)
    assert schedule.step()


def test_refuses_bad_options_and_states():
    model = model_of(1)
    optimizer = optimizer_of(model)
    for kind in (sparse.SET, sparse.RigL):
        for wrong in (1.5, "a", True, None):
            with pytest.raises(TypeError, match="every must be a whole number"):
                kind(model, optimizer, every=wrong)
        with pytest.raises(TypeError, match="fraction is 'a'"):
            kind(model, optimizer, fraction="a")
        with pytest.raises(TypeError, match="unexpected keyword argument 'foo'"):
            kind(model, optimizer, foo=1)
    for until in (0, -5):
        for kind, options in ((sparse.SET, {}), (sparse.Magnitude, {"density": 0.1})):
            with pytest.raises(ValueError, match=f"until is {until}"):
                kind(model, optimizer, until=until, **options)
    with pytest.raises(TypeError, match="until must be a whole number, not None"):
        sparse.Magnitude(model, optimizer, density=0.1, until=None)
    schedule = sparse.SET(model, optimizer)
    for state in ({}, None, []):
        with pytest.raises(ValueError, match="a dictionary with 'steps'"):
            schedule.load_state_dict(state)
    with pytest.raises(ValueError, match="steps is -5"):
        schedule.load_state_dict({"steps": -5})
    with pytest.raises(TypeError, match="steps must be a whole number, not 'a'"):
        schedule.load_state_dict({"steps": "a"})
    magnitude = sparse.Magnitude(model, optimizer, density=0.1, until=5)
    for state in ({}, {"steps": 4}, {"steps": 4, "first": []}, {"steps": 4, "first": [3, None]}):
        with pytest.raises(ValueError, match="each of the 2 dynamic layers"):
            magnitude.load_state_dict(state)
    assert magnitude.steps == schedule.steps == 0


def test_refuses_what_is_no_state_of_an_optimizer():
    model = model_of(1)
    optimizer = optimizer_of(model)
    step_of(model, optimizer, torch.Generator().manual_seed(1))
    state, of_model = optimizer.state_dict(), model.state_dict()
    for wrong in ({}, None, {"state": {}}, {"state": None, "param_groups": []}):
        with pytest.raises(ValueError, match="not an optimizer's state"):
            load_optimizer_state(optimizer, wrong, model, of_model)
    with pytest.raises(ValueError, match="parameter 0 is None"):
        load_optimizer_state(optimizer, {**state, "state": {0: None}}, model, of_model)
    with pytest.raises(ValueError, match="no sparse weight for 0"):
        load_optimizer_state(optimizer, state, model, {})


def test_needs_dynamic_layers():
    model = torch.nn.Sequential(SparseLinear(8, 8, density=0.5))
    with pytest.raises(ValueError, match="no dynamic SparseLinear"):
        sparse.SET(model, None)
    with pytest.raises(ValueError, match="fraction is 2"):
        sparse.SET(model_of(1), None, fraction=2)
    with pytest.raises(ValueError, match="every is 0"):
        sparse.RigL(model_of(1), None, every=0)
