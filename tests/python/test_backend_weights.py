"""Weights that are sparse in graphs of torch.compile(backend="tessera")."""

import logging

import pytest

torch = pytest.importorskip("torch")

import test_backend  # noqa: E402
import test_model_reports as reports  # noqa: E402
from test_backend import compiled, equal  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

fresh, runs = test_backend.fresh, test_backend.runs  # fixtures


def is_sparse(caplog):
    """How many weights became sparse since the last call."""
    count = caplog.text.count("sparse, predicted speed-up")
    caplog.clear()
    return count


def expect_followed(model, fast, slow, x, caplog, sparse):
    """Check that `sparse` weights are sparse, and follow the model's parameter."""
    caplog.set_level(logging.INFO, "tessera")
    with torch.no_grad():
        for _ in range(2):
            equal(fast(x), slow(x))
        assert is_sparse(caplog) == sparse
        for parameter in model.parameters():
            parameter.mul_(-0.5)
        for _ in range(12):  # until the weights are prepared again
            equal(fast(x), slow(x))
        for parameter in model.parameters():
            parameter.normal_(0, 0.05)  # no zeros
        for _ in range(12):
            equal(fast(x), slow(x))


@pytest.mark.parametrize("form", ["linear", "product", "transposed"])
def test_heads_that_are_tables_are_sparse(form, runs, caplog):
    model, ids = reports.Tied(form).eval(), reports.ids_of_words()
    with torch.no_grad():
        model.table.weight.copy_(reports.pruned(model.table.weight / 8, 1))
    expect_followed(model, compiled(model), model, ids, caplog, 1)
    assert runs


@pytest.mark.every_nth(2)
@pytest.mark.parametrize(
    "form",
    [
        *("as they are", "transposed", "one by one", "matmul"),
        *("left", "left, transposed", "left, one by one", "left, equation", "left, matmul"),
    ],
)
def test_experts_are_sparse(form, runs, caplog):
    model, x = reports.Experts(form).eval(), torch.randn(3, 64, reports.SIZE)
    reports.prune_experts(model)
    calls = {"matmul": lambda x: x @ model.weight, "left, matmul": lambda x: model.weight @ x.mT}
    call = calls.get(form, model)
    expect_followed(model, compiled(call), call, x, caplog, 3)
    assert runs


@pytest.mark.parametrize("form", ["as they are", "left"])
def test_experts_without_zeros_are_read_in_place(form, runs, caplog):
    model, x = reports.Experts(form).eval(), torch.randn(3, 64, reports.SIZE)
    expect_followed(model, compiled(model), model, x, caplog, 0)
    assert runs and not any(each._weights for each in runs)


@pytest.mark.every_nth(2)
@pytest.mark.parametrize(
    "form",
    [
        *("as it is", "transposed", "many", "transposed, many, columns", "added"),
        *("linear", "transposed, linear", "equation", "transposed, equation"),
    ],
)
def test_first_factors_are_sparse(form, runs, caplog):
    model, x = reports.Left(form, tied=False).eval(), torch.randn(reports.LEFT_FORMS[form])
    with torch.no_grad():
        model.weight.copy_(reports.pruned(model.weight / 8, 1))
    expect_followed(model, compiled(model), model, x, caplog, 1)
    assert runs


@pytest.mark.parametrize(
    ("equation", "shape"),
    [("sj,jo->so", (64, 512)), ("bsj,oj->bso", (2, 32, 512)), ("bjs,jo->bso", (2, 512, 32))],
)
def test_weights_of_equations_are_sparse(equation, shape, runs, caplog):
    model, x = nn.Linear(512, 512, bias=False), torch.randn(shape)
    with torch.no_grad():
        model.weight.copy_(reports.pruned(model.weight, 1))

    def call(x):
        return torch.einsum(equation, x, model.weight)

    expect_followed(model, compiled(call), call, x, caplog, 1)
    assert runs


def test_any_write_is_seen_after_some_calls(runs):
    model, x = nn.Linear(256, 256), torch.randn(8, 256)
    fast = compiled(model)
    with torch.no_grad():
        for _ in range(3):
            equal(fast(x), model(x))
        assert runs
        model.weight.data[100, 7] += 3
        for _ in range(40):  # 64 blocks, two in each
            fast(x)
        for _ in range(2):
            equal(fast(x), model(x))


def test_weights_beside_convolutions_are_sparse(runs, caplog):
    size = reports.SIZE
    model = nn.Sequential(nn.Conv2d(3, size, 4, stride=4), nn.Flatten(2), nn.Linear(64, size), nn.Linear(size, size))
    with torch.no_grad():
        model[3].weight.copy_(reports.pruned(model[3].weight, 1))
    expect_followed(model, compiled(model), model, torch.randn(1, 3, 32, 32), caplog, 1)
    assert runs
