"""Graphs of operations, and training steps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tessera import _tessera
from tessera._config import checked_threads
from tessera._matrices import Matrix
from tessera._tessera import Initial, Machine
from tessera.graph._estimate import Estimate, machine_for
from tessera.graph._pipeline import PipelineKind
from tessera.graph._ranks import communicator_of
from tessera.graph._session import Session
from tessera.graph._training import (
    Numbers,
    Optimizer,
    ParameterGroup,
    Roundings,
    Schedule,
    StoreRounding,
    native_groups,
    native_optimizer,
    native_roundings,
)
from tessera.graph._values import (
    INTEGERS,
    MOST_EXACT,
    Rounding,
    Truth,
    Value,
    cross_entropy,
    input_type,
    is_stochastic,
    mean_squared_error,
    require_integers,
    value_type,
)

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

#: The number of a run, or of each of its micro-batches, on which masks of dropout depend.
_DRAW = "dropout_step"
#: Numbers of a step, as the library takes them: types of sums and state, how stores round, seed, scale.
_TrainingNumbers: TypeAlias = tuple[str | None, str, str, Roundings, int, tuple[float, int] | None]
#: Of a loss, where it may change.
_FIRST_SCALE = 65536.0
#: The label of rows that do not count, as PyTorch's.
_IGNORED = -100


class Graph:
    """Operations on values of fixed shapes, in the order in which they run.

    Shapes have at most five dimensions, of which the last are features. Operations are functions of `tessera.graph`;
    `str(graph)` lists them.
    """

    #: Inputs that a session provides by itself.
    _kept: tuple[str, ...] = (_DRAW,)

    def __init__(self) -> None:
        self.native = _tessera.Graph()
        self._frozen: set[str] = set()
        #: Outputs that sessions return as truth values.
        self._truths: set[str] = set()

    @staticmethod
    def _of(native: _tessera.Graph) -> Graph:
        graph = Graph()
        graph.native = native
        return graph

    # Values.

    def input(self, name: str, shape: Sequence[int], dtype: DTypeLike | str = "f32") -> Value:
        """Add an array that each run is given: numbers, or pixels of 8 bits ("u8"), which `cast` makes numbers."""
        return Value(self, self.native.input(name, _sizes(shape), input_type(dtype)))

    def parameter(
        self,
        name: str,
        shape: Sequence[int] | None = None,
        initial: Initial | float | ArrayLike = 0.0,
        dtype: DTypeLike | str = "f32",
    ) -> Value:
        """Add an array that stays between runs, and that training changes.

        `initial` is a number, `uniform(bound)`, `normal(deviation)`, or an array, whose shape may be left out.
        """
        contents, of_array = _initial(name, initial, value_type(dtype))
        if shape is None:
            if of_array is None:
                raise ValueError(f"{name}: give a shape, or an array of initial values")
            shape = of_array
        elif of_array is not None and tuple(shape) != of_array:
            raise ValueError(f"{name}: initial values of shape {of_array} for a parameter of shape {tuple(shape)}")
        return Value(self, self.native.parameter(name, _sizes(shape), contents, value_type(dtype)))

    def sparse_parameter(
        self,
        name: str,
        matrix: Any,
        block_size: int | None = None,
        *,
        initial: Initial | float | ArrayLike | None = None,
        dynamic: bool | int = False,
        dtype: DTypeLike | str = "f32",
    ) -> Value:
        """Add a sparse matrix, for `linear` and `embedding`: of its blocks only those of a pattern are stored.

        `matrix` is what `tessera.Weight` takes, or one: its values are the initial ones, or those of `initial`.
        `dynamic` lets sessions change the pattern, with room for that number of blocks, or for those of `matrix`.
        """
        taken = Matrix.of(matrix.matrix() if isinstance(matrix, _tessera.Weight) else matrix, block_size)
        contents, _ = _initial(name, taken.values if initial is None else initial)
        capacity = None if dynamic is False else len(taken.col_indices) if dynamic is True else dynamic
        id = self.native.sparse_parameter(name, taken, contents, value_type(dtype), capacity)
        return Value(self, id)

    def constant(self, values: ArrayLike, *, name: str = "", dtype: DTypeLike | str = "f32") -> Value:
        """Add an array that never changes."""
        given, kind = np.asarray(values), value_type(dtype)
        if kind in INTEGERS:
            require_integers(given, kind)
            if (np.abs(given.astype(np.float64)) > MOST_EXACT).any():
                high, low = (np.asarray(half) for half in np.divmod(given.astype(np.int64), 2**16))
                whole = self.constant(high, dtype=kind) * 2**16 + self.constant(low, dtype=kind)
                if name:
                    whole.name = name
                return whole
        array = np.ascontiguousarray(given, np.float32)
        return Value(self, self.native.constant(name, list(given.shape), array.reshape(-1), kind))

    def add_state(self, name: str, initial: ArrayLike, dtype: DTypeLike | str = "f32") -> Value:
        """Add an array that stays between runs, as parameters do, but that only `assign` changes."""
        contents, shape = _initial(name, np.asarray(initial), value_type(dtype))
        return Value(self, self.native.state(name, _sizes(shape or ()), contents, value_type(dtype)))

    def assign(self, state: Value, value: Value) -> None:
        """Have each run leave a value in an array of state."""
        self.native.assign(self._own(state).id, self._own(value).id)

    def step(self) -> Value:
        """The number of the run, from 1, for dropout: an input that sessions count."""
        for value in self.inputs:
            if value.name == _DRAW:
                return value
        return self.input(_DRAW, (), "u32")

    def output(self, name: str, value: Value) -> None:
        """Return a value from each run, under a name."""
        if any(name == given.name for given in self.inputs):
            raise ValueError(f"an output cannot be called {name!r}, as an input is")
        self.native.output(name, self._own(value).id)
        if isinstance(value, Truth):
            self._truths.add(name)

    def call(
        self,
        function: Graph,
        *inputs: Value,
        number: int | None = None,
        stage: int | None = None,
        recompute: bool = False,
    ) -> dict[str, Value]:
        """Apply a function: a graph without parameters, whose inputs are replaced by these values in their order.

        Returns its outputs. All calls of one graph share its code, so a repeated block is one function that is called
        with other parameters. What is added to the function afterwards does not matter to them. Where the function
        drops out, it is passed this graph's `step()` if that is left out; calls with the same number drop the same,
        those without one differ. A call with a stage runs on chips of its own, among which those of a machine are
        divided equally; other operations run where their weights and inputs are. With `recompute`, its gradient keeps
        only its inputs, and computes again what else it needs, which takes less memory and more time.
        """
        given = self._passed(function, inputs)
        numbers = _optional("number", number), _optional("stage", stage)
        ids = self.native.call(function.native, given, *numbers, bool(recompute))
        return {name: Value(self, id) for name, id in zip(sorted(function.outputs), ids, strict=True)}

    def place_stages(self, places: Sequence[int]) -> None:
        """Let stage s run on part `places[s]` of a machine's chips, which are divided equally into as many parts.

        Several stages may share a part: the embedding and the head of a language model, which share a table, as in
        `graph.place_stages([0, 1, 2, 3, 0])`. Without places, each stage has chips of its own.
        """
        self.native.place_stages([_tessera.whole_number("place", place) for place in places])

    def set_partial_sums(self, dtype: DTypeLike | str, rounding: Rounding = "nearest", seed: int = 0) -> None:
        """Let tiles of modelled machines send each other the parts of FP16 products' sums as "f16" or "f32".

        Otherwise they have the products' type. Those of FP32 products are FP32, and hosts sum in FP32, anyway. FP16
        ones are rounded to the nearest number or, with "stochastic", so that the expected part is what was computed,
        with random numbers of `seed` and of the sums themselves: equal sums are rounded alike.
        """
        stochastic = is_stochastic("set_partial_sums", rounding)
        self.native.set_partial_sums(value_type(dtype), stochastic, _tessera.whole_number("seed", seed))

    def loop(
        self,
        body: Graph,
        *inputs: Value,
        count: int,
        indexed: Iterable[str] = (),
        carried: Mapping[str, str] | None = None,
        stacked: Iterable[str] = (),
        summed: Iterable[str] = (),
        scale: float = 1.0,
        reversed: bool = False,
        stage: int | None = None,
    ) -> dict[str, Value]:
        """Run a function `count` times; returns what becomes of its outputs.

        The function is one as `call` takes it, and so are the values, with these differences. Of an input named in
        `indexed`, each pass takes its own rows of a value that has the rows of all passes, one after the other; of a
        scalar, an element. An input in `carried` becomes, in the next pass, the output to which it is mapped; its value
        is for the first pass. Outputs in `stacked` are given with the rows of all passes, those in `summed` as their
        sum times `scale`, others as the last pass gave them. With `reversed`, the last rows come first. A stage is
        one as of a call. Loops have gradients.
        """
        ids = self.native.loop(
            body.native,
            self._passed(body, inputs),
            _tessera.whole_number("count", count),
            set(indexed),
            dict(carried or {}),
            set(stacked),
            set(summed),
            scale,
            reversed,
            _optional("stage", stage),
        )
        return {name: Value(self, id) for name, id in zip(sorted(body.outputs), ids, strict=True)}

    def _passed(self, function: Graph, inputs: Sequence[Value]) -> list[int]:
        """The numbers of the values that a function is given, with this graph's step where it drops out."""
        if not isinstance(function, Graph):
            raise TypeError(f"a function must be a Graph, not {function!r}")
        given = [self._own(value).id for value in inputs]
        names = [value.name for value in function.inputs]
        if _DRAW in names and len(given) == len(names) - 1:
            given.insert(names.index(_DRAW), self.step().id)
        return given

    def freeze(self, *names: str) -> None:
        """Exclude parameters from training."""
        known = {value.name for value in self.parameters}
        for name in names:
            if name not in known:
                raise ValueError(f"the graph has no parameter {name!r}")
        self._frozen.update(names)

    def find(self, name: str) -> Value:
        """Return the value with that name."""
        return Value(self, self.native.find(name))

    @property
    def inputs(self) -> list[Value]:
        """The inputs, in their order."""
        return self._of_kind("input")

    @property
    def parameters(self) -> list[Value]:
        return self._of_kind("parameter")

    @property
    def outputs(self) -> dict[str, Value]:
        return {name: Value(self, id) for name, id in self.native.outputs().items()}

    def _of_kind(self, kind: str) -> list[Value]:
        return [Value(self, id) for id in range(self.native.size) if self.native.kind(id) == kind]

    def _own(self, value: Value) -> Value:
        if not isinstance(value, Value):
            raise TypeError(f"{value!r} is no value of a graph")
        if value.graph is not self:
            raise ValueError(f"{value!r} is of another graph")
        return value

    def __str__(self) -> str:
        return str(self.native)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{value.name}{list(value.shape)}" for value in self.inputs if value.name not in self._kept)
        return f"<{type(self).__name__}({inputs}): {len(self.parameters)} parameters>"

    # What becomes of it.

    def session(
        self,
        machine: Machine | str = "host",
        *,
        threads: int = 0,
        seed: int = 0,
        on_chips: int = 0,
        parts: int = 0,
        host_io: bool = False,
        share: Session | None = None,
        executable: str | os.PathLike[str] | None = None,
        process_group: ProcessGroup | None = None,
        rank_timeout: float = 10,
        divide_cores: bool = True,
    ) -> Session:
        """Lower the graph for a machine, with initial parameters by a seed.

        `threads` is the most threads of the host that run it; 0: the default. `on_chips` is the number of chips
        of a machine of several that work as one; 0: what is predicted to be fastest (docs/chips.md). On a host a graph whose
        samples do not depend on each other runs for `parts` equal parts of them, one on each thread; 1: for all at
        once; 0: what is predicted to be fastest. With `host_io`, seconds on a modelled machine include sending inputs from
        its hosts and outputs to them. `share` is another session, such as that of a training step, whose
        machine is taken, and whose parameters are read where they lie: those of an evaluation follow every change.
        `executable` is a file of `save_executable()` of a session of an equal graph, machine and options: the graph is
        lowered, but not compiled again. A file of another one is refused.

        The ranks of `process_group`, of `torch.distributed`, divide the replicas of a training step among them
        (docs/ranks.md): each makes this session and calls the same functions of it, with the rows of its own replicas.
        More ranks than replicas divide the stages of each on a host; those of a replica give the same rows.
        Where one fails, or does not answer for `rank_timeout` seconds, the others raise `RuntimeError`. Ranks of a computer
        that may use the same cores divide them, unless `divide_cores` is false: each process is bound to its own.
        """
        threads = checked_threads(threads)
        seed = _tessera.whole_number("seed", seed, 0, 2**64 - 1)
        on_chips = _tessera.whole_number("on_chips", on_chips)
        parts = _tessera.whole_number("parts", parts)
        compiled = "" if executable is None else os.fspath(executable)
        native = self.native.copy()
        if share is not None:
            if not isinstance(share, Session):
                raise TypeError(f"share must be a Session, not {share!r}")
            if parts:
                raise ValueError(f"parts is {parts}; a session that shares parameters chooses its own: leave it out")
            if host_io:
                raise ValueError("a session that shares parameters has the other's host_io: leave it out")
            if process_group is not None:
                raise ValueError("a session that shares parameters has the other's process_group: leave it out")
            chosen = share.machine
            made = _tessera.Session(native, share._native, compiled)
        else:
            ranks = None
            if process_group is not None:
                ranks = communicator_of(process_group, rank_timeout, bool(divide_cores))
            chosen = machine_for(machine, threads)
            made = _tessera.Session(native, chosen, threads, seed, on_chips, parts, bool(host_io), compiled, ranks)
        session = Session(native, made, chosen, _kept_inputs(self), self._truths, repr(self), share)
        self._prepare(session)
        return session

    def _prepare(self, session: Session) -> None:
        """Set what a session of this kind of graph begins with."""

    def estimate(
        self,
        machine: Machine | str = "gc200",
        *,
        inputs: Mapping[str, ArrayLike] | None = None,
        on_chips: int = 0,
        host_io: bool = False,
        **figures: float,
    ) -> Estimate:
        """Lower the graph for a machine, without running it: what would a run cost?

        `inputs`: arrays of integer inputs on which costs depend, by name, such as the `sequence_ids` of packs: tiles of a
        modelled machine skip attention between their sequences. `on_chips`: as many chips of a machine of several work as
        one; 0: what is predicted to be fastest. `host_io`: with the time of sending inputs from the hosts of a modelled
        machine and outputs to them (docs/chips.md).
        `figures` change those of a modelled machine, as `tiles=2944` (docs/machines.md).
        """
        chosen = machine_for(machine, 0, figures)
        on_chips = _tessera.whole_number("on_chips", on_chips)
        known = {name: np.asarray(array) for name, array in (inputs or {}).items()}
        cost = _tessera.estimate(self.native, chosen, on_chips, bool(host_io), known)
        return Estimate(cost, self.native.copy(), chosen, repr(self).strip("<>"))

    def training_step(
        self,
        loss: Literal["cross_entropy", "mse"] | Value = "cross_entropy",
        optimizer: Optimizer = "sgd",
        *,
        output: str | None = None,
        lr: float = 0.001,
        schedule: Schedule | None = None,
        momentum: float | None = None,
        nesterov: bool = False,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        bias_correction: bool = True,
        trust_coefficient: float | None = None,
        weight_decay: float | None = None,
        groups: Iterable[ParameterGroup] = (),
        clip_norm: float | None = None,
        micro_batches: int = 1,
        pipeline: PipelineKind = "sequential",
        recompute: Iterable[int] = (),
        replicas: int = 1,
        overlap: bool = True,
        shard: bool | int = False,
        shard_weights: bool | int = False,
        shard_gradients: bool | int = False,
        offload: bool | int = False,
        offload_weights: bool | int = False,
        offload_gradients: bool | int = False,
        offload_activations: bool | int = False,
        prefetch: bool = False,
        keep: Iterable[str] = (),
        partial_dtype: DTypeLike | str | None = None,
        sum_dtype: DTypeLike | str | None = None,
        state_dtype: DTypeLike | str | None = None,
        rounding: StoreRounding | None = None,
        seed: int = 0,
        loss_scale: float | Literal["dynamic"] | None = None,
        scale_growth: int = 2000,
        numbers: Numbers | None = None,
    ) -> TrainingStep:
        """Copy the graph, and add a loss, gradients of all parameters, and their updates.

        A loss by name compares the output, or the one that is named, with a new input: "cross_entropy" with "labels",
        one per row, of which -100 does not count, and "mse" with "target".

        "sgd", "adam" and "adamw" are PyTorch's, "lamb" and "lars" those of You et al. (2020 and 2017). `weight_decay`
        is 0.01 for "adamw" and "lamb" if none is given, else 0; `betas` (0.9, 0.999); `eps` 1e-6 for "lamb", else 1e-8;
        `momentum` 0.9 for "lars", else 0; `trust_coefficient` 0.001. Options that an optimizer lacks are refused.
        `groups` have settings of their own, and `schedule` changes the learning rate. Gradients are scaled so that
        their common norm is at most `clip_norm`. With `micro_batches`, the graph is that of one, and a run takes the
        rows of all; likewise with `replicas`, equal parts of a machine's chips that train side by side on rows of their
        own and share the means of their gradients. Runs return the loss and those outputs that `keep` names.

        Sums over replicas begin as soon as gradients are complete, and go over the links while the rest of the step is
        computed, unless `overlap` is False. Results are the same, bit for bit.

        With `shard`, each replica keeps the optimizer's state of an equal part of every parameter, updates that part,
        and gathers the others': "replicated tensor sharding", or the first stage of ZeRO. Only parameters of at least
        8,192 elements, or as many as `shard` says, are divided, and none whose pattern may change. State is read and
        saved as a whole. `shard_weights` is the same for parameters themselves, which all replicas gather before each
        operation or call that takes them. With `shard_gradients`, which includes `shard`, each also keeps a part of the
        sums of gradients over micro-batches: gradients are summed over the replicas for each micro-batch, before those
        are, so that results may have other last bits.

        With `offload`, the optimizer's state of parameters of at least 8,192 elements, or as many as `offload` says,
        lies in the streaming memory beside the chips, and is read and written once in a step. Hosts, which have one
        memory, do as without it. `offload_weights` is the same for parameters, which are read before each operation or
        call that takes them, and `offload_gradients` for the sums of their gradients over micro-batches. Groups say
        otherwise for parameters that they name. With `prefetch`, parameters and state are fetched while the operations
        before are computed, so that tiles need room for what two operations take.

        `pipeline` says in which order micro-batches go through the stages of the graph: "sequential", "grouped",
        "interleaved" or "1f1b" (see `pipeline_schedule`). Stages in `recompute` keep only what they take from others,
        and compute a forward pass again before its backward pass. With `offload_activations`, what stages keep of several
        micro-batches in flight, as all but "sequential" have, lies in the streaming memory beside the chips, if it has at
        least 8,192 elements, or as many as `offload_activations` says. Results are the same, bit for bit.

        Gradients are summed over micro-batches, replicas and the passes of loops in `sum_dtype`: 16-bit ones in "f32",
        the default, or in their own type, which loses those that are small beside the sum; gradients of FP32 parameters
        in FP32 all the same.

        Parts of FP16 products' sums, which tiles of modelled machines send each other, are `partial_dtype`, "f16" or
        "f32", or as `set_partial_sums` has them. With `rounding="stochastic"`, FP16 ones are rounded so too.

        Updates are computed in FP32. The optimizer's state is stored as `state_dtype`, by default "f32"; it and
        parameters of 16 bits are rounded to the "nearest" number, the default, or, with "stochastic", so that the
        expected result is what was computed, with random numbers of `seed`; `{"parameters": "stochastic"}` rounds these
        alone so, and likewise "state" and "partials", the sums of products. Gradients are those of the loss times
        `loss_scale`, and divided by it in FP32. If that is "dynamic" it begins with 65,536; a step with a gradient that
        is not finite changes no parameter and no optimizer's state and halves it, and after `scale_growth` good steps
        it doubles (`session.get("loss_scale")`).

        `numbers` names a combination of `partial_dtype`, `sum_dtype`, `state_dtype`, `rounding` and `loss_scale`,
        which is then not given: "fp32"; "bf16", also FP32 here; "mlperf-v1" and "mlperf-v2", as Graphcore's submissions
        of BERT to MLPerf 1.0 and 2.0: FP16 partial sums and sums of gradients, stochastic rounding, FP32 or FP16
        moments, a loss scale of 64 or 10; "mlperf-slides", as its slides on them: FP32 sums of gradients, FP16 moments,
        a loss scale of 64. Types of parameters and products are the graph's.
        """
        step = TrainingStep(self, lr, schedule)
        step._add_loss(loss, output, tuple(keep))
        frozen = [value.id for value in step.parameters if value.name in step._frozen]
        step.native.add_training(
            step.loss.id,
            native_optimizer(
                optimizer, momentum, nesterov, betas, eps, weight_decay, bias_correction, trust_coefficient
            ),
            clip_norm,
            micro_batches,
            pipeline,
            {_tessera.whole_number("stage", stage) for stage in recompute},
            replicas,
            overlap,
            least_elements("shard", shard),
            least_elements("shard_weights", shard_weights),
            least_elements("shard_gradients", shard_gradients),
            least_elements("offload", offload),
            least_elements("offload_weights", offload_weights),
            least_elements("offload_gradients", offload_gradients),
            least_elements("offload_activations", offload_activations),
            bool(prefetch),
            frozen,
            native_groups(groups, self),
            _training_numbers(
                partial_dtype, sum_dtype, state_dtype, rounding, seed, loss_scale, scale_growth, numbers
            ),
        )
        return step


def least_elements(option: str, given: bool | int) -> int | None:
    if given is False or given is None:
        return None
    return 8192 if given is True else _tessera.whole_number(option, given)


class TrainingStep(Graph):
    """A graph with a loss, gradients and updates: a run trains all parameters by one step."""

    _kept = (_DRAW, "lr", "step")

    def __init__(self, graph: Graph, lr: float, schedule: Schedule | None = None) -> None:
        self.native = graph.native.copy()
        self._frozen = set(graph._frozen)
        self._truths = set(graph._truths)
        self.lr = lr
        self.schedule = schedule
        self._origin = graph

    def _prepare(self, session: Session) -> None:
        session.lr, session.schedule = self.lr, self.schedule

    def _add_loss(self, loss: str | Value, output: str | None, keep: tuple[str, ...]) -> None:
        if isinstance(loss, Value):
            if loss.graph is not self._origin:
                raise ValueError(f"the loss {loss!r} is of another graph")
            self.loss = Value(self, loss.id)
        else:
            self.loss = self._named_loss(loss, self._compared(output))
        for name in self.outputs:
            if name not in keep:
                self.native.remove_output(name)
        for name in keep:
            if name not in self.outputs:
                raise ValueError(f"the graph has no output {name!r} to keep")
        self.output("loss", self.loss)

    def _compared(self, output: str | None) -> Value:
        outputs = self.outputs
        if output is None and len(outputs) == 1:
            return next(iter(outputs.values()))
        if output is None or output not in outputs:
            problem = "say which output the loss takes" if output is None else f"the graph has no output {output!r}"
            raise ValueError(f"{problem}: it has {', '.join(map(repr, outputs)) or 'none'}")
        return outputs[output]

    def _named_loss(self, loss: str, output: Value) -> Value:
        if loss == "cross_entropy":
            rows = int(np.prod(output.shape[:-1], dtype=np.int64))
            return cross_entropy(output, self.input("labels", (rows,), "u32"), ignored=_IGNORED)
        if loss == "mse":
            return mean_squared_error(output, self.input("target", output.shape, output.dtype))
        raise ValueError(f"unknown loss {loss!r}: use 'cross_entropy', 'mse' or a value of the graph")


def _training_numbers(
    partial_dtype: DTypeLike | str | None,
    sum_dtype: DTypeLike | str | None,
    state_dtype: DTypeLike | str | None,
    rounding: StoreRounding | None,
    seed: int,
    loss_scale: float | Literal["dynamic"] | None,
    scale_growth: int,
    numbers: Numbers | None,
) -> _TrainingNumbers:
    if numbers is not None:
        given = partial_dtype, sum_dtype, state_dtype, rounding, loss_scale
        if any(each is not None for each in given):
            raise ValueError(
                "give numbers by name, or partial_dtype, sum_dtype, state_dtype, rounding and loss_scale, but not both"
            )
        return _tessera.training_numbers(numbers, _tessera.whole_number("seed", seed))
    growth = _tessera.whole_number("scale_growth", scale_growth, 1)
    scale = None if loss_scale is None else native_scale(loss_scale, growth)
    roundings = native_roundings("training_step", rounding)
    partials = None if partial_dtype is None else value_type(partial_dtype)
    types = _type_or_f32(sum_dtype), _type_or_f32(state_dtype)
    return partials, *types, roundings, _tessera.whole_number("seed", seed), scale


def native_scale(loss_scale: float | Literal["dynamic"], growth: int = 2000) -> tuple[float, int]:
    """The first scale, and after how many good steps it grows; 0: never."""
    if not isinstance(loss_scale, str):
        return float(loss_scale), 0
    if loss_scale != "dynamic":
        raise ValueError(f"unknown loss_scale {loss_scale!r}: use a number or 'dynamic'")
    return _FIRST_SCALE, growth


def _type_or_f32(dtype: DTypeLike | str | None) -> str:
    return "f32" if dtype is None else value_type(dtype)


def _kept_inputs(graph: Graph) -> tuple[str, ...]:
    return tuple(value.name for value in graph.inputs if value.name in graph._kept)


def _optional(name: str, number: int | None) -> int | None:
    return None if number is None else _tessera.whole_number(name, number)


def _sizes(shape: Sequence[int]) -> list[int]:
    sizes = tuple(shape)
    if any(isinstance(size, (int, np.integer)) and size < 1 for size in sizes):
        raise ValueError(f"a shape of {sizes}: each size must be at least 1")
    return [_tessera.whole_number("a size", size, 1) for size in sizes]


def _initial(
    name: str, initial: Initial | float | ArrayLike, kind: str = "f32"
) -> tuple[Initial, tuple[int, ...] | None]:
    """Initial contents, and their shape if they are an array."""
    if isinstance(initial, Initial):
        return initial, None
    if isinstance(initial, (int, float)):
        _require_exact(name, np.asarray(initial), kind)
        return Initial.constant(initial), None
    array = np.asarray(initial)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name}: initial values of type {array.dtype}; they must be numbers")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: initial values must be finite")
    _require_exact(name, array, kind)
    return Initial.values(np.ascontiguousarray(array, np.float32).reshape(-1)), array.shape


def _require_exact(name: str, numbers: NDArray[Any], kind: str) -> None:
    """Raise ValueError for integers that are none of the type, or that FP32, in which they are given, lacks."""
    if kind not in INTEGERS:
        return
    require_integers(numbers, kind)
    if (np.abs(numbers.astype(np.float64)) > MOST_EXACT).any():
        raise ValueError(f"{name}: initial integers beyond 2^24 are not possible")
