"""Models in ONNX files."""

from __future__ import annotations

import concurrent.futures
import io
import itertools
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")

import onnx_cases  # noqa: E402
from beside_torch import expect_results  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx_files import model_of  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import tessera.onnx  # noqa: E402

_TABLE = pathlib.Path(__file__).parents[2] / "docs" / "onnx-operators.md"
_HEADING = """# Operators of ONNX

What became of the cases of ONNX {version}'s own tests (`onnx.backend.test`), each model read and run, of an operator set before
13 after its conversion by ONNX. Inputs that have to be constant for inputs of given shapes, such as axes, are initializers. A
test of the Python package writes these tables (`TESSERA_UPDATE_GOLDEN=1 scripts/test-python -m full -k operators_of_onnx`) and
keeps them true.

"""
_MODELS = """
## Models

Networks whose weights are constants (`light_…`), layers as PyTorch exported them (`pytorch-…`), and expressions.

"""


def test_runs_as_users_of_onnx_runtime_know() -> None:
    weight = np.arange(6, dtype=np.float32).reshape(3, 2)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    session = tessera.onnx.load(model_of(nodes, {"x": ("batch", 3)}, ["y", "z"], {"w": weight}))
    assert [(each.name, each.shape, each.type) for each in session.get_inputs()] == [
        ("x", ["batch", 3], "tensor(float)")
    ]
    assert [each.name for each in session.get_outputs()] == ["y", "z"]
    for batch in (1, 4, 2):
        x = np.random.default_rng(batch).standard_normal((batch, 3), dtype=np.float32)
        y, z = session.run(None, {"x": x})
        np.testing.assert_allclose(y, x @ weight, rtol=1e-5)
        (only,) = session.run(["z"], {"x": x})
        np.testing.assert_array_equal(only, z)
    with pytest.raises(ValueError, match="there is no output 'a'; the outputs are y, z"):
        session.run(["a"], {"x": x})
    with pytest.raises(ValueError, match="the input 'x' is missing"):
        session.run(None, {})
    with pytest.raises(TypeError, match="output_names is 'y'; it is a list of names"):
        session.run("y", {"x": x})
    with pytest.raises(TypeError, match="input_feed is a list; it is a dict of arrays"):
        session.run(None, [x])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="x"):
        session.run(None, {"x": x[:, :2]})
    with pytest.raises(ValueError, match="given are numbers of int64"):
        session.run(None, {"x": np.zeros((1, 3), np.int64)})


def test_takes_the_options_of_onnx_runtime() -> None:
    data = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ("n", 2)}, ["y"], {})
    session = tessera.onnx.InferenceSession(data, object(), ["CUDAExecutionProvider", ("CPUExecutionProvider", {})], [{}, {}])
    assert session.prepared_shapes() is None and session.get_providers() == ["CPUExecutionProvider"]
    np.testing.assert_array_equal(session.run(["y"], {"x": np.float32([[1, -1]])}, None), [[[1, 0]]])
    shaped = tessera.onnx.InferenceSession(path_or_bytes=data, sess_options=None, providers=None, shapes={"n": 3}, threads=1)
    assert shaped.prepared_shapes() == {"x": (3, 2)}
    for wrong in (({"n": 3},), (None, 1), (None, "CPUExecutionProvider"), (None, None, {})):
        with pytest.raises(TypeError, match="sess_options is|providers is|provider_options is"):
            tessera.onnx.InferenceSession(data, *wrong)


def test_metadata_are_those_of_onnx_runtime() -> None:
    model = onnx.load_model_from_string(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (2,)}, ["y"], {}))
    model.producer_name, model.domain, model.model_version, model.doc_string = "exporter", "com.example", -3, "wörds"
    model.graph.doc_string = "a graph"
    helper.set_model_props(model, {"names": "{0: 'cat'}", "stride": "32"})
    data = model.SerializeToString()
    found = tessera.onnx.load(data).get_modelmeta()
    assert found == tessera.onnx.ModelMetadata(
        producer_name="exporter",
        graph_name="g",
        domain="com.example",
        description="wörds",
        graph_description="a graph",
        version=-3,
        custom_metadata_map={"names": "{0: 'cat'}", "stride": "32"},
    )
    assert tessera.onnx.load(data.replace(b"w\xc3\xb6rds", b"w\xff\xb6rds")).get_modelmeta().description == "w\ufffd\ufffdrds"
    model.graph.name = ""
    assert tessera.onnx.load(model.SerializeToString()).get_modelmeta().graph_name == ""
    onnxruntime = pytest.importorskip("onnxruntime")
    model.graph.name, model.ir_version = "g", 8
    known = onnxruntime.InferenceSession(model.SerializeToString()).get_modelmeta()
    assert {name: getattr(known, name) for name in vars(found)} == vars(found)


def test_truth_values_are_numbers() -> None:
    session = tessera.onnx.load(model_of([helper.make_node("Not", ["x"], ["y"])], {"x": (2,)}, ["y"], {}, TensorProto.BOOL))
    np.testing.assert_array_equal(session.run(None, {"x": np.float32([0, 2])})[0], [True, False])
    with pytest.raises(ValueError, match="given are numbers of <U1"):
        session.run(None, {"x": np.array(["a", "b"])})


def test_several_threads_and_processes_may_run(two_threads: None) -> None:
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((16, 4), dtype=np.float32)
    data = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ("n", 16)}, ["y"], {"w": weight})
    session = tessera.onnx.load(data, max_shapes=2)
    inputs = [generator.standard_normal((rows, 16), dtype=np.float32) for rows in (1, 2, 3, 4)]  # more than are kept

    def run(x: np.ndarray[Any, Any]) -> bool:
        return all(np.allclose(session.run(None, {"x": x})[0], x @ weight, rtol=1e-4, atol=1e-5) for _ in range(10))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, inputs * 2))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if all(map(run, inputs)) else 1
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_keeps_zeros_where_that_pays() -> None:
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((512, 512), dtype=np.float32)
    weight[generator.random(weight.shape) < 0.95] = 0
    data = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ("n", 512)}, ["y"], {"w": weight})
    session = tessera.onnx.load(data, {"n": 64}, threads=1)
    assert session.report.layers[0].is_sparse
    assert "sparse" in str(session) and "of a call: " in str(session) and "products" in str(session)
    seconds = session.predicted_seconds()
    assert seconds["products"] > 0 and list(seconds.values()) == sorted(seconds.values(), reverse=True)
    assert session.estimate({"n": 64}).seconds_by_kind.keys() == seconds.keys()
    found = session.to_json()
    assert found["layers"][0]["is_sparse"] and found["seconds_by_kind"] == seconds and found["predicted_seconds"] > 0
    measured = session.measure({"x": np.zeros((64, 512), np.float32)})
    for cost in (measured, session.estimate({"n": 64})):
        assert cost.layers == session.report.layers and "outputs × inputs" in cost.page()
    assert not tessera.onnx.load(data, {"n": 64}, threads=1, sparse=False).report.layers[0].is_sparse
    for rows in (64, 3):  # with the same weight
        x = generator.standard_normal((rows, 512), dtype=np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ weight, rtol=1e-3, atol=1e-4)


def test_each_weight_has_its_choice_or_a_reason() -> None:
    generator = np.random.default_rng(0)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["a"]),
        helper.make_node("Einsum", ["a", "v"], ["b"], equation="nsi,oi->nso"),
        helper.make_node("MatMul", ["left", "b"], ["c"]),
        helper.make_node("MatMul", ["c", "batched"], ["d"]),
        helper.make_node("Conv", ["d", "kernel"], ["y"], group=4),
    ]
    shapes = {"table": (9, 8), "w": (8, 8), "v": (8, 8), "left": (4, 4), "batched": (2, 8, 8), "kernel": (4, 1, 1)}
    weights = {name: generator.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    weights["table"][0] = 0
    session = tessera.onnx.load(model_of(nodes, {"ids": (2, 4)}, ["y"], weights, kinds={"ids": TensorProto.INT64}))
    assert {each.name: each.reason for each in session.report.layers} == {
        "table": "not a product",
        "w": "no zeros",
        "v": "no zeros",
        "left": "no zeros",
        "batched": "batched product",
        "kernel": "depthwise convolution",
    }
    assert session.report.layers[0].density == pytest.approx(8 / 9)
    ids = generator.integers(-9, 9, (2, 4))
    (y,) = session.run(None, {"ids": ids})
    a = np.einsum("nsi,oi->nso", weights["table"][ids] @ weights["w"], weights["v"])
    expected = (weights["left"] @ a @ weights["batched"]) * weights["kernel"].reshape(4, 1)
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)
    for wrong in (9, -10):
        ids[1, 2] = wrong
        with pytest.raises(ValueError, match=rf"entry \[1, 2\] .*'ids', is {wrong + 9 * (wrong < 0)}; 'table' has rows 0 to 8"):
            session.run(None, {"ids": ids})


@pytest.mark.parametrize("is_transposed", [True, False])
@pytest.mark.parametrize("density", [0.1, 1.0])
def test_heads_and_tables_are_sparse_where_that_pays(density: float, is_transposed: bool) -> None:
    generator = np.random.default_rng(0)
    table = generator.standard_normal((512, 512), dtype=np.float32)
    table[generator.random(table.shape) >= density] = 0
    nodes = [helper.make_node("Gather", ["table", "ids"], ["rows"]), helper.make_node("Tanh", ["rows"], ["x"])]
    if is_transposed:
        nodes.append(helper.make_node("Transpose", ["table"], ["head"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "head" if is_transposed else "table"], ["y"]))
    data = model_of(nodes, {"ids": ("batch", 16)}, ["y"], {"table": table}, kinds={"ids": TensorProto.INT64})
    session = tessera.onnx.load(data, {"batch": 4})
    (layer,) = session.report.layers
    assert (layer.name, layer.rows, layer.is_sparse) == ("table", 64, density < 1)
    if is_transposed:  # the product takes it as the embedding does
        assert (layer.copy_bytes, layer.reason) == (0, "" if density < 1 else "no zeros")
    elif density < 1:
        assert 4 * np.count_nonzero(table) < layer.copy_bytes < table.nbytes
    else:
        assert (layer.copy_bytes, layer.reason) == (table.nbytes, "no zeros")
    assert ("a copy of" in str(session)) == (layer.copy_bytes > 0)
    for batch in (4, 3):
        ids = generator.integers(-512, 512, (batch, 16))
        expected = np.tanh(table[ids]) @ (table.T if is_transposed else table)
        scale = max(1, np.abs(expected).max())
        np.testing.assert_allclose(session.run(None, {"ids": ids})[0], expected, rtol=0, atol=1e-4 * scale)


@pytest.mark.pairs(2)
@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("shape", [(3, "rows", 512), (2, 1, "rows", 512), ("rows", 512)])
def test_experts_are_weights_of_their_own_where_that_pays(density: float, shape: tuple[Any, ...]) -> None:
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((3, 512, 512), dtype=np.float32)
    weight[generator.random(weight.shape) >= density] = 0
    data = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": shape}, ["y"], {"w": weight})
    session = tessera.onnx.load(data, {"rows": 64})
    expected = {f"w[{i}]": "" for i in range(3)} if density < 1 else {"w": "batched product"}
    assert {each.name: each.reason for each in session.report.layers} == expected
    for rows in (64, 5):
        x = generator.standard_normal([rows if size == "rows" else size for size in shape], dtype=np.float32)
        scale = np.abs(x @ weight).max()
        np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ weight, rtol=0, atol=1e-4 * scale)


@pytest.mark.pairs(2)
@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("shape", [(512, "columns"), (2, 3, 512, "columns"), (512,)])
def test_weights_may_be_first_factors(density: float, shape: tuple[Any, ...]) -> None:
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((640, 512), dtype=np.float32)
    weight[generator.random(weight.shape) >= density] = 0
    data = model_of([helper.make_node("MatMul", ["w", "x"], ["y"])], {"x": shape}, ["y"], {"w": weight})
    session = tessera.onnx.load(data, {"columns": 64} if "columns" in shape else None)
    (layer,) = session.report.layers
    assert (layer.name, layer.shape, layer.copy_bytes) == ("w", (640, 512), 0)
    assert (layer.reason == "no zeros") == (density == 1)
    assert layer.is_sparse or density == 1 or len(shape) == 1
    for columns in (64, 5):
        x = generator.standard_normal([columns if size == "columns" else size for size in shape], dtype=np.float32)
        scale = np.abs(weight @ x).max()
        np.testing.assert_allclose(session.run(None, {"x": x})[0], weight @ x, rtol=0, atol=1e-4 * scale)


def random_weight(generator: np.random.Generator, shape: tuple[int, ...], density: float) -> np.ndarray[Any, Any]:
    weight = generator.standard_normal(shape, dtype=np.float32)
    weight[generator.random(shape) >= density] = 0
    return weight


def expect_close(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


@pytest.mark.pairs(2)
@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("transposes_x", [False, True])
def test_weights_may_be_first_factors_of_general_products(
    density: float, is_transposed: bool, transposes_x: bool
) -> None:
    generator = np.random.default_rng(0)
    weight, added = random_weight(generator, (640, 512), density), random_weight(generator, (640, 1), 1)
    flags = {"transA": int(is_transposed), "transB": int(transposes_x), "alpha": 0.5, "beta": 2.0}
    nodes = [helper.make_node("Gemm", ["w", "x", "c"], ["y"], **flags)]
    weights = {"w": np.ascontiguousarray(weight.T) if is_transposed else weight, "c": added}
    shape = ("columns", 512) if transposes_x else (512, "columns")
    session = tessera.onnx.load(model_of(nodes, {"x": shape}, ["y"], weights), {"columns": 64})
    (layer,) = session.report.layers
    assert (layer.name, layer.shape, layer.rows, layer.copy_bytes) == ("w", (640, 512), 64, 0)
    assert (layer.is_sparse, layer.reason) == ((True, "") if density < 1 else (False, "no zeros"))
    for columns in (64, 5):
        x = generator.standard_normal((512, columns), dtype=np.float32)
        (y,) = session.run(None, {"x": np.ascontiguousarray(x.T) if transposes_x else x})
        expect_close(y, 0.5 * (weight @ x) + 2 * added)


@pytest.mark.pairs(2)
@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("is_left", [True, False])
@pytest.mark.parametrize(
    ("of_weight", "of_x", "result", "shape", "shape_of_x"),
    [
        ("ij", "jk", "ik", (512, 512), (512, 64)),
        ("ji", "bkj", "bik", (512, 512), (2, 32, 512)),
        ("hnd", "bth", "btnd", (512, 8, 64), (2, 32, 512)),
        ("ndh", "btnd", "bth", (8, 64, 512), (2, 32, 8, 64)),
    ],
)
def test_equations_have_sparse_weights(
    density: float,
    is_left: bool,
    of_weight: str,
    of_x: str,
    result: str,
    shape: tuple[int, ...],
    shape_of_x: tuple[int, ...],
) -> None:
    generator = np.random.default_rng(0)
    weight = random_weight(generator, shape, density)
    equation = f"{of_weight},{of_x}->{result}" if is_left else f"{of_x},{of_weight}->{result}"
    nodes = [helper.make_node("Einsum", ["w", "x"] if is_left else ["x", "w"], ["y"], equation=equation)]
    session = tessera.onnx.load(model_of(nodes, {"x": shape_of_x}, ["y"], {"w": weight}))
    (layer,) = session.report.layers
    assert (layer.name, layer.shape, layer.rows) == ("w", (512, 512), 64)
    assert (layer.is_sparse, layer.reason) == ((True, "") if density < 1 else (False, "no zeros"))
    x = random_weight(generator, shape_of_x, 1)
    expect_close(session.run(None, {"x": x})[0], np.einsum(f"{of_weight},{of_x}->{result}", weight, x))


@pytest.mark.pairs(2)
@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize(
    ("equation", "shape"),
    [
        ("", (3, 512, 64)),
        ("", (2, 1, 512, 64)),
        ("", (512, 64)),
        ("gij,gjk->gik", (3, 512, 64)),
        ("gji,kgj->kgi", (64, 3, 512)),
    ],
)
def test_experts_may_be_first_factors(density: float, equation: str, shape: tuple[int, ...]) -> None:
    generator = np.random.default_rng(0)
    weight, x = random_weight(generator, (3, 512, 512), density), random_weight(generator, shape, 1)
    nodes = [helper.make_node("MatMul", ["w", "x"], ["y"])]
    if equation:
        nodes = [helper.make_node("Einsum", ["w", "x"], ["y"], equation=equation)]
    session = tessera.onnx.load(model_of(nodes, {"x": shape}, ["y"], {"w": weight}))
    expected = {f"w[{i}]": "" for i in range(3)} if density < 1 else {"w": "batched product"}
    assert {each.name: each.reason for each in session.report.layers} == expected
    expect_close(session.run(None, {"x": x})[0], np.einsum(equation, weight, x) if equation else weight @ x)


def test_experts_are_not_taken_for_weights_that_have_their_names() -> None:
    generator = np.random.default_rng(0)
    weights = {"w": generator.standard_normal((2, 512, 512), dtype=np.float32)}
    weights["w[0]"] = generator.standard_normal((512, 512), dtype=np.float32)
    for weight in weights.values():
        weight[generator.random(weight.shape) >= 0.1] = 0
    nodes = [helper.make_node("MatMul", ["x", name], [f"y{i}"]) for i, name in enumerate(weights)]
    session = tessera.onnx.load(model_of(nodes, {"x": (64, 512)}, ["y0", "y1"], weights))
    x = generator.standard_normal((64, 512), dtype=np.float32)
    for weight, found in zip(weights.values(), session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(found, x @ weight, rtol=0, atol=1e-4 * np.abs(x @ weight).max())


def test_indices_of_several_dimensions_are_checked_one_by_one() -> None:
    def session_of(operator: str) -> tessera.onnx.InferenceSession:
        nodes = [helper.make_node(operator, ["x", "ids"], ["y"])]
        kinds = {"ids": TensorProto.INT64}
        return tessera.onnx.load(model_of(nodes, {"x": (3, 4), "ids": (2, 2)}, ["y"], {}, kinds=kinds))

    x, session = np.arange(12, dtype=np.float32).reshape(3, 4), session_of("GatherND")
    np.testing.assert_array_equal(session.run(None, {"x": x, "ids": np.array([[2, -4], [-3, 2]])})[0], [8, 2])
    for wrong in ([0, 4], [0, -5], [3, 0], [-4, 0]):
        with pytest.raises(ValueError, match="there are rows 0 to 11"):
            session.run(None, {"x": x, "ids": np.array([[0, 0], wrong])})
    session = session_of("GatherElements")
    np.testing.assert_array_equal(session.run(None, {"x": x, "ids": np.array([[2, -3], [-1, 2]])})[0], [[8, 1], [8, 9]])
    for index in (3, -4, 11):
        with pytest.raises(ValueError, match="not one of a dimension of 3; it must be from 0 to 2"):
            session.run(None, {"x": x, "ids": np.array([[0, 0], [0, index]])})


def test_lists_all_that_is_missing() -> None:
    nodes = [helper.make_node("NonMaxSuppression", ["x"], ["a"]), helper.make_node("Unheard", ["x"], ["b"])]
    with pytest.raises(tessera.onnx.UnsupportedModelError, match=r"(?s)2 operators.*NonMaxSuppression.*Unheard"):
        tessera.onnx.load(model_of(nodes, {"x": (2,)}, ["a", "b"], {}))
    with pytest.raises(RuntimeError, match="not an ONNX file"):
        tessera.onnx.load(b"\x00\x01")


def test_convolutions_equal_pytorch() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8),
        nn.Conv2d(8, 16, 1, bias=False),
        nn.SiLU(),
        nn.ConvTranspose2d(16, 4, 2, stride=2),
        nn.Upsample(scale_factor=1.4, mode="bilinear", align_corners=True),
        nn.Upsample(scale_factor=0.6, mode="bicubic", align_corners=True),
    ).eval()
    x = torch.randn(2, 3, 12, 10)
    graph = exported(module, (x,), ["x"], dynamo=False)
    (y,) = tessera.onnx.load(graph).run(None, {"x": x.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(y, module(x).numpy(), atol=1e-5)


@pytest.mark.full
def test_operators_of_onnx() -> None:
    operators = [(onnx_cases.operator_of(case), case.name, onnx_cases.run_case(case)) for case in onnx_cases.node_cases()]
    models = [(name, name, onnx_cases.run_light_model(name)) for name in onnx_cases.light_models()]
    models += [(kind, folder.name, onnx_cases.run_exported(folder)) for kind, folder in onnx_cases.exported_cases()]
    assert not [(name, outcome.detail) for _, name, outcome in operators + models if outcome.what == "differs"]
    table = _HEADING.format(version=onnx.__version__) + onnx_cases.table_of((each[0], each[2]) for each in operators)
    table += _MODELS + onnx_cases.table_of(((each[0], each[2]) for each in models), "model")
    if os.environ.get("TESSERA_UPDATE_GOLDEN"):
        _TABLE.write_text(table)
    assert _TABLE.read_text() == table


def test_each_operator_of_onnx_once() -> None:
    first = {onnx_cases.operator_of(case): case for case in reversed(onnx_cases.node_cases())}
    outcomes = {operator: onnx_cases.run_case(case) for operator, case in first.items()}
    assert not [(operator, each.detail) for operator, each in outcomes.items() if each.what == "differs"]
    assert sum(each.what == "passes" for each in outcomes.values()) > 80


@pytest.mark.parametrize("nth", [4, pytest.param(1, marks=pytest.mark.full)])
def test_attention_is_that_of_onnx(nth: int) -> None:
    cases = [each for each in onnx_cases.node_cases() if onnx_cases.operator_of(each) == "Attention"]
    assert len(cases) > 80
    outcomes = {case.name: onnx_cases.run_case(case) for case in cases[::nth]}
    assert not {name: each for name, each in outcomes.items() if each.what != "passes"}


def test_reasons_are_not_those_of_inputs_that_have_to_be_constant() -> None:
    (case,) = (each for each in onnx_cases.node_cases() if each.name == "test_training_dropout")
    assert onnx_cases.run_case(case).what == "it is in training mode: export the model for inference"


def test_layers_and_networks_of_onnx() -> None:
    outcomes = {folder.name: onnx_cases.run_exported(folder) for _, folder in onnx_cases.exported_cases()}
    outcomes["squeezenet"] = onnx_cases.run_light_model("light_squeezenet")
    assert not [(name, each.detail) for name, each in outcomes.items() if each.what == "differs"]
    assert outcomes["squeezenet"].what == "passes", outcomes["squeezenet"].detail
    assert sum(each.what == "passes" for each in outcomes.values()) > 80


# Networks, by both exporters.


class _Wrapped(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        result: Tensor = self.model(input_ids=ids, attention_mask=mask)[0]
        return result


def _network(name: str, attention: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    bert_sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    bert = transformers.BertConfig(**bert_sizes, vocab_size=100, attn_implementation=attention)
    gpt2 = transformers.GPT2Config(
        n_embd=64, n_layer=2, n_head=4, vocab_size=100, n_positions=64, use_cache=False, attn_implementation=attention
    )
    distilbert = transformers.DistilBertConfig(
        dim=64, n_layers=2, n_heads=4, hidden_dim=128, vocab_size=100, attn_implementation=attention
    )
    roberta = transformers.RobertaConfig(
        **bert_sizes, vocab_size=100, max_position_embeddings=40, type_vocab_size=1, attn_implementation=attention
    )
    llama = transformers.LlamaConfig(
        **bert_sizes, num_key_value_heads=2, vocab_size=100, use_cache=False, attn_implementation=attention
    )
    made: dict[str, Callable[[], nn.Module]] = {
        "bert": lambda: transformers.BertModel(bert),
        "gpt2": lambda: transformers.GPT2LMHeadModel(gpt2),
        "distilbert": lambda: transformers.DistilBertModel(distilbert),
        "roberta": lambda: transformers.RobertaModel(roberta),
        "llama": lambda: transformers.LlamaForCausalLM(llama),
    }
    return made[name]()


def exported(module: nn.Module, inputs: tuple[Tensor, ...], names: list[str], dynamo: bool) -> bytes:
    content = io.BytesIO()
    if dynamo:
        pytest.importorskip("onnxscript")
        program: Any = torch.onnx.export(module, inputs, input_names=names, dynamo=True, verbose=False)
        program.save(content)
    else:
        dynamic = {name: {0: "batch", 1: "tokens"} for name in names if name in ("ids", "mask")}
        torch.onnx.export(
            module, inputs, content, input_names=names, dynamo=False, opset_version=17, dynamic_axes=dynamic
        )
    return content.getvalue()


def _cases(quick: list[tuple[Any, ...]], *values: list[Any]) -> list[Any]:
    """The grid of these values; all but the quick cases are marked full."""
    return [
        each if each in quick else pytest.param(*each, marks=pytest.mark.full) for each in itertools.product(*values)
    ]


_QUICK_TRANSFORMERS = [
    ("bert", "eager", False),
    ("gpt2", "sdpa", False),
    ("distilbert", "sdpa", True),
    ("roberta", "sdpa", False),
    ("llama", "eager", True),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "attention", "dynamo"),
    _cases(_QUICK_TRANSFORMERS, ["bert", "gpt2", "distilbert", "roberta", "llama"], ["sdpa", "eager"], [False, True]),
)
def test_transformers_equal_pytorch(name: str, attention: str, dynamo: bool) -> None:
    torch.manual_seed(0)
    module = _Wrapped(_network(name, attention)).eval()
    ids, mask = torch.randint(3, 100, (2, 16)), torch.ones(2, 16, dtype=torch.int64)
    mask[1, 10:] = 0
    session = tessera.onnx.load(exported(module, (ids, mask), ["ids", "mask"], dynamo))
    sizes = [(2, 16)] if dynamo else [(2, 16), (1, 7)]
    for rows, tokens in sizes:
        some = {"ids": ids[:rows, :tokens], "mask": mask[:rows, :tokens]}
        with torch.no_grad():
            expected = module(some["ids"], some["mask"]).numpy()
        (result,) = session.run(None, {key: value.numpy() for key, value in some.items()})
        kept = some["mask"].numpy().astype(bool)
        np.testing.assert_allclose(result[kept], expected[kept], atol=1e-4 * np.abs(expected).max())


def _vit(**sizes: Any) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    module: nn.Module = transformers.ViTModel(transformers.ViTConfig(**sizes))
    return module


class _OfImages(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.model(pixel_values=x).last_hidden_state
        return result


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [False, True])
def test_a_vision_transformer_equals_pytorch(dynamo: bool) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    module = _OfImages(_vit(**sizes, image_size=32, patch_size=8)).eval()
    expect_equals_pytorch(module, torch.randn(2, 3, 32, 32), dynamo)


# Densities and block sizes.
_FIVE_PAIRS = [(1.0, 1), (0.5, 1), (0.2, 1), (0.1, 4), (0.05, 16)]
_ALL_PAIRS = [[(density, b) for density in (1.0, 0.5, 0.2, 0.1, 0.05) if b == 1 or density < 1] for b in (1, 4, 16)]


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        *itertools.product(["bert", "gpt2"], _ALL_PAIRS),
        *itertools.product(["distilbert", "roberta", "llama", "vit"], [_FIVE_PAIRS]),
    ],
)
def test_pruned_transformers_of_usual_size_equal_pytorch(
    name: str, pairs: list[tuple[float, int]], dynamo: bool
) -> None:
    import test_whole_models

    # TorchScript's exporter writes another function of these: ONNX Runtime says what the file means.
    is_other = not dynamo and name in ("bert", "distilbert", "roberta")
    runtime = pytest.importorskip("onnxruntime") if is_other else None
    torch.manual_seed(0)
    model = getattr(test_whole_models, name)().eval()
    weights = test_whole_models.weights_of(model)
    whole = [each.detach().clone() for each in weights]
    for density, block_size in pairs:
        with torch.no_grad():
            for weight, values in zip(weights, whole, strict=True):
                weight.copy_(values)
        test_whole_models.prune(weights, density, block_size)
        if name == "vit":
            expect_equals_pytorch(_OfImages(model), torch.randn(1, 3, 224, 224), dynamo)
            continue
        module, ids, mask = _Wrapped(model), torch.randint(5, 30000, (2, 48)), torch.ones(2, 48, dtype=torch.int64)
        ids[1, 40:], mask[1, 40:] = 1, 0
        file, feeds = exported(module, (ids, mask), ["ids", "mask"], dynamo), {"ids": ids.numpy(), "mask": mask.numpy()}
        session, kept = tessera.onnx.load(file), mask.numpy().astype(bool)
        (result,) = session.run(None, feeds)
        with torch.no_grad():
            expected = runtime.InferenceSession(file).run(None, feeds)[0] if runtime else module(ids, mask).numpy()
        np.testing.assert_allclose(result[kept], expected[kept], atol=1e-4 * np.abs(expected).max())
        assert density > 0.1 or any(each.is_sparse for each in session.report.layers)


def expect_equals_pytorch(module: nn.Module, x: Tensor, dynamo: bool) -> tessera.onnx.InferenceSession:
    session = tessera.onnx.load(exported(module, (x,), ["x"], dynamo))
    (found,) = session.run(None, {"x": x.numpy()})
    expect_results(found, module, x)
    return session


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.LocalResponseNorm(3), (2, 8, 6, 5)),
        (nn.MaxPool3d(3, 2, 1), (2, 3, 5, 6, 7)),
        (nn.AvgPool3d((2, 3, 1), (1, 2, 2), (0, 1, 0), count_include_pad=False), (2, 3, 5, 6, 7)),
        (nn.AvgPool3d(2, ceil_mode=True), (2, 3, 5, 6, 7)),
        (nn.Unfold((3, 2), padding=1, stride=(1, 2)), (2, 3, 6, 5)),
    ],
)
def test_windows_of_more_dimensions_equal_pytorch(module: nn.Module, shape: tuple[int, ...], dynamo: bool) -> None:
    torch.manual_seed(0)
    expect_equals_pytorch(module.eval(), torch.randn(shape), dynamo)


_IMAGE_NETWORKS = ["resnet50", "mobilenet_v2", "mobilenet_v3", "efficientnet_b0", "vgg16", "unet"]
_QUICK_IMAGE_NETWORKS = [("mobilenet_v3", False), ("unet", True)]  # one of each exporter


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "dynamo"), _cases(_QUICK_IMAGE_NETWORKS, _IMAGE_NETWORKS, [False, True]))
def test_networks_of_images_equal_pytorch(name: str, dynamo: bool) -> None:
    pytest.importorskip("torchvision")
    import vision_networks

    size = 224 if name == "vgg16" else 64  # its pooling cannot be exported at other sizes
    module, x = vision_networks.network(name, 64), torch.randn(2, 3, size, size)
    module = vision_networks.calibrated(vision_networks.prune(module, 0.1, 4), size)
    session = expect_equals_pytorch(module, x, dynamo)
    assert any(each.is_sparse for each in session.report.layers)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("name", _IMAGE_NETWORKS)
def test_pruned_networks_of_usual_size_equal_pytorch(name: str, block_size: int, dynamo: bool) -> None:
    pytest.importorskip("torchvision")
    import vision_networks

    x = torch.randn(1, 3, 224, 224)
    for density in (1.0, 0.5, 0.2, 0.1, 0.05) if block_size == 1 else (0.5, 0.2, 0.1, 0.05):
        module = vision_networks.network(name, 64)
        if density < 1:  # statistics of other sizes make rounding errors large, PyTorch's own as well
            module = vision_networks.calibrated(vision_networks.prune(module, density, block_size), 224)
        expect_equals_pytorch(module, x, dynamo)


@pytest.mark.filterwarnings("ignore")
def test_batch_norms_are_part_of_convolutions() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.BatchNorm2d(8),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.AdaptiveAvgPool2d(1),
    )
    for each in module:
        if isinstance(each, nn.BatchNorm2d):
            nn.init.normal_(each.running_mean)
            nn.init.uniform_(each.running_var, 0.5, 2)
    module, x, content = module.eval(), torch.randn(2, 3, 13, 12), io.BytesIO()
    torch.onnx.export(
        module,
        (x,),
        content,
        input_names=["x"],
        dynamo=False,
        do_constant_folding=False,
        training=torch.onnx.TrainingMode.PRESERVE,
        dynamic_axes={"x": {0: "samples"}},
    )
    session = tessera.onnx.load(content.getvalue())
    assert session.operators["BatchNormalization"] == 2
    for samples in (2, 1):
        (y,) = session.run(None, {"x": x[:samples].numpy()})
        with torch.no_grad():
            np.testing.assert_allclose(y, module(x[:samples]).numpy(), rtol=1e-4, atol=1e-5)
        operations = [each.operation for each in session.measure({"x": x[:samples].numpy()}).operations]
        assert "mul" not in operations and operations.count("max_pool") == 1


def test_names_that_are_no_text_are_refused() -> None:
    data = model_of([helper.make_node("Relu", ["x"], ["name"])], {"x": (2,)}, ["name"], {})
    with pytest.raises(RuntimeError, match="is not UTF-8"):
        tessera.onnx.load(data.replace(b"name", b"n\xffme"))


@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [
        ("int8", -128, 127),
        ("uint8", 0, 255),
        ("int16", -(2**15), 2**15 - 1),
        ("uint16", 0, 2**16 - 1),
        ("int32", -(2**31), 2**31 - 1),
        ("uint32", 0, 2**32 - 1),
        ("int64", -(2**31), 2**31 - 1),
        ("uint64", 0, 2**32 - 1),
    ],
)
def test_integers_are_those_of_the_type(dtype: str, least: int, most: int) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    session = tessera.onnx.load(model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": (2,)}, ["y"], {}, kind))
    for given in (np.array([least, most]), np.array([least, most]).astype(dtype)):
        (y,) = session.run(None, {"x": given})
        assert y.dtype == dtype and y.tolist() == [least, most]
    for wrong in (np.array([0, most + 1]), np.array([least - 1, 0])):
        with pytest.raises(ValueError, match=f"'x' is of {dtype}; given are integers from {wrong.min()} to {wrong.max()}"):
            session.run(None, {"x": wrong})


def test_integers_without_a_sign_have_32_bits() -> None:
    a = np.array([2**25 - 1, 2**32 - 1, 2**32 - 1, 7, 0, 3 * 2**30 + 5], np.uint32)
    b = np.array([2, 3, 2**32 - 1, 2**31 + 1, 5, 2**16 + 1], np.uint32)
    expected = {
        "Div": a // b,
        "Mod": a % b,
        "Abs": a,
        "ReduceL1": a.sum(dtype=np.uint32, keepdims=True),
        "ArgMin": np.array([4]),
    }
    nodes = [helper.make_node(name, ["a", "b"] if name in ("Div", "Mod") else ["a"], [name]) for name in expected]
    data = model_of(nodes, {"a": (6,), "b": (6,)}, list(expected), {}, TensorProto.UINT32)
    for name, found in zip(expected, tessera.onnx.load(data).run(None, {"a": a, "b": b}), strict=True):
        np.testing.assert_array_equal(found, expected[name], name)


def test_indices_are_counted_from_the_end_of_long_dimensions() -> None:
    size = 2**24 + 3
    nodes = [helper.make_node("Gather", ["x", ids], [y]) for ids, y in (("ids", "y"), ("last", "z"))]
    last = {"last": np.array([-1, -2])}
    data = model_of(nodes, {"x": (size,), "ids": (3,)}, ["y", "z"], last, kinds={"ids": TensorProto.INT64})
    x = np.zeros(size, np.float32)
    x[-2:] = 1, 2
    y, z = tessera.onnx.load(data).run(None, {"x": x, "ids": np.array([-1, -2, size - 1])})
    np.testing.assert_array_equal(y, [2, 1, 2])
    np.testing.assert_array_equal(z, [2, 1])


def test_inputs_may_lack_shapes() -> None:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones((3, 2), np.float32), "w")],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString()
    session = tessera.onnx.load(data)
    assert session.run(None, {"x": np.ones((4, 3), np.float32)})[0].tolist() == [[3, 3]] * 4
    with pytest.raises(ValueError, match="the file lacks its shape"):
        session.estimate()
