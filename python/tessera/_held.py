"""What a PyTorch module holds, and whether that has changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Held:
    """The tensors and parts of a module as they were: which they are, and their versions, addresses and types.

    Writes through `.data` into the same memory have no version: they are not seen.
    """

    def __init__(self, module: nn.Module, constants: Sequence[Tensor]) -> None:
        self._held: list[tuple[dict[str, Any], str, Any]] = [
            (place, name, value)
            for each in module.modules()
            for place in (each._parameters, each._buffers, each._modules)
            for name, value in place.items()
        ]
        self._lists = [each._modules for each in module.modules() if isinstance(each, (nn.Sequential, nn.ModuleList))]
        self._lengths = [len(each) for each in self._lists]
        tensors = [value for _, _, value in self._held if isinstance(value, Tensor)]
        self._tensors = [each for each in (*tensors, *constants) if not each.is_inference()]
        self._versions = [each._version for each in self._tensors]
        self._addresses = [each.data_ptr for each in self._tensors if each.layout is torch.strided]
        self._present = [address() for address in self._addresses]
        self._types = [each.dtype for each in self._tensors]

    @property
    def is_unchanged(self) -> bool:
        return (
            [each._version for each in self._tensors] == self._versions
            and [address() for address in self._addresses] == self._present
            and self.has_same_parts
        )

    @property
    def has_same_parts(self) -> bool:
        """Whether nothing was replaced, removed, added to a list of modules, or given another type."""
        for place, name, value in self._held:
            if place.get(name) is not value:
                return False
        return [len(each) for each in self._lists] == self._lengths and [
            each.dtype for each in self._tensors
        ] == self._types

    def changed(self) -> Iterator[Tensor]:
        """The tensors with other contents."""
        addresses = iter(self._present)
        for tensor, version in zip(self._tensors, self._versions, strict=True):
            moved = tensor.layout is torch.strided and tensor.data_ptr() != next(addresses)
            if moved or tensor._version != version:
                yield tensor
