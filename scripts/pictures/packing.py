"""Sequences packed into rows of one length, before and after."""

from __future__ import annotations

from pictures.canvas import Picture

# The 2.5, 7.5, … 97.5 % quantiles of the lengths of Wikipedia's sequences for BERT, in an arbitrary order.
LENGTHS = (187, 512, 42, 314, 512, 92, 264, 29, 512, 157, 77, 512, 373, 64, 131, 444, 53, 512, 222, 110)
ROOM = 512
LEFT, SECOND, TOP, ROW, THICK, WIDTH = 20, 400, 66, 15, 11, 340


def packed(lengths: tuple[int, ...]) -> list[list[int]]:
    """Put each sequence, the longest first, into the fullest pack in which it fits."""
    packs: list[list[int]] = []
    for length in sorted(lengths, reverse=True):
        open_packs = [pack for pack in packs if sum(pack) + length <= ROOM]
        if open_packs:
            max(open_packs, key=sum).append(length)
        else:
            packs.append([length])
    return packs


def draw_packs(picture: Picture, x: float, title: str, packs: list[list[int]]) -> None:
    tokens = sum(map(sum, packs))
    picture.text(x, 24, title, bold=True)
    picture.text(x, 44, f"{len(packs)} rows of {ROOM}, {100 * tokens / len(packs) / ROOM:.0f} % tokens", colour="soft")
    for i, pack in enumerate(packs):
        y, at = TOP + i * ROW, x
        picture.box(x, y, WIDTH, THICK, "grid")
        for length in pack:
            width = length / ROOM * WIDTH
            picture.box(at, y, width - 1, THICK, "blue")
            at += width


def draw() -> Picture:
    alone = [[length] for length in LENGTHS]
    packs = packed(LENGTHS)
    bottom = TOP + len(alone) * ROW
    picture = Picture(
        760,
        bottom + 40,
        "Sequence packing",
        f"Left, {len(alone)} sequences, each in its own row with padding after it. Right, the same sequences in {len(packs)} rows, which "
        "are nearly full.",
    )
    draw_packs(picture, LEFT, "One sequence in a row", alone)
    draw_packs(picture, SECOND, "Packed", packs)
    picture.box(LEFT, bottom + 12, 12, 12, "blue")
    picture.text(LEFT + 18, bottom + 23, "a sequence")
    picture.box(LEFT + 112, bottom + 12, 12, 12, "grid")
    picture.text(LEFT + 130, bottom + 23, "padding")
    return picture
