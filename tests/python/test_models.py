"""Whole models of Transformers, of random weights."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from beside_torch import trains_like_pytorch  # noqa: E402

import tessera  # noqa: E402
from tessera import graph as tg  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

SIZES = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
ONE_LAYER = SIZES | {"num_hidden_layers": 1}  # tests of BERT and GPT-2 have several layers
TOKENS = {"vocab_size": 1000, "bos_token_id": None, "eos_token_id": None}


class First(torch.nn.Module):
    """A model's first output."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        return self.model(*inputs)[0]


def bert():
    return transformers.BertModel(transformers.BertConfig(**SIZES, **TOKENS), add_pooling_layer=False)


def gpt2():
    return transformers.GPT2Model(transformers.GPT2Config(n_embd=48, n_layer=2, n_head=4, **TOKENS))


def distilbert():
    return transformers.DistilBertModel(
        transformers.DistilBertConfig(dim=48, n_layers=1, n_heads=4, hidden_dim=96, **TOKENS)
    )


def llama():
    return transformers.LlamaModel(transformers.LlamaConfig(num_key_value_heads=2, **ONE_LAYER, **TOKENS))


def roberta():
    return transformers.RobertaModel(transformers.RobertaConfig(**ONE_LAYER, **{**TOKENS, "pad_token_id": 1}))


def vit():
    return transformers.ViTModel(transformers.ViTConfig(image_size=32, patch_size=8, **ONE_LAYER))


def inputs_of(make):
    if make is vit:
        return torch.randn(2, 3, 32, 32)
    ids = torch.randint(5, 1000, (2, 19))
    if make is roberta:
        ids[1, 15:] = 1  # padding, from which positions follow
    return ids


@pytest.mark.parametrize("make", [bert, distilbert, gpt2, llama, roberta, vit])
def test_models_give_what_they_give_in_pytorch(make):
    torch.manual_seed(0)
    model, x = First(make()).eval(), inputs_of(make)
    with torch.no_grad():
        expected = model(x).numpy()
    y = tg.from_torch(model, x).session().run(x)
    assert np.abs(y - expected).max() <= 1e-4 * np.abs(expected).max()


class Masked(First):
    def forward(self, x, mask):
        return self.model(x, attention_mask=mask)[0]


@pytest.mark.pairs(2)
@pytest.mark.parametrize("make", [bert, gpt2, llama])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_not_attended_to(make, side):
    torch.manual_seed(3)
    model, x = Masked(make()).eval(), inputs_of(make)
    mask = torch.ones_like(x)
    mask[1, :4] = 0
    mask = mask if side == "left" else mask.flip(1)
    with torch.no_grad():
        expected = model(x, mask).numpy()
    y = tg.from_torch(model, (x, mask)).session().run(x, mask)
    kept = mask.numpy() > 0
    assert np.abs(y - expected)[kept].max() <= 1e-4 * np.abs(expected).max()


def test_a_layer_of_bert_is_estimated_for_a_tiled_machine():
    torch.manual_seed(4)
    sizes = {**SIZES, "num_hidden_layers": 1}
    model = First(transformers.BertModel(transformers.BertConfig(**sizes, **TOKENS), add_pooling_layer=False)).eval()
    x = torch.randn(2, 19, 48)
    layer = model.model.encoder.layer[0]
    estimate = tg.from_torch(layer, x).estimate("bow")
    times = {}
    for each in estimate.operations:
        times[each.operation] = times.get(each.operation, 0) + each.seconds
    assert estimate.fits and times["linear"] > 0 and times["attention"] > 0


@pytest.mark.parametrize("block_size", [1, pytest.param(4, marks=pytest.mark.full), 16])
def test_pruned_encoders(block_size):
    torch.manual_seed(1)
    model, x = First(bert()).eval(), inputs_of(bert)
    for layer in model.model.encoder.modules():
        if isinstance(layer, torch.nn.Linear):
            kept = torch.rand(layer.out_features // block_size, layer.in_features // block_size) < 0.2
            blocks = kept.repeat_interleave(block_size, 0).repeat_interleave(block_size, 1)
            layer.weight.data.mul_(blocks)
    with torch.no_grad():
        expected = model(x).numpy()
    tessera.sparsify_(model.model.encoder, density=None, block_size=block_size, rows=x.numel(), measure=False)
    y = tg.from_torch(model, x).session().run(x)
    assert np.abs(y - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("make", [bert, gpt2])
def test_models_train_as_in_pytorch(make):
    torch.manual_seed(2)
    model, x = First(make()).eval(), inputs_of(make)
    target = torch.randn(2, 19, 48)
    trains_like_pytorch(model, x, target, "mse", steps=2, atol=1e-5)
