"""Graphs of PyTorch modules, by `torch.export`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export.graph_signature import InputKind, OutputKind

from tessera.graph import _aten
from tessera.graph import _aten_products as _aten_products  # more handlers
from tessera.graph import _aten_shapes as _aten_shapes
from tessera.graph import _structured as _structured
from tessera.graph._aten import Call, Constant, Parameter, value_of
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


class UnsupportedModuleError(ValueError):
    """A module has operations that a graph lacks: `missing` lists all of them."""

    def __init__(self, missing: list[Missing]) -> None:
        self.missing = missing
        lines = [f"the module has {len(missing)} operation{'s' * (len(missing) > 1)} that a graph lacks:"]
        super().__init__("\n  ".join([*lines, *map(str, missing)]))


def from_torch(module: nn.Module, example_inputs: Tensor | Sequence[Any], *, form: Form = "fused") -> Graph:
    """Make the graph of a module that is called with inputs of these shapes.

    Parameters have the module's names and values; those that require no gradient are frozen. What the module does in
    training or evaluation mode, such as dropout, follows from its present mode. Inputs have the names of its forward()'s
    arguments, and the output is called "output", several "output0", "output1", … or as in the dict that is returned.

    Supported are linear layers, dense and those of `tessera.nn` (but complex ones), products of computed values,
    scaled dot-product attention, activations, elementwise arithmetic, comparisons and choices, reductions, softmax, layer and RMS normalisation, dropout, losses, embeddings,
    changes of shape, slices, concatenations and gathers. Truth values are 0 and 1, integers are u32; what depends on
    constants alone is computed by PyTorch. Anything else raises UnsupportedModuleError, which lists all of it.

    With form="unfused" butterfly and fastfood layers become the operations of plain PyTorch, one after another,
    instead of one that merges their factors.
    """
    inputs = (example_inputs,) if isinstance(example_inputs, Tensor) else tuple(example_inputs)
    try:
        all_decompositions = torch.export.default_decompositions()
        chosen = {operator: all_decompositions[operator] for operator in (torch.ops.aten.einsum.default,)}
        exported = torch.export.export(module, inputs, strict=False)
        program = exported.run_decompositions(chosen)
    except Exception as error:
        raise ValueError(f"PyTorch cannot export the module: {error}") from error
    return _Conversion(module, program, form, _without_gradients(exported)).graph


def _without_gradients(program: torch.export.ExportedProgram) -> list[Missing]:
    """Blocks of torch.no_grad() that read what depends on trained parameters; their gradients would flow."""
    depends: set[torch.fx.Node] = set()
    missing: list[Missing] = []
    trained = {
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.PARAMETER and program.state_dict[str(spec.target)].requires_grad
    }
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in trained:
            depends.add(node)
        elif any(each in depends for each in node.all_input_nodes):
            depends.add(node)
            if str(node.target) == "wrap_with_set_grad_enabled" and node.args[0] is False:
                reason = "what depends on parameters has no gradient in it: freeze these, or compute it outside"
                missing.append(Missing("torch.no_grad()", "the module", reason))
    return missing


class _Conversion:
    """One exported program, operation by operation."""

    def __init__(
        self, module: nn.Module, program: torch.export.ExportedProgram, form: Form, missing: list[Missing]
    ) -> None:
        self.graph = Graph()
        self._form: Form = form
        self._program = program
        self._names = _first_names(module)
        self._known: dict[torch.fx.Node, Any] = {}
        self._missing = missing
        self._parameters: dict[str, Parameter] = {}
        specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs if hasattr(spec.arg, "name")}
        for node in program.graph.nodes:
            if node.op == "placeholder":
                self._known[node] = self._placeholder(node, specs[node.name])
            elif node.op == "output":
                self._add_outputs(node)
            else:
                self._known[node] = self._apply(node)
        if self._missing:
            raise UnsupportedModuleError(self._missing)

    def _placeholder(self, node: torch.fx.Node, spec: Any) -> Any:
        meaning = node.meta.get("val")
        if spec.kind is InputKind.PARAMETER:
            name = self._names[spec.target]
            if name not in self._parameters:
                tensor = self._program.state_dict[spec.target]
                self._parameters[name] = Parameter(self.graph, name, tensor)
            return self._parameters[name]
        if spec.kind is InputKind.BUFFER:
            held = self._program.state_dict if spec.persistent else self._program.constants
            return Constant(self.graph, held[spec.target])
        if spec.kind is InputKind.CONSTANT_TENSOR:
            return Constant(self.graph, self._program.constants[spec.target])
        if not isinstance(meaning, Tensor):
            return meaning
        return self.graph.input(node.name, meaning.shape, _aten.type_of(meaning.dtype, allow_integers=True))

    def _apply(self, node: torch.fx.Node) -> Any:
        if node.target is operator.getitem:
            parts, index = node.args
            known = self._known[parts]  # type: ignore[index]
            return None if known is None else known[index]
        folded = self._folded(node)
        if folded is not None:
            return folded
        try:
            handler = _aten.HANDLERS.get(str(node.target))
            if handler is None:
                raise ValueError("there is no such operation")
            call = Call(self.graph, node, self._known, self._form)
            if call.lacks_input:
                return None
            result = handler(call, *call.args, **call.kwargs)
            self._name(result, node)
            return result
        except (TypeError, ValueError) as error:
            self._missing.append(Missing(str(node.target), _place_of(node), str(error)))
            return self._stand_in(node.meta.get("val"))

    def _folded(self, node: torch.fx.Node) -> Any:
        """What PyTorch computes of constants alone, such as masks and positions."""
        given = [self._known.get(argument) for argument in node.all_input_nodes]
        if not all(isinstance(each, Constant) for each in given) or not isinstance(node.target, torch._ops.OpOverload):
            return None
        if torch.Tag.nondeterministic_seeded in node.target.tags or node.target._schema.is_mutable:
            return None
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: self._known[each].tensor)
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

    def _add_outputs(self, node: torch.fx.Node) -> None:
        results: list[Any] = []
        specs = self._program.graph_signature.output_specs
        for spec, result in zip(specs, node.args[0], strict=True):  # type: ignore[arg-type]
            if spec.kind is OutputKind.USER_OUTPUT:
                results.append(self._known.get(result) if isinstance(result, torch.fx.Node) else None)
            else:
                self._missing.append(Missing(str(spec.kind.name).lower(), "the module", f"it changes {spec.target!r}"))
        if self._missing:
            return
        for name, result in zip(self._output_names(len(results)), results, strict=True):
            value = value_of(result)
            if isinstance(value, Value):
                self.graph.output(name, value)

    def _output_names(self, count: int) -> list[str]:
        spec = self._program.call_spec.out_spec
        if spec is not None and spec.type is dict and len(spec.context) == count:
            return [str(key) for key in spec.context]
        return ["output"] if count == 1 else [f"output{i}" for i in range(count)]


def _first_names(module: nn.Module) -> dict[str, str]:
    """By each name of a parameter, the one that `named_parameters()` has for it."""
    firsts: dict[int, str] = {}
    named = module.named_parameters(remove_duplicate=False)
    return {name: firsts.setdefault(id(parameter), name) for name, parameter in named}


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
