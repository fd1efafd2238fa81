"""Checks of arguments."""

from __future__ import annotations

import numbers
from collections.abc import Iterable

from tessera import _tessera


def checked_threads(threads: int) -> int:
    """A number of threads, 0 for the default."""
    return _tessera.whole_number("threads", threads, 0, 4096)


def checked_seed(seed: int, name: str = "seed") -> int:
    """A seed, of 64 bits."""
    return _tessera.whole_number(name, seed, 0, 2**64 - 1)


def checked_number(name: str, value: float) -> float:
    """A number, whole or not. Raises TypeError for anything else."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}; it must be a number")
    return float(value)


def chosen(kind: str, value: str, known: Iterable[str]) -> str:
    """A value that is among the known ones. Raises ValueError for others."""
    if value not in known:
        raise ValueError(f"unknown {kind} {value!r} (choose from {', '.join(known)})")
    return value
