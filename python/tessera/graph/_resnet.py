"""Residual networks for images, with torchvision's parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tessera import _tessera
from tessera._matrices import Matrix, values_in
from tessera._tessera import ResnetConfig
from tessera.graph._graph import Graph
from tessera.graph._session import Session
from tessera.graph._training import Numbers
from tessera.graph._values import Value

Shortcut: TypeAlias = Literal["projection", "padding"]


@dataclass(frozen=True)
class Resnet:
    """The values of a network; parameters of its graph, including running statistics, have torchvision's names."""

    graph: Graph
    #: The input images [samples, height, width, channels].
    images: Value
    #: Means over the pixels of the last stage [samples, channels], and the graph's output [samples, classes].
    features: Value
    logits: Value
    #: The shape that PyTorch gives the weight of each convolution, by name.
    kernels: Mapping[str, tuple[int, ...]]

    def parameters_of(self, state: Mapping[str, Any], session: Session | None = None) -> dict[str, NDArray[np.float32]]:
        """Convert torchvision's state dict to a session's arrays: `session.load_parameters(net.parameters_of(…))`.

        The state dict may have PyTorch's tensors. Sparse convolutions get only the values of their pattern: the graph's
        pattern, or where patterns have changed, the present pattern in `session`. PyTorch's counts of batches are left
        out.
        """
        missing = [name for name in self._names() if name not in state]
        if missing:
            raise ValueError(f"the state dict lacks {missing[0]!r}")
        return {name: self._own(name, np.asarray(state[name], np.float32), session) for name in self._names()}

    def state_dict(self, session: Session) -> dict[str, NDArray[np.float32]]:
        """Return a session's parameters with PyTorch's shapes.

        `module.load_state_dict({name: torch.from_numpy(array) for name, array in net.state_dict(session).items()})`
        """
        state = {}
        for name in self._names():
            is_sparse = self.graph.native.block_size(self.graph.native.find(name)) > 0
            array = session.matrix(name).to_dense() if is_sparse else session.get(name)
            if name in self.kernels:
                outputs, channels, height, width = self.kernels[name]
                array = np.moveaxis(array.reshape(outputs, height, width, channels), -1, 1)
            state[name] = np.ascontiguousarray(array)
        return state

    def _names(self) -> list[str]:
        return [parameter.name for parameter in self.graph.parameters]

    def _own(self, name: str, array: NDArray[np.float32], session: Session | None) -> NDArray[np.float32]:
        if name not in self.kernels:
            return array
        if array.shape != self.kernels[name]:
            raise ValueError(f"{name} has shape {array.shape}; it must be {self.kernels[name]}")
        weight = np.ascontiguousarray(np.moveaxis(array, 1, -1).reshape(len(array), -1))
        native = self.graph.native
        id = native.find(name)
        pattern = native.pattern(id)
        if pattern is None:
            return weight
        return values_in(pattern if session is None else session.pattern(name), native.block_size(id), weight)


def resnet(
    config: int | ResnetConfig = 50,
    *,
    samples: int,
    size: int | tuple[int, int] | None = None,
    channels: int = 3,
    classes: int | None = None,
    shortcut: Shortcut | None = None,
    pixels: tuple[Sequence[float], Sequence[float]] | None = None,
    training: bool = False,
    numbers: Numbers = "fp32",
    patterns: Mapping[str, Any] | None = None,
    dynamic: bool = False,
    replicas: int = 1,
    norm_replicas: int | None = 1,
    block_calls: bool = False,
    recompute: bool = False,
) -> Resnet:
    """A graph of a residual network, whose input is `images` [samples, height, width, channels].

    `config` is a depth or a ResnetConfig. Depths 18, 34, 50, 101 and 152 give torchvision's networks, for images of 224
    × 224. Other depths 6n + 2, such as 20, give the networks of He et al. 2015 for images of 32 × 32, which have
    shortcuts without parameters ("padding", their option A) unless `shortcut` is "projection" (option B). With
    `pixels`, means and deviations of the channels, images are 8-bit pixels ("u8"), and the graph normalises them:
    (pixel − mean) / deviation.

    With `training`, batches are normalised by their own statistics, with which the running statistics are updated.
    `numbers` sets the types of parameters and products, as for `Graph.training_step`; logits are FP32. `patterns` makes
    convolutions sparse: it maps the names of their weights to matrices [outputs, taps · channels] with the pattern;
    patterns may change in sessions if `dynamic`.

    `replicas` is the number of replicas in the training step; running statistics are updated with the mean over all of
    them. The batches of each group of `norm_replicas` consecutive replicas (None: of all replicas) are normalised as
    one. With `block_calls`, blocks are calls, and equal blocks are one function, so that
    `training_step(recompute="fit")` can choose which ones keep only their inputs for backward passes, which compute the
    other values again. With `recompute`, all of them do.
    """
    if isinstance(config, int):
        config = ResnetConfig.of_depth(_tessera.whole_number("depth", config))
    else:
        config = ResnetConfig(config)  # a copy
    if classes is not None:
        config.classes = _tessera.whole_number("classes", classes, 1)
    if shortcut is not None:
        config.shortcut = shortcut
    if size is None:
        size = 32 if config.is_for_small_images else 224
    height, width = (size, size) if isinstance(size, int) else size
    graph = Graph()
    images = graph.input("images", (samples, height, width, channels), "f32" if pixels is None else "u8")
    id = images.id
    if pixels is not None:
        mean, deviation = ([float(each) for each in numbers_of] for numbers_of in pixels)
        id = graph.native.normalised_pixels(id, mean, deviation)
    sparse = {name: Matrix.of(matrix) for name, matrix in (patterns or {}).items()}
    replicas = _tessera.whole_number("replicas", replicas, 1)
    norms = 0 if norm_replicas is None else _tessera.whole_number("norm_replicas", norm_replicas, 1)
    features, logits, kernels = graph.native.resnet(
        id, config, training, numbers, sparse, dynamic, replicas, norms, block_calls, recompute
    )
    output = Value(graph, logits)
    graph.output("logits", output)
    shapes = {name: tuple(shape) for name, shape in kernels.items()}
    return Resnet(graph, images, Value(graph, features), output, shapes)
