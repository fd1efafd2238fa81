"""Why parameters that products or embeddings take are not considered for a sparse form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor
from torch.fx import Node

from tessera._backend._support import Support, weights_of
from tessera.graph._conversion import module_of
from tessera.graph._dense_weights import Use, multiplies, reason_of, uses_of


def place_of(node: Node) -> str:
    """The path of the module that applies an operator; empty if it is not known."""
    return module_of(node)[0].removeprefix("L['self'].")


def named(name: str, place: str) -> str:
    """A weight in the log: that of an input of the graph, and where it is used."""
    return f"{name} ({place})" if place else name


def left_dense(
    parameters: Mapping[Node, Tensor], prepared: set[Node], live: list[Node], taken: set[Node], support: Support
) -> Iterator[str]:
    """Those of which sessions, which take some nodes of those that are needed, consider no sparse form."""
    considered = {
        source for node in taken for root in weights_of(node, prepared).values() for source in _sources_of(root)
    }
    needed = set(live) - prepared
    for node, tensor in parameters.items():
        if node in considered or not tensor.is_floating_point() or tensor.dim() < 2:
            continue
        uses = [use for use in uses_of(node) if use[0] in needed]
        reason = _reason(tensor, uses, taken, support)
        if reason is not None:
            yield f"{named(node.name, place_of(uses[0][0]))}: {reason}"


def _reason(tensor: Tensor, uses: list[Use], taken: set[Node], support: Support) -> str | None:
    products = [user for user, of in uses if multiplies(user, of)]
    for user in products:
        if user not in taken:
            return f"PyTorch computes {user.target}: {support.obstacles.get(user, 'a session would not pay')}"
    return "no zeros" if products and int(tensor.count_nonzero()) == tensor.numel() else reason_of(tensor, uses)


def _sources_of(root: Node) -> Iterator[Node]:
    """What a node is computed from."""
    seen = {root}
    found = [root]
    for node in found:
        if node.op == "placeholder":
            yield node
        found += [each for each in node.all_input_nodes if each not in seen]
        seen.update(node.all_input_nodes)
