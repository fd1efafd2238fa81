"""The operators torch.ops.tessera.*: values, gradients, and their fake implementations for the compiler."""

import pytest

torch = pytest.importorskip("torch")

from tessera.nn import MonarchLinear, SparseLinear

FORMS = [(1, False), (1, True), (4, False), (4, True), (16, False), (16, True), (32, False)]
SHAPES = [(60, 45), (128, 96)]  # out_features, in_features: with and without overhanging blocks


def layer_of(block_size, dynamic, shape=(60, 45), seed=0, **options):
    torch.manual_seed(seed)
    out_features, in_features = shape
    return SparseLinear(in_features, out_features, density=0.4, block_size=block_size, dynamic=dynamic, **options)


def index_of(layer):
    return (
        layer.crow_indices,
        layer.col_indices,
        layer.packed_format,
        layer.out_features,
        layer.in_features,
        layer.block_size,
        layer.dynamic,
    )


def close(actual, expected, depth, magnitude=4.0):
    """Whether values are equal up to the rounding to FP32 of `depth` terms of this magnitude."""
    error = (actual.double() - expected).abs().max().item()
    assert error <= 2**-23 * depth * magnitude, error


@pytest.mark.pairs(2)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("block_size", "dynamic"), FORMS)
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_products_match_float64(block_size, dynamic, rows, shape):
    layer = layer_of(block_size, dynamic, shape)
    out_features, in_features = shape
    w = layer.dense_weight().double()
    x, dy = torch.randn(rows, in_features), torch.randn(rows, out_features)
    ops, index, weight = torch.ops.tessera, index_of(layer), layer.weight.detach()
    bias = torch.randn(out_features)
    close(ops.linear(x, weight, *index, None, "none"), x.double() @ w.T, in_features)
    z = x.double() @ w.T + bias.double()
    close(ops.linear(x, weight, *index, bias, "relu"), z.relu(), in_features)
    close(ops.linear(x, weight, *index, bias, "gelu"), torch.nn.functional.gelu(z), in_features)
    close(ops.linear_input_grad(dy, weight, *index), dy.double() @ w, out_features)
    dw = ops.sddmm(dy, x, *index, weight.numel())
    dense = torch.zeros(shape, dtype=torch.float64).masked_scatter(
        layer.mask(), (dy.double().T @ x.double())[layer.mask()]
    )
    got = SparseLinear.from_dense(layer.to_dense(), mask=layer.mask(), block_size=block_size, dynamic=dynamic)
    got.weight.data.copy_(dw)
    close(got.dense_weight(), dense, rows)


@pytest.mark.pairs(3)
@pytest.mark.parametrize(("block_size", "dynamic"), FORMS)
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_gradients_match_float64(block_size, dynamic, activation):
    layer = layer_of(block_size, dynamic, activation=activation)
    dense = layer.to_dense().double()
    x = torch.randn(2, 7, 45, requires_grad=True)
    x64 = x.detach().double().requires_grad_()
    act = {None: lambda y: y, "relu": torch.relu, "gelu": torch.nn.functional.gelu}[activation]
    target = torch.randn(2, 7, 60)
    (layer(x) * target).sum().backward()
    (act(dense(x64)) * target.double()).sum().backward()
    close(x.grad, x64.grad, 60)
    close(layer.bias.grad, dense.bias.grad, 14)
    mask = layer.mask()
    got = SparseLinear.from_dense(layer.to_dense(), mask=mask, block_size=block_size, dynamic=dynamic)
    got.weight.data.copy_(layer.weight.grad)
    close(got.dense_weight()[mask], dense.weight.grad[mask], 14)


@pytest.mark.parametrize(("block_size", "dynamic"), [(1, False), (1, True), (8, True)])
def test_the_derivative_is_that_of_large_steps(block_size, dynamic):
    """The product is bilinear: a difference over any step is its derivative."""
    layer = layer_of(block_size, dynamic, bias=False)
    x = torch.randn(5, 45, requires_grad=True)
    y = layer(x)
    dy = torch.randn_like(y)
    dx, dw = torch.autograd.grad(y, (x, layer.weight), dy)
    step_x = torch.randn_like(x)
    step_w = layer.pack(torch.randn(layer.blocks * block_size**2))
    with torch.no_grad():
        along_x = ((layer(x + step_x) - y) * dy).sum()
        moved = torch.func.functional_call(layer, {"weight": layer.weight + step_w}, (x,))
        along_w = ((moved - y) * dy).sum()
    assert torch.allclose(along_x, (dx * step_x).sum(), rtol=1e-4, atol=1e-3)
    assert torch.allclose(along_w, (dw * step_w).sum(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("block_size", "dynamic"), [(1, False), (1, True), (16, False), (16, True)])
def test_second_derivatives(block_size, dynamic):
    layer = layer_of(block_size, dynamic)
    dense = layer.to_dense().double()
    x = torch.randn(6, 45, requires_grad=True)
    x64 = x.detach().double().requires_grad_()

    def penalty(layer, x):
        (gradient,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), x)[0]

    close(penalty(layer, x), penalty(dense, x64), 60 * 45, 32)


@pytest.mark.every_nth(3)
@pytest.mark.parametrize(("block_size", "dynamic"), [(1, False), (1, True), (8, False), (8, True)])
@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
def test_opcheck_of_linear(block_size, dynamic, activation):
    layer = layer_of(block_size, dynamic)
    x = torch.randn(2, 5, 45, requires_grad=True)
    arguments = (x, layer.weight, *index_of(layer), layer.bias, activation)
    torch.library.opcheck(torch.ops.tessera.linear.default, arguments)


@pytest.mark.parametrize(("block_size", "dynamic"), [(1, False), (1, True), (8, False), (8, True)])
def test_opcheck_of_gradients(block_size, dynamic):
    layer = layer_of(block_size, dynamic)
    x = torch.randn(5, 45, requires_grad=True)
    dy = torch.randn(5, 60, requires_grad=True)
    index = index_of(layer)
    torch.library.opcheck(torch.ops.tessera.linear_input_grad.default, (dy, layer.weight, *index))
    torch.library.opcheck(torch.ops.tessera.sddmm.default, (dy, x, *index, layer.weight.numel()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_weights(dtype):
    for block_size in (1, 8):
        layer = layer_of(block_size, False, dtype=dtype)
        x = torch.randn(9, 45)
        exact = x.double() @ layer.dense_weight().double().T + layer.bias.double()
        close(layer(x), exact, 45)
        y = layer(x.to(dtype))
        assert y.dtype == dtype
        y.float().sum().backward()
        assert layer.weight.grad.dtype == dtype


def test_inputs_of_any_strides_and_batch_dimensions():
    layer = layer_of(8, False)
    w = layer.dense_weight().double()
    base = torch.randn(64, 90)
    for view in (
        base[:, :45],
        base[:, ::2],
        base[:45].t(),
        base[:45, :1].t(),
        base[0, :45],
        base[:1, :45],
        base[:1, :45].expand(7, 45),
        base[:60, :45].reshape(3, 4, 5, 45),
        base[:60, :45].reshape(5, 12, 45).transpose(0, 1),
        base[:0, :45],
    ):
        x = view.detach().requires_grad_()
        y = layer(x)
        assert y.shape == (*x.shape[:-1], 60)
        y.sum().backward()
        assert x.grad.shape == x.shape
        if x.numel():
            close(y, x.double() @ w.T + layer.bias.double(), 45)


def test_index_tensors_that_change_are_noticed():
    layer, other = layer_of(1, True, seed=1), layer_of(1, True, seed=2)
    x = torch.randn(4, 45)
    layer(x)
    with torch.no_grad():
        for name, buffer in layer.named_buffers():
            buffer.copy_(other.get_buffer(name))
        layer.weight.copy_(other.weight)
        layer.bias.copy_(other.bias)
    assert torch.equal(layer(x), other(x))


def test_refuses_another_packed_format():
    layer = layer_of(1, False)
    wrong = torch.tensor([5], dtype=torch.int32)
    with pytest.raises(ValueError, match="packed format 5; its kernels read format 3"):
        torch.ops.tessera.linear(
            torch.randn(2, 45),
            layer.weight,
            layer.crow_indices,
            layer.col_indices,
            wrong,
            60,
            45,
            1,
            False,
            None,
            "none",
        )


def test_prepared_patterns_go_with_their_tensors():
    import gc

    from tessera import _prepared

    gc.collect()
    before = len(_prepared._entries)
    layers = [layer_of(8, True) for _ in range(3)]
    assert len(_prepared._entries) == before + 3
    del layers
    gc.collect()
    assert len(_prepared._entries) == before


def test_tensors_on_several_devices_are_refused():
    layer = layer_of(1, False)
    x, dy = torch.randn(2, 45), torch.randn(2, 60)
    ops, index, weight = torch.ops.tessera, index_of(layer), layer.weight.detach()
    calls = [
        lambda: ops.linear(x, weight.to("meta"), *index, None, "none"),
        lambda: ops.linear(x, weight, index[0].to("meta"), *index[1:], None, "none"),
        lambda: ops.linear(x.to("meta"), weight, *index, None, "none"),
        lambda: ops.linear_input_grad(dy, weight.to("meta"), *index),
        lambda: ops.sddmm(dy, x.to("meta"), *index, weight.numel()),
        lambda: layer_of(1, False).to("meta")(x),
        lambda: layer(x.to("meta")),
        lambda: MonarchLinear(45, 60).to("meta")(x),
        lambda: MonarchLinear(45, 60)(x.to("meta")),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="different devices, cpu and meta"):
            call()
