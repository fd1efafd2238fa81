"""Spiking neural networks for PyTorch, over whole sequences [T, batch, features]."""

from tessera.snn import functional, surrogate
from tessera.snn._neurons import Leaky, Readout, RLeaky, RSynaptic, Synaptic

__all__ = [
    "Leaky",
    "RLeaky",
    "RSynaptic",
    "Readout",
    "Synaptic",
    "functional",
    "surrogate",
]
