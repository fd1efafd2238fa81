"""Networks of torchvision and a U-Net, dense and pruned, beside PyTorch; and training steps of small ones."""

import copy
import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")
models = pytest.importorskip("torchvision.models")

from beside_torch import expect_results, trains_like_pytorch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from vision_networks import NETWORKS, calibrated, network, of_networks, prune  # noqa: E402

import tessera  # noqa: E402
from tessera import graph as tg  # noqa: E402
from tessera.graph._estimate import Estimate  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def expect_equal(compiled, module, x):
    expect_results(compiled(x), module, x)


def test_channels_are_shuffled():
    torch.manual_seed(3)
    module = calibrated(models.ShuffleNetV2([2, 1, 1], [8, 16, 32, 64, 64], num_classes=10), 64)
    x = torch.randn(2, 3, 64, 64)
    expect_equal(tessera.compile(module, x), module, x)


@pytest.mark.parametrize("name", of_networks([]))
def test_dense(name):
    module, x = network(name, 64), torch.randn(2, 3, 64, 64)
    expect_equal(tessera.compile(module, x), module, x)


QUICKLY_PRUNED = [("mobilenet_v3", 1, 0.1), ("unet", 16, 0.1)]


@pytest.mark.parametrize(
    ("name", "block_size", "density"),
    [
        each if each in QUICKLY_PRUNED else pytest.param(*each, marks=pytest.mark.full)
        for each in itertools.product(NETWORKS, (1, 4, 16), (0.5, 0.2, 0.1, 0.05))
    ],
)
def test_pruned(name, block_size, density):
    module = calibrated(prune(network(name, 64), density, block_size), 64)
    x = torch.randn(2, 3, 64, 64)
    compiled = tessera.compile(module, x)
    expect_equal(compiled, module, x)


@pytest.mark.full
@pytest.mark.parametrize("name", NETWORKS)
def test_images_of_usual_size(name):
    module, x = network(name, 224), torch.randn(1, 3, 224, 224)
    expect_equal(tessera.compile(module, x), module, x)


def test_a_resnet_keeps_one_permutation():
    shallow = models.resnet.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10)
    module, x = calibrated(shallow, 64), torch.randn(1, 3, 64, 64)
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


class Tied(nn.Module):
    """Patches, and the image made of them by the same kernel."""

    def __init__(self, outputs):
        super().__init__()
        self.conv = nn.Conv2d(3, outputs, 2, stride=2)

    def forward(self, x):
        return F.conv_transpose2d(torch.tanh(self.conv(x)), self.conv.weight, stride=2)


@pytest.mark.parametrize("outputs", [8, 12])
def test_convolutions_train_a_weight_that_transposed_ones_share(outputs):
    torch.manual_seed(6)
    x = torch.randn(2, 3, 8, 6)
    trains_like_pytorch(Tied(outputs), x, torch.randn(2, 3, 8, 6), "mse", lr=0.05)


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


def network_with(norm):
    torch.manual_seed(8)
    return nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), norm, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5))


@pytest.mark.parametrize("options", [{}, {"norm_replicas": 2}])
def test_replicas_may_share_statistics(options):
    joint, x, labels = network_with(nn.BatchNorm2d(8)), torch.randn(10, 3, 6, 6) + 1, torch.randint(5, (10,))
    module = network_with(nn.SyncBatchNorm(8))
    session = tg.from_torch(module, x[:5], **options).training_step("cross_entropy", lr=0.1, replicas=2).session()
    optimizer = torch.optim.SGD(joint.parameters(), 0.1)
    for _ in range(2):
        session.run(x, labels)
        optimizer.zero_grad()
        F.cross_entropy(joint(x), labels).backward()
        optimizer.step()
    session.copy_to(module)
    for name, expected in joint.state_dict().items():
        if name != "1.num_batches_tracked":
            np.testing.assert_allclose(module.state_dict()[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


def test_replicas_average_running_statistics_of_their_own():
    module, x, labels = network_with(nn.BatchNorm2d(8)), torch.randn(10, 3, 6, 6), torch.randint(5, (10,))
    x[5:] = 2 * x[5:] + 1
    session = tg.from_torch(module, x[:5]).training_step("cross_entropy", replicas=2).session()
    session.run(x, labels)
    replicas = [copy.deepcopy(module) for _ in range(2)]
    for replica, rows in zip(replicas, x.split(5), strict=True):
        replica(rows)
    for name in ("running_mean", "running_var"):
        mean = sum(getattr(replica[1], name) for replica in replicas) / 2
        np.testing.assert_allclose(session.get(f"1.{name}"), mean, rtol=1e-4, atol=1e-6)


def test_norms_in_evaluation_mode_share_no_statistics():
    x, labels = torch.randn(10, 3, 6, 6), torch.randint(5, (10,))
    x[5:] = 2 * x[5:] + 1
    trained = []
    for norm in (nn.SyncBatchNorm, nn.BatchNorm2d):
        module = network_with(norm(8, track_running_stats=False).eval())
        session = tg.from_torch(module, x[:5]).training_step("cross_entropy", lr=0.1, replicas=2).session()
        session.run(x, labels)
        trained.append(session.get("0.weight"))
    np.testing.assert_array_equal(*trained)


def test_norms_of_process_groups_say_how_many_replicas_they_take():
    norm = nn.SyncBatchNorm(8, process_group=object())
    x = torch.randn(5, 3, 6, 6)
    with pytest.raises(ValueError, match="1 has a process_group: say over how many replicas"):
        tg.from_torch(network_with(norm), x)
    with pytest.raises(ValueError, match="norm_replicas"):
        tg.from_torch(network_with(nn.SyncBatchNorm(8)), x, norm_replicas=0)
    assert tg.from_torch(network_with(norm), x, norm_replicas=2) is not None
    assert type(norm) is nn.SyncBatchNorm
