"""The targets of links in the pages."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

from pages import ROOT, text_of


def _without_code(lines: list[str]) -> str:
    """Text whose spans of code are empty, so that no bracket in them begins a link."""
    paragraphs = "\n".join(lines).split("\n\n")
    return "\n\n".join(re.sub(r"`[^`]*`", "``", paragraph) for paragraph in paragraphs)


def anchors_of(page: Path) -> set[str]:
    """The anchors to which links may lead, made from headings as GitHub does."""
    anchors: set[str] = set()
    seen: Counter[str] = Counter()
    for line in text_of(page):
        heading = re.match(r"#{1,6} +(.*?) *#* *$", line)
        if heading is None:
            continue
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        anchors.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return anchors


def links_of(page: Path) -> list[str]:
    """The links to files of this tree, and within the page."""
    text = _without_code(text_of(page))
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
    return [link for link in links if not re.match(r"[a-z]+:", link)]


def pictures_of(page: Path) -> list[tuple[str, str]]:
    """The text alternative and the file of each picture."""
    text = "\n".join(text_of(page))
    found = re.findall(r"!\[([^\]]*)\]\(([^)\s]+)\)", text)
    for image in re.findall(r"<img\b[^>]*>", text):
        attributes = dict(re.findall(r'(\w+)="([^"]*)"', image))
        found.append((attributes.get("alt", ""), attributes.get("src", "")))
    return found


def broken_links_of(page: Path) -> list[str]:
    broken = []
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        target = page if not path else (page.parent / unquote(path)).resolve()
        if not target.exists() or not target.is_relative_to(ROOT):
            broken.append(f"{link}: there is no such file")
        elif anchor and (target.suffix != ".md" or anchor not in anchors_of(target)):
            broken.append(f"{link}: {target.name} has no such heading")
    return broken
