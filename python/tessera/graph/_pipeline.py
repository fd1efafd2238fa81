"""Pipelines: in which order the stages of a graph work on micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Literal, TypeAlias

from tessera import _tessera

PipelineKind: TypeAlias = Literal["sequential", "grouped", "interleaved", "1f1b"]


@dataclass(frozen=True)
class PipelineAnalysis:
    """The time and memory of a schedule, with times in the unit of the given times."""

    time: float
    used: float
    """Share of the stages' time in which they work."""
    in_flight: list[int]
    """The most micro-batches that have passed forward and not yet backward, for each stage."""
    busy: list[float]
    """The time in which each stage works."""


class PipelineSchedule:
    """The passes of micro-batches through stages. `print` shows a line for each stage: F forward, B backward, R
    recomputed, and dots where it waits. A notebook shows it as a picture.
    """

    def __init__(self, native: _tessera.PipelineSchedule) -> None:
        self._native = native

    @property
    def stages(self) -> int:
        return self._native.stages

    @property
    def micro_batches(self) -> int:
        return self._native.micro_batches

    def of_stage(self, stage: int) -> list[tuple[str, int]]:
        """The passes of a stage in their order, as pairs of "forward", "recomputed" or "backward" and the micro-batch.
        """
        return list(self._native.of_stage(_tessera.whole_number("stage", stage)))

    def analyse(self, times: Sequence[tuple[float, float]] | None = None) -> PipelineAnalysis:
        """Time and memory of the schedule if each pass begins as soon as it can and sending takes no time.

        `times` has for each stage the times of a forward and a backward pass, by default 1 and 2.
        """
        return PipelineAnalysis(*self._native.analyse(self._given(times)))

    def svg(self, times: Sequence[tuple[float, float]] | None = None) -> str:
        """A picture with a lane for each stage, as `tessera pipeline --svg` writes it; `times` is as for `analyse`."""
        return self._native.svg(self._given(times))

    def _given(self, times: Sequence[tuple[float, float]] | None) -> list[tuple[float, float]]:
        return [(1.0, 2.0)] * self.stages if times is None else [(float(f), float(b)) for f, b in times]

    def _repr_svg_(self) -> str:
        return self.svg()

    def __str__(self) -> str:
        return str(self._native)


def pipeline_schedule(
    kind: PipelineKind, stages: int, micro_batches: int, recompute: Iterable[int] = ()
) -> PipelineSchedule:
    """The schedule of a pipeline.

    "sequential" passes one micro-batch at a time. "grouped" runs all stages forward, then all backward, and
    "interleaved" alternates on each stage, as in PopART; "1f1b" runs forward passes as early as the limit of
    micro-batches in flight allows (Narayanan et al. 2021). Stage s of S holds 1, 2(S − s) − 1, S − s and S − s
    micro-batches, respectively. A grouped schedule needs a multiple of 2S micro-batches. Stages in `recompute` compute
    their forward pass again before the backward pass.
    """
    whole = _tessera.whole_number
    sizes = whole("stages", stages), whole("micro_batches", micro_batches)
    return PipelineSchedule(_tessera.pipeline_schedule(str(kind), *sizes, recomputed_stages(recompute)))


def recomputed_stages(recompute: Iterable[int] | int | str, others: str = "") -> set[int]:
    """The stages that compute their forward passes again; `others` is what an error names besides stages."""
    if isinstance(recompute, str) or not isinstance(recompute, Iterable):
        raise TypeError(
            f"recompute must be numbers of stages, such as {{0, 1}}{others}, not {recompute!r}; single calls are "
            "recomputed by graph.call(…, recompute=True)"
        )
    return {_tessera.whole_number("stage", stage) for stage in recompute}


def memory_budget(recompute: object) -> int | None:
    """The bytes that a step may take before it recomputes, 0 for "fit"; None for other choices."""
    if isinstance(recompute, str):
        return 0 if recompute == "fit" else None
    if isinstance(recompute, Integral) and not isinstance(recompute, bool):
        return _tessera.whole_number("recompute", recompute, 1, 2**64 - 1)
    return None


def recomputation(recompute: Iterable[int] | int | Literal["fit"]) -> tuple[set[int], int | None]:
    """The stages that compute their forward passes again, and the memory budget for which others are chosen."""
    budget = memory_budget(recompute)
    return (recomputed_stages(recompute, ', a number of bytes or "fit"') if budget is None else set()), budget
