"""Pipelines: in which order the stages of a graph work on micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Literal, NamedTuple, TypeAlias

from tessera import _tessera

PipelineKind: TypeAlias = Literal["sequential", "grouped", "interleaved", "1f1b", "zb-h1"]
#: The number of stages, the names of the layers with which the second stage and further ones begin, or a mapping from
#: names of layers to their stages.
Stages: TypeAlias = int | Literal["auto"] | Sequence[str] | Mapping[str, int]


@dataclass(frozen=True)
class PipelineAnalysis:
    """The time and memory of a schedule, with times in the unit of the given times."""

    time: float
    used: float
    """Fraction of the stages' time in which they work."""
    in_flight: list[int]
    """For each stage, the most micro-batches that have passed forward and not yet backward."""
    busy: list[float]
    """For each stage, the time in which it works."""


class PipelineAction(NamedTuple):
    """What a part of the chips does in a step of a pipeline, with the names of `torch.distributed.pipelining`. Its text
    is as in PyTorch: "0F3" is the forward pass of micro-batch 3 through stage 0.
    """

    text: str
    kind: str
    """"F" forward, "R" forward again before the backward pass, "B" backward, with the gradients of inputs and weights,
    or "I" and "W", with the gradients of inputs alone and of weights alone; "SEND_F", "RECV_F", "SEND_B" and "RECV_B",
    the two ends of an exchange of the results of forward and backward passes; and "REDUCE_GRAD", where a sum of
    gradients over replicas begins."""
    stage: int
    micro_batch: int | None
    """None for a REDUCE_GRAD of all micro-batches."""
    peer: int | None
    """The stage at the other end of an exchange."""
    bucket: int | None
    """For a REDUCE_GRAD of all micro-batches, the position in `ActionList.buckets`."""

    def __str__(self) -> str:
        return self.text


class ActionList:
    """What the chips of a pipeline do, in the order of a program: chips run the actions that they take part in, in this
    order, and both ends of an exchange wait for each other. `print` shows a line for each part of the chips, which
    `read_actions` reads.
    """

    def __init__(self, native: _tessera.ActionList) -> None:
        self._native = native
        self.stages: int = native.stages
        self.micro_batches: int = native.micro_batches
        #: The part of the chips on which each stage lies.
        self.places: list[int] = native.places
        #: Gradients that one collective sums over replicas: (stages, bytes of a replica, 0 where they are not known).
        self.buckets: list[tuple[list[int], int]] = native.buckets

    @property
    def actions(self) -> list[PipelineAction]:
        """All actions, in their order."""
        return [PipelineAction(*entries) for entries in self._native.actions]

    def of_place(self, place: int) -> list[PipelineAction]:
        """The actions of a part of the chips."""
        return [PipelineAction(*entries) for entries in self._native.of_place(_tessera.whole_number("place", place))]

    def of_stage(self, stage: int) -> list[PipelineAction]:
        return [PipelineAction(*entries) for entries in self._native.of_stage(_tessera.whole_number("stage", stage))]

    def analyse(self, times: Sequence[tuple[float, float]] | None = None, sending: float = 0.0) -> PipelineAnalysis:
        """Time and memory, as from `PipelineSchedule.analyse`, if each action begins as soon as its chips and the chips
        at the other end of an exchange have finished their actions before it. Stages on the same chips share their
        time. `sending` is the time of an exchange, which counts as waiting.
        """
        return PipelineAnalysis(*self._native.analyse(_times_of(times, self.stages), float(sending)))

    def __str__(self) -> str:
        return str(self._native)


def read_actions(text: str) -> ActionList:
    """Read a list of actions from text: a line for each part of the chips, as in the `str` of a list, or with commas, as
    `torch.distributed.pipelining` writes its schedules to files.

    The result has an order in which chips can run it. Chips that would wait for each other, a pass before its RECV, and
    a RECV before its SEND are refused.
    """
    return ActionList(_tessera.read_actions(text))


class PipelineSchedule:
    """The passes of micro-batches through stages. `print` shows a line for each stage: F forward, B backward, or I and
    W for gradients of inputs and of weights, R recomputed, and dots where it waits. A notebook shows it as a picture.
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
        """The passes of a stage in their order, as pairs of "forward", "recomputed", "backward", "input gradient" or
        "weight gradient" and the micro-batch.
        """
        return list(self._native.of_stage(_tessera.whole_number("stage", stage)))

    def analyse(self, times: Sequence[tuple[float, float]] | None = None) -> PipelineAnalysis:
        """Time and memory of the schedule if each pass begins as soon as it can and sending takes no time.

        `times` has for each stage the times of a forward and a backward pass, by default 1 and 2. Passes for gradients
        of inputs and of weights take half of a backward pass each.
        """
        return PipelineAnalysis(*self._native.analyse(_times_of(times, self.stages)))

    def actions(self, places: Sequence[int] | None = None, replicas: bool = False) -> ActionList:
        """The actions of each part of the chips, for stages that send to their neighbours: passes, both ends of each
        exchange, and, with `replicas`, sums of gradients. Stage s lies on part `places[s]`, by default on its own part.

        `estimate(…).actions` has the actions of a network's program.
        """
        own = [] if places is None else [_tessera.whole_number("place", place) for place in places]
        if places is not None and not own:
            raise ValueError("stages have no places: give the part of the chips for each stage")
        return ActionList(self._native.actions(own, bool(replicas)))

    def svg(self, times: Sequence[tuple[float, float]] | None = None) -> str:
        """A picture with a lane for each stage, as `tessera pipeline --svg` writes it; `times` is as for `analyse`."""
        return self._native.svg(_times_of(times, self.stages))

    def _repr_svg_(self) -> str:
        return self.svg()

    def __str__(self) -> str:
        return str(self._native)


def _times_of(times: Sequence[tuple[float, float]] | None, stages: int) -> list[tuple[float, float]]:
    return [(1.0, 2.0)] * stages if times is None else [(float(f), float(b)) for f, b in times]


def pipeline_schedule(
    kind: PipelineKind, stages: int, micro_batches: int, recompute: Iterable[int] = ()
) -> PipelineSchedule:
    """The schedule of a pipeline.

    "sequential" passes one micro-batch at a time. "grouped" runs all stages forward, then all backward, and
    "interleaved" alternates on each stage, as in PopART; "1f1b" runs forward passes as early as the limit of
    micro-batches in flight allows (Narayanan et al. 2021). Stage s of S holds 1, 2(S − s) − 1, S − s and S − s
    micro-batches, respectively. "zb-h1" (zero bubble, Qi et al. 2024) is "1f1b" with gradients of weights in passes of
    their own, which run where stages would wait otherwise; each stage holds up to S micro-batches. A grouped schedule
    needs a multiple of 2S micro-batches. Stages in `recompute` compute their forward pass again before the backward
    pass.
    """
    whole = _tessera.whole_number
    sizes = whole("stages", stages), whole("micro_batches", micro_batches)
    return PipelineSchedule(_tessera.pipeline_schedule(str(kind), *sizes, recomputed_stages(recompute)))


def layer_stages(stages: Stages) -> tuple[int | None, dict[str, int]]:
    """The number of stages that sessions balance, and stages by names of layers."""
    if isinstance(stages, str):
        if stages != "auto":
            raise ValueError(f'stages is {stages!r}; a single text is "auto": give names of layers as a list')
        return None, {}
    if isinstance(stages, Integral) and not isinstance(stages, bool):
        return _tessera.whole_number("stages", stages, 1), {}
    if not isinstance(stages, (Mapping, Sequence)):
        raise TypeError(f'stages must be a whole number, a list or dict of names of layers, or "auto", not {stages!r}')
    for name in stages:
        if not isinstance(name, str):
            raise TypeError(f'stages are named by layers, such as "layers.4", not {name!r}')
    if not isinstance(stages, Mapping):
        if len(set(stages)) < len(stages):
            raise ValueError(f"stages are {stages!r}: name each layer once")
        stages = {name: stage for stage, name in enumerate(stages, 1)}
    by_name = {name: _tessera.whole_number("stage", stage) for name, stage in stages.items()}
    return (None if by_name else 1), by_name


def recomputed_stages(recompute: Iterable[int] | int | str, others: str = "") -> set[int]:
    """The stages that compute their forward passes again; `others` names further choices in an error."""
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
