"""Inputs of the structured layers: shapes and types, types of parameters, and modes that see their calls."""

import pytest

torch = pytest.importorskip("torch")

from test_structured_layers import KINDS, layers

from tessera import nn

ops = torch.ops.tessera


@pytest.mark.pairs(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
def test_another_number_of_features_is_refused(kind, bias):
    layer = layers(24, 50, bias)[kind]
    for shape in ((3, 23), (3, 25), (3, 1), (23,), ()):
        for call in (layer, layer.reference, layer.double().reference):
            with pytest.raises(ValueError, match="its last dimension must be 24"):
                call(torch.zeros(shape))


@pytest.mark.parametrize("kind", ["butterfly", "pixelfly", "circulant", "low rank"])
def test_compiled_layers_refuse_another_number_of_features(kind):
    layer = layers(24, 50)[kind]
    with pytest.raises(Exception, match="its last dimension must be 24"):
        torch.compile(layer, backend="aot_eager")(torch.zeros(3, 23))
    with pytest.raises(Exception, match="its last dimension must be 24"):
        torch.export.export(layer, (torch.zeros(3, 23),), strict=False)


@pytest.mark.pairs(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64, torch.bool])
def test_types_that_would_lose_values_are_refused(kind, dtype):
    x = torch.ones(3, 24, dtype=dtype)
    for bias in (True, False):
        layer = layers(24, 50, bias)[kind]
        with pytest.raises(TypeError, match=f"an operand of {dtype}"):
            layer(x)
        with torch.autocast("cpu", torch.bfloat16), pytest.raises(TypeError, match=f"an operand of {dtype}"):
            layer(x)
        if not dtype.is_complex:
            with pytest.raises(TypeError, match=f"an operand of {dtype}"):
                layer.reference(x)


def test_operators_refuse_types_that_would_lose_values():
    x, c = torch.ones(3, 8), torch.ones(8)
    sparse = nn.SparseLinear(8, 8, density=0.5)
    tensors = (sparse.crow_indices, sparse.col_indices, sparse.packed_format)
    weight = sparse.weight.detach()
    for device in ("cpu", "meta"):
        index = (*(tensor.to(device) for tensor in tensors), 8, 8, 1, False)
        for dtype in (torch.complex64, torch.int64):
            calls = [
                lambda of: ops.circulant(of(x), c.to(device), 8),
                lambda of: ops.circulant(x.to(device), of(c), 8),
                lambda of: ops.circulant_backward(of(x), x.to(device), c.to(device), 8, True, True),
                lambda of: ops.linear(of(x), weight.to(device), *index, None, "none"),
                lambda of: ops.linear_input_grad(of(x), weight.to(device), *index),
                lambda of: ops.sddmm(of(x), x.to(device), *index, weight.numel()),
            ]
            for call in calls:
                with pytest.raises(TypeError, match=f"an operand of {dtype}"):
                    call(lambda tensor, to=dtype: tensor.to(device, to))


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_complex_butterflies_take_real_inputs(dtype):
    layer = nn.ButterflyLinear(8, 8, complex=True)
    x = torch.randn(3, 8).to(dtype)
    expected = layer.reference(x.to(torch.complex64))
    assert torch.allclose(layer(x).to(torch.complex64), expected, rtol=0.02, atol=0.02)
    with pytest.raises(TypeError, match=r"an operand of torch\.int64"):
        layer(x.to(torch.int64))


@pytest.mark.pairs(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("of_x", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("of_parameters", [torch.float32, torch.float64, torch.bfloat16])
def test_results_have_the_type_of_x(kind, of_x, of_parameters):
    torch.manual_seed(0)
    layer = layers(24, 50)[kind].to(of_parameters)
    x = torch.randn(5, 24).to(of_x).requires_grad_()
    y = layer(x)
    assert y.dtype == of_x
    expected = layer.to_dense().double()(x.double())
    assert torch.allclose(y.double(), expected, rtol=0.05, atol=0.1)
    y.sum().backward()
    assert x.grad.dtype == of_x and all(p.grad.dtype == of_parameters for p in layer.parameters())


class _Doubled(torch.nn.Module):
    def forward(self, parameter):
        return 2 * parameter


@pytest.mark.parametrize("kind", KINDS)
def test_parametrized_biases(kind):
    layer = layers(24, 50)[kind]
    x = torch.randn(3, 24)
    expected = layer(x) + layer.bias
    torch.nn.utils.parametrize.register_parametrization(layer, "bias", _Doubled())
    assert torch.allclose(layer(x), expected, atol=1e-5)


@pytest.mark.pairs(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_formulas_take_16_bits(kind, dtype):
    torch.manual_seed(0)
    layer, x = layers(24, 50)[kind], torch.randn(5, 24)
    y = layer.reference(x.to(dtype))
    assert y.dtype == dtype and torch.allclose(y.float(), layer(x), rtol=0.05, atol=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_made_in_float64(kind):
    torch.set_default_dtype(torch.float64)
    try:
        layer = layers(24, 50)[kind]
        x = torch.randn(5, 24)
        y = layer(x)
    finally:
        torch.set_default_dtype(torch.float32)
    assert {p.dtype for p in layer.parameters()} == {y.dtype} == {torch.float64}
    assert torch.allclose(y, layer.reference(x), atol=1e-4)
