"""The progress of a benchmark, on stderr; its results go to stdout."""

from __future__ import annotations

import sys
import time

BEGIN = time.monotonic()


def tell(text: str) -> None:
    """Print a line, after the seconds since the program began."""
    print(f"{time.monotonic() - BEGIN:6.0f} s  {text}", file=sys.stderr, flush=True)
