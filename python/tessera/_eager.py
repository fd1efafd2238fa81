"""Which calls may go straight to the kernels: PyTorch's dispatcher takes longer than a small product."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_C = torch._C


def _keys(tensor: Tensor) -> int:
    keys: int = _C._dispatch_keys(tensor).raw_repr()
    return keys


def _plain_keys() -> frozenset[int]:
    with torch.inference_mode():
        inferred = _keys(torch.empty(0, device="cpu"))
    return frozenset((_keys(torch.empty(0, device="cpu")), inferred))


# The dispatch keys of tensors of numbers on the CPU that are no views under conjugation and the like.
_PLAIN_KEYS = _plain_keys()
_TYPES = (Tensor, nn.Parameter)


def is_eager(*tensors: Tensor | None) -> bool:
    """Whether nothing traces, transforms or watches what PyTorch computes, and these are its own tensors on the CPU."""
    if torch.compiler.is_compiling():
        return False
    if (
        _C._len_torch_dispatch_stack()
        or _C._len_torch_function_stack()
        or _C._are_functorch_transforms_active()
        or _C._get_tracing_state()
        or torch.is_autocast_enabled("cpu")
        or torch.autograd.profiler._is_profiler_enabled
    ):
        return False
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in _TYPES or _keys(tensor) not in _PLAIN_KEYS):
            return False
    return True


def kernel_is_next(keyset: Any) -> bool:
    """Whether a dispatcher with these keys would call the kernel for the CPU."""
    next_key: Any = keyset.highestPriorityTypeId()
    return bool(next_key == _C.DispatchKey.CPU)
