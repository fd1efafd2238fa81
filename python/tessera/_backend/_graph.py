"""PyTorch's graphs: sessions compute the parts that they support."""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta
from torch.nn import Parameter

from tessera._backend._divided import Divided
from tessera._backend._partitions import Stage, divide
from tessera._backend._program import Program, Settings
from tessera._backend._reasons import left_dense
from tessera._backend._reports import GraphReport
from tessera._backend._support import Support, dependencies, is_part, is_pure, may_gain, prepared_nodes, remove_unused
from tessera._backend._weights import Weight, WeightSets
from tessera._layers import LayerReport, SparsityReport
from tessera._locks import Lock
from tessera.graph._factors import take_factors_as_they_are

log = logging.getLogger(__name__)

#: The most sets of sizes for which a graph is compiled; for other sizes PyTorch computes the whole graph.
_MOST_SIZES = 8

aten = torch.ops.aten


class CompiledGraph:
    """A graph that PyTorch calls. It is compiled at the first call with each set of sizes, when weights have values."""

    def __init__(
        self, module: GraphModule, static: set[int], patience: int, settings: Settings, name: str
    ) -> None:
        self._module = module
        self._patience = patience
        self._settings = settings
        self._name = name
        placeholders = module.graph.find_nodes(op="placeholder")
        self._static = {i for i in static if i < len(placeholders)}
        self._sizes = [i for i, node in enumerate(placeholders) if not isinstance(node.meta.get("val"), Tensor)]
        self._compiled: dict[tuple[Any, ...], GraphModule] = {}
        self._sets: dict[tuple[Any, ...], WeightSets] = {}
        self._reports: dict[tuple[Any, ...], GraphReport] = {}
        #: The reports on weights, by sizes and name; a session adds its own when it is made.
        self._found: dict[tuple[Any, ...], dict[str, LayerReport]] = {}
        self._lock = Lock()

    def __call__(self, args: list[Any]) -> Any:
        """Arguments come in a list, which is cleared."""
        given = list(args)
        args.clear()
        sizes = tuple(given[i] for i in self._sizes)
        compiled = self._compiled.get(sizes)
        if compiled is None:
            compiled = self._compile(sizes, given)
        return compiled(*given)

    def _compile(self, sizes: tuple[Any, ...], args: list[Any]) -> GraphModule:
        with self._lock:
            if sizes in self._compiled:
                return self._compiled[sizes]
            if len(self._compiled) == _MOST_SIZES:
                log.info("%s: more than %d sizes: PyTorch computes the others", self._name, _MOST_SIZES)
            if len(self._compiled) >= _MOST_SIZES:
                return self._module
            start = time.perf_counter()
            try:
                with torch.inference_mode(False), torch.no_grad():
                    compiled = self._converted(sizes, args)
            except Exception as error:
                log.warning("%s: PyTorch computes all of it", self._name, exc_info=True)
                compiled = self._module
                self._reports[sizes] = GraphReport(self._name, sizes, error=f"{type(error).__name__}: {error}")
                self._found[sizes] = {}
            log.info("%s: compiled in %.2f s", self._name, time.perf_counter() - start)
            self._compiled[sizes] = compiled
            return compiled

    def _converted(self, sizes: tuple[Any, ...], args: list[Any]) -> GraphModule:
        module = _with_sizes(self._module, args) if self._sizes else self._module
        graph = Graph(owning_module=module)
        graph.output(graph.graph_copy(module.graph, {}))
        _simplify(graph)
        _draw_masks_apart(graph)
        remove_unused(graph)  # tracing with sizes adds all results of an operator
        placeholders = graph.find_nodes(op="placeholder")
        plain = {placeholders[i]: args[i] for i in self._static if _is_plain(args[i])}
        given = {node: tensor for node, tensor in plain.items() if may_gain(node, tensor)}
        prepared = prepared_nodes(graph, set(given))
        support = Support(graph, given, prepared)
        live = _live_nodes(graph, prepared)
        stages = divide(live, {node for node in live if support.takes(node)})
        self._reports[sizes] = self._report(sizes, live, stages, support)
        self._found[sizes] = self._left_dense(plain, prepared, live, stages, support)
        if not any(stage.taken for stage in stages):
            return self._module
        return Divided(graph, stages, support, prepared, functools.partial(self._program, sizes)).module

    def _program(self, sizes: tuple[Any, ...], body: GraphModule, weights: list[Weight]) -> Program:
        # A weight that is computed may depend on the sizes, even if its sources are the same for all sizes.
        own = sizes if any(weight.compute is not None for weight in weights) else ()
        key = (own, *(weight.name for weight in weights))
        sets = self._sets.setdefault(key, WeightSets(self._patience))
        return Program(body, weights, sets, self._settings, self._found[sizes])

    def reports(self) -> list[GraphReport]:
        """The reports on the graph, one for each set of sizes."""
        with self._lock:
            reports = [(each, self._found[sizes]) for sizes, each in self._reports.items()]
        return [
            dataclasses.replace(each, weights=SparsityReport(False, list(found.values()))) for each, found in reports
        ]

    def _report(
        self, sizes: tuple[Any, ...], nodes: list[Node], stages: list[Stage], support: Support
    ) -> GraphReport:
        """The operators that stay with PyTorch, and why; they are logged too."""
        taken = {node for stage in stages for node in stage.taken}
        operators = [node for node in nodes if node.op == "call_function" and not is_part(node)]
        operators = [node for node in operators if not support.is_constant(node)]
        others = [node for node in operators if node not in taken]
        counts = Counter(f"{node.target}: {support.obstacles.get(node, 'a session would not pay')}" for node in others)
        report = GraphReport(
            name=self._name,
            sizes=sizes,
            operators=len(operators),
            taken=len(operators) - len(others),
            parts=sum(bool(stage.taken) for stage in stages),
            by_pytorch=dict(counts.most_common()),
        )
        log.info("%s", report.operators_text())
        return report

    def _left_dense(
        self,
        parameters: dict[Node, Tensor],
        prepared: set[Node],
        live: list[Node],
        stages: list[Stage],
        support: Support,
    ) -> dict[str, LayerReport]:
        """The weights for which no sparse form is considered, and why; they are logged too. Sessions add the others."""
        taken = {node for stage in stages for node in stage.taken}
        found = {each.name: each for each in left_dense(parameters, prepared, live, taken, support)}
        for each in found.values():
            log.info("%s: %s: %s", self._name, each.name, each.reason)
        return found


def _is_plain(tensor: Any) -> bool:
    """Whether a tensor has memory that the CPU can read."""
    return type(tensor) in (Tensor, Parameter) and tensor.device.type == "cpu" and tensor.layout is torch.strided


def _with_sizes(module: GraphModule, args: list[Any]) -> GraphModule:
    """The graph with the sizes of the arguments; its nodes keep their modules."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = [mode.from_tensor(each, static_shapes=True) if isinstance(each, Tensor) else each for each in args]
    with mode, preserve_node_meta():
        return make_fx(Interpreter(module).run)(*fakes)


def _live_nodes(graph: Graph, prepared: set[Node]) -> list[Node]:
    """The nodes on which results depend, without nodes from which only weights are computed."""
    live = {graph.output_node()}
    for node in reversed(graph.nodes):
        if node in live or node.op == "placeholder" or not is_pure(node):
            live |= {node, *dependencies(node, prepared)}
    return [node for node in graph.nodes if node in live]


def _simplify(graph: Graph) -> None:
    """Replace detach and convolutions by simpler operators, as gradients are separate operators of the graph."""
    for node in graph.find_nodes(op="call_function", target=aten.detach.default):
        node.target = aten.alias.default
    for node in graph.find_nodes(op="call_function", target=aten.convolution.default):
        x, weight, bias, stride, padding, dilation, is_transposed, _, groups = node.args
        if not is_transposed and len(stride) == 2:
            node.target = aten.conv2d.default
            node.args = (x, weight, bias, stride, padding, dilation, groups)
    take_factors_as_they_are(graph)


def _draw_masks_apart(graph: Graph) -> None:
    """Make the masks of dropout depend only on sizes, so that drawing them does not divide a part."""
    for node in graph.find_nodes(op="call_function", target=aten.native_dropout.default):
        x, p, train = node.args
        if train is False or not 0 < p < 1 or x.meta["val"].device.type != "cpu":
            continue
        scaled_as, drawn = node.meta["val"]
        with graph.inserting_before(node):
            mask = _drawn_mask(graph, drawn, 1 - p)
            kept = graph.call_function(aten.mul.Tensor, (x, mask))
            scaled = graph.call_function(aten.mul.Tensor, (kept, 1 / (1 - p)))
        kept.meta["val"] = scaled.meta["val"] = scaled_as
        for user in list(node.users):
            user.replace_all_uses_with((scaled, mask)[user.args[1]])
            graph.erase_node(user)
        graph.erase_node(node)


def _drawn_mask(graph: Graph, drawn: Tensor, p: float) -> Node:
    """A mask like `drawn`, whose elements PyTorch draws in the order of their addresses."""
    strides = drawn.stride()
    order = sorted(range(drawn.dim()), key=lambda dim: (-strides[dim], -drawn.shape[dim]))
    in_order = drawn.permute(order)
    place = graph.call_function(aten.empty.memory_format, (list(in_order.shape),), {"dtype": torch.bool})
    mask = graph.call_function(aten.bernoulli.p, (place, p))
    place.meta["val"] = mask.meta["val"] = in_order
    if order == sorted(order):
        return mask
    permuted = graph.call_function(aten.permute.default, (mask, [order.index(dim) for dim in range(drawn.dim())]))
    permuted.meta["val"] = drawn
    return permuted
