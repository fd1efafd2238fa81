"""The pages of the documentation: where their links lead, and what their code prints."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(r"( *)```(\S*) *$")


@dataclass(frozen=True)
class Block:
    """A fenced block, and where it begins."""

    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Example:
    """A block of code, and what the page says that it prints."""

    block: Block
    prints: str


def _parts_of(page: Path) -> tuple[list[str], list[Block]]:
    """The lines outside of fenced blocks, and these blocks; between blocks there is a line at least."""
    lines: list[str] = []
    blocks: list[Block] = []
    fence: tuple[str, str, int] | None = None
    inside: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        match = _FENCE.match(line)
        if fence is None and match:
            fence, inside = (match[1], match[2], number + 1), []
            lines.append("")
        elif fence is None:
            lines.append(line)
        elif match and match[1] == fence[0] and not match[2]:
            blocks.append(Block(fence[1], "\n".join(inside) + "\n", fence[2]))
            fence = None
        else:
            inside.append(line.removeprefix(fence[0]))
    if fence is not None:
        raise ValueError(f"{page}:{fence[2] - 1}: a block has no end")
    return lines, blocks


def _without_code(lines: list[str]) -> str:
    """Text whose spans of code are empty, so that no bracket in them begins a link."""
    paragraphs = "\n".join(lines).split("\n\n")
    return "\n\n".join(re.sub(r"`[^`]*`", "``", paragraph) for paragraph in paragraphs)


def anchors_of(page: Path) -> set[str]:
    """What links may name behind a #, as GitHub makes it of headings."""
    anchors: set[str] = set()
    seen: Counter[str] = Counter()
    for line in _parts_of(page)[0]:
        heading = re.match(r"#{1,6} +(.*?) *#* *$", line)
        if heading is None:
            continue
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        anchors.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return anchors


def links_of(page: Path) -> list[str]:
    """To files of this tree, and within the page."""
    text = _without_code(_parts_of(page)[0])
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
    return [link for link in links if not re.match(r"[a-z]+:", link)]


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


def examples_of(page: Path) -> Iterator[Example]:
    """Python and files in order; a block of text right behind one of Python is what it prints."""
    blocks = _parts_of(page)[1]
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        if block.language not in ("python", "toml"):
            continue
        end = block.line + block.text.count("\n") + 1  # the line behind the fence
        follows = after is not None and after.language == "text" and after.line - 1 <= end + 1
        yield Example(block, after.text if follows and after is not None else "")


def commands_of(page: Path, tool: str) -> list[str]:
    """The indented command lines that begin with a tool, without comments."""
    starts = f"    {tool} "
    lines = [line for line in _parts_of(page)[0] if line.startswith(starts)]
    return [re.sub(r" {2,}#.*| # .*", "", line[len(starts) :]).strip() for line in lines]


def prints_as_shown(shown: str, printed: str) -> bool:
    """Whether lines are equal. `…` stands for what differs from computer to computer, any space for several."""

    def lines_of(text: str) -> list[str]:
        return [" ".join(line.split()) for line in text.strip().splitlines()]

    wanted, found = lines_of(shown), lines_of(printed)
    patterns = [".*".join(map(re.escape, line.split("…"))) for line in wanted]
    return len(wanted) == len(found) and all(
        re.fullmatch(pattern, line) for pattern, line in zip(patterns, found, strict=True)
    )
