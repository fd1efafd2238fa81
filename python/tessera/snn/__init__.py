"""Spiking neural networks for PyTorch, over whole sequences [T, batch, features]."""

from tessera.snn import functional, surrogate
from tessera.snn._events import SpikeEvents
from tessera.snn._network import Network, SpikeCounts
from tessera.snn._neurons import Leaky, Readout, RLeaky, RSynaptic, Synaptic
from tessera.snn._nir import from_nir, to_nir
from tessera.snn._recordings import Recordings, RecordingSplit, load_recordings

__all__ = [
    "Leaky",
    "Network",
    "RLeaky",
    "RSynaptic",
    "Readout",
    "RecordingSplit",
    "Recordings",
    "SpikeCounts",
    "SpikeEvents",
    "Synaptic",
    "from_nir",
    "functional",
    "load_recordings",
    "surrogate",
    "to_nir",
]
