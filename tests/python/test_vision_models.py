"""Networks of torchvision and a U-Net, dense and pruned, beside PyTorch; and training steps of small ones."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
models = pytest.importorskip("torchvision.models")

from beside_torch import trains_like_pytorch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tessera  # noqa: E402
from tessera import graph as tg  # noqa: E402
from tessera.graph._estimate import Estimate  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


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
    """With random weights, and running statistics that are those of random images."""
    torch.manual_seed(3)
    module = NETWORKS[name]()
    for each in module.modules():
        if isinstance(each, nn.BatchNorm2d):
            nn.init.uniform_(each.weight, 0.5, 1.5)
            nn.init.uniform_(each.bias, -0.5, 0.5)
            each.momentum = None
    with torch.no_grad():
        for each in module.modules():
            if isinstance(each, nn.Dropout):
                each.eval()
        module.train()
        module(torch.randn(4, 3, size, size))
    return module.eval()


def matrix_of(weight):
    return weight.movedim(1, -1).flatten(1) if weight.dim() > 2 else weight


@torch.no_grad()
def prune(module, density, block_size):
    """Zero the blocks of least magnitude, over outputs and channels, of each layer that has whole ones."""
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


def expect_equal(compiled, module, x):
    with torch.no_grad():
        expected = module(x)
    found = torch.as_tensor(np.asarray(compiled(x)))
    error = (found - expected).abs().max() / expected.abs().max()
    assert error < 1e-4, f"relative error {error:.2e}"


@pytest.mark.parametrize("name", NETWORKS)
def test_dense(name):
    module, x = network(name, 64), torch.randn(2, 3, 64, 64)
    expect_equal(tessera.compile(module, x), module, x)


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("name", NETWORKS)
def test_pruned(name, block_size):
    module = prune(network(name, 64), 0.1, block_size)
    x = torch.randn(2, 3, 64, 64)
    compiled = tessera.compile(module, x)
    expect_equal(compiled, module, x)


@pytest.mark.full
@pytest.mark.parametrize("name", NETWORKS)
def test_images_of_usual_size(name):
    module, x = network(name, 224), torch.randn(1, 3, 224, 224)
    expect_equal(tessera.compile(module, x), module, x)


def test_a_resnet_keeps_one_permutation():
    module, x = network("resnet50", 64), torch.randn(1, 3, 64, 64)
    compiled = tessera.compile(module, x)
    compiled(x)
    session = compiled._first
    estimate = Estimate(session._native.cost(), session._graph, session.machine, "")
    operations = [each.operation for each in estimate.operations]
    assert operations.count("permute") == 1
    assert "mul" not in operations, "normalisation is part of the convolutions"


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.by_channel = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.grouped = nn.GroupNorm(2, 8)
        self.wide = nn.Conv2d(8, 16, 3, stride=2)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        y = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        y = F.interpolate(F.silu(self.grouped(self.by_channel(y))), scale_factor=2, mode="nearest")
        y = F.adaptive_avg_pool2d(F.avg_pool2d(F.relu(self.wide(y)), 2, ceil_mode=True), 1)
        return self.head(y.flatten(1))


def test_a_small_network_trains_like_pytorch():
    torch.manual_seed(4)
    module, x = Small(), torch.randn(6, 3, 12, 12)
    trains_like_pytorch(module, x, torch.randint(5, (6,)), lr=0.05, steps=3)


def test_running_statistics_follow_those_of_batches():
    torch.manual_seed(5)
    module = Small()
    step = tg.from_torch(module, torch.randn(6, 3, 12, 12)).training_step("cross_entropy", lr=0.1)
    session, trained = step.session(), copy.deepcopy(module)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(2):
        x, labels = torch.randn(6, 3, 12, 12), torch.randint(5, (6,))
        session.run(x, labels)
        optimizer.zero_grad()
        F.cross_entropy(module(x), labels).backward()
        optimizer.step()
    session.copy_to(trained)
    for name in ("running_mean", "running_var"):
        np.testing.assert_allclose(getattr(trained.norm, name), getattr(module.norm, name), rtol=1e-4, atol=1e-6)
    restored = step.session()
    restored.copy_from(module)
    np.testing.assert_allclose(restored.get("stem.weight"), session.get("stem.weight"), rtol=1e-3, atol=1e-5)
