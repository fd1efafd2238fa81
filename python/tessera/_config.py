"""What this installation runs on, and with how many threads."""

from __future__ import annotations

import platform

import numpy as np

from tessera import _tessera


def set_num_threads(threads: int) -> None:
    """Set the threads of products planned from now on that name no number; 0: as at the start.

    At the start they are TESSERA_THREADS, or one per physical core that this process may use. At most 4096.
    """
    _tessera.set_default_threads(checked_threads(threads))


def checked_threads(threads: int) -> int:
    """A number of threads, 0 for the default."""
    return _tessera.whole_number("threads", threads, 0, 4096)


def get_num_threads() -> int:
    """Return the threads of products that name no number."""
    return _tessera.default_threads()


def show_config() -> None:
    """Print versions, instruction sets (TESSERA_ISA restricts them), threads and the computer."""
    import importlib.metadata  # imports much that nothing else here needs

    available = ", ".join(_tessera.instruction_sets())
    print(f"tessera: {importlib.metadata.version('tessera')}")
    print(f"python: {platform.python_version()}, numpy {np.__version__}")
    print(f"instruction set in use: {_tessera.instruction_set()} of {available}")
    print(f"threads: {get_num_threads()}")
    print(_tessera.describe_host(), end="")
