"""The tensors and parts of a PyTorch module, and whether they have changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tessera import _tessera


class Held:
    """The tensors and parts of a module as they were: identities, versions, types, addresses and contents.

    Writes through `.data` to the same memory have no version: they are seen by a few words of each tensor, or else when
    the changed block has its turn.
    """

    def __init__(self, module: nn.Module, constants: Sequence[Tensor]) -> None:
        self._places: list[dict[str, Any]] = [
            place
            for each in module.modules()
            for place in (each._parameters, each._buffers, each._modules)
            if place or _may_grow(each, place)
        ]
        self._values = [value for place in self._places for value in place.values()]
        self._attributes = Attributes(module, constants)
        tensors = [value for value in self._values if isinstance(value, Tensor)]
        by_id = {id(each): each for each in (*tensors, *self._attributes.tensors, *constants)}
        tensors = [each for each in by_id.values() if not each.is_inference()]
        strided = [each for each in tensors if each.layout is torch.strided]
        sparse = [each for each in tensors if each.layout is not torch.strided]
        self._tensors = [*strided, *sparse]
        self._types = [each.dtype for each in self._tensors]
        parts = [(i, part.detach()) for i, each in enumerate(self._tensors) for part in parts_of(each)]
        #: As long as these are held, no other tensor can get their memory.
        self._memory = [part for _, part in parts]
        #: The number of the tensor to which each of them belongs.
        self._owners = [i for i, _ in parts]
        self._states = _states_of(strided)
        self._sparse_states = _SlowStates(sparse) if sparse else None
        self._contents = _tessera.Contents([_readable_memory_of(part) for part in self._memory])

    def is_unchanged(self, fully: bool = False) -> bool:
        """Whether nothing has changed. Each call compares the next part of the contents, or with `fully` all."""
        return (
            self._states.are_unchanged()
            and _tessera.have_values(self._places, self._values)
            and (self._sparse_states is None or self._sparse_states.are_unchanged())
            and self._attributes.are_unchanged()
            and (self._contents.are_unchanged() if fully else self._contents.look_unchanged())
        )

    @property
    def has_same_parts(self) -> bool:
        """Whether nothing was replaced, removed, added or given another type."""
        types = [each.dtype for each in self._tensors]
        has_values = _tessera.have_values(self._places, self._values) and self._attributes.are_unchanged()
        return has_values and types == self._types

    def changed(self) -> Iterator[Tensor]:
        """The tensors whose contents or versions have changed."""
        changed = [*self._states.changed(), *(self._sparse_states.changed() if self._sparse_states else ())]
        # The memory of a changed tensor may be gone.
        readable = [i for i, owner in enumerate(self._owners) if not changed[owner]]
        for i, is_written in zip(readable, self._contents.changed(readable), strict=True):
            changed[self._owners[i]] |= is_written
        for tensor, is_changed in zip(self._tensors, changed, strict=True):
            if is_changed:
                yield tensor


def _may_grow(module: nn.Module, place: dict[str, Any]) -> bool:
    """Whether entries added to this empty dictionary of the module would affect what the module computes."""
    if isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
        return place is module._modules
    return isinstance(module, (nn.ParameterList, nn.ParameterDict)) and place is module._parameters


class Attributes:
    """Constants of a program that are attributes of a module, or lie in its lists, tuples and dicts."""

    def __init__(self, module: nn.Module, constants: Sequence[Tensor]) -> None:
        self.tensors: list[Tensor] = []
        self._values: list[tuple[Any, Any, Any]] = []  # container, key or index, value
        self._sizes: list[tuple[Any, int]] = []
        #: Addresses identify them, as PyTorch has only an alias of a parameter that no module registered.
        self._wanted = {_address_of(each) for each in constants} - {0}
        self._seen: set[int] = set()
        if self._wanted:
            for each in module.modules():
                registered = (each._parameters, each._buffers, each._modules)
                others = {name: value for name, value in vars(each).items() if all(value is not of for of in registered)}
                self._look_into(vars(each), others)
        self._seen.clear()

    def are_unchanged(self) -> bool:
        if not self._values:  # as in most modules
            return True
        return all(len(container) == size for container, size in self._sizes) and all(
            (container.get(key) if isinstance(container, dict) else container[key]) is value
            for container, key, value in self._values
        )

    def _look_into(self, container: Any, items: Mapping[Any, Any]) -> bool:
        """Record the wanted tensors in a container; returns whether there are any."""
        before = len(self.tensors)
        for key, value in items.items():
            if isinstance(value, Tensor):
                if _address_of(value) in self._wanted:
                    self.tensors.append(value)
                    self._values.append((container, key, value))
            elif isinstance(value, (dict, list, tuple)) and value and id(value) not in self._seen:
                self._seen.add(id(value))
                if self._look_into(value, value if isinstance(value, dict) else dict(enumerate(value))):
                    self._values.append((container, key, value))
                    self._sizes.append((value, len(value)))
        return len(self.tensors) > before


def _address_of(tensor: Tensor) -> int:
    is_plain = type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided
    return tensor.data_ptr() if is_plain and tensor.device.type == "cpu" else 0


def parts_of(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensors that hold the contents of a tensor, its values last."""
    if tensor.layout is torch.strided:
        return (tensor,)
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return ()


def memory_of(tensor: Tensor) -> tuple[int, int]:
    """Address and bytes of a tensor's elements, including gaps between them."""
    if tensor.is_contiguous():
        return tensor.data_ptr(), tensor.nbytes
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def _readable_memory_of(tensor: Tensor) -> tuple[int, int]:
    """Like `memory_of`, for a plain tensor on the CPU; other tensors have no memory that can be read."""
    is_readable = type(tensor) in (Tensor, nn.Parameter) and tensor.device.type == "cpu"
    return memory_of(tensor) if is_readable else (0, 0)


class _States(Protocol):
    def are_unchanged(self) -> bool: ...
    def changed(self) -> Sequence[bool]: ...


class _SlowStates:
    """Like `_tessera.TensorStates`, for any version of PyTorch and tensors in any layout."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        self._before = self._now()

    def _now(self) -> list[tuple[Any, ...]]:
        return [
            (
                *(each._version, each.dtype, each.shape),
                *((part.data_ptr(), part.shape, part.stride()) for part in parts_of(each)),
            )
            for each in self._tensors
        ]

    def are_unchanged(self) -> bool:
        return self._now() == self._before

    def changed(self) -> Sequence[bool]:
        return [now != before for now, before in zip(self._now(), self._before, strict=True)]


def _states_of(tensors: Sequence[Tensor]) -> _States:
    """The states of strided tensors."""
    handles_of = getattr(getattr(torch._C, "_aoti", None), "unsafe_alloc_void_ptrs_from_tensors", None)
    if handles_of is None or not _tessera.reads_tensor_states():
        return _SlowStates(tensors)
    return _tessera.TensorStates(handles_of(list(tensors)))
