"""Prunes a model of Hugging Face's, shows where its zeros are, compiles and saves it, and runs the file.

python examples/prune_and_compile.py --density 0.1 --block-size 4
python examples/prune_and_compile.py --model sentence-transformers/all-MiniLM-L6-v2 --folder pruned

Without --model it is a small BERT of random weights. A pruned model should be trained on before it is used.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tessera
import torch
import transformers
from torch import nn


def prune(model: nn.Module, density: float, b: int) -> None:
    """Keep the largest blocks of each linear layer's weight."""
    for layer in model.modules():
        if not isinstance(layer, nn.Linear) or layer.out_features % b or layer.in_features % b:
            continue
        blocks = layer.weight.data.view(layer.out_features // b, b, layer.in_features // b, b)
        sizes = blocks.abs().sum((1, 3), keepdim=True)
        kept = sizes >= sizes.flatten().topk(max(1, round(sizes.numel() * density))).values[-1]
        layer.weight.data = (blocks * kept).view_as(layer.weight)


def milliseconds(call: Callable[[], object], rounds: int) -> float:
    """The least of some calls."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model of Hugging Face, by its name or folder")
    parser.add_argument("--density", type=float, default=0.1, help="density of the pruned layers")
    parser.add_argument("--block-size", type=int, default=4, help="block size")
    parser.add_argument("--layers", type=int, default=4, help="number of layers without --model")
    parser.add_argument("--width", type=int, default=512, help="hidden size without --model")
    parser.add_argument("--batch", type=int, default=2, help="sentences per call")
    parser.add_argument("--length", type=int, default=64, help="tokens per sentence")
    parser.add_argument("--rounds", type=int, default=5, help="calls of which the fastest counts")
    parser.add_argument("--folder", help="folder in which to keep the pruned and the compiled model")
    a = parser.parse_args()
    torch.manual_seed(1)
    if a.model is not None:
        model = transformers.AutoModel.from_pretrained(a.model).eval()
    else:
        sizes = {"hidden_size": a.width, "intermediate_size": 4 * a.width, "num_attention_heads": a.width // 32}
        model = transformers.BertModel(transformers.BertConfig(num_hidden_layers=a.layers, **sizes)).eval()
    ids = torch.randint(0, model.config.vocab_size, (a.batch, a.length))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    prune(model, a.density, a.block_size)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(a.folder or temporary)
        model.save_pretrained(folder)
        print(tessera.inspect(folder, rows=ids.numel()))  # also `tessera inspect FOLDER`

        compiled = tessera.compile(model, inputs)
        print(compiled)
        compiled.save(folder / "compiled.safetensors")
        loaded = tessera.load(folder / "compiled.safetensors")

        expected = model(**inputs).last_hidden_state
        for name, fast in (("compiled", compiled), ("loaded", loaded)):
            difference = (fast(**inputs).last_hidden_state - expected).abs().max().item()
            print(f"{name}: largest difference {difference:.1e}")
        eager, own = (milliseconds(lambda call=call: call(**inputs), a.rounds) for call in (model, loaded))
        print(f"{eager:.2f} ms in PyTorch, {own:.2f} ms in Tessera; speed-up {eager / own:.1f}")


if __name__ == "__main__":
    main()
