"""The host of this installation, and the number of threads."""

from __future__ import annotations

import platform
import warnings

import numpy as np

from tessera import _tessera
from tessera._arguments import checked_threads


def set_num_threads(threads: int) -> None:
    """Set the number of threads for products that are planned from now on without a number; 0: the initial number.

    The initial number is TESSERA_THREADS, or one thread per physical core that this process may use. At most 4096.
    """
    _tessera.set_default_threads(checked_threads(threads))


def get_num_threads() -> int:
    """Return the number of threads for products that are planned without a number."""
    return _tessera.default_threads()


def warn_without_kernels() -> None:
    """Warn if the package was built on a kind of processor whose instruction sets this one lacks."""
    if missing := _tessera.missing_instruction_set():
        warnings.warn(
            f"tessera was built on another kind of processor and has no kernels for {missing}: it computes with slow "
            "portable ones; install it on this computer, or for all processors, with "
            "--config-settings=cmake.define.TESSERA_INSTRUCTION_SETS=all",
            RuntimeWarning,
            stacklevel=3,
        )


def show_config() -> None:
    """Print versions, instruction sets (TESSERA_ISA restricts them), threads and the host's processor."""
    import importlib.metadata  # slow to import, and used only here

    available = ", ".join(_tessera.instruction_sets())
    print(f"tessera: {importlib.metadata.version('tessera')}")
    print(f"python: {platform.python_version()}, numpy {np.__version__}")
    print(f"instruction set in use: {_tessera.instruction_set()} of {available}")
    print(f"threads: {get_num_threads()}")
    print(_tessera.describe_host(), end="")
