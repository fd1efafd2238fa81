"""Exports a pruned convolutional network to ONNX, and runs the file with its zeros, without PyTorch.

    python examples/onnx_network.py              # random weights, 10 % of their blocks kept
    python examples/onnx_network.py --density 0.05 --width 128 --file network.onnx
    build/release/cli/tessera run network.onnx --shape images=8      # the same by the tool
    build/release/examples/example_onnx_model network.onnx 8
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import tessera.onnx
import torch
from torch import nn


def network(width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    sizes = [3, width, 2 * width, 4 * width]
    for inputs, outputs in zip(sizes[:-1], sizes[1:], strict=True):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[-1], 10)).eval()


@torch.no_grad()
def prune(weight: torch.Tensor, density: float, block: int) -> None:
    """Keep the largest blocks of output × input channels."""
    outputs, inputs, *kernel = weight.shape
    if inputs % block:
        return
    blocks = weight.view(outputs // block, block, inputs // block, block, *kernel)
    size = blocks.square().sum((1, 3), keepdim=True)
    blocks *= size > size.flatten().quantile(1 - density)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--density", type=float, default=0.1, help="density of the pruned layers")
    parser.add_argument("--block", type=int, default=4, help="block size")
    parser.add_argument("--width", type=int, default=64, help="channels of the network")
    parser.add_argument("--size", type=int, default=64, help="height and width of the images")
    parser.add_argument("--file", type=Path, help="file in which to keep the model")
    options = parser.parse_args()
    torch.manual_seed(0)
    module = network(options.width)
    for layer in module:
        if isinstance(layer, nn.Conv2d):
            prune(layer.weight, options.density, options.block)
    with tempfile.TemporaryDirectory() as folder:
        file = options.file or Path(folder) / "network.onnx"
        x = torch.randn(8, 3, options.size, options.size)
        torch.onnx.export(
            module, (x,), file, input_names=["x"], output_names=["y"], dynamo=False, dynamic_axes={"x": {0: "images"}}
        )
        session = tessera.onnx.load(file)
    for images in (1, 8):
        (y,) = session.run(None, {"x": x[:images].numpy()})
        with torch.no_grad():
            expected = module(x[:images]).numpy()
        print(f"{images} images: difference to PyTorch {np.abs(y - expected).max() / np.abs(expected).max():.1e}")
    print(session)
    print(session.measure({"x": x.numpy()}))


if __name__ == "__main__":
    main()
