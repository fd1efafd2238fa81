"""Integers and truth values of PyTorch modules, and numbers at the limits of their types."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from beside_torch import Function, in_groups  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tessera  # noqa: E402
from tessera import graph as tg  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def compare(function, *inputs, rtol=1e-5, atol=1e-6):
    """Expect all outputs to equal PyTorch's, with types of the same kind."""
    module = Function(function)
    found = tg.from_torch(module, inputs).session().run(*inputs)
    found = list(found.values()) if isinstance(found, dict) else [found]
    expected = module(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for y, of_torch in zip(found, expected, strict=True):
        kind = "f" if of_torch.is_floating_point() else np.dtype(str(of_torch.dtype).split(".")[1]).kind
        assert np.asarray(y).dtype.kind == kind
        np.testing.assert_allclose(y, of_torch.double(), rtol=rtol, atol=atol)


INTEGERS = [
    lambda a, b: a - b,
    lambda a, b: -a * 3 + b * -7,
    lambda a, b: (a - 5) * (b - 900),
    lambda a, b: 3 - a.abs() + b.square(),
    lambda a, b: (a - b).sum() + (a - b).sum(1).max() + (a - b).amin(0),
    lambda a, b: (a - b).clamp(-3, 4) + (a - b).clamp(min=0),
    lambda a, b: torch.where(a > b, a - b, -1) + a.masked_fill(b > 4, -100),
    lambda a, b: torch.maximum(a - b, b - a) + torch.minimum(a, -b),
    lambda a, b: (a - b).cumsum(1),
    lambda a, b: (a - b).argmax(1) - (a - b).argmin(1) - 9,
    lambda a, b: (a - b < 0) & (b - a >= -3),
    lambda a, b: (a - b) / 4 + (a - b).float().exp(),
    lambda a, b: torch.stack([a - b, b]).flatten() + (a - b).T.reshape(-1).repeat(2),
    lambda a, b: torch.cat([a, -b], 1)[:, ::2].flip(1),
    lambda a, b: F.pad(a - b, (1, 2), value=-4)[:, :5] + (a - b).gather(1, b.clamp(0, 4)),
    lambda a, b: (a - b) * 0.5 + (a > 0.5).float(),
    lambda a, b: a - torch.tensor([5, -6, 70000000, 1, -2000000000]),
    lambda a, b: (a - b).sign() + ~a + (a.float() - 9.5).int() + a.pow(2),
    lambda a, b: (a * 20000000 - 2**24).sum(1),
    lambda a, b: (a - b).any(0).int() - (a - b).all(1).sum() + (a > b).sum(0),
    lambda a, b: (a - b).max(1).indices + (a - b).min(1).values + (a - b).max(0).values.sum(),
    lambda a, b: a.float()[b.clamp(0, 3) - 4],
    lambda a, b: a // 3 + b % 4 + torch.div(a, -4, rounding_mode="trunc") + torch.fmod(b, 3) + a // (b.abs() + 1),
    lambda a, b: (a * 200000003) // 7 + (b * 200000003) % 1000003 + F.one_hot(a.abs().long(), 10).sum((1, 2))[:, None],
]


@pytest.mark.parametrize(("first", "of"), in_groups(len(INTEGERS)))
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_integers_below_0(first, of, dtype):
    torch.manual_seed(1)
    a, b = torch.randint(-9, 10, (4, 5), dtype=dtype), torch.randint(-9, 10, (4, 5), dtype=dtype)
    b[0] = a[0]
    several = INTEGERS[first : first + of]
    compare(lambda a, b: tuple(function(a, b) for function in several), a, b)


TRUTHS = [
    lambda p, q, x: p + q,
    lambda p, q, x: p * q | (p + (x > 0)),
    lambda p, q, x: (p + q).sum() + (p & ~q).sum(1).sum() + (p ^ q).float().mean(),
    lambda p, q, x: p + 1 - q * 2,
    lambda p, q, x: p * x + (p == q) * 0.5 + (p > 0.5) - (q != 1).float(),
    lambda p, q, x: torch.where(p, q, x > 0) | torch.where(q, True, p) & p.masked_fill(q, False),
    lambda p, q, x: x.masked_fill(p + q, 7).where(p, x),
    lambda p, q, x: torch.cat([p, x > 0, (x * 3).int() > 1], 1),
    lambda p, q, x: torch.stack([p, ((x * 3).int() > 1)]).any(0) & torch.maximum(p, q).all(1, keepdim=True),
    lambda p, q, x: (p + q).amax(1),
    lambda p, q, x: p.cumsum(0) + q.int().sum(1, keepdim=True) + (p + q).to(torch.int64),
    lambda p, q, x: (p | q).T[:3].flip(1).reshape(-1),
    lambda p, q, x: (p, x.bool(), p.logical_not(), x.logical_and(q), (x * 0).bool() + p),
    lambda p, q, x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], (x @ x.T) > -9),
    lambda p, q, x: (x.isnan() | x.isinf(), p.eq(True), p & True, p | (q + q)),
    lambda p, q, x: (p + q).float() @ x.T,
    lambda p, q, x: (p.float(), p.float() + q.float(), (p & q).to(torch.int32)),
    lambda p, q, x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], (x @ x.T > 0).float()),
]


@pytest.mark.parametrize("function", TRUTHS)
def test_truth_values(function):
    torch.manual_seed(2)
    p, q = torch.rand(4, 5) > 0.5, torch.rand(4, 5) > 0.4
    compare(function, p, q, torch.randn(4, 5))


def test_fractions_are_true_for_integers():
    graph = tg.Graph()
    graph.output("y", tg.where(graph.input("x", (4,)), graph.input("a", (4,), "i32"), -1))
    y = graph.session().run(x=np.float32([0.5, 0, -0.25, 2]), a=np.int32([1, 2, 3, 4]))
    assert list(y) == [1, -1, 3, 4]


INF, NAN = torch.inf, torch.nan
EDGES = [
    lambda x: x.argmax(1),
    lambda x: x.argmin(0) + x.argmax(),
    lambda x: (x.max(1).values, x.max(1).indices, x.min(1).values),
    lambda x: x.masked_fill(x.isnan(), -INF).logsumexp(1),
    lambda x: torch._safe_softmax(x.masked_fill(x.isnan(), -INF), 1),
    lambda x: torch.cat([x[3:4].logsumexp(1), x[4:5].logsumexp(1), x[4:].logsumexp((0, 1), keepdim=True)[0]]),
    lambda x: x / 0,
    lambda x: 0 / x,
    lambda x: x.clamp(torch.full_like(x, -1), x.abs()),
    lambda x: (x * 3.7).floor() + (x * 3.7).ceil() + (x * 2.5).round() + (x * 3.7).trunc() + x.sign(),
    lambda x: (x**0, x**100, x.pow(torch.zeros(())), x.pow(torch.ones(())), x.pow(torch.full((), INF)), x.pow(torch.full((), NAN))),
    lambda x: (1**x, INF**x, torch.xlogy(x, INF), torch.xlogy(x, NAN), torch.xlogy(x, -1), torch.xlogy(0, x), torch.xlogy(2, x)),
    lambda x: (x[5:].std(unbiased=False), x[5].var(unbiased=False), *torch.std_mean(x[0], unbiased=False)),
    lambda x: (x * 1e-4).log1p() + (x * 1e-4).expm1() + x.expm1(),
]


@pytest.mark.parametrize("function", EDGES)
def test_numbers_that_are_none(function):
    x = torch.tensor(
        [[1.0, -2, 0.5, 3], [1, NAN, 5, NAN], [INF, 2, -INF, INF], [-INF] * 4, [INF] * 4, [0, -0.0, 1, -1]]
    )
    compare(function, x)


@pytest.mark.pairs(2)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.mean(0),
        lambda x: x.mean((0, 1)),
        lambda x: x.mean((0, 2)),
        lambda x: (x * 1e-2).sum((0, 2)),
        lambda x: x.var(1),
        lambda x: x.std((0, 1), correction=0),
        lambda x: torch.var_mean(x, 0)[0],
        lambda x: x.logsumexp(1),
    ],
)
def test_16_bit_values_are_reduced_in_32(function, dtype):
    torch.manual_seed(3)
    x = (torch.randn(60, 40, 30) + 40).to(dtype)
    module = Function(function)
    found = tg.from_torch(module, x).session().run(x)
    expected = module(x.double())
    np.testing.assert_allclose(found, expected, rtol=1.01 * torch.finfo(dtype).eps / 2, atol=1e-6)


@pytest.mark.pairs(2)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.exp2(),
        lambda x: x.expm1(),
        lambda x: x.log2(),
        lambda x: x.log1p(),
        lambda x: torch.div(x, 3, rounding_mode="trunc"),
    ],
)
def test_functions_of_16_bits_are_rounded_once(function, dtype):
    x = torch.tensor([0.01, 0.3, 2.7, 9.2, 14.9, 3500.0]).to(dtype)
    found = tg.from_torch(Function(function), x).session().run(x)
    expected = function(x.double()).to(dtype).double()
    np.testing.assert_allclose(found, expected, rtol=torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.nonzero(), "nonzero.default in the module"),
        (lambda x: x[x > 0].sum(), "depend on data"),
        (lambda x: x.repeat(0, 2), "a result of"),
        (lambda x: x[:, 1:1], "a constant: a dimension is 0 in .3, 0."),
        (lambda x: (x, "a name"), "return tensors"),
        (lambda x: x.int() & x.int(), "only on truth values"),
        (lambda x: x.int() ** 5, "integers to the power of 5"),
        (lambda x: x.int() + torch.tensor(2**40), "only whole numbers from -2147483648"),
    ],
)
def test_what_is_refused(function, message):
    with pytest.raises(ValueError, match=message):
        tg.from_torch(Function(function), torch.rand(3, 4))


def test_products_of_tables_whose_sizes_depend_on_data_are_refused():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(8, 4)

        def forward(self, ids):
            return F.linear(self.table(ids)[ids > 3], self.table.weight)

    with pytest.raises(ValueError, match="depend on data"):
        tg.from_torch(Masked(), torch.arange(8))


def test_outputs_that_are_no_tensors():
    graph = tg.from_torch(Function(lambda x: (x, None, 3, x > 0, True, 2.5)), torch.rand(3, 4))
    assert set(graph.outputs) == {"output0", "output2", "output3", "output4", "output5"}
    y = graph.session().run(torch.ones(3, 4))
    assert y["output2"] == 3 and y["output3"].dtype == bool and y["output4"] is np.True_ and y["output5"] == 2.5


def test_integers_beyond_32_bits_are_refused():
    session = tg.from_torch(Function(lambda x: x + 1), torch.tensor([1, 2])).session()
    assert list(session.run(torch.tensor([-5, 2**31 - 2]))) == [-4, 2**31 - 1]
    with pytest.raises(ValueError, match="entries must be from -2147483648"):
        session.run(torch.tensor([2**31, 0]))


@pytest.mark.parametrize(
    ("function", "kind", "last", "beyond"),
    [
        (lambda x: x + 1, "add", 2**31 - 2, 2**31 - 1),
        (lambda x: x - 3, "sub", -(2**31) + 3, -(2**31) + 2),
        (lambda x: 5 - x, "sub", -(2**31) + 6, -(2**31) + 5),
        (lambda x: x * 65536, "mul", -(2**15), 2**15),
        (lambda x: x * x, "mul", 46340, 46341),
        (lambda x: torch.add(x, x[:1], alpha=2), "add", 2**31 - 15, 2**31 - 14),
    ],
)
def test_integers_of_64_bits_do_not_wrap_around(function, kind, last, beyond):
    session = tg.from_torch(Function(function), torch.tensor([1, 2])).session()
    for _ in range(2):
        given = torch.tensor([7, last])
        assert list(session.run(given)) == function(given).tolist()
        with pytest.raises(ValueError, match=f"{kind} of integers that come from .* is beyond 32 bits"):
            session.run(torch.tensor([7, beyond]))


def test_integers_of_32_bits_wrap_around_as_in_pytorch():
    given = torch.tensor([2**31 - 1, -(2**31)], dtype=torch.int32)
    session = tg.from_torch(Function(lambda x: x + x - 1), given).session()
    assert list(session.run(given)) == (given + given - 1).tolist()


def test_bounds_beyond_32_bits_bound_nothing():
    wide = torch.iinfo(torch.int64)
    function = Function(lambda x: (x.clamp(wide.min, wide.max) + 1, x.clamp(min=wide.min) + 1, x.clamp(max=wide.max) + 1))
    x = torch.tensor([-(2**31), 5, 2**31 - 2])
    for each in tg.from_torch(function, x).session().run(x).values():
        assert list(each) == [-(2**31) + 1, 6, 2**31 - 1]
    for refused in (lambda x: x.clamp(min=2**40), lambda x: x.clamp(max=-(2**40))):
        with pytest.raises(ValueError, match="1099511627776 is not a value of i32"):
            tg.from_torch(Function(refused), x)


def test_ignored_labels_of_a_training_step():
    torch.manual_seed(4)
    module, x, labels = nn.Linear(6, 4), torch.randn(8, 6), torch.randint(4, (8,))
    labels[::3] = -100
    session = tg.from_torch(module, x).training_step("cross_entropy", lr=0.0).session()
    assert session.run(x, labels) == pytest.approx(F.cross_entropy(module(x), labels).item(), rel=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_weights_of_classes_train(reduction):
    """PyTorch has no such gradient: compare with the definition of the loss."""
    torch.manual_seed(5)
    logits, weights = torch.randn(8, 4, requires_grad=True), torch.tensor([0.5, 1, 0, 1.5], requires_grad=True)
    labels = torch.tensor([0, 1, 2, 3, -1, 3, -1, 0])
    of_rows = torch.where(labels < 0, 0.0, weights[labels.clamp(min=0)])
    rows = -of_rows * logits.log_softmax(1).gather(1, labels.clamp(min=0)[:, None])[:, 0]
    expected = rows.sum() / of_rows.sum() if reduction == "mean" else rows.sum()
    expected.backward()
    graph = tg.Graph()
    x, w = graph.parameter("x", initial=logits.detach()), graph.parameter("w", initial=weights.detach())
    y = graph.input("labels", (8,), "i32")
    loss = tg.cross_entropy(x, y, weight=w, ignored=-1, reduction=reduction)
    session = graph.training_step(tg.sum(loss), lr=1.0).session()
    assert session.run(labels) == pytest.approx(expected.item(), rel=1e-5)
    for name, values in (("x", logits), ("w", weights)):
        np.testing.assert_allclose(session.get(name), (values - values.grad).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int32, torch.uint32, torch.int64, torch.float16, torch.bfloat16, torch.float32]
)
def test_compiled_models_have_inputs_and_results_of_each_type(dtype, tmp_path):
    model, x = Function(lambda x: (x, x.float() * 2)).eval(), torch.arange(3).to(dtype)
    compiled = tessera.compile(model, x)
    compiled.save(tmp_path / "m.safetensors")
    for each in (compiled, tessera.load(tmp_path / "m.safetensors")):
        for _ in range(2):
            for found, wanted in zip(each(x), model(x), strict=True):
                assert (found.dtype, found.tolist()) == (wanted.dtype, wanted.tolist())


@pytest.mark.parametrize("is_short", [True, False])
def test_inputs_that_are_not_dense_are_refused(is_short):
    x = torch.randn(2, 3)
    given = (x,) if is_short else (x, 1.0)
    compiled = tessera.compile(Function(lambda x, factor=1.0: x * factor).eval(), given)
    nested = torch.nested.nested_tensor([torch.randn(3), torch.randn(2)])
    for _ in range(2):
        for wrong, message in ((nested, "is a nested tensor: pad"), (x.to_sparse(), "is in torch.sparse_coo: make")):
            with pytest.raises(TypeError, match=message):
                compiled(wrong, *given[1:])
            with pytest.raises(ValueError, match=f"the example input .* {message}"):
                tessera.compile(nn.ReLU().eval(), wrong)
        compiled(*given)
    with pytest.raises(TypeError, match="is bool; the model was compiled for float32"):
        compiled(np.ones((2, 3), bool), *given[1:])


def test_labels_that_are_no_classes_are_refused():
    for loss in (F.cross_entropy, lambda x, y: F.nll_loss(x.log_softmax(1), y)):
        session = tg.from_torch(Function(loss), (torch.randn(3, 4), torch.tensor([0, 1, 2]))).session()
        with pytest.raises(ValueError, match=r"entry \[2\] of the ids, .* is 7; there are rows 0 to 3"):
            session.run(torch.randn(3, 4), torch.tensor([0, 1, 7]))


def test_a_mean_of_squares_beyond_fp16():
    graph = tg.Graph()
    x, target = (graph.input(name, (4,), "f16") for name in ("x", "target"))
    graph.output("y", tg.mean_squared_error(x, target))
    assert graph.session().run(np.float16([320, 0, 0, 0]), np.zeros(4, np.float16)) == 25600
    of_integers = graph.input("integers", (4,), "i32")
    with pytest.raises(ValueError, match="use f32, f16 or bf16"):
        tg.mean_squared_error(of_integers, of_integers)
