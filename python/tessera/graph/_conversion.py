"""Graphs of PyTorch's operators as graphs of operations."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from tessera.graph import _aten
from tessera.graph import _aten_losses as _aten_losses  # more handlers
from tessera.graph import _aten_products as _aten_products
from tessera.graph import _aten_reductions as _aten_reductions
from tessera.graph import _aten_shapes as _aten_shapes
from tessera.graph import _aten_training as _aten_training
from tessera.graph import _structured as _structured
from tessera.graph._aten import Call, Constant, as_known, sizes_of
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


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """What operators that a graph lacks consist of, as far as PyTorch says so."""
    # Further ones of torch._refs end in PyTorch's own primitives, which are no simpler.
    further = {
        target: function
        for target, function in decomposition_table.items()
        if not getattr(function, "__module__", "").startswith("torch._refs")
    }
    known = {**further, **torch.export.default_decompositions()}
    return {target: function for target, function in known.items() if str(target) not in _aten.HANDLERS}


def lacking(graph: torch.fx.Graph) -> set[Any]:
    """Operators that a graph lacks, but for those of constants, which PyTorch computes."""
    varies: set[torch.fx.Node] = set()
    found = set()
    for node in graph.nodes:
        if node.op == "placeholder" or any(each in varies for each in node.all_input_nodes):
            varies.add(node)
            if isinstance(node.target, torch._ops.OpOverload) and str(node.target) not in _aten.HANDLERS:
                found.add(node.target)
    return found


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
        if any(self.known.get(argument) is None for argument in node.all_input_nodes):
            return None
        folded = self._folded(node)
        if folded is not None:
            return folded
        try:
            handler = _aten.HANDLERS.get(str(node.target))
            if handler is None:
                raise ValueError("there is no such operation")
            call = Call(self.graph, node, self.known, self._form)
            result = as_known(handler(call, *call.args, **call.kwargs), node.meta.get("val"))
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
            name, dtype = f"missing {self.graph.native.size}", _aten.type_of(meaning.dtype, allow_integers=True)
            return as_known(self.graph.input(name, sizes_of(meaning), dtype), meaning)
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
