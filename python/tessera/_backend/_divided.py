"""A graph whose parts are programs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from tessera._backend._partitions import Stage
from tessera._backend._program import Program
from tessera._backend._reasons import place_of
from tessera._backend._support import Support, dependencies, is_part, is_view, needs_parameters, remove_unused, weights_of
from tessera._backend._weights import Weight


class Divided:
    """A graph whose parts are programs."""

    def __init__(
        self,
        graph: Graph,
        stages: list[Stage],
        support: Support,
        prepared: set[Node],
        make: Callable[[GraphModule, list[Weight]], Program],
    ) -> None:
        root: Any = graph.owning_module
        self._root = root
        self._support = support
        self._prepared = prepared
        self._make = make
        self._graph = Graph()
        self._known: dict[Node, Node] = {}
        self._programs: dict[str, Program] = {}
        for stage in stages:
            if stage.taken:
                self._add_program(stage.taken)
            for node in stage.others:
                self._known[node] = self._graph.node_copy(node, self._value)
        self._graph.node_copy(graph.output_node(), self._value)
        remove_unused(self._graph)
        #: A copy of the graph in which each part is a call of its program.
        self.module = GraphModule(self._root, Graph())
        for name, program in self._programs.items():
            setattr(self.module, name, program)
        self.module.graph = self._graph
        self.module.recompile()

    def _value(self, node: Node) -> Node:
        """Compute a node outside of programs. Views of results are made there too, or they would not be views."""
        if node not in self._known:
            self._known[node] = self._graph.node_copy(node, self._value)
        return self._known[node]

    def _add_program(self, taken: list[Node]) -> None:
        results = self._results(taken)
        body = _Body(self._root, taken, results, self._support, self._prepared)
        name = f"program{len(self._programs)}"
        self._programs[name] = self._make(body.module, body.weights)
        arguments = tuple(self._value(node) for node in (*body.inputs, *body.sources))
        call = self._graph.call_module(name, arguments)
        for i, node in enumerate(results):
            self._known[node] = self._graph.call_function(operator.getitem, (call, i))

    @staticmethod
    def _results(taken: list[Node]) -> list[Node]:
        """The values of a part that other parts need, except views."""
        own = set(taken)
        results: dict[Node, None] = {}
        for node in taken:
            if any(user not in own for user in node.users):
                base = node
                while base in own and is_view(base.all_input_nodes[0] if is_part(base) else base):
                    base = base.all_input_nodes[0]
                if base in own:
                    results[base] = None
        return list(results)


class _Body:
    """A part of a graph by itself, with placeholders for its inputs and then for its weights."""

    def __init__(
        self, root: Any, taken: list[Node], results: list[Node], support: Support, prepared: set[Node]
    ) -> None:
        self._root: Any = root
        self._support = support
        self._prepared = prepared
        self._graph = Graph()
        self._known: dict[Node, Node] = {}
        self._weights: dict[Node, Node] = {}
        needed = self._needed(taken, results)
        #: Nodes outside of the part: its arguments, and the placeholders from which its weights are computed.
        self.inputs = self._inputs(needed)
        self.sources: list[Node] = []
        self.weights = self._add_weights(needed)
        for node in needed:
            self._known[node] = self._copied(node)
        self._graph.output(tuple(self._known[node] for node in results))
        self.module = GraphModule(root, self._graph)

    def _needed(self, taken: list[Node], results: list[Node]) -> list[Node]:
        needed = set(results)
        for node in reversed(taken):
            if node in needed:
                needed |= set(dependencies(node, self._prepared))
        return [node for node in taken if node in needed]

    def _inputs(self, needed: list[Node]) -> list[Node]:
        own = set(needed)
        inputs = dict.fromkeys(each for node in needed for each in dependencies(node, self._prepared))
        found = [each for each in inputs if each not in own and not self._support.is_constant(each)]
        for each in found:
            self._known[each] = self._placeholder(each, each.name)
        return found

    def _placeholder(self, of: Node, name: str) -> Node:
        node = self._graph.placeholder(name)
        node.meta["val"] = of.meta["val"]
        return node

    def _add_weights(self, needed: list[Node]) -> list[Weight]:
        weights = []
        for node in needed:
            for root in weights_of(node, self._prepared).values():
                if root in self._weights:
                    continue
                self._weights[root] = self._placeholder(root, f"weight_{root.name}")
                sources, compute = _computation(self._root, root)
                self.sources += [each for each in sources if each not in self.sources]
                positions = tuple(map(self.sources.index, sources))
                is_parameter = any(map(needs_parameters, root.users))
                weights.append(Weight(f"weight {root.name}", positions, compute, is_parameter, place_of(node)))
        return weights

    def _copied(self, node: Node) -> Node:
        weights = weights_of(node, self._prepared)
        args = tuple(
            self._weight(each, weights[i]) if i in weights else map_arg(each, self._value)
            for i, each in enumerate(node.args)
        )
        return self._created(node, args, map_arg(node.kwargs, self._value))

    def _created(self, node: Node, args: Any, kwargs: Any) -> Node:
        created = self._graph.create_node(node.op, node.target, args, kwargs)
        created.meta = dict(node.meta)
        return created

    def _weight(self, node: Any, root: Node) -> Node:
        """The placeholder of a weight, transposed as the weight was."""
        if node is root:
            return self._weights[root]
        return self._created(node, (self._weight(node.args[0], root), *node.args[1:]), node.kwargs)

    def _value(self, node: Node) -> Node:
        if node not in self._known:  # a constant
            self._known[node] = self._graph.node_copy(node, self._value)
        return self._known[node]


def _computation(root: Any, of: Node) -> tuple[list[Node], GraphModule | None]:
    """The placeholders on which a node depends, and their computation if it is none of them."""
    if of.op == "placeholder":
        return [of], None
    graph = Graph()
    known: dict[Node, Node] = {}
    needed = {of}
    for node in reversed(of.graph.nodes):
        if node in needed:
            needed |= set(node.all_input_nodes)
    for node in of.graph.nodes:
        if node in needed:
            known[node] = graph.node_copy(node, known.__getitem__)
    graph.output(known[of])
    return [node for node in known if node.op == "placeholder"], GraphModule(root, graph)
