"""Locks that a forked process does not wait for."""

from __future__ import annotations

import os
import threading
import weakref


class Lock:
    """Like `threading.RLock`, for use in a `with` statement.

    A forked process has none of its parent's other threads: a lock that one of them held at the fork protects a
    half-changed object there, and acquiring it raises RuntimeError.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._is_lost = False
        _locks.add(self)

    def __enter__(self) -> None:
        if self._is_lost:
            raise RuntimeError(
                "another thread was using this when this process was forked: it cannot be used here; make another one, or "
                "fork while no call is running"
            )
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _look(self) -> None:
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._is_lost = True


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _after_fork() -> None:
    for each in list(_locks):
        each._look()


os.register_at_fork(after_in_child=_after_fork)
