"""Pre-training of BERT on packs of sequences, as `tessera train bert` does it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import DTypeLike

from tessera import _tessera
from tessera._arguments import checked_seed, checked_threads, chosen
from tessera._tessera import BertConfig, Machine, PretrainingEvaluation, TokenText
from tessera._trainer import (
    Trainer,
    TrainerOptimizer,
    path_of,
    set_counts,
    set_learning,
    set_placement,
)
from tessera.graph._bert import PackedAverage, bert_config
from tessera.graph._estimate import Estimate, machine_for
from tessera.graph._graph import native_scale
from tessera.graph._pipeline import PipelineKind
from tessera.graph._ranks import communicator_of, on_each
from tessera.graph._training import (
    Numbers,
    ParameterGroup,
    ScheduleKind,
    StoreRounding,
    native_roundings,
)
from tessera.graph._values import value_type

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class BertTrainer(Trainer):
    """BERT with its text on a machine: training, evaluation and checkpoints of `tessera train bert`.

    Model and text:
    - `config` is a name ("tiny", "mini", "small", "medium", "base", "large"), a `BertConfig`, or a configuration of
      `transformers`, as an object or a dict. Its `vocab_size` must be the text's; a name, or a dict without
      `vocab_size`, takes it from the text. The configuration's dropout probabilities apply in training.
    - `text` is a `TokenText` or the path of a file of tokens, of whose documents the fraction `validation` is held out;
      or a pair of texts, for training and held out; or the path of a folder with `train.safetensors` and
      `test.safetensors`.

    Steps and phases:
    - A step takes `packs` packs of `length` tokens, in `micro_batches` equal parts. If `length` is a list, training has
      one phase for each length, and `packs` and `steps` may be lists too. Without `steps`, a phase takes `epochs`
      epochs, by default 10. A checkpoint is also written before each phase but the first.
    - `pack` is "optimal", with at most `max_per_pack` sequences in a pack, or "none", with one padded sequence in each
      pack.
    - `train` evaluates the held-out text after each `evaluate_every` steps (0: as many as an epoch of the first phase
      has), and after the last step.
    - The learning rate rises to `lr` in the first `warmup` steps. Then it falls as `lr_schedule` says: to `lr_end`
      times `lr` at the last step, polynomially with the exponent `lr_power`; or, as "step", by the factor `lr_decay`
      after each of the fractions `lr_decay_at` of all steps.
    - Parameters that `exclude` names, with `*` for any characters, have neither weight decay nor a trust ratio,
      whatever `groups` say. `groups` name parameters here too.
    - `groups`, `numbers`, `rounding`, `partial_dtype`, `sum_dtype`, `loss_scale`, `clip_norm`, `pipeline`, `replicas`,
      `overlap`, `shard`, `shard_weights`, `shard_gradients`, `offload`, `offload_weights`, `offload_gradients`,
      `offload_activations` and `prefetch` are as for `Graph.training_step`, `average` and `head_slices` as for
      `bert_for_pretraining`. `rounding`, `partial_dtype`, `sum_dtype` and `loss_scale` follow from `numbers` unless
      they are given.
    - `stages` divides the layers among a machine's chips. `stage_layers` and `stage_feed_forwards` give the number of
      layers, or of attention and feed-forward parts of layers, in each stage; `head_layers` and `head_feed_forwards`
      give the number of the last ones that lie with the prediction of masked tokens. With `recompute`, only the inputs
      of layers are kept for backward passes; if it is a number of bytes or "fit", of as few layers as fit these bytes
      of each tile (of a host in all), or the machine.

    Machine and ranks:
    - `machine` is a `Machine` or its name. `threads` is the number of threads of the host, 0 for the default; if the
      machine is "host", it is also its number of tiles.
    - A trainer with `only_estimates` takes no memory for parameters, and cannot train. With `estimate_packs`, its
      estimates on modelled machines cost the first batch of each phase, in whose packs tiles skip attention between
      sequences; otherwise they cost packs of one sequence each.
    - The ranks of `process_group`, of `torch.distributed`, divide the replicas among them; on the host, if there are
      more ranks than replicas, ranks also divide the stages of each replica. By default every rank has one stage of a
      replica, or all stages if there is one. Ranks train as one process does, bit for bit (docs/ranks.md): each rank
      makes this trainer with the same options and text, and makes the same calls. Rank 0 writes files. Ctrl-C on one
      rank ends `train` on all ranks, whose lists of losses are then shorter. If a rank fails, or gives no sign of life
      for `rank_timeout` seconds, the other ranks raise RuntimeError. `divide_cores` is as for `Graph.session`.

    With the same options, text, tiles and instruction set, training gives the same bits as the tool, with any number of
    threads and also if it is stopped and resumed; trainer and tool can continue each other's checkpoints. Parameters
    have the names and shapes of Hugging Face's BertForPreTraining.

    Raises ValueError for options that are out of range, contradict each other or do not fit the text or the model,
    TypeError for options of a wrong type, and RuntimeError for files that cannot be read or are damaged and if there is
    not enough memory. `train` raises RuntimeError if the loss is not finite, unless a dynamic `loss_scale` that has not
    fallen to 1 leaves the step out; mean losses then do not count this step. Calls may come from several threads, and
    take turns.
    """

    _native: _tessera.BertTrainer

    def __init__(
        self,
        config: str | BertConfig | Any,
        text: TokenText | tuple[TokenText, TokenText] | str | os.PathLike[str],
        *,
        length: int | Sequence[int] = 128,
        packs: int | Sequence[int] = 32,
        steps: int | Sequence[int] | None = None,
        epochs: int | None = None,
        pack: Literal["optimal", "none"] = "optimal",
        max_per_pack: int | None = None,
        average: PackedAverage = "token",
        numbers: Numbers = "fp32",
        rounding: StoreRounding | None = None,
        partial_dtype: DTypeLike | str | None = None,
        sum_dtype: DTypeLike | str | None = None,
        loss_scale: float | Literal["dynamic"] | None = None,
        optimizer: TrainerOptimizer = "lamb",
        lr: float = 0.01,
        lr_schedule: ScheduleKind = "constant",
        warmup: int = 0,
        lr_power: float = 1.0,
        lr_end: float = 0.0,
        lr_decay_at: Sequence[float] = (0.5, 0.75),
        lr_decay: float = 0.1,
        momentum: float = 0.9,
        betas: tuple[float, float] = (0.9, 0.999),
        bias_correction: bool = True,
        trust_coefficient: float = 0.001,
        weight_decay: float = 0.01,
        exclude: Sequence[str] = ("*.bias", "*.LayerNorm.weight"),
        groups: Iterable[ParameterGroup] = (),
        clip_norm: float | None = None,
        micro_batches: int = 1,
        head_slices: int = 1,
        stages: int = 1,
        stage_layers: Sequence[int] = (),
        stage_feed_forwards: Sequence[int] = (),
        head_layers: int = 0,
        head_feed_forwards: int = 0,
        pipeline: PipelineKind = "sequential",
        recompute: bool | int | Literal["fit"] = False,
        replicas: int | None = None,
        overlap: bool = True,
        shard: bool | int = False,
        shard_weights: bool | int = False,
        shard_gradients: bool | int = False,
        offload: bool | int = False,
        offload_weights: bool | int = False,
        offload_gradients: bool | int = False,
        offload_activations: bool | int = False,
        prefetch: bool = False,
        evaluate_every: int = 0,
        validation: float = 0.05,
        seed: int = 0,
        machine: Machine | str = "host",
        threads: int = 0,
        host_io: bool = False,
        only_estimates: bool = False,
        estimate_packs: bool = False,
        process_group: ProcessGroup | None = None,
        rank_timeout: float = 10,
        divide_cores: bool = True,
    ) -> None:
        super().__init__(only_estimates, process_group)
        if estimate_packs and not only_estimates:
            raise ValueError("estimate_packs is for only_estimates=True: add that, or leave it out")
        own, phases, seed = bert_config(config), phases_of(length, packs, steps), checked_seed(seed)
        settings = settings_of(own, phases, locals())
        threads = checked_threads(threads)
        ranks = communicator_of(process_group, rank_timeout, divide_cores)

        def load() -> tuple[Machine, TokenText, TokenText]:
            train, held_out = split_text(text, validation, seed)
            require_vocabulary(config, own, train)
            return machine_for(machine, threads), train, held_out

        self.machine, train, held_out = on_each(ranks, load)
        self._native = _tessera.BertTrainer(
            settings, train, held_out, self.machine, threads, bool(only_estimates), ranks
        )
        self._lengths = [tokens for tokens, _, _ in phases]

    def validate(self) -> PretrainingEvaluation:
        """Evaluate the held-out text. The results of `train` do not depend on this call."""
        with self._lock:
            return self._native.evaluate()

    @property
    def evaluations(self) -> tuple[PretrainingEvaluation, ...]:
        """The evaluations that `train` has made, including evaluations before a resumed checkpoint."""
        with self._lock:
            return tuple(self._native.history)

    def steps_per_epoch(self, phase: int = 0) -> int:
        """Number of steps that take each pack of an epoch once; the last, incomplete step is left out."""
        return self._native.steps_per_epoch(self._phase(phase))

    def load_parameters(self, path: str | os.PathLike[str]) -> None:
        """Set the parameters from a file that `save_parameters` wrote, or from a folder with a model of `transformers`.
        """
        with self._lock:
            self._native.load_parameters(path_of(path))

    def estimate(self, phase: int = 0) -> Estimate:
        """The cost of a step of a phase: memory, and time by operation."""
        number = self._phase(phase)
        title = f"training step of BERT on packs of {self._lengths[number]} tokens"
        with self._lock:
            return Estimate(self._native.step_cost(number), self._native.graph(number), self.machine, title)

    def _phase(self, number: int) -> int:
        return _tessera.whole_number("phase", number, 0, len(self._lengths) - 1)


def settings_of(
    own: BertConfig, phases: list[tuple[int, int, int]], given: Mapping[str, Any]
) -> _tessera.PretrainingSettings:
    """The settings of a trainer's arguments, by name."""
    chosen("pack", given["pack"], ("optimal", "none"))
    if given["pack"] == "none" and given["max_per_pack"] is not None:
        raise ValueError("max_per_pack is for pack='optimal': leave it out")
    names = ("average", "numbers", "optimizer", "lr_schedule", "pipeline")
    settings = _tessera.PretrainingSettings(own, phases, *(given[name] for name in names))
    settings.packed = given["pack"] == "optimal"
    set_learning(settings, given)
    set_counts(
        settings,
        *((name, given[name], 1) for name in ("head_slices", "stages")),
        *((name, given[name], 0) for name in ("head_layers", "head_feed_forwards", "evaluate_every")),
        optional=(("max_per_pack", given["max_per_pack"], 1),),
    )
    set_placement(settings, given, settings.stages)
    settings.stage_layers = _whole_numbers("stage_layers", given["stage_layers"])
    settings.stage_feed_forwards = _whole_numbers("stage_feed_forwards", given["stage_feed_forwards"])
    settings.estimate_packs = bool(given["estimate_packs"])
    if given["rounding"] is not None:
        settings.set_roundings(*native_roundings(given["rounding"]))
    if given["partial_dtype"] is not None:
        settings.set_partials(value_type(given["partial_dtype"]))
    if given["sum_dtype"] is not None:
        settings.set_sums(value_type(given["sum_dtype"]))
    if given["loss_scale"] is not None:
        settings.set_loss_scale(*native_scale(given["loss_scale"]))
    return settings


def _whole_numbers(name: str, given: int | Sequence[int], least: int = 0) -> list[int]:
    items = given if isinstance(given, Sequence) else [given]
    return [_tessera.whole_number(name, item, least) for item in items]


def phases_of(
    length: int | Sequence[int], packs: int | Sequence[int], steps: int | Sequence[int] | None
) -> list[tuple[int, int, int]]:
    """The tokens of a pack, the packs of a step and the steps of each phase; 0 steps: as many as the epochs have."""
    lengths = _whole_numbers("length", length, 1)
    packs_of = _whole_numbers("packs", packs, 1)
    steps_of = [0] if steps is None else _whole_numbers("steps", steps, 1)
    if not lengths:
        raise ValueError("length has no items: give at least one")
    for name, items in (("packs", packs_of), ("steps", steps_of)):
        if len(items) not in (1, len(lengths)):
            raise ValueError(f"{name} has {len(items)} items: give one, or one for each of the {len(lengths)} lengths")
    return [(each, packs_of[i % len(packs_of)], steps_of[i % len(steps_of)]) for i, each in enumerate(lengths)]


def split_text(
    text: TokenText | tuple[TokenText, TokenText] | str | os.PathLike[str], validation: float, seed: int
) -> tuple[TokenText, TokenText]:
    if isinstance(text, TokenText):
        return text.split(validation, seed)
    if isinstance(text, (str, os.PathLike)):
        return _tessera.load_text(os.fspath(text), validation, seed)
    if isinstance(text, tuple) and len(text) == 2 and all(isinstance(each, TokenText) for each in text):
        return text
    raise TypeError(f"text must be a TokenText, a pair of them, or the path of a file or folder, not {text!r}")


def require_vocabulary(config: str | BertConfig | Any, own: BertConfig, text: TokenText) -> None:
    """Raise ValueError if the configuration's number of tokens differs from the text's."""
    if isinstance(config, str) or (isinstance(config, Mapping) and "vocab_size" not in config):
        return
    if own.vocab_size != text.vocabulary:
        raise ValueError(
            f"the configuration's vocab_size is {own.vocab_size}, and the text has {text.vocabulary} tokens: give a "
            "configuration of the text's vocabulary"
        )
