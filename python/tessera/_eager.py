"""Which calls may go straight to the kernels: PyTorch's dispatcher takes longer than a small product."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from tessera import _tessera

_C = torch._C


def _keys(tensor: Tensor) -> int:
    keys: int = _C._dispatch_keys(tensor).raw_repr()
    return keys


def _plain_keys() -> frozenset[int]:
    with torch.inference_mode():
        inferred = _keys(torch.empty(0, device="cpu"))
    return frozenset((_keys(torch.empty(0, device="cpu")), inferred))


# The dispatch keys of plain tensors on the CPU; lazily conjugated or negated views have others.
_PLAIN_KEYS = _plain_keys()
_TYPES = (Tensor, nn.Parameter)


def is_in_dual_level() -> bool:
    """Whether tensors may have tangents: forward-mode derivatives."""
    return forward_ad._current_level >= 0


# If one of these returns a true value, a mode, a transform, a tracer or the profiler has to see each operator.
_WATCHERS: list[Callable[[], object]] = [
    _C._len_torch_dispatch_stack,
    _C._len_torch_function_stack,
    _C._are_functorch_transforms_active,
    _C._get_tracing_state,
    _C._autograd._profiler_enabled,
    is_in_dual_level,
    partial(torch.is_autocast_enabled, "cpu"),
]


def _reader() -> _tessera.TensorReader | None:
    try:
        return _tessera.TensorReader(Tensor, nn.Parameter, torch._C._VariableFunctions.empty_like, _WATCHERS)
    except TypeError:  # PyTorch before 2.10
        return None


#: Reads tensors without calls of Python, where PyTorch can do that.
reader = _reader()


@atexit.register
def _forget() -> None:
    global reader
    reader = None


def is_eager(*tensors: Tensor | None) -> bool:
    """Whether nothing traces, transforms or watches PyTorch's operators, and these are plain tensors on the CPU."""
    if torch.compiler.is_compiling():
        return False
    for watches in _WATCHERS:
        if watches():
            return False
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in _TYPES or _keys(tensor) not in _PLAIN_KEYS):
            return False
    return True


def kernel_is_next(keyset: Any) -> bool:
    """Whether a dispatcher with these keys would call the kernel for the CPU."""
    next_key: Any = keyset.highestPriorityTypeId()
    return bool(next_key == _C.DispatchKey.CPU)
