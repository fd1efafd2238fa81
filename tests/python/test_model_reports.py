"""The form of each weight of a model, and the reason for it."""

import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402
from compiled_models import SIZE, Function, expect_like, pruned, with_mask  # noqa: E402
from tessera import _choice  # noqa: E402
from tessera.graph import _parameters  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Everything(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(64, 32), nn.Embedding(9, 32)
        self.linear, self.shared = nn.Linear(32, 32), nn.Linear(32, 32)
        self.experts = nn.Parameter(torch.randn(4, 8, 8))
        self.left = nn.Parameter(torch.randn(9, 9))
        self.mixed = nn.Parameter(torch.randn(32, 32))
        self.stem = nn.Conv1d(32, 32, 3, padding=1)
        self.by_channel = nn.Conv1d(32, 32, 3, padding=1, groups=32)
        self.grouped = nn.Conv1d(32, 32, 1, groups=2)
        self.norm = nn.LayerNorm(32)

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        x = self.shared(F.relu(self.shared(self.linear(x))))
        x = x + self.left @ x
        parts = x.unflatten(-1, (4, 8)).permute(2, 0, 1, 3).flatten(1, 2)
        x = x + (parts @ self.experts).unflatten(1, x.shape[:2]).permute(1, 2, 0, 3).flatten(-2)
        x = x @ self.mixed + self.mixed.sum()
        x = self.grouped(self.by_channel(self.stem(x.transpose(1, 2)))).transpose(1, 2)
        return self.norm(x) @ self.tokens.weight.T


def test_each_weight_has_its_choice_or_a_reason():
    torch.manual_seed(0)
    model, ids = Everything().eval(), torch.randint(0, 64, (2, 9))
    compiled = tessera.compile(model, (ids,))
    with torch.no_grad():
        torch.testing.assert_close(compiled(ids), model(ids), rtol=1e-3, atol=1e-3)
    reasons = {each.name: each.reason for each in compiled.report.layers}
    assert reasons == {
        "linear.weight": "no zeros",
        "shared.weight": "no zeros",
        "stem.weight": "no zeros",
        "tokens.weight": "no zeros",
        "experts": "batched product",
        "left": "no zeros",
        "mixed.transposed": "no zeros",
        "by_channel.weight": "depthwise convolution",
        "grouped.weight": "no zeros",
    }
    layers = {each.name: each for each in compiled.report.layers}
    assert layers["tokens.weight"].shape == (64, 32) and layers["tokens.weight"].dense_seconds > 0
    assert math.isnan(layers["experts"].dense_seconds) and layers["experts"].density == 1
    assert all(name in str(compiled) for name in layers)
    compiled.refresh()
    compiled(ids)
    assert {each.name: each.reason for each in compiled.report.layers} == reasons


def test_an_embedding_is_no_product_and_zeros_are_counted():
    model = nn.Sequential(nn.Embedding(8, 16), nn.Conv1d(4, 4, 1, groups=4), nn.Linear(16, 4)).eval()
    with torch.no_grad():
        model[0].weight[:2] = 0
    (product, table, kernel) = tessera.compile(model, torch.randint(0, 8, (3, 4))).report.layers
    assert (product.name, product.reason) == ("2.weight", "no zeros")
    assert (table.name, table.reason, table.density) == ("0.weight", "not a product", 0.75)
    assert (kernel.name, kernel.reason, kernel.shape) == ("1.weight", "depthwise convolution", (4, 1))


class Tied(nn.Module):
    """A language model whose table and head are one weight."""

    def __init__(self, form="linear", scale=None):
        super().__init__()
        self.form, self.scale = form, scale
        self.table, self.head = nn.Embedding(SIZE, SIZE), nn.Linear(SIZE, SIZE)
        self.head.weight = self.table.weight

    def forward(self, ids):
        x = torch.tanh(self.table(ids))
        if self.form == "linear":
            y = self.head(x)
        else:
            y = x @ (self.table.weight.t() if self.form == "product" else self.table.weight)
        return y if self.scale is None else y * self.scale


def ids_of_words():
    return torch.randint(0, SIZE, (4, 16))


@pytest.mark.parametrize("form", ["linear", "product", "transposed"])
@pytest.mark.parametrize("density", [0.1, 1.0])
def test_heads_and_tables_are_sparse_where_that_pays(form, density, tmp_path):
    torch.manual_seed(0)
    model, ids = Tied(form).eval(), ids_of_words()
    if density < 1:
        model.table.weight.data = pruned(model.table.weight.data, 1, density)
    compiled = tessera.compile(model, ids)
    expect_like(model, compiled, ids)
    (layer,) = compiled.report.layers
    name = "table.weight.transposed" if form == "transposed" else "table.weight"
    assert (layer.name, layer.rows, layer.is_sparse) == (name, 64, density < 1)
    is_copy = form == "transposed" and density < 1  # a product of another form than the table has
    copies = {f"{name}.sparse"} if is_copy else set()
    assert {each for each in compiled.first.parameters() if "table" in each} == {"table.weight", *copies}
    if density == 1:
        assert (layer.reason, layer.copy_bytes) == ("no zeros", 0)
        return
    non_zeros = int(model.table.weight.count_nonzero())
    if is_copy:
        assert 4 * non_zeros < layer.copy_bytes < 4 * SIZE * SIZE
        assert f"sparse, a copy of {layer.copy_bytes / 1e6:.2f} MB" in str(compiled)
    else:
        assert layer.copy_bytes == 0 and compiled.first.get("table.weight").size == non_zeros
    compiled.save(tmp_path / "m.safetensors")
    loaded = tessera.load(tmp_path / "m.safetensors")
    expect_like(model, loaded, ids)
    assert loaded.report == compiled.report


@pytest.mark.parametrize("scale", [None, 0.5])  # the scale becomes part of a copy
@pytest.mark.parametrize("form", ["linear", "transposed"])
def test_sessions_follow_tables(form, scale):
    torch.manual_seed(0)
    model, ids = Tied(form, scale).eval(), ids_of_words()
    with torch.no_grad():
        model.table.weight.copy_(pruned(model.table.weight, 1))
    compiled = tessera.compile(model, ids)
    expect_like(model, compiled, ids)
    session = compiled.first
    with torch.no_grad():
        model.table.weight.mul_(-2)
    expect_like(model, compiled, ids)
    assert (compiled.first is session) == (scale is None or form == "linear")
    with torch.no_grad():
        model.table.weight.copy_(pruned(torch.randn(SIZE, SIZE), 4))  # the zeros move
    expect_like(model, compiled, ids)
    assert compiled.report.layers[0].block_size == 4
    with torch.no_grad():
        model.table.weight.normal_()
    expect_like(model, compiled, ids)
    assert not compiled.report.layers[0].is_sparse


def test_tables_that_masks_prune_are_sparse_too():
    torch.manual_seed(0)
    model, ids = Tied("product").eval(), ids_of_words()
    model.head = None
    with_mask(model.table)
    compiled = tessera.compile(model, ids)
    expect_like(model, compiled, ids)
    (layer,) = compiled.report.layers
    assert layer.is_sparse and layer.copy_bytes == 0


def test_computed_weights_are_sparse_too():
    torch.manual_seed(0)
    layer = nn.Linear(SIZE, SIZE)
    layer.weight.data = pruned(layer.weight.data, 1)
    model, x = nn.utils.spectral_norm(layer).eval(), torch.randn(64, SIZE)  # computed from a view of the parameter too
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    (report,) = compiled.report.layers
    assert (report.name, report.is_sparse) == ("weight", True)
    with torch.no_grad():
        model.weight_orig[:8].mul_(30)
    expect_like(model, compiled, x)


def test_standardised_weights_are_computed_once():
    class Standardised(nn.Conv2d):
        def forward(self, x):
            rows = F.batch_norm(self.weight.reshape(1, self.out_channels, -1), None, None, training=True)
            return F.conv2d(x, rows.reshape_as(self.weight), self.bias)

    model, x = Standardised(16, 32, 3).eval(), torch.randn(2, 16, 8, 8)
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    assert [(each.shape, each.reason) for each in compiled.report.layers] == [((32, 144), "no zeros")]
    with torch.no_grad():
        model.weight[3].mul_(3).add_(1)
    expect_like(model, compiled, x)


def test_a_pruned_gpt2_holds_its_table_once(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=SIZE, n_layer=1, n_head=4, vocab_size=1000, n_positions=64, use_cache=False)
    model, ids = transformers.GPT2LMHeadModel(config).eval(), torch.randint(0, 1000, (4, 16))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.copy_(pruned(parameter, 1))
    compiled = tessera.compile(model, {"input_ids": ids})
    expect_like(model, compiled, input_ids=ids)
    layers = {each.name: each for each in compiled.report.layers}
    layer = layers["transformer.wte.weight"]
    assert layer.is_sparse and (layer.rows, layer.copy_bytes) == (64, 0)
    tables = {each for each in compiled.first.parameters() if "wte" in each or "lm_head" in each}
    assert tables == {"transformer.wte.weight"}
    non_zeros = int(model.transformer.wte.weight.count_nonzero())
    assert compiled.first.get("transformer.wte.weight").size == non_zeros
    compiled.save(tmp_path / "m.safetensors")
    expect_like(model, tessera.load(tmp_path / "m.safetensors"), input_ids=ids)


class TwoTables(nn.Module):
    """A head whose weight two tables share, and another use of it or none."""

    def __init__(self, other):
        super().__init__()
        self.table, self.bag, self.other = nn.Embedding(SIZE, SIZE), nn.EmbeddingBag(SIZE, SIZE, mode="sum"), other
        self.bag.weight = self.table.weight

    def forward(self, ids):
        weight = self.table.weight
        y = F.linear(torch.tanh(self.table(ids) + self.bag(ids)[:, None]), weight)
        if self.other == "left":
            return weight @ y.mT
        return y + weight.sum() if self.other == "sum" else y


@pytest.mark.parametrize("other", [None, "left", "sum"])
def test_all_that_take_a_table_as_it_is_share_it(other):
    torch.manual_seed(0)
    model, ids = TwoTables(other).eval(), ids_of_words()
    with torch.no_grad():
        model.table.weight.copy_(pruned(model.table.weight, 4))
    compiled = tessera.compile(model, ids)
    expect_like(model, compiled, ids)
    copies = {"table.weight.sparse"} if other == "sum" else set()
    assert {each for each in compiled.first.parameters() if "weight" in each} == {"table.weight", *copies}


def test_tables_are_for_all_sizes():
    torch.manual_seed(0)
    model, ids = Tied().eval(), ids_of_words()
    with torch.no_grad():
        model.table.weight.copy_(pruned(model.table.weight, 1))
    compiled = tessera.compile(model, ids, dynamic_shapes={"ids": {0: "batch"}})
    for batch in (4, 7, 2):
        expect_like(model, compiled, torch.randint(0, SIZE, (batch, 16)))
    assert len(compiled.report.layers) == 1


class Left(nn.Module):
    """Products whose first factor is a weight."""

    def __init__(self, form, tied):
        super().__init__()
        self.form, self.tied, self.weight = form, tied, nn.Parameter(torch.randn(SIZE, SIZE))

    def forward(self, x):
        weight = self.weight.t() if "transposed" in self.form else self.weight
        x = x.mT if "columns" in self.form else x
        if "added" in self.form:
            y = torch.addmm(torch.ones(x.shape[-1]), weight, x)
        elif "linear" in self.form:
            y = F.linear(weight, x.mT, torch.ones(x.shape[-1]))
        elif "equation" in self.form:
            y = torch.einsum("ji,bjk->bik" if "transposed" in self.form else "ij,bjk->bik", self.weight, x)
        else:
            y = weight @ x
        if "both" in self.form:
            y = y.mT @ weight
        return y + self.weight.sum() if self.tied else y


LEFT_FORMS = {
    "as it is": (SIZE, 64),
    "transposed": (SIZE, 64),
    "many": (3, SIZE, 24),
    "transposed, many, columns": (3, 24, SIZE),
    "vector": (SIZE,),
    "added": (SIZE, 64),
    "linear": (SIZE, 64),
    "transposed, linear": (SIZE, 64),
    "equation": (3, SIZE, 24),
    "transposed, equation": (3, SIZE, 24),
    "both": (2, SIZE, 40),
}


@pytest.mark.every_nth(5)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("form", LEFT_FORMS)
def test_weights_may_be_first_factors(form, density, tied, tmp_path):
    torch.manual_seed(0)
    model, x = Left(form, tied).eval(), torch.randn(LEFT_FORMS[form])
    if density < 1:
        model.weight.data = pruned(model.weight.data, 1, density)
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    layers = {each.name: each for each in compiled.report.layers}
    name = "weight.transposed" if "transposed" in form else "weight"
    assert layers[name].rows == x.numel() // SIZE
    if density == 1:
        assert {each.reason for each in layers.values()} == {"no zeros"}
        return
    assert layers[name].is_sparse == (form != "vector" or layers[name].reason == "")
    assert (layers[name].copy_bytes > 0) == (tied and layers[name].is_sparse)
    with torch.no_grad():
        model.weight.mul_(-2)
    expect_like(model, compiled, x)
    compiled.save(tmp_path / "m.safetensors")
    expect_like(model, tessera.load(tmp_path / "m.safetensors"), x)
    with torch.no_grad():
        model.weight.copy_(pruned(torch.randn(SIZE, SIZE), 4))  # the zeros move
    expect_like(model, compiled, x)


@pytest.mark.pairs(2)
@pytest.mark.parametrize("dense", ["w", "w.transposed"])
@pytest.mark.parametrize("is_transposed_first", [False, True])
def test_orders_of_a_first_factor_have_forms_of_their_own(dense, is_transposed_first, monkeypatch):
    torch.manual_seed(0)
    given = _choice.choose

    def choose(name, *args, **named):
        matrix, report = given(name, *args, **named)
        return (None, replace(report, is_sparse=False, reason="too dense")) if name == dense else (matrix, report)

    def products(w, x):
        first, second = (w.t() @ x, w @ x) if is_transposed_first else (w @ x, w.t() @ x)
        return first - 2 * second

    monkeypatch.setattr(_choice, "choose", choose)
    model, x = Function(products, SIZE, SIZE).eval(), torch.randn(3, SIZE, 24)
    model.w.data = pruned(model.w.data, 1)
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    assert {each.name: each.is_sparse for each in compiled.report.layers} == {
        name: name != dense for name in ("w", "w.transposed")
    }
    with torch.no_grad():
        model.w.mul_(-2)
    expect_like(model, compiled, x)


@pytest.mark.parametrize(
    "function",
    [
        lambda w, x: torch.bmm(w.expand(3, -1, -1), x),
        lambda w, x: torch.bmm(x, w.unsqueeze(0).expand(3, -1, -1)),
        lambda w, x: torch.bmm(x, w.t().expand(len(x), -1, -1)),
    ],
)
def test_copies_of_a_matrix_for_batched_products_are_one_weight(function):
    torch.manual_seed(0)
    model, x = Function(function, SIZE, SIZE).eval(), torch.randn(3, SIZE, SIZE)
    model.w.data = pruned(model.w.data, 1)
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    (layer,) = compiled.report.layers
    assert layer.is_sparse and (layer.rows, layer.copy_bytes) == (3 * SIZE, 0)


class Experts(nn.Module):
    """Products of several weights in one parameter."""

    def __init__(self, form, count=3):
        super().__init__()
        self.form, self.weight = form, nn.Parameter(torch.randn(count, SIZE, SIZE) / 16)

    def forward(self, x):
        if self.form == "one by one":
            parts = [F.linear(x[i], self.weight[i]) for i in range(len(self.weight))]
            return torch.stack(parts) + torch.tanh(x)
        if self.form == "left, one by one":
            return torch.stack([self.weight[i] @ x[i].t() for i in range(len(self.weight))])
        if self.form == "left, equation":
            return torch.einsum("gij,gkj->gik", self.weight, x)
        weight = self.weight.transpose(1, 2) if "transposed" in self.form else self.weight
        return torch.bmm(weight, x.transpose(1, 2)) if "left" in self.form else torch.bmm(x, weight)


EXPERTS = ["as they are", "transposed", "one by one"]
EXPERTS += ["left", "left, transposed", "left, one by one", "left, equation"]


@torch.no_grad()
def prune_experts(model):
    model.weight.copy_(torch.stack([pruned(each, 1) for each in model.weight]))


@pytest.mark.every_nth(2)
@pytest.mark.parametrize("form", EXPERTS)
def test_experts_are_weights_of_their_own_where_that_pays(form, tmp_path):
    torch.manual_seed(0)
    model, x = Experts(form).eval(), torch.randn(3, 64, SIZE)
    dense = tessera.compile(model, x)
    expect_like(model, dense, x)
    assert not any(each.is_sparse for each in dense.report.layers)
    prune_experts(model)
    expect_like(model, dense, x)
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    end = ".transposed" if form in ("as they are", "left, transposed") else ""
    layers = {each.name: each for each in compiled.report.layers}
    assert layers.keys() == {f"weight[{i}]{end}" for i in range(3)}
    assert all(each.is_sparse and each.rows == 64 and each.copy_bytes == 0 for each in layers.values())
    session = compiled.first
    assert session.parameters().keys() == layers.keys()
    with torch.no_grad():
        model.weight.mul_(-2)
    expect_like(model, compiled, x)
    assert compiled.first is session  # the zeros are where they were
    compiled.save(tmp_path / "m.safetensors")
    expect_like(model, tessera.load(tmp_path / "m.safetensors"), x)
    with torch.no_grad():
        model.weight[1].normal_()
    expect_like(model, compiled, x)
    assert any(each.is_sparse for each in compiled.report.layers) == ("one by one" in form)


def test_experts_may_all_have_the_same_rows():
    torch.manual_seed(0)

    class Shared(Experts):
        def forward(self, x):
            return x @ self.weight

    model, x = Shared("").eval(), torch.randn(2, 1, 64, SIZE)
    prune_experts(model)
    for rows in (x, x[0, 0], x[0]):
        compiled = tessera.compile(model, rows)
        expect_like(model, compiled, rows)
        assert all(each.is_sparse for each in compiled.report.layers) and len(compiled.report.layers) == 3


@pytest.mark.every_nth(2)
@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda w, x: w @ x.mT, (2, 1, 64, SIZE)),
        (lambda w, x: w @ x.mT, (64, SIZE)),
        (lambda w, x: w.mT @ x, (SIZE, 64)),
        (lambda w, x: F.linear(w, x), (64, SIZE)),
        (lambda w, x: torch.baddbmm(x[:, :1, :64], w, x.mT, beta=2, alpha=0.5), (3, 64, SIZE)),
    ],
)
def test_experts_may_be_first_factors_of_the_same_values(function, shape):
    torch.manual_seed(0)
    model, x = Function(function, 3, SIZE, SIZE).eval(), torch.randn(shape)
    with torch.no_grad():
        model.w.copy_(torch.stack([pruned(each, 1) for each in model.w]))
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    assert all(each.is_sparse for each in compiled.report.layers) and len(compiled.report.layers) == 3
    with torch.no_grad():
        model.w.mul_(-2)
    expect_like(model, compiled, x)


@pytest.mark.parametrize(
    ("function", "shape"),
    [(lambda w, x: x @ w, (2, 64, SIZE)), (lambda w, x: x @ w, (64, SIZE)), (lambda w, x: w @ x.mT, (2, 64, SIZE))],
)
def test_a_stack_of_one_matrix_is_a_weight(function, shape):
    torch.manual_seed(0)
    model, x = Function(function, 1, SIZE, SIZE).eval(), torch.randn(shape)
    with torch.no_grad():
        model.w.copy_(pruned(model.w[0], 1).unsqueeze(0))
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    (layer,) = compiled.report.layers
    assert layer.name.startswith("w[0]") and layer.is_sparse and layer.rows == x.numel() // SIZE


def test_experts_on_both_sides_stay_one_weight():
    torch.manual_seed(0)
    model, x = Function(lambda w, x: w @ (x @ w).mT, 3, SIZE, SIZE).eval(), torch.randn(3, 64, SIZE)
    with torch.no_grad():
        model.w.copy_(torch.stack([pruned(each, 1) for each in model.w]))
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    assert [(each.name, each.reason) for each in compiled.report.layers] == [("w", "batched product")]


@pytest.mark.parametrize("is_too_many", [False, True])
def test_many_experts(is_too_many, monkeypatch):
    torch.manual_seed(0)
    if is_too_many:
        monkeypatch.setattr(_parameters, "_MOST_GROUPS", 64)
    model, x = Function(torch.matmul, 65, 256, 256).eval(), torch.randn(65, 256, 64)
    with torch.no_grad():
        model.w.copy_(torch.stack([pruned(each, 1, 0.03) for each in model.w]))
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    layers = {each.name: each.reason for each in compiled.report.layers}
    assert layers == ({"w": "batched product"} if is_too_many else {f"w[{i}]": "" for i in range(65)})
