"""Encoders of PyTorch compiled by backend="tessera" beside eager mode, in inference and in training.

    python bench/python/torch_compile.py               # FP32, one thread: three sizes of nn.TransformerEncoder
    python bench/python/torch_compile.py --threads 2 --rounds 30

Calls take turns. Prints the least processor time in milliseconds. A training step is the forward and the backward pass
of the mean of all outputs.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import tessera

#: Width, batch, tokens and layers.
SIZES = ((256, 4, 64, 2), (512, 8, 64, 2), (768, 2, 128, 1))


def encoder(width: int, layers: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def least(jobs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    times = dict.fromkeys(jobs, math.inf)
    for turn in range(rounds + 2):  # the first two calls compile and prepare
        for name, job in jobs.items():
            begin = time.process_time()
            job()
            if turn > 1:
                times[name] = min(times[name], 1e3 * (time.process_time() - begin))
    return times


def inferred(model: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], object]:
    def run() -> None:
        with torch.inference_mode():
            model(x)

    return run


def trained(model: Callable[[Tensor], Tensor], module: nn.Module, x: Tensor) -> Callable[[], object]:
    def run() -> None:
        module.zero_grad()
        model(x).mean().backward()

    return run


def compare(width: int, batch: int, tokens: int, layers: int, rounds: int) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    x = torch.randn(batch, tokens, width)
    module = encoder(width, layers)
    session = torch.compile(encoder(width, layers).eval(), backend="tessera")
    training = torch.compile(module, backend="tessera", options={"training": True})
    jobs = {
        "eager inference": inferred(encoder(width, layers).eval(), x),
        "session": inferred(session, x),
        "eager training step": trained(module, module, x),
        "training=True": trained(training, module, x),
    }
    found = "; ".join(f"{name} {milliseconds:.1f}" for name, milliseconds in least(jobs, rounds).items())
    print(f"{width}, {batch} × {tokens}, {layers}: {found}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=12)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    tessera.set_num_threads(a.threads)
    print(f"PyTorch {torch.__version__}, {a.threads} threads; width, batch × tokens, layers: milliseconds")
    for size in SIZES:
        compare(*size, rounds=a.rounds)


if __name__ == "__main__":
    main()
