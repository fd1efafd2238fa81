"""Docstrings are plain text with `code`, indented blocks of code, and lists; Sphinx wants reStructuredText."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

# What reStructuredText would take for emphasis, substitutions, references and escapes.
_SPECIAL = re.compile(r"([\\*|_])")
_ITEM = re.compile(r"\s*[-•] ")
# The type of a property of the native half.
_GETTER = re.compile(r"^\(self\) -> (.*)$")


def _escaped(text: str) -> str:
    """Text outside of code with everything in it as it stands; code in double backticks."""
    parts = re.split(r"(``[^`]+``|`[^`]+`)", text)
    text = ""
    for part, follower in zip(parts, [*parts[1:], ""]):
        if part.startswith("`"):
            text += f"``{part.strip('`')}``" + ("\\ " if follower[:1].isalnum() else "")
        else:
            text += _SPECIAL.sub(r"\\\1", part)
    return text


def _paragraph(lines: list[str]) -> list[str]:
    if getter := _GETTER.match(lines[0]):
        return [f"``{getter.group(1).replace('tessera._tessera.', '')}``", "", *map(_escaped, lines[1:])]
    if lines[0].startswith("  "):
        return ["::", "", *lines]
    first_item = next((i for i, line in enumerate(lines) if _ITEM.match(line)), len(lines))
    text = [_escaped(line.lstrip()) for line in lines[:first_item]]
    return [*text, "", *map(_escaped, lines[first_item:])]


def restructured(lines: Iterable[str]) -> list[str]:
    """The lines of a docstring as reStructuredText."""
    result: list[str] = []
    for is_text, paragraph in groupby(lines, key=lambda line: bool(line.strip())):
        if is_text:
            result += [*_paragraph(list(paragraph)), ""]
    return result
