"""Why parameters that products or embeddings take are not considered for a sparse form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from torch import Tensor
from torch.fx import Node

from tessera._backend._reports import dense
from tessera._backend._support import TYPES, Support, weights_of
from tessera._layers import LayerReport
from tessera.graph._conversion import module_of
from tessera.graph._dense_weights import Use, multiplies, reason_of, uses_of


def place_of(node: Node) -> str:
    """The path of the module that applies an operator; empty if it is not known."""
    return re.sub(r"^L\['\w+'\]\.?", "", module_of(node)[0])  # what PyTorch calls the module, as "L['self']."


def named(name: str, place: str) -> str:
    """The name of a weight in the log and in reports: the graph's input, and the place where it is used."""
    return f"{name} ({place})" if place else name


def left_dense(
    parameters: Mapping[Node, Tensor], prepared: set[Node], live: list[Node], taken: set[Node], support: Support
) -> Iterator[LayerReport]:
    """The weights for which sessions consider no sparse form. `taken` are the nodes of `live` that sessions compute."""
    considered = {
        source for node in taken for root in weights_of(node, prepared).values() for source in _sources_of(root)
    }
    needed = set(live) - prepared
    for node, tensor in parameters.items():
        if node in considered or not tensor.is_floating_point() or tensor.dim() < 2:
            continue
        uses = [use for use in uses_of(node) if use[0] in needed]
        density = _density(tensor)
        reason = _reason(tensor, density, uses, taken, support)
        if reason is not None:
            yield dense(named(node.name, place_of(uses[0][0])), tensor.shape, density, reason)


def _density(tensor: Tensor) -> float:
    """The fraction of non-zeros.

    NaN for types that sessions do not support, as PyTorch cannot count zeros of all types.
    """
    if tensor.dtype not in TYPES:
        return math.nan
    return int(tensor.count_nonzero()) / tensor.numel() if tensor.numel() else 1.0


def _reason(
    tensor: Tensor, density: float, uses: list[Use], taken: set[Node], support: Support
) -> str | None:
    products = [user for user, of in uses if multiplies(user, of)]
    for user in products:
        if user not in taken:
            return f"PyTorch computes {user.target}: {support.obstacles.get(user, 'a session would not pay')}"
    if products and math.isnan(density):
        return f"values of {tensor.dtype} are not possible"
    return "no zeros" if products and density == 1 else reason_of(tensor, uses)


def _sources_of(root: Node) -> Iterator[Node]:
    """The placeholders from which a node is computed."""
    seen = {root}
    found = [root]
    for node in found:
        if node.op == "placeholder":
            yield node
        found += [each for each in node.all_input_nodes if each not in seen]
        seen.update(node.all_input_nodes)
