"""Sessions: graphs lowered for a machine, with their parameters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tessera import _tessera
from tessera._locks import Lock
from tessera._matrices import Matrix
from tessera._tessera import Machine
from tessera.graph._estimate import Estimate
from tessera.graph._training import Schedule

if TYPE_CHECKING:
    from torch import nn


class Session:
    """A graph as one program for a machine, with its parameters and, for a training step, the optimizer's state.

    Calls may come from several threads, and take turns. A sparse parameter's array holds its blocks one after another
    in the order of its pattern, [blocks, b, b], or [values] without blocks.
    """

    def __init__(
        self,
        graph: _tessera.Graph,
        native: _tessera.Session,
        machine: Machine,
        kept: tuple[str, ...],
        truths: set[str],
        title: str,
        owner: Session | None = None,
    ) -> None:
        graph.drop_initial_values()  # the session has the parameters
        self._graph = graph
        self._native = native
        self._title = title.strip("<>")
        if not self._native.fits:
            raise ValueError(f"{machine!r}: {self._native.cost().overflow}")
        self.machine = machine
        #: Learning rate of the following runs, and its schedule over the number of the run.
        self.lr = 0.0
        self.schedule: Schedule | None = None
        #: Number of the next run, from 1; schedules, bias corrections and dropout depend on it.
        self.step = 1
        #: Seconds of the last run; on a tiled machine, as the model predicts.
        self.seconds: float | None = None
        self._kept = kept
        # Sessions that share parameters must not run at the same time.
        self._lock: Lock = owner._lock if owner is not None else Lock()
        self._inputs = self._native.inputs
        self._outputs = self._native.outputs
        self._truths = frozenset(truths)
        self._given = [name for name in self._inputs if name not in kept]

    def run(self, *arrays: ArrayLike, **named: ArrayLike) -> Any:
        """Run once with arrays for the inputs, in their order or by name.

        NumPy arrays and PyTorch's CPU tensors are used in place if they are contiguous and have the input's type; other
        arrays are converted. Returns the output as an array, a scalar output as a number, and several outputs as a
        dict. Boolean outputs of a module are returned as booleans. If a run fails when it has begun to change
        parameters or state, other runs and reads raise RuntimeError until all of these are loaded or set.
        """
        results = self.outputs_of(self._bind(arrays, named))
        outputs = {name: result if result.ndim else result[()] for name, result in results.items()}
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    def outputs_of(self, given: dict[str, Any]) -> dict[str, NDArray[Any]]:
        """Run once with arrays for all inputs by name; returns all outputs as arrays."""
        with self._lock:
            self.seconds, results = self._native.run(self._ordered(given))
            self.step += 1
        named = zip(self._outputs, results, strict=True)
        return {name: result != 0 if name in self._truths else result for name, result in named}

    def measure(self, *arrays: ArrayLike, **named: ArrayLike) -> Estimate:
        """Run once, and return where the time went; the outputs are discarded."""
        given = self._bind(arrays, named)
        with self._lock:
            cost = self._native.measure(self._ordered(given))
            self.step += 1
        return Estimate(cost, self._graph, self.machine, self._title)

    def cost(self) -> Estimate:
        """Return the predicted cost of a run; for a rank, also the bytes that it sends to other ranks."""
        with self._lock:
            cost = self._native.cost()
        return Estimate(cost, self._graph, self.machine, self._title)

    @property
    def sent_bytes(self) -> int:
        """Bytes that this rank has sent to other ranks in all runs so far; 0 without a process group."""
        with self._lock:
            return self._native.sent_bytes

    def _ordered(self, given: dict[str, Any]) -> list[Any]:
        """Arrays for all inputs, in their order; the lock is held."""
        given |= {name: self._provide(name) for name in self._kept}
        return [_as_array(given[name]) for name in self._inputs]

    def _provide(self, name: str) -> NDArray[Any]:
        if name == "lr":
            factor = 1.0 if self.schedule is None else self.schedule.factor(self.step - 1)
            return np.array(self.lr * factor, np.float32)
        shape = self._graph.bound_shape(self._graph.find(name))
        step = _tessera.whole_number("step", self.step)
        if not shape:
            return np.array(step, np.uint32)
        if name == "step":  # the optimizer's count of steps
            return np.full(shape, step, np.uint32)
        last = _tessera.whole_number("the number of the last micro-batch", step * shape[0])
        return np.arange(last - shape[0] + 1, last + 1, dtype=np.int64)

    def _bind(self, arrays: tuple[ArrayLike, ...], named: Mapping[str, ArrayLike]) -> dict[str, Any]:
        if len(arrays) == len(self._given) and not named:
            return dict(zip(self._given, arrays, strict=True))
        expected = ", ".join(self._given) or "none"
        if len(arrays) > len(self._given):
            raise TypeError(f"{len(arrays)} arrays; the inputs are {expected}")
        given: dict[str, Any] = dict(zip(self._given, arrays, strict=False))
        for name, array in named.items():
            if name not in self._given:
                raise TypeError(f"there is no input {name!r}; the inputs are {expected}")
            if name in given:
                raise TypeError(f"the input {name!r} is given twice")
            given[name] = array
        missing = [name for name in self._given if name not in given]
        if missing:
            raise TypeError(f"the input {', '.join(map(repr, missing))} is missing")
        return given

    # Parameters.

    def parameters(self) -> dict[str, NDArray[np.float32]]:
        """Copies of all parameters, by name."""
        return {name: self.get(name) for name in self._native.parameters}

    def state(self) -> dict[str, NDArray[np.float32]]:
        """Copies of the optimizer's state, by name, such as `fc1.weight.velocity`."""
        return {name: self.get(name) for name in self._native.state}

    def get(self, name: str) -> NDArray[np.float32]:
        """Return a copy of a parameter or state."""
        with self._lock:
            values = self._native.get(name)
        return values.reshape(self._shape(name, values.size))

    def load_parameters(self, parameters: Mapping[str, ArrayLike] | str | os.PathLike[str]) -> None:
        """Set all parameters, from arrays by name or from the files of a model.

        The files are a .safetensors file, or a folder in the layout of Hugging Face, with dense arrays of 32 or 16
        bits; arrays in files that are no parameters are ignored. Raises an error, and changes nothing, if a parameter
        is missing or of another shape, if a given array has an unknown name, or if an array for a sparse parameter has
        non-zeros outside its pattern.
        """
        if not isinstance(parameters, Mapping):
            with self._lock:
                self._native.load_parameters(os.fspath(parameters))
            return
        names = self._native.parameters
        missing = [name for name in names if name not in parameters]
        unknown = [name for name in parameters if name not in names]
        if missing or unknown:
            raise ValueError(f"missing parameters: {missing or 'none'}; unknown ones: {unknown or 'none'}")
        arrays = {name: _floats(parameters[name]) for name in names}
        with self._lock:
            for name, array in arrays.items():
                expected = self._shape(name)
                if array.shape != expected and array.shape != (int(np.prod(expected)),):
                    raise ValueError(f"{name} has shape {array.shape}; it must be {expected}")
            for name, array in arrays.items():
                self._native.set(name, array.reshape(-1))

    def pattern(self, name: str) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        """Return `crow_indices` and `col_indices` of a sparse parameter's CSR or BSR pattern."""
        return self._native.pattern(name)

    def set_pattern(self, name: str, crow_indices: ArrayLike, col_indices: ArrayLike) -> None:
        """Change the pattern of a dynamic parameter.

        Blocks in both patterns keep their values and the optimizer's state; new blocks are 0. Blocks of a convolution
        in groups must stay within the groups.
        """
        pointers, columns = np.ascontiguousarray(crow_indices), np.ascontiguousarray(col_indices)
        with self._lock:
            self._native.set_pattern(name, pointers, columns)

    def matrix(self, name: str) -> Matrix:
        """Return a copy of a sparse parameter."""
        rows, cols = self._graph.shape(self._graph.find(name))
        with self._lock:
            crow_indices, col_indices = self.pattern(name)
            values = self._native.get(name)
        return Matrix((rows, cols), self._block_size(name), crow_indices, col_indices, values)

    def copy_from(self, source: Session | nn.Module) -> None:
        """Take all parameters, and changed patterns, from another session or from a PyTorch module.

        Nothing changes if a parameter is missing or does not fit.
        """
        if isinstance(source, Session):
            values, patterns = source._given_to(self)
        else:
            from tessera.graph import _modules

            values, patterns = _modules.read(self, source)
        with self._lock:
            changed = {name: each for name, each in patterns.items() if not self._has_pattern(name, *each)}
            self._native.set_state(values, changed)

    def copy_to(self, module: nn.Module) -> None:
        """Write the parameters, and changed patterns, to the parameters of a PyTorch module with the same names."""
        from tessera.graph import _modules

        _modules.write(self, module)

    def _given_to(self, other: Session) -> tuple[dict[str, Any], dict[str, Any]]:
        """Values and patterns of the parameters of another session."""
        names = other._native.parameters
        for name in names:
            if name not in self._native.parameters:
                raise ValueError(f"the other session has no parameter {name!r}")
        with self._lock:
            patterns = {name: self.pattern(name) for name in names if other._block_size(name)}
            return {name: self._native.get(name) for name in names}, patterns

    def _has_pattern(self, name: str, crow_indices: NDArray[Any], col_indices: NDArray[Any]) -> bool:
        own = self.pattern(name)
        return np.array_equal(own[0], crow_indices) and np.array_equal(own[1], col_indices)

    def _block_size(self, name: str) -> int:
        """0 for a dense value."""
        return self._graph.block_size(self._graph.find(name))

    def _shape(self, name: str, size: int | None = None) -> tuple[int, ...]:
        id = self._graph.find(name)
        b = self._graph.block_size(id)
        if b == 0:
            return tuple(self._graph.shape(id))
        count = len(self.pattern(name)[1]) * b * b if size is None else size
        return (count,) if b == 1 else (count // (b * b), b, b)

    # Files.

    def save_parameters(self, path: str | os.PathLike[str]) -> None:
        """Save only the parameters, dense, in a .safetensors file that other libraries can read."""
        with self._lock:
            self._native.save_parameters(os.fspath(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save parameters and state in a .safetensors file, under their names and with their shapes."""
        with self._lock:
            self._native.save(os.fspath(path))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Load a file that `save` wrote; nothing changes if an array is missing, or has another shape or type."""
        with self._lock:
            self._native.load(os.fspath(path))

    def save_executable(self, path: str | os.PathLike[str]) -> None:
        """Save the compiled program, without parameters and state.

        `session(executable=path)` of an equal graph, in any process, then neither searches for a placement nor
        compiles.
        """
        with self._lock:
            self._native.save_executable(os.fspath(path))

    def program(self) -> str:
        """Return the tile program in readable form."""
        return self._native.program()

    def __repr__(self) -> str:
        return f"<Session on {self.machine.name}: ({', '.join(self._given)}) -> ({', '.join(self._outputs)})>"


def _as_array(array: Any) -> Any:
    """An array that the extension takes: arrays of libraries with DLPack as they are, booleans as 0 and 1."""
    if type(array) is np.ndarray:
        return array.astype(np.float32) if array.dtype == np.bool_ else array
    if str(getattr(array, "dtype", "")).rpartition(".")[2] == "bool":
        return np.asarray(array, np.float32)
    if hasattr(array, "is_neg") and (array.is_neg() or array.is_conj()):
        array = array.resolve_conj().resolve_neg()  # DLPack has only the memory
    return array if hasattr(array, "__dlpack__") else np.asarray(array)


def _floats(array: Any) -> NDArray[np.float32]:
    if hasattr(array, "detach"):
        array = array.detach().cpu()
        array = array if array.is_complex() else array.float()
    if np.iscomplexobj(array):
        raise TypeError("parameters are real numbers, not complex ones")
    return np.ascontiguousarray(array, np.float32).reshape(np.shape(array))
