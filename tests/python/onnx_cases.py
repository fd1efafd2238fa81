"""The cases of ONNX's own tests, and what became of each."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
from onnx.backend.test.loader import load_node_model_tests

import tessera.onnx


@dataclass(frozen=True)
class Outcome:
    #: "passes", "differs", or why it cannot run.
    what: str
    detail: str = ""


def node_cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_node_model_tests()


def operator_of(case: Any) -> str:
    """The operator that a case is about: the one of its model, or that which is expanded."""
    kinds = [node.op_type for node in case.model.graph.node]
    return kinds[0] if len(kinds) == 1 and "_expanded" not in case.name else "models of several operators"


def run_case(case: Any) -> Outcome:
    model = _of_later_set(case.model)
    outcomes = [_run(case, model, *map(_arrays, each)) for each in case.data_sets]
    return next((each for each in outcomes if each.what != "passes"), Outcome("passes"))


def _arrays(values: list[Any]) -> list[Any]:
    return [onnx.numpy_helper.to_array(each) if isinstance(each, onnx.TensorProto) else each for each in values]


def _of_later_set(model: onnx.ModelProto) -> onnx.ModelProto:
    """With operator set 13, if its operators have been the same since before."""
    later = onnx.ModelProto()
    later.CopyFrom(model)
    for each in later.opset_import:
        if each.domain not in ("", "ai.onnx") or each.version >= 13:
            continue
        kinds = [node.op_type for node in model.graph.node if node.domain in ("", "ai.onnx")]
        schemas = [(onnx.defs.get_schema(kind, each.version), onnx.defs.get_schema(kind, 13)) for kind in kinds]
        if kinds and all(old.since_version == new.since_version for old, new in schemas):
            each.version = 13
    return later


def _run(case: Any, original: onnx.ModelProto, inputs: list[Any], outputs: list[Any]) -> Outcome:
    if any(isinstance(each, list) or each is None or np.asarray(each).dtype.kind in "OSUc" for each in [*inputs, *outputs]):
        return Outcome("sequences, optional values, text or complex numbers")
    if any(np.size(each) == 0 for each in [*inputs, *outputs]):
        return Outcome("values without elements")
    names = [each.name for each in original.graph.input]
    reason = Outcome("")
    # What has to be constant is an input of many cases.
    for kept in (len(names), 1, 0):
        model, feeds = _with_constants(original, names, inputs, kept)
        try:
            results = tessera.onnx.load(model.SerializeToString(), threads=1).run(None, feeds)
        except tessera.onnx.UnsupportedModelError as error:
            reason = reason if reason.what else _reason_of(error)
            continue
        except (RuntimeError, ValueError) as error:
            return Outcome(_summary(str(error)), str(error))
        return _compared(case, results, outputs)
    return reason


def _with_constants(
    model: onnx.ModelProto, names: list[str], inputs: list[Any], kept: int
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    feeds = {name: np.asarray(value) for name, value in zip(names[:kept], inputs, strict=False)}
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for name, value in list(zip(names, inputs, strict=False))[kept:]:
        fixed.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    return fixed, feeds


def _compared(case: Any, results: list[Any], outputs: list[Any]) -> Outcome:
    for result, expected in zip(results, outputs, strict=True):
        wanted = np.asarray(expected)
        if result.shape != wanted.shape:
            return Outcome("differs", f"{result.shape} instead of {wanted.shape}")
        is_narrow = wanted.dtype.itemsize == 2
        tolerance = {"rtol": 1e-2, "atol": 1e-2} if is_narrow else {"rtol": 1e-3, "atol": max(case.atol, 1e-5)}
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
        "is no tensor": "sequences, optional values, text or complex numbers",
        "beyond 32 bits": "integers beyond 32 bits",
    }.items():
        if part in error:
            return summary
    return error


def table_of(outcomes: Iterator[tuple[str, Outcome]]) -> str:
    """Rows of operators: cases that pass, and others with the reason."""
    by_operator: dict[str, Counter[str]] = defaultdict(Counter)
    for operator, outcome in outcomes:
        by_operator[operator][outcome.what] += 1
    lines = ["| operator | pass | others |", "| --- | --- | --- |"]
    for operator in sorted(by_operator, key=lambda name: (name.startswith("models"), name)):
        counts = by_operator[operator]
        others = "; ".join(f"{count}: {what}" for what, count in sorted(counts.items()) if what != "passes")
        lines.append(f"| {operator} | {counts['passes'] or ''} | {others} |")
    return "\n".join(lines) + "\n"
