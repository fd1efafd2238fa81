"""Ranks: processes of torch.distributed that divide the replicas of a session among them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tessera import _tessera

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    _Messages = list[tuple[int, memoryview]]


class _Ranks:
    """Sends messages through gloo, in a group of its own: what else the processes send does not come between."""

    def __init__(self, group: ProcessGroup, longest_wait: float) -> None:
        import torch.distributed as dist

        self._ranks = dist.get_process_group_ranks(group)
        self._group: Any = dist.new_group(self._ranks, backend="gloo", use_local_synchronization=True)
        self._wait = timedelta(seconds=longest_wait)

    def exchange(self, sent: _Messages, received: _Messages) -> None:
        import torch
        import torch.distributed as dist

        if self._group is None:
            raise RuntimeError("a rank has failed: start all of them again")
        begun = []
        for begin, messages in ((dist.irecv, received), (dist.isend, sent)):
            for rank, view in messages:
                if not view.nbytes:
                    continue  # the other rank leaves it out as well
                tensor = torch.frombuffer(view, dtype=torch.uint8)
                work = self._of(rank, begin, tensor, self._ranks[rank], group=self._group)
                begun.append((rank, work, tensor))
        for rank, work, _ in begun:
            self._of(rank, work.wait, self._wait)

    def abort(self, message: str) -> None:
        """End the connections, which the others notice."""
        import torch.distributed as dist

        group, self._group = self._group, None
        if group is not None:
            dist.destroy_process_group(group)

    @staticmethod
    def _of(rank: int, call: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return call(*arguments, **named)
        except RuntimeError as error:
            raise RuntimeError(f"rank {rank} has failed, ended, or not answered in time: {error}") from error


def communicator_of(group: ProcessGroup, longest_wait: float, divide_cores: bool) -> _tessera.Communicator:
    """The ranks of a process group; every one of them has to call it, before it makes machines of the host."""
    if not longest_wait >= 0.001:  # gloo would take less as no limit
        raise ValueError(f"rank_timeout is {longest_wait}; it must be at least 0.001 seconds")
    import torch.distributed as dist

    ranks = _Ranks(group, longest_wait)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    return _tessera.communicator(rank, size, longest_wait, ranks.exchange, ranks.abort, divide_cores)
