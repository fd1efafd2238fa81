"""Speed-up of sparse products against the density of their weights, from tables of docs/figures."""

from __future__ import annotations

import functools
import re
import sys
from collections import defaultdict
from dataclasses import dataclass

from pictures.canvas import IMAGES, Picture, Scale

sys.path.append(str(IMAGES.parent / "figures"))

from figures import Table

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 760, 428, 50, 56, 370
OVER_DENSE, OVER_MKL = (LEFT, 470), (552, 746)  # where the panels begin and end
SPEED_UPS = (0.5, 1, 2, 4, 8, 16, 32, 64)
DENSITIES = {"1/2": 1 / 2, "1/4": 1 / 4, "1/8": 1 / 8, "1/16": 1 / 16, "1/32": 1 / 32, "1/50": 1 / 50}

RANDOM = {"16": "random, blocks of 16", "4": "random, blocks of 4", "1": "random, single weights"}
COLOURS = {"16": "blue", "4": "purple", "1": "orange"}

y_of = Scale((SPEED_UPS[0], SPEED_UPS[-1]), (BOTTOM, TOP))


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


def x_scale(panel: tuple[int, int]) -> Scale:
    return Scale((1 / 2, 1 / 50), (panel[0] + 14, panel[1] - 14))


def draw_axes(picture: Picture, panel: tuple[int, int], title: str, one: str, names: tuple[str, ...]) -> None:
    picture.text(panel[0], TOP - 22, title, bold=True)
    for speed_up in SPEED_UPS:
        y, is_one = y_of(speed_up), speed_up == 1
        picture.line([(panel[0], y), (panel[1], y)], "ink" if is_one else "grid", 1.5 if is_one else 1)
        picture.text(panel[0] - 6, y + 4, f"{speed_up:g} ×", anchor="end")
    for name, density in DENSITIES.items():
        x = x_scale(panel)(density)
        picture.line([(x, BOTTOM), (x, BOTTOM + 4)])
        if name in names:
            picture.text(x, BOTTOM + 20, name, anchor="middle")
    picture.text((panel[0] + panel[1]) / 2, BOTTOM + 42, "density of the weights", anchor="middle", colour="soft")
    picture.text(panel[0] + 4, y_of(1) + (18 if panel == OVER_DENSE else 32), one, colour="soft", clear=True)


def draw_range(picture: Picture, row: Row, panel: tuple[int, int], colour: str, shift: float = 0, half: float = 5) -> None:
    left, right = (x_scale(panel)(density) + shift for density in row.densities)
    top, bottom = y_of(row.speed_ups[1]), y_of(row.speed_ups[0])
    picture.box(left - half, top, right - left + 2 * half, bottom - top, colour, opacity=0.35, edge=colour, round=2)


def draw_legend(picture: Picture) -> None:
    """Above the lines, where densities are large."""
    entries = [(words, COLOURS[block], True) for block, words in RANDOM.items()]
    entries += [("layers of pruned networks", "soft", False)]
    entries += [("BERT-base at 1/10, blocks of 16", "blue", False), ("BERT-base at 1/10, single weights", "orange", False)]
    for i, (words, colour, is_line) in enumerate(entries):
        x, y = LEFT + 8, TOP + 10 + 17 * i
        if is_line:
            picture.line([(x, y - 4), (x + 18, y - 4)], colour, 2)
            picture.dot(x + 9, y - 4, colour, radius=3)
        else:
            picture.box(x + 3, y - 11, 12, 12, colour, opacity=0.35, edge=colour, round=2)
        picture.text(x + 26, y, words, clear=True)


def draw() -> Picture:
    rows = rows_by_series()
    picture = Picture(WIDTH, HEIGHT, "Speed-up of sparse products against the density of their weights", description())
    draw_axes(picture, OVER_DENSE, "Over the best dense library", "as fast as dense", tuple(DENSITIES))
    for row in rows["pruned over dense"]:
        draw_range(picture, row, OVER_DENSE, "soft")
    for block, shift in (("16", 6), ("1", 20)):
        for row in rows[f"BERT-base b={block}"]:
            draw_range(picture, row, OVER_DENSE, COLOURS[block], shift, half=4)
    for block in RANDOM:
        points = [(x_scale(OVER_DENSE)(row.densities[0]), y_of(row.speed_ups[0])) for row in rows[f"random b={block}"]]
        picture.line(points, COLOURS[block], 2)
        for x, y in points:
            picture.dot(x, y, COLOURS[block], radius=3)
    draw_legend(picture)
    draw_axes(picture, OVER_MKL, "Over MKL's sparse product", "as fast as MKL", ("1/2", "1/8", "1/50"))
    for row in rows["pruned over MKL"]:
        draw_range(picture, row, OVER_MKL, "soft")
    picture.text(OVER_MKL[0] + 10, TOP + 18, "layers of pruned\nnetworks, single weights", clear=True)
    return picture
