"""Graphs of PyTorch's operators as graphs of operations."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tessera.graph import _aten
from tessera.graph import _aten_products as _aten_products  # more handlers
from tessera.graph import _aten_shapes as _aten_shapes
from tessera.graph import _structured as _structured
from tessera.graph._aten import Call, Constant
from tessera.graph._graph import Graph
from tessera.graph._values import Form, Value


@dataclass(frozen=True)
class Missing:
    """An operation of a module that a graph lacks."""

    #: As PyTorch calls it: "aten.group_norm.default".
    operator: str
    #: The path and the class of the module that applies it: "encoder.norm (GroupNorm)".
    module: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operator} in {self.module}: {self.reason}"


class Conversion:
    """A graph that is made of nodes of FX, one by one.

    Whoever makes it says what placeholders are, in `known`: values of `graph`, parameters, constants, or numbers.
    """

    def __init__(self, form: Form = "fused") -> None:
        self.graph = Graph()
        #: What nodes are; None or a stand-in where the graph lacks an operation.
        self.known: dict[torch.fx.Node, Any] = {}
        #: The nodes whose operations the graph lacks.
        self.missing: dict[torch.fx.Node, Missing] = {}
        self._form: Form = form

    def apply(self, node: torch.fx.Node) -> None:
        """Add the operation of a node, whose inputs are known."""
        self.known[node] = self._applied(node)

    def lacks(self, node: torch.fx.Node, reason: str) -> Any:
        """Note that the graph lacks an operation; returns what stands in for its result."""
        self.missing[node] = Missing(str(node.target), _place_of(node), reason)
        return self._stand_in(node.meta.get("val"))

    def _applied(self, node: torch.fx.Node) -> Any:
        if node.target is operator.getitem:
            known, index = self.known[node.all_input_nodes[0]], int(node.args[1])  # type: ignore[arg-type]
            return known[index] if isinstance(known, (tuple, list)) and index < len(known) else None
        folded = self._folded(node)
        if folded is not None:
            return folded
        try:
            handler = _aten.HANDLERS.get(str(node.target))
            if handler is None:
                raise ValueError("there is no such operation")
            call = Call(self.graph, node, self.known, self._form)
            if call.lacks_input:
                return None
            result = handler(call, *call.args, **call.kwargs)
            self._name(result, node)
            return result
        except (TypeError, ValueError) as error:
            return self.lacks(node, str(error))

    def _folded(self, node: torch.fx.Node) -> Any:
        """What PyTorch computes of constants alone, such as masks and positions."""
        given = [self.known.get(argument) for argument in node.all_input_nodes]
        if not all(isinstance(each, Constant) for each in given) or not isinstance(node.target, torch._ops.OpOverload):
            return None
        if torch.Tag.nondeterministic_seeded in node.target.tags or node.target._schema.is_mutable:
            return None
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: self.known[each].tensor)
        result = node.target(*args, **kwargs)
        if isinstance(result, (tuple, list)):
            return [Constant(self.graph, each) for each in result]
        return Constant(self.graph, result) if isinstance(result, Tensor) else None

    def _name(self, result: Any, node: torch.fx.Node) -> None:
        """Name what an operation computes after its module, for reports."""
        if not isinstance(result, Value) or not result.name.startswith("%"):
            return
        path = _module_of(node)[0]
        for name in (path, f"{path}.{node.name}".lstrip(".")):
            if name and not self.graph.native.contains(name):
                result.name = name
                return

    def _stand_in(self, meaning: Any) -> Any:
        """A value of the shape of one that is missing, so that what follows can be checked."""
        if isinstance(meaning, (tuple, list)):
            return [self._stand_in(part) for part in meaning]
        try:
            name = f"missing {self.graph.native.size}"
            return self.graph.input(name, meaning.shape, _aten.type_of(meaning.dtype, allow_integers=True))
        except (AttributeError, TypeError, ValueError):
            return None


def _module_of(node: torch.fx.Node) -> tuple[str, str]:
    """Path and class of the module that applies an operation."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return "", ""
    path, kind = stack[-1]
    return path, kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]


def _place_of(node: torch.fx.Node) -> str:
    path, kind = _module_of(node)
    return f"{path or 'the module'} ({kind})" if kind else "the module"
