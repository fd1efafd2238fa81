"""Which operators of a graph of PyTorch a session can compute."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from tessera.graph._aten import Constant, Split, Transposed
from tessera.graph._conversion import Conversion
from tessera.graph._parameters import Parameter, Weights, type_of
from tessera.graph._values import INTEGERS, Truth, Value

#: The types of tensors that sessions take and return here.
TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.int64)

#: Operators on integers whose results equal PyTorch's: `_MOVES` return some of their integers, `_OF_INTEGERS` other
#: types. Sums and products stay with PyTorch, as integers of sessions have 32 bits.
_MOVES = frozenset(
    f"aten.{name}"
    for name in (
        *("view.default", "_unsafe_view.default", "reshape.default", "expand.default", "unsqueeze.default"),
        *("squeeze.default", "squeeze.dim", "squeeze.dims", "slice.Tensor", "select.int", "alias.default"),
        *("clone.default", "permute.default", "transpose.int", "t.default"),
    )
)
_OF_INTEGERS = frozenset(
    {"aten.embedding.default", "aten._to_copy.default"}
    | {f"aten.{name}.{kind}" for name in ("eq", "ne", "lt", "le", "gt", "ge") for kind in ("Tensor", "Scalar")}
    | {f"aten.{name}.Tensor" for name in ("add", "sub", "mul", "div")}
)

_CONVOLUTIONS = ("aten.conv2d.default", "aten.convolution.default")

#: The arguments that may be a weight that is prepared once, by operator: the first one that is known before the call.
_WEIGHTS = {
    "aten.mm.default": (1, 0),
    "aten.addmm.default": (2, 1),
    "aten.matmul.default": (1, 0),
    "aten.bmm.default": (1, 0),
    "aten.baddbmm.default": (2, 1),
    **dict.fromkeys(_CONVOLUTIONS, (1,)),
}
#: The arguments for which a prepared weight gains nothing unless it is sparse, by operator.
_UNPREPARED = {
    "aten.mm.default": (0,),
    "aten.addmm.default": (1,),
    "aten.matmul.default": (0,),
    "aten.bmm.default": (0, 1),
    "aten.baddbmm.default": (1, 2),
}

#: Why a node that takes one of several results stays with PyTorch.
_OF_PYTORCH = "it takes a result of an operator that stays with PyTorch"

_TRANSPOSES = ("aten.t.default", "aten.transpose.int", "aten.permute.default")


def tensors_of(meaning: Any) -> Iterator[Tensor]:
    if isinstance(meaning, Tensor):
        yield meaning
    elif isinstance(meaning, (tuple, list)):
        for part in meaning:
            yield from tensors_of(part)


def is_part(node: Node) -> bool:
    """Whether a node takes one of several results."""
    return node.target is operator.getitem


def is_pure(node: Node) -> bool:
    """Whether a node's result depends only on its inputs, and it changes nothing."""
    if node.op != "call_function":
        return node.op in ("placeholder", "get_attr")
    target = node.target
    if is_part(node):
        return True
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    is_random = torch.Tag.nondeterministic_seeded in target.tags and _argument(node, "dropout_p") != 0
    return not is_random and not str(target).startswith("aten.empty")


def remove_unused(graph: Graph) -> None:
    """Remove nodes that contribute nothing to what a graph returns or changes."""
    graph.eliminate_dead_code(lambda node: node.op == "placeholder" or not is_pure(node))


def _argument(node: Node, name: str) -> Any:
    """An argument by its name; None if the operator has none."""
    for i, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if argument.name == name:
            return node.args[i] if i < len(node.args) else node.kwargs.get(name, argument.default_value)
    return None


def is_view(node: Node) -> bool:
    """Whether the result may share memory with an input."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if str(node.target) == "aten._unsafe_view.default":
        return True
    return any(each.alias_info is not None and not each.alias_info.is_write for each in node.target._schema.returns)


def is_own(node: Node) -> bool:
    """Whether a node is an operator of `torch.ops.tessera`."""
    return str(node.target).startswith("tessera.")


def needs_parameters(node: Node) -> bool:
    """Whether a session computes an operator only if its weights are parameters."""
    return is_own(node) or str(node.target) in _CONVOLUTIONS


def prepared_nodes(graph: Graph, static: set[Node]) -> set[Node]:
    """The nodes that depend only on static placeholders."""
    prepared = set(static)
    for node in graph.nodes:
        inputs = node.all_input_nodes
        if node.op == "call_function" and inputs and is_pure(node) and all(each in prepared for each in inputs):
            prepared.add(node)
    return prepared


def weights_of(node: Node, prepared: set[Node]) -> dict[int, Node]:
    """The weights that a session takes as parameters, by argument: matrices of products, before they are transposed."""
    if is_own(node):
        return {i: each for i, each in enumerate(node.args) if isinstance(each, Node) and each in prepared}
    for position in _WEIGHTS.get(str(node.target), ()):
        weight = node.args[position]
        while isinstance(weight, Node) and str(weight.target) in _TRANSPOSES:
            weight = weight.args[0]
        if isinstance(weight, Node) and weight in prepared:
            return {position: weight}
    return {}


def may_gain(placeholder: Node, tensor: Tensor) -> bool:
    """Whether a weight is worth a copy: a weight without zeros that all operators take in place is not.

    Nor is a weight of a type that sessions do not support, as PyTorch cannot count zeros of all types.
    """
    if not _is_unprepared(placeholder):
        return True
    return tensor.dtype in TYPES and int(tensor.count_nonzero()) < tensor.numel()


def _is_unprepared(node: Node) -> bool:
    """Whether only products take the weight, or views of it, and read it in place."""

    def takes_it_as_it_lies(user: Node) -> bool:
        if is_view(user):
            return _is_unprepared(user)
        positions = _UNPREPARED.get(str(user.target), ())
        return any(user.args[position] is node for position in positions)

    return all(map(takes_it_as_it_lies, node.users))


def dependencies(node: Node, prepared: set[Node]) -> list[Node]:
    """The nodes from which a node is computed, besides weights."""
    weights = weights_of(node, prepared)
    found: list[Node] = []
    map_arg(([each for i, each in enumerate(node.args) if i not in weights], node.kwargs), found.append)
    return found


def unsuitable(tensor: Tensor) -> str | None:
    """Why a session cannot take or give a tensor."""
    if type(tensor) is not FakeTensor:
        return f"a {type(tensor).__name__} is not possible"
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return f"tensors on {tensor.device.type!r} of layout {tensor.layout} are not possible"
    if not all(isinstance(size, int) for size in (*tensor.shape, *tensor.stride())):
        return "sizes are not known"
    if tensor.dtype not in TYPES:
        return f"values of {tensor.dtype} are not possible"
    return "there are no elements" if tensor.numel() == 0 else None


def _obstacle_of_integers(node: Node) -> str | None:
    """Why a node with integers stays with PyTorch."""
    name, result = str(node.target), node.meta.get("val")
    integers = [each for each in node.all_input_nodes if _is_of_integers(each)]
    if not integers and not _is_of_integers(node):
        return None
    if name in _MOVES:
        return None
    least, most = INTEGERS["i32"]
    numbers = [each for each in node.args if isinstance(each, int)]
    is_float = isinstance(result, Tensor) and result.dtype in (torch.bool, torch.float32, torch.float16, torch.bfloat16)
    if name in _OF_INTEGERS and is_float and all(least <= each <= most for each in numbers):
        return None
    return "integers of 32 bits may not hold what it computes"


def _is_of_integers(node: Node) -> bool:
    return any(each.dtype is torch.int64 for each in tensors_of(node.meta.get("val")))


def limits_of(placeholder: Node) -> tuple[int, int]:
    """The smallest and largest integers of an input for which every row of an embedding exists."""
    least, most = INTEGERS["i32"]
    for user in placeholder.users:
        if str(user.target) in _MOVES:
            low, high = limits_of(user)
        elif str(user.target) == "aten.embedding.default" and user.args[1] is placeholder:
            low, high = 0, user.args[0].meta["val"].shape[0] - 1  # type: ignore[union-attr]
        else:
            continue
        least, most = max(least, low), min(most, high)
    return least, most


def handle_of(
    conversion: Conversion, node: Node, name: str, tensor: Tensor, weights: Weights | None = None
) -> Parameter | Constant:
    """The value that stands for a weight in a conversion; `node` is its node in the graph."""
    if not tensor.dtype.is_floating_point:
        return Constant(conversion.graph, tensor)
    handle = Parameter(conversion.graph, name, tensor, weights)
    handle.is_weight, handle.is_stack = conversion.is_weight(node), conversion.is_stack(node)
    return handle


class Support(Conversion):
    """A conversion of a graph that only finds out which nodes can be converted."""

    def __init__(self, graph: Graph, given: dict[Node, Tensor], prepared: set[Node]) -> None:
        super().__init__()
        #: Why nodes stay with PyTorch.
        self.obstacles: dict[Node, str] = {}
        for node in graph.nodes:
            if node.op == "placeholder":
                self.known[node] = self._placeholder(node, given if node in prepared else {})
            elif node.op == "get_attr":
                tensor = getattr(graph.owning_module, str(node.target), None)
                self.known[node] = Constant(self.graph, tensor) if isinstance(tensor, Tensor) else None
            elif node.op == "call_function":
                self._try(node)
        self._leave_with_parts(graph)

    def _leave_with_parts(self, graph: Graph) -> None:
        """Leave an operator to PyTorch if sessions lack one of its results, such as a batch norm's running mean."""
        parts = [node for node in graph.nodes if is_part(node)]
        for node in parts:
            if node in self.obstacles and not self.is_constant(node.all_input_nodes[0]):
                self.obstacles.setdefault(node.all_input_nodes[0], self.obstacles[node])
        for node in parts:
            if node.all_input_nodes[0] in self.obstacles:
                self.obstacles.setdefault(node, _OF_PYTORCH)

    def takes(self, node: Node) -> bool:
        return node.op == "call_function" and node not in self.obstacles and not self.is_constant(node)

    def is_constant(self, node: Node) -> bool:
        known = self.known.get(node)
        return all(isinstance(each, Constant) for each in (known if isinstance(known, list) else [known]))

    def _placeholder(self, node: Node, given: dict[Node, Tensor]) -> Any:
        meaning = node.meta.get("val")
        if not isinstance(meaning, Tensor):
            return meaning
        if node in given and all(needs_parameters(user) for user in node.users):
            return handle_of(self, node, node.name, given[node])
        return self._stand_in(meaning) if unsuitable(meaning) is None else None

    def _try(self, node: Node) -> None:
        try:
            obstacle = self._obstacle(node)
            if obstacle is None:
                self.apply(node)
                obstacle = self._difference(node)
        except Exception as error:  # unexpected by the handler: PyTorch decides whether it is an error
            obstacle = f"{type(error).__name__}: {error}"
        if obstacle is not None:
            self.obstacles[node] = obstacle
            self.known[node] = self._stand_in(node.meta.get("val"))

    def _obstacle(self, node: Node) -> str | None:
        if not is_pure(node):
            return "it draws random numbers, writes, or is unknown"
        inputs = node.all_input_nodes
        if is_part(node):
            return _OF_PYTORCH if inputs[0] in self.obstacles else None
        if all(self.is_constant(each) for each in inputs):
            return None
        for each in (node, *inputs):
            if isinstance(self.known.get(each), (Constant, Parameter)):
                continue
            for tensor in tensors_of(each.meta.get("val")):
                if (why := unsuitable(tensor)) is not None:
                    return why
        return _obstacle_of_integers(node)

    def _difference(self, node: Node) -> str | None:
        """How the result differs from PyTorch's; None: it does not."""
        if node in self.missing:
            return self.missing[node].reason
        known, meaning = self.known[node], node.meta.get("val")
        if known is None:
            return "the result is not computed"
        if isinstance(known, Split):
            return "it has more than five dimensions"
        if isinstance(known, list):
            return None  # the nodes that take its parts are compared
        if isinstance(known, (Constant, Parameter)):
            return None
        shape, dtype = _shape_and_type(known)
        if not isinstance(meaning, Tensor) or shape != tuple(meaning.shape):
            return f"the result would have shape {shape}"
        is_same = isinstance(known, Truth) or dtype == type_of(meaning.dtype, allow_integers=True)
        return None if is_same else f"the result would have type {dtype}"


def _shape_and_type(value: Value | Transposed) -> tuple[tuple[int, ...], str]:
    if isinstance(value, Transposed):
        shape = value.of.shape
        return (*shape[:-2], shape[-1], shape[-2]), value.of.dtype
    return value.shape, value.dtype
