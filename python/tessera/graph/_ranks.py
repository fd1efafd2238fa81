"""Ranks: processes of torch.distributed that divide the replicas of a session among them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tessera import _tessera

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    _Messages = list[tuple[int, memoryview]]

_Result = TypeVar("_Result")

#: Seconds for which a rank that loses another one waits for the reason, and for the store that may have it.
_LONGEST_REASON, _LONGEST_CALL = 1.0, 2.0


class _Ranks:
    """Sends messages through gloo, in a separate group, so that no other messages of the processes come between."""

    def __init__(self, group: ProcessGroup, longest_wait: float) -> None:
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import _get_default_store

        self._ranks = dist.get_process_group_ranks(group)
        self._rank = dist.get_rank(group)
        self._wait = timedelta(seconds=longest_wait)
        try:
            made = dist.new_group(self._ranks, timeout=self._wait, backend="gloo", use_local_synchronization=True)
        except RuntimeError as error:
            raise RuntimeError(f"not all ranks have connected within {longest_wait:g} s: {error}") from error
        self._group: Any = cast(Any, made)
        # Here a rank stores why it ends the connections to the others, who only see that these break.
        self._store: Any = _get_default_store()
        self._failure = f"tessera/{self._group.group_name}/failure"
        # Two threads may exchange messages at once, each with other ranks.
        self._beginning = threading.Lock()
        #: The rank that was lost first, and why.
        self._lost: tuple[int, str] | None = None

    def exchange(self, sent: _Messages, received: _Messages) -> None:
        import torch
        import torch.distributed as dist

        group = self._group  # another thread may reset the member meanwhile, and None would mean all processes
        if group is None:
            raise RuntimeError("a rank has failed: start all of them again")
        begun = []
        with self._beginning:
            for begin, messages in ((dist.irecv, received), (dist.isend, sent)):
                for rank, view in messages:
                    if not view.nbytes:
                        continue  # the other rank leaves it out as well
                    tensor = torch.frombuffer(view, dtype=torch.uint8)
                    work = self._of(rank, begin, tensor, self._ranks[rank], group=group)
                    begun.append((rank, work, tensor))
        for rank, work, _ in begun:
            self._of(rank, work.wait, self._wait)

    def abort(self, message: str) -> None:
        """Publish the reason, unless another rank did before, and end the connections, which the other ranks notice."""
        import torch.distributed as dist

        group, self._group = self._group, None
        if group is not None:
            _briefly(lambda: self._store.compare_set(self._failure, "", message).decode())
            dist.destroy_process_group(group)

    def _of(self, rank: int, call: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return call(*arguments, **named)
        except RuntimeError as error:
            # The rank that is lost first breaks the connections to others, too.
            if self._lost is None:
                self._lost = rank, f"rank {rank} has failed, ended, or not answered in time: {error}"
            lost = self._lost
            raise RuntimeError(_briefly(lambda: self._reason(*lost)) or lost[1]) from error

    def _reason(self, lost: int, reason: str) -> str:
        """The reason that another rank gives for ending the connections, if one does so soon, or else `reason`.

        A lost rank may itself have lost another one, for which it waited: then that rank's reason counts.
        """
        self._store.set(f"{self._failure}/{self._rank}", f"{lost} {reason}")
        met = {self._rank}
        begin = time.monotonic()
        while time.monotonic() < begin + _LONGEST_REASON:
            if self._store.check([self._failure]):
                return str(self._store.get(self._failure).decode())
            if lost not in met and self._store.check([f"{self._failure}/{lost}"]):
                met.add(lost)
                of_lost, _, its_reason = self._store.get(f"{self._failure}/{lost}").decode().partition(" ")
                if int(of_lost) not in met:
                    lost, reason = int(of_lost), its_reason
            time.sleep(0.05)
        return reason


def _briefly(call: Callable[[], str]) -> str:
    """The result of a call; nothing if it fails or takes long, as the process with the store may hang."""
    results: list[str] = []

    def run() -> None:
        with contextlib.suppress(Exception):
            results.append(call())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_LONGEST_CALL)
    return results[0] if results else ""


def communicator_of(
    group: ProcessGroup | None, longest_wait: float, divide_cores: bool
) -> _tessera.Communicator | None:
    """The communicator of a process group; every rank has to call this, before it makes machines of the host."""
    if group is None:
        return None
    if not longest_wait >= 0.001:  # gloo takes less than a millisecond as no limit
        raise ValueError(f"rank_timeout is {longest_wait}; it must be at least 0.001 seconds")
    import torch.distributed as dist

    ranks = _Ranks(group, longest_wait)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    return _tessera.communicator(rank, size, longest_wait, ranks.exchange, ranks.abort, bool(divide_cores))


def on_each(ranks: _tessera.Communicator | None, work: Callable[[], _Result]) -> _Result:
    """Do work that each rank does by itself, such as reading a file: if it fails on one rank, it fails on all."""
    return work() if ranks is None else cast(_Result, _tessera.do_on_each(ranks, work))
