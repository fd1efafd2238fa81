"""`torch.compile(model, backend="tessera")`: graphs of PyTorch, of which sessions compute what they can."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule

from tessera._backend._graph import CompiledGraph
from tessera._backend._program import Settings
from tessera._backend._weights import PATIENCE

_numbers = itertools.count()


def backend(
    module: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **_: Any
) -> Callable[..., Any]:
    """A backend of `torch.compile`, also by its name "tessera".

    `options` are `threads`, at most so many (0: the default), and `measure`: whether each part of a graph is timed
    when it is compiled, and left to PyTorch if that is faster.
    """
    settings = _settings_of(options or {})
    number = next(_numbers)

    def compiler(kind: str, patience: int) -> Callable[..., Any]:
        def compile(module: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            static = _static_inputs() if kind != "backward" else set()
            graph = CompiledGraph(module, static, patience, settings, f"graph {number}, {kind}")

            def run(args: list[Any]) -> Any:
                return graph(args)

            run._boxed_call = True  # type: ignore[attr-defined]
            return run

        return compile

    compile = aot_autograd(
        fw_compiler=compiler("forward", PATIENCE),
        bw_compiler=compiler("backward", PATIENCE),
        inference_compiler=compiler("inference", 0),
    )
    compiled: Callable[..., Any] = compile(module, example_inputs)
    return compiled


def _settings_of(options: Mapping[str, Any]) -> Settings:
    unknown = set(options) - {"threads", "measure"}
    if unknown:
        raise ValueError(f"unknown options {', '.join(sorted(unknown))}: there are threads and measure")
    return Settings(**options)


def _static_inputs() -> set[int]:
    """Positions of parameters and buffers among the inputs of the graph that is compiled."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    return set() if metadata is None else set(metadata.static_input_indices)
