"""Products of computed values, and attention, from PyTorch."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from beside_torch import Function, compare, trains_like_pytorch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tessera  # noqa: E402
from tessera import graph as tg  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    ("function", "a", "b"),
    [
        (torch.matmul, (7, 9), (9, 5)),
        (torch.matmul, (3, 7, 9), (9, 5)),
        (torch.matmul, (3, 7, 9), (3, 9, 5)),
        (torch.matmul, (2, 1, 7, 9), (3, 9, 5)),
        (torch.matmul, (7, 9), (3, 9, 5)),
        (torch.matmul, (9,), (9,)),
        (torch.matmul, (9,), (3, 9, 5)),
        (torch.matmul, (3, 7, 9), (9,)),
        (torch.bmm, (3, 7, 9), (3, 9, 5)),
        (lambda a, b: torch.bmm(a.expand(3, -1, -1), b), (7, 9), (3, 9, 5)),
        (lambda a, b: torch.bmm(a, b.unsqueeze(0).expand(3, -1, -1)), (3, 7, 9), (9, 5)),
        (lambda a, b: torch.bmm(a.expand(3, -1, -1), b.expand(3, -1, -1)), (7, 9), (9, 5)),
        (lambda a, b: torch.bmm(a.expand(3, -1, -1), b), (1, 7, 9), (3, 9, 5)),
        (lambda a, b: a @ b.transpose(-2, -1), (2, 3, 7, 9), (2, 3, 5, 9)),
        (lambda a, b: a.mT @ b, (3, 9, 7), (3, 9, 5)),
        (lambda a, b: a.transpose(1, 2) @ b.transpose(1, 2), (3, 9, 7), (3, 5, 9)),
        (lambda a, b: torch.baddbmm(a.sum(1, keepdim=True)[..., :5], a, b, alpha=0.5, beta=2), (3, 7, 9), (3, 9, 5)),
        (lambda a, b: torch.einsum("bij,bjk->bik", a, b), (3, 7, 9), (3, 9, 5)),
        (lambda a, b: F.linear(a, b), (3, 7, 9), (5, 9)),
    ],
)
def test_products(function, a, b):
    torch.manual_seed(0)
    compare(Function(function), torch.randn(a), torch.randn(b))


def of_matrices(a, b, transpose_a, transpose_b):
    return (a.mT if transpose_a else a) @ (b.mT if transpose_b else b)


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("is_left", "transpose_a", "transpose_b"), list(itertools.product([False, True], repeat=3)))
def test_products_with_sparse_factors(is_left, transpose_a, transpose_b, dynamic):
    torch.manual_seed(0)
    matrix = tessera.generate(32, 48, 0.3, block_size=8, seed=1)
    dense = torch.from_numpy(matrix.to_dense()).requires_grad_()
    inner = 48 if is_left is not transpose_a else 32
    if not is_left:
        inner = 48 if transpose_b else 32
    swaps = transpose_b if is_left else transpose_a
    x = torch.randn((3, 5, inner) if swaps is is_left else (3, inner, 5))
    factors = (dense, x) if is_left else (x, dense)
    y = of_matrices(*factors, transpose_a, transpose_b)
    target = torch.randn(y.shape)
    F.mse_loss(y, target).backward()

    graph = tg.Graph()
    given = graph.input("x", tuple(x.shape))
    w = graph.sparse_parameter("w", matrix, dynamic=dynamic)
    a, b = (w, given) if is_left else (given, w)
    graph.output("y", tg.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b))
    np.testing.assert_allclose(graph.session().run(x), y.detach(), rtol=1e-4, atol=1e-5)
    session = graph.training_step("mse", "sgd", lr=0.5).session()
    session.run(x, target)
    expected = dense.detach() - 0.5 * dense.grad * (dense.detach() != 0)
    np.testing.assert_allclose(session.matrix("w").to_dense(), expected, rtol=1e-4, atol=1e-5)


def heads(x, count):
    return x.view(*x.shape[:-1], count, -1).transpose(-3, -2)


class Attention(nn.Module):
    """A layer of self-attention, with any mask."""

    def __init__(self, features=24, count=4, kv=None, mask=None, **options):
        super().__init__()
        self.count, self.kv, self.options = count, kv or count, options
        self.q = nn.Linear(features, features)
        self.k = nn.Linear(features, features // count * self.kv)
        self.v = nn.Linear(features, features // count * self.kv)
        self.out = nn.Linear(features, features)
        self.register_buffer("mask", mask)

    def forward(self, x, *more):
        q, k, v = heads(self.q(x), self.count), heads(self.k(x), self.kv), heads(self.v(x), self.kv)
        mask = more[0] if more else self.mask
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.options)
        return self.out(y.transpose(-3, -2).flatten(-2))


def window(count, left, right):
    distance = torch.arange(count)[None, :] - torch.arange(count)[:, None]
    return (distance >= -left) & (distance <= right)


MASKS = {
    "all": {},
    "causal": {"is_causal": True},
    "grouped": {"kv": 2, "enable_gqa": True},
    "one key head": {"kv": 1, "enable_gqa": True, "is_causal": True, "scale": 0.4},
    "one key head, broadcast": {"kv": 1},
    "lower triangle": {"mask": torch.ones(19, 19, dtype=torch.bool).tril()},
    "window": {"mask": window(19, 3, 2)},
    "scattered": {"mask": torch.rand(19, 19, generator=torch.Generator().manual_seed(3)) > 0.5},
    "additive": {"mask": torch.linspace(-2, 2, 19 * 19).view(1, 1, 19, 19)},
    "padding": {"mask": (torch.arange(19) < 15).view(1, 1, 1, 19)},
    "of queries": {"mask": torch.linspace(-2, 2, 19).view(19, 1)},
}


@pytest.mark.parametrize("options", MASKS.values(), ids=MASKS)
def test_attention(options):
    torch.manual_seed(1)
    compare(Attention(**options).eval(), torch.randn(2, 19, 24))


@pytest.mark.parametrize(("name", "limit"), [("lower triangle", "right=0"), ("window", "left=3")])
def test_masks_become_limits(name, limit):
    (line,) = [line for line in str(tg.from_torch(Attention(**MASKS[name]).eval(), (torch.randn(2, 19, 24),))).split("\n") if "attention(" in line]
    assert limit in line.replace(" ", "").replace(":", "=")
    assert "bias" not in line


@pytest.mark.parametrize(("q", "k", "v"), [(2, 1, 1), (1, 2, 2), (2, 2, 1)])
def test_sequences_are_broadcast(q, k, v):
    torch.manual_seed(1)
    tensors = [torch.randn(batch, 4, count, 8) for batch, count in ((q, 5), (k, 7), (v, 7))]
    compare(Function(F.scaled_dot_product_attention), *tensors)


def dropped(count, p, seed=0):
    """Attention whose probabilities are all 1 / count: results are the fractions of kept values, divided by 1 - p."""
    graph = tg.Graph()
    q, v = graph.input("q", (2, count, 8)), graph.input("v", (2, count, 8))
    graph.output("y", tg.attention(q, q, v, heads=2, dropout=p, seed=seed))
    return graph.session()


def test_dropout_keeps_its_fraction_and_differs_between_steps():
    session, count = dropped(400, 0.25), 400
    q, v = np.zeros((2, count, 8), np.float32), np.ones((2, count, 8), np.float32)
    first, second = session.run(q, v), session.run(q, v)
    assert np.abs(first - second).max() > 0.01
    kept = first[..., ::4] * 0.75 * count  # for each query and head
    np.testing.assert_allclose(kept, np.round(kept), atol=1e-2)
    assert abs(kept.mean() / count - 0.75) < 0.005
    session.step = 1
    np.testing.assert_array_equal(session.run(q, v), first)
    assert np.abs(dropped(count, 0.25, seed=1).run(q, v) - first).max() > 0.01


class Dropping(nn.Module):
    def __init__(self, need_weights):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, dropout=0.5, batch_first=True)
        self.options = {"need_weights": need_weights}

    def forward(self, x):
        return self.attention(x, x, x, **self.options)[0]


@pytest.mark.parametrize("need_weights", [False, True])
def test_dropout_of_pytorch_in_training(need_weights):
    torch.manual_seed(4)
    module, x = Dropping(need_weights), torch.randn(3, 60, 16)
    graph = tg.from_torch(module.train(), (x,))
    assert ("p=0.5" in str(graph).replace(": ", "=")) and ("softmax" in str(graph)) == need_weights
    session = graph.session()
    results = np.stack([session.run(x) for _ in range(200)])
    assert results.std(0).mean() > 0.01
    with torch.no_grad():
        expected = module.eval()(x).numpy()
    np.testing.assert_allclose(results.mean(0), expected, atol=6 * results.std(0).max() / 200**0.5)


def test_a_mask_that_is_an_input():
    torch.manual_seed(2)
    mask = torch.where(torch.arange(19).view(1, 1, 1, 19) < torch.tensor([12, 19]).view(2, 1, 1, 1), 0.0, -1e9)
    compare(Attention(), torch.randn(2, 19, 24), mask)


@pytest.mark.parametrize("machine", ["host", "bow"])
def test_truth_that_is_computed_hides_keys(machine):
    """One query attends to nothing."""
    torch.manual_seed(5)
    attend = lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m > 0)  # noqa: E731
    q, k, v = (torch.randn(2, 3, 6, 8) for _ in range(3))
    mask = torch.rand(2, 1, 6, 6) - 0.4
    mask[1, 0, 2] = -1
    session = tg.from_torch(Function(attend), (q, k, v, mask)).session(machine)
    np.testing.assert_allclose(session.run(q, k, v, mask), attend(q, k, v, mask), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("machine", ["host", "bow"])
def test_a_finite_number_that_hides_all_keys_hides_none(machine, is_constant):
    torch.manual_seed(6)
    q, k, v = (torch.randn(2, 3, 6, 8) for _ in range(3))
    mask = torch.zeros(1, 1, 6, 6)
    mask[..., 2, :] = mask[..., :4, 4:] = torch.finfo(torch.float32).min
    attend = lambda q, k, v, m=mask: F.scaled_dot_product_attention(q, k, v, attn_mask=m)  # noqa: E731
    inputs = (q, k, v) if is_constant else (q, k, v, mask)
    session = tg.from_torch(Function(attend), inputs).session(machine)
    np.testing.assert_allclose(session.run(*inputs), attend(*inputs), rtol=1e-4, atol=1e-5)


def test_a_constant_mask_may_begin_with_one_that_hides_all():
    torch.manual_seed(7)
    mask = torch.ones(2, 1, 19, 19, dtype=torch.bool).tril()
    mask[0] = False
    compare(Attention(mask=mask).eval(), torch.randn(2, 19, 24))


@pytest.mark.pairs(3)
@pytest.mark.parametrize("most", [0.5, 20.0, 300.0, 1e5, 1e7, 1e30])
@pytest.mark.parametrize("order", ["ascending", "descending", "mixed"])
def test_scores_of_any_size_and_order(most, order):
    """Results so far are rescaled as later keys have larger scores; each query has its own scores."""
    torch.manual_seed(5)
    scores = torch.linspace(-most, most, 300)
    scores = {"ascending": scores, "descending": scores.flip(0), "mixed": scores[torch.randperm(300)]}[order]
    q = torch.tensor([1.0, -1.0, 0.0, 0.5] * 10).view(1, 1, 40, 1)
    attention = Function(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=1.0))
    compare(attention, q, scores.view(1, 1, 300, 1), torch.randn(1, 1, 300, 5))


@pytest.mark.parametrize("machine", ["host", "bow"])
def test_scores_of_16_bits_do_not_overflow(machine):
    graph = tg.Graph()
    q, k, v = (graph.input(name, (4, 128), "f16") for name in "qkv")
    graph.output("y", tg.attention(q, k, v, heads=1))
    x = np.full((4, 128), 30, np.float16)
    values = np.random.default_rng(0).standard_normal((4, 128)).astype(np.float16)
    y = graph.session(machine).run(x, x, values)
    np.testing.assert_allclose(y.astype(np.float32), np.tile(values.mean(0, dtype=np.float32), (4, 1)), atol=2e-3)


@pytest.fixture
def without_fast_path():
    """PyTorch's layers as in training."""
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoders_of_pytorch(norm_first, without_fast_path):
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(24, 4, 48, batch_first=True, activation="gelu", norm_first=norm_first)
    compare(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), torch.randn(2, 19, 24))


@pytest.mark.parametrize(
    ("name", "machine"), [*((name, "host") for name in MASKS), ("one key head", "bow"), ("additive", "bow")]
)
def test_attention_trains_as_in_pytorch(name, machine):
    torch.manual_seed(4)
    module, x, target = Attention(**MASKS[name]), torch.randn(2, 19, 24), torch.randn(2, 19, 24)
    trains_like_pytorch(module, x, target, "mse", lr=0.5, machine=machine)


def test_packed_sequences_are_those_alone():
    """Two packs of sequences; one ends with padding."""
    graph = tg.Graph()
    lengths = [[5, 3, 4], [6, 4]]
    ids = np.zeros((2, 12), np.uint32)
    for pack, row in zip(ids, lengths, strict=True):
        pack[: sum(row)] = np.repeat(np.arange(1, len(row) + 1), row)
    q, k, v = (graph.input(name, (2, 12, 16)) for name in "qkv")
    of = graph.input("ids", (2, 12), "u32")
    graph.output("y", tg.attention(q, k, v, heads=2, right=0, query_ids=of, key_ids=of))
    arrays = [np.random.default_rng(i).standard_normal((2, 12, 16)).astype(np.float32) for i in range(3)]
    y = graph.session().run(*arrays, ids)
    assert not y[1, 10:].any()
    for pack, row in enumerate(lengths):
        for begin, end in zip(np.cumsum([0, *row]), np.cumsum(row), strict=False):
            alone = [heads(torch.from_numpy(array[pack : pack + 1, begin:end]), 2) for array in arrays]
            expected = F.scaled_dot_product_attention(*alone, is_causal=True).transpose(-3, -2).flatten(-2)
            np.testing.assert_allclose(y[pack, begin:end], expected[0], rtol=1e-4, atol=1e-5)


def test_keys_after_lengths_are_left_out():
    graph = tg.Graph()
    q, k, v = (graph.input(name, (3, tokens, 16)) for name, tokens in [("q", 5), ("k", 9), ("v", 9)])
    graph.output("y", tg.attention(q, k, v, heads=2, lengths=graph.input("lengths", (3,), "u32")))
    arrays = [np.random.default_rng(i).standard_normal(x.shape).astype(np.float32) for i, x in enumerate((q, k, v))]
    lengths = np.array([4, 9, 0], np.uint32)
    y = graph.session().run(*arrays, lengths)
    assert not y[2].any()
    for i, length in enumerate(lengths[:2]):
        alone = [torch.from_numpy(array[i : i + 1]) for array in arrays]
        alone = [heads(x if x is alone[0] else x[:, : int(length)], 2) for x in alone]
        expected = F.scaled_dot_product_attention(*alone).transpose(-3, -2).flatten(-2)
        np.testing.assert_allclose(y[i], expected[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": 3}, "3 heads cannot share|not 3 and 3 heads"),
        ({"heads": 4, "kv_heads": 3}, "4 heads cannot share 3"),
        ({"heads": 2, "left": -1}, "left is -1; it must be from 0 to"),
        ({"heads": 2, "kv_heads": 0}, "kv_heads is 0; it must be from 1 to"),
        ({"heads": 2, "dropout": 0.5, "seed": -1}, "seed is -1; it must be from 0 to"),
        ({"heads": 2, "query_ids": True}, "ids of both queries and keys"),
        ({"heads": 2, "bias": (2, 2, 12)}, "the bias is"),
        ({"heads": 2, "lengths": (2, 1)}, "the lengths are .* one for each sequence"),
        ({"heads": 2, "lengths": (2,), "query_ids": True, "key_ids": True}, "ids or lengths"),
    ],
)
def test_what_attention_refuses(arguments, message):
    graph = tg.Graph()
    x = graph.input("x", (2, 12, 16))
    for name in ("query_ids", "key_ids"):
        if name in arguments:
            arguments = {**arguments, name: graph.input(name, (2, 12), "u32")}
    if "lengths" in arguments:
        arguments = {**arguments, "lengths": graph.input("lengths", arguments["lengths"], "u32")}
    if "bias" in arguments:
        arguments = {**arguments, "bias": graph.input("bias", arguments["bias"])}
    with pytest.raises(ValueError, match=message):
        tg.attention(x, x, x, **arguments)
