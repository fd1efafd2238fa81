"""Networks of torchvision and a U-Net, with random weights, and pruned ones."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

models = pytest.importorskip("torchvision.models")


class Twice(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__()
        for channels in (inputs, outputs):
            self.append(nn.Conv2d(channels, outputs, 3, padding=1, bias=False))
            self.append(nn.BatchNorm2d(outputs))
            self.append(nn.ReLU())


class UNet(nn.Module):
    """Ronneberger et al. 2015, with two levels, upsampled by a transposed convolution and bilinearly."""

    def __init__(self, width=16):
        super().__init__()
        self.down = nn.ModuleList([Twice(3, width), Twice(width, 2 * width)])
        self.bottom = Twice(2 * width, 4 * width)
        self.rise = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.up = nn.ModuleList([Twice(4 * width, 2 * width), Twice(3 * width, width)])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        first = self.down[0](x)
        second = self.down[1](F.max_pool2d(first, 2))
        y = self.rise(self.bottom(F.max_pool2d(second, 2)))
        y = self.up[0](torch.cat([second, y], 1))
        y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.up[1](torch.cat([first, y], 1)))


NETWORKS = {
    "resnet50": models.resnet50,
    "mobilenet_v2": models.mobilenet_v2,
    "mobilenet_v3": models.mobilenet_v3_small,
    "efficientnet_b0": models.efficientnet_b0,
    "vgg16": models.vgg16,
    "shufflenet_v2": models.shufflenet_v2_x1_0,
    "unet": UNet,
}


def network(name, size):
    """A network with random weights, and running statistics of random images."""
    torch.manual_seed(3)
    module = NETWORKS[name]()
    for each in module.modules():
        if isinstance(each, nn.BatchNorm2d):
            nn.init.uniform_(each.weight, 0.5, 1.5)
            nn.init.uniform_(each.bias, -0.5, 0.5)
            each.momentum = None
    return calibrated(module, size)


@torch.no_grad()
def calibrated(module, size):
    """A module with running statistics of random images; without these, rounding errors of pruned networks grow."""
    module.train()
    for each in module.modules():
        if isinstance(each, nn.Dropout):
            each.eval()
        if isinstance(each, nn.BatchNorm2d):
            each.reset_running_stats()
    module(torch.randn(4, 3, size, size))
    return module.eval()


def matrix_of(weight):
    return weight.movedim(1, -1).flatten(1) if weight.dim() > 2 else weight


@torch.no_grad()
def prune(module, density, block_size):
    """Zero the blocks of least magnitude, over outputs and channels, in each layer that has whole blocks."""
    for layer in module.modules():
        if not isinstance(layer, (nn.Conv2d, nn.Linear)) or getattr(layer, "groups", 1) > 1:
            continue
        matrix = matrix_of(layer.weight)
        rows, cols = matrix.shape
        if rows % block_size or layer.weight.shape[1] % block_size or min(rows, cols) < 2 * block_size:
            continue
        blocks = matrix.reshape(rows // block_size, block_size, cols // block_size, block_size)
        size = blocks.square().sum((1, 3))
        kept = size >= size.flatten().kthvalue(int((1 - density) * size.numel()) + 1)[0]
        pruned = (blocks * kept[:, None, :, None]).reshape(rows, cols)
        if layer.weight.dim() > 2:
            outputs, channels, *kernel = layer.weight.shape
            pruned = pruned.reshape(outputs, *kernel, channels).movedim(-1, 1)
        layer.weight.copy_(pruned / density**0.5)
    return module


def of_networks(quick):
    """Cases of all networks; all but the quick ones are marked full."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.full) for name in NETWORKS]
