"""The cost of a run of a graph on a machine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tessera import _tessera
from tessera._layers import LayerReport
from tessera._pages import in_frame
from tessera._tessera import Machine, OperationCost
from tessera.graph._pipeline import ActionList


class Estimate:
    """The cost report of one run of a graph: from the model on a tiled machine, predicted or measured on the host.

    It is computed from the program that a session would run. If the program does not fit in the memory of the tiles,
    `fits` is False, and `overflow` says what fills the memory. A notebook shows the report as a page.
    """

    def __init__(self, cost: _tessera.RunCost, graph: _tessera.Graph, machine: Machine, title: str) -> None:
        self._cost = cost
        self._graph = graph
        self._title = title
        self.machine = machine
        self.seconds: float = cost.seconds
        #: Cycles by phase: "compute", "exchange", "sync", …
        self.cycles: dict[str, float] = cost.cycles
        #: Transfers from and to the hosts of a modelled machine, if they were asked for: (bytes of inputs, bytes of
        #: outputs, seconds). `seconds` includes them, and so does `cycles`, as the phase "host"; other figures do not.
        self.host_io: tuple[int, int, float] | None = cost.host_io
        #: Cycles of the average tile as a fraction of the slowest tile's, over all compute sets: 1 if tiles are equally
        #: busy.
        self.balance: float = cost.balance
        #: Operations in the order in which they run: operation, value, seconds, conversion_seconds (the part of seconds
        #: for conversions between layouts), cycles by phase.
        self.operations: list[OperationCost] = cost.operations
        #: Operations in functions, over all calls; `operations` counts these costs with the first call.
        self.in_functions: list[OperationCost] = cost.in_functions
        #: Seconds by kind of operation, the longest first: "products", "attention", …, and "conversions of layouts".
        self.seconds_by_kind: dict[str, float] = cost.seconds_by_kind
        #: Values that the program converts to another layout, their bytes, and seconds.
        self.conversions: list[tuple[str, int, float]] = cost.conversions
        #: Bytes of data on all tiles, by purpose: "parameter", "gradient", "optimizer", "activation", "stash", …
        self.bytes: dict[str, int] = cost.bytes
        self.total_bytes: int = cost.total_bytes
        self.fullest_tile_bytes: int = cost.fullest_tile_bytes
        self.tile_bytes: int = cost.tile_bytes
        #: Bytes in use of the streaming memory of all chips, which `total_bytes` does not include.
        self.streaming_bytes: int = cost.streaming_bytes
        #: Bytes that a rank sends to others (`session(…, process_group=…)`): counted in a measured run, else predicted.
        self.sent_bytes: int = cost.sent_bytes
        #: What does not fit, and what to change; empty if everything fits.
        self.overflow: str = cost.overflow
        #: On a machine of several chips: (chip, cycles by phase, bytes) of each, and (from, to, bytes, seconds) of each
        #: link in use.
        self.chips: list[tuple[int, dict[str, float], int]] = cost.chips
        self.links: list[tuple[int, int, int, float]] = cost.links
        #: If micro-batches go through stages on several chips: (chip, spans), in which a span is (kind, stage, micro-batch,
        #: begin, end) in cycles, without gaps from 0 to the end of the run. Kinds are "forward", "recomputed", "backward",
        #: or "input gradient" and "weight gradient", "exchange" between stages, "collective", "other" and "waiting".
        self.lanes: list[tuple[int, list[tuple[str, int, int, float, float]]]] = cost.lanes
        #: With lanes: (begin, end) in cycles of sums over replicas that pass over links while lanes show other work.
        self.under_way: list[tuple[float, float]] = cost.under_way
        #: What the chips, or the parts of a host, do in a pipeline other than a sequential one that recomputes nothing:
        #: passes, what they send, and sums of gradients, in the order of the program.
        self.actions: ActionList | None = None if cost.actions is None else ActionList(cost.actions)
        #: The placements on chips that were considered: (placement, seconds, overflow, chosen).
        self.placements: list[tuple[str, float, str, bool]] = cost.placements
        #: The passes that made the program, from transforms to the compiler: (pass, result, seconds).
        self.passes: list[tuple[str, str, float]] = cost.passes
        #: The columns of `memory`; "other" is code, vertex state, stacks and padding.
        self.purposes: list[str] = cost.purposes
        #: For a model that was compiled, or read from a file: whether each weight is sparse, and why not.
        self.layers: list[LayerReport] = []

    @property
    def fits(self) -> bool:
        return not self.overflow

    @property
    def memory(self) -> NDArray[np.uint64]:
        """Bytes as an array [tiles, purposes]; on the host it has one row."""
        return self._cost.memory

    def to_json(self) -> str:
        """All entries except the memory of each tile, as JSON."""
        return json.dumps(
            {
                "machine": self.machine.name,
                "tiles": self.machine.tiles,
                "seconds": self.seconds,
                "cycles": self.cycles,
                **self._of_hosts(),
                "balance": self.balance,
                "seconds_by_kind": self.seconds_by_kind,
                "operations": [
                    {
                        "operation": o.operation,
                        "value": o.value,
                        "seconds": o.seconds,
                        "conversion_seconds": o.conversion_seconds,
                        "cycles": o.cycles,
                    }
                    for o in self.operations
                ],
                "conversions": [
                    {"value": value, "bytes": size, "seconds": seconds} for value, size, seconds in self.conversions
                ],
                "bytes": self.bytes,
                "total_bytes": self.total_bytes,
                "fullest_tile_bytes": self.fullest_tile_bytes,
                "tile_bytes": self.tile_bytes,
                "streaming_bytes": self.streaming_bytes,
                "sent_bytes": self.sent_bytes,
                "fits": self.fits,
                "overflow": self.overflow,
                **self._of_chips(),
                **({"layers": [each.to_json() for each in self.layers]} if self.layers else {}),
            },
            indent=2,
        )

    def _of_hosts(self) -> dict[str, object]:
        if self.host_io is None:
            return {}
        return {"host_io": dict(zip(("bytes_in", "bytes_out", "seconds"), self.host_io, strict=True))}

    def _of_chips(self) -> dict[str, object]:
        if not self.chips and not self.placements:
            return {}
        return {
            "chips": [{"chip": chip, "cycles": cycles, "bytes": size} for chip, cycles, size in self.chips],
            "links": [
                {"from": start, "to": end, "bytes": size, "seconds": seconds} for start, end, size, seconds in self.links
            ],
            "placements": [
                {"placement": placement, "seconds": seconds, "overflow": overflow, "chosen": chosen}
                for placement, seconds, overflow, chosen in self.placements
            ],
        }

    def page(self) -> str:
        """Return the report as an HTML page: layers, time by operation and phase, memory by tile and purpose."""
        layers = [
            (each.name, *each.shape, each.rows, each.density, each.is_sparse, each.reason)
            + (each.dense_seconds, each.sparse_seconds, each.block_size, each.copy_bytes)
            for each in self.layers
        ]
        return self._cost.page(self._graph, self._title, repr(self.machine).strip("<>"), layers)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.page())

    def _repr_html_(self) -> str:
        return in_frame(self.page())

    def __repr__(self) -> str:
        lines = [f"{self._title} on {repr(self.machine).strip('<>')}"]
        if self.overflow:
            lines.append(f"  {self.overflow}")
        lines.append(f"  {_seconds(self.seconds)}, {sum(self.cycles.values()):,.0f} cycles: {_parts(self.cycles)}")
        if self.host_io is not None:
            sent, fetched, seconds = self.host_io
            lines.append(f"  of these {_seconds(seconds)} for {sent:,} bytes from the host and {fetched:,} to it")
        for placement, seconds, overflow, chosen in self.placements:
            lines.append(f"  {placement}: {overflow or _seconds(seconds)}{', chosen' if chosen else ''}")
        if not self.machine.is_host:
            share = self.fullest_tile_bytes / self.tile_bytes
            lines.append(f"  fullest tile {self.fullest_tile_bytes:,} bytes, {share:.0%}")
        lines.append(f"  {self.total_bytes:,} bytes: {_parts(self.bytes)}")
        if self.streaming_bytes:
            lines.append(f"  {self.streaming_bytes:,} bytes in streaming memory")
        if self.sent_bytes:
            lines.append(f"  {self.sent_bytes:,} bytes to other ranks")
        for operation in sorted(self.operations, key=lambda o: -o.seconds)[:5]:
            share = operation.seconds / self.seconds if self.seconds else 0.0
            lines.append(f"  {share:4.0%} {operation.operation} {operation.value}")
        return "\n".join(lines)


def machine_for(machine: Machine | str, threads: int, figures: Mapping[str, float] | None = None) -> Machine:
    """A machine by name; of the host, with that number of threads."""
    if isinstance(machine, Machine):
        if figures:
            raise ValueError(f"figures change a machine by its name; make {machine!r} with them")
        return machine
    return Machine(machine, threads=threads if machine == "host" else 0, **(figures or {}))


def _parts(parts: Mapping[str, float]) -> str:
    total = sum(parts.values()) or 1
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {value / total:.0%}" for name, value in ordered if value)


def _seconds(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
