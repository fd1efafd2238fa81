"""Accuracy of grey CIFAR-10 against the share of a dense network's parameters, from the tables of docs/accuracy.md."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean

from pictures.canvas import Picture, Scale
from pictures.tables import numbers, rows_of

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 390, 56, 660, 34, 320
SHARES = {"1 %": 0.01, "2 %": 0.02, "5 %": 0.05, "10 %": 0.1, "20 %": 0.2, "50 %": 0.5, "100 %": 1}

# The places of names beside their points; by default, names stand to the right.
LEFT_OF, ABOVE, BELOW = (-9, 4, "end"), (0, -20, "middle"), (0, 22, "middle")
PLACES = {"butterfly": LEFT_OF, "fastfood": LEFT_OF, "circulant": LEFT_OF, "pixelfly": ABOVE, "block butterfly": BELOW, "Monarch": ABOVE}

x_of = Scale((0.008, 1.0), (LEFT, RIGHT))
y_of = Scale((14, 56), (BOTTOM, TOP), logarithmic=False)


@dataclass(frozen=True)
class Point:
    name: str
    share: float
    accuracies: tuple[float, float, float]  # least, mean, most


def structured() -> list[Point]:
    """Accuracies with their confidence intervals, or the range over the seeds."""
    rows = rows_of("accuracy.md", "hidden layer", "parameters", "published", "`paper`", "`best`")
    dense = numbers(rows[0]["parameters"])[0]
    points = []
    for row in rows:
        found = numbers(row["`best`"])
        middle = found[0] if "±" in row["`best`"] else mean(found)
        low, high = (middle - found[1], middle + found[1]) if "±" in row["`best`"] else (min(found), max(found))
        name = row["hidden layer"].split(", e =")[0].split(", blocks")[0]
        points.append(Point(name, numbers(row["parameters"])[0] / dense, (low, middle, high)))
    return points


def sparse() -> list[Point]:
    """Static and changing patterns as one point, as they lie close together."""
    rows = rows_of("accuracy.md", "hidden layer", "test accuracy", "epoch")
    dense = numbers(rows[0]["parameters"])[0]
    points = []
    for name, its in (("", rows[:1]), ("sparse: static, SET, RigL", rows[1:])):
        seeds = [seed for row in its for seed in numbers(row["test accuracy"])]
        points.append(Point(name, numbers(its[0]["parameters"])[0] / dense, (min(seeds), mean(seeds), max(seeds))))
    return points


def draw_point(picture: Picture, point: Point, colour: str, place: tuple[float, float, str]) -> None:
    x = x_of(point.share)
    low, middle, high = map(y_of, point.accuracies)
    picture.line([(x, low), (x, high)], colour, 1.5)
    picture.dot(x, middle, colour)
    right, down, anchor = place
    picture.text(x + right, middle + down, point.name, anchor=anchor, clear=True)


def draw_axes(picture: Picture) -> None:
    picture.text(LEFT - 40, 22, "test accuracy, %", colour="soft")
    for accuracy in range(20, 51, 10):
        picture.line([(LEFT, y_of(accuracy)), (RIGHT + 30, y_of(accuracy))], "grid")
        picture.text(LEFT - 8, y_of(accuracy) + 4, str(accuracy), anchor="end")
    for name, share in SHARES.items():
        picture.line([(x_of(share), BOTTOM), (x_of(share), BOTTOM + 4)])
        picture.text(x_of(share), BOTTOM + 20, name, anchor="middle")
    picture.text((LEFT + RIGHT) / 2, BOTTOM + 42, "parameters, as a share of the dense network's", anchor="middle", colour="soft")


def draw() -> Picture:
    picture = Picture(
        WIDTH,
        HEIGHT,
        "Accuracy against the share of parameters",
        "Test accuracy on grey CIFAR-10 of networks with one hidden layer. With about 2 % of a dense network's parameters butterfly layers "
        "reach about 50 %, with 7 % Monarch about 47 %; dense, pixelfly and block butterfly lie near 45 %, sparse layers with a tenth "
        "of the weights near 44 %. Fastfood, circulant and low-rank layers, with 1 to 2 % of the parameters, lie between 19 and 41 %.",
    )
    draw_axes(picture)
    for point in structured():
        colour = "soft" if point.share == 1 else "blue"
        draw_point(picture, point, colour, PLACES.get(point.name, (9, 4, "start")))
    for point in sparse():
        draw_point(picture, point, "soft" if point.share == 1 else "orange", BELOW if point.share != 1 else (9, 4, "start"))
    return picture
