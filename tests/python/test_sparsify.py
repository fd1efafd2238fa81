"""sparsify_: which layers of a model become sparse, and what the report says."""

import pytest

torch = pytest.importorskip("torch")

import tessera
from tessera.nn import SparseLinear


def model_of():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(512, 1024),
        torch.nn.ReLU(),
        torch.nn.Sequential(torch.nn.Linear(1024, 512)),
        torch.nn.Linear(512, 2),
    )


@pytest.mark.parametrize("measure", [False, True])
def test_replaces_the_layers_that_gain(measure):
    model = model_of()
    dense = [m.weight.detach().clone() for m in model.modules() if isinstance(m, torch.nn.Linear)]
    report = tessera.sparsify_(model, 0.02, batch=64, measure=measure, require_speedup=not measure)
    assert [layer.name for layer in report.layers] == ["0", "2.0", "3"]
    assert isinstance(model[0], SparseLinear) and isinstance(model[2][0], SparseLinear)
    mask = model[0].mask()
    assert torch.equal(model[0].dense_weight(), dense[0] * mask)
    assert model[0].density == pytest.approx(0.02, rel=0.01)
    assert all(layer.dense_seconds > 0 and layer.sparse_seconds > 0 for layer in report.layers)
    assert ("measured" if measure else "predicted") in str(report)
    assert model(torch.randn(64, 512)).shape == (64, 2)


def test_layers_that_would_lose_stay_dense_and_the_report_says_so():
    model = model_of()
    before = model[0].weight
    report = tessera.sparsify_(model, 1.0, batch=64)
    assert all(not layer.is_sparse for layer in report.layers)
    assert model[0].weight is before
    assert "stays dense" in str(report)
    assert report.speedup == 1
    report = tessera.sparsify_(model, 1.0, batch=64, require_speedup=False)
    assert isinstance(model[0], SparseLinear) and report.layers[0].is_sparse


def test_a_filter_chooses_layers():
    model = model_of()
    report = tessera.sparsify_(
        model, 0.05, block_size=16, filter=lambda name, layer: layer.in_features == 1024, batch=64
    )
    assert [layer.name for layer in report.layers] == ["2.0"]
    assert isinstance(model[0], torch.nn.Linear) and model[2][0].block_size == 16


def test_refuses_bad_arguments():
    with pytest.raises(ValueError, match="batch is 0"):
        tessera.sparsify_(model_of(), 0.1, batch=0)
    with pytest.raises(ValueError, match="density is nan"):
        tessera.sparsify_(model_of(), float("nan"), batch=1)
    with pytest.raises(ValueError, match="from_dense"):
        tessera.sparsify_(torch.nn.Linear(4, 4), 0.5, batch=1)
