"""Sections of the reference: `.. header:: NAME` and `.. module-section:: NAME`, each alone on a line."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from plain_docstrings import restructured

_SECTION = re.compile(r"^\.\. (header|module-section):: (\S+)$", re.MULTILINE)


def _introduction(header: Path) -> list[str]:
    """The comment at a header's top, which Doxygen does not read."""
    lines = []
    for line in header.read_text(encoding="utf-8").splitlines():
        if not line.startswith("//"):
            break
        lines.append(line.removeprefix("//").removeprefix(" "))
    return restructured(lines)


def _native_functions(name: str) -> list[str]:
    """The public functions of a module that autodoc takes for data without a docstring."""
    module = importlib.import_module(name)
    return [each for each in module.__all__ if type(getattr(module, each)).__name__ == "nb_func"]


def _module(name: str, known: dict[type, str]) -> list[str]:
    """A class that several modules have is described with the first of them; `known` has those so far."""
    module = importlib.import_module(name)
    classes = {each: of_name for each in module.__all__ if isinstance(of_name := getattr(module, each), type)}
    again = {each: known[of_name] for each, of_name in classes.items() if known.setdefault(of_name, name) != name}
    lines = [f".. automodule:: {name}"]
    if again:
        lines += [f"   :exclude-members: {', '.join(again)}"]
    lines += ["", *(f"``{each}`` is ``{first}.{each}``.\n" for each, first in again.items())]
    for function in _native_functions(name):
        lines += [f".. autofunction:: {name}.{function}", ""]
    return lines


def with_sections(source: str, headers: Path) -> str:
    """The text of a page with its sections written out."""
    known: dict[type, str] = {}

    def written(match: re.Match[str]) -> str:
        kind, name = match.groups()
        lines = [name, "-" * len(name), ""]
        if kind == "header":
            lines += [*_introduction(headers / name), "", f".. doxygenfile:: {name}", ""]
        else:
            lines += _module(name, known)
        return "\n".join(lines)

    return _SECTION.sub(written, source)
