"""Modules compiled for the host."""

import copy
import json
import os
import pickle
import threading
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402
from compiled_models import (  # noqa: E402
    NAMED,
    SIZE,
    Function,
    Pooled,
    as_bsr,
    as_csr,
    expect_like,
    network,
    pruned,
    with_mask,
)
from tessera import nn as tnn  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

# Zeros.


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_layers_become_sparse_in_the_blocks_of_their_zeros(block_size):
    model, x = network(block_size), torch.randn(64, SIZE)
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    first, second = compiled.report.layers
    assert (first.is_sparse, first.block_size, first.rows) == (True, block_size, 64)
    assert (second.is_sparse, second.reason) == (False, "no zeros")
    assert "0.weight" in str(compiled) and "products" in str(compiled)
    seconds = compiled.predicted_seconds()
    assert seconds["products"] > 0 and list(seconds.values()) == sorted(seconds.values(), reverse=True)


def test_layers_and_times_are_data_and_pages_together():
    model, x = network(), torch.randn(64, SIZE)
    compiled = tessera.compile(model, x)
    found = json.loads(json.dumps(compiled.to_json()))
    first, second = found["layers"]
    assert first["is_sparse"] and second["reason"] == "no zeros" and second["sparse_seconds"] is None
    assert found["seconds_by_kind"] == compiled.predicted_seconds() and found["predicted_seconds"] > 0
    measured = compiled.measure(x)
    assert measured.layers == compiled.report.layers
    assert json.loads(measured.to_json())["layers"] == found["layers"]
    page = measured.page()
    for words in ("Layers", "0.weight", f"{SIZE} × {SIZE}", "no zeros", "products"):
        assert words in page, words
    assert "nan" not in page.partition("Layers")[2].partition("Time")[0]
    alone = compiled.first.cost()
    assert alone.layers == [] and "no zeros" not in alone.page() and "layers" not in json.loads(alone.to_json())


def test_masks_are_compiled_without_a_warning():
    model = network()
    with_mask(model[0])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        tessera.compile(model, torch.randn(64, SIZE))
    assert not [each for each in found if "assigned during export" in str(each.message)]


@pytest.mark.parametrize("hide", [with_mask, as_csr, as_bsr])
def test_zeros_are_found_in_all_that_holds_them(hide):
    model, x = network(), torch.randn(64, SIZE)
    hide(model[0])
    before = model[0]._parameters.copy()
    compiled = tessera.compile(model, x)
    assert compiled.report.layers[0].is_sparse
    assert model[0]._parameters == before
    expect_like(model, compiled, x)


def test_sparse_layers_stay_sparse():
    model, x = network(), torch.randn(64, SIZE)
    model[0] = tnn.SparseLinear.from_dense(model[0], density=None, block_size=1)
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    assert compiled.report.layers[0].is_sparse


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_times_are_measured_if_that_is_wanted(dtype, monkeypatch):
    types, add_input = [], tessera.graph.Graph.input

    def noted(graph, name, shape, dtype="f32"):
        types.append(dtype)
        return add_input(graph, name, shape, dtype)

    monkeypatch.setattr(tessera.graph.Graph, "input", noted)
    compiled = tessera.compile(network().to(dtype), torch.randn(64, SIZE).to(dtype), measure=True)
    assert len(types) == 3 and len(set(types)) == 1  # the model, and the products that were measured
    first, second = compiled.report.layers
    assert compiled.report.is_measured and first.dense_seconds > 0 and first.sparse_seconds > 0
    assert first.is_sparse == (first.speedup >= 1 / 0.9) and second.dense_seconds > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_16_bits(dtype):
    model, x = network().to(dtype), torch.randn(64, SIZE).to(dtype)
    compiled = tessera.compile(model, x)
    y = compiled(x)
    assert y.dtype == dtype
    torch.testing.assert_close(y, model(x).detach(), rtol=0.05, atol=0.05)
    layer, zeros = compiled.report.layers[0], tessera.zeros_of(model[0].weight, rows=64)
    assert (layer.is_sparse, layer.dense_seconds) == (zeros.pays, zeros.dense_seconds)
    model[0] = tnn.SparseLinear.from_dense(model[0], density=None, block_size=1)
    assert tessera.compile(model, x).report.layers[0].dense_seconds == zeros.dense_seconds


def test_transformers_in_bfloat16_are_as_close_as_their_types():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(96, 4, 200, batch_first=True, activation="gelu").eval()
    x = torch.randn(3, 37, 96)
    with torch.no_grad():
        exact = layer.double()(x.double()).float()
    layer = layer.bfloat16()
    found = tessera.compile(layer, x.bfloat16())(x.bfloat16())
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), exact, rtol=0, atol=0.06)


def test_products_with_transposed_weights_and_weights_that_are_computed():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(pruned(torch.randn(SIZE, SIZE), 1))
            self.normed = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(SIZE, 16))

        def forward(self, x):
            return self.normed(x @ self.weight + x @ self.weight.t() * 0.5)

    model, x = Model().eval(), torch.randn(32, SIZE)
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)


def test_batch_norms_may_have_weights_that_are_inputs():
    class Norms(torch.nn.BatchNorm1d):
        def forward(self, x, given):
            def norm(*weights):
                return torch.nn.functional.batch_norm(x, self.running_mean, self.running_var, *weights)

            return norm(given), norm(None, given), norm(self.weight, given)

    model, inputs = Norms(4).eval(), (torch.randn(2, 4, 5), torch.randn(4))
    expect_like(model, tessera.compile(model, inputs), *inputs)


# Calls.


class Many(torch.nn.Module):
    """Arguments and results of all kinds."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(SIZE, SIZE)

    def forward(self, x, pair, *, scale=1.0, mask=None):
        y = self.layer(x) * scale + pair[0] - pair[1]
        y = y if mask is None else y * mask
        return {"y": y, "list": [y > 0, y.argmax(-1)], "none": None, "x": x}


def test_arguments_and_results_of_all_kinds():
    model, x = Many().eval(), torch.randn(4, SIZE)
    pair = (torch.randn(4, SIZE), torch.randn(SIZE))
    compiled = tessera.compile(model, {"x": x, "pair": pair, "mask": x > 0})
    wanted, found = model(x, pair, mask=x > 0), compiled(x, pair, mask=x > 0)
    assert list(found) == list(wanted) and found["none"] is None
    torch.testing.assert_close(found["y"], wanted["y"].detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found["x"], x)
    assert [each.dtype for each in found["list"]] == [torch.bool, torch.int64]
    assert torch.equal(found["list"][0], wanted["list"][0])
    arrays = compiled(x.numpy(), [each.numpy() for each in pair], mask=(x > 0).numpy())
    assert isinstance(arrays["y"], np.ndarray)
    np.testing.assert_array_equal(arrays["y"], found["y"])


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "x is missing"),
        ((1, 2, 3, 4, 5), {}, "5 arguments"),
        ((torch.zeros(4, SIZE),), {"x": 1}, "'x' is given twice"),
        ((torch.zeros(4, SIZE),), {"y": 1}, "'y' is none of"),
        ((torch.zeros(3, SIZE), (torch.zeros(4, SIZE), torch.zeros(SIZE))), {}, r"x has shape \[3, 512\]"),
        ((torch.zeros(4, SIZE), (torch.zeros(4, SIZE), torch.zeros(SIZE))), {"scale": 2.0}, "compiled for"),
        ((torch.zeros(4, SIZE), (torch.zeros(4, SIZE),)), {}, r"pair\[1\] is missing"),
        (([0.0, 1.0], (torch.zeros(4, SIZE), torch.zeros(SIZE))), {}, "x has parts; it must be an array or a tensor"),
        ((None, (torch.zeros(4, SIZE), torch.zeros(SIZE))), {}, "x is None; the model was compiled for float32"),
    ],
)
def test_other_arguments_are_refused(args, kwargs, message):
    x = torch.randn(4, SIZE)
    compiled = tessera.compile(Many().eval(), {"x": x, "pair": (x, torch.randn(SIZE)), "scale": 1.0})
    with pytest.raises((TypeError, ValueError), match=message):
        compiled(*args, **{"scale": 1.0, **kwargs})


def test_several_threads_and_processes_may_call(two_threads):
    model = network()
    compiled = tessera.compile(model, torch.randn(8, SIZE))
    inputs = [torch.randn(8, SIZE) for _ in range(4)]
    wanted = [model(x).detach() for x in inputs]
    found = [None] * 4

    def call(i):
        for _ in range(20):
            found[i] = compiled(inputs[i])

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for expected, each in zip(wanted, found, strict=True):
        torch.testing.assert_close(each, expected, rtol=1e-4, atol=1e-4)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.allclose(compiled(inputs[0]), wanted[0], atol=1e-4) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_short_calls_check_what_they_are_given():
    class Model(torch.nn.Module):
        def forward(self, ids, x, mask):
            return (ids + 1) * 2, (x * mask).to(x.dtype), x[0] > 0, x.argmax(-1), ids.float().sum()

    ids, x, mask = torch.tensor([[1, -2, 3]]), torch.randn(2, 3), torch.tensor([True, False, True])
    compiled = tessera.compile(Model().eval(), (ids, x, mask))
    for given in ((ids, x, mask), (ids.expand(1, 3) * 5, torch.randn(3, 2).t(), ~mask), (ids, x.numpy(), mask)):
        expect_like(Model(), compiled, *(torch.as_tensor(each) for each in given))
        np.testing.assert_array_equal(compiled(*given)[0], (given[0] + 1) * 2)
        expect_like(Model(), compiled, given[0], mask=given[2], x=torch.as_tensor(given[1]))
    bad = [
        ((ids + 2**32, x, mask), {}, ValueError, "ids has the entry 4294967297; .* as integers have 32 bits"),
        ((ids.numpy() + 2**31, x.numpy(), mask.numpy()), {}, ValueError, "ids has the entry 2147483649; .* 32 bits"),
        ((ids, x.double(), mask), {}, TypeError, "x is float64"),
        ((ids, x, mask.float()), {}, TypeError, "mask is float32"),
        ((ids, x[:1], mask), {}, ValueError, "x has shape"),
        ((ids, x), {}, TypeError, "mask is missing"),
        ((ids, x), {"masks": mask}, TypeError, "'masks' is none of"),
        ((ids, x, mask, mask), {}, TypeError, "4 arguments"),
        ((ids, x.clone().requires_grad_(), mask), {}, TypeError, "x requires gradients"),
        ((ids, x.to("meta"), mask), {}, ValueError, "x is on meta"),
    ]
    for args, kwargs, kind, message in bad:
        with pytest.raises(kind, match=message):
            compiled(*args, **kwargs)
    y = compiled(ids, x, mask)[1]
    before = y.clone()
    compiled(ids, x + 1, mask)
    assert torch.equal(y, before)  # results are not written again
    expect_like(Model(), compiled, ids, -torch.randn(2, 3, dtype=torch.complex64).conj().imag, mask)


def test_arguments_without_names_are_those_of_forward():
    class Model(torch.nn.Module):
        def forward(self, x, bias=None, scale=None):
            x = x if bias is None else x + bias
            return x if scale is None else x * scale

    x, other = torch.randn(2, 3), torch.randn(3)
    compiled = tessera.compile(Model().eval(), {"x": x, "scale": other})
    for _ in range(3):  # short calls as well
        expect_like(Model(), compiled, x, scale=other)
        with pytest.raises(TypeError, match=r"2 arguments without names; the model takes x, scale \(scale only by name\)"):
            compiled(x, other)


def test_sizes_that_are_in_use_stay():
    model, names = Function(lambda x: x * 2), {"inputs[0]": {0: "n"}}
    compiled = tessera.compile(model.eval(), torch.rand(1, 4), dynamic_shapes=names, max_shapes=3)
    for n in (2, 3, 2, 2):
        expect_like(model, compiled, torch.rand(n, 4))
    expect_like(model, compiled, torch.rand(4, 4))
    assert {dict(key)["n"] for key in compiled._sessions} == {1, 2, 4}
    alone = tessera.compile(model.eval(), torch.rand(1, 4), dynamic_shapes=names, max_shapes=1)
    for n in (2, 3):  # beside the first, which holds the weights
        expect_like(model, alone, torch.rand(n, 4))
        assert {dict(key)["n"] for key in alone._sessions} == {1, n}


def test_inputs_are_told_apart():
    class Difference(torch.nn.Module):
        def forward(self, a, b, *, c):
            return a - 2 * b + 3 * c

    a, b, c = torch.randn(3, 4)
    compiled = tessera.compile(Difference().eval(), {"c": c, "b": b, "a": a})
    expect_like(Difference(), compiled, a, b, c=c)
    expect_like(Difference(), compiled, b=b, c=c, a=a)
    expect_like(Difference(), tessera.compile(Difference().eval(), {"a": a, "b": a, "c": a}), a, b, c=c)
    several = Function(lambda x, *more: x - 2 * more[0] + 3 * more[1])
    expect_like(several, tessera.compile(several.eval(), (a, b, c)), a, b, c)


def test_dicts_may_come_in_any_order():
    model = Function(lambda x: x["a"] - 2 * x["b"] + 3 * x["c"]["d"])
    a, b, d = torch.randn(3, 4)
    compiled = tessera.compile(model.eval(), ({"a": a, "b": b, "c": {"d": d}},))
    expect_like(model, compiled, {"c": {"d": d}, "b": b, "a": a})
    with pytest.raises(TypeError, match=r"inputs\[0\]\['b'\] is missing"):
        compiled({"c": {"d": d}, "a": a})
    with pytest.raises(TypeError, match=r"inputs\[0\]\['e'\] is more"):
        compiled({"e": a, "c": {"d": d}, "b": b, "a": a})


def test_results_keep_shape_and_type():
    model = Function(lambda x: {"sum": x.sum(), "flag": True, "same": x, "again": x})
    compiled = tessera.compile(model.eval(), torch.randn(3, 4))
    x = torch.randn(3, 4)
    found = compiled(x)
    assert found["sum"].shape == () and found["flag"] is True
    torch.testing.assert_close(found["again"], x)
    with pytest.raises(ValueError, match="returns a dict"):
        tessera.compile(Function(lambda x: {0: x}).eval(), x)


def test_inputs_of_other_types_are_refused():
    compiled = tessera.compile(Function(lambda x: x * 2).eval(), torch.randn(3, 4))
    for dtype in (torch.float64, torch.float16, torch.int64, torch.bool):
        with pytest.raises(TypeError, match=f"{str(dtype)[6:]}; the model was compiled for float32"):
            compiled(torch.ones(3, 4).to(dtype))
    assert compiled(np.ones((3, 4))).dtype == np.float32
    counted = tessera.compile(Function(lambda mask: mask.sum()).eval(), torch.ones(3, 4) > 0)
    with pytest.raises(TypeError, match="float32; the model was compiled for bool"):
        counted(np.full((3, 4), 2, np.float32))
    negative = torch.randn(3, 4, dtype=torch.complex64).conj().imag
    torch.testing.assert_close(compiled(negative), negative * 2)
    wanted = torch.randn(4, 3).t().requires_grad_()
    with pytest.raises(TypeError, match="requires gradients"):
        compiled(wanted)
    with torch.no_grad():
        torch.testing.assert_close(compiled(wanted), wanted * 2)


def test_constants_have_a_type():
    class Scaled(torch.nn.Module):
        def forward(self, x, factor=1):
            return x * (100 if factor is True else factor)

    x = torch.randn(3)
    compiled = tessera.compile(Scaled().eval(), {"x": x, "factor": 1})
    expect_like(Scaled(), compiled, x, 1)
    for factor in (True, 1.0, 2):
        with pytest.raises(TypeError, match="compiled for 1"):
            compiled(x, factor)


# Sizes.


def test_other_sizes_are_prepared_when_they_occur():
    model = Pooled(True).eval()
    model.layer.weight.data = pruned(model.layer.weight.data, 4)
    compiled = tessera.compile(model, (torch.randn(2, 8, SIZE), torch.ones(2, 8)), dynamic_shapes=NAMED, max_shapes=3)
    for batch, tokens in [(2, 8), (1, 3), (5, 8), (4, 1), (1, 3), (2, 8)]:
        expect_like(model, compiled, torch.randn(batch, tokens, SIZE), torch.ones(batch, tokens))
    assert len(compiled._sessions) == 3
    with pytest.raises(ValueError, match="'batch' is 2 and, in dimension 0 of mask, 3"):
        compiled(torch.randn(2, 8, SIZE), torch.ones(3, 8))


def test_buckets_pad_and_cut_back():
    model = Pooled(True).eval()
    buckets = {"tokens": [16, 4, 8], "batch": [1, 4]}
    inputs = (torch.randn(2, 8, SIZE), torch.ones(2, 8))
    compiled = tessera.compile(model, inputs, dynamic_shapes=NAMED, buckets=buckets)
    for batch, tokens in [(2, 8), (1, 3), (4, 15), (3, 4)]:
        expect_like(model, compiled, torch.randn(batch, tokens, SIZE), torch.ones(batch, tokens))
    with pytest.raises(ValueError, match="'tokens' is 17; the largest bucket is 16"):
        compiled(torch.randn(1, 17, SIZE), torch.ones(1, 17))


def test_padding_that_changes_results_is_refused():
    inputs = (torch.randn(2, 8, SIZE), torch.ones(2, 8))
    with pytest.raises(ValueError, match="zeros that pad 'tokens' from 1 to 16 change the results"):
        tessera.compile(Pooled(False).eval(), inputs, dynamic_shapes=NAMED, buckets={"tokens": [16]})


def test_results_whose_sizes_follow_otherwise_are_refused():
    x, names = torch.rand(4, 6), {"inputs[0]": {0: "n"}}
    squares = Function(lambda x: (x[:, None] * x[None]).flatten(0, 1))
    with pytest.raises(ValueError, match="do not follow from 'n' evenly"):
        tessera.compile(squares.eval(), x, dynamic_shapes=names, buckets={"n": [4, 8]})
    compiled = tessera.compile(squares.eval(), x, dynamic_shapes=names)
    expect_like(squares, compiled, torch.rand(3, 6))
    counted = tessera.compile(Function(lambda x: (x, len(x))).eval(), x, dynamic_shapes=names)
    with pytest.raises(ValueError, match="returns something else at n 5"):
        counted(torch.rand(5, 6))
    with pytest.raises(ValueError, match="its dimension 0 is 'n'"):
        compiled(torch.tensor(1.0))


def test_results_that_sizes_without_buckets_change_are_refused():
    both = {"inputs[0]": {0: "n"}, "inputs[1]": {0: "m"}}
    joined = (lambda x, y: torch.cat([y, x]) * 2, (torch.rand(6), torch.rand(3)), both)
    flat = (lambda x: x.flatten() * 2, (torch.rand(1, 6),), {"inputs[0]": {0: "m", 1: "n"}})
    for function, inputs, names in (joined, flat):
        with pytest.raises(ValueError, match="depends on 'n' and 'm', which cannot be padded"):
            tessera.compile(Function(function).eval(), inputs, dynamic_shapes=names, buckets={"n": [8]})


def test_more_buckets_than_shapes_are_saved(tmp_path):
    names, buckets = {"inputs[0]": {0: "n", 1: "m"}}, {"n": [1, 3], "m": [4, 6]}
    model = Function(lambda x: x * 2)
    compiled = tessera.compile(model.eval(), torch.rand(2, 5), dynamic_shapes=names, buckets=buckets, max_shapes=1)
    compiled.save(tmp_path / "m.safetensors")
    loaded = tessera.load(tmp_path / "m.safetensors")
    for n, m in ((1, 4), (2, 5), (3, 1), (1, 6), (3, 4)):
        expect_like(model, loaded, torch.rand(n, m))


def test_sizes_may_choose_other_parameters(tmp_path):
    class Either(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

        def forward(self, x):
            return self.a(x) if len(x) < 3 else self.b(x) + x @ self.a.weight

    model, names = Either().eval(), {"x": {0: "n"}}
    compiled = tessera.compile(model, torch.rand(2, 8), dynamic_shapes=names)
    for n in (2, 5):
        expect_like(model, compiled, torch.rand(n, 8))
    with torch.no_grad():
        model.b.weight.mul_(2)
        model.a.weight.mul_(3)
    for n in (2, 5):
        expect_like(model, compiled, torch.rand(n, 8))
    compiled.save(tmp_path / "m.safetensors")
    loaded = tessera.load(tmp_path / "m.safetensors")
    for n in (2, 5):
        expect_like(model, loaded, torch.rand(n, 8))


def test_other_sizes_are_compiled_in_evaluation_mode():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)).eval()
    compiled = tessera.compile(model, torch.rand(2, 8), dynamic_shapes={"input": {0: "n"}})
    model.train()
    x = torch.rand(4, 8)
    found = compiled(x)
    assert model[1].training
    torch.testing.assert_close(found, model.eval()(x).detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buckets": {"n": []}}, "there are no buckets of 'n'"),
        ({"buckets": {"n": [0]}}, "a bucket of 'n'"),
        ({"dynamic_shapes": {"input": {0: torch.export.Dim.AUTO}}}, "name the dimension by a string"),
        ({"dynamic_shapes": ({0: "n"},)}, "must be a mapping"),
        ({"dynamic_shapes": {"input": {0: "n", 1: "n"}}}, "'n' is 4 in the example and, in input, 512"),
        ({"max_shapes": 0}, "max_shapes"),
        ({"dynamic_shapes": {"y": {0: "batch"}}}, "names 'y'; the inputs are input"),
        ({"dynamic_shapes": {"input": {3: "batch"}}}, "dimension 3 of input"),
        ({"buckets": {"batch": [1]}}, "buckets of 'batch'; dynamic_shapes names nothing"),
    ],
)
def test_sizes_that_are_not_there_are_refused(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        tessera.compile(network(), torch.randn(4, SIZE), **options)


# Modules that cannot be compiled.


def test_wrong_modules_are_refused():
    x = torch.randn(4, SIZE)
    with pytest.raises(ValueError, match=r"training mode.*call eval\(\)"):
        tessera.compile(network().train(), x)
    part = network()
    part[1].train()
    with pytest.raises(ValueError, match="its part '1' is in training mode"):
        tessera.compile(part, x)
    with torch.no_grad():
        part.eval()[0].weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="0.weight holds NaN or infinity"):
        tessera.compile(part, x)
    with pytest.raises(TypeError, match="must be a torch.nn.Module"):
        tessera.compile(lambda x: x, x)
    with torch.inference_mode():
        frozen = network()
    with pytest.raises(ValueError, match="made in inference mode"):
        tessera.compile(frozen, x)
    with pytest.raises(ValueError, match="0.weight is on meta"):
        tessera.compile(network().to("meta"), x)
    with pytest.raises(ValueError, match=r"0.weight is torch.float64: convert the module"):
        tessera.compile(network().double(), x.double())
    quantised = torch.ao.quantization.quantize_dynamic(network(), {torch.nn.Linear}, dtype=torch.qint8)
    with pytest.raises(ValueError, match=r"0 \(Linear\) is quantised: compile it in floating point"):
        tessera.compile(quantised, x)
    with pytest.raises(TypeError, match="do not fit the module"):
        tessera.compile(network(), (x, x))

    class Branch(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(ValueError, match=r"cannot export the module: control flow depends on data: .*test_compile.py.*if x"):
        tessera.compile(Branch().eval(), x)
    with pytest.raises(TypeError, match="its part '0' is a ScriptModule, which PyTorch cannot export"):
        tessera.compile(torch.nn.Sequential(torch.jit.trace(network(), x)).eval(), x)
    exported = torch.export.export(network(), (x,))
    with pytest.raises(TypeError, match="the module is an ExportedProgram: give its module"):
        tessera.compile(exported, x)
    expect_like(network(), tessera.compile(exported.module(), x), x)  # it has no mode to change

    class Random(torch.nn.Module):
        def __init__(self, draw):
            super().__init__()
            self.draw = draw

        def forward(self, x):
            return self.draw(x)

    heads = x.view(4, 1, 8, -1)
    for draw, given in (
        (lambda y: torch.nn.functional.dropout(y, 0.1, training=True), x),
        (lambda y: torch.nn.functional.dropout1d(y, 0.1, training=True), x),
        (lambda y: torch.nn.functional.scaled_dot_product_attention(y, y, y, dropout_p=0.1), heads),
    ):
        with pytest.raises(ValueError, match="draws random numbers in evaluation mode too"):
            tessera.compile(Random(draw).eval(), given)


def test_a_compiled_model_is_saved_not_copied():
    compiled = tessera.compile(network(), torch.randn(4, SIZE))
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"cannot be copied or pickled: save\(\) it"):
            copied(compiled)


def test_whole_transformers_of_transformers():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    size = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
    model = transformers.BertModel(transformers.BertConfig(**size, vocab_size=500)).eval()
    for layer in model.encoder.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.weight.data = pruned(layer.weight.data, 4)
    ids, mask = torch.randint(0, 500, (2, 9)), torch.ones(2, 9, dtype=torch.long)
    inputs = {"input_ids": ids, "attention_mask": mask}
    named = {name: {0: "batch", 1: "tokens"} for name in inputs}
    compiled = tessera.compile(model, inputs, dynamic_shapes=named, buckets={"tokens": [16, 32], "batch": [4]})
    expect_like(model, compiled, **inputs)
    ids, mask = torch.randint(0, 500, (3, 19)), torch.ones(3, 19, dtype=torch.long)
    mask[0, 7:] = 0
    found = compiled(input_ids=ids, attention_mask=mask)
    wanted = model(input_ids=ids, attention_mask=mask)
    assert found.pooler_output.shape == wanted.pooler_output.shape
    kept = mask.bool()
    torch.testing.assert_close(
        found.last_hidden_state[kept], wanted.last_hidden_state[kept].detach(), rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(found[0], found["last_hidden_state"])


def test_gpt2_has_transposed_weights():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=128, n_layer=2, n_head=4, vocab_size=500, use_cache=False)
    model = transformers.GPT2LMHeadModel(config).eval()
    for name, parameter in model.named_parameters():
        if "c_fc" in name or "c_proj" in name or "c_attn" in name:
            parameter.data = parameter.data * (torch.rand_like(parameter) < 0.1) if parameter.dim() == 2 else parameter
    ids = torch.randint(0, 500, (2, 9))
    compiled = tessera.compile(model, {"input_ids": ids})
    expect_like(model, compiled, input_ids=ids)


# Weights that are rows of others.


def test_rows_of_a_weight_are_weights():
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(SIZE, 4, batch_first=True).eval()
    with torch.no_grad():
        attention.in_proj_weight.copy_(pruned(attention.in_proj_weight, 4))

    class Cross(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = attention

        def forward(self, x, memory):
            return self.attention(x, memory, memory)[0]

    model, x, memory = Cross().eval(), torch.randn(4, 32, SIZE), torch.randn(4, 48, SIZE)
    compiled = tessera.compile(model, (x, memory))
    expect_like(model, compiled, x, memory)
    layers = {each.name: each for each in compiled.report.layers}
    for name in (f"attention.in_proj_weight[0:{SIZE}]", f"attention.in_proj_weight[{SIZE}:{3 * SIZE}]"):
        assert layers[name].is_sparse and layers[name].block_size == 4
    assert "attention.in_proj_weight" not in layers


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda w, x: x[:, : SIZE // 2] @ w[:, : SIZE // 2].t(), "sliced before its product"),
        (lambda w, x: x @ w[:128].t() + w[:128, 0], "used elsewhere too"),
        (lambda w, x: torch.einsum("bd,od->bo", x, w), ""),
        (lambda w, x: torch.einsum("...d,do->...o", x[None], w), ""),
        (lambda w, x: x @ w.T, ""),
        (lambda w, x: x @ w.contiguous(), ""),
    ],
)
def test_weights_are_listed_however_products_take_them(function, reason):
    model, x = Function(function, SIZE, SIZE).eval(), torch.randn(64, SIZE)
    model.w.data = pruned(model.w.data, 1)
    compiled = tessera.compile(model, x)
    expect_like(model, compiled, x)
    (layer,) = compiled.report.layers
    assert (layer.reason, layer.is_sparse) == (reason, not reason)


# Reports.


def test_results_keep_the_names_of_their_parts(tmp_path):
    from typing import NamedTuple

    class Pair(NamedTuple):
        values: torch.Tensor
        rest: list

    model, x = Function(lambda x: {"most": x.max(1), "pair": Pair(x, [x.min(0)])}), torch.randn(3, 4)
    compiled = tessera.compile(model.eval(), x)
    compiled.save(tmp_path / "m.safetensors")
    wanted = model(x)
    for each in (compiled, tessera.load(tmp_path / "m.safetensors")):
        found = each(x)
        torch.testing.assert_close(found["most"].values, wanted["most"].values)
        assert torch.equal(found["most"].indices, wanted["most"].indices)
        values, indices = found["most"]
        assert values is found["most"].values and indices is found["most"][1]
        torch.testing.assert_close(found["pair"].rest[0].values, wanted["pair"].rest[0].values)


class Unknown:
    """A class that PyTorch does not know."""


@pytest.mark.parametrize(
    ("make", "inputs", "message"),
    [
        (lambda: Function(lambda x: (x, Unknown())), (torch.ones(2),), "the module returns a Unknown: let it return"),
        (network, (torch.ones(4, SIZE).double(),), r"input input is torch.float64.*by .float\(\)"),
        (network, (torch.ones(4, SIZE, dtype=torch.complex64),), "input input is torch.complex64"),
        (network, (torch.ones(0, SIZE),), r"input input has shape \[0, 512\]: give one that has elements"),
        (network, None, "example_inputs is of type NoneType; give a tensor"),
        (lambda: torch.nn.Embedding(4, 4), (torch.ones(3, dtype=torch.int16),), r"is torch.int16.*int64, by .long\(\)"),
        (lambda: torch.nn.LazyLinear(3), (torch.ones(2, 3),), "weight has no shape yet: call the module once"),
    ],
)
def test_what_cannot_be_compiled_is_named(make, inputs, message):
    with pytest.raises((TypeError, ValueError), match=message):
        tessera.compile(make().eval(), inputs)


def test_what_cannot_be_called_is_named():
    from torch._subclasses.fake_tensor import FakeTensorMode

    model, x = network(), torch.randn(4, SIZE)
    compiled = tessera.compile(model, x)
    for _ in range(2):
        with pytest.raises(TypeError, match="input is a BatchedTensor|input is a Tensor without values of its own"):
            torch.vmap(compiled)(x[None])
        with FakeTensorMode(), pytest.raises(TypeError, match="input is a FakeTensor without values of its own"):
            compiled(torch.empty(4, SIZE))
        compiled(x)
    with pytest.raises(ValueError, match="'batch' is 0; a compiled model computes sizes from 1"):
        tessera.compile(model, x, dynamic_shapes={"input": {0: "batch"}})(x[:0])
    embedding, ids = torch.nn.Embedding(4, 4).eval(), torch.tensor([1, 2])
    looked_up = tessera.compile(embedding, ids)
    assert np.array_equal(looked_up(ids.numpy().astype(np.int16)), looked_up(ids.numpy()))
    with pytest.raises(TypeError, match="input is int16; the model was compiled for int64"):
        looked_up(ids.short())


@pytest.mark.parametrize("to", ["meta", torch.float64])
def test_weights_that_cannot_be_read_any_more_are_named(to):
    model, x = network(), torch.randn(4, SIZE)
    compiled = tessera.compile(model, x)
    model.to(to)
    for _ in range(2):
        with pytest.raises(ValueError, match="0.weight is (on meta and holds nothing|torch.float64)"):
            compiled(x)
    model.load_state_dict(network().state_dict(), assign=True)
    expect_like(network(), compiled, x)


def test_short_times_are_shown():
    compiled = tessera.compile(Function(lambda x: x * 2).eval(), torch.randn(2, 3))
    assert "microseconds of a call: " in str(compiled) and "0.00" not in str(compiled).splitlines()[-1].split(",")[0]
