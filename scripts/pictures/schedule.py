"""The schedules of a dense and of a sparse product on a modelled machine, from the trace in docs/images/schedule.json:

    tessera spmm --m 4096 --k 4096 --density 1/16 --block 16 --n 256 --type f16 --machine bow --trace docs/images/schedule.json
"""

from __future__ import annotations

import json
from typing import Any

from pictures.canvas import IMAGES, Picture, Scale

DATA = IMAGES / "schedule.json"
# Both phases without work share a colour.
PHASES = {"exchange": "orange", "compute": "blue", "reduce": "purple", "control": "soft", "sync": "soft"}
LEFT, WIDTH, TOP, ROW, THICK = 150, 610, 44, 30, 24

Event = dict[str, Any]


def named(events: list[Event], kind: str) -> dict[tuple[int, int], str]:
    """Names of processes and tracks, by their numbers."""
    return {(each["pid"], each["tid"]): each["args"]["name"] for each in events if each["name"] == kind}


def title_of(name: str, microseconds: float, longest: float) -> str:
    """The first and longest product has no speed-up over itself."""
    speed_up = f", a speed-up of {longest / microseconds:.1f}" if microseconds < longest else ""
    return f"{name.partition(': ')[2]}: {microseconds:.1f} µs{speed_up}"


def draw_bar(picture: Picture, x: Scale, y: float, event: Event, words: str, colour: str) -> None:
    begin, end = x(event["ts"]), x(event["ts"] + event["dur"])
    picture.box(begin, y, max(end - begin - 0.5, 0.5), THICK, colour)
    if words and end - begin > 7.5 * len(words) + 8:
        picture.text(begin + 5, y + 16, words, colour="paper", size=12)


def draw_track(picture: Picture, x: Scale, y: float, name: str, events: list[Event]) -> None:
    """Phases of all tiles, with the names of their steps; or the work of one tile."""
    picture.text(LEFT - 10, y + 16, name, anchor="end", colour="soft", size=12)
    steps = [each for each in events if each["cat"] in ("copy", "superstep")]
    for event in events:
        if event["cat"] == "phase":
            inside = [s for s in steps if s["ts"] <= event["ts"] < s["ts"] + s["dur"]]
            words = inside[0]["name"] if inside and event["name"] != "exchange" else event["name"]
            draw_bar(picture, x, y, event, words, PHASES[event["name"]])
        elif event["cat"] == "tile":
            draw_bar(picture, x, y, event, event["name"], "purple" if event["name"] == "reduce" else "blue")


def draw_legend(picture: Picture) -> None:
    at = float(LEFT)
    for name, colour in (*list(PHASES.items())[:3], ("synchronisation, control", "soft")):
        picture.box(at, 14, 12, 12, colour)
        picture.text(at + 18, 25, name, size=12)
        at += 48 + 6.5 * len(name)


def draw_axis(picture: Picture, x: Scale, bottom: float, longest: float) -> None:
    for microseconds in range(0, int(longest) + 1, 10):
        place = x(microseconds)
        picture.line([(place, TOP), (place, bottom)], "grid")
        picture.text(place, bottom + 16, f"{microseconds} µs", anchor="middle", colour="soft", size=12)


def draw() -> Picture:
    trace = json.loads(DATA.read_text(encoding="utf-8"))["traceEvents"]
    spans = [each for each in trace if each["ph"] == "X"]
    products, tracks = named(trace, "process_name"), named(trace, "thread_name")
    times = {pid: max(each["ts"] + each["dur"] for each in spans if each["pid"] == pid) for pid, _ in products}
    longest = max(times.values())
    bottom = TOP + len(products) * 32 + len(tracks) * ROW
    picture = Picture(
        LEFT + WIDTH + 20,
        bottom + 28,
        "Schedules of a dense and a sparse product on a modelled Bow",
        "Bars of time for all tiles, the slowest tile and the median tile: exchange before and after a superstep in which tiles "
        "compute, and a reduction of partial sums. "
        + "; ".join(title_of(products[pid, 0], times[pid], longest) for pid in times)
        + ".",
    )
    x = Scale((0, longest), (LEFT, LEFT + WIDTH), logarithmic=False)
    draw_axis(picture, x, bottom, longest)
    draw_legend(picture)
    y = float(TOP)
    for pid, microseconds in times.items():
        picture.text(LEFT, y + 20, title_of(products[pid, 0], microseconds, longest), bold=True, clear=True)
        y += 32
        for (process, track), name in tracks.items():
            if process == pid:
                draw_track(picture, x, y, name, [e for e in spans if (e["pid"], e["tid"]) == (pid, track)])
                y += ROW
    return picture
