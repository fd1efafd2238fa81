"""One set of threads for PyTorch and the kernels."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import torch

from tessera import _tessera

_shares = False

_FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


def share_threads(shares: bool = True) -> bool:
    """Compute on the threads of PyTorch's OpenMP runtime, or on own threads; returns whether threads are shared.

    Idle threads of either library spin for a while before they sleep, and would take time from the other library's
    threads. Importing `tessera.nn` does this, if PyTorch uses a runtime with GNU's interface, as its packages for Linux
    do. In a forked process PyTorch then computes on one thread.
    """
    global _shares
    addresses = _openmp_of_pytorch() if shares else None
    _tessera.use_openmp(*(addresses or (0, 0, 0)))
    _shares = addresses is not None
    return _shares


def _after_fork() -> None:
    # The runtime waits forever for threads that a child does not have, of which our layers started some.
    if _shares:
        torch.set_num_threads(1)


os.register_at_fork(after_in_child=_after_fork)


def _openmp_of_pytorch() -> tuple[int, ...] | None:
    try:
        # Loaded already; it finds its own runtime, of which a process may have several.
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        functions = [getattr(library, name) for name in _FUNCTIONS]
    except (OSError, AttributeError):
        return None
    return tuple(ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions)
