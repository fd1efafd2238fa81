"""`torch.compile(model, backend="tessera")`: sessions compute the parts of PyTorch's graphs that they support."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule

from tessera._backend._graph import CompiledGraph
from tessera._backend._program import Settings
from tessera._backend._reports import GraphReport
from tessera._backend._weights import PATIENCE

log = logging.getLogger(__name__)

_numbers = itertools.count()

#: The graphs that PyTorch still has, in their order.
_graphs: weakref.WeakValueDictionary[int, CompiledGraph] = weakref.WeakValueDictionary()
_graph_numbers = itertools.count()


def backend(
    module: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **_: Any
) -> Callable[..., Any]:
    """A backend for `torch.compile`, also available by its name, "tessera".

    `options` are:
    - `threads`: the maximum number of threads (0: the default);
    - `measure`: whether each part of a graph is timed when it is compiled, and left to PyTorch if PyTorch is faster;
    - `training`: whether sessions also compute graphs that need gradients, and the gradients. By default PyTorch does,
      since its products with changing weights are faster.
    """
    settings = _settings_of(options or {})
    number = next(_numbers)

    def compiler(kind: str, patience: int) -> Callable[..., Any]:
        def compile(module: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            static = _static_inputs() if kind != "backward" else set()
            graph = CompiledGraph(module, static, patience, settings, f"graph {number}, {kind}")
            _graphs[next(_graph_numbers)] = graph
            return _boxed(graph)

        return compile

    compile = aot_autograd(
        fw_compiler=compiler("forward", PATIENCE) if settings.training else _by_pytorch,
        bw_compiler=compiler("backward", PATIENCE) if settings.training else _by_pytorch,
        inference_compiler=compiler("inference", 0),
    )
    try:
        compiled: Callable[..., Any] = compile(module, example_inputs)
    except torch._dynamo.exc.TorchDynamoException:  # makes the compiler begin again
        raise
    except Exception:
        log.warning("graph %d: PyTorch computes it as it is", number, exc_info=True)
        return module.forward
    return compiled


def backend_reports() -> list[GraphReport]:
    """Reports on the graphs that `torch.compile(backend="tessera")` has compiled and called, and still holds, in order.

    A graph has one report for each combination of sizes. For weights, a report describes the forms in the latest
    sessions. Graphs that PyTorch computes because they need gradients have no report.
    """
    return [report for graph in list(_graphs.values()) for report in graph.reports()]


def _boxed(call: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """Wrap a call for PyTorch, which then passes the arguments in a list that the call clears."""

    def run(args: list[Any]) -> Any:
        return call(args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _by_pytorch(module: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    log.info("a graph needs gradients, and training=True is not set: PyTorch computes it, with dense weights")
    return _boxed(lambda args: module(*args))


def _settings_of(options: Mapping[str, Any]) -> Settings:
    known = [field.name for field in dataclasses.fields(Settings)]
    unknown = ", ".join(sorted(set(options) - set(known)))
    if unknown:
        raise ValueError(f"unknown options {unknown}: there are {', '.join(known)}")
    return Settings(**options)


def _static_inputs() -> set[int]:
    """Positions of parameters and buffers among the inputs of the graph that is compiled."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    return set() if metadata is None else set(metadata.static_input_indices)
