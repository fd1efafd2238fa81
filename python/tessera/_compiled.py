"""Whole models that run without PyTorch."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tessera import _tessera
from tessera._arguments import checked_threads
from tessera._layers import SparsityReport, kinds_text
from tessera._locks import Lock
from tessera._matrices import is_tensor, why_not_dense
from tessera.graph._estimate import Estimate
from tessera.graph._graph import Graph
from tessera.graph._session import Session

if TYPE_CHECKING:
    from tessera._tensor_calls import TensorCalls

_INTEGERS = ("int64", "int32", "uint32")
_TEXT = "tessera_model"  # the entry of a file that holds everything besides graphs
_VERSION = 1

#: Types that arrays may have, and their types in NumPy.
_DTYPES = {
    "bfloat16": np.dtype("float32"),
    **{name: np.dtype(name) for name in "float32 float16 bool uint8 int8 int16 int32 uint32 int64".split()},
}

#: Types that inputs may have, under PyTorch's names.
TAKEN = frozenset({"float32", "float16", "bfloat16", "bool", "int64", "int32", "uint32"})

Shapes = tuple[tuple[int, ...], ...]


class Outputs(dict[str, Any]):
    """Results by name, also available as attributes; a number selects a result by position, as in `transformers`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the model has no output {name!r}: it has {', '.join(self)}") from None

    def __getitem__(self, key: Any) -> Any:
        return self.to_tuple()[key] if isinstance(key, (int, slice)) else super().__getitem__(key)

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(self.values())


# Structures of arguments and results: an array is its number, a container is ["tuple", [part, …]], ["list", …],
# ["dict", {name: part}], ["outputs", …] or, for a tuple with names, ["named", …], and anything else is ["value", it].

_WITH_NAMES = ("dict", "named", "outputs")


def leaves_of(given: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The parts of an argument and their paths, in the order of PyTorch's pytrees."""
    if isinstance(given, (tuple, list)):
        for i, each in enumerate(given):
            yield from leaves_of(each, f"{path}[{i}]")
    elif isinstance(given, dict):
        for name, each in given.items():
            yield from leaves_of(each, f"{path}[{name!r}]")
    else:
        yield path, given


def _numbers_in(structure: Any) -> Iterator[int]:
    if type(structure) is int:
        yield structure
        return
    kind, parts = structure
    if kind not in ("value", "tuple", "list", *_WITH_NAMES):
        raise ValueError(f"results cannot be a {kind!r}")
    if kind != "value":
        for each in parts.values() if kind in _WITH_NAMES else parts:
            yield from _numbers_in(each)


@functools.cache
def _named_tuple(names: tuple[str, ...]) -> Any:
    make: Any = collections.namedtuple
    return make("Results", names)


def assemble(structure: Any, arrays: Sequence[Any]) -> Any:
    if isinstance(structure, int):
        return arrays[structure]
    kind, parts = structure
    if kind == "value":
        return parts
    if kind in ("tuple", "list"):
        built = [assemble(each, arrays) for each in parts]
        return tuple(built) if kind == "tuple" else built
    named = {name: assemble(each, arrays) for name, each in parts.items()}
    if kind == "named":
        return _named_tuple(tuple(named))(*named.values())
    return Outputs(named) if kind == "outputs" else named


@dataclass(frozen=True)
class Argument:
    """A leaf of the arguments: an array, or a constant that the model was compiled for."""

    path: str
    input: int | None  # its number among the arrays
    value: Any = None


@dataclass(frozen=True)
class Size:
    """A dimension that may have several sizes: in inputs the size itself, in outputs `factor` · size + `more`."""

    name: str
    factor: int = 1
    more: int = 0


@dataclass
class Interface:
    """How a model is called, and what it returns."""

    names: list[str]  # of the arguments, in their order
    arguments: list[Argument]
    inputs: list[str]  # of the arrays, as graphs call them
    input_dtypes: list[str]  # of the arrays, as PyTorch calls them
    outputs: list[str]  # of the results, as graphs call them
    dtypes: list[str]  # of the results, as PyTorch calls them
    structure: Any  # of the results
    #: Sizes by array and dimension.
    input_sizes: dict[tuple[int, int], Size] = field(default_factory=dict)
    output_sizes: dict[tuple[int, int], Size] = field(default_factory=dict)
    #: The sizes to which arrays are padded with zeros, by name; without buckets, each size is prepared separately.
    buckets: dict[str, list[int]] = field(default_factory=dict)
    #: How many of the first names belong to positional arguments; None: all.
    positional: int | None = None

    @property
    def most_positional(self) -> int:
        return len(self.names) if self.positional is None else self.positional

    def arrays_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        if len(args) > self.most_positional:
            by_name = self.names[self.most_positional :]
            named = f" ({', '.join(by_name)} only by name)" if by_name else ""
            raise TypeError(f"{len(args)} arguments without names; the model takes {', '.join(self.names)}{named}")
        given = dict(zip(self.names, args, strict=False))
        for name, each in kwargs.items():
            if name not in self.names or name in given:
                problem = "is given twice" if name in given else f"is none of {', '.join(self.names)}"
                raise TypeError(f"the argument {name!r} {problem}")
            given[name] = each
        leaves = [leaf for name in self.names if name in given for leaf in leaves_of(given[name], name)]
        return self._checked(leaves)

    def _checked(self, leaves: list[tuple[str, Any]]) -> list[Any]:
        arrays: list[Any] = []
        found = dict(leaves)  # the leaves of a dict may come in any order
        for expected in self.arguments:
            if expected.input is None:
                value = found.pop(expected.path, None)
                if (type(value), repr(value)) != (type(expected.value), repr(expected.value)):
                    raise TypeError(f"{expected.path} is {value!r}; the model was compiled for {expected.value!r}")
                continue
            if expected.path not in found:
                of_other_kind = any(path.startswith(f"{expected.path}[") for path in found)
                what = "has parts; it must be an array or a tensor" if of_other_kind else "is missing"
                raise TypeError(f"the argument {expected.path} {what}")
            arrays.append(self._checked_array(expected.path, len(arrays), found.pop(expected.path)))
        for path in found:
            raise TypeError(f"the argument {path} is more than the model was compiled for")
        return arrays

    def _checked_array(self, path: str, i: int, array: Any) -> Any:
        """Convert NumPy arrays; refuse tensors of another type, as PyTorch does."""
        if not is_tensor(array):
            if array is None:
                raise TypeError(f"{path} is None; the model was compiled for {self.input_dtypes[i]}: give an array")
            array = np.asarray(array)
            if (self.input_dtypes[i] == "bool") != (array.dtype == np.bool_):  # sessions represent truth values as numbers
                raise TypeError(f"{path} is {array.dtype}; the model was compiled for {self.input_dtypes[i]}")
            return array.astype(np.int32) if array.dtype.kind in "iu" and array.dtype.itemsize < 4 else array
        if array.device.type != "cpu":
            raise ValueError(f"{path} is on {array.device}; the model computes on the CPU: give it there")
        if not _has_values(array):
            raise TypeError(
                f"{path} is a {type(array).__name__} without values of its own: compiled models run, and cannot be traced, "
                "or mapped by torch.vmap"
            )
        if problem := why_not_dense(array):
            raise TypeError(f"{path} {problem}")
        expected, dtype = self.input_dtypes[i], str(array.dtype).removeprefix("torch.")
        are_integers = dtype in _INTEGERS and expected in _INTEGERS
        if dtype != expected and not are_integers:
            raise TypeError(f"{path} is {dtype}; the model was compiled for {expected}")
        if array.requires_grad and sys.modules["torch"].is_grad_enabled():
            raise TypeError(f"{path} requires gradients, which compiled models lack: detach it, or use torch.no_grad()")
        return array.detach()

    def sizes_of(self, shapes: Shapes) -> dict[str, int]:
        """Sizes by name; raises ValueError if a name has two sizes."""
        sizes: dict[str, int] = {}
        for (i, dim), size in self.input_sizes.items():
            if dim >= len(shapes[i]):
                raise ValueError(f"{self.inputs[i]} has shape {shapes[i]}; its dimension {dim} is {size.name!r}")
            now = shapes[i][dim]
            if sizes.setdefault(size.name, now) != now:
                raise ValueError(f"{size.name!r} is {sizes[size.name]} and, in dimension {dim} of {self.inputs[i]}, {now}")
        return sizes

    def padded(self, sizes: dict[str, int]) -> dict[str, int]:
        return {name: self._bucket(name, size) for name, size in sizes.items()}

    def _bucket(self, name: str, size: int) -> int:
        buckets = self.buckets.get(name)
        if not buckets:
            if size < 1:
                raise ValueError(f"{name!r} is {size}; a compiled model computes sizes from 1: call it for these only")
            return size
        fitting = [each for each in buckets if each >= size]
        if not fitting:
            raise ValueError(f"{name!r} is {size}; the largest bucket is {max(buckets)}")
        return min(fitting)

    def to_json(self) -> dict[str, Any]:
        json = dataclasses.asdict(self)
        for name in ("input_sizes", "output_sizes"):
            json[name] = [[*place, dataclasses.astuple(size)] for place, size in getattr(self, name).items()]
        return json

    @staticmethod
    def from_json(json: dict[str, Any]) -> Interface:
        arguments = [Argument(**each) for each in json["arguments"]]
        sizes = {
            name: {(i, dim): Size(*size) for i, dim, size in json[name]} for name in ("input_sizes", "output_sizes")
        }
        interface = Interface(**{**json, "arguments": arguments, **sizes})
        numbers = [each.input for each in arguments if each.input is not None]
        places = [
            (i, dim, len(arrays))
            for of, arrays in ((interface.input_sizes, interface.inputs), (interface.output_sizes, interface.outputs))
            for i, dim in of
        ]
        checks = {
            "arguments": sorted(numbers) == list(range(len(interface.inputs))) == list(range(len(numbers))),
            "types": len(interface.input_dtypes) == len(interface.inputs)
            and len(interface.dtypes) == len(interface.outputs)
            and {*interface.dtypes} <= _DTYPES.keys()
            and {*interface.input_dtypes} <= TAKEN,
            "results": all(0 <= each < len(interface.outputs) for each in _numbers_in(interface.structure)),
            "sizes": all(type(i) is type(dim) is int and 0 <= i < count and dim >= 0 for i, dim, count in places),
            "names": interface.positional is None or 0 <= interface.positional <= len(interface.names),
            "buckets": all(sizes and all(type(each) is int for each in sizes) for sizes in interface.buckets.values()),
        }
        for what, is_right in checks.items():
            if not is_right:
                raise ValueError(f"its {what} do not fit together")
        return interface


@dataclass(eq=False)
class Prepared:
    """A session for some sizes."""

    session: Session
    graph: Graph
    #: The number of its last call, counted over all sessions.
    call: int


def _has_other_shapes(prepared: Prepared, given: dict[str, Any]) -> bool:
    graph = prepared.graph.native
    shapes = {name: tuple(array.shape) for name, array in given.items() if graph.contains(name)}
    return any(tuple(graph.shape(graph.find(name))) != shape for name, shape in shapes.items())


class CompiledModel:
    """A model compiled for the host: call it like the original module.

    Arguments are NumPy arrays or PyTorch's CPU tensors; if one is a tensor, results are tensors. Parameters are copies.
    Calls may come from several threads, and take turns. `print(model)` shows the form of each layer, and where the time
    is predicted to go.
    """

    def __init__(
        self,
        interface: Interface,
        report: SparsityReport,
        *,
        threads: int = 0,
        most_shapes: int = 8,
        make: Callable[[dict[str, int]], Graph] | None = None,
        verify: Callable[[CompiledModel, dict[str, int]], None] | None = None,
        follow: Callable[..., None] | None = None,
    ) -> None:
        self.interface = interface
        #: For each layer, whether it is sparse, and why not.
        self.report = report
        self._threads = threads
        combined = math.prod(map(len, interface.buckets.values()))
        self._most_shapes = max(most_shapes, combined)
        self._make = make
        #: Raises ValueError if a model gives other results than the module in these buckets.
        self._verify = verify
        self._follow = follow
        self._lock = Lock()
        self._first: Session | None = None
        self._last_sizes: dict[str, int] = {}
        self._sessions: dict[tuple[tuple[str, int], ...], Prepared] = {}
        self._numbers = itertools.count(1)
        #: Short calls with tensors only.
        self._tensor_calls: TensorCalls | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._follow is not None:
            self._follow(self)
        calls = self._tensor_calls
        results = None if calls is None else calls.run(args, kwargs)
        if results is None:
            results = self._results(self.interface.arrays_of(args, kwargs))
        return assemble(self.interface.structure, results)

    def _results(self, arrays: list[Any]) -> list[Any]:
        if arrays and not any(is_tensor(each) for each in arrays):
            return self._run(arrays)
        if self._tensor_calls is None:
            from tessera._tensor_calls import TensorCalls

            self._tensor_calls = TensorCalls(self.interface, self._numbers)
        results = self._run(arrays)
        return [_tensor(array, dtype) for array, dtype in zip(results, self.interface.dtypes, strict=True)]

    def refresh(self) -> None:
        """Read all weights again, and compile the present module: for changes that calls do not see at once."""
        if self._follow is not None:
            self._follow(self, changed=True)

    def _prepared(self, arrays: list[Any]) -> tuple[Prepared, dict[str, Any], dict[str, int] | None]:
        """A session, its arrays by name, and the sizes to which results are cut back."""
        sizes = self.interface.sizes_of(tuple(tuple(each.shape) for each in arrays))
        padded = self.interface.padded(sizes)
        if padded != sizes:
            arrays = [self._pad(i, array, padded) for i, array in enumerate(arrays)]
        given = dict(zip(self.interface.inputs, arrays, strict=True))
        return self.prepare(padded), given, None if padded == sizes else sizes

    def _run(self, arrays: list[Any]) -> list[Any]:
        prepared, given, sizes = self._prepared(arrays)
        try:
            named = prepared.session.outputs_of(given)
        except ValueError as error:
            if not _has_other_shapes(prepared, given):
                raise
            raise ValueError(f"{error}; name sizes that vary in dynamic_shapes= when the model is compiled") from None
        if self._tensor_calls is not None and sizes is None:
            with self._lock:
                if prepared in self._sessions.values():
                    self._tensor_calls.add(prepared, arrays)
        outputs = [
            array if array.dtype == (held := _DTYPES[dtype]) else array.astype(held)
            for array, dtype in zip((named[name] for name in self.interface.outputs), self.interface.dtypes, strict=True)
        ]
        return outputs if sizes is None else [self._crop(i, each, sizes) for i, each in enumerate(outputs)]

    def _pad(self, i: int, array: Any, sizes: dict[str, int]) -> Any:
        shape = list(array.shape)
        for dim in range(len(shape)):
            if (size := self.interface.input_sizes.get((i, dim))) is not None:
                shape[dim] = sizes[size.name]
        padded = array.new_zeros(shape) if is_tensor(array) else np.zeros(shape, array.dtype)
        padded[tuple(slice(size) for size in array.shape)] = array
        return padded

    def _crop(self, i: int, array: Any, sizes: dict[str, int]) -> Any:
        kept = [slice(None)] * array.ndim
        for dim in range(array.ndim):
            if (size := self.interface.output_sizes.get((i, dim))) is not None:
                kept[dim] = slice(sizes[size.name] * size.factor + size.more)
        return array[tuple(kept)]

    def prepare(self, sizes: dict[str, int]) -> Prepared:
        """The session for these sizes, made and verified if there is none yet. All sessions share the weights."""
        key = tuple(sorted(sizes.items()))
        with self._lock:
            prepared = self._sessions.get(key)
            if prepared is not None:
                prepared.call = next(self._numbers)
                return prepared
            if self._make is None:
                known = "; ".join(", ".join(f"{name} {size}" for name, size in each) for each in self._sessions)
                asked = ", ".join(f"{name} {size}" for name, size in key)
                raise ValueError(f"the file has the model for {known}, not for {asked}: compile it for these and save it")
            if self._follow is not None:
                self._follow(self, fully=True)  # weights are shared, and compared with their present values from now on
            prepared = self.add(key, self._make(sizes))
            try:
                if self._verify is not None:
                    self._verify(self, sizes)
            except BaseException:  # interruptions too: no session is kept that was not checked
                self._sessions.pop(key, None)
                if self._first is prepared.session:
                    self._first = None
                self._forget_calls()
                raise
            return prepared

    @property
    def first(self) -> Session:
        """The session that owns the weights of all sessions."""
        if self._follow is not None:
            self._follow(self)
        if self._first is None:
            self.prepare(self._last_sizes)
        assert self._first is not None
        return self._first

    def restart(self) -> None:
        """Forget all sessions: the next call prepares one."""
        with self._lock:
            last = max(self._sessions.items(), key=lambda item: item[1].call, default=None)
            if last is not None:
                self._last_sizes = dict(last[0])
            self._sessions.clear()
            self._first = None
            self._forget_calls()

    def add(self, key: tuple[tuple[str, int], ...], graph: Graph) -> Prepared:
        if self._first is None:
            session = self._first = graph.session("host", threads=self._threads)
        else:
            session = graph.session(share=self._first)
        graph.native.drop_initial_values()
        self._sessions[key] = prepared = Prepared(session, graph, next(self._numbers))
        # The first session holds the weights of all sessions. The new one, which is called next, stays too.
        others = [each for each, of in self._sessions.items() if each != key and of.session is not self._first]
        if others and len(self._sessions) > self._most_shapes:
            del self._sessions[min(others, key=lambda each: self._sessions[each].call)]
            self._forget_calls()
        return prepared

    def _forget_calls(self) -> None:
        if self._tensor_calls is not None:
            self._tensor_calls.clear()

    def measure(self, *args: Any, **kwargs: Any) -> Estimate:
        """Run once, and return where the time went, and the form of each layer; the outputs are discarded."""
        if self._follow is not None:
            self._follow(self)
        prepared, given, _ = self._prepared(self.interface.arrays_of(args, kwargs))
        estimate = prepared.session.measure(**given)
        estimate.layers = list(self.report.layers)
        return estimate

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the model in one file, for all buckets and for the sizes with which it has been called.

        `tessera.load` reads it, without PyTorch.
        """
        if self._follow is not None:
            self._follow(self, fully=True)
        first = self.first
        buckets = self.interface.buckets
        if buckets and buckets.keys() == {size.name for size in self.interface.input_sizes.values()}:
            for sizes in itertools.product(*buckets.values()):
                self.prepare(dict(zip(buckets, sizes, strict=True)))
        with self._lock:
            text = {
                "version": _VERSION,
                "interface": self.interface.to_json(),
                "report": self.report.to_json(),
                "sizes": [list(map(list, key)) for key in self._sessions],
            }
            graphs = [each.graph.native for each in self._sessions.values()]
            sessions = [first._native, *(each.session._native for each in self._sessions.values())]
            _tessera.save_graphs(os.fspath(path), graphs, {_TEXT: json.dumps(text)}, sessions)

    def __reduce__(self) -> Any:
        raise TypeError("a compiled model cannot be copied or pickled: save() it, and tessera.load() it where it is needed")

    def predicted_seconds(self) -> dict[str, float]:
        """Predicted seconds of a call, by kind of operation.

        Kinds are products, convolutions, attention, elementwise operations, conversions of layouts, and others.
        """
        return self.first._native.cost().seconds_by_kind

    def to_json(self) -> dict[str, Any]:
        """The printed information, for `json.dumps`: the report, and the predicted time of a call, also by kind."""
        cost = self.first._native.cost()
        return {**self.report.to_json(), "predicted_seconds": cost.seconds, "seconds_by_kind": cost.seconds_by_kind}

    def __str__(self) -> str:
        return f"{self.report}\n{kinds_text(self.predicted_seconds())}"

    def __repr__(self) -> str:
        layers = self.report.layers
        sparse = sum(each.is_sparse for each in layers)
        return f"<CompiledModel({', '.join(self.interface.names)}): {sparse} of {len(layers)} layers sparse>"


def load(path: str | os.PathLike[str], *, threads: int = 0) -> CompiledModel:
    """Load a model that `CompiledModel.save` wrote, and prepare it for the host."""
    path = os.fspath(path)
    graphs, texts = _tessera.load_graphs(path)
    try:
        text = json.loads(texts[_TEXT])
        if text["version"] != _VERSION:
            raise ValueError(f"its version is {text['version']}, not {_VERSION}: compile and save it again")
        interface, report = Interface.from_json(text["interface"]), SparsityReport.from_json(text["report"])
        keys = [tuple((str(name), int(size)) for name, size in key) for key in text["sizes"]]
        if len(set(keys)) != len(graphs) or not graphs:
            raise ValueError(f"{len(graphs)} graphs for {len(set(keys))} sizes")
        for native in graphs:
            kept = {value.name for value in Graph._of(native).inputs}
            if kept != set(interface.inputs) or not set(interface.outputs) <= native.outputs().keys():
                raise ValueError("its graphs have other inputs or outputs")
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise RuntimeError(f"{path}: it holds no compiled model: {error}") from error
    model = CompiledModel(interface, report, threads=checked_threads(threads), most_shapes=len(graphs))
    for key, native in zip(keys, graphs, strict=True):
        model.add(key, Graph._of(native))
    return model


def _has_values(tensor: Any) -> bool:
    from torch._C._functorch import is_functorch_wrapped_tensor
    from torch._subclasses.fake_tensor import FakeTensor

    return not isinstance(tensor, FakeTensor) and not is_functorch_wrapped_tensor(tensor)


def _tensor(array: Any, dtype: str) -> Any:
    import torch

    tensor = torch.from_numpy(np.asarray(array, order="C"))
    return tensor.to(torch.bfloat16) if dtype == "bfloat16" else tensor
