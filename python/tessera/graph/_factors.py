"""Factors of batched products that are copies of one matrix, or views that change nothing."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Graph, Node

aten = torch.ops.aten

_VIEWS = (aten.expand.default, aten.view.default, aten._unsafe_view.default, aten.reshape.default)


def take_factors_as_they_are(graph: Graph) -> None:
    """Let batched products take what was copied for them, or viewed in the same shape."""
    for product in graph.find_nodes(op="call_function", target=aten.bmm.default):
        left, right = map(_viewed, (2 * product.all_input_nodes)[:2])
        of_left, of_right = _matrix_of(left), _matrix_of(right)
        if of_left is not None or of_right is not None:
            product.target = aten.matmul.default
        if of_left is not None:
            product.args = (of_left, right)
        else:
            product.args = (left, right if of_right is None else of_right)
    for node in reversed(graph.nodes):
        if not node.users and node.target in (*_VIEWS, aten.unsqueeze.default):
            graph.erase_node(node)


def _viewed(factor: Node) -> Node:
    """What a view has in the same shape."""
    while factor.target in _VIEWS and _shape_of(factor) == _shape_of(factor.all_input_nodes[0]):
        factor = factor.all_input_nodes[0]
    return factor


def _matrix_of(factor: Node) -> Node | None:
    """The matrix of which a factor consists alone; none: it is another one for each group."""
    if factor.target is not aten.expand.default:
        return None
    of = factor.all_input_nodes[0]
    if of.target is aten.unsqueeze.default and _shape_of(of) == (1, *_shape_of(of.all_input_nodes[0])):
        of = of.all_input_nodes[0]
    shape = _shape_of(of)
    return of if len(shape) == 2 and _shape_of(factor)[-2:] == shape else None


def _shape_of(node: Node) -> tuple[int, ...]:
    """Empty if it is not known."""
    meaning = node.meta.get("val")
    return tuple(meaning.shape) if isinstance(meaning, Tensor) else ()
