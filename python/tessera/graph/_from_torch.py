"""Graphs of PyTorch modules, by `torch.export`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import getitem
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export.graph_signature import InputKind, OutputKind
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map

from tessera._matrices import why_not_dense
from tessera._prepared import STORED_TYPES
from tessera._tessera import whole_number
from tessera.graph._aten import Constant, State, as_known, value_of
from tessera.graph._conversion import Conversion, Missing, decompositions, lacking
from tessera.graph._dense_weights import note_dense
from tessera.graph._factors import take_factors_as_they_are
from tessera.graph._graph import Graph
from tessera.graph._parameters import INTEGER_TYPES, Parameter, Weights, type_of
from tessera.graph._values import Form, Value, mean_over_replicas


class UnsupportedModuleError(ValueError):
    """A module has operations that graphs do not support: `missing` lists all of them."""

    def __init__(self, missing: list[Missing]) -> None:
        self.missing = missing
        lines = [f"the module has {len(missing)} operation{'s' * (len(missing) > 1)} that a graph lacks:"]
        super().__init__("\n  ".join([*lines, *map(str, missing)]))


def from_torch(
    module: nn.Module,
    example_inputs: Tensor | NDArray[Any] | Sequence[Any],
    *,
    form: Form = "fused",
    norm_replicas: int | None = None,
) -> Graph:
    """Make the graph of a module that is called with inputs of these shapes.

    Parameters have the module's names and values; parameters that require no gradient are frozen. The module's present
    mode, training or evaluation, decides about dropout and the like. Inputs have the names of the arguments of
    forward(). The output is called "output"; several outputs are called "output0", "output1", …, or by the keys of the
    dict that forward() returns.

    Supported are linear layers, dense layers and the layers of `tessera.nn` (except complex ones), products of computed
    values, scaled dot-product attention, activations, elementwise arithmetic, comparisons and choices, reductions,
    softmax, normalisation, dropout, losses, embeddings and bags of embeddings, changes of shape, slices, sliding
    windows, concatenations and gathers, convolutions, pooling, interpolation, and operators that PyTorch decomposes
    into these. Integers have 32 bits: where PyTorch has 64 bits, a sum, difference or product that does not fit is an
    error of the run. PyTorch computes values that depend only on constants. An output that is None is left out. All
    other operations raise UnsupportedModuleError, which lists all of them.

    With form="unfused", butterfly and fastfood layers become the operations of plain PyTorch, one after another,
    instead of one operation that merges their factors.

    In training mode, `SyncBatchNorm` takes statistics over all replicas of a training step, as if their batches were
    one, or with `norm_replicas` over each group of that many consecutive replicas; other batch normalisations take the
    statistics of each replica's own batch. Running statistics, and other buffers that the module changes, are means
    over all replicas.
    """
    require_readable(module)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.layout is not torch.strided:
            raise ValueError(f"{name} is in {tensor.layout}: make it dense, or the weight of a tessera.nn.SparseLinear")
    joint_norms = _joint_norms(module, norm_replicas)
    inputs = arguments_of(example_inputs)
    for i, each in enumerate(tree_leaves(inputs)):
        require_example(str(i), each)
    with _norms_apart(module):
        program = _exported(module, inputs, {}, trains=True)
    return _ModuleConversion(module, program, form, joint_norms=joint_norms).graph


def _joint_norms(module: nn.Module, replicas: int | None) -> dict[str, int | None]:
    """The number of replicas over which norms take statistics, by their paths; None: all.

    Norms in evaluation mode are left out, even if they have no running statistics.
    """
    if replicas is not None:
        replicas = whole_number("norm_replicas", replicas, 1)
    norms: dict[str, int | None] = {}
    for path, each in module.named_modules(remove_duplicate=False):
        if not isinstance(each, nn.SyncBatchNorm) or not each.training:
            continue
        if each.process_group is not None and replicas is None:
            raise ValueError(
                f"{path or 'the module'} has a process_group: say over how many replicas of the graph it takes "
                "statistics, by norm_replicas"
            )
        norms[path] = replicas
    return norms


class _NormApart(nn.SyncBatchNorm):
    """A norm that is exported like other norms: with torch.distributed in use, PyTorch's own runs only on GPUs."""

    def forward(self, input: Tensor) -> Tensor:
        return super(nn.SyncBatchNorm, self).forward(input)


@contextmanager
def _norms_apart(module: nn.Module) -> Iterator[None]:
    norms = [each for each in module.modules() if type(each) is nn.SyncBatchNorm]
    for each in norms:
        each.__class__ = _NormApart
    try:
        yield
    finally:
        for each in norms:
            each.__class__ = nn.SyncBatchNorm


def arguments_of(example_inputs: Any) -> tuple[Any, ...]:
    """Example inputs as arguments, NumPy arrays as tensors. Raises TypeError if they are no tensor or sequence."""
    if isinstance(example_inputs, (Tensor, np.ndarray)):
        example_inputs = (example_inputs,)
    if not isinstance(example_inputs, Iterable) or isinstance(example_inputs, (str, bytes, Mapping)):
        kind = type(example_inputs).__name__
        raise TypeError(f"example_inputs is of type {kind}; give a tensor, or the arguments in a sequence")
    arguments: tuple[Any, ...] = tree_map(
        lambda leaf: torch.from_numpy(leaf.copy()) if isinstance(leaf, np.ndarray) else leaf, tuple(example_inputs)
    )
    return arguments


def require_example(path: str, leaf: Any) -> None:
    """Raise ValueError for an example input that no graph can take."""
    if not isinstance(leaf, Tensor):
        return
    if problem := why_not_dense(leaf):
        raise ValueError(f"the example input {path} {problem}")
    if 0 in leaf.shape:
        raise ValueError(f"the example input {path} has shape {list(leaf.shape)}: give one that has elements")
    if leaf.dtype in STORED_TYPES or leaf.dtype in INTEGER_TYPES or leaf.dtype == torch.bool:
        return
    if leaf.dtype.is_floating_point or leaf.dtype.is_complex:
        what = "give float32, by .float(), float16 or bfloat16"
    else:
        what = "give int64, by .long(), int32 or bool"
    raise ValueError(f"the example input {path} is {leaf.dtype}, which Tessera does not compute: {what}")


def require_readable(module: nn.Module) -> None:
    """Raise TypeError or ValueError for a module that PyTorch cannot export, or whose values cannot all be read.

    Parameters and buffers can be read if they are on the CPU, in a floating-point type.
    """
    if isinstance(module, torch.export.ExportedProgram):
        raise TypeError("the module is an ExportedProgram: give its module()")
    if not isinstance(module, nn.Module):
        raise TypeError(f"the module is of type {type(module).__name__}; it must be a torch.nn.Module")
    for path, each in module.named_modules():
        if isinstance(each, torch.jit.ScriptModule):
            where = f"its part {path!r}" if path else "the module"
            raise TypeError(f"{where} is a ScriptModule, which PyTorch cannot export: give the module that was scripted")
        if "quantized" in type(each).__module__:
            raise ValueError(f"{path or 'the module'} ({type(each).__name__}) is quantised: compile it in floating point")
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if is_lazy(tensor):
            raise ValueError(f"{name} has no shape yet: call the module once, with inputs of the final shapes")
        if type(tensor.data) is not Tensor:
            kind = type(tensor.data).__name__
            raise ValueError(f"{name} is a {kind}: compile the module with plain tensors, in floating point")
        if tensor.is_meta:
            raise ValueError(f"{name} is on meta and holds nothing: load its values first")
        if tensor.device.type != "cpu":
            raise ValueError(f"{name} is on {tensor.device}: move the module to the CPU, by module.cpu()")
        if tensor.is_quantized:
            raise ValueError(f"{name} is quantised: compile the module in floating point")


@dataclass(frozen=True)
class Imported:
    """A graph for inference, with its inputs and outputs in the order of PyTorch's pytrees."""

    graph: Graph
    #: Names of the graph's inputs; None for an argument that is not a tensor: it is a constant of the graph.
    inputs: list[str | None]
    #: Names of the graph's outputs and their types; other results as they are.
    outputs: list[tuple[str, torch.dtype] | Any]
    #: The structure of the outputs.
    output_spec: Any
    #: Names of parameters from which other values were computed, and tensors in the module's code.
    folded: set[str]
    constants: list[Tensor]


def import_module(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], weights: Weights) -> Imported:
    """Make the graph of a module for inference; `weights` decides in which form the weights of products are kept."""
    program = _exported(module, args, kwargs, trains=False)
    conversion = _ModuleConversion(module, program, "fused", weights)
    sums = conversion.graph.native.fold_constants()
    conversion.folded.update(sums)
    _name_apart(conversion.graph, sums, weights)
    constants = [each for each in program.constants.values() if isinstance(each, Tensor)]
    spec = program.call_spec.out_spec
    return Imported(conversion.graph, conversion.inputs, conversion.outputs, spec, conversion.folded, constants)


def _name_apart(graph: Graph, sums: Mapping[str, int | None], weights: Weights) -> None:
    """Rename parameters whose folded values differ from those in graphs for other sizes: sessions share by name."""
    native = graph.native
    for id in range(native.size):
        if native.kind(id) != "parameter":
            continue
        name = native.name(id)
        own = weights.name_of_parameter(name, sums.get(name), lambda other: not native.contains(other))
        if own != name:
            native.rename(id, own)


def _exported(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, trains: bool
) -> torch.export.ExportedProgram:
    try:
        with _exportable(module), warnings.catch_warnings():
            # It warns of weights that hooks assign, such as torch.nn.utils.prune's; they are converted all the same.
            warnings.filterwarnings("ignore", r"The tensor attributes? .* assigned during export", UserWarning)
            exported = torch.export.export(module, args, kwargs, strict=False)
        if trains:
            _detach_blocks(exported)
        return _decomposed(exported)
    except Exception as error:
        raise ValueError(f"PyTorch cannot export the module: {_reason(error)}") from error


@contextmanager
def _exportable(module: nn.Module) -> Iterator[None]:
    """Hide attributes of the exported module that PyTorch 2.6 mistakes for changes; it accepts them in submodules.

    These are buffers that are None, and a recurrent layer's list of its weights, which follows from its parameters.
    """
    kind, buffers = type(module), module._buffers
    missing = [name for name, buffer in buffers.items() if buffer is None]
    if missing:
        module._buffers = {name: buffer for name, buffer in buffers.items() if buffer is not None}
        module.__dict__.update(dict.fromkeys(missing))
    if isinstance(module, nn.RNNBase):
        weights = property(_flat_weights, lambda self, value: None)
        apart: Any = type(kind.__name__, (kind,), {"__module__": kind.__module__, "_flat_weights": weights})
        module.__class__ = apart
    try:
        yield
    finally:
        if type(module) is not kind:
            module.__class__ = kind
        for name in missing:
            module.__dict__.pop(name, None)
        if missing:
            module._buffers = buffers


def _flat_weights(layer: Any) -> list[Any]:
    return [getattr(layer, name, None) for name in layer._flat_weights_names]


def refused_result(kind: str) -> str:
    """The message for a module that returns an object of this class."""
    return (
        f"the module returns a {kind}: let it return tensors in tuples, lists or dicts with string keys (call "
        "models of transformers with use_cache=False)"
    )


def _reason(error: Exception) -> str:
    """PyTorch's message on what is wrong, and where, without its advice on debugging."""
    text = str(error)
    if returned := re.match(r"Found <class '(?:.*\.)?(\w+)'> in output", text):
        return refused_result(returned[1])
    if "data-dependent" not in text:
        return text
    first, _, rest = text.partition("\n")
    place = re.search(r"  File (.+?)\n(.+?)\n", rest)
    where = f": {place[1].strip()}: {place[2].strip()}" if place else ""
    return f"control flow depends on data{where}: use torch.where, or compile the parts separately. {first.strip()}"


def _decomposed(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program with operators that graphs do not support decomposed, where graphs support the parts."""
    _linear_from_einsum(exported.graph)
    _products_from_sparse(exported.graph)
    lacked = lacking(exported.graph)
    if not lacked and _is_simple(exported):  # decomposing takes ten times as long as everything else
        exported.graph.eliminate_dead_code()
        return exported

    def without(some: set[Any]) -> torch.export.ExportedProgram:
        chosen = {key: each for key, each in decompositions().items() if key not in some}
        decomposed: torch.export.ExportedProgram = exported.run_decompositions(chosen)
        return decomposed

    def has_simpler(operator: Any) -> bool:
        try:
            return not lacking(without(lacked - {operator}).graph) - lacked
        except Exception:  # PyTorch cannot decompose it
            return False

    try:
        program = without(set())
    except Exception:
        program = exported
    if not lacking(program.graph):
        return program
    kept = {operator for operator in lacked if operator in decompositions() and not has_simpler(operator)}
    return without(kept) if kept or program is exported else program


def _is_simple(program: torch.export.ExportedProgram) -> bool:
    """Whether decomposing a program of supported operators would only rename values."""
    nodes = [node for node in program.graph.nodes if node.op not in ("placeholder", "output")]
    if any(node.target is torch.ops.aten.bmm.default for node in nodes):
        return False  # factors are followed through views, which decomposing makes
    weights = _dependent(program.graph, program.graph_signature.inputs_to_parameters)
    weights -= _dependent(program.graph, program.graph_signature.user_inputs)
    return all(node.target is getitem or _stays(node, node in weights) for node in nodes)


def _dependent(graph: torch.fx.Graph, names: Container[Any]) -> set[torch.fx.Node]:
    """The nodes with these names, and all nodes that depend on them."""
    found: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if node.name in names or any(each in found for each in node.all_input_nodes):
            found.add(node)
    return found


def _stays(node: torch.fx.Node, is_weight: bool) -> bool:
    """Whether decompositions leave a node, which may be a weight, as it is or replace it by an equivalent one."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    given = {**dict(zip((each.name for each in target._schema.arguments), node.args, strict=False)), **node.kwargs}
    if given.get("training") or given.get("train"):  # norms then change statistics, and dropout draws
        return False
    # reshape(), to() and the like become views or copies, through which the uses of weights are followed.
    is_composite = target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    may_be_view = any(each.alias_info is not None for each in target._schema.returns)
    return not (is_weight and is_composite and (may_be_view or "dropout" in target.name()))


_EINSUM = re.compile(r"(?P<rows>(?:\.\.\.)?\w*)(?P<sum>\w),(?P<weight>\w\w)->(?P=rows)(?P<out>\w)")


def _linear_from_einsum(graph: torch.fx.Graph) -> None:
    """Turn sums over the last dimension of products with a matrix into linear layers."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.einsum.default):
        arguments: Any = node.args
        equation, factors = arguments[0].replace(" ", ""), tuple(arguments[1])
        found = _EINSUM.fullmatch(equation)
        if found is None:  # the matrix may come first
            equation, factors = re.sub(r"^(.+),(.+)->", r"\2,\1->", equation), factors[::-1]
            found = _EINSUM.fullmatch(equation)
        if found is None:
            continue
        letters = found["rows"].removeprefix("...") + found["sum"] + found["out"]
        kinds = {
            found["out"] + found["sum"]: torch.ops.aten.linear.default,
            found["sum"] + found["out"]: torch.ops.aten.matmul.default,
        }
        if len(set(letters)) == len(letters) and found["weight"] in kinds:
            node.target, node.args, node.kwargs = kinds[found["weight"]], factors, {}


def _products_from_sparse(graph: torch.fx.Graph) -> None:
    """Turn products of torch.sparse into dense products: the sparse factors have become dense."""
    aten = torch.ops.aten
    for sparse, dense in ((aten._sparse_mm.default, aten.mm.default), (aten._sparse_addmm.default, aten.addmm.default)):
        for node in graph.find_nodes(op="call_function", target=sparse):
            node.target = dense


def _detach_blocks(program: torch.export.ExportedProgram) -> None:
    """Detach the results of blocks of torch.no_grad(), which decompositions join with the operations around them."""
    graph = program.graph
    for block in list(graph.nodes):
        if str(block.target) != "wrap_with_set_grad_enabled" or block.args[0] is not False:
            continue
        for result in list(block.users):
            with graph.inserting_after(result):
                detached = graph.call_function(torch.ops.aten.detach.default, (result,))
            detached.meta = dict(result.meta)
            result.replace_all_uses_with(detached)
            detached.args = (result,)
            program.graph_signature.replace_all_uses(result.name, detached.name)


class _ModuleConversion(Conversion):
    """The conversion of one exported program, operation by operation."""

    def __init__(
        self,
        module: nn.Module,
        program: torch.export.ExportedProgram,
        form: Form,
        weights: Weights | None = None,
        joint_norms: Mapping[str, int | None] | None = None,
    ) -> None:
        super().__init__(form, weights)
        self.joint_norms.update(joint_norms or {})
        self.inputs: list[str | None] = []
        self.outputs: list[Any] = []
        self._program = program
        self._names = _first_names(module)
        self._parameters: dict[str, Parameter] = {}
        #: The nodes of each parameter.
        self._places: dict[str, list[torch.fx.Node]] = {}
        #: Buffers that the module changes.
        self._states: dict[str, State] = {}
        take_factors_as_they_are(program.graph)
        specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs if hasattr(spec.arg, "name")}
        for node in program.graph.nodes:
            if node.op == "placeholder":
                self.known[node] = self._placeholder(node, specs[node.name])
            elif node.op != "output":
                self.apply(node)
        if weights is not None:
            note_dense(self.known, weights)
        results, changes = self._results()
        missing = [*self.missing.values(), *changes]
        if missing:
            raise UnsupportedModuleError(missing)
        self._add_outputs(results)

    def _placeholder(self, node: torch.fx.Node, spec: Any) -> Any:
        meaning = node.meta.get("val")
        if spec.kind is InputKind.PARAMETER:
            name = self._names[spec.target]
            if name not in self._parameters:
                tensor = self._program.state_dict[spec.target]
                self._parameters[name] = Parameter(self.graph, name, tensor, self._weights)
            self._places.setdefault(name, []).append(node)
            self.note_uses(self._parameters[name], self._places[name])
            return self._parameters[name]
        if spec.kind is InputKind.BUFFER:
            held = self._program.state_dict if spec.persistent else self._program.constants
            tensor = held[spec.target]
            if self._is_changed(spec.target) and tensor.is_floating_point():
                self._states[spec.target] = State(self.graph, spec.target, tensor)
                return self._states[spec.target]
            return self._unregistered(node, spec.target, tensor)
        if spec.kind is InputKind.CONSTANT_TENSOR:
            return self._unregistered(node, spec.target, self._program.constants[spec.target])
        self.inputs.append(node.name if isinstance(meaning, Tensor) else None)
        if not isinstance(meaning, Tensor):
            return meaning
        dtype = type_of(meaning.dtype, allow_integers=True)
        return as_known(self.graph.input(node.name, meaning.shape, dtype), meaning)

    def _unregistered(self, node: torch.fx.Node, name: str, tensor: Tensor) -> Parameter | Constant:
        """A tensor that is no parameter of the module; in inference, weights of products may be such tensors."""
        if self._weights is None or not tensor.is_floating_point() or not node.users or not self._multiplies(node):
            return Constant(self.graph, tensor)
        if not tensor.isfinite().all():  # parameters must be finite
            return Constant(self.graph, tensor)
        parameter = Parameter(self.graph, self._weights.name_of(name, tensor), tensor, self._weights)
        self.note_uses(parameter, [node])
        return parameter

    def _is_changed(self, buffer: str) -> bool:
        return buffer in self._program.graph_signature.buffers_to_mutate.values()

    def _results(self) -> tuple[list[Any], list[Missing]]:
        """The module's results, and changes of buffers and results that a graph cannot have."""
        (returned,) = self._program.graph.output_node().args
        results: list[Any] = []
        changes: list[Missing] = []
        for spec, node in zip(self._program.graph_signature.output_specs, returned, strict=True):
            if spec.kind is OutputKind.USER_OUTPUT:
                is_computed = isinstance(node, torch.fx.Node)
                results.append(value_of(self.known.get(node)) if is_computed else node)
                self.outputs.append(node.meta["val"].dtype if is_computed else node)
                if results[-1] is not None and not isinstance(results[-1], (Value, bool, int, float)):
                    reason = f"it is {results[-1]!r}: return tensors, numbers or None"
                    changes.append(Missing("output", "the module", reason))
            elif spec.kind is OutputKind.BUFFER_MUTATION and self._weights is None and self._follows(spec.target, node):
                continue
            else:
                reason = f"it changes {spec.target!r}"
                if self._weights is not None:
                    reason += ", which a compiled module does not do: let it return the new value"
                changes.append(Missing(str(spec.kind.name).lower(), "the module", reason))
        return results, changes

    def _follows(self, buffer: str, node: torch.fx.Node) -> bool:
        """Whether each run leaves a buffer as the module does; counts of batches are left to PyTorch."""
        state = self._states.get(buffer)
        if state is None:
            return buffer.rpartition(".")[2] == "num_batches_tracked"
        changed = value_of(self.known.get(node))
        if not isinstance(changed, Value):
            return False
        # State is the same in all replicas. Means over them are taken here, so that they all form one collective.
        self.graph.assign(state.value(), mean_over_replicas(changed))
        return True

    def _add_outputs(self, results: list[Any]) -> None:
        for i, (name, result) in enumerate(zip(self._output_names(len(results)), results, strict=True)):
            if isinstance(result, Value):
                self.outputs[i] = (name, self.outputs[i])
            if isinstance(result, (bool, int, float)):
                result = Constant(self.graph, torch.tensor(result)).value()
            assert result is not None or not isinstance(self.outputs[i], torch.dtype), f"{name} is not computed"
            if result is not None:
                self.graph.output(name, result)

    def _output_names(self, count: int) -> list[str]:
        spec = self._program.call_spec.out_spec
        if spec is not None and spec.type is dict and len(spec.context) == count:
            return [str(key) for key in spec.context]
        return ["output"] if count == 1 else [f"output{i}" for i in range(count)]


def _first_names(module: nn.Module) -> dict[str, str]:
    """The first name of the same parameter, for each name of a parameter."""
    firsts: dict[int, str] = {}
    named = module.named_parameters(remove_duplicate=False)
    return {name: firsts.setdefault(id(parameter), name) for name, parameter in named}
