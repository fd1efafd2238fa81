"""Graphs of PyTorch's operators as graphs of operations."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from tessera._prepared import STORED_TYPES
from tessera.graph import _aten
from tessera.graph import _aten_convolutions as _aten_convolutions  # more handlers
from tessera.graph import _aten_embeddings as _aten_embeddings
from tessera.graph import _aten_indices as _aten_indices
from tessera.graph import _aten_losses as _aten_losses
from tessera.graph import _aten_products as _aten_products
from tessera.graph import _aten_reductions as _aten_reductions
from tessera.graph import _aten_shapes as _aten_shapes
from tessera.graph import _aten_training as _aten_training
from tessera.graph import _aten_vision as _aten_vision
from tessera.graph import _structured as _structured
from tessera.graph._aten import Call, Constant, Transposed, as_known, sizes_of
from tessera.graph._graph import Graph
from tessera.graph._parameters import Parameter, Weights, type_of
from tessera.graph._values import Form, Value, cast


@dataclass(frozen=True)
class Missing:
    """An operation of a module that graphs do not support."""

    #: PyTorch's name of the operation: "aten.group_norm.default".
    operator: str
    #: The path and the class of the module that applies it: "encoder.norm (GroupNorm)".
    module: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operator} in {self.module}: {self.reason}"


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Decompositions of operators that graphs do not support, where PyTorch has one."""
    # Decompositions in torch._refs end in PyTorch's own primitives, which are no simpler.
    further = {
        target: function
        for target, function in decomposition_table.items()
        if not getattr(function, "__module__", "").startswith("torch._refs")
    }
    known = {**further, **torch.export.default_decompositions(), torch.ops.aten.lstm.input: _lstm}
    return {target: function for target, function in known.items() if str(target) not in _aten.HANDLERS}


def _lstm(x: Tensor, states: Sequence[Tensor], *others: Any) -> tuple[Tensor, ...]:
    """PyTorch's LSTM, with final states in the shape of the initial ones, to which PyTorch 2.6 adds a dimension."""
    y, *last = decomposition_table[torch.ops.aten.lstm.input](x, states, *others)
    return y, *(own.reshape(first.shape) for own, first in zip(last, states, strict=True))


def lacking(graph: torch.fx.Graph) -> set[Any]:
    """Operators that graphs do not support, except operators on constants, which PyTorch computes."""
    varies: set[torch.fx.Node] = set()
    found = set()
    for node in graph.nodes:
        if node.op == "placeholder" or any(each in varies for each in node.all_input_nodes):
            varies.add(node)
            if isinstance(node.target, torch._ops.OpOverload) and str(node.target) not in _aten.HANDLERS:
                found.add(node.target)
    return found


class Conversion:
    """The conversion of nodes of FX to a graph, one by one.

    `known` maps nodes to values of `graph`, parameters, constants or numbers; the caller fills in the placeholders.
    With `weights` the graph is for inference: values that depend only on parameters are computed now, and `weights`
    decides in which form the weights of products are kept.
    """

    def __init__(self, form: Form = "fused", weights: Weights | None = None) -> None:
        self.graph = Graph()
        #: The values of nodes; for an operation that graphs do not support, a stand-in or None.
        self.known: dict[torch.fx.Node, Any] = {}
        #: The nodes whose operations graphs do not support.
        self.missing: dict[torch.fx.Node, Missing] = {}
        self._form: Form = form
        self._weights = weights
        #: Names of parameters from which other values were computed.
        self.folded: set[str] = set()
        self._computed: dict[str, torch.fx.Node] = {}
        #: The number of replicas over which a norm takes statistics, by the norm's path; None: all.
        self.joint_norms: dict[str, int | None] = {}
        #: Parts of parameters that are separate weights, by name.
        self._pieces: dict[str, Parameter] = {}
        #: The nodes that depend on inputs, and the output node; None: not determined yet.
        self._later: set[torch.fx.Node] | None = None

    def apply(self, node: torch.fx.Node) -> None:
        """Add the operation of a node, whose inputs are known."""
        self.known[node] = self._applied(node)

    def lacks(self, node: torch.fx.Node, reason: str, operation: torch.fx.Node | None = None) -> Any:
        """Record a missing operation, by default the operation of the node; returns a stand-in for its result."""
        operation = operation or node
        self.missing[node] = Missing(str(operation.target), _place_of(operation), reason)
        return self._stand_in(node.meta.get("val"))

    def _applied(self, node: torch.fx.Node) -> Any:
        if node.target is operator.getitem:
            return self._part(node)
        if _is_program(node):
            return node.target  # the operation that takes it is reported as missing
        if any(self.known.get(argument) is None for argument in node.all_input_nodes):
            return None
        folded = self._folded(node)
        if folded is not None:
            return folded
        try:
            handler = _aten.HANDLERS.get(str(node.target))
            if handler is None and str(node.target) in _CONTROL_FLOW:
                raise ValueError("control flow depends on data: use torch.where, or compile the parts separately")
            if handler is None:
                raise ValueError("there is no such operation")
            place = module_of(node)[0]
            call = Call(
                self.graph, node, self.known, self._form, self._weights, self.folded, place, self.joint_norms
            )
            result = as_known(handler(call, *call.args, **call.kwargs), node.meta.get("val"))
            self._name(result, node)
            return result
        except (TypeError, ValueError) as error:
            return self.lacks(node, str(error))

    def _part(self, node: torch.fx.Node) -> Any:
        """One of the results of an operation, which may have fewer results than PyTorch's."""
        of, index = node.all_input_nodes[0], int(node.args[1])  # type: ignore[arg-type]
        known = self.known[of]
        if known is None:
            return None
        part = known[index] if isinstance(known, (tuple, list)) and index < len(known) else None
        meaning = node.meta.get("val")
        if isinstance(part, Value) and isinstance(meaning, Tensor) and meaning.dtype in STORED_TYPES:
            part = cast(part, STORED_TYPES[meaning.dtype])  # PyTorch rounds, for example, statistics of norms
        return self.lacks(node, f"its result {index} is not possible", of) if part is None and node.users else part

    def weights_of(self, node: torch.fx.Node) -> Weights | None:
        """The `Weights` that decide the form of a parameter, if it is only a weight, or stack of weights, of products."""
        return self._weights if self.is_weight(node) or self.is_stack(node) else None

    def is_weight(self, node: torch.fx.Node) -> bool:
        """Whether only products, and convolutions with one order of its elements, take a parameter."""
        return all(_is_weight(node, user) for user in node.users) and len(orders_of(node)) <= 1

    def is_stack(self, node: torch.fx.Node) -> bool:
        """Whether only batched products take a parameter, as matrices of their groups in one order."""
        if len(node.meta["val"].shape) != 3:
            return False
        swaps = [user for user in node.users if _swaps_matrices(user)]
        if swaps and len(node.users) > 1:
            return False
        sides = {_side_of(each, user) for each in swaps or [node] for user in each.users}
        return None not in sides and len(sides) <= 1

    def note_uses(self, parameter: Parameter, nodes: Sequence[torch.fx.Node]) -> None:
        """Record the uses of a parameter; `nodes` are its nodes."""
        orders = {order for node in nodes for order in orders_of(node)}
        parameter.table_rows = rows_beside_embeddings(nodes)
        is_of_products = len(orders) <= 1 and all(map(self.is_weight, nodes))
        parameter.is_weight = is_of_products or parameter.table_rows is not None
        parameter.is_stack = all(map(self.is_stack, nodes))

    def _folded(self, node: torch.fx.Node) -> Any:
        """Let PyTorch compute a value that depends only on constants, such as a mask, or in inference on parameters."""
        factors = {argument: self._as_factor(argument, node) for argument in node.all_input_nodes}
        given = list(factors.values())
        kinds = (Constant,) if self._weights is None else (Constant, Parameter)
        if not all(isinstance(each, kinds) for each in given) or not isinstance(node.target, torch._ops.OpOverload):
            return None
        schema = node.target._schema
        if torch.Tag.nondeterministic_seeded in node.target.tags or schema.is_mutable:
            return None
        if (rows := self._rows(node)) is not None:
            return rows
        if _is_view(node) and any(isinstance(each, Parameter) for each in given) and self._is_taken_later(node):
            return None  # operations of graphs take a tied weight in place
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: factors[each].tensor)
        result = node.target(*args, **kwargs)
        of_parameters = any(isinstance(each, Parameter) or each.of_parameters for each in given)
        self.folded |= {each.name for each in given if isinstance(each, Parameter)}
        if isinstance(result, (tuple, list)):
            return [Constant(self.graph, each, of_parameters=of_parameters) for each in result]
        if not isinstance(result, Tensor):
            return None
        if self._weights is None or not of_parameters or not self._multiplies(node):
            return Constant(self.graph, result, of_parameters=of_parameters)
        name = self._weights.name_of(self._name_of_weight(node), result)
        parameter = Parameter(self.graph, name, result, self._weights)
        self.note_uses(parameter, [node])
        return parameter

    def _is_taken_later(self, view: torch.fx.Node) -> bool:
        """Whether an operation that cannot be computed now takes this view of a parameter, or a view of the view."""
        later = self._later
        if later is None:
            later = self._later = set()
            for node in view.graph.nodes:
                is_input = node.op == "placeholder" and not isinstance(self.known.get(node), (Constant, Parameter))
                if is_input or node.op == "output" or any(each in later for each in node.all_input_nodes):
                    later.add(node)
        return any(user in later or (_is_view(user) and self._is_taken_later(user)) for user in view.users)

    def _as_factor(self, argument: torch.fx.Node, user: torch.fx.Node) -> Any:
        """The value of an argument. To a product, a transposed parameter is a parameter, and may be folded."""
        known: Any = self.known.get(argument)
        is_transposed = isinstance(known, Transposed) and isinstance(known.of, Parameter)
        if not is_transposed or name_of(user) not in _PRODUCTS:
            return known
        return Parameter(self.graph, known.of.name, known.of.tensor.mT)

    def _multiplies(self, node: torch.fx.Node) -> bool:
        """Whether products take a node as a weight; other operations may take the matrix too."""
        if self.is_weight(node) or self.is_stack(node):
            return True
        return len(node.meta["val"].shape) == 2 and any(_is_weight(node, user) for user in node.users)

    def _rows(self, node: torch.fx.Node) -> Any:
        """Parts of a parameter as separate weights, if products take only parts of it along outputs or matrices."""
        of = node.args[0] if node.args else None
        parameter = self.known.get(of) if isinstance(of, torch.fx.Node) else None
        if self._weights is None or not isinstance(parameter, Parameter) or parameter.tensor.dim() not in (2, 3):
            return None
        users = [user for each, known in self.known.items() if known is parameter for user in each.users]
        if not all(map(_takes_rows, users)):
            return None
        parameter.is_divided = True
        args, kwargs = torch.fx.node.map_arg((node.args[1:], node.kwargs), lambda each: self.known[each])
        taken = node.target(parameter.tensor, *args, **kwargs)  # type: ignore[operator]
        if isinstance(taken, Tensor):
            return self._piece(parameter, taken)
        return [self._piece(parameter, each) for each in taken]

    def _piece(self, parameter: Parameter, rows: Tensor) -> Parameter:
        whole = parameter.tensor
        begin = (rows.storage_offset() - whole.storage_offset()) // max(1, whole.stride(0))
        end = f":{begin + rows.shape[0]}" if rows.dim() == whole.dim() else ""
        name = f"{parameter.name}[{begin}{end}]"
        if name not in self._pieces:
            self._pieces[name] = Parameter(self.graph, name, rows, self._weights)
        return self._pieces[name]

    def _name_of_weight(self, node: torch.fx.Node) -> str:
        """The name of a computed weight: its layer's `weight` if that is free, as under torch.nn.utils.prune."""
        path = module_of(node)[0]
        name = f"{path}.weight".lstrip(".")
        is_free = all(not isinstance(each, Parameter) or each.name != name for each in self.known.values())
        return name if is_free and self._computed.setdefault(name, node) is node else f"{path}.{node.name}".lstrip(".")

    def _name(self, result: Any, node: torch.fx.Node) -> None:
        """Name the result of an operation after its module, for reports."""
        if not isinstance(result, Value) or not result.name.startswith("%"):
            return
        path = module_of(node)[0]
        for name in (path, f"{path}.{node.name}".lstrip(".")):
            if name and not self.graph.native.contains(name):
                result.name = name
                return

    def _stand_in(self, meaning: Any) -> Any:
        """A value in the shape of a missing result, so that later operations can be checked."""
        if isinstance(meaning, (tuple, list)):
            return [self._stand_in(part) for part in meaning]
        try:
            name, dtype = f"missing {self.graph.native.size}", type_of(meaning.dtype, allow_integers=True)
            return as_known(self.graph.input(name, sizes_of(meaning), dtype), meaning)
        except (AttributeError, TypeError, ValueError):
            return None


_CONTROL_FLOW = ("cond", "while_loop")
#: The arguments that may be the weight of a product, by operator.
_PRODUCTS = {"aten.linear": (0, 1), "aten.addmm": (1, 2), "aten.mm": (0, 1), "aten.matmul": (0, 1)}
#: The argument that is the number of groups of a convolution, by operator.
CONVOLUTIONS = {
    "aten.conv1d": 6,
    "aten.conv2d": 6,
    "aten.conv_transpose1d": 6,
    "aten.conv_transpose2d": 6,
    "aten.convolution": 8,
}
EMBEDDINGS = ("aten.embedding", "aten.embedding_bag", "aten._embedding_bag")


def name_of(node: torch.fx.Node) -> str:
    """The name of a node's operator without its overload."""
    return str(node.target).rpartition(".")[0]


#: The argument that is the dimension along which an operator takes parts, by operator.
_PARTS = {"aten.slice.Tensor": 1, "aten.split.Tensor": 2, "aten.split_with_sizes.default": 2, "aten.chunk.default": 2}


def _is_view(node: torch.fx.Node) -> bool:
    """Whether a node's result may share memory with an input."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return node.target is operator.getitem
    return any(each.alias_info is not None for each in node.target._schema.returns)


def _is_program(node: torch.fx.Node) -> bool:
    """Whether a node is a branch, or the body of a loop."""
    if node.op != "get_attr":
        return False
    return isinstance(getattr(node.graph.owning_module, str(node.target), None), torch.fx.GraphModule)


def _takes_rows(node: torch.fx.Node) -> bool:
    """Whether a node takes consecutive rows of a matrix, or one of several matrices, as weights of products."""
    if str(node.target) == "aten.select.int":
        is_first = _rank_of_first(node) == 3 and node.args[1] in (0, -3)
        return is_first and all(_is_weight(node, user) for user in node.users)
    at = _PARTS.get(str(node.target))
    if at is None or (node.args[at] if len(node.args) > at else node.kwargs.get("dim", 0)) not in (0, -2):
        return False
    if _rank_of_first(node) != 2:
        return False
    if str(node.target) == "aten.slice.Tensor":
        step = node.args[4] if len(node.args) > 4 else node.kwargs.get("step", 1)
        return bool(step == 1) and all(_is_weight(node, user) for user in node.users)
    return all(_is_weight(part, user) for part in node.users for user in part.users)


def _rank_of_first(node: torch.fx.Node) -> int:
    of: Any = node.args[0]
    return len(of.meta["val"].shape)


def _is_weight(node: torch.fx.Node, user: torch.fx.Node) -> bool:
    """Whether a product takes a node as one of its factors, and in no other way."""
    if str(user.target) in ("aten.t.default", "aten.transpose.int", "aten.permute.default"):
        return all(_is_weight(user, each) for each in user.users)
    is_convolution = name_of(user) in CONVOLUTIONS
    positions = (1,) if is_convolution else _PRODUCTS.get(name_of(user), ())
    is_factor = any(user.args[position] is node for position in positions)
    if not is_factor or sum(each is node for each in user.args) > 1:
        return False
    return is_convolution or len(node.meta["val"].shape) == 2


#: The arguments that may be a weight [out, in] of a product, by operator: as it is, or transposed before.
_AS_IT_IS = {"aten.linear": (0, 1), "aten.mm": (0,), "aten.matmul": (0,), "aten.addmm": (1,)}
_TRANSPOSED = {"aten.mm": (1,), "aten.matmul": (1,), "aten.addmm": (2,)}


def rows_beside_embeddings(nodes: Sequence[torch.fx.Node]) -> int | None:
    """The rows of the first product with a matrix from which embeddings take rows; `nodes` are the matrix's nodes.

    None: there are no embeddings or products, or some operation takes the matrix in another form.
    """
    uses = [(node, user) for node in nodes for user in node.users]
    others = [(node, user) for node, user in uses if not _takes_listed_rows(node, user)]
    if len(others) == len(uses) or len(nodes[0].meta["val"].shape) != 2:
        return None
    rows = [each for node, user in others for each in _rows_of_products(node, user)]
    return None if None in rows else next(iter(rows), None)


def _takes_listed_rows(node: torch.fx.Node, user: torch.fx.Node) -> bool:
    return name_of(user) in EMBEDDINGS and [each is node for each in user.args].count(True) == 1 and user.args[0] is node


def _rows_of_products(node: torch.fx.Node, user: torch.fx.Node) -> list[int | None]:
    """The rows of products that take a matrix as [out, in]; None: some operation takes it in another way."""
    outputs = int(node.meta["val"].shape[0])
    if not _transposes(user):
        return [_rows_of(node, user, _AS_IT_IS, outputs)]
    return [_rows_of(user, each, _TRANSPOSED, outputs) for each in user.users]


def _transposes(node: torch.fx.Node) -> bool:
    """Whether a node transposes a matrix."""
    args: Any = node.args
    if str(node.target) == "aten.permute.default":
        return [dim % 2 for dim in args[1]] == [1, 0]
    if str(node.target) == "aten.transpose.int":
        return {dim % 2 for dim in args[1:]} == {0, 1}
    return str(node.target) == "aten.t.default"


def _rows_of(
    factor: torch.fx.Node, product: torch.fx.Node, places: Mapping[str, tuple[int, ...]], outputs: int
) -> int | None:
    taken = [i for i, each in enumerate(product.args) if each is factor]
    is_taken_so = len(taken) == 1 and taken[0] in places.get(name_of(product), ())
    if not is_taken_so or any(each is factor for each in product.kwargs.values()):
        return None
    sizes = product.meta["val"].shape
    # Sizes that depend on data are refused where the product is applied.
    return math.prod(sizes) // outputs if all(isinstance(size, int) for size in sizes) else None


#: The arguments that may be the matrices of a batched product, by operator: the first factor, and the second.
_BATCHED = {"aten.bmm": (0, 1), "aten.matmul": (0, 1), "aten.baddbmm": (1, 2), "aten.linear": (0,)}


def _side_of(node: torch.fx.Node, user: torch.fx.Node) -> int | None:
    """Which factor of a batched product a node is, 0 or 1; None: neither, or both."""
    positions = _BATCHED.get(name_of(user), ())
    sides = [side for side, position in enumerate(positions) if user.args[position] is node]
    return sides[0] if sides and sum(each is node for each in user.args) == 1 else None


def _swaps_matrices(node: torch.fx.Node) -> bool:
    """Whether a node transposes each of several matrices."""
    args: Any = node.args
    if str(node.target) == "aten.transpose.int":
        return {dim % 3 for dim in args[1:]} == {1, 2}
    return str(node.target) == "aten.permute.default" and [dim % 3 for dim in args[1]] == [0, 2, 1]


def orders_of(node: torch.fx.Node) -> set[int | None]:
    """The orders in which operations take a weight's elements: for a convolution its number of groups, else None."""
    return {_order_of(user) for user in node.users}


def _order_of(user: torch.fx.Node) -> int | None:
    return groups_of(user) if name_of(user) in CONVOLUTIONS else None


def groups_of(convolution: torch.fx.Node) -> int:
    at = CONVOLUTIONS[name_of(convolution)]
    groups: Any = convolution.args[at] if len(convolution.args) > at else convolution.kwargs.get("groups", 1)
    return int(groups)


def module_of(node: torch.fx.Node) -> tuple[str, str]:
    """Path and class of the module that applies an operation."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return "", ""
    path, kind = stack[-1]
    return path, kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]


def _place_of(node: torch.fx.Node) -> str:
    path, kind = module_of(node)
    return f"{path or 'the module'} ({kind})" if kind else "the module"
