"""Bulk synchronous parallel: tiles with their own memories, and their work in two supersteps."""

from __future__ import annotations

from pictures.canvas import Picture

# The times in which each tile computes and then exchanges, in pixels.
SUPERSTEPS = (((126, 98, 142, 78, 114), (62, 40, 30, 54, 46)), ((78, 118, 88, 108, 66), (24, 36, 46, 18, 30)))
LANES, LANE, THICK, FROM, TOP = 5, 32, 20, 340, 74
SYNC = 12


def draw_tiles(picture: Picture) -> None:
    picture.text(20, 28, "A tiled machine", bold=True)
    for row in range(3):
        for col in range(4):
            x, y = 20 + col * 62, TOP - 14 + row * 50
            picture.box(x, y, 52, 38, "panel", edge="soft", round=4)
            picture.box(x + 7, y + 10, 18, 18, "blue", round=2)
            picture.box(x + 30, y + 7, 15, 24, "soft", opacity=0.45, round=2)
    bottom = TOP - 14 + 3 * 50
    picture.box(20, bottom, 238, 22, "orange", opacity=0.25, edge="orange", round=4)
    picture.text(139, bottom + 16, "exchange", anchor="middle")
    picture.box(20, bottom + 40, 12, 12, "blue", round=2)
    picture.text(38, bottom + 51, "core")
    picture.box(126, bottom + 40, 12, 12, "soft", opacity=0.45, round=2)
    picture.text(144, bottom + 51, "its own memory")


def draw_superstep(picture: Picture, x: float, computes: tuple[int, ...], exchanges: tuple[int, ...]) -> float:
    """Draw a superstep; returns where it ends."""
    longest, busiest = max(computes), max(exchanges)
    sync = x + longest
    end = sync + SYNC + busiest
    for lane, (compute, exchange) in enumerate(zip(computes, exchanges)):
        y = TOP + lane * LANE
        picture.box(x, y, compute, THICK, "blue", round=2)
        if compute < longest:
            picture.box(x + compute, y, longest - compute, THICK, "grid")
        picture.box(sync + SYNC, y, exchange, THICK, "orange", round=2)
        if exchange < busiest:
            picture.box(sync + SYNC + exchange, y, busiest - exchange, THICK, "grid")
    picture.box(sync + 3, TOP - 6, SYNC - 6, LANES * LANE, "purple", round=2)
    return end


def draw_legend(picture: Picture, x: float, y: float) -> None:
    for words, colour, width in (("compute", "blue", 92), ("wait", "grid", 66), ("sync", "purple", 66), ("exchange", "orange", 0)):
        picture.box(x, y - 11, 12, 12, colour, round=2)
        picture.text(x + 18, y, words)
        x += width


def draw() -> Picture:
    picture = Picture(
        760,
        276,
        "Supersteps of a tiled machine",
        "Left, tiles, each a core with its own memory, connected by an exchange. Right, five tiles in two supersteps: each tile "
        "computes from its memory, and waits until the slowest has finished; all synchronise; then all exchange, for as long as the "
        "busiest tile sends or receives.",
    )
    draw_tiles(picture)
    x: float = FROM
    for number, (computes, exchanges) in enumerate(SUPERSTEPS, 1):
        begin, x = x, draw_superstep(picture, x, computes, exchanges)
        picture.text((begin + x) / 2, TOP - 32, f"superstep {number}", anchor="middle", bold=True)
        picture.line([(begin, TOP - 18), (begin, TOP - 22), (x - 2, TOP - 22), (x - 2, TOP - 18)], "soft")
        x += 4
    for lane in range(LANES):
        picture.text(FROM - 10, TOP + lane * LANE + 15, f"tile {lane}", anchor="end", colour="soft")
    bottom = TOP + LANES * LANE
    picture.arrow([(FROM, bottom + 6), (740, bottom + 6)])
    picture.text(740, bottom + 22, "time", anchor="end", colour="soft")
    draw_legend(picture, FROM, bottom + 30)
    return picture
