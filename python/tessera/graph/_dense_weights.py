"""Weights for which no sparse form is considered, and why."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

from tessera.graph._aten import Constant
from tessera.graph._conversion import CONVOLUTIONS, EMBEDDINGS, groups_of, module_of, name_of
from tessera.graph._parameters import Parameter, Weights

#: Operators that return a weight in another shape.
_VIEWS = {
    f"aten.{name}"
    for name in "t transpose permute view reshape unsqueeze squeeze expand _unsafe_view clone _to_copy".split()
}
#: Operators that return a part of a weight.
_PARTS = {f"aten.{name}" for name in "slice split split_with_sizes chunk select narrow unbind".split()}
#: The arguments that are factors of a product, by operator.
_FACTORS = {
    "aten.linear": (0, 1),
    "aten.mm": (0, 1),
    "aten.matmul": (0, 1),
    "aten.bmm": (0, 1),
    "aten.addmm": (1, 2),
    "aten.baddbmm": (1, 2),
}
#: An operation, and the node that it takes: a value, the value in another shape, or a part of it.
Use: TypeAlias = tuple[torch.fx.Node, torch.fx.Node]


def note_dense(known: Mapping[torch.fx.Node, Any], weights: Weights) -> None:
    """Report to `weights` the weights whose zeros did not decide their forms."""
    nodes: dict[str, list[torch.fx.Node]] = {}
    tensors: dict[str, Tensor] = {}
    for node, each in known.items():
        if isinstance(each, Parameter):
            if each.is_divided or each.is_decided:
                continue
            name = each.name
        elif isinstance(each, Constant) and each.of_parameters:
            name = f"{module_of(node)[0]}.weight".lstrip(".")
        else:
            continue
        nodes.setdefault(name, []).append(node)
        tensors.setdefault(name, each.tensor)
    for name, of in nodes.items():
        uses = [use for node in of for use in uses_of(node, known)]
        reason = reason_of(tensors[name], uses)
        if reason is not None:
            weights.leave(name, *_as_matrix(tensors[name], uses), reason)


def uses_of(node: torch.fx.Node, known: Mapping[torch.fx.Node, Any] | None = None) -> Iterator[Use]:
    """The uses of a value, in any shape, and of its parts, except parts that are weights in `known`."""
    for user in node.users:
        if name_of(user) in _VIEWS | _PARTS or user.target is operator.getitem:
            if known is None or not isinstance(known.get(user), Parameter):
                yield from uses_of(user, known)
        elif user.op != "output":
            yield user, node


def _is_factor(user: torch.fx.Node, node: torch.fx.Node) -> bool:
    return any(user.args[i] is node for i in _FACTORS.get(name_of(user), ()))


def _is_kernel(user: torch.fx.Node, node: torch.fx.Node) -> bool:
    return name_of(user) in CONVOLUTIONS and user.args[1] is node


def multiplies(user: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Whether an operation is a product or a convolution with a value."""
    return _is_factor(user, node) or _is_kernel(user, node)


def _is_transposed(user: torch.fx.Node) -> bool:
    name = name_of(user)
    return "transpose" in name or (name == "aten.convolution" and bool(user.args[6]))


def _why_groups_stay_dense(user: torch.fx.Node, node: torch.fx.Node) -> str | None:
    """Why the groups of a convolution stay dense; None: it has one group, or separate products for its groups."""
    groups = groups_of(user)
    if groups == 1:
        return None
    rows, of_group = node.meta["val"].shape[:2]
    return "depthwise convolution" if of_group == 1 or (_is_transposed(user) and rows == groups) else None


def reason_of(tensor: Tensor, uses: list[Use]) -> str | None:
    """Why a weight whose zeros do not decide stays dense; None: the tensor is not a weight."""
    factors = [use for use in uses if _is_factor(*use)]
    kernels = [use for use in uses if _is_kernel(*use)]
    if not factors and not kernels:
        is_table = tensor.dim() == 2 and any(name_of(user) in EMBEDDINGS for user, _ in uses)
        return "not a product" if is_table else None
    if tensor.dim() < 2:
        return None
    for use in kernels:
        if reason := _why_groups_stay_dense(*use):
            return reason
    if factors and tensor.dim() > 2:
        return "batched product"
    if len(factors) + len(kernels) < len(uses) or (factors and kernels):
        return "used elsewhere too"
    if any(user.args[_FACTORS[name_of(user)][0]] is node for user, node in factors):
        return "left factor of a product"
    if any(node.meta["val"].numel() != tensor.numel() for _, node in uses):
        return "sliced before its product"
    if len({groups_of(user) for user, _ in kernels}) > 1:
        return "convolutions in different orders"
    return "reshaped before its product"


def _as_matrix(tensor: Tensor, uses: list[Use]) -> tuple[Tensor, int]:
    """The weight as [outputs, inputs] if possible, and the rows of its first product; 0: it has no product."""
    for user, node in uses:
        if _is_factor(user, node) and tensor.dim() == 2 and node.meta["val"].numel() == tensor.numel():
            rows = math.prod(user.meta["val"].shape[:-1])
            is_right = user.args[_FACTORS[name_of(user)][1]] is node
            outputs = user.meta["val"].shape[-1]
            return (tensor if tensor.shape[0] == outputs else tensor.t()), rows if is_right else 0
    return tensor.reshape(tensor.shape[0], -1), 0
