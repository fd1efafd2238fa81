"""Models in ONNX files, with the interface of ONNX Runtime.

    session = tessera.onnx.load("model.onnx")
    (logits,) = session.run(None, {"input_ids": ids, "attention_mask": mask})

`python -m tessera.onnx benchmark model.onnx` times a model in Tessera, ONNX Runtime and OpenVINO.
"""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tessera._arguments import checked_threads
from tessera._layers import LayerReport, SparsityReport, kinds_text
from tessera._locks import Lock
from tessera._tessera import OnnxModel, OnnxValue, UnsupportedModelError, whole_number
from tessera.graph._estimate import Estimate
from tessera.graph._graph import Graph
from tessera.graph._session import Session

__all__ = ["InferenceSession", "ModelMetadata", "UnsupportedModelError", "ValueInfo", "load"]

_TYPES = {"float32": "float", "float64": "double"}


@dataclass(frozen=True)
class ValueInfo:
    """An input or output: a name, a shape whose entries are sizes, names of sizes or None, and a type such as
    "tensor(float)".
    """

    name: str
    shape: list[int | str | None]
    type: str

    @staticmethod
    def _of(value: OnnxValue) -> ValueInfo:
        return ValueInfo(value.name, list(value.shape), f"tensor({_TYPES.get(value.dtype, value.dtype)})")


@dataclass(frozen=True)
class ModelMetadata:
    """What a file says about its model, under ONNX Runtime's names."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


def load(
    model: str | os.PathLike[str] | bytes,
    shapes: Mapping[str, Sequence[int] | int] | None = None,
    threads: int = 0,
    *,
    sparse: bool = True,
    max_shapes: int = 8,
    most_computed: int = 2**27,
) -> InferenceSession:
    """Read a model from a file, or from its bytes, for inference on the host.

    Graphs have fixed shapes: where the model leaves sizes open, a session is prepared for each set of shapes that `run`
    gets, at most `max_shapes` at a time, and all sessions share the weights. `shapes` prepares a session now: it gives
    shapes of inputs by name, or sizes of named dimensions, {"ids": (1, 128)} or {"batch": 1, "tokens": 128}.

    Weights of products become sparse where their zeros are predicted to save time, unless `sparse` is false; `report`
    lists them, and `print` shows the list. Values that depend only on constants are computed while the model is read;
    they, padding, tables of indices and repeats have at most `most_computed` elements together, and computing them
    takes at most 32 times as many steps. Raises RuntimeError, naming the file, for a malformed file, and
    UnsupportedModelError, which lists all missing operators and where they are.
    """
    return InferenceSession(
        model, shapes=shapes, threads=threads, sparse=sparse, max_shapes=max_shapes, most_computed=most_computed
    )


@dataclass(eq=False)
class _Prepared:
    session: Session
    graph: Graph
    outputs: list[OnnxValue]
    layers: list[LayerReport]


class InferenceSession:
    """A model ready to run: see `load`. Calls may come from several threads, and take turns.

    `sess_options`, `providers` and `provider_options` are accepted as in ONNX Runtime, and have no effect.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: object = None,
        providers: Sequence[object] | None = None,
        provider_options: Sequence[object] | None = None,
        *,
        shapes: Mapping[str, Sequence[int] | int] | None = None,
        threads: int = 0,
        sparse: bool = True,
        max_shapes: int = 8,
        most_computed: int = 2**27,
    ) -> None:
        _require_options(sess_options, providers, provider_options)
        self._threads = checked_threads(threads)
        self._sparse = sparse
        self._most_computed = whole_number("most_computed", most_computed, 0, 2**40)
        self._most = whole_number("max_shapes", max_shapes, 1)
        if isinstance(path_or_bytes, (bytes, bytearray, memoryview)):
            self._model = OnnxModel.parse(bytes(path_or_bytes), "model", "")
        else:
            self._model = OnnxModel.read(os.fspath(path_or_bytes))
        self._inputs = self._model.inputs
        self._lock = Lock()
        self._sessions: OrderedDict[tuple[tuple[int, ...], ...], _Prepared] = OrderedDict()
        self._first: Session | None = None
        #: Conversions made while the model was read, such as the conversion of quantised weights.
        self.notes: list[str] = []
        #: For each layer, whether it is sparse, and why not. Empty until a session is prepared.
        self.report = SparsityReport(False, [])
        given = _listed(shapes)
        has_shapes = all(each.has_shape and all(isinstance(size, int) for size in each.shape) for each in self._inputs)
        if given or has_shapes:
            self._prepare(given)

    def get_inputs(self) -> list[ValueInfo]:
        """The inputs, in their order."""
        return [ValueInfo._of(each) for each in self._inputs]

    def get_outputs(self) -> list[ValueInfo]:
        """The outputs, in their order."""
        return [ValueInfo._of(each) for each in self._model.outputs]

    def get_modelmeta(self) -> ModelMetadata:
        """What the file says about the model, such as its exporter and the exporter's own metadata."""
        of = self._model.description
        return ModelMetadata(
            producer_name=of.producer,
            graph_name=of.graph_name,
            domain=of.domain,
            description=of.text,
            graph_description=of.graph_text,
            version=of.version,
            custom_metadata_map=of.properties,
        )

    def get_providers(self) -> list[str]:
        """The provider that computes, under ONNX Runtime's name: always the CPU, whatever providers were asked for."""
        return ["CPUExecutionProvider"]

    @property
    def operators(self) -> dict[str, int]:
        """The number of nodes of each operator in the model."""
        return self._model.operators

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, ArrayLike], run_options: object = None
    ) -> list[NDArray[Any]]:
        """Run once with arrays by the names of the inputs; return the outputs in `output_names` (None: all outputs), in
        order.

        Arrays of the input's type are used in place. Integers of 64 bits must fit in 32 bits. bfloat16, which NumPy
        does not have, is passed and returned as float32.
        """
        names = [each.name for each in self._model.outputs]
        if isinstance(output_names, str):
            raise TypeError(f"output_names is {output_names!r}; it is a list of names, or None for all outputs")
        for name in output_names or []:
            if name not in names:
                raise ValueError(f"there is no output {name!r}; the outputs are {', '.join(names)}")
        arrays = self._arrays(input_feed)
        prepared = self._for(arrays)
        results = prepared.session.outputs_of(dict(arrays))
        types = {each.name: each.dtype for each in prepared.outputs}
        return [_as_type(results[name], types[name]) for name in output_names or types]

    def prepared_shapes(self) -> dict[str, tuple[int, ...]] | None:
        """The shapes of inputs for which a session was last prepared or run; None before the first session."""
        with self._lock:
            last = next(reversed(self._sessions), None)
        return None if last is None else {each.name: shape for each, shape in zip(self._inputs, last, strict=True)}

    def predicted_seconds(self) -> dict[str, float]:
        """Predicted seconds of a run with `prepared_shapes`, by kind of operation; empty before the first session."""
        last = self._last()
        return {} if last is None else last.session._native.cost().seconds_by_kind

    def _last(self) -> _Prepared | None:
        with self._lock:
            return next(reversed(self._sessions.values()), None)

    def to_json(self) -> dict[str, Any]:
        """The printed information for `json.dumps`: layers, the predicted time of a run, also by kind, and notes.

        It describes `prepared_shapes`; before the first session there are no layers, and the time is None.
        """
        last = self._last()
        cost = None if last is None else last.session._native.cost()
        return {
            **SparsityReport(False, [] if last is None else last.layers).to_json(),
            "predicted_seconds": None if cost is None else cost.seconds,
            "seconds_by_kind": {} if cost is None else cost.seconds_by_kind,
            "notes": self.notes,
        }

    def measure(self, input_feed: Mapping[str, ArrayLike]) -> Estimate:
        """Run once, and return where the time went, and the form of each layer; the outputs are discarded."""
        arrays = self._arrays(input_feed)
        prepared = self._for(arrays)
        estimate = prepared.session.measure(**arrays)
        estimate.layers = prepared.layers
        return estimate

    def estimate(self, shapes: Mapping[str, Sequence[int] | int] | None = None, machine: Any = "host") -> Estimate:
        """The cost of a run with inputs of these shapes on a machine, without running it."""
        imported = self._imported(_listed(shapes))
        layers = [_report_of(each) for each in imported.layers]
        estimate = Graph._of(imported.take_graph()).estimate(machine)
        estimate.layers = layers
        return estimate

    def _imported(self, shapes: dict[str, list[int]]) -> Any:
        return self._model.imported(shapes, self._sparse, self._threads, self._most_computed)

    def _arrays(self, feed: Mapping[str, ArrayLike]) -> dict[str, Any]:
        names = [each.name for each in self._inputs]
        if not isinstance(feed, Mapping):
            raise TypeError(f"input_feed is a {type(feed).__name__}; it is a dict of arrays by the names of inputs")
        unknown, missing = [each for each in feed if each not in names], [each for each in names if each not in feed]
        if unknown or missing:
            what = f"there is no input {unknown[0]!r}" if unknown else f"the input {missing[0]!r} is missing"
            raise ValueError(f"{what}; the inputs are {', '.join(names) or 'none'}")
        return {each.name: _as_input(feed[each.name], each) for each in self._inputs}

    def _for(self, arrays: dict[str, Any]) -> _Prepared:
        key = tuple(tuple(map(int, np.shape(arrays[each.name]))) for each in self._inputs)
        with self._lock:
            prepared = self._sessions.get(key)
            if prepared is not None:
                self._sessions.move_to_end(key)
                return prepared
            return self._prepare({each.name: list(shape) for each, shape in zip(self._inputs, key, strict=True)})

    def _prepare(self, shapes: dict[str, list[int]]) -> _Prepared:
        for name, shape in shapes.items():
            for size in shape:
                whole_number(f"a size of {name!r}", size, 1, 2**32 - 1)
        imported = self._imported(shapes)
        key = tuple(tuple(int(size) for size in each.shape) for each in imported.inputs)
        self.notes = imported.notes
        layers = [_report_of(each) for each in imported.layers]
        self.report = SparsityReport(False, layers)
        outputs = imported.outputs
        graph = Graph._of(imported.take_graph())
        session = self._session(graph)
        graph.native.drop_initial_values()
        with self._lock:
            self._sessions[key] = prepared = _Prepared(session, graph, outputs, layers)
            if len(self._sessions) > self._most:
                self._sessions.popitem(last=False)
        return prepared

    def _session(self, graph: Graph) -> Session:
        """A session with the weights of the first session, if that has all of them."""
        with self._lock:
            if self._first is not None:
                if {value.name for value in graph.parameters} <= set(self._first._native.parameters):
                    return graph.session(share=self._first)
            session = graph.session("host", threads=self._threads)
            if self._first is None:
                self._first = session
            return session

    def __str__(self) -> str:
        seconds = self.predicted_seconds()
        notes = [f"note: {each}" for each in self.notes]
        return "\n".join([str(self.report), *([kinds_text(seconds)] if seconds else []), *notes])

    def __repr__(self) -> str:
        return f"<InferenceSession({', '.join(map(repr, self._inputs))}) -> ({', '.join(map(repr, self._model.outputs))})>"


def _listed(shapes: Mapping[str, Sequence[int] | int] | None) -> dict[str, list[int]]:
    """Shapes of inputs and sizes of dimensions by name, as lists."""
    return {name: [size] if isinstance(size, int) else list(size) for name, size in (shapes or {}).items()}


def _require_options(sess_options: object, providers: object, provider_options: object) -> None:
    """Raise TypeError for arguments that ONNX Runtime does not take, such as shapes in place of options."""
    if isinstance(sess_options, (Mapping, int)):
        raise TypeError(f"sess_options is {sess_options!r}: give shapes= and threads= by name, or use tessera.onnx.load()")
    for name, given in (("providers", providers), ("provider_options", provider_options)):
        if given is not None and (isinstance(given, str) or not isinstance(given, Sequence)):
            raise TypeError(f"{name} is {given!r}; it is a list, as for ONNX Runtime")


def _report_of(layer: Any) -> LayerReport:
    zeros = layer.zeros
    b = zeros.best_block_size or 1
    density = next((each.density for each in zeros.blocks if each.block_size == b), 1.0)
    dense = math.nan if zeros.dense_seconds is None else zeros.dense_seconds
    sparse = math.nan if zeros.sparse_seconds is None else zeros.sparse_seconds
    stored = density if layer.is_sparse else 1.0 if zeros.blocks else zeros.density
    shape = tuple(zeros.shape)
    times = (dense, sparse, b, layer.rows, layer.copy_bytes)
    return LayerReport(layer.name, shape, stored, layer.is_sparse, layer.why_dense, *times)


def _as_input(array: Any, value: OnnxValue) -> Any:
    """The array as a session takes it; the session checks shapes."""
    if hasattr(array, "detach"):
        array = array.detach()
        if value.dtype == "bfloat16":
            return array
        array = array.numpy()
    given = np.asarray(array)
    if given.dtype.name == "bfloat16":
        given = given.astype(np.float32)
    is_float, is_truth = value.dtype.startswith(("float", "bfloat")), value.dtype == "bool"
    if given.dtype.kind not in "fiub" or (not is_truth and is_float != (given.dtype.kind == "f")):
        raise ValueError(f"the input {value.name!r} is of {value.dtype}; given are numbers of {given.dtype}")
    if is_truth:
        return (given != 0).astype(np.float32)
    if is_float:
        return given.astype(np.float32) if given.dtype == np.float64 else given
    declared = np.iinfo(value.dtype)
    kept = np.iinfo("uint32" if declared.min == 0 else "int32")  # sessions have integers of 32 bits
    least, most = max(declared.min, kept.min), min(declared.max, kept.max)
    if given.size and not (least <= int(given.min()) and int(given.max()) <= most):
        raise ValueError(
            f"the input {value.name!r} is of {value.dtype}; given are integers from {given.min()} to {given.max()}"
            + (": those beyond 32 bits are not possible, keep them out of the model" if declared.bits == 64 else "")
        )
    is_taken = given.dtype in (np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint32))
    return given if is_taken else given.astype(np.int64)


def _as_type(result: NDArray[Any], dtype: str) -> NDArray[Any]:
    if dtype == "bool":
        return np.asarray(result != 0)
    return result if dtype == "bfloat16" else result.astype(dtype, copy=False)


if __name__ == "__main__":
    from tessera._onnx_benchmark import main

    main()
