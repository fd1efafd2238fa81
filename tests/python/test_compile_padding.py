"""Padding to buckets with zeros changes no result of compiled modules."""

import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402
from compiled_models import Function, expect_like  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

TWO_SIZES = {"inputs[0]": {0: "n", 1: "m"}}
TWO_BUCKETS = {"dynamic_shapes": TWO_SIZES, "buckets": {"n": [2, 4], "m": [2, 4]}}


def grows_with_few_rows(x):
    """x times a factor of the number of rows, if these are in the first bucket and columns in the second."""
    return x * (1 + x.shape[0] * (x.shape[0] <= 2 < x.shape[1]))


@pytest.mark.parametrize(
    ("function", "buckets"),
    [
        (lambda x: x / x.mean(0), [1, 8]),
        (lambda x: x[-1:], [1, 8]),
        (lambda x: x.flip(0), [4]),
        (lambda x: (-x).argmax(0) + 30_000, [8]),
        (lambda x: torch.where(torch.arange(len(x)) == 0, -torch.inf, x.mean(0)[0]), [1, 8]),
    ],
)
def test_padding_is_checked_for_all_buckets(function, buckets):
    with pytest.raises(ValueError, match="change the results"):
        tessera.compile(
            Function(function).eval(), torch.rand(1, 6), dynamic_shapes={"inputs[0]": {0: "n"}}, buckets={"n": buckets}
        )


def test_padding_is_checked_again_when_a_module_is_compiled_anew():
    model, x = Function(lambda x: 2 * x).eval(), torch.rand(3, 6)
    compiled = tessera.compile(model, x, dynamic_shapes={"inputs[0]": {0: "n"}}, buckets={"n": [4]})
    expect_like(model, compiled, x)
    model.function = lambda x: x / x.mean(0)
    compiled.refresh()
    with pytest.raises(ValueError, match="zeros that pad 'n' from 1 to 4 change the results"):
        compiled(x)


def test_padding_is_checked_for_combinations_of_buckets(tmp_path):
    model, x = Function(grows_with_few_rows).eval(), torch.rand(1, 3)
    compiled, path = tessera.compile(model, torch.rand(3, 3), **TWO_BUCKETS), tmp_path / "model.safetensors"
    for call in (lambda: compiled(x), lambda: compiled.save(path), lambda: tessera.compile(model, x, **TWO_BUCKETS)):
        with pytest.raises(ValueError, match="zeros that pad 'n' from 1 to 2 and 'm' from 3 to 4 change the results"):
            call()
        expect_like(model, compiled, torch.rand(3, 3))


def test_padding_is_checked_for_each_size_alone():
    """Where both are padded by the same amount, results are right."""
    model = Function(lambda x: x * (1 + x.shape[0] / x.shape[1])).eval()
    with pytest.raises(ValueError, match="zeros that pad 'n' from 1 to 4 change the results"):
        tessera.compile(model, torch.rand(3, 3), dynamic_shapes=TWO_SIZES, buckets={"n": [4], "m": [4]})


def test_padding_is_checked_for_each_pair_of_sizes():
    """Results are wrong where two of three sizes are padded, and right elsewhere."""
    model = Function(lambda x: x * (1 + (sorted(x.shape)[1] < sorted(x.shape)[2]))).eval()
    names = {"inputs[0]": {0: "n", 1: "m", 2: "k"}}
    with pytest.raises(ValueError, match="zeros that pad 'n' from 1 to 4 and 'm' from 1 to 4 change the results"):
        tessera.compile(model, torch.rand(3, 3, 3), dynamic_shapes=names, buckets={name: [4] for name in "nmk"})


def test_padding_whose_check_is_interrupted_is_checked_again(monkeypatch):
    compiled = tessera.compile(Function(grows_with_few_rows).eval(), torch.rand(3, 3), **TWO_BUCKETS)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(compiled, "_verify", interrupt)
        with pytest.raises(KeyboardInterrupt):
            compiled(torch.rand(1, 3))
    with pytest.raises(ValueError, match="change the results"):
        compiled(torch.rand(1, 3))


def doubles_wide_ones(x):
    if x.shape[0] > x.shape[1]:
        raise ValueError("more rows than columns")
    return x * 2


def test_sizes_that_a_module_does_not_take_are_not_checked():
    model = Function(doubles_wide_ones).eval()
    compiled = tessera.compile(model, torch.rand(3, 3), dynamic_shapes=TWO_SIZES, buckets={"n": [4], "m": [8]})
    for shape in ((3, 3), (2, 7), (4, 8)):
        expect_like(model, compiled, torch.rand(*shape))
