"""What becomes of each weight of a model, and why."""

import math

import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402
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
        "tokens.weight": "used elsewhere too",
        "experts": "batched product",
        "left": "left factor of a product",
        "mixed": "used elsewhere too",
        "by_channel.weight": "grouped convolution",
        "grouped.weight": "grouped convolution",
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
    assert (kernel.name, kernel.reason, kernel.shape) == ("1.weight", "grouped convolution", (4, 1))
