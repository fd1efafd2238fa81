"""Pages in notebooks."""

from __future__ import annotations

import html


def in_frame(page: str) -> str:
    """An HTML page as a part of another one, with styles of its own."""
    return f'<iframe srcdoc="{html.escape(page, quote=True)}" style="width: 100%; height: 45em; border: 0"></iframe>'
