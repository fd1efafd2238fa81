"""A part of a graph as a session, and its calls."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.fx import GraphModule

from tessera._arguments import checked_threads
from tessera._backend._reasons import named
from tessera._backend._reports import dense
from tessera._backend._support import handle_of, limits_of
from tessera._backend._weights import Weight, WeightSet, WeightSets, state_of
from tessera._choice import least_seconds
from tessera._layers import LayerReport
from tessera._locks import Lock
from tessera.graph import _values as ops
from tessera.graph._aten import Constant, Transposed, value_of
from tessera.graph._conversion import Conversion
from tessera.graph._dense_weights import note_dense
from tessera.graph._parameters import type_of
from tessera.graph._session import Session
from tessera.graph._values import Truth, Value

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """The settings of `torch.compile(options=…)`."""

    #: The most threads that run; 0: the default.
    threads: int = 0
    #: Whether each part is timed when it is compiled, and left to PyTorch if that is faster.
    measure: bool = False
    #: Whether sessions also compute graphs that need gradients, forward and backward.
    training: bool = False

    def __post_init__(self) -> None:
        checked_threads(self.threads)
        for name in ("measure", "training"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} is {getattr(self, name)!r}; it must be True or False")


class _Array:
    """A tensor as a session takes or returns it: its elements in the order of their addresses."""

    def __init__(self, meaning: Tensor, *, is_result: bool = False) -> None:
        self.shape = tuple(meaning.shape)
        self.dtype = meaning.dtype
        self.stride = tuple(meaning.stride())
        #: Dimensions from the largest stride to the smallest.
        self.order = sorted(range(len(self.shape)), key=lambda d: (-self.stride[d], -self.shape[d]))
        if not self._is_dense():
            self.stride = tuple(torch.empty(self.shape, device="meta").stride())
            self.order = list(range(len(self.shape)))
        self.held = torch.float32 if self.dtype is torch.bool else self.dtype
        if is_result and self.dtype is torch.int64:
            self.held = torch.int32
        self.given_stride = tuple(meaning.stride())

    def _is_dense(self) -> bool:
        size = 1
        for dim in reversed(self.order):
            if self.shape[dim] > 1 and self.stride[dim] != size:
                return False
            size *= self.shape[dim]
        return True

    def input(self, conversion: Conversion, name: str) -> Value | Transposed:
        x = conversion.graph.input(name, [self.shape[d] for d in self.order], type_of(self.dtype, allow_integers=True))
        count = len(self.order)
        is_truth = self.dtype is torch.bool
        if count > 1 and self.order == [*range(count - 2), count - 1, count - 2] and not is_truth:
            return Transposed(x)
        x = x if self._is_in_order() else ops.permute(x, [self.order.index(d) for d in range(count)])
        return Truth(x.graph, x.id) if is_truth else x

    def output(self, value: Value) -> Value:
        if self.dtype is torch.bool:
            value = ops.cast(value, "f32")
        return value if self._is_in_order() else ops.permute(value, self.order)

    def _is_in_order(self) -> bool:
        return self.order == sorted(self.order)

    def taken(self, tensor: Tensor) -> Tensor:
        """The tensor with these strides and this type."""
        if self.dtype is not self.held:
            tensor = tensor.to(self.held)
        if tensor.stride() != self.stride:
            tensor = self.empty().copy_(tensor)
        return tensor

    def empty(self) -> Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.held)

    def given(self, tensor: Tensor) -> Tensor:
        """A result with PyTorch's type and strides."""
        if self.dtype is not self.held:
            tensor = tensor.to(self.dtype)
        if self.stride != self.given_stride:
            tensor = torch.empty_strided(self.shape, self.given_stride, dtype=self.dtype).copy_(tensor)
        return tensor


def _forms_of(name: str, weight: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """The forms of a weight in sessions: the weight, its transpose, and both of each matrix of a stack."""
    yield name, weight
    if weight.ndim == 2:
        yield f"{name}.transposed", weight.T
    elif weight.ndim == 3:
        for i, matrix in enumerate(weight):
            yield from _forms_of(f"{name}[{i}]", matrix)


def _is_of(form: str, weight: str) -> bool:
    """Whether the name of a form belongs to this weight."""
    return form == weight or form.startswith((f"{weight}.", f"{weight}["))


class Program:
    """A part of a graph, called with its inputs and then with the tensors that its weights are computed from.

    Calls may come from several threads. PyTorch computes parts for which making a session fails.
    """

    def __init__(
        self,
        body: GraphModule,
        weights: list[Weight],
        sets: WeightSets,
        settings: Settings,
        found: dict[str, LayerReport],
    ) -> None:
        self._body = body
        #: The reports on the weights of the graph, by name.
        self._found = found
        self._weights = weights
        self._sets = sets
        self._threads = settings.threads
        self._lock = Lock()
        placeholders = body.graph.find_nodes(op="placeholder")
        self._arrays = [_Array(node.meta["val"]) for node in placeholders]
        self._count = len(placeholders) - len(weights)
        (results,) = body.graph.output_node().args
        self._results = [_Array(node.meta["val"], is_result=True) for node in results]  # type: ignore[union-attr]
        #: Integer inputs, each with the smallest and the largest value that it may have.
        self._integers = [
            (i, *limits_of(node)) for i, node in enumerate(placeholders) if node.meta["val"].dtype is torch.int64
        ]
        #: A session whose weights are inputs.
        self._plain: Session | None = None
        self._is_measured = not settings.measure
        #: Whether PyTorch computes the part.
        self._is_left = False

    def __call__(self, *args: Tensor) -> list[Tensor]:
        if self._is_left:
            return self.by_pytorch(*args)
        try:
            if not self._is_measured:
                self._measure(*args)
            return self.by_session(*args)
        except Exception as error:
            failure = error
        results = self.by_pytorch(*args)  # raises an error if an input is wrong, such as an id without a row
        log.warning("a session failed: PyTorch computes its part from now on", exc_info=failure)
        self._leave("a session failed")
        return results

    def _measure(self, *args: Tensor) -> None:
        """Leave the part to PyTorch if PyTorch is faster."""
        jobs = [lambda: self.by_session(*args), lambda: self.by_pytorch(*args)]
        ours, theirs = (1e6 * seconds for seconds in least_seconds(jobs, rounds=4))
        if theirs < ours:
            self._leave("measured to be no faster")
        self._is_measured = True
        log.info("a part takes %.0f µs, and %.0f µs by PyTorch%s", ours, theirs, ", which keeps it" * self._is_left)

    def _leave(self, reason: str) -> None:
        """Let PyTorch compute the part from now on."""
        self._is_left = True
        for name, layer in list(self._found.items()):
            if self._weight_of(name) is not None:
                self._found[name] = replace(layer, is_sparse=False, reason=reason)

    def by_pytorch(self, *args: Tensor) -> list[Tensor]:
        inputs, sources = args[: self._count], args[self._count :]
        return list(self._body(*inputs, *(weight.of(sources) for weight in self._weights)))

    def by_session(self, *args: Tensor) -> list[Tensor]:
        inputs, sources = args[: self._count], args[self._count :]
        session = self._prepared(sources) if self._weights else None
        if session is None:
            if self._must_be_parameters:
                return self.by_pytorch(*args)
            session = self._plain = self._plain or self._made_plain()
            inputs += tuple(weight.of(sources) for weight in self._weights)
        taken = [array.taken(tensor) for array, tensor in zip(self._arrays, inputs, strict=False)]
        results = [array.empty() for array in self._results]
        addresses = [each.data_ptr() for each in (*taken, *results)]
        try:
            session._native.run_at(addresses, self._integers)
        except ValueError:
            if not self._integers:
                raise
            return self.by_pytorch(*args)  # its error names the id that has no row
        return [array.given(result) for array, result in zip(self._results, results, strict=True)]

    def _prepared(self, sources: Sequence[Tensor]) -> Session | None:
        """A session with these weights as parameters; None: weights are read in place."""
        state = state_of(sources)
        if state is None:
            return None
        known = self._sets.find(sources)
        if known is not None and known.state == state:
            known.compare_contents()
        if known is not None and known.state == state and self in known.sessions:
            known.calls += 1
            return known.sessions[self]
        with self._lock:
            known = known or self._sets.add(sources, state)
            if known is None or not (known.state == state and known.sessions or known.rests(state)):
                return None
            if known.state != state or not known.sessions:
                known.note_contents(sources)
            if known.state != state:
                self._refresh(known, sources)
                known.state = state
            if self not in known.sessions:
                known.sessions[self] = self._made(sources, known)
            return known.sessions[self]

    def _refresh(self, known: WeightSet, sources: Sequence[Tensor]) -> None:
        """Give the sessions these values, or forget the sessions if zeros have moved."""
        values = None if self._must_be_parameters else self._values(known, sources)
        if values is None:
            known.sessions.clear()
            known.choice.forget()
            return
        for session in list(known.sessions.values())[:1]:
            for name, array in values.items():
                session._native.set(name, array)

    @property
    def _must_be_parameters(self) -> bool:
        return any(weight.must_be_parameter for weight in self._weights)

    def _values(self, known: WeightSet, sources: Sequence[Tensor]) -> dict[str, Any] | None:
        """The values of each parameter of the sessions, by name; None if they do not fit the parameter's form."""
        names, *others = [set(session._native.parameters) for session in known.sessions.values()] or [set()]
        if any(not other <= names for other in others):
            return None  # a session has its own copy of a weight, in another form
        values: dict[str, Any] = {}
        for weight in self._weights:
            for name, array in _forms_of(weight.name, weight.of(sources).float().numpy()):
                if name in names:
                    values[name] = known.choice.values_of(name, array)
        return None if any(each is None for each in values.values()) else values

    def _made_plain(self) -> Session:
        reason = "it changes, or was made in inference mode"
        for weight in self._weights:
            log.info("%s: dense, as %s", named(weight.name, weight.place), reason)
        shapes = [array.shape for array in self._arrays[self._count :]]
        weights = zip(self._weights, shapes, strict=True)
        self._note(dense(weight.name, shape, math.nan, reason) for weight, shape in weights)
        return self._made(None)

    def _weight_of(self, form: str) -> Weight | None:
        return next((each for each in self._weights if _is_of(form, each.name)), None)

    def _named(self, layer: LayerReport) -> str:
        weight = self._weight_of(layer.name)
        return named(layer.name, "" if weight is None else weight.place)

    def _note(self, layers: Iterable[LayerReport]) -> None:
        """Replace the entries of weights in the graph's report."""
        for name in list(self._found):
            if self._weight_of(name) is not None:
                self._found.pop(name, None)
        for layer in layers:
            self._found[layer.name] = replace(layer, name=self._named(layer))

    def _report(self, layers: Sequence[LayerReport]) -> None:
        for layer in layers:
            rows = f", {layer.rows} rows" if layer.rows else ""
            what = f"{layer.shape[0]} × {layer.shape[1]}{rows}, density {layer.density:.3g}"
            chosen = layer.reason or f"sparse, predicted speed-up {layer.speedup:.1f}"
            log.info("%s, %s: %s", self._named(layer), what, chosen)

    def _made(self, sources: Sequence[Tensor] | None, known: WeightSet | None = None) -> Session:
        """A session with these weights as parameters, or with weights as inputs."""
        choice = None if known is None else known.choice
        considered = 0 if choice is None else len(choice.layers)
        conversion = Conversion(weights=choice)
        for i, node in enumerate(self._body.graph.nodes):
            if node.op == "placeholder":
                weight = self._weights[i - self._count] if i >= self._count else None
                if weight is None or sources is None:
                    conversion.known[node] = self._arrays[i].input(conversion, f"input{i}")
                else:
                    chosen = conversion.weights_of(node)
                    conversion.known[node] = handle_of(conversion, node, weight.name, weight.of(sources), chosen)
            elif node.op == "get_attr":
                conversion.known[node] = Constant(conversion.graph, getattr(self._body, str(node.target)))
            elif node.op == "output":
                for j, (array, each) in enumerate(zip(self._results, node.args[0], strict=True)):
                    value = array.output(value_of(conversion.known[each]))
                    conversion.graph.output(f"output{j:06}", value)
            else:
                conversion.apply(node)
        if conversion.missing:
            raise ValueError("; ".join(map(str, conversion.missing.values())))
        if choice is not None:
            note_dense(conversion.known, choice)
            self._report(choice.layers[considered:])
            known_before = [each for each in choice.layers[:considered] if self._weight_of(each.name) is not None]
            self._note([*known_before, *choice.layers[considered:]])
        owner = next(iter(known.sessions.values()), None) if known is not None else None
        return conversion.graph.session(threads=self._threads, share=owner)
