"""The cases of ONNX's own tests, and their outcomes."""

from __future__ import annotations

import functools
import pathlib
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import google.protobuf.message
import numpy as np
import onnx
import onnx.backend.test.loader
import onnx.numpy_helper
import onnx.version_converter
from onnx.backend.test.loader import load_node_model_tests

import tessera.onnx


@dataclass(frozen=True)
class Outcome:
    #: "passes", "differs", or why it cannot run.
    what: str
    detail: str = ""


@functools.cache
def node_cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_node_model_tests()


def operator_of(case: Any) -> str:
    """The operator that a case tests: the operator of its model, or the one that is expanded."""
    kinds = [node.op_type for node in case.model.graph.node]
    return kinds[0] if len(kinds) == 1 and "_expanded" not in case.name else "models of several operators"


#: Cases in which the last element of a smaller image is at the product of size and factor, 2.4 instead of 2.
_OF_OTHER_CORNERS = {f"test_resize_downsample_scales_{mode}_align_corners" for mode in ("cubic", "linear")}


def run_case(case: Any) -> Outcome:
    outcome = _of_all(case.model, [tuple(map(_arrays, each)) for each in case.data_sets], case.atol)
    if outcome.what == "differs" and case.name in _OF_OTHER_CORNERS:
        return Outcome("corners that are not those of the standard's text, PyTorch and ONNX Runtime", outcome.detail)
    return outcome


def _of_all(model: onnx.ModelProto, data_sets: list[tuple[list[Any], list[Any]]], atol: float) -> Outcome:
    try:
        model = _of_later_set(model)
    except (RuntimeError, onnx.version_converter.ConvertError, onnx.defs.SchemaError):
        pass  # the reader names the operator set
    outcomes = [_run(model, inputs, outputs, atol) for inputs, outputs in data_sets]
    return next((each for each in outcomes if each.what != "passes"), Outcome("passes"))


def _arrays(values: list[Any]) -> list[Any]:
    return [onnx.numpy_helper.to_array(each) if isinstance(each, onnx.TensorProto) else each for each in values]


# Whole models.

_DATA = pathlib.Path(onnx.backend.test.loader.DATA_DIR)


def light_models() -> list[str]:
    return sorted(path.stem for path in (_DATA / "light").glob("light_*.onnx"))


def run_light_model(name: str) -> Outcome:
    """The outcome of a network whose weights are constants, with the input that ONNX's own runner makes."""
    model = onnx.load(_DATA / "light" / f"{name}.onnx")
    inputs = []
    for value in _inputs_of(model):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        inputs.append((np.arange(np.prod(shape)).reshape(shape) / np.prod(shape)).astype(np.float32))
    return _of_all(model, [(inputs, [_tensor(_DATA / "light" / f"{name}_output_0.pb")])], 1e-7)


def exported_cases() -> list[tuple[str, pathlib.Path]]:
    """The models that PyTorch exported long ago, and simple ones: kinds and folders."""
    kinds = ("pytorch-converted", "pytorch-operator", "simple")
    folders = ((kind, folder) for kind in kinds for folder in sorted((_DATA / kind).iterdir()))
    return [(kind, folder) for kind, folder in folders if (folder / "model.onnx").exists()]


def run_exported(folder: pathlib.Path) -> Outcome:
    model = onnx.load(folder / "model.onnx")
    data_sets = []
    for data in sorted(folder.glob("test_data_set_*")):
        try:
            data_sets.append(tuple(_numbered_tensors(data, kind) for kind in ("input", "output")))
        except (ValueError, TypeError, google.protobuf.message.DecodeError):
            return Outcome(_OTHER_VALUES)
    return _of_all(model, data_sets, 1e-7)  # type: ignore[arg-type]


def _numbered_tensors(folder: pathlib.Path, kind: str) -> list[Any]:
    files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda path: int(path.stem.split("_")[1]))
    return [_tensor(path) for path in files]


def _tensor(path: pathlib.Path) -> Any:
    return onnx.numpy_helper.to_array(onnx.load_tensor(path))


def _inputs_of(model: onnx.ModelProto) -> list[Any]:
    """Initializers were inputs as well."""
    initial = {each.name for each in model.graph.initializer}
    return [each for each in model.graph.input if each.name not in initial]


def _of_later_set(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with operator set 13 at least, converted unless its operators have been the same since before."""
    later = onnx.ModelProto()
    later.CopyFrom(model)
    for each in later.opset_import:
        if each.domain not in ("", "ai.onnx") or each.version >= 13:
            continue
        kinds = [node.op_type for node in model.graph.node if node.domain in ("", "ai.onnx")]
        schemas = [(onnx.defs.get_schema(kind, each.version), onnx.defs.get_schema(kind, 13)) for kind in kinds]
        if not kinds or any(old.since_version != new.since_version for old, new in schemas):
            return onnx.version_converter.convert_version(model, 13)
        each.version = 13
    return later


_OTHER_VALUES = "sequences, optional values, text or complex numbers"


def _run(original: onnx.ModelProto, inputs: list[Any], outputs: list[Any], atol: float) -> Outcome:
    if any(isinstance(each, list) or each is None or np.asarray(each).dtype.kind in "OSUc" for each in [*inputs, *outputs]):
        return Outcome(_OTHER_VALUES)
    if any(np.size(each) == 0 for each in [*inputs, *outputs]):
        return Outcome("values without elements")
    if any(map(_is_beyond_fp32, [*inputs, *outputs])):
        return Outcome("numbers that FP32 lacks")
    names = [each.name for each in _inputs_of(original)]
    reason = Outcome("")
    # Many cases have inputs that must be constant: the case's reason is why the last attempt fails.
    for kept in (len(names), 1, 0):
        model, feeds = _with_constants(original, names, inputs, kept)
        try:
            session = tessera.onnx.load(model.SerializeToString(), threads=1, most_computed=2**28)
            results = session.run(None, feeds)
        except tessera.onnx.UnsupportedModelError as error:
            reason = _reason_of(error)
            continue
        except (RuntimeError, ValueError) as error:
            return Outcome(_summary(str(error)), str(error))
        return _compared(results, outputs, atol)
    return reason


def _is_beyond_fp32(array: Any) -> bool:
    wide = np.asarray(array)
    if wide.dtype != np.float64:
        return False
    with np.errstate(over="ignore", under="ignore"):
        narrow = wide.astype(np.float32)
    return bool(np.any((np.isinf(narrow) != np.isinf(wide)) | ((narrow == 0) & (wide != 0))))


def _with_constants(
    model: onnx.ModelProto, names: list[str], inputs: list[Any], kept: int
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    feeds = {name: np.asarray(value) for name, value in zip(names[:kept], inputs, strict=False)}
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for name, value in list(zip(names, inputs, strict=False))[kept:]:
        fixed.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    return fixed, feeds


def _compared(results: list[Any], outputs: list[Any], atol: float) -> Outcome:
    for result, expected in zip(results, outputs, strict=True):
        wanted = np.asarray(expected)
        if result.shape != wanted.shape:
            return Outcome("differs", f"{result.shape} instead of {wanted.shape}")
        is_narrow = wanted.dtype.itemsize == 2
        tolerance = {"rtol": 1e-2, "atol": 1e-2} if is_narrow else {"rtol": 1e-3, "atol": max(atol, 1e-5)}
        if not np.allclose(result.astype(np.float64), wanted.astype(np.float64), equal_nan=True, **tolerance):
            return Outcome("differs", f"{result} instead of {wanted}")
    return Outcome("passes")


def _reason_of(error: Exception) -> Outcome:
    lines = [line.strip() for line in str(error).splitlines()[1:]]
    reasons = [line.partition("): ")[2] for line in lines]
    known = [each for each in reasons if each]
    return Outcome(known[0] if known else "no such operator", str(error))


def _summary(error: str) -> str:
    for part, summary in {
        "operator set is": "an operator set before 13",
        "dimensions; at most": "more than five dimensions",
        "elements of type": "numbers of other types",
        "is not a tensor": _OTHER_VALUES,
        "beyond 32 bits": "integers beyond 32 bits",
    }.items():
        if part in error:
            return summary
    return error


def table_of(outcomes: Iterator[tuple[str, Outcome]], of: str = "operator") -> str:
    """Rows of operators, or of other groups: cases that pass, and others with the reason."""
    by_operator: dict[str, Counter[str]] = defaultdict(Counter)
    for operator, outcome in outcomes:
        by_operator[operator][outcome.what] += 1
    lines = [f"| {of} | pass | others |", "| --- | --- | --- |"]
    for operator in sorted(by_operator, key=lambda name: (name.startswith("models"), name)):
        counts = by_operator[operator]
        others = "; ".join(f"{count}: {what}" for what, count in sorted(counts.items()) if what != "passes")
        lines.append(f"| {operator} | {counts['passes'] or ''} | {others} |")
    return "\n".join(lines) + "\n"
