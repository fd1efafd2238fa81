"""Tensors that FSDP2 has sharded, as whole ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed
from torch import Tensor


def whole(tensor: Tensor) -> Tensor:
    """The tensor itself, or the whole of a sharded tensor; then every rank must call this."""
    gather: Callable[[], Tensor] | None = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def assign(tensor: Tensor, value: Tensor) -> None:
    """Set a tensor's values; for a sharded tensor, this rank's values."""
    tensor = tensor.detach()
    if hasattr(tensor, "full_tensor"):
        from torch.distributed.tensor import DTensor, distribute_tensor

        assert isinstance(tensor, DTensor)
        value = distribute_tensor(value.to(tensor.dtype), tensor.device_mesh, tensor.placements).to_local()
        tensor = tensor.to_local()
    tensor.copy_(value)


def is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def sum_over(tensor: Tensor, group: torch.distributed.ProcessGroup | None) -> Tensor:
    """The sum over all ranks, in place."""
    if is_distributed():
        torch.distributed.all_reduce(tensor, group=group)
    return tensor


def first_ranks(tensor: Tensor, group: torch.distributed.ProcessGroup | None) -> Tensor:
    """The tensor of the group's first rank, in place."""
    if is_distributed():
        first = 0 if group is None else torch.distributed.get_global_rank(group, 0)
        torch.distributed.broadcast(tensor, first, group=group)
    return tensor
