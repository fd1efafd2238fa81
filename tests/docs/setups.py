"""Names and files that blocks of Python and commands in the pages need: `<!-- setup: NAME -->` before a block.

Each function returns names for the session of the page, or writes files into its folder.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tessera

Names = dict[str, Any]


def _pruned(weight: Any, density: float = 0.1, seed: int = 0) -> Any:
    """A weight pruned in blocks of 4 × 4."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    rows, cols = weight.shape
    kept = torch.rand(rows // 4, cols // 4, generator=generator) < density
    return weight * kept.repeat_interleave(4, 0).repeat_interleave(4, 1)


# PyTorch's modules


def classifier() -> Names:
    import torch

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    x, labels = np.random.default_rng(0).random((128, 784), np.float32), np.arange(128) % 10
    names = {"tessera": tessera, "torch": torch, "network": network}
    return {**names, "batches": [(x, labels)] * 2, "rate_of": lambda step: 1e-3 / (1 + step)}


def small_model() -> Names:
    import torch

    torch.manual_seed(0)
    linear = torch.nn.Linear(256, 256)
    linear.weight.data = _pruned(linear.weight.data)
    return {"model": torch.nn.Sequential(linear, torch.nn.ReLU()).eval(), "x": torch.randn(16, 256)}


def linear_module() -> Names:
    import torch

    torch.manual_seed(0)
    x = torch.randn(16, 256, dtype=torch.bfloat16)
    return {"tessera": tessera, "torch": torch, "module": torch.nn.Sequential(torch.nn.Linear(256, 256)).eval(), "x": x}


def linear_layers() -> Names:
    import torch
    from torch.nn.utils import prune

    torch.manual_seed(0)
    linear, pruned = torch.nn.Linear(768, 3072), torch.nn.Linear(768, 3072)
    prune.random_unstructured(pruned, "weight", 0.9)
    model = torch.nn.Sequential(torch.nn.Linear(768, 3072), torch.nn.GELU(), torch.nn.Linear(3072, 768))
    mask = torch.rand(3072, 768) < 0.1
    return {"torch": torch, "linear": linear, "pruned": pruned, "mask": mask, "model": model}


def one_layer() -> Names:
    import torch

    torch.manual_seed(0)
    layer = torch.nn.Linear(512, 512)
    layer.weight.data = _pruned(layer.weight.data)
    return {"layer": layer}


def dynamic_layers() -> Names:
    import torch

    torch.manual_seed(0)
    hidden = tessera.nn.SparseLinear(64, 64, density=0.25, block_size=4, dynamic=True)
    model = torch.nn.Sequential(hidden, torch.nn.ReLU(), torch.nn.Linear(64, 10))
    batches = [(torch.randn(8, 64), torch.arange(8)) for _ in range(2)]
    optimizer = torch.optim.AdamW(model.parameters())
    names = {"tessera": tessera, "model": model, "optimizer": optimizer, "loss": torch.nn.CrossEntropyLoss()}
    return {**names, "batches": batches}


def saved_layers() -> Names:
    names = dynamic_layers()
    for x, y in names["batches"]:
        names["loss"](names["model"](x), y).backward()
        names["optimizer"].step()
    states = {each: copy.deepcopy(names[each].state_dict()) for each in ("model", "optimizer")}
    return {**names, "saved": states}


def pruned_bert() -> Names:
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 128}
    model = transformers.BertModel(transformers.BertConfig(**sizes, vocab_size=500)).eval()
    for module in model.encoder.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.data = _pruned(module.weight.data)
    inputs = {"input_ids": torch.arange(64).reshape(2, 32), "attention_mask": torch.ones(2, 32, dtype=torch.int64)}
    return {
        **{"tessera": tessera, "model": model, "inputs": inputs},
        **{"ids": inputs["input_ids"], "mask": inputs["attention_mask"]},
    }


# Graphs


def staged_graph() -> Names:
    from tessera import graph as tg

    layer = tg.Graph()
    x = layer.input("x", (4, 16))
    layer.output("y", tg.tanh(tg.linear(x, layer.input("w", (16, 16)))))
    graph = tg.Graph()
    h = graph.input("x", (4, 16))
    for stage in range(2):
        h = graph.call(layer, h, graph.parameter(f"w{stage}", (16, 16), tg.normal(0.2)), stage=stage)["y"]
    graph.output("logits", h)
    return {"tessera": tessera, "tg": tg, "graph": graph}


def packed_loss() -> Names:
    return {**staged_graph(), "loss": "cross_entropy", "lr": 0.01}


def images_224() -> Names:
    import torchvision

    images = np.random.default_rng(0).random((20, 224, 224, 3), np.float32)
    return {"torchvision": torchvision, "images": images, "labels": np.arange(20)}


# Sequences and text


def sequences() -> Names:
    import datasets
    import pyarrow

    lengths = np.random.default_rng(0).integers(1, 2049, 200)
    rows = [list(range(length)) for length in lengths.tolist()]
    data = datasets.Dataset.from_dict({"input_ids": rows})
    table = pyarrow.table({"input_ids": rows})
    return {"lengths": lengths, "table": table, "data": data, "row": {"seq_lengths": [1000, 900, 100]}}


def shards() -> Names:
    from tessera import pack

    parts = np.split(np.random.default_rng(0).integers(1, 2049, 200), 2)
    return {"pack": pack, "shards": parts, "own_lengths": parts[0]}


def certificate() -> Names:
    from tessera import pack

    lengths = np.random.default_rng(0).integers(1, 129, 200)
    pack.plan(lengths, 128, certify=True).save_certificate("certificate.json")
    sys.argv[1:] = ["certificate.json"]
    return {}


def lengths_file() -> Names:
    np.save("lengths.npy", np.random.default_rng(0).integers(1, 2049, 2000))
    return {}


def tokens_file() -> Names:
    import transformers

    from tessera import graph as tg

    tessera.text.synthetic_text(vocabulary=30522, documents=100).save("tokens.safetensors")
    return {"transformers": transformers, "tg": tg}


# Files


def images_folder() -> Names:
    Path("docs/images").mkdir(parents=True, exist_ok=True)
    return {}


def weight_file() -> Names:
    """A pattern in the form of the Deep Learning Matrix Collection."""
    generator = np.random.default_rng(0)
    columns = [np.sort(generator.choice(512, 50, replace=False)) for _ in range(512)]
    offsets = np.arange(513) * 50
    text = f"512, 512, {offsets[-1]}\n{' '.join(map(str, offsets))}\n{' '.join(map(str, np.concatenate(columns)))}\n"
    Path("layer.smtx").write_text(text)
    return {}


def pruned_files() -> Names:
    """A folder in the layout of Hugging Face, and files of single weights."""
    from safetensors.numpy import save_file

    generator = np.random.default_rng(0)
    weights = {
        f"bert.encoder.layer.0.{name}.dense.weight": generator.standard_normal(shape, np.float32)
        * np.kron(generator.random((shape[0] // 4, shape[1] // 4)) < 0.1, np.ones((4, 4))).astype(np.float32)
        for name, shape in {"intermediate": (512, 128), "output": (128, 512)}.items()
    }
    folder = Path("models/pruned-bert")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    save_file(weights, folder / "model.safetensors")
    save_file(weights, "model.safetensors")
    np.save("layer.npy", next(iter(weights.values())))
    return weight_file()


def onnx_file() -> Names:
    """Embeddings of ids, which are zero for padding, and a pruned product."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    generator = np.random.default_rng(0)
    weight = generator.standard_normal((64, 64), np.float32)
    weight[generator.random(weight.shape) < 0.9] = 0
    arrays = {"table": generator.standard_normal((100, 64), np.float32), "weight": weight, "last": np.array([-1])}
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["embedded"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
        helper.make_node("Mul", ["embedded", "column"], ["masked"]),
        helper.make_node("MatMul", ["masked", "weight"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ("batch", "tokens"))
            for name in ("input_ids", "attention_mask")
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ("batch", "tokens", 64))],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), "model.onnx")
    return {"ids": np.arange(16).reshape(2, 8), "mask": np.ones((2, 8), np.int64)}


# Structured maps


def inputs_of_layers() -> Names:
    import torch

    torch.manual_seed(0)
    return {"x": torch.randn(8, 784)}


def butterfly_arrays() -> Names:
    generator = np.random.default_rng(0)
    x, dy = generator.standard_normal((64, 1000), np.float32), generator.standard_normal((64, 2000), np.float32)
    twiddle = generator.standard_normal((2, 1, 10, 512, 2, 2), np.float32)
    return {"tessera": tessera, "x": x, "dy": dy, "twiddle": twiddle}
