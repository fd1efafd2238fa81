"""The operators of structured matrices: derivatives, fake implementations for the compiler, types and strides."""

import gc

import pytest

torch = pytest.importorskip("torch")

import tessera
from tessera import _planned, _structured_products, nn
from tessera.nn import formulas

ops = torch.ops.tessera


def complex_butterfly(x, twiddle, out_features, increasing_stride):
    z, factors = torch.view_as_complex(x), torch.view_as_complex(twiddle)
    return torch.view_as_real(formulas.butterfly(z, factors, out_features, increasing_stride=increasing_stride))


def cases():
    """Operator, its formula, x's last dimensions, parameters, other arguments."""
    torch.manual_seed(0)
    p = torch.stack([torch.randperm(16) for _ in range(2)])

    def butterfly(x, twiddle, out_features, increasing_stride):
        return formulas.butterfly(x, twiddle, out_features, increasing_stride=increasing_stride)

    def kronecker(x, weight, a, b, c, d, out_features):
        return formulas.kronecker(x, weight.reshape(a, d, b, c), out_features)

    return {
        "butterfly": ("butterfly", butterfly, (13,), [torch.randn(2, 2, 4, 8, 2, 2)], (21, True)),
        "tied": ("butterfly", butterfly, (16,), [torch.randn(1, 15, 2, 2)], (16, False)),
        "complex": ("butterfly", complex_butterfly, (7, 2), [torch.randn(1, 1, 3, 4, 2, 2, 2)], (6, False)),
        "complex tied": ("butterfly", complex_butterfly, (8, 2), [torch.randn(2, 7, 2, 2, 2)], (9, True)),
        "kronecker": ("kronecker", kronecker, (23,), [torch.randn(3, 2, 5, 4)], (3, 5, 4, 2, 29)),
        "block diagonal": ("kronecker", kronecker, (12,), [torch.randn(3, 5, 4)], (3, 5, 4, 1, 15)),
        "circulant": ("circulant", formulas.circulant, (11,), [torch.randn(15)], (13,)),
        "toeplitz": ("toeplitz", formulas.toeplitz, (11,), [torch.randn(17)], ()),
        "fastfood": ("fastfood", lambda x, s, g, b, *p: formulas.fastfood(x, s, g, b, *p), (14,),
                     [torch.randn(2, 16), torch.randn(2, 16), torch.randn(2, 16)], (p, 27)),
    }  # fmt: skip


CASES = tuple(cases())


def differentiable(tensors):
    return [tensor.clone().requires_grad_() for tensor in tensors]


@pytest.mark.pairs(2)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch", [(1,), (3,), (40,), (2, 3)])
def test_products_and_gradients_match_float64(case, batch):
    name, formula, sample, parameters, others = cases()[case]
    x = torch.randn(*batch, *sample)
    given, exact = differentiable([x, *parameters]), differentiable([t.double() for t in (x, *parameters)])
    y, expected = getattr(ops, name)(*given, *others), formula(*exact, *others)
    assert y.shape == expected.shape and torch.allclose(y.double(), expected, atol=1e-4)
    dy = torch.randn_like(y)
    y.backward(dy)
    expected.backward(dy.double())
    for got, right in zip(given, exact, strict=True):
        assert torch.allclose(got.grad.double(), right.grad, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_some(case):
    name, _, sample, parameters, others = cases()[case]
    operator = getattr(ops, name)
    given = differentiable([torch.randn(5, *sample), *parameters])
    y = operator(*given, *others)
    everything = torch.autograd.grad(y, given, torch.ones_like(y))
    for chosen in range(len(given)):
        some = [t if i == chosen else t.detach() for i, t in enumerate(given)]
        y = operator(*some, *others)
        (alone,) = torch.autograd.grad(y, some[chosen], torch.ones_like(y))
        assert torch.allclose(alone, everything[chosen], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_second_derivatives(case):
    name, formula, sample, parameters, others = cases()[case]
    x = torch.randn(4, *sample)
    directions = [torch.randn_like(t) for t in (x, *parameters)]

    def penalty(function, dtype):
        given = [t.to(dtype).requires_grad_() for t in (x.clone(), *parameters)]
        y = function(*given, *others)
        first = torch.autograd.grad(y.square().sum(), given, create_graph=True)
        along = sum((g * d.to(dtype)).sum() for g, d in zip(first, directions, strict=True))
        return torch.autograd.grad(along, given)

    for got, exact in zip(penalty(getattr(ops, name), torch.float32), penalty(formula, torch.float64), strict=True):
        assert float((got.double() - exact).norm() / exact.norm()) < 1e-4


@pytest.mark.parametrize("case", CASES)
def test_second_derivatives_of_operands_of_different_types(case):
    name, formula, sample, parameters, others = cases()[case]
    x = torch.randn(4, *sample).to(torch.bfloat16)
    given, exact = differentiable([x, *parameters]), differentiable([t.double() for t in (x, *parameters)])
    found = []
    for function, tensors in ((getattr(ops, name), given), (formula, exact)):
        first = torch.autograd.grad(function(*tensors, *others).square().sum(), tensors, create_graph=True)
        found.append(torch.autograd.grad(sum(g.sum() for g in first), tensors))
    for got, expected, tensor in zip(*found, given, strict=True):
        assert got.dtype == tensor.dtype
        assert float((got.double() - expected).norm() / expected.norm()) < 0.05


@pytest.mark.parametrize("case", CASES)
def test_opcheck(case):
    name, _, sample, parameters, others = cases()[case]
    x = torch.randn(2, 3, *sample)
    given = differentiable([x, *parameters])
    torch.library.opcheck(getattr(ops, name).default, (*given, *others))
    y = getattr(ops, name)(x, *parameters, *others)
    backward = getattr(ops, f"{name}_backward").default
    quick = ("test_schema", "test_autograd_registration", "test_faketensor")
    for needs in ((True, True), (True, False), (False, True)):
        inputs = (torch.randn_like(y).requires_grad_(), *given, *others, *needs)
        torch.library.opcheck(backward, inputs, test_utils=quick)
    # Other operators take long: their second derivatives are long formulas. PyTorch 2.6 has no Fourier transform of
    # symbolic shapes.
    if name == "kronecker" or (name == "circulant" and torch.__version__ >= (2, 7)):
        torch.library.opcheck(backward, inputs)


@pytest.mark.parametrize("case", CASES)
def test_empty_batches(case):
    name, _, sample, parameters, others = cases()[case]
    given = differentiable([torch.randn(3, 0, *sample), *parameters])
    y = getattr(ops, name)(*given, *others)
    assert y.shape[:2] == (3, 0)
    y.sum().backward()
    assert given[0].grad.shape == given[0].shape
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in given[1:])


@pytest.mark.parametrize("case", CASES)
def test_types_and_strides(case):
    name, formula, sample, parameters, others = cases()[case]
    operator = getattr(ops, name)
    wide = torch.randn(6, 4, *sample)
    for x in (wide.transpose(0, 1), wide[::2], wide.to(torch.bfloat16), wide.to(torch.float16), wide.double()):
        exact = formula(x.double(), *(p.double() for p in parameters), *others)
        y = operator(x, *parameters, *others)
        assert y.dtype == x.dtype and y.is_contiguous()
        loose = x.dtype in (torch.bfloat16, torch.float16)
        assert torch.allclose(y.double(), exact, rtol=1e-2 if loose else 1e-5, atol=0.05 if loose else 1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        assert operator(wide, *parameters, *others).dtype == torch.bfloat16
    halves = differentiable([p.to(torch.bfloat16) for p in parameters])
    operator(wide, *halves, *others).sum().backward()
    assert all(p.grad.dtype == torch.bfloat16 for p in halves)


def models():
    torch.manual_seed(0)
    return {
        "butterfly": nn.ButterflyLinear(24, 40),
        "complex": torch.nn.Sequential(nn.ButterflyLinear(24, 16, complex=True, permutation=torch.randperm(24))),
        "monarch": nn.MonarchLinear(24, 40),
        "block diagonal": nn.BlockDiagonalLinear(24, 40, shuffle=True),
        "fastfood": nn.FastfoodLinear(24, 40),
        "circulant": nn.CirculantLinear(24, 40),
        "toeplitz": nn.ToeplitzLinear(24, 40),
        "low rank": nn.LowRankLinear(24, 40, rank=3),
        "pixelfly": nn.PixelflyLinear(24, 40, block_size=4, rank=3),
    }


@pytest.mark.parametrize("kind", tuple(models()))
def test_compile(kind):
    model = models()[kind]
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for batch in (5, 9):
        x = torch.randn(batch, 24, requires_grad=True)
        again = x.detach().clone().requires_grad_()
        model.zero_grad()
        y = model(x)
        y.abs().square().sum().backward()
        exact = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        z = compiled(again)
        z.abs().square().sum().backward()
        assert torch.allclose(y, z) and torch.allclose(x.grad, again.grad, rtol=1e-4, atol=1e-5)
        for p, e in zip(model.parameters(), exact, strict=True):
            assert torch.allclose(p.grad, e, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", tuple(models()))
def test_export(kind):
    model = models()[kind].eval()
    x = torch.randn(5, 24)
    batch = torch.export.Dim("batch")
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    wide = torch.randn(11, 24)
    assert torch.allclose(program.module()(wide), model(wide))


def test_activation_checkpointing():
    model = torch.nn.Sequential(nn.ButterflyLinear(24, 40), torch.nn.ReLU(), nn.MonarchLinear(40, 8))
    x = torch.randn(6, 24)
    model(x).sum().backward()
    exact = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum().backward()
    assert all(torch.equal(p.grad, e) for p, e in zip(model.parameters(), exact, strict=True))


def test_permutations_that_change_are_noticed():
    layer, other = nn.FastfoodLinear(16, 16), nn.FastfoodLinear(16, 16)
    x = torch.randn(4, 16)
    layer(x)
    layer.load_state_dict(other.state_dict())
    assert torch.equal(layer(x), other(x))
    assert torch.allclose(layer(x), layer.reference(x), atol=1e-5)


def test_permutations_that_change_without_a_version_are_noticed():
    layer = nn.FastfoodLinear(8, 8)
    x = torch.randn(3, 8)
    layer(x)
    layer.P.data[0] = layer.P[0].flip(0)
    assert torch.allclose(layer(x), layer.reference(x), atol=1e-5)
    held = layer.P.numpy()
    held[0, :2] = held[0, :2][::-1].copy()
    assert torch.allclose(layer(x), layer.reference(x), atol=1e-5)


def test_permutations_go_with_their_tensors():
    gc.collect()
    before = len(_structured_products._permutations)
    layers = [nn.FastfoodLinear(16, 16) for _ in range(3)]
    for layer in layers:
        layer(torch.randn(2, 16))
    assert len(_structured_products._permutations) == before + 3
    del layers, layer
    gc.collect()
    assert len(_structured_products._permutations) == before


def test_products_are_forgotten_when_there_are_too_many():
    planned = _planned.Planned(2)
    assert [planned.add(key, -key) for key in (1, 2)] == [-1, -2]
    assert planned == {1: -1, 2: -2}
    planned.add(3, -3)
    assert planned == {3: -3}


def test_results_depend_on_the_number_of_threads_only_by_rounding():
    layer, x = nn.ButterflyLinear(128, 128), torch.randn(300, 128)
    results = []
    try:
        for threads in (1, 2):
            tessera.set_num_threads(threads)
            results.append(layer(x))
    finally:
        tessera.set_num_threads(0)
    assert torch.allclose(*results, atol=1e-5)


def test_errors():
    x = torch.randn(3, 16)
    with pytest.raises(ValueError, match=r"for an x of shape \(3, 16\) it is \(2, 1, 4, 8, 2, 2\)"):
        ops.butterfly(x, torch.randn(1, 1, 4, 8, 2, 2), 17, True)
    with pytest.raises(ValueError, match=r"twiddle has shape \(2, 2\)"):
        ops.butterfly(x, torch.randn(2, 2), 16, True)
    with pytest.raises(ValueError, match="Kronecker-sparse factor's number of inputs is 16; it must be 1 to 8"):
        ops.kronecker(x, torch.randn(2, 4, 4), 2, 4, 4, 1, 8)
    with pytest.raises(ValueError, match=r"has shape \(3, 4, 4\)"):
        ops.kronecker(x, torch.randn(3, 4, 4), 4, 4, 4, 1, 16)
    for call in (
        lambda x: ops.circulant(x, torch.randn(16).to(x.device), -3),
        lambda x: ops.kronecker(x, torch.randn(2, 4, 4).to(x.device), -2, 4, 4, 1, 16),
        lambda x: ops.butterfly(x, torch.randn(1, 1, 4, 8, 2, 2).to(x.device), 0, True),
    ):
        for given in (x, x.to("meta")):
            with pytest.raises(ValueError, match="sizes must be at least 1"):
                call(given)
    with pytest.raises(ValueError, match="permutation has 16 at place 3"):
        p = torch.arange(16)
        p[3] = 16
        ops.fastfood(x, *torch.randn(3, 1, 16), p.unsqueeze(0), 16)
    with pytest.raises(RuntimeError, match="fewer than the 16 inputs"):
        ops.toeplitz(x, torch.randn(15))
    with pytest.raises(ValueError, match=r"dy has shape \(3, 15\); the result of circulant has \(3, 16\)"):
        ops.circulant_backward(torch.randn(3, 15), x, torch.randn(16), 16, True, True)
