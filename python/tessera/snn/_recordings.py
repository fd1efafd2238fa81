"""Labelled recordings: data sets for spiking networks in their official formats, and synthetic data sets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tessera import _tessera
from tessera.snn._events import SpikeEvents


class Recordings:
    """Recordings of one length with the class of each in `labels`: spikes of `units`, or currents.

    `recordings.batch(samples)` returns some of them as the input of a network: `SpikeEvents`, or currents [T, batch,
    units].
    """

    def __init__(self, native: _tessera.Recordings) -> None:
        self._native = native
        self.steps, self.units, self.classes = native.steps, native.units, native.classes
        self.are_currents = native.are_currents
        self.labels = torch.from_numpy(np.asarray(native.labels).astype(np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, samples: Any = None) -> SpikeEvents | Tensor:
        """The recordings with these numbers, or all recordings."""
        which = np.arange(len(self)) if samples is None else np.asarray(samples, np.int64).reshape(-1)
        found: Any = self._native.batch(which)
        if self.are_currents:
            return torch.from_numpy(found)
        ids, num = found
        return SpikeEvents(torch.from_numpy(ids), torch.from_numpy(num), self.units)

    def __repr__(self) -> str:
        kind = "currents" if self.are_currents else "spikes"
        return f"Recordings({len(self)} of {kind}, {self.steps} steps, {self.units} units, {self.classes} classes)"


@dataclass(frozen=True)
class RecordingSplit:
    """Recordings for training and testing, and the number of events that were left out."""

    name: str
    train: Recordings
    test: Recordings
    merged: int  #: because their unit had fired in their step
    outside: int  #: because they lie outside the window of time, or the part of the sensor


def load_recordings(
    name: str,
    folder: str | os.PathLike[str] = "",
    *,
    steps: int = 0,
    seconds: float = 0.0,
    crop: int = 0,
    downscale: int = 0,
    delta: float = 0.02,
    test: float = 0.2,
    seed: int = 0,
) -> RecordingSplit:
    """Read a data set under its official file names, in `folder` or its usual subfolder.

    "shd" and "ssc" (HDF5), "n-mnist", "dvs-gesture" (AEDAT 3.1), "events" (.npy), "mnist-latency", "braille" (currents)
    and "braille-delta" (an event for each change by `delta`), or "randman", which needs no files. `steps` divide a
    window of `seconds`. `crop` is the side of the central square of a sensor that is kept, `downscale` the side of the
    squares of pixels that are merged into one. Settings that are 0 take the data set's defaults. `test` is the fraction
    held out for testing, if a data set has no test set. Raises RuntimeError, naming the file, for missing and malformed
    files.
    """
    name, train, testing, merged, outside = _tessera.load_recordings(
        name, os.fspath(folder), steps, seconds, crop, downscale, delta, test, seed
    )
    return RecordingSplit(name, Recordings(train), Recordings(testing), merged, outside)
