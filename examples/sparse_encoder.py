"""Prunes the linear layers of a Transformer encoder, and times it before and after, in PyTorch and compiled.

python examples/sparse_encoder.py --layers 12 --density 0.1 --block-size 16
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import tessera
import torch
from torch import Tensor, nn


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each normalised first."""

    def __init__(self, width: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm_1(x)
        query, key, value = (
            layer(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        attended = nn.functional.scaled_dot_product_attention(query, key, value)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm_2(x))))


@torch.inference_mode()
def milliseconds(model: Callable[[Tensor], object], x: Tensor, rounds: int = 5) -> float:
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        model(x)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12, help="number of layers")
    parser.add_argument("--width", type=int, default=768, help="hidden size")
    parser.add_argument("--hidden", type=int, default=3072, help="features of the feed-forward layers")
    parser.add_argument("--heads", type=int, default=12, help="attention heads")
    parser.add_argument("--batch", type=int, default=8, help="sequences per call")
    parser.add_argument("--length", type=int, default=128, help="tokens per sequence")
    parser.add_argument("--density", type=float, default=0.1, help="density of the sparse layers")
    parser.add_argument("--block-size", type=int, default=16, help="block size of the sparse layers")
    a = parser.parse_args()
    torch.manual_seed(1)
    model = nn.Sequential(*(EncoderLayer(a.width, a.hidden, a.heads) for _ in range(a.layers))).eval()
    x = torch.randn(a.batch, a.length, a.width)

    dense = milliseconds(model, x)
    report = tessera.sparsify_(model, a.density, a.block_size, rows=a.batch * a.length)
    sparse = milliseconds(model, x)
    print(report)
    compiled = milliseconds(tessera.compile(model, x), x)
    print(f"dense in PyTorch     {dense:8.1f} ms")
    print(f"sparse in PyTorch    {sparse:8.1f} ms, speed-up {dense / sparse:.2f}")
    print(f"sparse and compiled  {compiled:8.1f} ms, speed-up {dense / compiled:.2f}")


if __name__ == "__main__":
    main()
