"""The first cells of the notebook of the getting-started page, with what they printed when they were recorded."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

from pictures.canvas import IMAGES, Picture

Cell = dict[str, Any]

WIDTH, LEFT, PADDING = 760.0, 56.0, 9.0
LINE, SMALL = 16.0, 11.5  # the height of a line, and the font's size in code
LETTERS = 96  # of prose, in a line
SHOWN = range(3)  # which cells of code, with the prose between them

HEADING, PROSE, CODE = range(3)


def lines_of_markdown(text: str) -> list[tuple[int, str]]:
    """Lines of a cell as a notebook shows them; an empty one between paragraphs."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)|`([^`]*)`", lambda found: found[1] or found[2], text)
    lines: list[tuple[int, str]] = []
    for paragraph in text.split("\n\n"):
        if lines:
            lines.append((PROSE, ""))
        if paragraph.startswith("#"):
            lines.append((PROSE, ""))
            lines.append((HEADING, paragraph.lstrip("# ")))
        elif paragraph.startswith("    "):
            lines += [(CODE, line[4:]) for line in paragraph.splitlines()]
        else:
            lines += [(PROSE, line) for line in textwrap.wrap(" ".join(paragraph.splitlines()), LETTERS)]
    return lines


class Page:
    """Cells below each other. Pictures know their height before anything is drawn, so that drawing without one measures."""

    def __init__(self, picture: Picture | None) -> None:
        self._picture = picture
        self.end = 14.0

    def _text(self, words: str, y: float, **options: Any) -> None:
        if self._picture is not None and words:
            self._picture.text(LEFT + PADDING, y, words, **options)

    def _lines(self, lines: list[tuple[int, str]]) -> None:
        for kind, words in lines:
            self.end += LINE if words else LINE / 2
            if kind == CODE:
                self._text(words, self.end - 4, size=SMALL, code=True)
            else:
                self._text(words, self.end - 4, size=16 if kind == HEADING else 13, bold=kind == HEADING)

    def markdown(self, text: str) -> None:
        self._lines(lines_of_markdown(text))
        self.end += PADDING

    def code(self, number: int, source: str, printed: str) -> None:
        lines = source.splitlines()
        height = LINE * len(lines) + 2 * PADDING
        if self._picture is not None:
            self._picture.box(LEFT, self.end, WIDTH - LEFT - 16, height, "panel", edge="grid", round=3)
            self._picture.text(LEFT - 8, self.end + PADDING + LINE - 4, f"[{number}]:", anchor="end", colour="blue", size=SMALL, code=True)
        for i, line in enumerate(lines):
            self._text(line, self.end + PADDING + LINE * (i + 1) - 4, size=SMALL, code=True)
        self.end += height + PADDING
        self._lines([(CODE, line) for line in printed.splitlines()])
        self.end += PADDING if printed else 0


def draw_cells(page: Page, cells: list[Cell]) -> None:
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            page.markdown(source)
        else:
            page.code(cell["execution_count"], source, "".join(line for output in cell["outputs"] for line in output["text"]))


def draw() -> Picture:
    notebook = json.loads((IMAGES.parent / "getting-started.ipynb").read_text(encoding="utf-8"))
    cells = notebook["cells"]
    code = [i for i, cell in enumerate(cells) if cell["cell_type"] == "code"]
    shown = cells[code[SHOWN[0]] : code[SHOWN[-1]] + 1]
    measured = Page(None)
    draw_cells(measured, shown)
    picture = Picture(
        WIDTH,
        measured.end + 2.5 * LINE,
        "The notebook of the getting-started page",
        "Cells of a notebook: a model of PyTorch, pruned to a tenth of its weights, is compiled by tessera.compile, whose result "
        "prints a table of its layers with times dense and sparse; then a call of each is timed. "
        f"Recorded on {notebook['metadata']['recorded']}.",
    )
    draw_cells(Page(picture), shown)
    machine, versions = notebook["metadata"]["recorded"].split("; ", 1)
    picture.text(LEFT + PADDING, measured.end + LINE / 2, f"{machine}\n{versions}", colour="soft", size=SMALL)
    return picture
