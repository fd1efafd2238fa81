"""An encoder compiled for inference and training, and what stays with PyTorch.

python examples/compiled_encoder.py --layers 6 --width 512
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable

import torch
from torch import nn


def milliseconds(call: Callable[[], object], rounds: int) -> float:
    """The least of some calls, after one that compiles."""
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=2, help="number of layers")
    parser.add_argument("--width", type=int, default=256, help="hidden size")
    parser.add_argument("--batch", type=int, default=4, help="sequences per call")
    parser.add_argument("--length", type=int, default=64, help="tokens per sequence")
    parser.add_argument("--rounds", type=int, default=5, help="calls of which the fastest counts")
    a = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("tessera").setLevel(logging.INFO)
    torch.manual_seed(1)

    layer = nn.TransformerEncoderLayer(a.width, a.width // 32, 4 * a.width, dropout=0, batch_first=True)
    model = nn.Sequential(nn.Embedding(1000, a.width), nn.TransformerEncoder(layer, a.layers), nn.Linear(a.width, 10))
    ids = torch.randint(0, 1000, (a.batch, a.length))
    compiled = torch.compile(model, backend="tessera")

    @torch.no_grad()
    def infer(call: nn.Module) -> torch.Tensor:
        result: torch.Tensor = call(ids)
        return result

    def train(call: nn.Module) -> torch.Tensor:
        model.zero_grad()
        loss: torch.Tensor = nn.functional.cross_entropy(call(ids).mean(1), torch.zeros(a.batch, dtype=torch.long))
        loss.backward()
        return loss.detach()

    for name, work in (("inference", infer), ("training", train)):
        times = [milliseconds(lambda call=call, work=work: work(call), a.rounds) for call in (model, compiled)]
        print(f"{name}: {times[0]:.2f} ms eager, {times[1]:.2f} ms compiled; speed-up {times[0] / times[1]:.2f}")
        print(f"  largest difference {(work(compiled) - work(model)).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
