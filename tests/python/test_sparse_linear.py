"""SparseLinear as a module: it works with everything that PyTorch does with modules."""

import copy
import io
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils import prune

import tessera.nn
from tessera.nn import SparseLinear

FORMS = [(1, False), (1, True), (8, False), (8, True)]


def model_of(block_size=8, dynamic=False, seed=0, density=0.3):
    torch.manual_seed(seed)
    options = {"density": density, "block_size": block_size, "dynamic": dynamic}
    return torch.nn.Sequential(
        SparseLinear(40, 64, activation="relu", **options), torch.nn.LayerNorm(64), SparseLinear(64, 24, **options)
    )


def train(model, steps=5, optimizer=None, seed=1):
    generator = torch.Generator().manual_seed(seed)
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    for _ in range(steps):
        x, target = torch.randn(16, 40, generator=generator), torch.randn(16, 24, generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), target).backward()
        optimizer.step()
    return optimizer


@pytest.mark.parametrize(("block_size", "dynamic"), FORMS)
def test_from_dense_keeps_the_largest_blocks(block_size, dynamic):
    torch.manual_seed(0)
    dense = torch.nn.Linear(48, 80)
    layer = SparseLinear.from_dense(dense, density=0.25, block_size=block_size, dynamic=dynamic)
    norms = tessera._blocks.block_norms(dense.weight.detach(), block_size)
    bound = norms.sort(descending=True).values[layer.blocks - 1]
    kept = (norms >= bound).reshape(-1, -(-48 // block_size))
    mask = kept.repeat_interleave(block_size, 0).repeat_interleave(block_size, 1)[:80, :48]
    assert torch.equal(layer.mask(), mask)
    back = layer.to_dense()
    assert torch.equal(back.weight, dense.weight * mask)
    assert torch.equal(back.bias, dense.bias)
    again = SparseLinear.from_dense(back, mask=mask, block_size=block_size, dynamic=dynamic)
    assert torch.equal(again.weight, layer.weight)


@pytest.mark.parametrize(("block_size", "dynamic"), FORMS)
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW", "RMSprop", "Adagrad"])
def test_optimizers_leave_empty_places_zero_and_follow_a_masked_dense_model(block_size, dynamic, optimizer):
    torch.manual_seed(0)
    sparse = SparseLinear(40, 24, density=0.3, block_size=block_size, dynamic=dynamic)
    dense = sparse.to_dense()
    mask = sparse.mask()
    options = {"lr": 1e-2, "weight_decay": 0.1} | ({"momentum": 0.9} if optimizer == "SGD" else {})
    optimizers = [getattr(torch.optim, optimizer)(m.parameters(), **options) for m in (sparse, dense)]
    for _ in range(10):
        x, target = torch.randn(16, 40), torch.randn(16, 24)
        for m, o in zip((sparse, dense), optimizers, strict=True):
            o.zero_grad()
            torch.nn.functional.mse_loss(m(x), target).backward()
            if m is dense:
                dense.weight.grad *= mask
            o.step()
    assert torch.allclose(sparse.dense_weight(), dense.weight, atol=1e-4)
    repacked = sparse.pack(sparse.unpack(sparse.weight))
    assert torch.equal(repacked, sparse.weight)  # nothing between the values


@pytest.mark.parametrize(("block_size", "dynamic"), FORMS)
def test_copies_and_files(block_size, dynamic, tmp_path):
    model = model_of(block_size, dynamic)
    train(model)
    x = torch.randn(3, 40)
    expected = model(x)
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    other = model_of(block_size, dynamic, seed=5)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    for m in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded, other):
        assert torch.equal(m(x), expected)
        train(m)  # and is its own
    assert torch.equal(model(x), expected)
    assert set(model[0].state_dict()) == {"weight", "bias", "crow_indices", "col_indices", "packed_format", "sizes"}


@pytest.mark.parametrize("block_size", [1, 8])
@pytest.mark.parametrize("to_dynamic", [False, True])
def test_loading_converts_formats(block_size, to_dynamic):
    """Static to dynamic with more room, and back; the optimizer's state follows."""
    room = 900 if block_size == 1 else 14
    saved = model_of(block_size, False if to_dynamic else room)
    other = model_of(block_size, room if to_dynamic else False, seed=7)
    optimizer = train(saved)
    other.load_state_dict(saved.state_dict())
    new = torch.optim.AdamW(other.parameters(), lr=1e-2, weight_decay=0.1)
    tessera.nn.load_optimizer_state(new, copy.deepcopy(optimizer.state_dict()), other, saved.state_dict())
    train(saved, 3, optimizer, seed=9)
    train(other, 3, new, seed=9)
    for a, b in zip(saved, other, strict=True):
        if isinstance(a, SparseLinear):
            assert torch.equal(a.mask(), b.mask())
            assert torch.allclose(a.dense_weight(), b.dense_weight(), atol=1e-5)


def test_loading_takes_values_in_the_order_of_the_pattern():
    layer = SparseLinear(40, 24, density=0.3)
    state = layer.state_dict()
    plain = {**state, "weight": layer.unpack(layer.weight), "packed_format": torch.tensor([0], dtype=torch.int32)}
    other = SparseLinear(40, 24, density=0.1)
    other.load_state_dict(plain)
    assert torch.equal(other.weight, layer.weight)


def test_loading_says_what_does_not_fit():
    layer = SparseLinear(40, 24, density=0.3, dynamic=True)
    full = SparseLinear(40, 24, density=0.9)
    with pytest.raises(RuntimeError, match="the layer has room for 288"):
        layer.load_state_dict(full.state_dict())
    with pytest.raises(RuntimeError, match="saved with other sizes"):
        layer.load_state_dict(SparseLinear(40, 56, density=0.1).state_dict())
    broken = {**layer.state_dict(), "packed_format": torch.tensor([77], dtype=torch.int32)}
    with pytest.raises(RuntimeError, match="packed format 77"):
        layer.load_state_dict(broken)
    broken = {**full.state_dict(), "crow_indices": torch.full((25,), 2**30, dtype=torch.int32)}
    with pytest.raises(RuntimeError, match="crow_indices ends with"):
        layer.load_state_dict(broken)
    with pytest.raises(RuntimeError, match="Missing key"):
        layer.load_state_dict({"weight": layer.weight})


@pytest.mark.parametrize(("block_size", "dynamic"), FORMS)
def test_compiles_whole_and_exports(block_size, dynamic):
    model = model_of(block_size, dynamic)
    x = torch.randn(6, 40)
    expected = model(x)
    exported = torch.export.export(model, (x,))
    assert torch.allclose(exported.module()(x), expected, atol=1e-6)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    y = compiled(x)
    assert torch.allclose(y, expected, atol=1e-6)
    y.square().sum().backward()
    gradient = model[0].weight.grad.clone()
    model.zero_grad()
    model(x).square().sum().backward()
    assert torch.allclose(gradient, model[0].weight.grad, atol=1e-5)


@pytest.mark.full
def test_trains_compiled_by_inductor():
    torch._dynamo.reset()
    model = model_of(8, False)
    twin = copy.deepcopy(model)
    train(torch.compile(model, fullgraph=True))
    train(twin)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_a_new_pattern_compiles_nothing_again():
    torch._dynamo.reset()
    model, other = model_of(1, True), model_of(1, True, seed=3)
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    x = torch.randn(6, 40)
    compiled(x).sum().backward()
    for a, b in ((model[0], other[0]), (model[2], other[2])):
        a.set_pattern(b.crow_indices, b.col_indices, [a.weight.grad])
    compiled(x).sum().backward()
    assert torch.allclose(compiled(x), model(x), atol=1e-6)
    assert counter.frame_count == 1


def test_checkpointing_and_functional_calls():
    from torch.utils.checkpoint import checkpoint

    model = model_of()
    x = torch.randn(6, 40, requires_grad=True)
    model(x).square().sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    checkpoint(model, x, use_reentrant=False).square().sum().backward()
    assert all(torch.equal(p.grad, e) for p, e in zip(model.parameters(), expected, strict=True))
    doubled = {name: 2 * p for name, p in model.named_parameters()}
    twin = copy.deepcopy(model)
    with torch.no_grad():
        torch._foreach_mul_(list(twin.parameters()), 2)
    assert torch.equal(torch.func.functional_call(model, doubled, (x,)), twin(x))


def test_autocast_computes_from_16_bits_like_a_dense_layer():
    torch.manual_seed(0)
    layer = SparseLinear(64, 48, density=0.5, block_size=8)
    dense = layer.to_dense()
    x = torch.randn(10, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, reference = layer(x), dense(x)
    assert y.dtype == reference.dtype == torch.bfloat16
    assert torch.allclose(y, reference, rtol=2**-7, atol=2**-7)
    y.float().square().sum().backward()
    assert layer.weight.grad.dtype == torch.float32
    with torch.autocast("cpu", enabled=False):
        assert layer(x).dtype == torch.float32


@pytest.mark.parametrize("block_size", [1, 8])
def test_set_pattern_moves_values_and_state(block_size):
    torch.manual_seed(0)
    layer = SparseLinear(40, 24, density=0.5, block_size=block_size, dynamic=True)
    before, mask = layer.dense_weight(), layer.mask()
    momentum = layer.weight.detach() * 3
    weight_at = layer.weight.data_ptr()
    target = SparseLinear(40, 24, density=0.4, block_size=block_size)
    layer.set_pattern(target.crow_indices, target.col_indices, [momentum])
    assert torch.equal(layer.mask(), target.mask())
    assert torch.equal(layer.dense_weight(), before * (mask & target.mask()))
    assert torch.equal(momentum, layer.weight.detach() * 3)
    assert layer.weight.data_ptr() == weight_at
    x = torch.randn(5, 40)
    assert torch.allclose(layer(x), layer.to_dense()(x), atol=1e-5)


@pytest.mark.parametrize("dynamic", [True, False])
def test_float64_weights_are_converted(dynamic):
    layer = SparseLinear(40, 24, density=0.5, dynamic=dynamic)
    x = torch.randn(3, 40)
    expected = layer(x)
    expected.sum().backward()
    gradient = layer.weight.grad.clone()
    layer.zero_grad()
    layer.double()
    assert torch.equal(layer(x), expected)
    layer(x).sum().backward()
    assert layer.weight.grad.dtype == torch.float64 and torch.equal(layer.weight.grad.float(), gradient)
    assert torch.allclose(layer(x.double()), layer.to_dense()(x.double()), atol=1e-5)


@pytest.mark.parametrize("block_size", [1, 8])
def test_set_pattern_changes_nothing_if_something_does_not_fit(block_size):
    layer = SparseLinear(40, 24, density=0.5, block_size=block_size, dynamic=True)
    target = SparseLinear(40, 24, density=0.4, block_size=block_size)
    crow, col = target.crow_indices, target.col_indices
    before = copy.deepcopy(layer.state_dict())
    x = torch.randn(5, 40)
    y = layer(x)
    for arguments, error, message in (
        ((crow, col, [torch.zeros_like(layer.weight), torch.zeros(5)]), ValueError, r"a tensor of shape \(5,\)"),
        ((crow, col, ["momentum"]), TypeError, "state has a str"),
        ((crow.tolist(), col), TypeError, "crow_indices is a list"),
        ((crow, col.numpy()), TypeError, "col_indices is a ndarray"),
        ((crow.float(), col), TypeError, "float32"),
        ((crow, col + 1000), ValueError, "a block in column"),
        ((crow[:3], col), ValueError, "crow_indices|row_begin"),
    ):
        with pytest.raises(error, match=message):
            layer.set_pattern(*arguments)
        assert all(torch.equal(tensor, before[name]) for name, tensor in layer.state_dict().items())
        assert torch.equal(layer(x), y)


def test_masks_of_other_kinds():
    linear = torch.nn.Linear(40, 24)
    mask = torch.rand(24, 40) > 0.7
    for other in (mask.numpy(), mask.tolist(), mask.float()):
        assert torch.equal(SparseLinear.from_dense(linear, mask=other).mask(), mask)


@pytest.mark.parametrize("block_size", [1, 8])
def test_without_a_density_zeros_stay(block_size):
    torch.manual_seed(3)
    linear = torch.nn.Linear(40, 24)
    kept = (torch.rand(24 // 8, 40 // 8) < 0.4).repeat_interleave(8, 0).repeat_interleave(8, 1)
    with torch.no_grad():
        linear.weight *= kept * (torch.rand(24, 40) < 0.5)
    layer = SparseLinear.from_dense(linear, block_size=block_size)
    assert torch.equal(layer.mask(), linear.weight != 0 if block_size == 1 else kept)
    assert torch.equal(layer.dense_weight(), linear.weight)


def test_masks_of_pruned_modules():
    torch.manual_seed(4)
    linear = torch.nn.Linear(40, 24)
    prune.random_unstructured(linear, "weight", amount=0.7)
    prune.random_unstructured(linear, "bias", amount=0.5)
    with torch.no_grad():  # as an optimizer does: the module's weight follows in the next call only
        linear.weight_orig += 1
        linear.bias_orig += 1
    x = torch.randn(5, 40)
    for layer in (SparseLinear.from_dense(linear), SparseLinear.from_dense(linear, density=1.0)):
        assert layer.weight.requires_grad and layer.bias.requires_grad
        assert torch.allclose(layer(x), linear(x), atol=1e-5)
    layer = SparseLinear.from_dense(linear)
    assert torch.equal(layer.mask(), linear.weight_mask.bool())
    prune.remove(linear, "weight")
    prune.remove(linear, "bias")
    assert torch.equal(SparseLinear.from_dense(linear).mask(), layer.mask())


def test_a_weight_of_zeros_keeps_one_block():
    linear = torch.nn.Linear(40, 24)
    torch.nn.init.zeros_(linear.weight)
    layer = SparseLinear.from_dense(linear, block_size=8)
    assert layer.blocks == 1 and not layer.dense_weight().any()


def test_room_for_more_blocks_than_there_are_is_for_all():
    layer = SparseLinear(40, 24, density=0.5, block_size=8, dynamic=10**9)
    assert layer.dynamic and layer.capacity == 15
    assert not SparseLinear(40, 24, density=0.5, dynamic=np.False_).dynamic
    for wrong in (None, 2.5, "20"):
        with pytest.raises(TypeError, match="dynamic is"):
            SparseLinear(40, 24, density=0.5, dynamic=wrong)


def test_types_that_are_no_floating_point_ones_are_refused_when_a_layer_is_made():
    for dtype in (torch.complex64, torch.int32):
        with pytest.raises(TypeError, match="use a floating-point type"):
            SparseLinear(40, 24, density=0.5, dtype=dtype)
    assert SparseLinear.from_dense(torch.nn.Linear(40, 24).double(), density=0.5).weight.dtype == torch.float64


def test_refuses_bad_arguments():
    linear = torch.nn.Linear(40, 24)
    for density in (0, -1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="density is"):
            SparseLinear(40, 24, density=density)
    with pytest.raises(ValueError, match=r"unknown block_size 3 \(choose from 1, 4, 8, 16, 32\)"):
        SparseLinear(40, 24, density=0.5, block_size=3)
    for sizes in ((2.5, 24), (40, True), ("40", 24)):
        with pytest.raises(TypeError, match="features must be a whole number"):
            SparseLinear(*sizes, density=0.5)
    with pytest.raises(TypeError, match=r"block_size must be a whole number, not 16\.0"):
        SparseLinear(40, 24, density=0.5, block_size=16.0)
    with pytest.raises(ValueError, match="in_features is 0"):
        SparseLinear(0, 24, density=0.5)
    with pytest.raises(ValueError, match="unknown activation 'tanh'"):
        SparseLinear(40, 24, density=0.5, activation="tanh")
    with pytest.raises(RuntimeError, match="run on the CPU"):
        SparseLinear(40, 24, density=0.5, device="cuda")
    with pytest.raises(ValueError, match="there is room for 3"):
        SparseLinear(40, 24, density=0.5, dynamic=3)
    with pytest.raises(ValueError, match="not both"):
        SparseLinear.from_dense(linear, density=0.5, mask=torch.ones(24, 40))
    with pytest.raises(ValueError, match=r"a mask of \(40, 24\)"):
        SparseLinear.from_dense(linear, mask=torch.ones(40, 24))
    with pytest.raises(ValueError, match="blocks of 8 × 8 only in part"):
        SparseLinear.from_dense(linear, mask=torch.eye(24, 40), block_size=8)
    with pytest.raises(TypeError, match="not a Conv2d"):
        SparseLinear.from_dense(torch.nn.Conv2d(3, 4, 1), density=0.5)
    layer = SparseLinear(40, 24, density=0.5)
    for x in (None, [0.0] * 40, np.zeros((2, 40), np.float32)):
        with pytest.raises(TypeError, match=f"the input is a {type(x).__name__}"):
            layer(x)
    with pytest.raises(ValueError, match="static layer"):
        layer.set_pattern(layer.crow_indices, layer.col_indices)
    with pytest.raises(ValueError, match="39"):
        layer(torch.randn(2, 39))
    with pytest.raises(TypeError, match="complex64"):
        torch.func.functional_call(layer, {"weight": layer.weight.to(torch.complex64)}, (torch.randn(2, 40),))
    with pytest.raises(ValueError, match="packed order"):
        torch.func.functional_call(layer, {"weight": layer.weight[1:]}, (torch.randn(2, 40),))
    layer.col_indices[3] = 4000
    with pytest.raises(ValueError, match="a block in column 4000"):
        layer(torch.randn(2, 40))


def test_threads_may_call_at_once(two_threads):
    from concurrent.futures import ThreadPoolExecutor

    model = model_of(1, True)
    inputs = [torch.randn(n, 40) for n in (1, 3, 8, 8, 30, 30, 64, 64)]
    expected = [model(x) for x in inputs]
    model = copy.deepcopy(model)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for y, e in zip(pool.map(model, inputs), expected, strict=True):
                assert torch.equal(y, e)
