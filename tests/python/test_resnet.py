"""Residual networks beside torchvision's: parameters, outputs, and steps of training."""

import copy

import numpy as np
import pytest

import tessera
from tessera import graph as tg

COUNTS = {18: 11_689_512, 50: 25_557_032, 20: 269_722}


@pytest.mark.parametrize("depth", COUNTS)
def test_numbers_of_parameters(depth):
    net = tg.resnet(depth, samples=1, size=64)
    sizes = {each.name: int(np.prod(each.shape)) for each in net.graph.parameters}
    assert sum(size for name, size in sizes.items() if "running" not in name) == COUNTS[depth]
    assert net.images.shape == (1, 64, 64, 3)


def test_other_depths_and_sizes_are_refused():
    with pytest.raises(ValueError, match="unknown depth 21 of a ResNet"):
        tg.resnet(21, samples=1)
    with pytest.raises(ValueError, match="not a weight of a convolution"):
        tg.resnet(8, samples=1, patterns={"fc.weight": np.ones((10, 64))})


def test_pixels_are_normalised_in_the_graph(rng):
    pixels = rng.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    mean, deviation = (120.0, 115.0, 110.0), (60.0, 59.0, 58.0)
    of_pixels = tg.resnet(8, samples=2, pixels=(mean, deviation))
    of_numbers = tg.resnet(8, samples=2)
    session, other = of_pixels.graph.session(), of_numbers.graph.session()
    other.copy_from(session)
    numbers = ((pixels - np.array(mean)) / np.array(deviation)).astype(np.float32)
    np.testing.assert_allclose(session.run(pixels), other.run(numbers), rtol=1e-3, atol=1e-4)


def test_a_config_stays_as_it_is():
    config = tg.ResnetConfig.of_depth(8)
    assert tg.resnet(config, samples=1, classes=7, shortcut="projection").logits.shape == (1, 7)
    assert (config.classes, config.shortcut) == (10, "padding")


def test_sparse_convolutions_take_the_values_of_their_pattern(rng):
    kept = np.zeros((16, 144), np.float32)
    kept[:, 16:48] = 1
    name = "layer1.0.conv1.weight"

    def by_tap(state):
        return np.moveaxis(state[name], 1, -1).reshape(16, 144)

    dense = tg.resnet(8, samples=1)
    state = dense.state_dict(dense.graph.session())
    pattern = tessera.Matrix.of(kept, 16)
    net = tg.resnet(8, samples=1, patterns={name: pattern}, dynamic=True)
    session = net.graph.session()
    session.load_parameters(net.parameters_of(state))
    found = net.state_dict(session)
    assert found.keys() == state.keys()
    np.testing.assert_array_equal(by_tap(found), by_tap(state) * kept)
    np.testing.assert_array_equal(found["fc.weight"], state["fc.weight"])
    # Values of a pattern that has changed.
    session.set_pattern(name, [0, 2], [4, 7])
    session.load_parameters(net.parameters_of(state, session))
    moved = np.zeros((16, 144), np.float32)
    moved[:, 64:80] = moved[:, 112:128] = 1
    np.testing.assert_array_equal(by_tap(net.state_dict(session)), by_tap(state) * moved)


def test_replicas_with_common_statistics_are_one_with_all_images(rng):
    """Blocks that are computed again, and two replicas of two images each."""
    images, labels = rng.standard_normal((4, 8, 8, 3)).astype(np.float32), rng.integers(0, 10, 4)
    config = tg.ResnetConfig.of_depth(8)
    config.blocks = [1, 1]
    kept = {}
    for replicas in (1, 2):
        net = tg.resnet(
            config,
            samples=4 // replicas,
            size=8,
            training=True,
            replicas=replicas,
            norm_replicas=replicas,
            recompute=replicas == 2,
        )
        step = net.graph.training_step("cross_entropy", lr=0.05, replicas=replicas)
        session = step.session()
        if kept:
            session.load_parameters(kept["initial"])
        kept.setdefault("initial", {name: session.get(name) for name in net.state_dict(session)})
        loss = session.run(images, labels)
        state = net.state_dict(session)
        if "state" not in kept:
            kept |= {"loss": loss, "state": state}
            continue
        assert loss == pytest.approx(kept["loss"], rel=1e-4)
        for name, array in kept["state"].items():
            np.testing.assert_allclose(state[name], array, rtol=1e-3, atol=1e-4, err_msg=name)


def test_blocks_that_change_are_not_computed_again():
    pattern = tessera.Matrix.of(np.ones((16, 144), np.float32), 16)
    with pytest.raises(ValueError, match="are not functions"):
        tg.resnet(8, samples=1, patterns={"layer1.0.conv1.weight": pattern}, dynamic=True, recompute=True)


def state_of(module):
    return {name: value for name, value in module.state_dict().items() if not name.endswith("num_batches_tracked")}


@pytest.mark.parametrize("depth", [18, *(pytest.param(depth, marks=pytest.mark.full) for depth in (34, 50))])
def test_outputs_are_torchvisions(depth):
    torch = pytest.importorskip("torch")
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(1)
    module = getattr(models, f"resnet{depth}")().eval()
    for each in module.modules():
        if isinstance(each, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(each.running_var, 0.5, 1.5)
            torch.nn.init.normal_(each.running_mean, std=0.1)
    net = tg.resnet(depth, samples=2, size=64)
    session = net.graph.session()
    session.load_parameters(net.parameters_of(module.state_dict()))
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = module(x).numpy()
    found = session.run(x.permute(0, 2, 3, 1).contiguous())
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    again = copy.deepcopy(module)
    for parameter in again.parameters():
        torch.nn.init.zeros_(parameter)
    again.load_state_dict({name: torch.from_numpy(value) for name, value in net.state_dict(session).items()})
    for name, value in state_of(module).items():
        assert torch.equal(again.state_dict()[name], value), name


def test_a_step_is_torchvisions():
    torch = pytest.importorskip("torch")
    resnet = pytest.importorskip("torchvision.models.resnet")
    torch.manual_seed(2)
    module = resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1], num_classes=10)
    config = tg.ResnetConfig()
    config.blocks, config.is_bottleneck = [1, 1, 1, 1], False
    net = tg.resnet(config, samples=4, size=64, classes=10, training=True)
    session = net.graph.training_step("cross_entropy", lr=0.05).session()
    session.load_parameters(net.parameters_of(module.state_dict()))
    x, labels = torch.randn(4, 3, 64, 64), torch.randint(10, (4,))
    loss = torch.nn.functional.cross_entropy(module(x), labels)
    loss.backward()
    torch.optim.SGD(module.parameters(), 0.05).step()
    assert session.run(x.permute(0, 2, 3, 1).contiguous(), labels) == pytest.approx(loss.item(), rel=1e-4)
    for name, found in net.state_dict(session).items():
        expected = module.state_dict()[name].numpy()
        np.testing.assert_allclose(found, expected, rtol=2e-2, atol=2e-3 * np.abs(expected).max(), err_msg=name)


def test_blocks_that_are_calls_may_be_computed_again():
    net = tg.resnet(8, samples=4, size=12, classes=4, training=True, block_calls=True)
    step = net.graph.training_step("cross_entropy", "sgd", recompute="fit")
    estimate = step.estimate(tessera.Machine("host", threads=1))
    assert estimate.fits and estimate.passes[0][0] == "recompute"
