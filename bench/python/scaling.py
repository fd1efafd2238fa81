"""Predicted times of training on more computers, from measurements of bench/python/ranks.py (docs/scaling.md).

    python bench/python/ranks.py --json ranks.json
    python bench/python/scaling.py ranks.json                                  # tables on the terminal
    python bench/python/scaling.py ranks.json --network "25 GbE=30,25"         # also for a latency in µs, and Gbit/s
    python bench/python/scaling.py ranks.json --write docs/scaling.md          # tables and curves in the page
    python bench/python/scaling.py ranks.json --micro-batches 32               # of each computer in a step with stages
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

COMPUTERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
STYLE = (
    "<style>.ink{fill:#1f2328}.paper{fill:#fff}.grid{stroke:#d8dee4}"
    "@media (prefers-color-scheme:dark){.ink{fill:#e6edf3}.paper{fill:#0d1117}.grid{stroke:#30363d}}</style>"
)
#: Numbers of computers among which the layers of a replica are divided; 1: not divided.
STAGES = (1, 2, 4, 8)
#: Micro-batches of each computer in a step with stages.
MICRO_BATCHES = 8
#: A sum that begins before the last one has at least one in this number of all gradients, as in ops/collective/.
SHARE = 8
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class Transport:
    """Exchanges between neighbours of a ring: each sends a message while it receives another of the same size."""

    name: str
    #: By bytes of the message, ascending: seconds, and the seconds in which the rank's own core is busy.
    messages: tuple[tuple[float, float, float], ...]
    #: Seconds for each received byte: writing the message, and adding it.
    handling: float = 0.0

    def seconds(self, size: float) -> float:
        return self._at(size, 1)

    def busy(self, size: float) -> float:
        return self._at(size, 2)

    def _at(self, size: float, column: int) -> float:
        """Interpolate linearly between measured sizes; beyond the largest size, keep its rate."""
        last = self.messages[-1]
        if size >= last[0]:
            return last[column] * size / last[0]
        below = self.messages[0]
        if size <= below[0]:
            return below[column]
        for above in self.messages:
            if size <= above[0]:
                break
            below = above
        part = (size - below[0]) / (above[0] - below[0])
        return below[column] + part * (above[column] - below[column])

    def over(self, network: str, latency: float, rate: float) -> Transport:
        """The transport between computers whose network has this latency in seconds and these bytes per second. The
        time that a core is busy with a message stays as measured."""
        messages = tuple((size, max(busy, latency + size / rate), busy) for size, _, busy in self.messages)
        return replace(self, name=network, messages=messages)


@dataclass(frozen=True)
class Case:
    """A training step of one rank, and the sums over replicas in it."""

    name: str
    #: Seconds of a rank alone, without exchanges.
    step_seconds: float
    #: Part of these seconds after the forward pass and before the update.
    backward_seconds: float
    #: Bytes of each sum, in the order in which they begin.
    sums: tuple[int, ...]
    #: By number of ranks: measured seconds of a step.
    points: tuple[tuple[int, float], ...] = ()
    #: Bytes that one layer passes to the next; 0: unknown.
    message: int = 0


@dataclass(frozen=True)
class Pipeline:
    """A training step whose micro-batches go through stages, one of each rank."""

    #: The step of a rank alone, with one micro-batch.
    case: Case
    micro_batches: int
    #: By number of ranks: measured seconds of a step of all micro-batches.
    points: tuple[tuple[int, float], ...] = ()


def sums_of(sizes: Iterable[int]) -> tuple[int, ...]:
    """Bytes of the sums over replicas, from the bytes of gradients in the order in which they are computed."""
    sizes = tuple(sizes)
    sums, begun = [], 0
    for size in sizes[:-1]:
        begun += size
        if begun * SHARE >= sum(sizes):
            sums.append(begun)
            begun = 0
    return (*sums, begun + sizes[-1])


def rounds_of(size: float, ranks: int, algorithm: str) -> Iterator[tuple[float, int]]:
    """For each size of messages in an all-reduce, the bytes and the number of rounds."""
    if ranks == 1:
        return
    if algorithm == "ring":
        yield size / ranks, 2 * (ranks - 1)
    else:
        yield size, 2 * math.ceil(math.log2(ranks))


def sum_seconds(size: float, ranks: int, transport: Transport, algorithm: str = "ring") -> tuple[float, float]:
    """Seconds of an all-reduce, and the part of these in which the rank's own core is busy with it."""
    wall = busy = 0.0
    for message, count in rounds_of(size, ranks, algorithm):
        handling = transport.handling * message
        wall += count * (transport.seconds(message) + handling)
        busy += count * (transport.busy(message) + handling)
    return wall, busy


def step_seconds(
    case: Case, ranks: int, transport: Transport, algorithm: str = "ring", ranks_of_core: float = 1.0
) -> float:
    """Seconds of a step of each of `ranks` ranks.

    Sums begin in order, as soon as their gradients are complete and the last sum is over. What the core does for them
    delays the rest of the backward pass. `ranks_of_core` ranks share each core.
    """
    if ranks == 1:
        return case.step_seconds
    # The update comes after the last sum, which delays it as if it came before the first.
    begin = (case.step_seconds - case.backward_seconds) * ranks_of_core
    return max(
        backward_with_sums(begin, case.backward_seconds, case.sums, ranks, transport, algorithm, ranks_of_core)
    )


def backward_with_sums(
    begin: float,
    seconds: float,
    sums: Iterable[float],
    ranks: int,
    transport: Transport,
    algorithm: str = "ring",
    ranks_of_core: float = 1.0,
) -> tuple[float, float]:
    """When a backward pass ends that begins at that time and takes these seconds alone, and when its sums end."""
    sums = tuple(sums)
    now, free = begin, 0.0
    for size in sums:
        now += seconds / len(sums) * ranks_of_core
        wall, busy = sum_seconds(size, ranks, transport, algorithm)
        of_others = busy * (ranks_of_core - 1)
        free = max(now, free) + wall + of_others
        now += busy + of_others
    return now, free


def passes_of(stages: int, micro_batches: int, stage: int) -> list[tuple[bool, int]]:
    """The passes of a stage in the order of 1f1b: for each, whether it is a forward pass, and its micro-batch."""
    ahead = min(micro_batches, stages - stage)
    passes = [(True, number) for number in range(ahead)]
    for number in range(micro_batches):
        passes.append((False, number))
        if ahead + number < micro_batches:
            passes.append((True, ahead + number))
    return passes


class PipelineRun:
    """A step in which micro-batches, each with the rows of the case, go through equal stages, one on each computer.

    Messages of a link come one after the other. Gradients are summed over replicas beside the last backward pass.
    """

    def __init__(
        self, case: Case, stages: int, replicas: int, micro_batches: int, transport: Transport, algorithm: str
    ) -> None:
        self._stages, self._replicas, self._micro_batches = stages, replicas, micro_batches
        self._transport, self._algorithm = transport, algorithm
        self._forward = (case.step_seconds - case.backward_seconds) / stages
        self._backward = case.backward_seconds / stages
        self._sums = [size / stages for size in case.sums]
        handling = transport.handling * case.message
        self._wall = transport.seconds(case.message) + handling
        self._busy = (transport.busy(case.message) + handling) / 2  # for each end, as a message goes one way
        self._now, self._summed = [0.0] * stages, [0.0] * stages
        #: When the message that a pass needs has arrived, by stage, direction and micro-batch.
        self._arrived = {(0, True, number): 0.0 for number in range(micro_batches)}
        self._arrived |= {(stages - 1, False, number): 0.0 for number in range(micro_batches)}
        #: When the last message of a link is over, by stage and direction.
        self._links: dict[tuple[int, bool], float] = {}

    def seconds(self) -> float:
        left = [passes_of(self._stages, self._micro_batches, stage)[::-1] for stage in range(self._stages)]
        while any(left):
            for stage, passes in enumerate(left):
                while passes and (stage, *passes[-1]) in self._arrived:
                    self._run(stage, *passes.pop())
        return max(*self._now, *self._summed)

    def _run(self, stage: int, is_forward: bool, number: int) -> None:
        before, after = (stage - 1, stage + 1) if is_forward else (stage + 1, stage - 1)
        begin = max(self._now[stage], self._arrived[stage, is_forward, number])
        if 0 <= before < self._stages:
            begin += self._busy
        self._now[stage] = begin + (self._forward if is_forward else self._backward)
        if not is_forward and number == self._micro_batches - 1 and self._replicas > 1:
            self._now[stage], self._summed[stage] = backward_with_sums(
                begin, self._backward, self._sums, self._replicas, self._transport, self._algorithm
            )
        if 0 <= after < self._stages:
            link = (stage, is_forward)
            self._links[link] = max(self._now[stage], self._links.get(link, 0.0)) + self._wall
            self._arrived[after, is_forward, number] = self._links[link]
            self._now[stage] += self._busy


def pipeline_seconds(
    case: Case, stages: int, replicas: int, micro_batches: int, transport: Transport, algorithm: str = "ring"
) -> float:
    """Seconds of a step of `micro_batches` of each replica, which `stages` computers divide."""
    if stages == 1:
        return (micro_batches - 1) * case.step_seconds + step_seconds(case, replicas, transport, algorithm)
    return PipelineRun(case, stages, replicas, micro_batches, transport, algorithm).seconds()


def bubble(stages: int, micro_batches: int) -> float:
    """The part of the time in which a stage of a pipeline waits, if messages take none."""
    return (stages - 1) / (micro_batches + stages - 1)


def pipeline_efficiency(
    case: Case, computers: int, stages: int, micro_batches: int, transport: Transport, algorithm: str = "ring"
) -> float:
    """The fraction of their speed that computers keep although they wait for each other. Each has `micro_batches` in a
    step; a replica of several computers passes all their micro-batches through its stages."""
    of_replica = micro_batches * stages
    seconds = pipeline_seconds(case, stages, computers // stages, of_replica, transport, algorithm)
    return micro_batches * case.step_seconds / seconds


def efficiency(case: Case, ranks: int, transport: Transport, algorithm: str = "ring") -> float:
    """The fraction of their speed that ranks keep although they wait for each other."""
    return case.step_seconds / step_seconds(case, ranks, transport, algorithm)


def errors_of(case: Case, transport: Transport, cores: int) -> dict[int, float]:
    """The error of the predicted step as a fraction of the measured one, for each measured number of ranks."""
    return {
        ranks: step_seconds(case, ranks, transport, ranks_of_core=max(1.0, ranks / cores)) / seconds - 1
        for ranks, seconds in case.points
    }


def pipeline_errors_of(pipeline: Pipeline, transport: Transport, cores: int) -> dict[int, float]:
    """The same for stages, if each rank has a core; ranks that share a core fill each other's bubbles."""
    return {
        ranks: pipeline_seconds(pipeline.case, ranks, 1, pipeline.micro_batches, transport) / seconds - 1
        for ranks, seconds in pipeline.points
        if ranks <= cores
    }


@dataclass(frozen=True)
class Measured:
    """The file of a run of bench/python/ranks.py."""

    computer: str
    cores: int
    transport: Transport
    cases: tuple[Case, ...]
    pipelines: tuple[Pipeline, ...] = ()
    #: Versions of other libraries.
    versions: str = NOT_RECORDED
    date: str = NOT_RECORDED

    @property
    def origin(self) -> str:
        """Computer, versions and date, in the form in which docs/figures/figures.py writes them below a table."""
        recorded = {"versions": self.versions, "date": self.date}
        parts = [f"{key} not recorded" if text == NOT_RECORDED else text for key, text in recorded.items() if text]
        return f"*{'; '.join([self.computer, *parts])}.*"

    @staticmethod
    def read(path: str | Path) -> Measured:
        return Measured.of(json.loads(Path(path).read_text(encoding="utf-8")))

    @staticmethod
    def of(file: dict[str, Any]) -> Measured:
        given = file["transport"]
        messages = sorted((m["bytes"], m["seconds"], m["busy_seconds"]) for m in given["messages"])
        transport = Transport(given["name"], tuple(messages), given["handling_seconds_per_byte"])
        cases = tuple(case_of(case, 1) for case in file["cases"])
        pipelines = tuple(
            Pipeline(replace(case_of(each, each["micro_batches"]), points=()), each["micro_batches"], points_of(each))
            for each in file.get("pipelines", ())
        )
        recorded = {key: file[key] for key in ("versions", "date") if key in file}
        return Measured(file["computer"], file["cores"], transport, cases, pipelines, **recorded)


def points_of(given: dict[str, Any]) -> tuple[tuple[int, float], ...]:
    return tuple((point["ranks"], point["seconds"]) for point in given["points"])


def case_of(given: dict[str, Any], micro_batches: int) -> Case:
    """The case of one micro-batch of the measured step."""
    return Case(
        given["name"],
        given["step_seconds"] / micro_batches,
        given["backward_seconds"] / micro_batches,
        tuple(given["sums"]),
        points_of(given),
        given.get("message_bytes", 0),
    )


def table(columns: list[str], rows: Iterable[list[str]]) -> str:
    lines = [f"| {' | '.join(columns)} |", f"| --- |{' ---: |' * (len(columns) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.3g}" if seconds < 1 else f"{1e3 * seconds:,.0f}"


def transport_table(transport: Transport) -> str:
    rows = (
        [f"{size:,.0f}", f"{1e6 * seconds:,.0f}", f"{1e6 * busy:,.0f}", f"{size / seconds / 1e6:,.0f}"]
        for size, seconds, busy in transport.messages
    )
    return table(["bytes each way", "µs", "core busy, µs", "MB/s each way"], rows)


def points_table(measured: Measured) -> str:
    rows = []
    for case in measured.cases:
        errors = errors_of(case, measured.transport, measured.cores)
        for ranks, seconds in case.points:
            model = seconds * (1 + errors[ranks])
            rows.append(
                [case.name, str(ranks), milliseconds(seconds), milliseconds(model), f"{100 * errors[ranks]:+.1f} %"]
            )
    for pipeline in measured.pipelines:
        errors = pipeline_errors_of(pipeline, measured.transport, measured.cores)
        for ranks, seconds in pipeline.points:
            model = ["", ""]
            if ranks in errors:
                model = [milliseconds(seconds * (1 + errors[ranks])), f"{100 * errors[ranks]:+.1f} %"]
            name = f"{pipeline.case.name}, a stage each" if ranks > 1 else pipeline.case.name
            rows.append([name, str(ranks), milliseconds(seconds), *model])
    return table(["step", "ranks", "measured, ms", "model, ms", "difference"], rows)


def curve_table(case: Case, transports: list[Transport]) -> str:
    columns = ["computers", *(f"{t.name}, {algorithm}" for t in transports for algorithm in ("ring", "tree"))]
    rows = (
        [str(n), *(f"{100 * efficiency(case, n, t, a):.1f} %" for t in transports for a in ("ring", "tree"))]
        for n in COMPUTERS
    )
    return table(columns, rows)


def stages_table(case: Case, transport: Transport, micro_batches: int) -> str:
    """Efficiency over computers, by the number of computers among which a replica is divided."""
    columns = ["computers", *("replicas only" if stages == 1 else f"{stages} stages" for stages in STAGES)]
    rows = [
        [
            str(computers),
            *(
                f"{100 * pipeline_efficiency(case, computers, stages, micro_batches, transport):.1f} %"
                if computers % stages == 0
                else ""
                for stages in STAGES
            ),
        ]
        for computers in COMPUTERS
    ]
    rows.append(["bubbles alone", *(f"{100 * (1 - bubble(s, s * micro_batches)):.1f} %" for s in STAGES)])
    return table(columns, rows)


def stages_of(case: Case, transports: list[Transport], micro_batches: int) -> list[str]:
    """Text and tables of a case whose layers are divided among computers."""
    if not case.message:
        return []
    parts = []
    for transport in transports:
        parts.append(
            f"{case.name}, layers divided among stages, which give each other {case.message:,} bytes in each pass of a "
            f"micro-batch; {micro_batches} micro-batches of each computer in a step; {transport.name}, ring; "
            "efficiency:"
        )
        parts.append(stages_table(case, transport, micro_batches))
    return parts


def curves(case: Case, transports: list[Transport], cores: int) -> str:
    """An SVG picture: efficiency over computers, a line for each transport, and a point for each measured number."""
    width, height, left, top = 480, 240, 50, 20
    across = (width - left - 20) / math.log2(COMPUTERS[-1])

    def at(ranks: float, share: float) -> tuple[float, float]:
        return left + across * math.log2(ranks), top + (height - top - 40) * (1 - share)

    def text(x: float, y: float, words: str, anchor: str) -> str:
        return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{words}</text>'

    colours = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
    parts = [text(left, 12, f"{case.name}: efficiency over computers", "start")]
    for share in (0.0, 0.5, 1.0):
        x, y = at(1, share)
        parts.append(f'<line x1="{x}" y1="{y}" x2="{width - 20}" y2="{y}" class="grid"/>')
        parts.append(text(x - 6, y + 4, f"{share:.0%}", "end"))
    parts += [text(at(n, 0)[0], height - 24, str(n), "middle") for n in COMPUTERS]
    for number, transport in enumerate(transports):
        colour = colours[number % len(colours)]
        line = (at(n, efficiency(case, n, transport)) for n in COMPUTERS)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in line)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        parts.append(f'<g fill="{colour}">{text(left + 110 * number, height - 6, transport.name, "start")}</g>')
    for ranks, seconds in case.points:
        x, y = at(ranks, min(1.0, case.step_seconds * max(1.0, ranks / cores) / seconds))
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
    style = 'font-family="sans-serif" font-size="11"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {style}>'
        f'{STYLE}<rect class="paper" width="{width}" height="{height}"/><g class="ink">{"".join(parts)}</g></svg>\n'
    )


def words_of(case: Case, transports: list[Transport]) -> str:
    """The picture in words, for readers who do not see it."""
    shown = [
        f"{each.name} {' and '.join(f'{100 * efficiency(case, n, each):.0f} % with {n}' for n in (8, COMPUTERS[-1]))}"
        for each in transports
    ]
    return f"Efficiency of {case.name} over computers, by a ring: {'; '.join(shown)}"


def page_of(
    measured: Measured,
    networks: list[Transport],
    picture_of: Callable[[Case], str] | None = None,
    micro_batches: int = MICRO_BATCHES,
) -> str:
    """The measured part of the page. `picture_of` returns the address of a case's picture; with stages, each
    computer has `micro_batches` in a step."""
    transports = [measured.transport, *networks]
    parts = [
        f"Messages by {measured.transport.name}, and steps; medians:",
        transport_table(measured.transport),
        points_table(measured),
        measured.origin,
    ]
    for case in measured.cases:
        parts.append(f"{case.name}, {sum(case.sums):,} bytes of gradients; efficiency:")
        parts.append(curve_table(case, transports))
        if picture_of is not None:
            parts.append(f"![{words_of(case, transports)}]({picture_of(case)})")
        parts += stages_of(case, transports, micro_batches)
    return "\n\n".join(parts)


def with_measured(page: str, text: str) -> str:
    """A page with another text between its marks."""
    before, found, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"the page has no {BEGIN} and {END} after it")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def write(path: Path, measured: Measured, networks: list[Transport], micro_batches: int = MICRO_BATCHES) -> None:
    """The tables in a page, and the curves beside it."""

    def picture_of(case: Case) -> str:
        return f"images/scaling-{measured.cases.index(case) + 1}.svg"

    page = with_measured(path.read_text(encoding="utf-8"), page_of(measured, networks, picture_of, micro_batches))
    for case in measured.cases:
        picture = path.parent / picture_of(case)
        picture.parent.mkdir(exist_ok=True)
        picture.write_text(curves(case, [measured.transport, *networks], measured.cores), encoding="utf-8")
    path.write_text(page, encoding="utf-8")


def network_of(text: str, measured: Transport) -> Transport:
    """The transport that "name=microseconds,gigabits per second" describes."""
    name, _, figures = text.partition("=")
    latency, rate = (float(figure) for figure in figures.split(","))
    return measured.over(name, 1e-6 * latency, 1e9 / 8 * rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", help="file that bench/python/ranks.py --json wrote")
    parser.add_argument("--network", action="append", default=[], help="NAME=µs of latency,Gbit/s in each direction")
    parser.add_argument("--micro-batches", type=int, default=MICRO_BATCHES, help="micro-batches per computer, with stages")
    parser.add_argument("--write", type=Path, help="page with marks to write into, such as docs/scaling.md")
    parser.add_argument("--machine", help="machine of the measurements (default: as the file says)")
    parser.add_argument("--versions", help="versions of other libraries (default: as the file says)")
    parser.add_argument("--date", help="date of the measurements (default: as the file says)")
    a = parser.parse_args()
    measured = Measured.read(a.measured)
    given = {"computer": a.machine, "versions": a.versions, "date": a.date}
    measured = replace(measured, **{key: text for key, text in given.items() if text is not None})
    networks = [network_of(text, measured.transport) for text in a.network]
    if a.write is None:
        print(page_of(measured, networks, micro_batches=a.micro_batches))
    else:
        write(a.write, measured, networks, a.micro_batches)


if __name__ == "__main__":
    main()
