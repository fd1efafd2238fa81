"""Draws speedup.svg and speedup-dark.svg, beside it, from speedup.csv.

python docs/images/speedup.py            # write both
python docs/images/speedup.py --check    # fail if they are not what would be written
"""

from __future__ import annotations

import csv
import html
import math
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 860, 440, 46, 56, 380
OVER_DENSE, OVER_MKL = (LEFT, 520), (600, 840)  # where the panels begin and end
DENSITIES = (0.5, 0.02)
SPEED_UPS = (0.5, 64.0)

LINES = {"random b=16": "random, blocks of 16", "random b=4": "random, blocks of 4", "random b=1": "random, single weights"}
TITLE = "Speed-up of sparse products against the density of their weights"
DESCRIPTION = (
    "Left, over the best dense library: random patterns from 1.5 to 2.1 times at density 1/2 to 10, 20 and 22 times at 1/32, with single "
    "weights, blocks of 4 and of 16; layers of pruned networks from 1.1 to 15 times; BERT-base at density 0.1 from 2.9 to 6.6 times. "
    "Right, layers of pruned networks over MKL's sparse product: 1.4 to 3.1 times at density 0.5, 0.62 to 0.92 at 0.02."
)


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


def rows_by_series() -> dict[str, list[Row]]:
    found = defaultdict(list)
    with open(HERE / "speedup.csv", encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            densities = (float(row["density_from"]), float(row["density_to"]))
            found[row["series"]].append(Row(densities, (float(row["from"]), float(row["to"]))))
    return found


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
            f'role="img"><title>{html.escape(TITLE)}</title><desc>{html.escape(DESCRIPTION)}</desc>',
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
    for theme in THEMES:
        path = HERE / f"speedup{theme.suffix}.svg"
        text = drawn(theme)
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
    if stale:
        print(f"{', '.join(stale)}: run python docs/images/speedup.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
