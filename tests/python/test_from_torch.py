"""Graphs of PyTorch modules: the same results, and lists of missing operations."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from beside_torch import compare, compare_each, in_groups, trains_like_pytorch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tessera import graph as tg  # noqa: E402
from tessera.graph import _from_torch  # noqa: E402
from tessera.nn import SparseLinear  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def mlp():
    return nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 10))


class Residual(nn.Module):
    """An MLP with a residual connection, and normalisation if wanted."""

    def __init__(self, norm=False):
        super().__init__()
        self.norm = nn.GroupNorm(3, 24) if norm else nn.Identity()
        self.up = nn.Linear(24, 48)
        self.down = nn.Linear(48, 24)
        self.head = nn.Linear(24, 10)

    def forward(self, x):
        return self.head(x + self.down(F.gelu(self.up(self.norm(x)))))


class FeedForward(nn.Module):
    """The feed-forward block of an encoder: [batch, sequence, features]."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Dropout(dropout), nn.Linear(64, 16))

    def forward(self, x):
        return x + self.layers(x)


class Function(nn.Module):
    """A function of two matrices."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, a, b):
        return self.function(a, b)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (mlp, (8, 24)),
        (Residual, (8, 24)),
        (FeedForward, (4, 6, 16)),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(24, 5), nn.Softmax(-1)), (3, 2, 3, 4)),
        (lambda: nn.Sequential(nn.Linear(24, 5), nn.LogSoftmax(1)), (7, 24)),
        (lambda: nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 5), nn.LayerNorm(5, eps=0.1, bias=False)), (2, 7, 24)),
        (lambda: nn.LayerNorm(24, elementwise_affine=False), (7, 24)),
        (lambda: nn.Sequential(nn.Linear(24, 6, bias=False), nn.Sigmoid(), nn.SiLU(), nn.ReLU6()), (7, 24)),
        (lambda: SparseLinear(24, 40, density=0.3), (7, 24)),
        (lambda: SparseLinear(24, 40, density=0.5, block_size=4, activation="relu", dynamic=30), (2, 7, 24)),
        (lambda: SparseLinear(32, 48, density=0.5, block_size=16, activation="gelu", bias=False), (7, 32)),
    ],
)
def test_modules(make, shape):
    torch.manual_seed(1)
    module = make()
    session = compare(module, torch.randn(shape))
    assert set(session.parameters()) == {name for name, _ in module.named_parameters()}


FUNCTIONS = [
    lambda a, b: a + 2 * b - 1,
    lambda a, b: (1 - a) / (b * b + 2) - torch.add(a, b, alpha=3),
    lambda a, b: torch.exp(a).log() + b.abs().sqrt() + (b.abs() + 1).rsqrt(),
    lambda a, b: torch.maximum(a, b) * torch.minimum(-a, b).clamp(-0.5, 0.5),
    lambda a, b: a**2 + (b.abs() + 1) ** -1,
    lambda a, b: a.sum() + b.mean() + a.max(),
    lambda a, b: a.sum(-1, keepdim=True) * b + a.mean(0),
    lambda a, b: a.mean(1) + b.amax(1),
    lambda a, b: a.T + b.transpose(0, 1),
    lambda a, b: torch.where(a > b, a, 2 * b) + torch.where(a <= 0.5, 1.0, b) + torch.where(a != b, 0.0, 1.0),
    lambda a, b: a.masked_fill(b < 0.6, float("-inf")).exp() + b.masked_fill(torch.tensor(True), 2.0),
    lambda a, b: ((a >= b) & (a < 1) | ~(b == a)).float() + torch.logical_xor(a > 0.5, b > 0.5),
    lambda a, b: a * (torch.arange(7) > 3) + torch.ones(10, 7).tril() * torch.arange(10).unsqueeze(1),
    lambda a, b: a.masked_fill(torch.full((10, 7), True).triu(1), 0) + b * torch.tensor([-1, 2, 3, 4, 5, 6, 7]),
    lambda a, b: a**3 + (a - 1) ** 2 + a**1.7 + (b - 2) ** -3 + b**2.5 + 2**a,
    lambda a, b: a.clamp(min=0.5) + b.clamp(max=0.5) + torch.clamp(a, b, 2 * b) + b.clip(0.2, 0.7),
    lambda a, b: torch.erf(a) + a.sin() * b.cos() + F.mish(a) + F.logsigmoid(b) + F.relu6(7 * a),
    lambda a, b: F.gelu(a - b, approximate="tanh") + F.silu(b - a) + F.hardswish(8 * (a - b)) + F.hardsigmoid(b),
    lambda a, b: F.leaky_relu(a - b) + F.leaky_relu(b - a, 0.3) + F.hardtanh(2 * a) + F.softplus(a - b, 2, 1),
    lambda a, b: F.elu(a - b) + F.elu(b - a, 0.5) + F.selu(a - b) + F.celu(b - a, 0.7),
    lambda a, b: (a > 0.5).half() * b.half() + (a.half() > 0.5).float(),
    lambda a, b: a.softmax(0) + b.log_softmax(0) + a.reshape(2, 5, 7).softmax(1).reshape(10, 7),
    lambda a, b: a[:, None, :] - b[None, :, :] * a.reshape(10, 7, 1)[:, 3:4],
    lambda a, b: a.reshape(2, 1, 5, 7) + b.reshape(2, 5, 7)[:, None, :1] + b[:2].reshape(2, 7, 1, 1),
    lambda a, b: a.cumsum(0) + b.cumsum(-1) + a.max(1).values[:, None] + b.min(0)[0],
    lambda a, b: a.argmax(1) + b.argmin(1) + a.max(1).indices + a.argmax() + (a > 0.4).cumsum(1)[:, -1],
    lambda a, b: (a > 0.5).sum(1) + (b > 0.5).any(1) * 2 + (b > 0.1).all(1).int() + a.amin(1) + b.min(),
    lambda a, b: a.var(0) + b.std(1, keepdim=True) + a.var((0, 1), correction=0) + torch.logsumexp(b, 0),
    lambda a, b: a[:, ::2] + b[:, 1::2].repeat(1, 2)[:, :4] + a.flip(1)[:, :4] + b.roll(2, 0)[:, 3:],
    lambda a, b: a.tril() + b.triu(1) + torch.cat([x * 2 for x in a.unbind(0)][:2])[:7] + b[3:7].sum(0),
    lambda a, b: (
        a.repeat_interleave(2, 0)[::2] + b[:, :1].expand(-1, 7) + torch.zeros_like(a) + torch.full_like(b, 2)
    ),
    lambda a, b: F.pad(a, (1, 2, 0, 3), value=0.5).sum(0) + F.pad(b, (3, 0)).mean(0) + a.new_ones(10),
    lambda a, b: a.reshape(2, 5, 7).swapaxes(0, 2) + b.reshape(5, 7, 2).movedim(0, 1).reshape(7, 5, 2),
    lambda a, b: a.reshape(2, 5, 7).permute(2, 0, 1) + b.reshape(2, 5, 7).transpose(1, 2).permute(1, 0, 2),
    lambda a, b: (
        a.reshape(2, 5, 7).sum(1) + b.reshape(2, 5, 7).amax((0, 1)) + a.reshape(2, 5, 7).mean((0, 2)).sum()
    ),
    lambda a, b: a.reshape(2, -1) + b.flatten().view(2, 35),
    lambda a, b: torch.cat([a, b[:, 2:5]], dim=1)[1:],
    lambda a, b: torch.cat([a[:, :7], b[:, 7:]], dim=1) + torch.cat([b[:0], a]),
    lambda a, b: torch.stack([a, b])[1] + a[3],
    lambda a, b: sum(torch.chunk(a[:8], 2)) + torch.split(b, [4, 6])[0],
    lambda a, b: a.unsqueeze(1).squeeze(1) + b.expand(10, 7),
    lambda a, b: F.mse_loss(a, b) + F.l1_loss(a, b) + F.mse_loss(a, b, reduction="sum"),
    lambda a, b: (a.half() + b.half()).float(),
    lambda a, b: a + torch.tensor([1.0, 2, 3, 4, 5, 6, 7]) * 0.5 + b,
    lambda a, b: a.clone().add_(b).relu_(),
    lambda a, b: F.layer_norm(a, [7]) + F.layer_norm(b, [7], bias=a[0]),
    lambda a, b: F.layer_norm(a, [7], b[0], a[1], eps=0.01),
    lambda a, b: F.layer_norm(a.reshape(2, 5, 7), [5, 7], b[:5], a[:5]) + F.rms_norm(b.reshape(2, 5, 7), [5, 7]),
    lambda a, b: F.rms_norm(a, [7]) + F.rms_norm(b, [7], a[0], eps=0.01),
    lambda a, b: F.binary_cross_entropy_with_logits(a, b) + F.cross_entropy(a, b / b.sum(1, keepdim=True)),
    lambda a, b: F.cross_entropy(a, b.softmax(1), weight=b[0], label_smoothing=0.1, reduction="sum"),
    lambda a, b: torch.addmm(a[:, :1], b, a.T, beta=0.5, alpha=3) + torch.addmm(a[0, 0], b, a.T, beta=0),
    lambda a, b: F.scaled_dot_product_attention(a, b, b - a) + F.scaled_dot_product_attention(a, a, b, is_causal=True),
    lambda a, b: a.unfold(1, 3, 2).sum(-1) + b.unfold(0, 1, 1)[:, :3, 0] + a.reshape(2, 5, 7).unfold(1, 5, 1).sum(),
    lambda a, b: a.diagonal() + b.diagonal(-2) * a.T.diagonal(2)[:7] + a.reshape(2, 5, 7).diagonal(1, 2, 1).sum(),
    lambda a, b: a.clone().slice_scatter(b[:4] * 2, 0, 1, 9, 2) + torch.select_scatter(b, a[:, 0], 1, -1),
    lambda a, b: a.scatter_add(1, (b > 0.5).long()[:4, :2] + torch.tensor([0, 3]), b),
    lambda a, b: torch.einsum("bd,od->bo", a, b) + torch.einsum("od,bd->bo", b, a) + torch.einsum("bd,do->bo", a, b.T),
    lambda a, b: torch.einsum("...d,od->...o", a.reshape(2, 5, 7), b).sum() + torch.einsum("bd,bd->bd", a, b),
    lambda a, b: a**b + (a - 0.5) ** (4 * b).round() + 0.3**a + a.pow(torch.tensor([0.0, 1, 2, 3, -1, 0.5, 2.5])),
    lambda a, b: (a - 0.5) % b + (a - 0.5) % 0.21 + torch.fmod(a - 0.5, b - 0.6) + torch.remainder(0.7, b),
    lambda a, b: (a - 0.5) // b + (a - 0.5) // -0.13 + torch.div(a - 0.5, b, rounding_mode="trunc"),
    lambda a, b: (
        a.reshape(1, 5, 2, 7, 1, 1).permute(0, 3, 1, 2, 4, 5).reshape(7, 10).T
        + b.reshape(1, 1, 5, 2, 1, 7).permute(0, 2, 1, 3, 5, 4).reshape(10, 7)
        + b.reshape(5, 1, 2, 1, 7, 1, 1).transpose(0, 2).transpose(-1, -2).reshape(2, 5, 7).reshape(10, 7)
        + (torch.cat([a] * 6) * b.repeat(6, 1)).reshape(2, 3, 2, 5, 1, 7).permute(3, 2, 5, 0, 4, 1).reshape(6, 10, 7).sum(0)
        + torch.cat([a] * 8).reshape(2, 5, 2, 2, 2, 7).permute(5, 4, 3, 2, 1, 0).reshape(8, 10, 7).sum(0)
    ),
    lambda a, b: torch.einsum("bd,bd->b", a, b)[:, None] + torch.einsum("bd,ed->be", a, b).diagonal()[:, None],
]


@pytest.mark.parametrize(("first", "of"), in_groups(len(FUNCTIONS)))
def test_functions(first, of):
    torch.manual_seed(2)
    a, b = torch.rand(2, 10, 7) + 0.1
    for in_16_bits in (False, True):
        several = [each for each in FUNCTIONS[first : first + of] if ("half" in each.__code__.co_names) == in_16_bits]
        if several:
            compare_each(several, (a, b), rtol=1e-3 if in_16_bits else 1e-4)


def test_masks_and_positions_of_integers():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(20, 8, padding_idx=1), nn.Embedding(20, 8)

        def forward(self, ids, mask):
            present = ids.ne(1).int()
            positions = (present + 3) * present + 1 - present.clamp(max=1)
            bias = (1.0 - mask[:, :, None].float()) * -10.0
            return self.words(ids) + self.places(positions) + bias + torch.where(mask, 1.0, 0.5).unsqueeze(-1)

    torch.manual_seed(6)
    ids = torch.randint(20, (3, 5))
    ids[1, 3:] = 1
    compare(Positions(), ids, ids > 4)


def test_heads_and_masks_train_as_in_pytorch():
    """The steps around the products of attention: heads are split, masked, and normalised over another dimension."""

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(12, 24), nn.Linear(24, 10)
            self.scale = nn.Parameter(torch.rand(4, 1, 6))
            self.register_buffer("mask", torch.ones(5, 5).tril().bool())

        def forward(self, x, present):
            h = self.up(x).view(3, 5, 4, 6).transpose(1, 2) * self.scale
            h = h[:, :, :, None, :2] + h[:, :, None, :, 2:4]
            h = h.mean(-1).masked_fill(~self.mask, float("-inf")).softmax(-1) + present[:, None, None, :]
            h = torch.cat([h, h.cumsum(-2)[..., :1]], dim=-1)
            return self.down(h.transpose(1, 2).reshape(3, 5, 24)).amax(1)

    torch.manual_seed(7)
    module, x, labels = Heads(), torch.randn(3, 5, 12), torch.randint(10, (3,))
    present = torch.rand(3, 5).round()
    trains_like_pytorch(module, (x, present), labels)


def test_elements_are_gathered_and_added_as_in_pytorch():
    class Gathered(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(12, 24)
            self.down = nn.Linear(8, 10)

        def forward(self, x, rows, places):
            h = self.up(x).view(6, 3, 8)
            chosen = h[rows] + h.index_select(0, rows) * 2 + h[torch.tensor([0, 2, 1, 5, -1])]
            added = torch.zeros(6, 3, 8).index_add(0, rows, chosen) + h
            return self.down(added.gather(2, places).sum(1) + added[:, 1])

    torch.manual_seed(11)
    module, x = Gathered(), torch.randn(6, 12)
    rows, places, labels = torch.tensor([3, 0, 3, 5, 1]), torch.randint(8, (6, 3, 8)), torch.randint(10, (6,))
    compare(module, x, rows, places)
    trains_like_pytorch(module, (x, rows, places), labels)


def test_products_with_transposed_parameters():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(12, 20)
            self.second = nn.Linear(12, 20, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(x) + x @ self.first.weight.t() + self.first(x)

    module = Tied()
    session = compare(module, torch.randn(5, 12))
    assert set(session.parameters()) == {"first.weight", "first.bias"}


def test_values_are_named_after_modules():
    step = tg.from_torch(Residual(), torch.randn(6, 24)).training_step()
    names = {operation.value for operation in step.estimate("host").operations}
    assert {"up", "down", "head", "down.gradient", "up.weight.gradient", "up.weight.updated"} <= names | {
        line.split(":")[0] for line in str(step).splitlines()
    }


def test_names_of_inputs_and_outputs():
    graph = tg.from_torch(Function(lambda a, b: {"total": a + b, "most": a.max()}), list(torch.rand(2, 3, 4)))
    assert [value.name for value in graph.inputs] == ["a", "b"]
    assert set(graph.outputs) == {"total", "most"}
    pair = tg.from_torch(Function(lambda a, b: (a, a + b)), list(torch.rand(2, 3, 4)))
    assert list(pair.outputs) == ["output0", "output1"]
    result = pair.session().run(a=torch.ones(3, 4), b=np.ones((3, 4)))
    assert result["output1"].max() == 2 and result["output0"].max() == 1


def test_training_and_evaluation_mode():
    module = nn.Sequential(nn.Linear(8, 200), nn.Dropout(0.5))
    x = torch.randn(50, 8)
    training = tg.from_torch(module.train(), x)
    evaluation = tg.from_torch(module.eval(), x)
    assert "dropout" in str(training) and "dropout" not in str(evaluation)
    zeros = (training.session().run(x) == 0).mean()
    assert abs(zeros - 0.5) < 0.03
    compare(module, x)


def test_a_loss_in_the_module():
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = mlp()

        def forward(self, x, labels):
            return F.cross_entropy(self.network(x), labels)

    torch.manual_seed(3)
    module, x, labels = WithLoss(), torch.randn(20, 24), torch.randint(10, (20,))
    graph = tg.from_torch(module, (x, labels))
    session = graph.training_step(graph.outputs["output"], lr=0.1).session()
    assert session.run(x, labels) == pytest.approx(module(x, labels).item(), rel=1e-5)


WEIGHTS = torch.linspace(0.2, 2, 10)


@pytest.mark.parametrize(
    "options",
    [
        {"ignore_index": -100},
        {"ignore_index": 3},
        {"weight": WEIGHTS},
        {"label_smoothing": 0.1},
        {"weight": WEIGHTS, "ignore_index": 2, "label_smoothing": 0.2},
        {"weight": WEIGHTS, "reduction": "sum"},
        {"reduction": "sum", "label_smoothing": 0.3},
    ],
    ids=str,
)
def test_cross_entropy_with_options_trains_as_in_pytorch(options):
    torch.manual_seed(8)
    labels = torch.randint(10, (20,))
    labels[::4] = options.get("ignore_index", 1)
    trains_like_pytorch(
        mlp(), torch.randn(20, 24), labels, lambda logits, labels: F.cross_entropy(logits, labels, **options)
    )


def test_losses_of_rows_train_as_in_pytorch():
    torch.manual_seed(9)
    labels = torch.randint(10, (4, 5))
    labels[1] = -100
    scale = torch.rand(4, 5)

    def loss_of(logits, labels):
        logits = logits.reshape(4, 5, 10)
        rows = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none", weight=WEIGHTS)
        smooth = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none", label_smoothing=0.1)
        shifted = F.cross_entropy(logits[:, :-1].reshape(-1, 10), labels[:, 1:].reshape(-1))
        return (
            (rows * scale + smooth).sum() + shifted + F.nll_loss(logits.log_softmax(-1).flatten(0, 1), labels.flatten())
        )

    trains_like_pytorch(mlp(), torch.randn(20, 24), labels, loss_of)


def test_probabilities_as_targets_train_as_in_pytorch():
    torch.manual_seed(10)
    target = torch.rand(20, 10).softmax(1)
    trains_like_pytorch(mlp(), torch.randn(20, 24), target, F.cross_entropy)
    trains_like_pytorch(
        mlp(), torch.randn(20, 24), target, lambda x, p: F.cross_entropy(x, p, weight=WEIGHTS, label_smoothing=0.2)
    )


def test_embeddings_train_as_in_pytorch():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(50, 24, padding_idx=0)
            self.positions = nn.Embedding(6, 24)
            self.head = nn.Linear(24, 50)
            self.head.weight = self.words.weight

        def forward(self, ids, positions):
            return self.head(torch.tanh(self.words(ids) + self.positions(positions))).reshape(-1, 50)

    torch.manual_seed(5)
    module, ids, labels = Tied(), torch.randint(50, (4, 6)), torch.randint(50, (24,))
    ids[:, 5] = 0
    positions = torch.arange(6).repeat(4, 1)
    trains_like_pytorch(module, (ids, positions), labels, lr=0.5, steps=5)


def test_layer_normalisation_of_what_is_no_number():
    x, weights = torch.randn(5, 19), torch.randn(2, 19)
    x[1, 2], x[2, 18], x[3, 0] = float("nan"), float("inf"), -float("inf")
    weights[0, 3], weights[1, 4] = float("inf"), float("nan")
    compare(nn.LayerNorm(19), x)
    compare(Function(lambda a, b: F.layer_norm(a, [19], b[0], b[1])), x, weights)


def test_frozen_parameters():
    module = mlp()
    module[0].weight.requires_grad_(False)
    session = tg.from_torch(module, torch.randn(6, 24)).training_step("mse", "adam", lr=0.1).session()
    session.run(torch.randn(6, 24), torch.randn(6, 10))
    np.testing.assert_array_equal(session.get("0.weight"), module[0].weight)
    assert not np.array_equal(session.get("2.weight"), module[2].weight.detach())


def test_parameters_go_to_and_from_modules():
    torch.manual_seed(4)
    module = nn.Sequential(SparseLinear(32, 48, density=0.3, block_size=8, dynamic=12), nn.ReLU(), nn.Linear(48, 4))
    x = torch.randn(10, 32)
    session = tg.from_torch(module, x).session()
    session.set_pattern("0.weight", [0, 1, 1, 2, 3, 4, 6], [0, 1, 2, 3, 0, 3])
    session.load_parameters({name: np.ones_like(values) for name, values in session.parameters().items()})
    other = copy.deepcopy(module)
    session.copy_to(other)
    assert other[0].blocks == 6 and other[0].dense_weight().sum() == 6 * 64
    np.testing.assert_allclose(session.run(x), other(x).detach(), rtol=1e-4, atol=1e-5)
    session.copy_from(module)
    np.testing.assert_allclose(session.run(x), module(x).detach(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"no parameter '0\.weight'"):
        session.copy_to(nn.Linear(3, 3))
    with pytest.raises(ValueError, match=r"'0\.weight' has shape \(5, 5\)"):
        session.copy_from(nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Linear(48, 4)))


def test_all_that_is_missing_is_listed():
    class Lacking(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Residual(norm=True)
            self.conv = nn.Conv3d(1, 1, 1)
            self.act = nn.RReLU()

        def forward(self, x):
            h = self.act(self.block(x))
            h = self.conv(h.reshape(1, 1, 2, 3, 10)).reshape(6, 10)
            return h.cumprod(0)

    with pytest.raises(tg.UnsupportedModuleError) as raised:
        tg.from_torch(Lacking(), torch.randn(6, 24))
    found = {(each.operator.split(".")[1], each.module) for each in raised.value.missing}
    assert found == {
        ("rrelu", "act (RReLU)"),
        ("convolution", "conv (Conv3d)"),
        ("cumprod", "the module (Lacking)"),
    }
    assert f"{len(raised.value.missing)} operations that a graph lacks" in str(raised.value)
    assert "aten.convolution.default in conv (Conv3d): convolutions over 3 dimensions" in str(raised.value)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a, b: (-2) ** a.int(), "-2 to the power of integers"),
        (lambda a, b: a.double() + b, "float64"),
        (lambda a, b: a.int() & b.int(), "only on truth values"),
        (
            lambda a, b: torch.cond(a.sum() > 0, lambda a: a + 1, lambda a: a - 1, (a,)),
            r"1 operation that a graph lacks:\n.*cond in the module \(Function\): control flow depends on data",
        ),
    ],
)
def test_what_operators_lack(function, message):
    with pytest.raises(tg.UnsupportedModuleError, match=message):
        tg.from_torch(Function(function), list(torch.rand(2, 3, 4, 5)))


def in_csr():
    layer = nn.Linear(4, 4)
    layer.weight = nn.Parameter(layer.weight.detach().to_sparse_csr())
    return layer


@pytest.mark.parametrize(
    ("make", "inputs", "message"),
    [
        (lambda: nn.Linear, torch.ones(1, 4), "the module is of type type; it must be a torch.nn.Module"),
        (lambda: torch.jit.script(nn.Linear(4, 4)), torch.ones(1, 4), "the module is a ScriptModule"),
        (in_csr, torch.ones(1, 4), "weight is in torch.sparse_csr: make it dense"),
        (lambda: nn.Linear(4, 4), None, "example_inputs is of type NoneType; give a tensor"),
        (lambda: nn.Linear(4, 4), {"input": torch.ones(1, 4)}, "example_inputs is of type dict"),
        (lambda: nn.Linear(4, 4), torch.ones(1, 4).double(), r"example input 0 is torch.float64.* by .float\(\)"),
    ],
)
def test_wrong_modules_and_examples_are_refused(make, inputs, message):
    with pytest.raises((TypeError, ValueError), match=message):
        tg.from_torch(make(), inputs)


def test_arrays_are_examples_too():
    layer, x = nn.Linear(4, 4), np.ones((2, 4), np.float32)
    for inputs in (x, [x]):
        np.testing.assert_allclose(
            tg.from_torch(layer, inputs).session().run(x), layer(torch.from_numpy(x)).detach(), rtol=1e-5, atol=1e-6
        )


def test_what_pytorch_cannot_export():
    with pytest.raises(ValueError, match="cannot export"):
        tg.from_torch(Function(lambda a, b: a if a.sum() > 0 else b), list(torch.rand(2, 3, 4)))


def test_changed_buffers_are_state():
    module, x = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), torch.randn(6, 4)
    session = tg.from_torch(module, x).session()
    np.testing.assert_allclose(session.run(x), module(x).detach(), rtol=1e-4, atol=1e-5)
    for name in ("running_mean", "running_var"):
        np.testing.assert_allclose(session.get(f"1.{name}"), getattr(module[1], name), rtol=1e-5)


class SharedTransposed(nn.Module):
    """A weight that is used as it is, and transposed."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(10, 24))

    def forward(self, x):
        return F.linear(F.linear(x, self.weight), self.weight.t())


class ProductOfInputs(nn.Module):
    def forward(self, x, w):
        return F.linear(x, w)


def test_weights_may_be_transposed_and_inputs():
    module, x = SharedTransposed(), torch.randn(6, 24)
    session = tg.from_torch(module, x).session()
    assert np.allclose(session.run(x), module(x).detach(), atol=1e-4)
    w = torch.randn(10, 24)
    before = w.clone()
    session = tg.from_torch(ProductOfInputs(), (x, w)).session()
    assert np.allclose(session.run(x, w), F.linear(x, w), atol=1e-4)
    assert torch.equal(w, before)


def test_convolutions():
    torch.manual_seed(9)
    for conv in (
        nn.Conv2d(3, 10, (4, 2), stride=(4, 2)),
        nn.Conv2d(3, 10, 4, stride=2, bias=False),
        nn.Conv2d(3, 6, 3, padding="same", dilation=2),
        nn.Conv2d(3, 6, 3, padding=(1, 0), groups=3),
        nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
    ):
        compare(conv, torch.randn(2, 3, 12, 8))
    compare(nn.Conv2d(3, 4, 3), torch.randn(3, 12, 8))
    compare(nn.Conv1d(3, 4, 3, stride=2), torch.randn(2, 3, 9))
    compare(nn.ConvTranspose1d(4, 6, 2, groups=2), torch.randn(2, 4, 9))
    compare(nn.ConvTranspose1d(4, 8, 3, stride=2, groups=4), torch.randn(2, 4, 9))
    compare(nn.ConvTranspose2d(4, 6, 1), torch.randn(2, 4, 5, 6))


class Filter(nn.Module):
    """A convolution and an attention with buffers, which a call may change."""

    def __init__(self, changes):
        super().__init__()
        self.changes = changes
        self.register_buffer("kernel", torch.randn(4, 4, 3))
        self.register_buffer("mask", torch.randn(9, 9))

    def forward(self, x):
        y = F.conv1d(x, self.kernel, padding=1)
        y = F.scaled_dot_product_attention(*[y.transpose(1, 2)] * 3, attn_mask=self.mask)
        if self.changes:
            self.kernel.mul_(0.5)
            self.mask.mul_(-1)
        return y


@pytest.mark.parametrize("changes", [False, True])
def test_buffers_are_weights_of_convolutions_and_masks(changes):
    torch.manual_seed(10)
    module, x = Filter(changes), torch.randn(2, 4, 9)
    session = tg.from_torch(module, x).session()
    for _ in range(3):
        np.testing.assert_allclose(session.run(x), module(x), rtol=1e-4, atol=1e-5)


def test_simple_programs_are_taken_as_they_are_exported(monkeypatch):
    """Decomposing them takes longest, and would only rename values."""
    torch.manual_seed(13)
    several = Function(lambda a, b: F.dropout(a, 0.5, False).reshape(2, 35).half().float() + b.T.flatten().view(2, 35))
    cases = [(Residual(), torch.randn(8, 24)), (several, torch.randn(10, 7), torch.randn(7, 10))]
    cases.append((nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True).eval(), torch.randn(2, 6, 16)))
    for module, *inputs in cases:
        graphs = [tg.from_torch(module, inputs)]
        with monkeypatch.context() as decomposed:
            decomposed.setattr(_from_torch, "_is_simple", lambda program: False)
            graphs.append(tg.from_torch(module, inputs))
        np.testing.assert_array_equal(*(graph.session().run(*inputs) for graph in graphs))
        first, second = ([each.operation for each in graph.estimate("host").operations] for graph in graphs)
        assert first == second
    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", None)
    for module, *inputs in cases:
        tg.from_torch(module, inputs)


def test_lists_may_begin_without_elements():
    compare(Function(lambda a, b: torch.cat([torch.zeros(0), a, b], 0)), torch.randn(3, 4), torch.randn(2, 4))


def test_integers_are_gathered():
    module = Function(lambda ids, table: table.gather(1, ids))
    ids, table = torch.randint(5, (3, 4)), torch.randint(1000, (3, 5))
    y = tg.from_torch(module, (ids, table)).session().run(ids, table)
    np.testing.assert_array_equal(y, module(ids, table))


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a.any(-1) * 1.0 + b.all(0).sum(),
        lambda a, b: torch.rsub(a, b, alpha=0.5),
        lambda a, b: (a * 1000).half().sum(dtype=torch.float32) + b.sum(),
        lambda a, b: F.softplus(a * 20) + F.logsigmoid(b * 20),
        lambda a, b: F.nll_loss(F.log_softmax(a.masked_fill(a < -1, -torch.inf), -1), a.argmax(-1)) + b,
    ],
)
def test_what_is_easily_computed_wrongly(function):
    torch.manual_seed(11)
    a, b = torch.randn(6, 9).mul(1.5), torch.randn(6, 9)
    a[0], a[1, :3], b[:, 2] = 0, 0, torch.tensor([-1.0, 2, 0.5, -0.25, 3, 1])
    compare(Function(function), a, b, rtol=1e-5, atol=1e-12)


def test_the_softplus_of_0_has_a_slope_of_one_half():
    graph = tg.Graph()
    x = graph.parameter("x", initial=np.array([0.0, -30, -5, 5, 40], np.float32))
    session = graph.training_step(tg.sum(tg.softplus(x)), lr=1.0).session()
    session.run()
    before = torch.tensor([0.0, -30, -5, 5, 40], requires_grad=True)
    F.softplus(before).sum().backward()
    np.testing.assert_allclose(session.get("x"), (before - before.grad).detach(), rtol=1e-6, atol=1e-15)


def test_the_weight_of_a_convolution_keeps_its_shape():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 5, 2, stride=2)

        def forward(self, x):
            return self.conv(x).mean() * self.conv.weight.mean(1).sum()

    torch.manual_seed(12)
    session = compare(Twice(), torch.randn(2, 3, 4, 4))
    session.copy_from(Twice())


class Detached(nn.Module):
    """A layer to which `function` applies, and a buffer with the running mean of the layer's results."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.function = nn.Linear(3, 3), function
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        return self.function(self, x, self.layer(x))


def from_a_block(module, x, y):
    with torch.no_grad():
        module.mean.mul_(0.5).add_(y.mean(0), alpha=0.5)
        factor = module.layer(y).exp()
    return (y - module.mean) * factor, factor


STOPPED = {
    "computed": lambda m, x, y: y * y.detach().exp() - y.softmax(1).detach(),
    "parameters": lambda m, x, y: y * m.layer.weight.detach() * m.layer.bias.detach(),
    "transposed": lambda m, x, y: F.linear(y, m.layer.weight.t().detach().t()) + y @ m.layer.weight.t().detach(),
    "constants": lambda m, x, y: y * (y > 0).detach() + y * x.detach() + y * torch.ones(3).detach(),
    "a block": from_a_block,
}


@pytest.mark.parametrize("name", STOPPED)
def test_detached_values_have_no_gradients(name):
    torch.manual_seed(13)
    module, x = Detached(STOPPED[name]), torch.randn(3, 3)
    graph = tg.from_torch(module, x)
    loss = sum(tg.sum(tg.square(each)) for each in graph.outputs.values())
    session = graph.training_step(loss, lr=0.1).session()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(2):
        session.run(x)
        results = module(x)
        sum(each.square().sum() for each in (results if isinstance(results, tuple) else [results])).backward()
        optimizer.step()
        optimizer.zero_grad()
    for key in ("weight", "bias"):
        np.testing.assert_allclose(session.get(f"layer.{key}"), getattr(module.layer, key).detach(), rtol=1e-4, atol=1e-5)


def test_constant_indices_of_several_dimensions():
    rows, cols = torch.tensor([[0], [2], [-1]]), torch.tensor([[1, 3, 0]])
    compare(Function(lambda a, b: a[rows, cols] + b[:, [0, 1], [2, 1]].sum()), torch.randn(3, 4), torch.randn(2, 3, 4))
