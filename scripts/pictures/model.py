"""The model of Bow against PopSparse's published measurements, from docs/images/popsparse.csv.

python3 scripts/pictures/model.py FILE.json    # write the csv file again, from `tessera reproduce popsparse --json`
"""

from __future__ import annotations

import csv
import json
import re
import sys
from dataclasses import dataclass, fields
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from pictures.canvas import IMAGES, Picture, Scale

DATA = IMAGES / "popsparse.csv"
HEAD = (
    "# Speed-up of sparse over dense products on Bow: published (PopSparse, Li et al. 2023) and by the model.\n"
    "# used: whether constants of the model were fitted to measurements of this mode and type.\n"
)
# Groups of the tool's comparisons that are ratios of a sparse product's speed to a dense one's.
RATIO = re.compile(r"(static|dynamic) over dense")

LEFT, TOP, SIDE, RIGHT = 56, 38, 380, 484
RANGE, TICKS = (0.2, 10.0), (0.25, 0.5, 1, 2, 4, 8)
COLOURS = {"static": "blue", "dynamic": "orange"}

x_of = Scale(RANGE, (LEFT, LEFT + SIDE))
y_of = Scale(RANGE, (TOP + SIDE, TOP))


@dataclass(frozen=True)
class Cell:
    name: str
    published: float
    model: float
    used: bool

    @property
    def mode(self) -> str:
        return "static" if " static " in self.name else "dynamic"


def cells() -> list[Cell]:
    with open(DATA, encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [Cell(row["name"], float(row["published"]), float(row["model"]), row["used"] == "yes") for row in rows]


def median_distance(some: list[Cell]) -> float:
    """The ratio of the model's figure to the published one, or its inverse: the larger one."""
    ratios = sorted(max(cell.model / cell.published, cell.published / cell.model) for cell in some)
    half = len(ratios) // 2
    return ratios[half] if len(ratios) % 2 else (ratios[half - 1] + ratios[half]) / 2


def draw_axes(picture: Picture) -> None:
    for value in TICKS:
        picture.line([(x_of(value), TOP), (x_of(value), TOP + SIDE)], "grid")
        picture.line([(LEFT, y_of(value)), (LEFT + SIDE, y_of(value))], "grid")
        picture.text(x_of(value), TOP + SIDE + 20, f"{value:g}", anchor="middle")
        picture.text(LEFT - 8, y_of(value) + 4, f"{value:g}", anchor="end")
    low, high = RANGE
    band = 1.25
    within = [(low, low), (low, low * band), (high / band, high), (high, high), (high, high / band), (low * band, low)]
    picture.area([(x_of(x), y_of(y)) for x, y in within], "soft", 0.16)
    picture.line([(x_of(low), y_of(low)), (x_of(high), y_of(high))], "ink", 1.5)
    picture.text(LEFT + SIDE / 2, TOP + SIDE + 42, "published speed-up of sparse over dense", anchor="middle", colour="soft")
    picture.text(LEFT - 40, TOP - 16, "the model's speed-up of sparse over dense", colour="soft")


def draw_legend(picture: Picture, some: list[Cell]) -> None:
    y = TOP + 20
    for mode, colour in COLOURS.items():
        for used in (True, False):
            its = [cell for cell in some if cell.mode == mode and cell.used == used]
            if not its:
                continue
            picture.dot(RIGHT + 6, y - 4, colour, hollow=not used)
            types = "/".join(sorted({cell.name.split()[0].replace("f", "FP") for cell in its}))
            picture.text(RIGHT + 20, y, f"{mode} {types}, {'fitted' if used else 'not fitted'}", bold=True)
            picture.text(RIGHT + 20, y + 17, f"{len(its)} cells, median × or ÷ {median_distance(its):.2f}", colour="soft")
            y += 48
    picture.line([(RIGHT, y - 4), (RIGHT + 14, y - 4)], "ink", 1.5)
    picture.text(RIGHT + 20, y, "as published")
    picture.box(RIGHT, y + 13, 14, 14, "soft", opacity=0.16)
    picture.text(RIGHT + 20, y + 25, "within × or ÷ 1.25")


def draw() -> Picture:
    some = cells()
    picture = Picture(
        740,
        TOP + SIDE + 60,
        "The model of Bow against published measurements",
        f"{len(some)} cells: the model's speed-up of sparse over dense products against the published one, on logarithmic axes; on the "
        f"diagonal both are equal. The median distance from it is a factor of {median_distance(some):.2f}. Filled points stand for modes "
        "and types to which constants were fitted, hollow points for others.",
    )
    draw_axes(picture)
    for cell in sorted(some, key=lambda cell: not cell.used):
        picture.dot(x_of(cell.published), y_of(cell.model), COLOURS[cell.mode], radius=4 if len(some) < 60 else 3, hollow=not cell.used)
    draw_legend(picture, some)
    return picture


def read_tool(path: Path) -> list[Cell]:
    """Constants are fitted to static products in FP16."""
    found = []
    sections = json.loads(path.read_text(encoding="utf-8"))["sections"]
    for each in next(section for section in sections if section["section"] == "table-3")["comparisons"]:
        if RATIO.match(each["group"]) and each["published"] and each["ours"] and each["what"].endswith(", bow"):
            name = each["what"].removesuffix(", bow")
            found.append(Cell(name, each["published"], round(each["ours"], 3), name.startswith("f16 static ")))
    return found


def write(some: list[Cell]) -> None:
    with open(DATA, "w", encoding="utf-8", newline="") as file:
        file.write(HEAD)
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(field.name for field in fields(Cell))
        rows.writerows((cell.name, cell.published, cell.model, "yes" if cell.used else "no") for cell in some)


if __name__ == "__main__":
    write(read_tool(Path(sys.argv[1])))
