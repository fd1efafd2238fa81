"""sparsify_: the layers of a model that become sparse, and the report."""

import types

import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils import prune

import tessera
from tessera import _choice
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
    report = tessera.sparsify_(model, 0.02, rows=64, measure=measure, require_speedup=not measure)
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
    report = tessera.sparsify_(model, 1.0, rows=64)
    assert all(not layer.is_sparse for layer in report.layers)
    assert model[0].weight is before
    assert {layer.reason for layer in report.layers} == {"no zeros"} and "no zeros" in str(report)
    assert report.speedup == 1
    report = tessera.sparsify_(model, 1.0, rows=64, require_speedup=False)
    assert isinstance(model[0], SparseLinear) and report.layers[0].is_sparse


def test_layers_become_sparse_as_compile_chooses():
    model = model_of()
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, torch.nn.Linear):
                layer.weight *= torch.rand_like(layer.weight) < 0.1
    compiled = tessera.compile(model.eval(), torch.randn(64, 512)).report
    report = tessera.sparsify_(model, rows=64)
    for each, of in zip(report.layers, compiled.layers, strict=True):
        assert (f"{each.name}.weight", each.dense_seconds, each.reason) == (of.name, of.dense_seconds, of.reason)
        assert each.block_size != of.block_size or each.sparse_seconds == of.sparse_seconds
    assert [each.is_sparse for each in report.layers] == [True, True, False]


def test_blocks_that_do_not_pay_are_told_from_others_that_would():
    blocks = [types.SimpleNamespace(block_size=b, seconds=seconds) for b, seconds in ((1, 0.95), (4, None), (16, 0.5))]
    zeros = types.SimpleNamespace(dense_seconds=1.0, blocks=blocks, density=0.5, best_block_size=16, reason="")
    reasons = [_choice._predicted(zeros, b)[2] for b in (1, 4, 16)]
    assert reasons == ["only blocks of 16 would pay", "only blocks of 16 would pay", ""]


def test_a_filter_chooses_layers():
    model = model_of()
    report = tessera.sparsify_(
        model, 0.05, block_size=16, filter=lambda name, layer: layer.in_features == 1024, rows=64
    )
    assert [layer.name for layer in report.layers] == ["2.0"]
    assert isinstance(model[0], torch.nn.Linear) and model[2][0].block_size == 16


class Shared(torch.nn.Module):
    """Two names of one layer, and a layer that shares its weight with an embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(512, 256)
        self.first = torch.nn.Linear(256, 256)
        self.inner = torch.nn.Sequential(self.first)
        self.head = torch.nn.Linear(256, 512, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.inner(self.first(self.embedding(tokens))))


def test_a_layer_with_several_names_is_one_layer_afterwards():
    torch.manual_seed(0)
    model = Shared()
    report = tessera.sparsify_(model, 0.1, block_size=16, rows=64, require_speedup=False)
    assert isinstance(model.first, SparseLinear) and model.inner[0] is model.first
    assert [layer.name for layer in report.layers] == ["first", "head"]
    model(torch.arange(8)).sum().backward()


def test_shared_parameters_stay_shared():
    model = Shared()
    report = tessera.sparsify_(model, 0.1, block_size=16, rows=64, require_speedup=False)
    assert model.head.weight is model.embedding.weight
    assert "shares its weight with another module" in report.layers[-1].reason
    assert report.layers[-1].reason in str(report)
    assert not report.layers[-1].is_sparse and report.speedup == report.layers[0].speedup


def test_types_without_kernels_stay_dense():
    model = model_of().double()
    report = tessera.sparsify_(model, 0.02, rows=64)
    assert all("torch.float64" in layer.reason and not layer.is_sparse for layer in report.layers)
    assert report.speedup == 1 and "torch.float64" in str(report)
    assert model(torch.randn(2, 512).double()).dtype == torch.float64


def test_frozen_layers_stay_frozen():
    model = model_of()
    model[0].requires_grad_(False)
    model[3].bias.requires_grad_(False)
    tessera.sparsify_(model, 0.1, rows=64, require_speedup=False)
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    assert frozen == ["0.weight", "0.bias", "3.bias"]
    assert not any(parameter.requires_grad for parameter in model[0].to_dense().parameters())


def test_an_error_leaves_the_model_as_it_was():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64, device="meta"))
    before = list(model)
    with pytest.raises(RuntimeError, match="not on meta"):
        tessera.sparsify_(model, 0.1, rows=64, require_speedup=False)
    assert all(a is b for a, b in zip(model, before, strict=True))


@pytest.mark.parametrize("chosen", ["", "layers.1"])
@pytest.mark.filterwarnings("ignore:.*nested tensors.*")
def test_encoders_call_sparse_layers_in_inference(chosen):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
    encoder = torch.nn.TransformerEncoder(layer, 2).eval()
    tessera.sparsify_(
        encoder, 0.2, 16, lambda name, layer: name.startswith(chosen), rows=64, require_speedup=False
    )
    x = torch.randn(4, 9, 64)
    padding = torch.arange(9) >= torch.tensor([[9], [7], [9], [3]])
    for options in ({}, {"src_key_padding_mask": padding}):
        expected = encoder(x, **options).detach()
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                y = encoder(x, **options)
            assert torch.allclose(y[~padding], expected[~padding], atol=1e-5)


def test_without_a_density_zeros_stay():
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(48, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
    with torch.no_grad():
        model[0].weight *= torch.rand(64, 48) < 0.1
    prune.random_unstructured(model[2], "weight", amount=0.8)  # not removed
    with torch.no_grad():
        model[2].weight_orig[model[2].weight_mask.nonzero()[0].unbind()] = 0  # kept, as the mask keeps it
    kept = [int((model[0].weight != 0).sum()), int(model[2].weight_mask.sum())]
    x = torch.randn(9, 48)
    expected = model(x).detach()
    report = tessera.sparsify_(model, rows=9, require_speedup=False)
    assert [layer.blocks for layer in model if isinstance(layer, SparseLinear)] == kept
    assert [each.density for each in report.layers] == [kept[0] / (64 * 48), kept[1] / (32 * 64)]
    assert torch.allclose(model(x), expected, atol=1e-5)


class Conv1D(torch.nn.Module):
    """The layer of `transformers`, which takes weights [inputs, outputs]."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight = torch.nn.Parameter(torch.randn(nx, nf) * 0.02)
        self.bias = torch.nn.Parameter(torch.randn(nf))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, self.nx), self.weight).view(*x.shape[:-1], self.nf)


def conv1d_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(Conv1D(64, 48), torch.nn.GELU(), torch.nn.Sequential(Conv1D(32, 64)))


@pytest.mark.parametrize("block_size", [1, 16])
def test_layers_whose_weight_is_transposed_become_sparse(block_size):
    model, x = conv1d_model(), torch.randn(3, 9, 48)
    model[2][0].weight.requires_grad_(False)
    before = [model[0].weight.detach().clone(), model[2][0].weight.detach().clone()]
    report = tessera.sparsify_(
        model, 0.25, block_size, lambda name, layer: layer.nf in (32, 64), rows=27, require_speedup=False
    )
    assert [(each.name, each.shape) for each in report.layers] == [("0", (64, 48)), ("2.0", (32, 64))]
    layers = [model[0], model[2][0]]
    assert all(isinstance(each, SparseLinear) and each.density == pytest.approx(0.25, rel=0.01) for each in layers)
    assert [each.weight.requires_grad for each in layers] == [True, False]
    for each, weight in zip(layers, before, strict=True):
        assert torch.equal(each.dense_weight(), weight.t() * each.mask())
    reference = conv1d_model()
    with torch.no_grad():
        for each, layer in zip((reference[0], reference[2][0]), layers, strict=True):
            each.weight.mul_(layer.mask().t())
    assert torch.allclose(model(x), reference(x), atol=1e-5)
    model(x).square().sum().backward()
    reference(x).square().sum().backward()
    gradient = reference[0].weight.grad.t() * layers[0].mask()
    layers[0].weight.data.copy_(layers[0].weight.grad)
    assert torch.allclose(layers[0].dense_weight(), gradient, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("measure", [False, True])
def test_masks_of_transposed_weights_stay(measure):
    model, x = conv1d_model(), torch.randn(9, 48)
    prune.l1_unstructured(model[0], "weight", amount=0.9)  # not removed
    with torch.no_grad():
        model[2][0].weight *= torch.rand(64, 32) < 0.1
    kept = [int(model[0].weight_mask.sum()), int((model[2][0].weight != 0).sum())]
    expected = model(x).detach()
    tessera.sparsify_(model, rows=9, require_speedup=False, measure=measure)
    assert [model[0].blocks, model[2][0].blocks] == kept
    assert torch.allclose(model(x), expected, atol=1e-5)


def test_other_classes_of_that_name_stay():
    class Conv1D(torch.nn.Conv1d):
        pass

    model = torch.nn.Sequential(Conv1D(8, 8, 1), torch.nn.Linear(8, 8))
    report = tessera.sparsify_(model, 0.5, rows=4, require_speedup=False)
    assert [each.name for each in report.layers] == ["1"]


def test_gpt2_becomes_sparse():
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 99, "n_positions": 32, "n_embd": 64, "n_layer": 2, "n_head": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
    ids = torch.randint(0, 99, (2, 10))
    before = model(ids).logits.detach()
    report = tessera.sparsify_(model, 1.0, rows=20, require_speedup=False)
    names = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]
    found = [each.name for each in report.layers if each.is_sparse]
    assert found == [f"transformer.h.{i}.{name}" for i in range(2) for name in names]
    assert torch.allclose(model(ids).logits, before, atol=1e-4)


def test_refuses_bad_arguments():
    with pytest.raises(ValueError, match="rows is 0"):
        tessera.sparsify_(model_of(), 0.1, rows=0)
    with pytest.raises(ValueError, match="density is nan"):
        tessera.sparsify_(model_of(), float("nan"), rows=1)
    with pytest.raises(ValueError, match="from_dense"):
        tessera.sparsify_(torch.nn.Linear(4, 4), 0.5, rows=1)
