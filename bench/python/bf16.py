"""Products and whole Transformers in BF16, beside FP32 and beside PyTorch (oneDNN), in one run.

    python bench/python/bf16.py                       # dense layers, block-sparse layers, BERT-base at 128 tokens
    python bench/python/bf16.py --only dense --size 768x768 768x3072 --batch 128 512

Candidates take turns. Prints the least time of each, with the speed-up over PyTorch in BF16. All sum in FP32.
"""

from __future__ import annotations

import argparse
import copy
import warnings

import torch
from models import First, Job, breakdown, least, report
from torch import Tensor, nn

import tessera

warnings.filterwarnings("ignore")


def expect_close(y: Tensor, wanted: Tensor, what: str) -> None:
    """A few roundings to BF16."""
    error = float((y.float() - wanted.float()).abs().max() / wanted.float().abs().max())
    assert error < 0.03, f"{what} differs from PyTorch by {error}"


def compare_layer(m: int, k: int, n: int, rounds: int) -> None:
    layer = nn.Linear(k, m).eval()
    x = torch.randn(n, k)
    half, narrow = copy.deepcopy(layer).bfloat16(), x.bfloat16()
    ours, ours32 = tessera.compile(half, narrow), tessera.compile(layer, x)
    expect_close(ours(narrow), layer(x), f"{m} × {k}")
    compiled = torch.compile(half, options={"freezing": True})
    jobs: dict[str, Job] = {
        "PyTorch, BF16": lambda: half(narrow),
        "PyTorch, BF16, prepacked": lambda: compiled(narrow),
        "Tessera, BF16": lambda: ours(narrow),
        "Tessera, FP32": lambda: ours32(x),
    }
    report(f"{m} × {k}, n = {n}, {2e-9 * m * k * n:.2f} GFLOP", least(jobs, rounds), {"PyTorch, BF16"})


def compare_sparse(m: int, k: int, n: int, block: int, density: float, rounds: int) -> None:
    kept = torch.rand(m // block, k // block) < density
    mask = kept.repeat_interleave(block, 0).repeat_interleave(block, 1)
    layer = nn.Linear(k, m).eval()
    dense = copy.deepcopy(layer).bfloat16()
    layer.weight.data.mul_(mask)
    x = torch.randn(n, k)
    half, narrow = copy.deepcopy(layer).bfloat16(), x.bfloat16()
    ours, ours32 = tessera.compile(half, narrow), tessera.compile(layer, x)
    expect_close(ours(narrow), layer(x), f"{m} × {k}, b = {block}")
    jobs: dict[str, Job] = {
        "PyTorch, BF16, dense": lambda: dense(narrow),
        "Tessera, BF16": lambda: ours(narrow),
        "Tessera, FP32": lambda: ours32(x),
    }
    title = f"{m} × {k}, n = {n}, density {float(mask.float().mean()):.3f} in blocks of {block}"
    report(title, least(jobs, rounds), {"PyTorch, BF16, dense"})


def compare_bert(batch: int, rounds: int) -> None:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    model = First(BertModel(BertConfig(), add_pooling_layer=False)).eval()
    half = copy.deepcopy(model).bfloat16()
    x = torch.randint(5, 30000, (batch, 128))
    ours, ours32 = tessera.compile(half, x), tessera.compile(model, x)
    expect_close(ours(x), model(x), "BERT")
    jobs: dict[str, Job] = {
        "PyTorch, BF16": lambda: half(x),
        "PyTorch, FP32": lambda: model(x),
        "Tessera, BF16": lambda: ours(x),
        "Tessera, FP32": lambda: ours32(x),
    }
    times = least(jobs, rounds)
    report(f"BERT-base, {batch} × 128 tokens", times, {"PyTorch, BF16"})
    print(f"  BF16 over FP32: {times['Tessera, FP32'] / times['Tessera, BF16']:.2f} ×")
    for name, each in {"BF16": ours, "FP32": ours32}.items():
        print(f"  {name}: {breakdown(each, x)} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["dense", "sparse", "bert"])
    parser.add_argument("--size", nargs="*", default=["768x768", "3072x768", "768x3072", "1024x1024", "4096x4096"])
    parser.add_argument("--batch", type=int, nargs="*", default=[128, 512, 1024])
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--block", type=int, nargs="*", default=[16, 32])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tessera.set_num_threads(options.threads)
    sizes = [tuple(int(of) for of in size.split("x")) for size in options.size]
    with torch.no_grad():
        for m, k in sizes:
            for n in options.batch:
                if options.only in (None, "dense"):
                    compare_layer(m, k, n, options.rounds)
                for block in options.block if options.only in (None, "sparse") else []:
                    compare_sparse(m, k, n, block, options.density, options.rounds)
        if options.only in (None, "bert"):
            for batch in (1, 8):
                compare_bert(batch, options.rounds)


if __name__ == "__main__":
    main()
