"""Sparse training: schedules that change the patterns of dynamic layers while a model trains.

    schedule = tessera.sparse.RigL(model, optimizer, every=100, until=10_000)
    for batch in batches:
        loss(model(batch)).backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()

A schedule changes every `SparseLinear` of the model that is dynamic and trains. Values, gradients and the optimizer's
state follow their blocks; new blocks begin at 0 (a block that is dropped and grown at once stays). With
`torch.distributed` initialised (DDP, FSDP2) all ranks of `process_group` get the same patterns: every rank calls
`step()`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from tessera import _blocks, _distributed
from tessera._arguments import checked_number
from tessera._tessera import whole_number
from tessera.nn import SparseLinear

__all__ = ["SET", "Magnitude", "RigL"]


class _Schedule:
    """Counts steps, and changes the pattern of each layer at every `every`-th one."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        every: int = 100,
        until: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        self.every = whole_number("every", every, 1)
        self.until = None if until is None else whole_number("until", until, 1)
        self.layers = [
            m for m in model.modules() if isinstance(m, SparseLinear) and m.dynamic and m.weight.requires_grad
        ]
        if not self.layers:
            raise ValueError("the model has no dynamic SparseLinear to train: make its layers with dynamic=True")
        self.optimizer = optimizer
        self.process_group = process_group
        self.steps = 0

    def step(self) -> bool:
        """Count a step of the optimizer; returns whether patterns have changed."""
        self.steps += 1
        if not self._is_due(self.steps):
            return False
        for number, layer in enumerate(self.layers):
            self._update(number, layer)
        return True

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a schedule's `state_dict()` was taken. Raises TypeError or ValueError if the state is not the
        state of a schedule.
        """
        if not isinstance(state, Mapping) or "steps" not in state:
            raise ValueError(f"the state of a schedule is a dictionary with 'steps', from state_dict(): not {state!r}")
        self.steps = whole_number("steps", state["steps"])

    def _is_due(self, step: int) -> bool:
        return step % self.every == 0 and (self.until is None or step <= self.until)

    def _update(self, number: int, layer: SparseLinear) -> None:
        positions = self._choose(number, layer)
        crow, col = _blocks.csr_of(positions, layer._grid(), layer.capacity)
        crow = _distributed.first_ranks(crow, self.process_group)
        col = _distributed.first_ranks(col, self.process_group)
        layer.set_pattern(crow, col, self._state_of(layer.weight))

    def _choose(self, number: int, layer: SparseLinear) -> Tensor:
        """The positions of the next pattern, ascending."""
        raise NotImplementedError

    def _state_of(self, weight: nn.Parameter) -> Iterator[Tensor]:
        if weight.grad is not None:
            yield weight.grad
        for tensor in self.optimizer.state.get(weight, {}).values():
            if isinstance(tensor, Tensor) and tensor.shape == weight.shape:
                yield tensor


class Magnitude(_Schedule):
    """Gradual magnitude pruning (Zhu & Gupta 2017): drops the blocks of smallest magnitude.

    The number of blocks of each layer falls from the present number to the number for `density` at step `until`, along
    a cubic: fast at first.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        density: float,
        until: int,
        every: int = 100,
        process_group: ProcessGroup | None = None,
    ) -> None:
        until = whole_number("until", until, 1)
        super().__init__(model, optimizer, every=every, until=until, process_group=process_group)
        self.first = [layer.blocks for layer in self.layers]
        self.last = [_blocks.count_for(density, math.prod(layer._grid())) for layer in self.layers]
        for layer, first, last in zip(self.layers, self.first, self.last, strict=True):
            if last > first:
                raise ValueError(f"a layer of density {layer.density:.4g} cannot be pruned to {density}")

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "first": list(self.first)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        first = list(state["first"]) if isinstance(state, Mapping) and "first" in state else []
        if len(first) != len(self.layers) or not all(isinstance(blocks, int) and blocks >= 0 for blocks in first):
            raise ValueError(
                f"the state has no number of blocks for each of the {len(self.layers)} dynamic layers: it is "
                "not the state of a Magnitude for this model"
            )
        super().load_state_dict(state)
        self.first = first

    def _is_due(self, step: int) -> bool:
        return super()._is_due(step) or step == self.until

    def _choose(self, number: int, layer: SparseLinear) -> Tensor:
        assert self.until is not None
        left = (1 - min(1.0, self.steps / self.until)) ** 3
        count = self.last[number] + round(left * (self.first[number] - self.last[number]))
        return _kept(layer, max(0, layer.blocks - count))


class _DropGrow(_Schedule):
    """Drops a fraction of the blocks of each layer, the blocks of smallest magnitude, and grows as many blocks
    elsewhere.

    The fraction falls to 0 at step `until`, along half a cosine.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        fraction: float = 0.3,
        every: int = 100,
        until: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(model, optimizer, every=every, until=until, process_group=process_group)
        fraction = checked_number("fraction", fraction)
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction is {fraction}; it must be above 0 and at most 1")
        self.fraction = fraction
        self._ask_for_gradients()

    def _ask_for_gradients(self) -> None:
        """Let the next backward pass compute the gradients that `_grown` needs."""

    def _choose(self, number: int, layer: SparseLinear) -> Tensor:
        fraction = self.fraction
        if self.until is not None:
            fraction *= (1 + math.cos(math.pi * self.steps / self.until)) / 2
        count = int(fraction * layer.blocks)
        kept = _kept(layer, count)
        return _merged(kept, self._grown(number, layer, kept, count))

    def _grown(self, number: int, layer: SparseLinear, kept: Tensor, count: int) -> Tensor:
        """`count` positions without those kept, ascending."""
        raise NotImplementedError


class SET(_DropGrow):
    """Grows blocks at random (Sparse Evolutionary Training; Mocanu et al., Nature Communications 9, 2018).

    The choice is a function of the pattern, the step and `seed`.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        seed: int = 0,
        fraction: float = 0.3,
        every: int = 100,
        until: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(
            model, optimizer, fraction=fraction, every=every, until=until, process_group=process_group
        )
        self.seed = seed

    def _grown(self, number: int, layer: SparseLinear, kept: Tensor, count: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        # One stream for each step and layer, so that a resumed run continues as it would have.
        stream = torch.randint(2**62, (self.steps * len(self.layers) + number + 1,), generator=generator)[-1]
        return _random_others(kept, math.prod(layer._grid()), count, generator.manual_seed(int(stream)))


class RigL(_DropGrow):
    """Grows blocks where the gradient of the dense matrix is largest (Evci et al., ICML 2020).

    In the step before patterns change, the backward pass also computes this gradient, exactly, from all batches of the
    step, and ranks add up their gradients. This takes as long as the weight gradient of a dense layer, once every
    `every` steps.
    """

    def step(self) -> bool:
        changed = super().step()
        self._ask_for_gradients()
        return changed

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._ask_for_gradients()

    def _ask_for_gradients(self) -> None:
        for layer in self.layers:
            layer._prepared().collect_dense_gradient(self._is_due(self.steps + 1))

    def _grown(self, number: int, layer: SparseLinear, kept: Tensor, count: int) -> Tensor:
        gradient = layer._prepared().dense_gradient
        if gradient is None:
            raise RuntimeError(
                "there is no gradient to grow by: call step() once after each backward() and optimizer.step(), with "
                "every layer taking part"
            )
        magnitudes = _distributed.sum_over(gradient, self.process_group).abs_()
        if layer.block_size > 1:
            magnitudes = _blocks.blocks_of(magnitudes, layer.block_size).sum((2, 3))
        scores = magnitudes.reshape(-1)
        scores[kept] = -1
        return _blocks.largest(scores, min(count, scores.numel() - kept.numel()))


def _kept(layer: SparseLinear, dropped: int) -> Tensor:
    """The positions of a layer's blocks without the `dropped` blocks of smallest magnitude."""
    values = layer.unpack(layer.weight).abs_().reshape(layer.blocks, -1)
    weakest = torch.topk(values.sum(1), dropped, largest=False, sorted=False).indices
    stays = torch.ones(layer.blocks, dtype=torch.bool)
    stays[weakest] = False
    return layer._positions()[stays]


def _merged(first: Tensor, second: Tensor) -> Tensor:
    """Two ascending tensors without common elements as one."""
    at = torch.searchsorted(first, second) + torch.arange(second.numel())
    merged = torch.empty(first.numel() + second.numel(), dtype=first.dtype)
    is_first = torch.ones(merged.numel(), dtype=torch.bool)
    is_first[at] = False
    merged[at] = second
    merged[is_first] = first
    return merged


def _random_others(taken: Tensor, total: int, count: int, generator: torch.Generator) -> Tensor:
    """`count` positions below `total` that are not taken, or all if there are fewer, uniformly; ascending."""
    empty = total - taken.numel()
    if 2 * count >= empty:
        is_empty = torch.ones(total, dtype=torch.bool)
        is_empty[taken] = False
        others = is_empty.nonzero().reshape(-1)
        return others[_blocks.random_positions(min(count, empty), empty, generator)]
    chosen = torch.empty(0, dtype=torch.int64)
    while chosen.numel() < count:  # positions that are taken or drawn twice are drawn again
        drawn = torch.randint(total, (count - chosen.numel(),), generator=generator)
        at = torch.searchsorted(taken, drawn).clamp_(max=max(0, taken.numel() - 1))
        fresh = drawn[taken[at] != drawn] if taken.numel() else drawn
        chosen = torch.cat((chosen, fresh)).unique()
    return chosen
