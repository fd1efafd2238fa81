"""Short calls of compiled models: with tensors that need no conversion, results in tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tessera.graph._values import INTEGERS

if TYPE_CHECKING:
    from tessera._compiled import Interface, Prepared
    from tessera.graph._session import Session

#: Types of result tensors, by the type of values; and the type of values, by the type of given tensors.
_TYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i32": torch.int32,
    "u32": torch.uint32,
}
_HELD = {**{dtype: name for name, dtype in _TYPES.items()}, torch.int64: "i32", torch.bool: "f32"}
_CPU = torch.device("cpu")
_STRIDED = torch.strided


class TensorCalls:
    """The calls of a model that takes only tensors, by their shapes."""

    def __init__(self, interface: Interface, numbers: Iterator[int]) -> None:
        self._interface = interface
        self._numbers = numbers
        self._names, self._most_positional = interface.names, interface.most_positional
        self._dtypes = [getattr(torch, dtype) for dtype in interface.input_dtypes]
        plain = [(name, i) for i, name in enumerate(interface.names)]
        self._is_possible = [(each.path, each.input) for each in interface.arguments] == plain
        self._calls: dict[tuple[torch.Size, ...], _TensorCall] = {}

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor] | None:
        """Run the model; None for shapes that were not called yet, and arguments that need conversion."""
        if not self._calls or len(args) > self._most_positional:
            return None
        if (tensors := self._tensors(args, kwargs)) is None:
            return None
        call = self._calls.get(tuple([each.shape for each in tensors]))
        if call is None:
            return None
        call.prepared.call = next(self._numbers)
        return call(tensors)

    def add(self, prepared: Prepared, arrays: list[Any]) -> None:
        """Let the next call with tensors of these shapes be a short one, if possible."""
        if self._is_possible and (tensors := self._tensors(tuple(arrays), {})) is not None:
            if _takes(prepared.session, self._interface, tensors):
                self._calls[tuple([each.shape for each in tensors])] = _TensorCall(prepared, self._interface)

    def clear(self) -> None:
        self._calls.clear()

    def _tensors(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor] | None:
        """Contiguous tensors in the order of arguments; None if they are anything but CPU tensors of the expected types."""
        names = self._names
        if len(args) + len(kwargs) != len(names):
            return None
        given = [*args, *(kwargs.get(name) for name in names[len(args) :])] if kwargs else list(args)
        for i, (x, dtype) in enumerate(zip(given, self._dtypes, strict=True)):
            if (
                type(x) is not Tensor
                or x.dtype is not dtype
                or not x.is_cpu
                or x.layout is not _STRIDED
                or x.is_nested
                or x.is_neg()
                or (x.requires_grad and torch.is_grad_enabled())
            ):
                return None
            if not x.is_contiguous():
                given[i] = x.contiguous()
        return given


def _takes(session: Session, interface: Interface, tensors: list[Tensor]) -> bool:
    graph = session._graph
    expected = {name: (tuple(each.shape), each.dtype) for name, each in zip(interface.inputs, tensors, strict=True)}
    for name in session._native.inputs:
        id = graph.find(name)
        shape, dtype = expected[name]
        if shape != tuple(graph.shape(id)) or _HELD.get(dtype) != graph.dtype(id):
            return False
    return True


class _TensorCall:
    """A session as it is called with tensors of its shapes."""

    def __init__(self, prepared: Prepared, interface: Interface) -> None:
        self.prepared = prepared
        self._native, graph = prepared.session._native, prepared.session._graph
        #: For each of the session's inputs the number of the argument.
        self._order = [interface.inputs.index(name) for name in self._native.inputs]
        #: Booleans are passed as numbers.
        self._truths = [i for i, dtype in enumerate(interface.input_dtypes) if dtype == "bool"]
        self._wide = [(i, *INTEGERS["i32"]) for i, at in enumerate(self._order) if interface.input_dtypes[at] == "int64"]
        ids = graph.outputs()
        names = list(self._native.outputs)
        places = [torch.empty(tuple(graph.shape(ids[name])), device="meta") for name in names]
        #: Shape, strides and type of each of the session's outputs.
        self._outputs = [
            (each.shape, each.stride(), _TYPES[graph.dtype(ids[name])]) for name, each in zip(names, places, strict=True)
        ]
        #: For each result the number of the output and, if it is converted, its type.
        self._results: list[tuple[int, torch.dtype | None]] = []
        for name, dtype in zip(interface.outputs, interface.dtypes, strict=True):
            i, wanted = names.index(name), getattr(torch, dtype)
            self._results.append((i, None if self._outputs[i][2] is wanted else wanted))

    def __call__(self, tensors: list[Tensor]) -> list[Tensor] | None:
        """Results; None for tensors without memory of their own, as under `torch.vmap`."""
        for i in self._truths:
            tensors[i] = tensors[i].to(torch.float32)
        outputs = [
            torch.empty_strided(shape, strides, dtype=dtype, device=_CPU) for shape, strides, dtype in self._outputs
        ]
        try:
            addresses = [tensors[i].data_ptr() for i in self._order]
        except RuntimeError:
            return None
        addresses += [each.data_ptr() for each in outputs]
        self._native.run_at(addresses, self._wide)
        return [outputs[i] if dtype is None else outputs[i].to(dtype) for i, dtype in self._results]
