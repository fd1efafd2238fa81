"""What a PyTorch module holds, and whether that has changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tessera import _tessera


class Held:
    """The tensors and parts of a module as they were: which they are, and their versions, addresses and types.

    Writes through `.data` into the same memory have no version: they are not seen.
    """

    def __init__(self, module: nn.Module, constants: Sequence[Tensor]) -> None:
        self._places: list[dict[str, Any]] = [
            place
            for each in module.modules()
            for place in (each._parameters, each._buffers, each._modules)
            if place or (place is each._modules and isinstance(each, (nn.Sequential, nn.ModuleList)))
        ]
        self._values = [value for place in self._places for value in place.values()]
        tensors = [value for value in self._values if isinstance(value, Tensor)]
        self._tensors = [each for each in (*tensors, *constants) if not each.is_inference()]
        self._types = [each.dtype for each in self._tensors]
        self._states = _states_of(self._tensors)

    @property
    def is_unchanged(self) -> bool:
        return self._states.are_unchanged() and _tessera.have_values(self._places, self._values)

    @property
    def has_same_parts(self) -> bool:
        """Whether nothing was replaced, removed, added or given another type."""
        types = [each.dtype for each in self._tensors]
        return _tessera.have_values(self._places, self._values) and types == self._types

    def changed(self) -> Iterator[Tensor]:
        """The tensors with other contents."""
        for tensor, is_changed in zip(self._tensors, self._states.changed(), strict=True):
            if is_changed:
                yield tensor


class _States(Protocol):
    def are_unchanged(self) -> bool: ...
    def changed(self) -> Sequence[bool]: ...


class _SlowStates:
    """As `_tessera.TensorStates`, with any PyTorch."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        self._before = self._now()

    def _now(self) -> list[tuple[Any, ...]]:
        return [
            (each._version, each.dtype, each.data_ptr() if each.layout is torch.strided else 0) for each in self._tensors
        ]

    def are_unchanged(self) -> bool:
        return self._now() == self._before

    def changed(self) -> Sequence[bool]:
        return [now != before for now, before in zip(self._now(), self._before, strict=True)]


def _states_of(tensors: Sequence[Tensor]) -> _States:
    handles_of = getattr(getattr(torch._C, "_aoti", None), "unsafe_alloc_void_ptrs_from_tensors", None)
    if handles_of is None or not _tessera.reads_tensor_states():
        return _SlowStates(tensors)
    strided = [each.layout is torch.strided for each in tensors]
    return _tessera.TensorStates(list(zip(handles_of(list(tensors)), strided, strict=True)))
