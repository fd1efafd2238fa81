"""Modules and functions of PyTorch's nn, as graphs, directly or through PyTorch's decompositions."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from beside_torch import Function, compare, compare_each, in_groups, trains_like_pytorch  # noqa: E402
from test_backend import MODULES  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from tessera import graph as tg  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

FOUR = torch.linspace(0.1, 0.9, 4)
X, Y, IMAGE = (4, 6), (4, 6), (2, 4, 5, 3)
FUNCTIONS = {
    "activations": (
        lambda x: F.glu(x).sum() + F.softsign(x) + F.tanhshrink(x) + F.rrelu(x) + F.threshold(x, 0.1, 2),
        X,
    ),
    "shrinkage": (
        lambda x: F.hardshrink(x) + F.softshrink(x) + F.softmin(x, 1) + F.prelu(x, torch.linspace(0.1, 0.9, 6)),
        X,
    ),
    "prelu": (lambda x: F.prelu(x, torch.tensor([0.1, 0.2, 0.3, 0.4])), IMAGE),
    "group_norm": (lambda x: F.group_norm(x, 2, FOUR, FOUR), IMAGE),
    "instance_norm": (lambda x: F.instance_norm(x), IMAGE),
    "batch_norm": (
        lambda x: F.batch_norm(x, FOUR, FOUR + 1, FOUR, FOUR),
        IMAGE,
    ),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), IMAGE),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (2, 3, 4, 6)),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), IMAGE),
    "upsample nearest": (lambda x: F.interpolate(x, scale_factor=2), IMAGE),
    "upsample bilinear": (lambda x: F.interpolate(x, size=(7, 8), mode="bilinear"), IMAGE),
    "upsample exactly": (lambda x: F.interpolate(x, size=(3, 7), mode="nearest-exact"), IMAGE),
    "upsample corners": (lambda x: F.interpolate(x, size=(7, 8), mode="bilinear", align_corners=True), IMAGE),
    "upsample by factors": (lambda x: F.interpolate(x, scale_factor=(1.7, 2.3), mode="bilinear"), IMAGE),
    "upsample bicubic": (lambda x: F.interpolate(x, size=(4, 8), mode="bicubic"), IMAGE),
    "upsample sequences": (
        lambda x: F.interpolate(x, size=9, mode="linear") + F.interpolate(x, size=9),
        (2, 4, 5),
    ),
    "max_pool": (lambda x: F.max_pool2d(x, (3, 2), stride=(2, 1), padding=1, ceil_mode=True), IMAGE),
    "max_pool widely": (lambda x: F.max_pool2d(x, 2, dilation=(3, 1), stride=1), IMAGE),
    "max_pool sequences": (lambda x: F.max_pool1d(x, 3, stride=2, padding=1) + F.adaptive_max_pool1d(x, 3), (2, 4, 5)),
    "max_pool of one": (lambda x: F.max_pool2d(x, 2), (4, 5, 6)),
    "avg_pool": (lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True, count_include_pad=False), IMAGE),
    "avg_pool divided": (lambda x: F.avg_pool2d(x, (2, 3), padding=(1, 0), divisor_override=5), IMAGE),
    "avg_pool sequences": (lambda x: F.avg_pool1d(x, 2, padding=1) + F.adaptive_avg_pool1d(x, 3), (2, 4, 5)),
    "adaptive pools": (lambda x: F.adaptive_avg_pool2d(x, (4, 2)) + F.adaptive_max_pool2d(x, (4, 2)), IMAGE),
    "global pool": (lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1) + x.mean((2, 3)) + x.mean((-1, -2)), IMAGE),
    "reflect": (lambda x: F.pad(x, (2, 1, 0, 3), mode="reflect"), IMAGE),
    "replicate": (lambda x: F.pad(x, (2, 4, 0, 3), mode="replicate"), IMAGE),
    "circular": (lambda x: F.pad(x, (2, 1, 3, 0), mode="circular"), IMAGE),
    "unfold": (lambda x: F.unfold(x, (2, 3)), IMAGE),
    "unfold widely": (lambda x: F.unfold(x, (2, 3), dilation=(2, 1), padding=(1, 2), stride=2), IMAGE),
    "fold": (lambda x: F.fold(x, (4, 5), (2, 2)), (2, 12, 12)),
    "fold widely": (lambda x: F.fold(x, (6, 8), (2, 3), padding=1, stride=(2, 3)), (2, 12, 12)),
    "fold one": (lambda x: F.fold(F.unfold(x, 2, dilation=2), (5, 4), 2, dilation=2), (3, 5, 4)),
    "crop": (lambda x: F.pad(x, (-1, 2, 1, -3), value=2), IMAGE),
    "norms": (lambda x: sum(x.norm(p, dim=1) for p in (1, 2, 3, torch.inf)) + F.normalize(x)[:, 0], X),
    "prod": (lambda x: x.prod(1) + x.prod() + x.count_nonzero(1) + torch.std_mean(x, 1)[0], X),
    "distances": (lambda x, y: torch.cdist(x, y) + F.pairwise_distance(x, y) + F.cosine_similarity(x, y), X, Y),
    "bilinear": (
        lambda x, y: F.bilinear(x, y, torch.linspace(-1, 1, 108).reshape(3, 6, 6), torch.linspace(0.1, 0.9, 3)),
        X,
        Y,
    ),
    "arithmetic": (
        lambda x, y: torch.addcmul(x, x, y, value=0.5) + torch.lerp(x, y, 0.3) + torch.logaddexp(x, y),
        X,
        Y,
    ),
    "kl_div": (lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), X, Y),
    "huber": (lambda x, y: F.huber_loss(x, y) + F.smooth_l1_loss(x, y) + F.soft_margin_loss(x, y.sign()), X, Y),
    "poisson": (lambda x, y: F.poisson_nll_loss(x, y.abs()) + F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), X, Y),
    "margins": (lambda x, y: F.margin_ranking_loss(x, y, y.sign()) + F.hinge_embedding_loss(x, y.sign()), X, Y),
    "triplets": (
        lambda x, y: F.triplet_margin_loss(x, y, x + y) + F.multilabel_soft_margin_loss(x, (y > 0).float()),
        X,
        Y,
    ),
    "cosine_embedding": (lambda x, y: F.cosine_embedding_loss(x, y, torch.tensor([1, -1, 1, -1])), X, Y),
}


@pytest.mark.parametrize(("first", "of"), in_groups(len(FUNCTIONS)))
def test_functions(first, of):
    torch.manual_seed(6)
    several = list(FUNCTIONS.values())[first : first + of]
    inputs = [torch.randn(shape) for _, *shapes in several for shape in shapes]
    places = itertools.accumulate((len(shapes) for _, *shapes in several), initial=0)
    own = [
        lambda *given, function=function, begin=begin, count=len(shapes): function(*given[begin : begin + count])
        for (function, *shapes), begin in zip(several, places, strict=False)
    ]
    compare_each(own, tuple(inputs))


#: The modules that graphs lack, and why.
LACKING = {
    "linear without rows": r"has shape \[0, 16\]: give one that has elements",
    "conv3d": "over 3 dimensions are not possible",
    "local response norm": "avg_pool3d",  # of images
    "ctc": "ctc_loss",
}


@pytest.mark.parametrize("name", MODULES)
def test_small_modules(name):
    torch.manual_seed(0)
    make, inputs = MODULES[name]
    module, given = make(), inputs()
    if name in LACKING:
        with pytest.raises(ValueError, match=LACKING[name]):
            tg.from_torch(module, given)
        return
    found = tg.from_torch(module, given).session().run(*given)
    with torch.no_grad():
        expected = tree_leaves(module(*given))
    for result, of_torch in zip(found.values() if isinstance(found, dict) else [found], expected, strict=True):
        np.testing.assert_allclose(result, of_torch.numpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.every_nth(4)
@pytest.mark.parametrize("name", [name for name in MODULES if name not in LACKING])
def test_small_modules_train(name):
    torch.manual_seed(0)
    make, inputs = MODULES[name]
    module, given = make(), inputs()
    if any(parameter.requires_grad for parameter in module.parameters()):
        target = torch.full((1,), 0.5)
        trains_like_pytorch(module, given, target, _mean_squares, steps=2)


def _mean_squares(results, target):
    return sum(((each - target) ** 2).mean() for each in tree_leaves(results))


OFFSETS = torch.tensor([0, 3, 3, 9])


@pytest.mark.every_nth(5)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("offsets", ["none", "constant", "given", "last"])
def test_bags_of_embeddings(mode, padding, offsets):
    torch.manual_seed(9)
    bags = nn.EmbeddingBag(8, 5, mode=mode, padding_idx=padding, include_last_offset=offsets == "last")
    ids = torch.randint(8, (3, 4) if offsets == "none" else (9,))
    ids.view(-1)[:2] = 2
    inputs = (ids, OFFSETS) if offsets in ("given", "last") else (ids,)
    module = Function(lambda ids: bags(ids, OFFSETS)) if offsets == "constant" else bags
    compare(module, *inputs)


def test_bags_and_windows_train_as_in_pytorch():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.bags, self.most = nn.EmbeddingBag(8, 12), nn.EmbeddingBag(8, 12, mode="max")
            self.sums = nn.EmbeddingBag(8, 12, mode="sum")
            self.head = nn.Linear(12, 5)

        def forward(self, ids, factors):
            y = self.bags(ids) + self.most(ids) + self.sums(ids, per_sample_weights=factors)
            windows = F.unfold(y.reshape(2, 2, 3, 12), 2, stride=(1, 2)) * torch.linspace(0, 1, 12)
            return self.head(y + F.fold(windows, (3, 12), 2, stride=(1, 2)).reshape(12, 12))

    torch.manual_seed(10)
    inputs = torch.randint(8, (12, 3)), torch.rand(12, 3)
    trains_like_pytorch(Model(), inputs, torch.randint(5, (12,)))


@pytest.mark.parametrize("layer", [nn.LSTM(6, 5, batch_first=True), nn.GRU(6, 5), nn.RNN(6, 5)], ids=str)
def test_recurrent_layers(layer):
    torch.manual_seed(8)
    x = torch.randn(3, 4, 6)
    found = tg.from_torch(layer, x).session().run(x)
    y, state = layer(x)
    expected = [y, *(state if isinstance(state, tuple) else [state])]
    for result, of_torch in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(result, of_torch.detach(), rtol=1e-4, atol=1e-5)
    assert type(layer).__module__ == "torch.nn.modules.rnn" and layer._flat_weights[0] is layer.weight_ih_l0


def test_modules_stay_as_they_are():
    norm = nn.InstanceNorm1d(3)
    buffers = norm._buffers
    tg.from_torch(norm, torch.randn(2, 3, 5))
    assert norm._buffers is buffers and "running_mean" in buffers and "running_mean" not in norm.__dict__
