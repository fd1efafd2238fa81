"""The common base of the trainers of `tessera train` in Python."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tessera import _tessera
from tessera._locks import Lock
from tessera._tessera import Machine
from tessera.graph._graph import least_elements
from tessera.graph._pipeline import memory_budget
from tessera.graph._training import native_groups

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_Settings: TypeAlias = "_tessera.PretrainingSettings | _tessera.ResnetTrainingSettings"
#: Optimizers by the tool's names.
TrainerOptimizer: TypeAlias = Literal["sgd", "momentum", "nesterov", "adam", "adamw", "lamb", "lars"]


class _Native(Protocol):
    """A trainer of the library."""

    @property
    def steps(self) -> int: ...
    @property
    def finished_steps(self) -> int: ...
    @property
    def settings_json(self) -> str: ...

    def train(self, steps: int, checkpoint: str) -> list[float]: ...
    def save(self, checkpoint: str) -> None: ...
    def resume(self, checkpoint: str, allow_different_bits: bool) -> None: ...
    def save_parameters(self, path: str) -> None: ...
    def parameters(self) -> Sequence[tuple[str, NDArray[np.float32], Sequence[int]]]: ...


class Trainer:
    """A network with its data on a machine. Calls may come from several threads, and take turns."""

    machine: Machine
    _native: _Native

    def __init__(self, only_estimates: bool, group: ProcessGroup | None) -> None:
        if only_estimates and group is not None:
            raise ValueError("estimates take one process: leave out process_group")
        self._lock = Lock()

    # Training.

    def train(self, steps: int | None = None, *, checkpoint: str | os.PathLike[str] | None = None) -> list[float]:
        """Train for a number of steps, or to the end, and return the loss of each step's batch.

        Evaluations are made when they are due. A `checkpoint` is a file that is written after each evaluation, and at
        the end of this call. Ctrl-C ends the call after the step in progress with KeyboardInterrupt, after the
        checkpoint has been written; training can go on. Python's other threads run meanwhile. If the list is shorter
        than asked for, no steps are left. After an exception, including Ctrl-C, the losses of this call are lost; to
        keep all losses, call `step` for each step.
        """
        asked = None if steps is None else _tessera.whole_number("steps", steps, 1)
        with self._lock:
            left = self.steps - self.finished_steps
            count = left if asked is None else min(asked, left)
            if count:
                return self._native.train(count, path_of(checkpoint))
            if checkpoint is not None:
                self._native.save(path_of(checkpoint))
            return []

    def step(self) -> float:
        """Train for one step, and return its loss. Raises ValueError if no step is left."""
        losses = self.train(1)
        if not losses:
            raise ValueError(f"all {self.steps:,} steps are done")
        return losses[0]

    @property
    def steps(self) -> int:
        """Number of steps of the whole training."""
        return self._native.steps

    @property
    def finished_steps(self) -> int:
        """Number of steps so far. Waits for another thread's call of `train`, as all methods do."""
        with self._lock:
            return self._native.finished_steps

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by name, with the names that checkpoints and the tool's results use."""
        found: dict[str, Any] = json.loads(self._native.settings_json)
        return found

    # Files.

    def save(self, checkpoint: str | os.PathLike[str]) -> None:
        """Write a checkpoint; an existing file is only replaced by a complete one."""
        with self._lock:
            self._native.save(path_of(checkpoint))

    def resume(self, checkpoint: str | os.PathLike[str], *, allow_different_bits: bool = False) -> None:
        """Continue from a checkpoint that this class or the tool wrote, with the same settings and data.

        Raises RuntimeError, which says what differs, and changes nothing, for a damaged file, a checkpoint of another
        training, and, unless different bits are allowed, a checkpoint of another machine, number of tiles or
        instruction set.
        """
        with self._lock:
            self._native.resume(path_of(checkpoint), bool(allow_different_bits))

    def save_parameters(self, path: str | os.PathLike[str]) -> None:
        """Save the parameters in a .safetensors file, with the names and shapes of `state_dict`."""
        with self._lock:
            self._native.save_parameters(path_of(path))

    def state_dict(self) -> dict[str, NDArray[np.float32]]:
        """Copies of the parameters, in FP32, with the names and shapes that other libraries use."""
        with self._lock:
            found = self._native.parameters()
        return {name: values.reshape(shape) for name, values, shape in found}

    def __repr__(self) -> str:
        done = f"{self.finished_steps:,} of {self.steps:,} steps"
        return f"<{type(self).__name__} on {self.machine.name}: {done}>"


def replicas_of_ranks(machine: Machine | str, group: ProcessGroup | None, stages: int = 1) -> int:
    """One for each rank, or on a host, whose stages ranks divide as well, for as many ranks as have stages."""
    if group is None:
        return 1
    import torch.distributed as dist

    is_host = machine == "host" or (isinstance(machine, Machine) and machine.is_host)
    return max(1, dist.get_world_size(group) // (stages if is_host else 1))


def path_of(path: str | os.PathLike[str] | None) -> str:
    return "" if path is None else os.fspath(path)


def set_learning(settings: _Settings, given: Mapping[str, Any]) -> None:
    """Set the settings common to all trainings from a trainer's arguments, by name; the library checks the values."""
    if given["epochs"] is not None:
        if given["steps"] is not None:
            raise ValueError("steps and epochs both say how long to train: leave out one of them")
        settings.epochs = _tessera.whole_number("epochs", given["epochs"], 1)
    for name in ("lr", "momentum", "trust_coefficient", "weight_decay", "validation", "seed"):
        setattr(settings, name, given[name])
    warmup = _tessera.whole_number("warmup", given["warmup"])
    settings.set_lr_schedule(
        warmup, given["lr_power"], given["lr_end"], list(given["lr_decay_at"]), given["lr_decay"]
    )
    settings.set_betas(*given["betas"])
    exclude = given["exclude"]
    settings.excluded = [exclude] if isinstance(exclude, str) else list(exclude)
    settings.bias_correction, settings.host_io = bool(given["bias_correction"]), bool(given["host_io"])
    if given["clip_norm"] is not None:
        settings.clip_norm = given["clip_norm"]


def set_counts(
    settings: _Settings, *counts: tuple[str, int, int], optional: Sequence[tuple[str, int | None, int]] = ()
) -> None:
    """Set whole numbers by name, each with its smallest allowed value; an optional None is 0 in the settings."""
    for name, count, least in counts:
        setattr(settings, name, _tessera.whole_number(name, count, least))
    for name, choice, least in optional:
        setattr(settings, name, 0 if choice is None else _tessera.whole_number(name, choice, least))


def set_placement(settings: _Settings, given: Mapping[str, Any], stages: int = 1) -> None:
    """Set how a step is divided among chips, and where its values lie, from a trainer's arguments, by name.

    Without `replicas`, every rank of a process group has one, or on a host one of its `stages`.
    """
    replicas = given["replicas"]
    if replicas is None:
        replicas = replicas_of_ranks(given["machine"], given["process_group"], stages)
    set_counts(settings, ("micro_batches", given["micro_batches"], 1), ("replicas", replicas, 1))
    _set_recomputation(settings, given["recompute"])
    settings.overlap, settings.prefetch = bool(given["overlap"]), bool(given["prefetch"])
    for option, choice in given.items():
        if hasattr(settings, f"{option}_from") and (least := least_elements(option, choice)) is not None:
            setattr(settings, f"{option}_from", least)
    settings.groups = native_groups(given["groups"], None)


def _set_recomputation(settings: _Settings, recompute: bool | int | Literal["fit"]) -> None:
    """Compute all layers or blocks again, or as few as fit a number of bytes, or the machine."""
    budget = memory_budget(recompute)
    if budget is not None:
        settings.memory_budget = budget
    elif isinstance(recompute, (bool, np.bool_)):
        settings.recompute = bool(recompute)
    else:
        raise TypeError(f'recompute must be True, False, a number of bytes or "fit", not {recompute!r}')
