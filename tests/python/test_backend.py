"""torch.compile(backend="tessera"): the results of eager PyTorch, without failures."""

import copy
import gc
import importlib
import json
import logging
import os
import threading

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tessera  # noqa: E402
import tessera._backend._program as programs  # noqa: E402
import tessera._backend._support as support  # noqa: E402
from tessera.nn import SparseLinear  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def runs(monkeypatch):
    """The number of calls of sessions; one that fails is an error here."""
    counted = []

    def counting(self, *args):
        counted.append(self)
        return self.by_session(*args)

    monkeypatch.setattr(programs.Program, "__call__", counting)
    return counted


def compiled(model, **options):
    return torch.compile(model, backend="tessera", **options)


def equal(got, expected, rtol=1e-3, atol=2e-4):
    torch.testing.assert_close(got, expected, rtol=rtol, atol=atol)
    if isinstance(got, torch.Tensor):
        assert got.requires_grad == expected.requires_grad


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.linear = nn.Linear(16, 16)

    def forward(self, *inputs):
        return self.function(self.linear, *inputs)


def images(*shape):
    return lambda: (torch.randn(2, *shape),)


def rows(*shape):
    return lambda: (torch.randn(*shape),)


def there_and_back(x, kernel):
    return F.conv_transpose2d(F.conv2d(x, kernel, stride=2).relu(), kernel, stride=2)


MODULES = {
    "linear": (lambda: nn.Linear(16, 24), rows(5, 16)),
    "linear of one row": (lambda: nn.Linear(16, 24), rows(16)),
    "linear without rows": (lambda: nn.Linear(16, 24), rows(0, 16)),
    "bilinear": (lambda: nn.Bilinear(16, 8, 4), lambda: (torch.randn(3, 16), torch.randn(3, 8))),
    "mlp": (lambda: nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4), nn.Softmax(-1)), rows(7, 16)),
    "layer norm": (lambda: nn.LayerNorm(16), rows(3, 5, 16)),
    "layer norm of two": (lambda: nn.LayerNorm((5, 16)), rows(3, 5, 16)),
    "layer norm without parameters": (lambda: nn.LayerNorm(16, elementwise_affine=False), rows(3, 16)),
    "rms norm": (lambda: nn.RMSNorm(16), rows(3, 5, 16)),
    "group norm": (lambda: nn.GroupNorm(2, 8), images(8, 5, 5)),
    "batch norm": (lambda: nn.BatchNorm1d(16), rows(7, 16)),
    "linear and batch norm": (lambda: nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8)), rows(7, 16)),
    "batch norm in evaluation": (lambda: nn.BatchNorm2d(8).eval(), images(8, 5, 5)),
    "instance norm": (lambda: nn.InstanceNorm2d(8), images(8, 5, 5)),
    "local response norm": (lambda: nn.LocalResponseNorm(2), images(8, 5, 5)),
    "conv1d": (lambda: nn.Conv1d(8, 6, 3), images(8, 20)),
    "conv2d": (lambda: nn.Conv2d(3, 8, 3, padding=1), images(3, 12, 12)),
    "conv2d of patches": (lambda: nn.Conv2d(3, 8, 4, stride=4), images(3, 12, 12)),
    "conv2d in groups": (lambda: nn.Conv2d(8, 8, 3, groups=4), images(8, 9, 9)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 2), images(2, 5, 5, 5)),
    "transposed convolution": (lambda: nn.ConvTranspose2d(4, 3, 2, stride=2), images(4, 5, 5)),
    "convolutions that share a kernel": (
        lambda: Function(lambda f, x: there_and_back(x, f.weight.view(16, 4, 2, 2))),
        images(4, 6, 6),
    ),
    "pooling": (lambda: nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5)), images(4, 6, 6)),
    "average pooling": (lambda: nn.Sequential(nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1)), images(4, 6, 6)),
    "lstm": (lambda: nn.LSTM(16, 8, batch_first=True), rows(3, 5, 16)),
    "gru": (lambda: nn.GRU(16, 8, bidirectional=True), rows(3, 5, 16)),
    "rnn cell": (lambda: nn.RNNCell(16, 8), rows(3, 16)),
    "lstm cell": (lambda: nn.LSTMCell(16, 8), rows(3, 16)),
    "attention": (lambda: Attention(), rows(2, 6, 16)),
    "encoder layer": (lambda: encoder_layer().eval(), rows(2, 6, 16)),
    "encoder layer, norm first": (lambda: encoder_layer(norm_first=True, activation="gelu"), rows(2, 6, 16)),
    "decoder layer": (
        lambda: nn.TransformerDecoderLayer(16, 2, 32, dropout=0, batch_first=True),
        lambda: (torch.randn(2, 6, 16), torch.randn(2, 5, 16)),
    ),
    "embedding": (lambda: nn.Sequential(nn.Embedding(9, 16), nn.Linear(16, 9)), lambda: (torch.arange(6).view(2, 3),)),
    "embedding bag": (lambda: nn.EmbeddingBag(9, 16), lambda: (torch.arange(6).view(2, 3),)),
    "activations": (lambda: nn.Sequential(nn.Linear(16, 16), *ACTIVATIONS), rows(5, 16)),
    "glu": (lambda: nn.Sequential(nn.Linear(16, 16), nn.GLU()), rows(5, 16)),
    "prelu": (lambda: nn.Sequential(nn.Linear(16, 16), nn.PReLU()), rows(5, 16)),
    "upsampling": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), images(3, 5, 5)),
    "pixel shuffle": (lambda: nn.PixelShuffle(2), images(8, 3, 3)),
    "padding": (lambda: nn.Sequential(nn.ReflectionPad2d(1), nn.ZeroPad2d(2)), images(3, 5, 5)),
    "unfold": (lambda: nn.Unfold(2), images(3, 5, 5)),
    "cosine similarity": (lambda: nn.CosineSimilarity(), lambda: (torch.randn(4, 16), torch.randn(4, 16))),
    "pairwise distance": (lambda: nn.PairwiseDistance(), lambda: (torch.randn(4, 16), torch.randn(4, 16))),
    "cross entropy": (
        lambda: Function(lambda f, x, labels: F.cross_entropy(f(x), labels, label_smoothing=0.1)),
        lambda: (torch.randn(4, 16), torch.tensor([3, -100, 0, 15])),
    ),
    "ctc": (
        lambda: Function(lambda f, x: F.ctc_loss(f(x).log_softmax(-1), torch.ones(1, 3).long(), (6,), (3,))),
        rows(6, 1, 16),
    ),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(16, 8)), rows(5, 16)),
    "sparse linear": (lambda: SparseLinear(16, 24, density=0.3), rows(5, 16)),
    "sparse blocks": (lambda: SparseLinear(32, 48, density=0.5, block_size=16, activation="gelu"), rows(2, 5, 32)),
    "dynamic sparse blocks": (lambda: SparseLinear(24, 40, density=0.5, block_size=4, dynamic=40), rows(5, 24)),
}

ACTIVATIONS = [
    *(nn.ELU(), nn.Hardshrink(), nn.Hardsigmoid(), nn.Hardtanh(), nn.Hardswish(), nn.LeakyReLU(), nn.LogSigmoid()),
    *(nn.ReLU6(), nn.SELU(), nn.CELU(), nn.GELU(), nn.GELU("tanh"), nn.Sigmoid(), nn.SiLU(), nn.Mish(), nn.Softplus()),
    *(nn.Softshrink(), nn.Softsign(), nn.Tanh(), nn.Tanhshrink(), nn.Threshold(0.1, 0.2), nn.Softmin(-1)),
]


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, size=16, heads=2):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(size, 3 * size), nn.Linear(size, size), heads

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(x.shape))


def encoder_layer(**options):
    return nn.TransformerEncoderLayer(16, 2, 32, dropout=0, batch_first=True, **options)


# Graphs that are divided like others, and whose operations test_torch_modules.py compares: for ./test --full.
LIKE_OTHERS = {"bilinear", "layer norm of two", "layer norm without parameters", "instance norm", "local response norm"}
LIKE_OTHERS |= {"conv2d of patches", "average pooling", "rnn cell", "lstm cell", "encoder layer, norm first", "glu", "prelu"}
LIKE_OTHERS |= {"upsampling", "pixel shuffle", "padding", "unfold", "cosine similarity", "pairwise distance", "gru", "conv1d"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * (name in LIKE_OTHERS)) for name in MODULES]
)
def test_modules(name, runs):
    make, inputs = MODULES[name]
    model, given = make(), inputs()
    reference = copy.deepcopy(model)
    fast = compiled(model, options={"training": True})
    with torch.no_grad():
        for _ in range(2):
            equal(fast(*given), reference(*given))
    if not any(parameter.requires_grad for parameter in model.parameters()):
        return
    for each, call in ((model, fast), (reference, reference)):
        results = call(*given)
        results = results if isinstance(results, tuple) else (results,)
        sum((y.float() ** 2).sum() for y in results if isinstance(y, torch.Tensor)).backward()
    for (path, got), expected in zip(model.named_parameters(), reference.parameters(), strict=True):
        assert (got.grad is None) == (expected.grad is None), path
        if got.grad is not None:
            equal(got.grad, expected.grad)
    assert not any(report.error for report in tessera.backend_reports())


# Whole models.


def bert(**options):
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 64, "max_position_embeddings": 32}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.BertForSequenceClassification(transformers.BertConfig(**sizes, **dropout, **options))


def gpt2(dropout=0.0):
    transformers = pytest.importorskip("transformers")
    dropouts = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": 0.0}
    sizes = {"vocab_size": 99, "n_positions": 32, "n_embd": 32, "n_layer": 1, "n_head": 2}
    tokens = {"bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **dropouts, **tokens, use_cache=False))


@pytest.mark.parametrize("make", [bert, gpt2])
def test_transformers_infer_and_train(make, runs):
    model = make()
    reference = copy.deepcopy(model)
    fast = compiled(model, options={"training": True})
    ids = torch.randint(0, 99, (3, 10))
    given = {"attention_mask": (torch.arange(10) < torch.tensor([[10], [6], [8]])).long()} if make is bert else {}
    with torch.no_grad():
        equal(fast(ids, **given).logits, reference(ids, **given).logits)
    assert len(runs) == 1
    labels = torch.tensor([0, 1, 1]) if make is bert else ids
    optimizers = [torch.optim.AdamW(each.parameters(), 1e-2) for each in (model, reference)]
    for _ in range(3):
        for call, optimizer in ((fast, optimizers[0]), (reference, optimizers[1])):
            optimizer.zero_grad()
            call(ids, **given, labels=labels).loss.backward()
        for (name, got), expected in zip(model.named_parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(got.grad, expected.grad, rtol=1e-3, atol=1e-5, msg=name)
        for optimizer in optimizers:
            optimizer.step()
    assert len(runs) == 7
    with torch.no_grad():  # with the trained weights
        equal(fast(ids, **given).logits, reference(ids, **given).logits, rtol=1e-2, atol=1e-2)


@pytest.mark.every_nth(2)
@pytest.mark.parametrize("name", ["distilbert", "roberta", "llama", "vit"])
def test_other_transformers_infer(name, runs):
    models = importlib.import_module("test_models")  # skips without transformers
    make = getattr(models, name)
    model, x = models.First(make()).eval(), models.inputs_of(make)
    fast = compiled(model)
    with torch.no_grad():
        for _ in range(2):
            equal(fast(x), model(x))
    assert runs


def mlp_with_dropout():
    return nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.3), nn.GELU(), nn.Linear(32, 8), nn.Dropout(0.5))


def encoder_with_dropout():  # after attention, of values that are not contiguous
    return nn.TransformerEncoderLayer(16, 2, 32, dropout=0.3, activation="gelu", batch_first=True, norm_first=True)


@pytest.mark.parametrize(("make", "shape"), [(mlp_with_dropout, (6, 16)), (encoder_with_dropout, (2, 5, 16))])
def test_dropout_draws_the_masks_of_pytorch(make, shape, runs):
    model, x = make(), torch.randn(shape)
    results = []
    for backend in ("tessera", "aot_eager"):
        torch._dynamo.reset()
        torch.manual_seed(3)
        model.zero_grad()
        options = {"training": True} if backend == "tessera" else None
        call = torch.compile(model, backend=backend, options=options)
        results.append([call(x), call(x)])
        results[-1][0].sum().backward()
        results[-1].append(next(model.parameters()).grad.clone())
    assert len(runs) == 3
    for got, expected in zip(*results, strict=True):
        equal(got, expected)
    assert not torch.equal(results[0][0], results[0][1])


# Weights.


def test_changed_weights_are_prepared_again(runs):
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    fast, x = compiled(model), torch.randn(5, 16)

    @torch.no_grad()
    def changes():
        model[0].weight.mul_(2)
        yield
        model[2].weight.copy_(torch.randn(8, 32))
        yield
        model.load_state_dict({name: torch.randn_like(tensor) for name, tensor in model.state_dict().items()})
        yield
        model[0].weight.data = torch.randn(32, 16)
        yield
        model[2].weight = nn.Parameter(torch.randn(8, 32))
        yield
        model[0].bias.data.add_(1)  # read in place
        yield
        model[0].weight.data.add_(1)  # has no version
        yield
        for _ in range(20):  # at each call, and then no more
            model[0].weight.add_(0.1)
            yield
        for _ in range(20):
            yield

    with torch.no_grad():
        equal(fast(x), model(x))
        for _ in changes():
            equal(fast(x), model(x))
    assert len(runs) == 48


def test_equal_layers_have_weights_of_their_own(runs):
    layers = nn.ModuleList(encoder_layer() for _ in range(3))
    for layer in layers:
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.3)

    @torch.compile(backend="tessera")
    def block(layer, x):
        return layer(x)

    x = torch.randn(2, 6, 16)
    with torch.no_grad():
        for _ in range(2):
            for layer in layers:
                equal(block(layer, x), layer(x))
    assert len({id(each) for each in runs}) < 4


def test_weights_of_deleted_models_are_forgotten():
    x = torch.randn(4, 64)

    @torch.compile(backend="tessera")
    def apply(layer, x):
        return layer(x)

    with torch.no_grad():
        for _ in range(6):
            layer = nn.Linear(64, 64)
            equal(apply(layer, x), layer(x))
            del layer
            gc.collect()


def test_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(20, 16)

        def forward(self, ids):
            return self.embedding(ids) @ self.embedding.weight.T + self.embedding.weight.sum()

    model, ids = Tied(), torch.arange(6)
    with torch.no_grad():
        equal(compiled(model)(ids), model(ids))


def test_tied_weights_in_two_forms_change_in_both():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(32, 16))

        def forward(self, x):
            return nn.functional.linear(x, self.weight).sort(-1).values @ self.weight  # PyTorch sorts

    model, x = Tied(), torch.randn(5, 16)
    fast = compiled(model)
    with torch.no_grad():
        for _ in range(10):
            equal(fast(x), model(x))
        model.weight.mul_(2)
        for _ in range(10):
            equal(fast(x), model(x))


@pytest.mark.parametrize("transposed", [False, True])
def test_writes_through_data_are_seen_in_all_orders(transposed):
    if transposed:
        model, x = nn.Linear(16, 32), torch.randn(5, 16)
        model.weight = nn.Parameter(torch.randn(16, 32).t())
    else:
        model, x = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last), torch.randn(2, 3, 9, 9)
    fast = compiled(model)
    with torch.no_grad():
        for _ in range(10):
            equal(fast(x), model(x))
        model.weight.data.mul_(2)
        for _ in range(10):
            equal(fast(x), model(x))


def test_sparse_weights_change(runs):
    layer = SparseLinear(32, 48, density=0.5, block_size=16)
    fast, x = compiled(layer), torch.randn(5, 32)
    with torch.no_grad():
        equal(fast(x), layer(x))
        layer.weight.mul_(2)
        equal(fast(x), layer(x))
        other = SparseLinear(32, 48, density=0.5, block_size=16)
        layer.load_state_dict(other.state_dict())
        equal(fast(x), other(x))
    assert len(runs) >= 2


@pytest.mark.parametrize("transposed", [False, True])
def test_zeros_of_weights_are_kept(runs, caplog, transposed):
    layer, x = nn.Linear(512, 512), torch.randn(64, 512)
    fast = compiled((lambda x: layer(x)) if not transposed else (lambda x: x @ layer.weight))
    slow = layer if not transposed else lambda x: x @ layer.weight
    kept = torch.rand(512, 512) < 0.1
    with torch.no_grad(), caplog.at_level(logging.INFO, "tessera"):
        layer.weight.mul_(kept)
        equal(fast(x), slow(x))
        assert "sparse, predicted speed-up" in caplog.text
        layer.weight.mul_(2)
        equal(fast(x), slow(x))
        caplog.clear()
        layer.weight.normal_(0, 0.01)
        for _ in range(12):  # until the weight is prepared again
            equal(fast(x), slow(x))
        assert "no zeros" in caplog.text
    assert len(runs) >= 3


def test_patches_are_products(runs):
    model, x = nn.Conv2d(3, 8, 4, stride=4), torch.randn(2, 3, 12, 12)
    with torch.no_grad():
        equal(compiled(model)(x), model(x))
    assert len(runs) == 1


# Integers.


class Tokens(nn.Module):
    """Embeddings of tokens and positions, and a mask."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(40, 16), nn.Embedding(8, 16)
        self.layer, self.norm = nn.Linear(16, 16), nn.LayerNorm(16)
        self.register_buffer("positions", torch.arange(8)[None])

    def forward(self, ids, present):
        h = self.words(ids) + self.places(self.positions[:, : ids.shape[1]])
        bias = (1 - present[:, :, None].float()) * -9 + (ids == 3)[..., None]
        return self.layer(self.norm(h + bias) * (ids.unsqueeze(-1) / 40)), ids[:, 1:]


def test_embeddings_are_parts_of_sessions(runs, caplog):
    model, ids = Tokens().eval(), torch.randint(40, (3, 6))
    fast, present = compiled(model), torch.arange(6).expand(3, 6) % 4
    caplog.set_level(logging.INFO, "tessera")
    with torch.no_grad():
        for given in (ids, ids.flip(1), ids.t().contiguous().t()):
            equal(fast(given, present), model(given, present))
        assert len(runs) == 3 and "19 of 20 operators are taken, in 1 part;" in caplog.text
        for bad in (40, -1, 2**32):
            ids[1, 2] = bad
            for call in (model, fast):
                with pytest.raises((IndexError, RuntimeError), match="out of range"):
                    call(ids, present)
        ids[1, 2] = 3
        equal(fast(ids, present), model(ids, present))


@pytest.mark.every_nth(2)
@pytest.mark.parametrize(
    "function",
    [
        lambda f, x, n: f(x) * (n > 2**31 - 5),
        lambda f, x, n: f(x) + n + (n - 2) + n * 3,
        lambda f, x, n: f(x) - n.half() + n.bfloat16(),
        lambda f, x, n: (f(x) > n, n.view(4, 4).t(), n[2:] * 2),
        lambda f, x, n: (f(x) * n.bool(), n == 2**40, n.expand(3, 16)),
    ],
)
@pytest.mark.parametrize("large", [0, 2**31 - 3, 2**40])
def test_integers(function, large, runs):
    model, x, n = Function(function), torch.randn(6, 16), torch.arange(16) + large
    with torch.no_grad():
        equal(compiled(model)(x, n), model(x, n))


# What stays with PyTorch.


@pytest.mark.parametrize(
    "function",
    [
        lambda f, x: f(torch.fft.fft(f(x)).real),
        lambda f, x: f(torch.linalg.inv(f(x)[:4, :4] + 5 * torch.eye(4)) @ f(x)[:4]),
        lambda f, x: f(f(x).cumprod(0)),
        lambda f, x: f(x).double() @ x.double().T,
        lambda f, x: f(x) * torch.arange(16) - torch.arange(-8, 8),
        lambda f, x: torch.view_as_complex(f(x).view(-1, 8, 2)) * 1j,
        lambda f, x: f(x).argmax(-1) - 3,
        lambda f, x: f(x).topk(3),
        lambda f, x: f(f(x).sort().values),
        lambda f, x: f(x) > 0.2,
        lambda f, x: f(x).masked_fill(x > 0, float("-inf")).softmax(-1).nan_to_num(),
        lambda f, x: f(f(x)[x[:, 0] > 0]),  # sizes that depend on data
        lambda f, x: f(x).nonzero(),
        lambda f, x: f(x) if x.sum() > 0 else f(-x),
        lambda f, x: f(x) * f(x).sum().item(),
        lambda f, x: {"a": f(x), "b": (x, f(x).T, f(x).view(-1), x[1:], None, 3)},
        lambda f, x: f(x).T.contiguous().T,
        lambda f, x: (lambda z: (f(z), z))(x.clone()),
        lambda f, x: (lambda y: (y, y.clone(), y + 0))(f(x)),
        lambda f, x: f(x).view(1, 2, 3, 1, 4, 4) * 2,
        lambda f, x: (f(x) > 0).T & (x > 0).T,
        lambda f, x: f(x).split([4, 12], 1)[1].chunk(3, 1),
        lambda f, x: f(x.half().float()).half(),
        lambda f, x: f(x).expand(2, *x.shape),
        lambda f, x: (f(x).unbind(0)[2], f(x).detach()),
        lambda f, x: f(x.to_sparse().to_dense()),
        lambda f, x: (x.new_empty(0, 16), f(x[:0])),
        lambda f, x: f(torch.nn.functional.pad(x, (-1, 1))),
        lambda f, x: torch.nn.functional.scaled_dot_product_attention(  # with a mask that PyTorch computes
            f(x)[None], f(x)[None], f(x)[None], torch.signbit(x[:, :6] - 10 * torch.eye(6))
        ),
    ],
)
def test_functions(function, runs):
    model, x = Function(function), torch.randn(6, 16)
    fast = compiled(model)
    with torch.no_grad():
        got, expected = fast(x), model(x)
    for a, b in zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(expected), strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        equal(a, b)
        assert a.stride() == b.stride()
    fast(x)


def test_mutation(runs):
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.norm = nn.Linear(16, 16), nn.BatchNorm1d(16)
            self.register_buffer("mean", torch.zeros(16))

        def forward(self, x):
            y = self.norm(self.linear(x))
            self.mean.mul_(0.9).add_(y.mean(0))
            x.add_(1)
            return self.linear(x) + self.mean

    model = Counter()
    reference, fast = copy.deepcopy(model), compiled(model)
    for _ in range(3):
        x = torch.randn(4, 16)
        own = x.clone()
        with torch.no_grad():
            equal(fast(own), reference(x))
        equal(own, x)
    for got, expected in zip(model.buffers(), reference.buffers(), strict=True):
        equal(got, expected)


def test_results_alias_what_they_alias_in_pytorch():
    model = Function(lambda f, x: (x.view(-1), f(x).view(2, -1)))
    x = torch.randn(6, 16)
    with torch.no_grad():
        same, fresh = compiled(model)(x)
        again = compiled(model)(x)[1]
    assert same.data_ptr() == x.data_ptr() and fresh.data_ptr() != again.data_ptr()
    same.zero_()
    assert not x.any()


def test_other_types_and_modes(runs):
    model, x = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)), torch.randn(5, 16)
    fast = compiled(model)
    with torch.inference_mode():
        equal(fast(x), model(x))
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        got, expected = fast(x), model(x)
        assert got.dtype is torch.bfloat16
        equal(got, expected, rtol=0.05, atol=0.05)
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        other = copy.deepcopy(model).to(dtype)
        with torch.no_grad():
            equal(compiled(other)(x.to(dtype)), other(x.to(dtype)), rtol=0.02, atol=0.02)
        count, gradients = len(runs), []
        for call in (compiled(other, options={"training": True}), other):
            other.zero_grad()
            call(x.to(dtype)).square().sum().backward()
            gradients.append([each.grad.clone() for each in other.parameters()])
        assert len(runs) - count == (0 if dtype is torch.float64 else 2)
        equal(*gradients, rtol=0.05, atol=0.1)
        torch._dynamo.reset()  # torch.compile takes only eight such models
    with torch.inference_mode():  # parameters without versions
        other = copy.deepcopy(model)
        for parameter in other.parameters():
            parameter.copy_(torch.randn_like(parameter))
        equal(compiled(other)(x), other(x))


def test_sizes_change(runs):
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 8))
    fast = compiled(model)
    with torch.no_grad():
        for size in (3, 5, 7, 3, 1, *range(8, 20), 5):
            x = torch.randn(size, 16)
            equal(fast(x), model(x))
    assert 5 < len(runs) < 18
    fast = compiled(model, options={"training": True})
    for size in (4, 6, 9, 6):
        gradients = []
        for call in (fast, model):
            model.zero_grad()
            call(torch.arange(16.0 * size).view(size, 16) / 99).square().sum().backward()
            gradients.append(model[0].weight.grad.clone())
        equal(*gradients)


class BySize(nn.Module):
    """A layer whose weight depends on a size of the input."""

    def __init__(self, prepared):
        super().__init__()
        self.weight, self.prepared = nn.Parameter(torch.randn(32, 16)), prepared

    def forward(self, x):
        return x @ self.prepared(self.weight, x)


@pytest.mark.parametrize(
    ("prepared", "shape"),
    [(lambda w, x: w * x.shape[0], lambda size: (size, 32)), (lambda w, x: w[: x.shape[1]], lambda size: (4, size))],
)
def test_weights_depend_on_sizes(prepared, shape, runs):
    model = BySize(prepared)
    fast = compiled(model, dynamic=True)
    with torch.no_grad():
        for size in (12, 20, 28, 12):
            x = torch.randn(shape(size))
            equal(fast(x), model(x))
    assert len(runs) == 4


def test_training_is_pytorchs_by_default(runs):
    model, x = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)), torch.randn(5, 16)
    fast = compiled(model)
    for call in (model, fast):
        call(x).sum().backward()
    equal(model[0].weight.grad, 2 * torch.autograd.grad(model(x).sum(), model[0].weight)[0])
    assert not runs


def test_threads(runs):
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).requires_grad_(False)
    fast, inputs = compiled(model), torch.randn(4, 5, 16)
    wrong = []

    def call(x):
        for _ in range(20):
            if not torch.allclose(fast(x), model(x), rtol=1e-3, atol=1e-4):
                wrong.append(x)

    threads = [threading.Thread(target=call, args=(x,)) for x in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(runs) == 80


def test_fork(two_threads):
    model, x = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 8)), torch.randn(64, 64)
    fast = compiled(model)
    with torch.no_grad():
        expected = fast(x)
        child = os.fork()
        if child == 0:
            os._exit(0 if torch.allclose(fast(x), expected, atol=1e-4) else 1)
    assert os.waitpid(child, 0)[1] == 0
    equal(fast(x).detach(), expected)


# The interface.


def test_backend_is_listed():
    assert "tessera" in torch._dynamo.list_backends(None)
    assert torch._dynamo.backends.registry.lookup_backend("tessera") is tessera.backend


def test_options(caplog):
    model, x = nn.Linear(16, 16), torch.randn(4, 16)
    caplog.set_level(logging.INFO, "tessera")
    with torch.no_grad():
        equal(compiled(model, options={"threads": 1, "measure": True})(x), model(x))
    assert "by PyTorch" in caplog.text
    for wrong, message in (
        ({"speed": 11}, "there are threads, measure, training"),
        ({"threads": -1}, "threads is -1; it must be from 0 to 4096"),
        ({"measure": "no"}, "measure is 'no'; it must be True or False"),
    ):
        with pytest.raises(Exception, match=message):
            compiled(nn.Linear(16, 8), options=wrong)(x)


def test_log_says_what_stays_with_pytorch(caplog):
    model, x = Function(lambda f, x: f(f(x).cumprod(0))), torch.randn(4, 16)
    caplog.set_level(logging.INFO, "tessera")
    with torch.no_grad():
        compiled(model)(x)
    assert "inference: 2 of 3 operators are taken, in 2 parts; PyTorch computes" in caplog.text
    assert "1 × aten.cumprod.default: there is no such operation" in caplog.text


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float64])
def test_weights_of_types_that_sessions_lack_gain_nothing(dtype):
    weight = torch.fx.Graph().placeholder("weight")
    assert support.may_gain(weight, torch.zeros(4, 4))
    assert not support.may_gain(weight, torch.zeros(4, 4).to(dtype))


def test_reports_have_operators_and_weights():
    model = nn.Sequential(nn.Embedding(8, 512), nn.Linear(512, 512), nn.Linear(512, 4)).eval()
    with torch.no_grad():
        model[1].weight.mul_(torch.rand(512, 512) < 0.05)
        fast, ids = compiled(lambda ids: model(ids).cumprod(0)), torch.randint(0, 8, (64,))
        equal(fast(ids), model(ids).cumprod(0))
    report = tessera.backend_reports()[-1]
    assert report.name.endswith("inference") and report.error == "" and report.sizes == ()
    assert report.taken == report.operators - 1 and report.parts == 1
    assert report.by_pytorch == {"aten.cumprod.default: there is no such operation": 1}
    table, sparse, head = report.weights.layers
    assert (table.reason, table.shape, table.density) == ("not a product", (8, 512), 1)
    assert sparse.is_sparse and sparse.rows == 64 and sparse.speedup > 1 and head.reason == "no zeros"
    found = json.loads(json.dumps(report.to_json()))
    assert found["by_pytorch"] == report.by_pytorch and len(found["weights"]["layers"]) == 3
    assert "not a product" in str(report) and "1 × aten.cumprod.default" in str(report)


def test_reports_follow_weights(monkeypatch):
    layer, x = nn.Linear(512, 512), torch.randn(64, 512)
    fast = compiled(layer)
    with torch.no_grad():
        layer.weight.mul_(torch.rand(512, 512) < 0.05)
        fast(x)
        (weight,) = tessera.backend_reports()[-1].weights.layers
        assert weight.is_sparse
        layer.weight.normal_()
        for _ in range(12):  # until the weight is prepared again
            fast(x)
        (weight,) = tessera.backend_reports()[-1].weights.layers
        assert not weight.is_sparse and weight.reason == "no zeros"

        def fail(*_):
            raise ValueError("no memory")

        monkeypatch.setattr(programs.Program, "by_session", fail)
        fast(x)
    (weight,) = tessera.backend_reports()[-1].weights.layers
    assert weight.reason == "a session failed"


def test_log_has_a_reason_for_each_weight(caplog):
    reports = importlib.import_module("test_model_reports")
    caplog.set_level(logging.INFO, "tessera")

    def reasons(model, x):
        caplog.clear()
        torch._dynamo.reset()
        equal(compiled(model)(x), model(x))
        return caplog.text

    with torch.no_grad():
        text = reasons(reports.Everything().eval(), torch.randint(0, 64, (2, 9)))
        # The head, which is the table, two layers, two convolutions, experts, a first factor, and a weight that is summed too.
        assert text.count("no zeros") >= 8 and text.count("depthwise convolution") == 1
        text = reasons(nn.Sequential(nn.Embedding(8, 16), nn.Linear(16, 4)), torch.arange(5))
        assert text.count("not a product") == 1 and "4 × 16, 5 rows, density 1: no zeros" in text
        text = reasons(nn.Linear(16, 4).double(), torch.randn(5, 16).double())
        assert "PyTorch computes aten.addmm.default: values of torch.float64" in text
    assert "a graph needs gradients" in reasons(nn.Linear(16, 4), torch.randn(5, 16))


def test_pytorch_computes_what_fails(monkeypatch, caplog):
    def fail(*_):
        raise ValueError("no memory")

    monkeypatch.setattr(programs.Program, "by_session", fail)
    model, x = nn.Linear(16, 16), torch.randn(4, 16)
    with torch.no_grad():
        equal(compiled(model)(x), model(x))
    assert "PyTorch computes its part from now on" in caplog.text
