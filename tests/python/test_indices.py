"""Indices of tensors, constant and computed, beside PyTorch: elements, and errors where there are none."""

import itertools

import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402
from beside_torch import trains_like_pytorch  # noqa: E402
from tessera import graph as tg  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

SHAPE = (3, 4, 5)


class Indexed(nn.Module):
    """A function of a tensor and of indices, which are buffers."""

    def __init__(self, function, *indices):
        super().__init__()
        self.function, self.count = function, len(indices)
        for i, each in enumerate(indices):
            self.register_buffer(f"index{i}", torch.as_tensor(each))

    def forward(self, x):
        return self.function(x, *(getattr(self, f"index{i}") for i in range(self.count)))


class Computed(Indexed):
    """An indexing whose indices are inputs."""

    def forward(self, x, *indices):
        return self.function(x, *indices)


ONE = {
    "first": lambda x, i: x[i],
    "second": lambda x, i: x[:, i],
    "last": lambda x, i: x[..., i],
    "with a new dimension": lambda x, i: x[:, None, i],
    "index_select": lambda x, i: x.index_select(1, i.flatten()),
    "index_select of the last": lambda x, i: x.index_select(-1, i.flatten()),
}
TWO = {
    "neighbours": lambda x, i, j: x[i, j],
    "last": lambda x, i, j: x[:, i, j],
    "apart": lambda x, i, j: x[i, :, j],
    "outer": lambda x, i, j: x[i.flatten()[:, None], j.flatten()],
    "with a number": lambda x, i, j: x[i, 1, j],
}


def expect_like_eager(module, *inputs):
    """The same result as PyTorch, or an error where it has one."""
    try:
        wanted = module(*inputs)
    except (IndexError, RuntimeError):
        with pytest.raises(ValueError, match="there are rows|is out of range"):
            tessera.compile(module.eval(), inputs)(*inputs)
        return
    torch.testing.assert_close(tessera.compile(module.eval(), inputs)(*inputs), wanted)


@pytest.mark.every_nth(5)
@pytest.mark.parametrize("function", ONE)
@pytest.mark.parametrize("index", [[0, -1, 2], [[1, 0], [2, 1]], [3], [0, 4], [5], [-4], [-5, 0], [-6]], ids=str)
def test_constant_indices_of_one_dimension(function, index):
    expect_like_eager(Indexed(ONE[function], index), torch.randn(SHAPE))


@pytest.mark.every_nth(7)
@pytest.mark.parametrize("function", TWO)
@pytest.mark.parametrize("i", [[0, 2], [-1, 1], [0, 3], [0, 5], [-5, 0], [[1], [0]]], ids=str)
@pytest.mark.parametrize("j", [[1, 2], [-3, 0], [3, 4]], ids=str)
def test_constant_indices_of_two_dimensions(function, i, j):
    expect_like_eager(Indexed(TWO[function], i, j), torch.randn(SHAPE))


@pytest.mark.every_nth(2)
@pytest.mark.parametrize("function", TWO)
@pytest.mark.parametrize("are_constant", [(False, False), (True, False), (False, True)])
def test_computed_indices_of_two_dimensions(function, are_constant):
    torch.manual_seed(0)
    x = torch.randn(SHAPE)
    pairs = [torch.tensor([[0, 2], [1, 3]]), torch.tensor([[-1, 1], [-3, 0]])]
    example = [each for each, is_constant in zip(pairs[0], are_constant, strict=True) if not is_constant]

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("constant", pairs[0][0 if are_constant[0] else 1])

        def forward(self, x, *given):
            given = [*given]
            indices = [self.constant if is_constant else given.pop(0) for is_constant in are_constant]
            return TWO[function](x, *indices)

    compiled = tessera.compile(Mixed().eval(), (x, *example))
    for values in itertools.product((-6, -5, -4, -1, 0, 2, 3, 4, 5), repeat=2):
        given = [torch.tensor([0, value]) for value in values[: len(example)]]
        try:
            wanted = Mixed()(x, *given)
        except IndexError:
            with pytest.raises(ValueError, match="there are rows"):
                compiled(x, *given)
            continue
        torch.testing.assert_close(compiled(x, *given), wanted)


def test_indices_are_checked_at_all_sizes():
    model = Indexed(lambda x, i: x[:, i] * 2, [0, 3])
    compiled = tessera.compile(model.eval(), torch.randn(2, 4), dynamic_shapes={"x": {1: "n"}})
    for n in (4, 6):
        x = torch.randn(2, n)
        torch.testing.assert_close(compiled(x), model(x))
    with pytest.raises(ValueError, match="the index 3 is out of range for dimension 1, which has 3 elements"):
        compiled(torch.randn(2, 3))


# Writing at indices.


def _with(x, value, *at):
    y = x.clone()
    y[at] = value
    return y


PUT = {
    "rows": lambda x, i, v: _with(x, v[: len(i)], i),
    "a number": lambda x, i, v: _with(x, 2.0, slice(None), i),
    "last": lambda x, i, v: _with(x, v[:, :, : len(i)], ..., i),
    "pairs": lambda x, i, v: _with(x, v[0, : len(i)], i, i),
    "apart": lambda x, i, v: _with(x, v[: len(i), :, 0], i, slice(None), i),
    "outer": lambda x, i, v: _with(x, v[: len(i), : len(i)], i[:, None], i),
    "added": lambda x, i, v: x.index_put((i, i), v[0, : len(i)], accumulate=True),
    "index_add": lambda x, i, v: x.index_add(1, i, v[:, : len(i)], alpha=2),
    "index_copy": lambda x, i, v: x.index_copy(1, i, v[:, : len(i)]),
    "index_fill": lambda x, i, v: x.index_fill(-1, i, 0.5),
    "a new token": lambda x, i, v: torch.slice_scatter(_with(x, v[0, 0], i[:1]), v[:, 1:2], 1, 1, 2),
}


@pytest.mark.every_nth(5)
@pytest.mark.parametrize("function", PUT)
@pytest.mark.parametrize("index", [[0, 2], [1, 1, 0], [2], [2, 0, 2, 2]], ids=str)
@pytest.mark.parametrize("is_constant", [True, False])
def test_elements_are_put_at_indices(function, index, is_constant):
    """If several elements are put at one index, the last one stays."""
    torch.manual_seed(3)
    x, values, ids = torch.randn(4, 4, 5), torch.randn(4, 4, 5), torch.tensor(index)
    put = PUT[function]
    if is_constant:
        model = Indexed(lambda x, i: put(x, i, values), index).eval()
        torch.testing.assert_close(tessera.compile(model, x)(x), model(x))
        return
    model = Computed(put).eval()
    compiled = tessera.compile(model, (x, ids, values))
    torch.testing.assert_close(compiled(x, ids, values), model(x, ids, values))
    beyond = ids.clone()
    beyond[0] = 5
    with pytest.raises(ValueError, match="there are rows"):
        compiled(x, beyond, values)


SCATTER = {
    "src": lambda x, i, v: x.scatter(1, i, v),
    "value": lambda x, i, v: x.scatter(-1, i, 0.25),
    "first": lambda x, i, v: x.scatter(0, i, v),
    "reduce": lambda x, i, v: x.scatter(1, i, v, reduce="add"),
    "scatter_reduce": lambda x, i, v: x.scatter_reduce(1, i, v, "sum"),
}


@pytest.mark.parametrize("function", SCATTER)
def test_elements_are_scattered(function):
    torch.manual_seed(4)
    x, values = torch.randn(SHAPE), torch.randn(SHAPE)
    model = Computed(SCATTER[function]).eval()
    ids = torch.randint(3, (2, 3, 4))
    compiled = tessera.compile(model, (x, ids, values))
    torch.testing.assert_close(compiled(x, ids, values), model(x, ids, values))
    ids[0, 0, 0] = -1
    with pytest.raises(ValueError, match="there are rows"):
        compiled(x, ids, values)


def test_integers_and_masks_are_put():
    x, ids = torch.randint(50, (4, 6)), torch.tensor([[0, 2], [1, 1], [5, 0], [3, 4]])
    model = Computed(lambda x, i: x.scatter(1, i, 7) + x.masked_fill(x > 25, 0)).eval()
    torch.testing.assert_close(tessera.compile(model, (x, ids))(x, ids), model(x, ids))
    y = torch.randn(4, 6)
    masked = Computed(lambda y, x: _with(y, 0.0, x > 25) + _with(y, y.mean(), x[:, 0] > 25)).eval()
    torch.testing.assert_close(tessera.compile(masked, (y, x))(y, x), masked(y, x))
    several = Computed(lambda y, x: _with(y, torch.ones(12), x > 25)).eval()
    with pytest.raises(ValueError, match="the number of elements that a mask selects is not known"):
        tessera.compile(several, (y, torch.arange(24).reshape(4, 6) + 14))


def test_what_is_put_has_gradients():
    def of(x, i, v):
        y = x.clone()
        y[i] = v
        return y.square().scatter(1, torch.tensor([[1], [0], [2]]), v[:, :1] * v[:, 1:2])

    torch.manual_seed(5)
    x, ids, v = torch.randn(4, 3), torch.tensor([2, 0, 3]), torch.randn(3, 3)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.x, self.v = nn.Parameter(x.clone()), nn.Parameter(v.clone())

        def forward(self, ids):
            return of(self.x, ids, self.v)

    trains_like_pytorch(Model(), ids, torch.randn(4, 3), "mse")


def test_the_last_token_of_each_sentence():
    x, ids = torch.randn(3, 5, 8), torch.tensor([[4, 0, 0, 1, 9], [1, 2, 3, 4, 5], [9, 8, 1, 0, 0]])
    model = Computed(lambda x, ids: x[torch.arange(len(x)), (ids == ids.max(-1, keepdim=True)[0]).int().argmax(-1)])
    torch.testing.assert_close(tessera.compile(model.eval(), (x, ids))(x, ids), model(x, ids))


# Labels.


LOSSES = {
    "cross entropy": lambda x, t: F.cross_entropy(x, t),
    "smoothed": lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, reduction="none"),
    "weighted": lambda x, t: F.cross_entropy(x, t, weight=torch.arange(4.0) + 1, reduction="sum"),
    "ignoring a class": lambda x, t: F.cross_entropy(x, t, ignore_index=2),
    "ignoring another": lambda x, t: F.cross_entropy(x, t, ignore_index=9),
    "likelihood": lambda x, t: F.nll_loss(x.log_softmax(-1), t),
    "one hot": lambda x, t: F.one_hot(t, 4) * x,
}


@pytest.mark.parametrize("loss", LOSSES)
def test_labels_are_classes(loss):
    torch.manual_seed(1)
    x, labels = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 1, 0])
    module = Computed(LOSSES[loss]).eval()
    compiled = tessera.compile(module, (x, labels))
    for value in (-101, -100, -1, 0, 2, 3, 4, 9, 2**31 - 1):
        given = labels.clone()
        given[4] = value
        try:
            wanted = module(x, given)
        except (IndexError, RuntimeError):
            with pytest.raises(ValueError, match=rf"entry \[4\] of the ids, which come from 'indices_0', is {value}; there are rows 0 to 3"):
                compiled(x, given)
            continue
        torch.testing.assert_close(compiled(x, given), wanted, rtol=1e-4, atol=1e-5)


# Results that are not computed.


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.max_pool2d(x, 2, return_indices=True),
        lambda x: F.adaptive_max_pool2d(x, 2, return_indices=True),
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        lambda x: F.max_pool2d(x, 2, return_indices=True)[1],
    ],
)
def test_results_that_are_not_computed_are_missing(function):
    with pytest.raises(tg.UnsupportedModuleError, match="max_pool2d.*: its result 1 is not possible"):
        tessera.compile(Indexed(function).eval(), torch.randn(1, 2, 4, 4))


def test_results_that_nothing_takes_are_left_out():
    module = Indexed(lambda x: F.max_pool2d(x, 2, return_indices=True)[0])
    x = torch.randn(1, 2, 4, 4)
    torch.testing.assert_close(tessera.compile(module.eval(), x)(x), module(x))
