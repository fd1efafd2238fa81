"""From a model to its result, or to its cost on a modelled machine."""

from __future__ import annotations

from pictures.canvas import Picture

HIGH, MIDDLE = 86, 138
STAGES = (
    (16, 112, "model", "PyTorch,\nONNX, C++"),
    (160, 118, "plan", "which product,\nin which parts"),
    (310, 126, "tile program", "vertices, copies,\ncontrol flow"),
    (468, 112, "executable", "addresses,\nexchanges"),
)
ENDS = (
    (44, "host", "runs on its CPU:\nresults, times", "blue"),
    (152, "modelled machine", "cycles, bytes per tile;\nresults, run by the CPU", "orange"),
)


def draw() -> Picture:
    picture = Picture(
        780,
        248,
        "From a model to its results",
        "A model from PyTorch, ONNX or C++ is planned for a machine, the host or a machine described by a file: how each product is "
        "computed, and in which parts. The plan becomes a tile program of vertices, copies and control flow, and the program an "
        "executable with addresses and exchanges. An executable for the host's CPU gives results and times; one for a modelled "
        "machine gives cycles and bytes for each tile, and results, as the CPU runs it too.",
    )
    top = MIDDLE - HIGH / 2
    for x, width, name, words in STAGES:
        picture.box(x, top, width, HIGH, "panel", edge="soft", round=6)
        picture.text(x + width / 2, top + 26, name, anchor="middle", bold=True)
        picture.text(x + width / 2, top + 49, words, anchor="middle", colour="soft")
    for (x, width, _, _), (following, *_) in zip(STAGES, STAGES[1:]):
        picture.arrow([(x + width + 4, MIDDLE), (following - 4, MIDDLE)])
    last = STAGES[-1][0] + STAGES[-1][1]
    for y, name, words, colour in ENDS:
        picture.box(612, y, 152, 80, colour, opacity=0.14, edge=colour, round=6)
        picture.text(688, y + 24, name, anchor="middle", bold=True)
        picture.text(688, y + 46, words, anchor="middle", colour="soft", size=12)
        middle = y + 40
        picture.arrow([(last + 4, MIDDLE), (last + 14, MIDDLE), (last + 14, middle), (608, middle)])
    draw_machine(picture, top)
    return picture


def draw_machine(picture: Picture, top: float) -> None:
    """Draw the machine, which is known when a model is planned and when a program is compiled."""
    picture.box(160, 16, 420, 34, "panel", edge="soft", round=6)
    picture.text(370, 38, "the machine: the host, or a machine file", anchor="middle")
    for x in (219, 524):
        picture.arrow([(x, 54), (x, top - 4)])
