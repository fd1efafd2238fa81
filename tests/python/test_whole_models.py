"""Whole models of transformers at full size, of random weights, dense and pruned, beside PyTorch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import tessera  # noqa: E402
from tessera import graph as tg  # noqa: E402

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]

DENSITIES = [1.0, 0.5, 0.2, 0.1, 0.05]


def bert():
    return transformers.BertModel(transformers.BertConfig())


def distilbert():
    return transformers.DistilBertModel(transformers.DistilBertConfig())


def roberta():
    sizes = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
    return transformers.RobertaModel(transformers.RobertaConfig(**sizes))


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))


def llama():
    sizes = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12}
    config = transformers.LlamaConfig(**sizes, num_key_value_heads=4, use_cache=False)
    return transformers.LlamaForCausalLM(config)


def vit():
    return transformers.ViTModel(transformers.ViTConfig())


def inputs_of(make):
    if make is vit:
        return {"pixel_values": torch.randn(1, 3, 224, 224)}
    ids, mask = torch.randint(5, 30000, (2, 96)), torch.ones(2, 96, dtype=torch.long)
    ids[1, 70:], mask[1, 70:] = 1, 0
    return {"input_ids": ids, "attention_mask": mask}


def weights_of(model):
    """The weights of products, without embeddings and heads."""
    kinds = (torch.nn.Linear, transformers.pytorch_utils.Conv1D)
    head = model.get_output_embeddings()
    return [each.weight for each in model.modules() if isinstance(each, kinds) and each is not head]


@torch.no_grad()
def prune(weights, density, b):
    """Keep the largest blocks, also of weights [inputs, outputs]."""
    for weight in weights:
        rows, cols = weight.shape
        sizes = weight.view(rows // b, b, cols // b, b).abs().sum((1, 3))
        kept = sizes >= sizes.flatten().topk(round(sizes.numel() * density)).values[-1]
        weight.mul_(kept.repeat_interleave(b, 0).repeat_interleave(b, 1))


def close(found, wanted, mask):
    if mask is not None and wanted.dim() == 3:
        found, wanted = found[mask.bool()], wanted[mask.bool()]
    return float((found - wanted).abs().max() / wanted.abs().max()) <= 1e-4


@pytest.mark.parametrize("b", [1, 4, 16])
@pytest.mark.parametrize("make", [bert, distilbert, roberta, gpt2, llama, vit])
def test_pruned_models_compute_what_they_compute_in_pytorch(make, b):
    torch.manual_seed(b)
    model, inputs = make().eval(), inputs_of(make)
    weights = weights_of(model)
    for density in DENSITIES:
        prune(weights, density, b)
        with torch.no_grad():
            wanted = model(**inputs).to_tuple()
        compiled = tessera.compile(model, inputs)
        found = compiled(**inputs).to_tuple()
        mask = inputs.get("attention_mask")
        assert all(close(each, of, mask) for each, of in zip(found, wanted, strict=True)), density
        sparse = sum(each.is_sparse for each in compiled.report.layers)
        assert sparse >= len(weights) if density < 0.2 else sparse <= len(weights)
        del compiled


class Loss(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs, labels):
        logits = self.model(inputs).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def bert_for_tokens():
    return transformers.BertForMaskedLM(transformers.BertConfig())


@pytest.mark.parametrize(("make", "density"), [(bert_for_tokens, 1.0), (bert_for_tokens, 0.1), (gpt2, 0.5)])
def test_gradients_of_all_parameters(make, density):
    torch.manual_seed(0)
    module = Loss(make().eval())
    prune(weights_of(module.model), density, 4)
    ids = torch.randint(5, 30000, (2, 64))
    labels = torch.where(torch.rand(2, 64) < 0.3, -100, ids)
    loss = module(ids, labels)
    loss.backward()
    gradients = {name: each.grad.numpy() for name, each in module.named_parameters()}
    kind = transformers.pytorch_utils.Conv1D
    transposed = {f"{path}.weight" for path, each in module.named_modules() if isinstance(each, kind)}
    if density < 1:
        tessera.sparsify_(module.model, block_size=4, rows=ids.numel(), require_speedup=False)
    graph = tg.from_torch(module, (ids, labels))
    session = graph.training_step(graph.outputs["output"], momentum=0.9, lr=0.1).session()
    assert session.run(ids, labels) == pytest.approx(loss.item(), rel=1e-5)
    sparse = 0
    for name, expected in gradients.items():
        found = session.get(f"{name}.velocity")  # after a first step the gradient
        if found.shape != expected.shape:
            expected = expected.T if name in transposed else expected
            expected, sparse = blocks_of(expected, *session.pattern(name)), sparse + 1
        least = 1e-5 if name.endswith("key.bias") else 1e-7  # gradients of keys' biases are 0 except for rounding
        assert np.abs(found - expected).max() <= 1e-4 * max(least, np.abs(expected).max()), name
    assert sparse == (0 if density == 1 else 73 if make is bert_for_tokens else 48)


def blocks_of(matrix, crow_indices, col_indices, b=4):
    """The blocks of a pattern, one after another."""
    rows, cols = matrix.shape
    blocks = matrix.reshape(rows // b, b, cols // b, b).transpose(0, 2, 1, 3)
    return blocks[np.repeat(np.arange(rows // b), np.diff(crow_indices.astype(int))), col_indices.astype(int)]
