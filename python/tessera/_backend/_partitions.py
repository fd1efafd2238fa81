"""Parts of a graph that sessions compute, as large as possible, between operators that stay with PyTorch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch.fx import Node

from tessera._backend._support import is_own, is_pure

#: Operators for which a session is worth its call.
_WORTHWHILE = frozenset(
    f"aten.{name}.default"
    for name in (
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "matmul",
        "conv2d",
        "convolution",
        "native_layer_norm",
        "native_layer_norm_backward",
        "_fused_rms_norm",
        "_fused_rms_norm_backward",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
    )
)


@dataclass
class Stage:
    """Operators that a session computes, and operators that PyTorch computes after it."""

    taken: list[Node]
    others: list[Node]


def divide(nodes: list[Node], taken: set[Node]) -> list[Stage]:
    """Divide the nodes of a graph into stages; in the first one, sessions compute nothing."""
    while True:
        stages = _stages(nodes, taken)
        parts = [part for stage in stages for part in _connected(stage.taken)]
        light = {node for part in parts if not _is_worthwhile(part) for node in part}
        if not light:
            return stages
        taken = taken - light


def _is_worthwhile(nodes: Iterable[Node]) -> bool:
    return any(str(node.target) in _WORTHWHILE or is_own(node) for node in nodes)


def _stages(nodes: list[Node], taken: set[Node]) -> list[Stage]:
    """Put each node in the first stage in which its inputs are available."""
    number: dict[Node, int] = {}
    stages = [Stage([], [])]
    last = floor = 0  # stages of the last operator that draws random numbers, and of the last that writes
    for node in nodes:
        if node.op == "output":
            continue
        is_taken = node in taken
        inputs = [each for each in node.all_input_nodes if each in number]  # others are weights
        before = [number[each] + (is_taken and each not in taken) for each in inputs]
        stage = max([floor + is_taken, *before])
        if not is_pure(node):
            # Draws keep their order, and an operator that writes comes after all operators before it.
            writes = not hasattr(node.target, "_schema") or node.target._schema.is_mutable
            last = stage = max(stage, len(stages) - 1 if writes else last)
            floor = stage if writes else floor
        number[node] = stage
        while len(stages) <= stage:
            stages.append(Stage([], []))
        (stages[stage].taken if is_taken else stages[stage].others).append(node)
    return stages


def _connected(nodes: list[Node]) -> list[list[Node]]:
    """Nodes that depend on one another, in their order."""
    group = {node: {node} for node in nodes}
    for node in nodes:
        for each in node.all_input_nodes:
            if each in group and group[each] is not group[node]:
                small, large = sorted((group[each], group[node]), key=len)
                large |= small
                for member in small:
                    group[member] = large
    parts: dict[int, list[Node]] = {}
    for node in nodes:
        parts.setdefault(id(group[node]), []).append(node)
    return list(parts.values())
