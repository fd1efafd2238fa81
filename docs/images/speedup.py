"""Draws speedup.svg and speedup-dark.svg, beside it, from tables of docs/figures, and says in README what they show.

python docs/images/speedup.py            # write all
python docs/images/speedup.py --check    # fail if they are not what would be written
"""

from __future__ import annotations

import functools
import html
import math
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
README = HERE.parents[1] / "README.md"
sys.path.append(str(HERE.parent / "figures"))

from figures import Table

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 860, 440, 46, 56, 380
OVER_DENSE, OVER_MKL = (LEFT, 520), (600, 840)  # where the panels begin and end
DENSITIES = (0.5, 0.02)
SPEED_UPS = (0.5, 64.0)

LINES = {"random b=16": "random, blocks of 16", "random b=4": "random, blocks of 4", "random b=1": "random, single weights"}
TITLE = "Speed-up of sparse products against the density of their weights"


@dataclass(frozen=True)
class Theme:
    suffix: str
    background: str
    text: str
    grid: str
    colours: dict[str, str]


THEMES = (
    Theme("", "#ffffff", "#1f2328", "#d8dee4", {"16": "#0550ae", "4": "#8250df", "1": "#bc4c00", "pruned": "#57606a"}),
    Theme("-dark", "#0d1117", "#e6edf3", "#30363d", {"16": "#58a6ff", "4": "#bc8cff", "1": "#f0883e", "pruned": "#9ea7b3"}),
)


@dataclass(frozen=True)
class Row:
    densities: tuple[float, float]
    speed_ups: tuple[float, float]


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


@functools.cache
def rows_by_series() -> dict[str, list[Row]]:
    found = defaultdict(list)
    random, pruned = Table.read("inference"), Table.read("pruned-layers")
    for blocks in (1, 4, 16):
        for column in random.columns[1:]:
            density = 1 / numbers(column)[-1]
            speed_up = numbers(random.texts(f"n = 512, b = {blocks}", column)[1])[0]
            found[f"random b={blocks}"].append(Row((density, density), (speed_up, speed_up)))
    for library, column in (("dense", "× dense"), ("MKL", "× MKL's CSR")):
        for row in pruned.rows:
            name = pruned.name_of(row)
            found[f"pruned over {library}"].append(Row(_ends(numbers(name)), _ends(numbers(pruned.texts(name, column)[0]))))
    for blocks in (1, 16):
        found[f"BERT-base b={blocks}"].append(Row((0.1, 0.1), _range(_speed_ups_of_bert(blocks))))
    return found


def _ends(values: list[float]) -> tuple[float, float]:
    return values[0], values[-1]


def _range(values: list[float]) -> tuple[float, float]:
    return min(values), max(values)


def _speed_ups_of_bert(blocks: int) -> list[float]:
    tables = [Table.read("bert-base-epyc"), Table.read("bert-base-xeon")]
    row = f"10 % of the encoder, b = {blocks}"
    texts = [table.texts(row, column)[1] for table in tables for column in table.columns[1:]]
    return [value for text in texts for value in numbers(text)]


def description() -> str:
    rows = rows_by_series()
    first, last = ([rows[f"random b={b}"][i].speed_ups[0] for b in (1, 4, 16)] for i in (0, -1))
    pruned = _range([value for row in rows["pruned over dense"] for value in row.speed_ups])
    bert = _range([value for b in (1, 16) for value in rows[f"BERT-base b={b}"][0].speed_ups])
    dense, sparse = rows["pruned over MKL"][0].speed_ups, rows["pruned over MKL"][-1].speed_ups
    return (
        f"Left, over the best dense library: random patterns from {min(first):g} to {max(first):g} times at density 1/2 to "
        f"{last[0]:g}, {last[1]:g} and {last[2]:g} times at 1/32, with single weights, blocks of 4 and of 16; layers of pruned networks "
        f"from {pruned[0]:g} to {pruned[1]:g} times; BERT-base at density 0.1 from {bert[0]:g} to {bert[1]:g} times. Right, layers of "
        f"pruned networks over MKL's sparse product: {dense[0]:g} to {dense[1]:g} times at density 0.5, {sparse[0]:g} to {sparse[1]:g} "
        "at 0.02."
    )


def place(value: float, values: tuple[float, float], places: tuple[float, float]) -> float:
    """On a logarithmic axis."""
    share = math.log(value / values[0]) / math.log(values[1] / values[0])
    return places[0] + share * (places[1] - places[0])


def x_of(density: float, panel: tuple[int, int]) -> float:
    return place(density, DENSITIES, (panel[0] + 14, panel[1] - 14))


def y_of(speed_up: float) -> float:
    return place(speed_up, SPEED_UPS, (BOTTOM, TOP))


class Picture:
    def __init__(self, theme: Theme) -> None:
        self.theme = theme
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" '
            f'role="img"><title>{html.escape(TITLE)}</title><desc>{html.escape(description())}</desc>',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{theme.background}"/>',
        ]

    def text(self, x: float, y: float, words: str, anchor: str = "start", colour: str = "", weight: str = "normal") -> None:
        fill = colour or self.theme.text
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}">{html.escape(words)}</text>'
        )

    def line(self, points: list[tuple[float, float]], colour: str, width: float, dashes: str = "") -> None:
        path = " L".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>')

    def dot(self, x: float, y: float, colour: str) -> None:
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>')

    def box(self, row: Row, panel: tuple[int, int], colour: str, shift: float = 0, half: float = 5) -> None:
        """A range of densities and speed-ups."""
        left, right = (x_of(density, panel) + shift for density in row.densities)
        top, bottom = y_of(row.speed_ups[1]), y_of(row.speed_ups[0])
        self.parts.append(
            f'<rect x="{left - half:.1f}" y="{top:.1f}" width="{right - left + 2 * half:.1f}" height="{bottom - top:.1f}" rx="2" '
            f'fill="{colour}" fill-opacity="0.35" stroke="{colour}"/>'
        )

    def axes(self, panel: tuple[int, int], title: str, one: str) -> None:
        self.text(panel[0], TOP - 20, title, weight="bold")
        for speed_up in (0.5, 1, 2, 4, 8, 16, 32, 64):
            y = y_of(speed_up)
            is_one = speed_up == 1
            self.line([(panel[0], y), (panel[1], y)], self.theme.text if is_one else self.theme.grid, 1.5 if is_one else 1)
            self.text(panel[0] - 6, y + 4, f"{speed_up:g} ×", "end")
        for density, words in ((0.5, "1/2"), (0.25, "1/4"), (0.125, "1/8"), (0.0625, "1/16"), (0.03125, "1/32"), (0.02, "1/50")):
            x = x_of(density, panel)
            self.line([(x, BOTTOM), (x, BOTTOM + 4)], self.theme.text, 1)
            if panel == OVER_DENSE or density != 0.03125:
                self.text(x, BOTTOM + 18, words, "middle")
        self.text((panel[0] + panel[1]) / 2, BOTTOM + 36, "density of the weights", "middle")
        self.text(panel[0] + 4, y_of(1) + (15 if panel == OVER_DENSE else 32), one)

    def legend(self, x: float, y: float, words: str, colour: str, is_line: bool) -> None:
        if is_line:
            self.line([(x, y - 4), (x + 18, y - 4)], colour, 2)
            self.dot(x + 9, y - 4, colour)
        else:
            self.parts.append(
                f'<rect x="{x + 3:.1f}" y="{y - 11:.1f}" width="12" height="12" rx="2" fill="{colour}" fill-opacity="0.35" '
                f'stroke="{colour}"/>'
            )
        self.text(x + 24, y, words)

    def __str__(self) -> str:
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def drawn(theme: Theme) -> str:
    rows = rows_by_series()
    picture = Picture(theme)
    picture.axes(OVER_DENSE, "Over the best dense library", "line: as fast as dense")
    for row in rows["pruned over dense"]:
        picture.box(row, OVER_DENSE, theme.colours["pruned"])
    for blocks in ("1", "16"):
        for row in rows[f"BERT-base b={blocks}"]:
            picture.box(row, OVER_DENSE, theme.colours[blocks], shift=6 if blocks == "16" else 20, half=4)
    legends = [(words, theme.colours[name.split("=")[1]], True) for name, words in LINES.items()]
    legends += [("layers of pruned networks, single weights", theme.colours["pruned"], False)]
    legends += [("BERT-base, encoder at 1/10: blocks of 16", theme.colours["16"], False)]
    legends += [("BERT-base, encoder at 1/10: single weights", theme.colours["1"], False)]
    for name in LINES:
        colour = theme.colours[name.split("=")[1]]
        points = [(x_of(row.densities[0], OVER_DENSE), y_of(row.speed_ups[0])) for row in rows[name]]
        picture.line(points, colour, 2)
        for x, y in points:
            picture.dot(x, y, colour)
    for i, (words, colour, is_line) in enumerate(legends):
        picture.legend(LEFT + 10, TOP + 16 + 17 * i, words, colour, is_line)
    picture.axes(OVER_MKL, "Over MKL's sparse product", "line: as fast as MKL")
    for row in rows["pruned over MKL"]:
        picture.box(row, OVER_MKL, theme.colours["pruned"])
    picture.text(OVER_MKL[0] + 10, TOP + 18, "layers of pruned networks,")
    picture.text(OVER_MKL[0] + 10, TOP + 34, "single weights")
    return str(picture)


def main() -> int:
    stale = []
    texts = {HERE / f"speedup{theme.suffix}.svg": drawn(theme) for theme in THEMES}
    alternative = f'<img src="docs/images/speedup.svg" alt="{html.escape(description(), quote=False)}">'
    page = README.read_text(encoding="utf-8")
    texts[README] = re.sub(r'<img src="docs/images/speedup.svg" alt="[^"]*">', lambda _: alternative, page)
    for path, text in texts.items():
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
    if stale:
        print(f"{', '.join(stale)}: run python docs/images/speedup.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
