"""Convolutional networks of torchvision, dense and pruned, beside PyTorch, ONNX Runtime and OpenVINO, in one run.

    python bench/python/images.py                           # ResNet-50 of random weights at 224 × 224, batches 1 and 8
    python bench/python/images.py --model mobilenet_v2 --density 0.1 0.2 --block 1 4
    python bench/python/images.py --density 0.5 0.2 0.1 0.05     # one after the other, and then as a table
    python bench/python/images.py --onnx                    # also through ONNX files
    python bench/python/images.py --layers                  # each of its convolutions alone
    python bench/python/images.py --breakdown               # also the time of each operation

Batch norms are folded into convolutions for all candidates. All convolutions but the first and depthwise ones are
pruned by magnitude, in blocks of output × input channels. All candidates compute the same in FP32, and take turns.
Prints the least time of each in milliseconds, with the speed-up over the fastest alternative. PyTorch runs eager and
compiled, with channels first and last.
"""

from __future__ import annotations

import argparse
import copy
import io
import math
import operator

import numpy as np
import torch
import torchvision
from models import Grid, Job, alternatives, kept, least, report
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import tessera
import tessera.onnx
from tessera import graph as tg


def folded(name: str) -> fx.GraphModule:
    """A network with its batch norms in the convolutions before them, as a list of modules and functions."""
    model = torchvision.models.get_model(name, weights=None).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    traced = fx.symbolic_trace(model)
    for node in list(traced.graph.nodes):
        if node.op != "call_module" or not isinstance(norm := traced.get_submodule(node.target), nn.BatchNorm2d):
            continue
        before = node.args[0]
        layer = fuse_conv_bn_eval(traced.get_submodule(before.target), norm)
        traced.set_submodule(before.target, layer)
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
    traced.recompile()
    return traced


def channels_last(layer: nn.Conv2d) -> Tensor:
    """[outputs, taps · channels]"""
    return layer.weight.detach().movedim(1, -1).flatten(1).contiguous()


def is_pruned(layer: nn.Conv2d, block: int) -> bool:
    outputs, channels = layer.out_channels // layer.groups, layer.weight.shape[1]
    if layer.groups > 1:
        return channels > 1 and outputs % block == 0 and channels % block == 0
    return channels > 3


def prune(model: nn.Module, density: float, block: int) -> None:
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d) and is_pruned(layer, block):
            weight = kept(channels_last(layer), density, block)
            shape = (layer.out_channels, *layer.kernel_size, layer.weight.shape[1])
            layer.weight.data = weight.view(shape).movedim(-1, 1).contiguous()


class Builder:
    """A network as a graph."""

    def __init__(self, model: fx.GraphModule, x: Tensor, density: float, block: int) -> None:
        self.model, self.density, self.block = model, density, block
        self.graph = tg.Graph()
        self.values: dict[str, tg.Value] = {}
        images = self.graph.input("x", (x.shape[0], x.shape[2], x.shape[3], x.shape[1]))
        for node in model.graph.nodes:
            if node.op == "placeholder":
                self.values[node.name] = images
            elif node.op == "output":
                self.graph.output("y", self.of(node.args[0]))
            else:
                self.values[node.name] = self.result(node)

    def of(self, node: fx.Node) -> tg.Value:
        return self.values[node.name]

    def result(self, node: fx.Node) -> tg.Value:
        x = self.of(node.args[0])
        if node.op == "call_module":
            return self.module(node.name, self.model.get_submodule(node.target), x)
        if node.target in (operator.add, torch.add):
            return x + self.of(node.args[1])
        if node.target in (torch.flatten, nn.functional.adaptive_avg_pool2d):
            if len(x.shape) == 2:
                return x
            return tg.reshape(tg.adaptive_average_pool(x, 1), (x.shape[0], x.shape[-1]))
        raise NotImplementedError(str(node.target))

    def module(self, name: str, module: nn.Module, x: tg.Value) -> tg.Value:
        match module:
            case nn.Conv2d():
                return self.convolution(name, module, x)
            case nn.Linear():
                weight = self.parameter(name + ".w", module.weight)
                return tg.linear(x, weight, self.parameter(name + ".b", module.bias))
            case nn.ReLU():
                return tg.relu(x)
            case nn.ReLU6():
                return tg.clip(x, 0.0, 6.0)
            case nn.MaxPool2d():
                return tg.max_pool(x, module.kernel_size, stride=module.stride, padding=module.padding)
            case nn.AdaptiveAvgPool2d():
                return tg.adaptive_average_pool(x, 1)
        if isinstance(module, (nn.Dropout, nn.Identity)):
            return x
        raise NotImplementedError(type(module).__name__)

    def parameter(self, name: str, values: Tensor) -> tg.Value:
        return self.graph.parameter(name, initial=values.detach().numpy())

    def convolution(self, name: str, layer: nn.Conv2d, x: tg.Value) -> tg.Value:
        weight = channels_last(layer).numpy()
        if is_pruned(layer, self.block) and self.density < 1:
            matrix = tessera.Matrix.of(weight, self.block)
            if layer.groups > 1:
                matrix = tg.ungrouped_weight(matrix, groups=layer.groups, taps=math.prod(layer.kernel_size))
            w = self.graph.sparse_parameter(name + ".w", matrix)
        else:
            w = self.graph.parameter(name + ".w", initial=weight)
        return tg.convolution(
            x,
            w,
            self.parameter(name + ".b", layer.bias),
            kernel=layer.kernel_size,
            stride=layer.stride,
            padding=layer.padding,
            dilation=layer.dilation,
            groups=layer.groups,
        )


def jobs_of(model: fx.GraphModule, x: Tensor, densities: list[float], blocks: list[int]) -> dict[str, tg.Session]:
    """Sessions of the network, dense and pruned, each checked against PyTorch."""
    sessions = {}
    for density, block in [(1.0, 1), *((density, block) for density in densities for block in blocks)]:
        own = copy.deepcopy(model)
        prune(own, density, block)
        session = Builder(own, x, density, block).graph.session()
        name = "dense" if density == 1 else f"density {density:g}, b = {block}"
        check(name, session.run(x.movedim(1, -1).contiguous().numpy()), own(x).numpy())
        sessions[f"Tessera, {name}"] = session
    return sessions


def check(name: str, found: np.ndarray, wanted: np.ndarray) -> None:
    error = float(np.abs(found.reshape(wanted.shape) - wanted).max() / np.abs(wanted).max())
    assert error < 1e-3, f"{name} differs from PyTorch by {error}"


def runs_of(sessions: dict[str, tg.Session], x: np.ndarray) -> dict[str, Job]:
    return {key: lambda s=session: s.run(x) for key, session in sessions.items()}  # type: ignore[misc]


def onnx_jobs_of(model: nn.Module, x: Tensor, densities: list[float], blocks: list[int]) -> dict[str, Job]:
    """The same networks through ONNX, where sessions choose which layers are sparse."""
    jobs: dict[str, Job] = {}
    for density, block in [(1.0, 1), *((density, block) for density in densities for block in blocks)]:
        own, file = copy.deepcopy(model), io.BytesIO()
        prune(own, density, block)
        torch.onnx.export(own, (x,), file, input_names=["x"], dynamo=False)
        session = tessera.onnx.load(file.getvalue())
        name = "dense" if density == 1 else f"density {density:g}, b = {block}"
        check(name, session.run(None, {"x": x.numpy()})[0], own(x).numpy())
        jobs[f"Tessera by ONNX, {name}"] = lambda s=session: s.run(None, {"x": x.numpy()})  # type: ignore[misc]
    return jobs


def with_channels_last(model: nn.Module, x: Tensor) -> dict[str, Job]:
    """PyTorch with the layout of images that it recommends for CPUs."""
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    images = x.to(memory_format=torch.channels_last)
    compiled = torch.compile(last)
    return {
        "PyTorch, channels last": lambda: last(images),
        "PyTorch, ch. last, compiled": lambda: compiled(images),
    }


def compare(name: str, batch: int, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    model, x = folded(name), torch.randn(batch, 3, 224, 224)
    rivals = {} if options.alone else {**alternatives(model, x), **with_channels_last(model, x)}
    grid, last = Grid(options.block), x.movedim(1, -1).contiguous().numpy()
    for density in options.density:
        sessions = jobs_of(model, x, [density], options.block)
        own = runs_of(sessions, last)
        if options.onnx:
            own |= onnx_jobs_of(model, x, [density], options.block)
        times = least({**rivals, **own}, options.rounds)
        report(f"{name}, {batch} × 224 × 224", times, set(rivals))
        for who in ("Tessera", *(["Tessera by ONNX"] if options.onnx else [])):
            grid.add(who, density, times, set(rivals))
        if options.breakdown:
            print_operations(sessions, last)
    grid.print()


def print_operations(sessions: dict[str, tg.Session], x: np.ndarray) -> None:
    for name, session in sessions.items():
        print(f"  {name}:")
        for operation in session.measure(x).operations:
            print(f"    {operation.operation:<16}{operation.value:<24}{1e3 * operation.seconds:9.3f} ms")


class Alone(nn.Module):
    """A convolution and its activation."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.layer, self.relu = layer, nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.relu(self.layer(x))
        return y


def layers_of(model: fx.GraphModule, x: Tensor) -> dict[str, tuple[nn.Conv2d, torch.Size]]:
    """One convolution of each kind, with the size of the images that it takes."""
    found: dict[str, tuple[nn.Conv2d, torch.Size]] = {}

    def note(layer: nn.Conv2d, inputs: tuple[Tensor], _: Tensor) -> None:
        size = inputs[0].shape
        kernel = f"{layer.kernel_size[0]}×{layer.kernel_size[1]}/{layer.stride[0]}"
        group = f" in {layer.groups}" if layer.groups > 1 else ""
        found.setdefault(f"{kernel} {layer.in_channels}→{layer.out_channels}{group} at {size[2]}", (layer, size))

    hooks = [m.register_forward_hook(note) for m in model.modules() if isinstance(m, nn.Conv2d)]
    model(x)
    for hook in hooks:
        hook.remove()
    return found


def compare_layers(name: str, batch: int, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    for title, (layer, size) in layers_of(folded(name), torch.randn(batch, 3, 224, 224)).items():
        if options.only and options.only not in title:
            continue
        x = torch.randn(size)
        model = fx.symbolic_trace(Alone(layer))
        rivals = {} if options.alone else alternatives(model, x)
        rivals = {key: job for key, job in rivals.items() if not key.startswith("PyTorch")}
        sessions = jobs_of(model, x, options.density, [block for block in options.block if is_pruned(layer, block)])
        last = x.movedim(1, -1).contiguous().numpy()
        own = runs_of(sessions, last)
        report(f"{title}, batch {batch}", least({**rivals, **own}, options.rounds), set(rivals))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--density", type=float, nargs="*", default=[0.1])
    parser.add_argument("--block", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", action="store_true", help="measure each convolution alone")
    parser.add_argument("--only", help="measure only layers whose names contain this text")
    parser.add_argument("--alone", action="store_true", help="leave out the other libraries")
    parser.add_argument("--onnx", action="store_true", help="also measure the networks in ONNX files")
    parser.add_argument("--breakdown", action="store_true", help="print the time of each operation")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tessera.set_num_threads(options.threads)
    with torch.no_grad():
        for batch in options.batch:
            (compare_layers if options.layers else compare)(options.model, batch, options)


if __name__ == "__main__":
    main()
