"""Where the weights of a sparse matrix are: alone, in blocks, two of four, and beside rows and columns of zeros."""

from __future__ import annotations

import random
from fractions import Fraction

from pictures.canvas import Picture

SIZE, CELL, GAP, LEFT, TOP = 32, 4, 22, 16, 40

Places = set[tuple[int, int]]


def chosen(count: int, places: list[tuple[int, int]], source: random.Random) -> list[tuple[int, int]]:
    """Choose places at random; only random() gives the same numbers in every version of Python."""
    order = {place: source.random() for place in places}
    return sorted(places, key=order.__getitem__)[:count]


def grid(size: int) -> list[tuple[int, int]]:
    return [(row, col) for row in range(size) for col in range(size)]


def in_blocks(block: int, density: Fraction, source: random.Random) -> Places:
    """The rows and columns of blocks."""
    places = grid(SIZE // block)
    return set(chosen(int(density * len(places)), places, source))


def two_of_four(source: random.Random) -> Places:
    groups = [[(row, col + i) for i in range(4)] for row in range(SIZE) for col in range(0, SIZE, 4)]
    return {place for group in groups for place in chosen(2, group, source)}


def without_rows_and_columns(source: random.Random) -> Places:
    rows = {row for row, _ in chosen(16, [(i, 0) for i in range(SIZE)], source)}
    cols = {col for _, col in chosen(16, [(0, i) for i in range(SIZE)], source)}
    return {(row, col) for row, col in grid(SIZE) if row in rows and col in cols}


def draw() -> Picture:
    source = random.Random(1)
    eighth = Fraction(1, 8)
    panels = [
        ("single weights", "b = 1", 1, in_blocks(1, eighth, source)),
        ("blocks of 4 × 4", "b = 4", 4, in_blocks(4, eighth, source)),
        ("blocks of 8 × 8", "b = 8", 8, in_blocks(8, eighth, source)),
        ("2:4", "two of each four", 1, two_of_four(source)),
        ("rows, columns", "half are zeros", 1, without_rows_and_columns(source)),
    ]
    side = SIZE * CELL
    picture = Picture(
        2 * LEFT + len(panels) * side + (len(panels) - 1) * GAP,
        TOP + side + 48,
        "Patterns of weights",
        "Five matrices of 32 × 32 weights. Single weights, blocks of 4 × 4 and blocks of 8 × 8 fill one eighth each: the larger the "
        "blocks, the fewer and the more regular they are. 2:4 keeps two weights of each four in a row. Zero rows and columns leave a "
        "smaller dense matrix.",
    )
    for i, (title, form, block, places) in enumerate(panels):
        x = LEFT + i * (side + GAP)
        picture.text(x, TOP - 14, title, bold=True)
        picture.box(x, TOP, side, side, "panel", edge="grid")
        picture.cells(x, TOP, CELL * block, places, "blue", gap=0.6)
        density = Fraction(len(places) * block * block, SIZE * SIZE)
        picture.text(x, TOP + side + 20, form, colour="soft")
        picture.text(x, TOP + side + 37, f"density {density}", colour="soft")
    return picture
