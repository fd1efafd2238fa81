"""The factors of structured matrices of 16 × 16: which of their elements are parameters."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from pictures.canvas import Picture

N, CELL, TOP, LEFT, ROW = 16, 4.5, 54, 18, 134
SIDE = N * CELL


@dataclass(frozen=True)
class Factor:
    """The places of parameters with their opacities, which show the values where places share them."""

    rows: int
    cols: int
    places: dict[tuple[int, int], float]
    colour: str = "blue"


def where(is_set: Callable[[int, int], bool], rows: int = N, cols: int = N, colour: str = "blue") -> Factor:
    return Factor(rows, cols, {(i, j): 1.0 for i in range(rows) for j in range(cols) if is_set(i, j)}, colour)


def shared(value: Callable[[int, int], int], values: int) -> Factor:
    """A factor whose elements of equal value have the same shade."""
    order = random.Random(3)
    shades = [0.12 + 0.88 * order.random() for _ in range(values)]
    return Factor(N, N, {(i, j): shades[value(i, j)] for i in range(N) for j in range(N)})


def butterfly(stride: int, block: int = 1) -> Factor:
    def is_set(i: int, j: int) -> bool:
        return (i // block) ^ (j // block) in (0, stride)

    return where(is_set)


def hadamard() -> Factor:
    signs = {(i, j): (i & j).bit_count() % 2 for i in range(N) for j in range(N)}
    return Factor(N, N, {place: 0.15 if sign else 0.6 for place, sign in signs.items()}, "soft")


def permutation() -> Factor:
    order = random.Random(5)
    keys = [order.random() for _ in range(N)]
    columns = sorted(range(N), key=keys.__getitem__)
    return where(lambda i, j: columns[i] == j, colour="soft")


def diagonal() -> Factor:
    return where(lambda i, j: i == j)


def block_diagonal(blocks: int) -> Factor:
    return where(lambda i, j: i * blocks // N == j * blocks // N)


def low_rank(rank: int) -> tuple[Factor, Factor]:
    return where(lambda i, j: True, N, rank), where(lambda i, j: True, rank, N)


def flat_butterfly(block: int) -> Factor:
    return where(lambda i, j: ((i // block) ^ (j // block)).bit_count() <= 1)


@dataclass(frozen=True)
class Structure:
    name: str
    parameters: int
    parts: tuple[Factor | str, ...]  # factors, with "·" or "+" between them

    @property
    def width(self) -> float:
        drawn = sum(part.cols * CELL if isinstance(part, Factor) else 16 for part in self.parts)
        return max(drawn, 104)  # the width of the words above


def product(*factors: Factor) -> tuple[Factor | str, ...]:
    return tuple(part for factor in factors for part in ("·", factor))[1:]


def structures() -> list[list[Structure]]:
    strided = where(lambda i, j: i % 4 == j % 4)
    ones = (diagonal(), hadamard(), diagonal(), permutation(), hadamard(), diagonal())
    blocks = [butterfly(stride, 2) for stride in (4, 2, 1)]
    u, v = low_rank(3)
    pixelfly = (flat_butterfly(2), "+", *product(*low_rank(2)))
    return [
        [
            Structure("butterfly", 4 * 2 * N, product(*(butterfly(stride) for stride in (8, 4, 2, 1)))),
            Structure("Monarch", 2 * 4 * N, product(strided, block_diagonal(4))),
            Structure("block diagonal", 4 * N, (block_diagonal(4),)),
        ],
        [
            Structure("fastfood: S · H · G · Π · H · B", 3 * N, product(*ones)),
            Structure("low rank: U · V", 2 * 3 * N, product(u, v)),
        ],
        [
            Structure("block butterfly", 3 * 4 * N, product(*blocks)),
            Structure("pixelfly", 8 * N + 2 * 2 * N, pixelfly),
            Structure("circulant", N, (shared(lambda i, j: (i - j) % N, N),)),
            Structure("Toeplitz", 2 * N - 1, (shared(lambda i, j: i - j + N - 1, 2 * N - 1),)),
        ],
    ]


def draw_factor(picture: Picture, x: float, middle: float, factor: Factor) -> None:
    y = middle - factor.rows * CELL / 2
    picture.box(x, y, factor.cols * CELL, factor.rows * CELL, "panel", edge="grid")
    for shade in sorted(set(factor.places.values())):
        places = [place for place, its in factor.places.items() if its == shade]
        picture.cells(x, y, CELL, places, factor.colour, opacity=shade, gap=0.5)


def draw_structure(picture: Picture, x: float, top: float, structure: Structure) -> None:
    picture.text(x, top - 24, structure.name, bold=True)
    picture.text(x, top - 8, f"{structure.parameters} parameters", colour="soft", size=12)
    for part in structure.parts:
        if isinstance(part, Factor):
            draw_factor(picture, x, top + SIDE / 2, part)
            x += part.cols * CELL
        else:
            picture.text(x + 8, top + SIDE / 2 + 5, part, anchor="middle", size=16, bold=True)
            x += 16


def draw() -> Picture:
    rows = structures()
    widest = max(sum(each.width for each in row) + 30 * (len(row) - 1) for row in rows)
    picture = Picture(
        2 * LEFT + widest,
        TOP + len(rows) * ROW - 46,
        "Factors of structured matrices",
        f"Matrices of {N} × {N}; a dense one has {N * N} parameters. A butterfly has four factors with two elements in each row, a "
        "Monarch matrix has two factors of four blocks, one of them with rows and columns interleaved. Fastfood has three diagonals "
        "between Hadamard matrices and a permutation. Low rank is a tall times a wide matrix. A block butterfly has blocks instead "
        "of numbers; pixelfly adds up its factors in one sparse matrix, and adds a product of low rank. Circulant and Toeplitz "
        "matrices repeat their values along diagonals.",
    )
    for i, row in enumerate(rows):
        x: float = LEFT
        between = (widest - sum(each.width for each in row)) / max(len(row) - 1, 1)
        for structure in row:
            draw_structure(picture, x, TOP + i * ROW, structure)
            x += structure.width + between
    return picture
