"""Spikes of whole sequences as lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_MOST_FEATURES = 1 << 16


class SpikeEvents:
    """The neurons, of `features`, that fire in each step of each sample: the input of a `Network`.

    `ids` (int16, whose bits stand for an unsigned number) is [T, batch, capacity], sorted; entries beyond the end of
    a list are unspecified. `num` (int32) is [T, batch, 2], with the length of the list twice. `events[:, samples]`
    selects samples, so that a whole data set may be converted once.
    """

    __slots__ = ("features", "ids", "num")

    def __init__(self, ids: Tensor, num: Tensor, features: int) -> None:
        if ids.dtype is not torch.int16 or num.dtype is not torch.int32:
            raise TypeError(f"ids are {ids.dtype} and num {num.dtype}; they must be int16 and int32")
        if ids.dim() != 3 or num.shape != (*ids.shape[:2], 2):
            raise ValueError(
                f"ids have shape {tuple(ids.shape)} and num {tuple(num.shape)}; they are [T, batch, capacity] and "
                "[T, batch, 2]"
            )
        if not 0 < ids.shape[2] <= features <= _MOST_FEATURES:
            raise ValueError(
                f"lists with room for {ids.shape[2]} of {features} features; there must be room, for at most all of "
                f"them, and at most {_MOST_FEATURES} features"
            )
        self.ids, self.num, self.features = ids, num, features

    @classmethod
    def from_dense(cls, spikes: Tensor, capacity: int | None = None) -> SpikeEvents:
        """Convert a tensor [T, batch, features] of zeros and ones. `capacity` is the lists' capacity, if it is to be
        larger than needed.
        """
        if not isinstance(spikes, Tensor):
            raise TypeError(f"spikes are of type {type(spikes).__name__}; pass a tensor [T, batch, features]")
        if spikes.dim() != 3:
            raise ValueError(f"spikes have shape {tuple(spikes.shape)}; it must be [T, batch, features]")
        fired = spikes != 0
        if spikes.dtype is not torch.bool and not bool((spikes == fired.to(spikes.dtype)).all()):
            raise ValueError("spikes must be 0 or 1; pass other numbers through a linear layer, as currents")
        steps, batch, features = spikes.shape
        step, sample, feature = fired.nonzero(as_tuple=True)
        return cls._of(step * batch + sample, feature, steps, batch, features, capacity)

    @classmethod
    def from_events(
        cls,
        samples: Any,
        steps: int,
        sensor_size: Sequence[int],
        dt: float | None = None,
        capacity: int | None = None,
    ) -> SpikeEvents:
        """Convert events with fields `t` and `x`, and possibly `y` and `p`, as tonic has them: an array, or several.

        `sensor_size` is (width, height, polarities). The features of an event are numbered as frames [polarity, height,
        width] of tonic are when they are flattened. A step takes `dt`, in the unit of `t`, from each sample's first
        event on, and events after the last step are left out; without `dt`, the steps divide the time from a sample's
        first to its last event. Several events of a feature in one step are one spike.
        """
        arrays = [samples] if isinstance(samples, np.ndarray) else list(samples)
        if len(sensor_size) != 3 or any(int(size) < 1 for size in sensor_size):
            raise ValueError(
                f"a sensor_size of {tuple(sensor_size)}; it is (width, height, polarities), each at least 1"
            )
        if steps < 1 or (dt is not None and not dt > 0):
            raise ValueError(f"{steps} steps of {dt}; there must be at least one, and its duration above 0")
        width, height, polarities = (int(size) for size in sensor_size)
        features = width * height * polarities
        rows, found = [], []
        for sample, events in enumerate(arrays):
            step, feature = _binned(events, sample, steps, (width, height, polarities), dt)
            unique = np.unique(step * features + feature)
            rows.append(unique // features * len(arrays) + sample)
            found.append(unique % features)
        row, feature = np.concatenate([*rows, []]).astype(np.int64), np.concatenate([*found, []]).astype(np.int64)
        order = np.lexsort((feature, row))
        return cls._of(
            torch.from_numpy(row[order]), torch.from_numpy(feature[order]), steps, len(arrays), features, capacity
        )

    @classmethod
    def _of(
        cls, row: Tensor, feature: Tensor, steps: int, batch: int, features: int, capacity: int | None
    ) -> SpikeEvents:
        """Events of sorted pairs of a row (step and sample) and a feature."""
        count = torch.bincount(row, minlength=steps * batch)
        needed = max(1, int(count.max()) if count.numel() else 1)
        if capacity is not None and capacity < needed:
            raise ValueError(f"a capacity of {capacity}; a step has {needed} spikes")
        room = needed if capacity is None else capacity
        begin = count.cumsum(0) - count
        ids = torch.zeros(steps * batch, room, dtype=torch.int16)
        ids[row, torch.arange(row.numel()) - begin[row]] = feature.to(torch.int16)
        num = count.to(torch.int32).reshape(steps, batch, 1).repeat(1, 1, 2)
        return cls(ids.reshape(steps, batch, room), num, features)

    @property
    def shape(self) -> tuple[int, int, int]:
        """T, batch, features."""
        steps, batch, _ = self.ids.shape
        return steps, batch, self.features

    @property
    def capacity(self) -> int:
        return self.ids.shape[2]

    def __len__(self) -> int:
        return self.ids.shape[0]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The inputs "in.ids" and "in.num" of a network's graph."""
        steps = len(self)
        return {
            "in.ids": self.ids.reshape(steps, -1).numpy().view(np.uint16),
            "in.num": self.num.reshape(steps, -1).numpy().view(np.uint32),
        }

    def count(self) -> int:
        """Number of all spikes."""
        return int(self.num[..., 0].sum())

    def activity(self) -> float:
        """The fraction of features that fire in a step."""
        steps, batch, features = self.shape
        return self.count() / max(1, steps * batch * features)

    def to_dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """A tensor [T, batch, features] of zeros and ones."""
        listed = torch.arange(self.capacity) < self.num[..., :1]
        ids = (self.ids.to(torch.int64) & (_MOST_FEATURES - 1)).masked_fill(~listed, 0)
        dense = torch.zeros(self.shape, dtype=dtype)
        return dense.scatter_add_(2, ids, listed.to(dtype))

    def __getitem__(self, index: Any) -> SpikeEvents:
        if not isinstance(index, tuple) or len(index) != 2 or isinstance(index[0], int) or isinstance(index[1], int):
            raise TypeError("index events by steps and samples, each by a slice or several numbers: events[:, samples]")
        return SpikeEvents(self.ids[index], self.num[index], self.features)

    def __repr__(self) -> str:
        return f"SpikeEvents(shape={self.shape}, capacity={self.capacity}, activity={self.activity():.4f})"


def _binned(
    events: Any, sample: int, steps: int, sizes: tuple[int, int, int], dt: float | None
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The step and the feature of each event."""
    names = getattr(getattr(events, "dtype", None), "names", None)
    if names is None or "t" not in names or "x" not in names:
        raise TypeError(f"sample {sample} is not a structured array with fields t and x (and y, p), but {type(events)}")
    feature = np.zeros(len(events), np.int64)
    for name, size in (("p", sizes[2]), ("y", sizes[1]), ("x", sizes[0])):
        place = np.asarray(events[name]).astype(np.int64) if name in names else np.zeros(len(events), np.int64)
        if len(place) and not (0 <= place.min() and place.max() < size):
            raise ValueError(
                f"sample {sample} has events with {name} from {place.min()} to {place.max()}; the sensor has 0 to "
                f"{size - 1}"
            )
        feature = feature * size + place
    if not len(events):
        return feature, feature
    given = np.asarray(events["t"])
    time = given.astype(np.float64)
    time -= time.min()
    if dt is None:
        step = _stretched(time, steps, given.dtype.kind in "iu")
    else:
        step = np.floor(time / dt).astype(np.int64)
    kept = step < steps
    return step[kept], feature[kept]


def _stretched(time: np.ndarray[Any, Any], steps: int, is_whole: bool) -> np.ndarray[Any, Any]:
    """Steps that end with the last event.

    Integer times are counted with the last unit of time included; fractional times, such as seconds, end exactly at the
    last event.
    """
    length = time.max() + is_whole
    if not length > 0:
        return np.zeros(len(time), np.int64)
    step: np.ndarray[Any, Any] = np.minimum(np.floor(time / length * steps), steps - 1).astype(np.int64)
    return step
