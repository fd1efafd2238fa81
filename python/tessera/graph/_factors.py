"""Factors of batched products that are copies of one matrix, or views of memory in a layout that products take."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.fx import Graph, Node

aten = torch.ops.aten

#: Operators whose result has the elements of its input in place.
_VIEWS = (
    *(aten.expand.default, aten.view.default, aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.dim),
    *(aten.permute.default, aten.transpose.int, aten.t.default),
)


class _Source(NamedTuple):
    """The source of a factor that is a view: its matrices, or their transposes."""

    node: Node
    is_transposed: bool


def take_factors_as_they_are(graph: Graph) -> None:
    """Let batched products take copied or viewed factors in place; turn batches of one matrix into plain products."""
    for product in graph.find_nodes(op="call_function", target=aten.bmm.default):
        factors = (2 * product.all_input_nodes)[:2]
        stacks = [_source_of(each, 3) or _Source(each, False) for each in factors]
        left, right = (_source_of(each, 2) for each in factors)
        if left is not None and right is not None and _sizes_of(product)[:1] == (1,):
            _become_product(product, left, right)
            continue
        if left is not None or right is not None:
            product.target = aten.matmul.default
        if left is not None:
            stacks[0] = left
        elif right is not None:
            stacks[1] = right
        product.args = tuple(_taken(each, product) for each in stacks)
    for node in reversed(graph.nodes):
        if not node.users and (node.target in _VIEWS or node.target is aten.reshape.default):
            graph.erase_node(node)


def _become_product(batched: Node, left: _Source, right: _Source) -> None:
    """Turn a batched product with one matrix into a plain product."""
    factors = tuple(_taken(each, batched) for each in (left, right))
    with batched.graph.inserting_before(batched):
        product = batched.graph.call_function(aten.mm.default, factors)
    product.meta = {**batched.meta, "val": batched.meta["val"].squeeze(0)}
    batched.target, batched.args = aten.unsqueeze.default, (product, 0)


def _taken(source: _Source, product: Node) -> Node:
    """A factor of the product, taken from its source."""
    if not source.is_transposed:
        return source.node
    count = len(_sizes_of(source.node))
    order = [*range(count - 2), count - 1, count - 2]
    with product.graph.inserting_before(product):
        node = product.graph.call_function(aten.permute.default, (source.node, order))
    node.meta = {**product.meta, "val": source.node.meta["val"].permute(order)}
    return node


def _source_of(factor: Node, rank: int) -> _Source | None:
    """The first value with `rank` dimensions that a factor views; with 2, all matrices of the factor are equal."""
    layout = _layout_of(factor)
    if rank == 2 and (len(layout) != 3 or layout[0][1] != 0):
        return None
    wanted, above = layout[-rank:], factor
    found: _Source | None = None
    for node in _viewed(factor):
        own = _layout_of(node)
        if own and own == wanted:
            found = _Source(node, False)
        elif len(own) == rank and [*own[:-2], own[-1], own[-2]] == wanted:
            if found == _Source(above, False):  # `above` transposes this node
                return found
            found = _Source(node, True)
        above = node
    return found


def _viewed(node: Node) -> list[Node]:
    """A value, the value that it views, the value that this one views, and so on."""
    found = [node]
    while node.target in _VIEWS or (
        node.target is aten.reshape.default and _sizes_of(node) == _sizes_of(node.all_input_nodes[0])
    ):
        node = node.all_input_nodes[0]
        found.append(node)
    return found


def _layout_of(node: Node) -> list[tuple[int, int]]:
    """The size and stride of each dimension, stride 0 for size 1; empty if they are not known."""
    meaning = node.meta.get("val")
    if not isinstance(meaning, Tensor) or meaning.layout is not torch.strided:
        return []
    return [(size, step if size > 1 else 0) for size, step in zip(meaning.shape, meaning.stride(), strict=True)]


def _sizes_of(node: Node) -> tuple[int, ...]:
    """The sizes of dimensions; empty if they are not known."""
    return tuple(size for size, _ in _layout_of(node))
