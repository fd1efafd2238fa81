"""How a step of the pre-training of BERT is best divided among the chips of a modelled machine."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tessera import _tessera
from tessera._arguments import checked_number, checked_seed, checked_threads
from tessera._bert_trainer import BertTrainer, phases_of, require_vocabulary, settings_of, split_text
from tessera._tessera import BertConfig, Machine, TokenText
from tessera.graph._bert import bert_config
from tessera.graph._estimate import machine_for

#: What a plan chooses, by the names of `BertTrainer`.
_CHOSEN = (
    "replicas",
    "stages",
    "stage_layers",
    "stage_feed_forwards",
    "head_layers",
    "head_feed_forwards",
    "pipeline",
    "micro_batches",
    "head_slices",
    "recompute",
)
#: Further choices, as the smallest number of elements of values that lie elsewhere.
_CHOSEN_PLACES = (
    "shard",
    "shard_weights",
    "offload",
    "offload_weights",
    "offload_gradients",
    "offload_activations",
)
_OF_TRAINING = ("only_estimates", "process_group", "rank_timeout", "divide_cores")


@dataclass(frozen=True)
class PretrainingCost:
    """The cost of a division of a step.

    If there is no estimate, since an operation alone does not fit or the machine cannot be divided in this way, times
    and bytes are None, and `overflow` says why.
    """

    seconds: float | None
    """Time of a step."""
    fullest_tile_bytes: int | None
    """Bytes of the fullest tile."""
    streaming_bytes: int | None
    """Bytes in streaming memory of the chip that has most there."""
    lacking_tile_bytes: int | None
    """Bytes that the fullest tile needs beyond its memory."""
    lacking_streaming_bytes: int | None
    """Bytes that this chip needs beyond its streaming memory."""
    fits: bool
    overflow: str
    """In an estimate of the whole network, what does not fit."""


@dataclass(frozen=True)
class PretrainingDivision:
    """A way to divide a step into replicas, stages and micro-batches, and to save memory."""

    options: dict[str, Any]
    """The division as options of `BertTrainer`, to be given together with the options of the plan."""
    extrapolated: PretrainingCost | None
    """Cost extrapolated from estimates of small networks."""
    estimated: PretrainingCost | None
    """Cost estimated with the whole network."""


@dataclass(frozen=True)
class PretrainingPlan:
    """What `plan_pretraining` found."""

    frontier: list[PretrainingDivision]
    """The Pareto frontier of the extrapolated divisions, the fastest first: no other one is both faster and smaller."""
    estimated: list[PretrainingDivision]
    """Divisions estimated as whole networks, in the order of their estimates."""
    chosen: PretrainingDivision | None
    """The fastest of these that fits."""
    overflow: str
    """If none fits: what does not fit in the division that comes closest, and by how much."""
    considered: int
    """Number of divisions."""
    small_estimates: int
    """Number of small networks that were estimated."""
    tile_bytes: int
    """Memory of a tile."""
    stopped: bool
    """Whether `progress` ended the search."""
    out_of_time: bool
    """Whether estimates were left out for `time_limit`."""


def plan_pretraining(
    config: str | BertConfig | Any,
    text: TokenText | tuple[TokenText, TokenText] | str | os.PathLike[str],
    machine: Machine | str,
    *,
    estimates: int = 6,
    margin: float = 0.02,
    time_limit: float | None = None,
    progress: Callable[[int, int, str], bool | None] | None = None,
    threads: int = 0,
    **options: Any,
) -> PretrainingPlan:
    """Search for the fastest division of a step among a modelled machine's chips, as `tessera train bert --plan` does.

    `config`, `text` and the other `options` are as for `BertTrainer`; a step takes `packs` packs. The search varies
    replicas, stages and their layers, "sequential" or "1f1b", micro-batches, recomputation, and sharding and offload of
    the optimizer state; where a division does not fit, also what saves more memory. Most divisions are extrapolated
    from estimates of small networks (docs/plans.md); then at most `estimates` divisions are estimated as whole
    networks, the fastest first, as long as another one may be faster than the fastest that fits, or slower by at most
    the fraction `margin`. The fastest "1f1b" pipeline is also estimated as "zb-h1". If `options` have a division of
    their own, such as `stages`, it is estimated first, so the choice is at least as good.

    With `time_limit`, no estimate begins after this number of seconds, and no estimate of a small network after half of
    it; at least one division is extrapolated and one estimated. `progress` is called before each estimate, with the
    number of estimates done, their maximum number and the name of the next one; if it returns False, the search ends
    with what it has found. Ctrl-C ends it with KeyboardInterrupt after the estimate under way. `threads` is the number
    of threads of the host; with more than one, two networks are estimated side by side.

        plan = tessera.text.plan_pretraining("large", "tokens.safetensors", "pod16", length=384, packs=768)
        for division in plan.frontier:
            print(division.extrapolated.seconds, division.extrapolated.fullest_tile_bytes, division.options)

    Raises ValueError for the host, for several lengths, and for options that `BertTrainer` refuses on any machine;
    TypeError for options that it does not have or that are of a wrong type, and RuntimeError if there is no way to
    divide a step at all.
    """
    if unused := [name for name in _OF_TRAINING if name in options]:
        raise TypeError(f"a plan only estimates, in one process: leave out {', '.join(unused)}")
    bound = inspect.signature(BertTrainer).bind(config, text, machine=machine, only_estimates=True, **options)
    bound.apply_defaults()
    given = bound.arguments
    seed = given["seed"] = checked_seed(given["seed"])
    own = bert_config(config)
    settings = settings_of(own, phases_of(given["length"], given["packs"], given["steps"]), given)
    train, held_out = split_text(text, given["validation"], seed)
    require_vocabulary(config, own, train)
    threads = checked_threads(threads)
    return _plan_of(
        _tessera.plan_pretraining(
            settings,
            train,
            held_out,
            machine_for(machine, threads),
            _tessera.whole_number("estimates", estimates),
            any(name in options for name in (*_CHOSEN, *_CHOSEN_PLACES)),
            checked_number("margin", margin),
            0.0 if time_limit is None else checked_number("time_limit", time_limit),
            threads,
            progress,
        )
    )


def _plan_of(native: _tessera.PretrainingPlan) -> PretrainingPlan:
    estimated = [_division_of(each) for each in native.estimated]
    return PretrainingPlan(
        frontier=[_division_of(each) for each in native.frontier],
        estimated=estimated,
        chosen=None if native.chosen is None else estimated[native.chosen],
        overflow=native.overflow,
        considered=native.considered,
        small_estimates=native.small_estimates,
        tile_bytes=native.tile_bytes,
        stopped=native.stopped,
        out_of_time=native.out_of_time,
    )


def _division_of(native: _tessera.PretrainingDivision) -> PretrainingDivision:
    settings = native.settings
    options = {name: getattr(settings, name) for name in _CHOSEN}
    for name in _CHOSEN_PLACES:
        least = getattr(settings, f"{name}_from")
        options[name] = False if least is None else least
    return PretrainingDivision(options, _cost_of(native.extrapolated), _cost_of(native.estimated))


def _cost_of(native: _tessera.PretrainingCost | None) -> PretrainingCost | None:
    if native is None:
        return None
    if not native.has_figures:
        return PretrainingCost(None, None, None, None, None, native.fits, native.overflow)
    return PretrainingCost(
        native.seconds,
        native.fullest_tile_bytes,
        native.streaming_bytes,
        native.lacking_tile_bytes,
        native.lacking_streaming_bytes,
        native.fits,
        native.overflow,
    )
