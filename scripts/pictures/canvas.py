"""An SVG drawing that is light or dark, as the reader's system prefers."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

IMAGES = Path(__file__).parents[2] / "docs" / "images"

Point = tuple[float, float]

# Blue, purple and orange differ in lightness too, for readers with colour blindness.
LIGHT = {
    "paper": "#ffffff",
    "ink": "#1f2328",
    "soft": "#57606a",
    "grid": "#d8dee4",
    "panel": "#f3f5f8",
    "blue": "#0550ae",
    "purple": "#8250df",
    "orange": "#bc4c00",
}
DARK = {
    "paper": "#0d1117",
    "ink": "#e6edf3",
    "soft": "#9ea7b3",
    "grid": "#30363d",
    "panel": "#161b22",
    "blue": "#58a6ff",
    "purple": "#bc8cff",
    "orange": "#f0883e",
}

_FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif'
_CODE = 'ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace'


def _rules(colours: dict[str, str], names: Iterable[str]) -> str:
    return "".join(f".f-{name}{{fill:{colours[name]}}}.s-{name}{{stroke:{colours[name]}}}" for name in names)


def _style(used: Iterable[str], theme: str) -> str:
    names = sorted(used)
    if theme:
        return _rules(LIGHT if theme == "light" else DARK, names)
    return f"{_rules(LIGHT, names)}@media (prefers-color-scheme:dark){{{_rules(DARK, names)}}}"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{_short(x)},{_short(y)}" for x, y in points)


class Picture:
    """A picture. Sizes are in pixels; text of size 13 remains legible at a width of 700."""

    def __init__(self, width: float, height: float, title: str, description: str) -> None:
        self.width, self.height = width, height
        self._title, self._description = title, description
        self._parts: list[str] = []
        self._used = {"paper"}

    def _colour(self, kind: str, name: str) -> str:
        self._used.add(name)
        return f"{kind}-{name}"

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        anchor: str = "start",
        colour: str = "ink",
        size: float = 13,
        bold: bool = False,
        clear: bool = False,
        code: bool = False,
    ) -> None:
        """Draw lines of text below each other; y is the base line of the first. `clear` ends lines of a grid around it,
        and `code` takes letters of one width and keeps spaces."""
        options = f' text-anchor="{anchor}"' if anchor != "start" else ""
        options += f' font-size="{_short(size)}"' if size != 13 else ""
        options += ' font-weight="600"' if bold else ""
        classes = self._colour("f", colour)
        options += f" font-family='{_CODE}' xml:space=\"preserve\"" if code else ""
        if clear:
            classes += f" {self._colour('s', 'paper')}"
            options += ' stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
        for i, line in enumerate(words.split("\n")):
            self._parts.append(
                f'<text class="{classes}" x="{_short(x)}" y="{_short(y + i * 1.3 * size)}"{options}>'
                f"{html.escape(line, quote=False)}</text>"
            )

    def line(self, points: Sequence[Point], colour: str = "ink", width: float = 1, dashes: str = "") -> None:
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._parts.append(
            f'<path class="{self._colour("s", colour)}" d="{_path(points)}" fill="none" stroke-width="{_short(width)}"{dashed}/>'
        )

    def arrow(self, points: Sequence[Point], colour: str = "soft", width: float = 1.5) -> None:
        """Draw an arrow along points, with its head at the last."""
        (from_x, from_y), (x, y) = points[-2:]
        angle = math.atan2(y - from_y, x - from_x)
        back = (x - 7 * math.cos(angle), y - 7 * math.sin(angle))
        across = (4 * math.sin(angle), -4 * math.cos(angle))
        self.line([*points[:-1], back], colour, width)
        head = [(x, y), (back[0] + across[0], back[1] + across[1]), (back[0] - across[0], back[1] - across[1])]
        self._parts.append(f'<path class="{self._colour("f", colour)}" d="{_path(head)}Z"/>')

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, *, opacity: float = 1, edge: str = "", round: float = 0
    ) -> None:
        classes = self._colour("f", fill) + (f" {self._colour('s', edge)}" if edge else "")
        options = f' fill-opacity="{opacity:.2g}"' if opacity != 1 else ""
        options += f' rx="{_short(round)}"' if round else ""
        self._parts.append(
            f'<rect class="{classes}" x="{_short(x)}" y="{_short(y)}" width="{_short(width)}" height="{_short(height)}"{options}/>'
        )

    def cells(
        self, x: float, y: float, size: float, places: Iterable[tuple[int, int]], fill: str, *, opacity: float = 1, gap: float = 0
    ) -> None:
        """Draw squares at (row, column) of a grid, with gaps between them."""
        side = _short(size - gap)
        squares = "".join(
            f"M{_short(x + col * size + gap / 2)},{_short(y + row * size + gap / 2)}h{side}v{side}h-{side}z"
            for row, col in sorted(places)
        )
        faint = f' fill-opacity="{opacity:.2g}"' if opacity != 1 else ""
        self._parts.append(f'<path class="{self._colour("f", fill)}" d="{squares}"{faint}/>')

    def area(self, points: Sequence[Point], fill: str, opacity: float) -> None:
        self._parts.append(f'<path class="{self._colour("f", fill)}" d="{_path(points)}Z" fill-opacity="{opacity:.2g}"/>')

    def dot(self, x: float, y: float, colour: str, *, radius: float = 4, hollow: bool = False) -> None:
        classes = f"{self._colour('f', 'paper' if hollow else colour)} {self._colour('s', colour)}"
        self._parts.append(f'<circle class="{classes}" cx="{_short(x)}" cy="{_short(y)}" r="{_short(radius)}" stroke-width="1.5"/>')

    def svg(self, theme: str = "") -> str:
        """The picture in a theme, or by default in both, between which the reader's system chooses."""
        size = f"{_short(self.width)} {_short(self.height)}"
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{_short(self.width)}" '
                f'height="{_short(self.height)}" font-size="13" font-family=\'{_FONT}\' role="img" aria-labelledby="title desc">',
                f'<title id="title">{html.escape(self._title, quote=False)}</title>',
                f'<desc id="desc">{html.escape(self._description, quote=False)}</desc>',
                f"<style>{_style(self._used, theme)}</style>",
                f'<rect class="f-paper" width="{_short(self.width)}" height="{_short(self.height)}"/>',
                *self._parts,
                "</svg>\n",
            ]
        )


@dataclass(frozen=True)
class Scale:
    """Places of values on an axis, in proportion to them or, if logarithmic, to their logarithms."""

    values: tuple[float, float]
    places: tuple[float, float]
    logarithmic: bool = True

    def __call__(self, value: float) -> float:
        low, high = self.values
        share = math.log(value / low) / math.log(high / low) if self.logarithmic else (value - low) / (high - low)
        return self.places[0] + share * (self.places[1] - self.places[0])
