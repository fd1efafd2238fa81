"""State dicts of sparse layers: refused ones, and layers that have no values yet."""

import copy

import pytest

torch = pytest.importorskip("torch")

from tessera.nn import SparseLinear

FORMS = [(1, False), (1, True), (4, False), (4, True)]
ROOM = {1: 900, 4: 150}


def layer_of(block_size, dynamic, seed=0, density=0.2, in_features=64, **options):
    torch.manual_seed(seed)
    return SparseLinear(in_features, 48, density=density, block_size=block_size, dynamic=dynamic, **options)


def exact(layer, x):
    return torch.nn.functional.linear(x.double(), layer.dense_weight().double(), layer.bias.double())


def assert_same(layer, other):
    x = torch.randn(5, 64)
    assert torch.equal(layer.mask(), other.mask())
    assert torch.allclose(layer(x).double(), exact(other, x), atol=1e-5)


@pytest.mark.parametrize(("block_size", "dynamic"), FORMS)
def test_layers_made_in_inference_mode_take_another_pattern(block_size, dynamic):
    other = layer_of(block_size, dynamic, seed=1)
    with torch.inference_mode():
        layer = layer_of(block_size, dynamic)
        copied = copy.deepcopy(layer)
        x = torch.randn(5, 64)
        layer(x), copied(x)
        for each in (layer, copied):
            each.load_state_dict(other.state_dict())
            assert_same(each, other)
        layer.load_state_dict(copy.deepcopy(layer_of(block_size, dynamic, seed=2).state_dict()), assign=True)
        assert_same(layer, layer_of(block_size, dynamic, seed=2))


def test_index_tensors_of_inference_mode_are_compared():
    with torch.inference_mode():
        layer, other = copy.deepcopy(layer_of(1, True)), layer_of(1, True, seed=1)
        assert layer.col_indices.is_inference()
        layer(torch.randn(5, 64))
        for name in ("crow_indices", "col_indices", "weight", "bias"):
            getattr(layer, name).copy_(getattr(other, name))
        assert_same(layer, other)


@pytest.mark.parametrize(("block_size", "dynamic"), FORMS)
def test_sizes_must_be_the_same(block_size, dynamic):
    state = layer_of(block_size, dynamic).state_dict()
    wider = layer_of(block_size, dynamic, in_features=128)
    with pytest.raises(RuntimeError, match=r"sizes \(48, 64, \d\).*this layer has \(48, 128, \d\)"):
        wider.load_state_dict(state)
    del state["sizes"]  # as in files of earlier versions
    layer = layer_of(block_size, dynamic, seed=1)
    layer.load_state_dict(state)
    assert_same(layer, layer_of(block_size, dynamic))
    narrower = layer_of(block_size, dynamic, in_features=32, density=0.5)
    with pytest.raises(RuntimeError, match="has a block in column"):
        narrower.load_state_dict(state)


def changed(tensor, place, value):
    tensor = tensor.clone()
    tensor[place] = value
    return tensor


DAMAGE = {
    "column": ("col_indices", lambda t: changed(t, 3, 1000), "a block in column 1000"),
    "negative column": ("col_indices", lambda t: changed(t, 3, -4), "-4"),
    "rows": ("crow_indices", lambda t: changed(t, 3, 10**6), "decreases"),
    "beyond 32 bits": ("col_indices", lambda t: changed(t.long(), 3, 2**32), "beyond 32 bits"),
    "list": ("crow_indices", lambda t: t.tolist(), "crow_indices is a list"),
    "none": ("weight", lambda t: None, "the weight is a NoneType"),
    "short": ("weight", lambda t: t[:-3], "does not apply to"),
    "matrix": ("weight", lambda t: t[None], "one-dimensional"),
    "format": ("packed_format", lambda t: t + 90, "packed format 9"),
    "meta": ("packed_format", lambda t: t.to("meta"), "on meta"),
    "missing": ("packed_format", None, "packed_format is missing"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(("block_size", "dynamic"), FORMS)
@pytest.mark.parametrize("saved_dynamic", [False, True])
def test_a_malformed_state_changes_nothing(damage, block_size, dynamic, saved_dynamic):
    name, damaged, message = DAMAGE[damage]
    state = layer_of(block_size, saved_dynamic, seed=1).state_dict()
    if damaged is None:
        del state[name]
    else:
        state[name] = damaged(state[name])
    layer = layer_of(block_size, dynamic)
    before = copy.deepcopy(layer.state_dict())
    x = torch.randn(5, 64)
    y = layer(x)
    for strict in (True, False):
        with pytest.raises(RuntimeError, match=message):
            layer.load_state_dict(state, strict=strict)
    assert all(torch.equal(tensor, before[key]) for key, tensor in layer.state_dict().items())
    assert torch.equal(layer(x), y)


@pytest.mark.parametrize("block_size", [1, 4])
def test_a_static_layer_takes_the_state_of_one_with_room(block_size):
    saved = layer_of(block_size, ROOM[block_size])
    layer = SparseLinear.from_dense(saved.to_dense(), mask=saved.mask(), block_size=block_size)
    layer.load_state_dict(saved.state_dict())
    assert_same(layer, saved)


@pytest.mark.parametrize(("block_size", "dynamic"), FORMS)
def test_layers_on_meta_get_values_by_a_state(block_size, dynamic):
    saved = layer_of(block_size, dynamic, density=0.1)
    with torch.device("meta"):
        made = layer_of(block_size, ROOM[block_size] if dynamic else False, seed=1)
    for layer in (
        made,
        layer_of(block_size, dynamic, seed=1, device="meta"),
        layer_of(block_size, dynamic, seed=1).to("meta"),
    ):
        assert all(tensor.is_meta for tensor in layer.state_dict().values())
        assert "SparseLinear(in_features=64" in repr(layer)
        assert layer(torch.randn(5, 64, device="meta")).shape == (5, 48)
        empty = copy.deepcopy(layer).to_empty(device="cpu")
        with torch.no_grad():
            for buffer in empty.buffers():
                buffer.fill_(77)
        with pytest.raises(RuntimeError, match="no pattern to draw values for"):
            empty.reset_parameters()
        empty.load_state_dict(saved.state_dict())
        assert_same(empty, saved)
        assert empty.state_dict()["sizes"].tolist() == [48, 64, block_size]
        layer.load_state_dict(copy.deepcopy(saved.state_dict()), assign=True)
        assert_same(layer, saved)
        layer(torch.randn(5, 64)).sum().backward()
        assert layer.weight.grad is not None
