"""Graphs of operations, and training steps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tessera import _tessera
from tessera._arguments import checked_seed, checked_threads
from tessera._matrices import Matrix
from tessera._tessera import Initial, Machine
from tessera.graph._estimate import Estimate, machine_for
from tessera.graph._pipeline import PipelineKind, Stages, layer_stages, recomputation
from tessera.graph._ranks import communicator_of, on_each
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
#: The number formats of a step, as the library takes them: types of sums and state, roundings, seed, loss scale.
_TrainingNumbers: TypeAlias = tuple[str | None, str, str, Roundings, int, tuple[float, int] | None]
#: The first loss scale, where the scale may change.
_FIRST_SCALE = 65536.0
#: The label of rows that do not count, as in PyTorch.
_IGNORED = -100


class Graph:
    """Operations on values of fixed shapes, in the order in which they run.

    Shapes have at most five dimensions; the last dimension counts features. Operations are functions of
    `tessera.graph`; `str(graph)` lists them.
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
        """Add an array that each run gets: numbers, or 8-bit pixels ("u8"), which `cast` converts to numbers."""
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
        """Add a sparse matrix, for `linear`, `convolution` and `embedding`: only the blocks of a pattern are stored.

        `matrix` is a `tessera.Weight`, or any matrix that one can be made from. Initial values are the values of
        `matrix`, unless `initial` is given. `dynamic` lets sessions change the pattern, up to that number of blocks, or
        with True up to the number of blocks of `matrix`.
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
        """Let each run store a value in an array of state."""
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
            raise ValueError(f"an output cannot be called {name!r}: an input has this name")
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
        """Apply a function, which is a graph without parameters: these values replace its inputs, in their order.

        Returns the function's outputs. All calls of one function share its code, so a repeated block is one function
        that is called with different parameters. Later additions to the function do not affect earlier calls. If the
        function has dropout and its input `step` is left out, it gets this graph's `step()`. Calls with the same
        `number` drop the same elements; calls without a number drop different ones. A call with a `stage` runs on the
        chips of this stage; a machine's chips are divided equally among the stages. Other operations run where their
        weights and inputs are. With `recompute`, only the call's inputs are kept for its gradient, which computes the
        other values again; this takes less memory and more time.
        """
        given = self._passed(function, inputs)
        numbers = _optional("number", number), _optional("stage", stage)
        ids = self.native.call(function.native, given, *numbers, bool(recompute))
        return {name: Value(self, id) for name, id in zip(sorted(function.outputs), ids, strict=True)}

    def place_stages(self, places: Sequence[int]) -> None:
        """Let stage s run on part `places[s]` of a machine's chips, which are divided equally among the parts.

        Several stages may share a part, such as the embedding and the head of a language model, which share a table:
        `graph.place_stages([0, 1, 2, 3, 0])`. Without this call, each stage has a part of its own.
        """
        self.native.place_stages([_tessera.whole_number("place", place) for place in places])

    def replicate(self, count: int) -> None:
        """Let equal parts of a machine's chips run the graph side by side, each on its own rows.

        Inputs and outputs that are not scalars then have the rows of all replicas, one replica after the other; scalar
        outputs are the first replica's. Training steps take `replicas` instead.
        """
        self.native.replicate(_tessera.whole_number("count", count))

    def shard(self, parameter: Value) -> None:
        """Let each replica keep an equal part of a parameter.

        Replicas gather it before each operation or call that takes it; a host keeps the whole parameter. Training steps
        take `shard_weights` instead.
        """
        self.native.shard(self._own(parameter).id)

    def offload(self, value: Value, prefetch: bool = False) -> None:
        """Keep a parameter in the streaming memory of a machine's chips.

        Each operation or call that takes it fetches it; with `prefetch`, all parameters in streaming memory are fetched
        while the operations before are computed. A host has one memory, so nothing changes there. Training steps take
        `offload_weights` and `prefetch` instead.
        """
        self.native.offload(self._own(value).id)
        if prefetch:
            self.native.set_prefetch(True)

    def set_partial_sums(self, dtype: DTypeLike | str, rounding: Rounding = "nearest", seed: int = 0) -> None:
        """Set the type, "f16" or "f32", of the partial sums of FP16 products that tiles of modelled machines exchange.

        Without this call, partial sums have the type of the products. Partial sums of FP32 products are always FP32,
        and the host always sums in FP32. FP16 partial sums are rounded to the nearest number or, with "stochastic", at
        random so that the expected result is the exact sum; random numbers follow from `seed` and the sums themselves,
        so equal sums are rounded alike.
        """
        stochastic = is_stochastic(rounding)
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
        """Run a function `count` times, and return the results of the loop.

        Function and values are as for `call`, except for the inputs and outputs named here:
        - `indexed` inputs: the value has the rows of all passes, one pass after the other, and each pass takes its own
          rows; for a scalar input, one element;
        - `carried` maps an input to the output of the previous pass that it takes; its value is for the first pass;
        - `stacked` outputs are returned with the rows of all passes;
        - `summed` outputs are returned as their sum over all passes, times `scale`.

        All other outputs are returned as the last pass computed them. With `reversed`, passes run from the last rows to
        the first. `stage` is as for `call`. Loops have gradients.
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
        """The ids of the values that a function gets, with this graph's step if the function has dropout."""
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
        """Return the value with this name."""
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
            raise TypeError(f"{value!r} is not a value of a graph")
        if value.graph is not self:
            raise ValueError(f"{value!r} belongs to another graph")
        return value

    def __str__(self) -> str:
        return str(self.native)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{value.name}{list(value.shape)}" for value in self.inputs if value.name not in self._kept)
        return f"<{type(self).__name__}({inputs}): {len(self.parameters)} parameters>"

    # Sessions, estimates and training steps.

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
        """Lower the graph for a machine; initial parameters follow from `seed`.

        - `threads` is the maximum number of threads of the host; 0: the default.
        - `on_chips` is the number of chips of a machine of several chips that work as one; 0: the number that is
          predicted to be fastest (docs/pipelines.md).
        - `parts`: on the host, a graph whose samples do not depend on each other runs separately for this many equal
          parts of the samples, one part on each thread. 1: for all samples at once; 0: the number that is predicted to
          be fastest.
        - With `host_io`, seconds on a modelled machine include the transfers of inputs from its hosts and of outputs to
          them.
        - `share` is another session, such as the session of a training step: the new session takes its machine, and
          reads its parameters in place, so that an evaluation sees every change of the parameters.
        - `executable` is a file that `save_executable()` of a session with an equal graph, machine and options wrote:
          the graph is lowered, but not compiled again. Other files are refused.
        - The ranks of `process_group`, of `torch.distributed`, divide the replicas of a training step among them
          (docs/ranks.md): each rank makes this session and calls the same functions of it, with the rows of its own
          replicas. On the host, if there are more ranks than replicas, ranks also divide the stages of each replica;
          the ranks of a replica then pass equal rows. If a rank fails, or does not answer for `rank_timeout` seconds,
          the other ranks raise `RuntimeError`. Ranks of one computer that may use the same cores divide them, and each
          process is bound to its own cores, unless `divide_cores` is false.
        """
        threads = checked_threads(threads)
        seed = checked_seed(seed)
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
            ranks = communicator_of(process_group, rank_timeout, divide_cores)
            chosen = on_each(ranks, lambda: machine_for(machine, threads))
            made = _tessera.Session(native, chosen, threads, seed, on_chips, parts, bool(host_io), compiled, ranks)
        session = Session(native, made, chosen, _kept_inputs(self), self._truths, repr(self), share)
        self._prepare(session)
        return session

    def _prepare(self, session: Session) -> None:
        """Set the initial contents of a session of this kind of graph."""

    def estimate(
        self,
        machine: Machine | str = "gc200",
        *,
        inputs: Mapping[str, ArrayLike] | None = None,
        on_chips: int = 0,
        host_io: bool = False,
        **figures: float,
    ) -> Estimate:
        """Estimate the cost of a run on a machine: lower the graph for it, without running it.

        - `inputs` has arrays of integer inputs on which costs depend, by name, such as the `sequence_ids` of packs:
          tiles of a modelled machine skip attention between the sequences of a pack.
        - `on_chips` is the number of chips of a machine of several chips that work as one; 0: the number that is
          predicted to be fastest.
        - With `host_io`, the time includes the transfers of inputs from the hosts of a modelled machine and of outputs
          to them (docs/chips.md).
        - `figures` change figures of a modelled machine, such as `tiles=2944` (docs/machines.md).
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
        stages: Stages = "auto",
        pipeline: PipelineKind = "sequential",
        recompute: Iterable[int] | int | Literal["fit"] = (),
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

        A loss by name compares the output, or the output named `output`, with a new input: "cross_entropy" with
        "labels", one label per row, where -100 does not count, and "mse" with "target". A run returns the loss and the
        outputs that `keep` names.

        "sgd", "adam" and "adamw" are PyTorch's optimizers, "lamb" and "lars" the optimizers of You et al. (2020 and
        2017). The default of `weight_decay` is 0.01 for "adamw" and "lamb", else 0; of `betas` (0.9, 0.999); of `eps`
        1e-6 for "lamb", else 1e-8; of `momentum` 0.9 for "lars", else 0; of `trust_coefficient` 0.001. Options that an
        optimizer does not have are refused. `groups` are groups of parameters with settings of their own, and
        `schedule` changes the learning rate. Gradients are scaled so that their common norm is at most `clip_norm`.

        With `micro_batches`, the graph computes one micro-batch, and a run takes the rows of all micro-batches;
        likewise with `replicas`, equal parts of a machine's chips that train side by side, each on its own rows, and
        share the means of their gradients. Sums over replicas begin as soon as gradients are complete, and go over the
        links while the rest of the step is computed, unless `overlap` is False. Results are the same, bit for bit.

        With `shard`, each replica keeps the optimizer's state of an equal part of every parameter, updates this part,
        and gathers the other parts from the other replicas: "replicated tensor sharding", or the first stage of ZeRO.
        Only parameters of at least 8,192 elements, or of at least `shard` elements, are divided, and no parameters
        whose pattern may change. State is read and saved as a whole. `shard_weights` does the same for the parameters
        themselves, which all replicas gather before each operation or call that takes them. With `shard_gradients`,
        which includes `shard`, each replica also keeps only a part of the sums of gradients over micro-batches:
        gradients are summed over the replicas first, for each micro-batch, and then over micro-batches, so that results
        may differ in their last bits.

        With `offload`, the optimizer's state of parameters of at least 8,192 elements, or of at least `offload`
        elements, lies in the streaming memory of the chips, and is read and written once per step. It has no effect on
        a host, which has one memory. `offload_weights` does the same for parameters, which are read before each
        operation or call that takes them, and `offload_gradients` for the sums of their gradients over micro-batches.
        `groups` may set this differently for the parameters that they name. With `prefetch`, parameters and state are
        fetched while the operations before are computed, so that tiles need memory for the operands of two operations.

        `stages` divides whole layers among stages, each with its own chips, where no call or loop names a stage. A
        layer begins with an operation that takes parameters which no operation before takes, and ends before the next
        such operation. `stages` is
        - the number of stages: sessions and estimates balance them by predicted time, as far as their bytes fit; the
          chips of a single stage work as one;
        - names of the layers with which the second stage and further ones begin: `["layers.4", "layers.8"]`. A layer
          has the name of any of its parameters, or of what comes before a "." in it; of several layers, the first one
          counts;
        - a dict of names and stages: `{"layers.4": 1, "layers.8": 2}`. Layers that are not named are on the stage of
          the layer before;
        - "auto", the default: stages as calls and loops name them, or if none does, as sessions choose
          (docs/pipelines.md).

        `pipeline` is the order in which micro-batches go through the stages of the graph: "sequential", "grouped",
        "interleaved", "1f1b" or "zb-h1" (see `pipeline_schedule`). Stages in `recompute` keep only the values that they
        take from other stages, and compute a forward pass again before its backward pass. If `recompute` is a number of
        bytes, sessions and estimates choose as few calls of functions, and then stages, to be computed again as are
        needed for the step to fit this memory of each tile, or of a host in all; with "fit", the machine's memory. They
        raise ValueError if the bytes do not suffice (docs/training-on-chips.md). All pipelines but "sequential"
        have several micro-batches in flight; with `offload_activations`, the values of these that stages keep, if they
        have at least 8,192 elements, or at least `offload_activations` elements, lie in the streaming memory of the
        chips. Results are the same, bit for bit, except that calls which run twice may be placed differently on tiles,
        which can change the last bits.

        Gradients are summed over micro-batches, replicas and the passes of loops in `sum_dtype`: 16-bit gradients in
        "f32", the default, or in their own type, which loses gradients that are small beside the sum. Gradients of FP32
        parameters are always summed in FP32. Partial sums of FP16 products, which tiles of modelled machines exchange,
        are `partial_dtype`, "f16" or "f32", or as `set_partial_sums` says.

        Updates are computed in FP32. The optimizer's state is stored as `state_dtype`, by default "f32". `rounding`
        says how 16-bit parameters, state and partial sums are rounded: to the "nearest" number, the default, or, with
        "stochastic", at random so that the expected result is the exact one, with random numbers that follow from
        `seed`. A dict sets it for each kind, such as `{"parameters": "stochastic"}`; the other kinds are "state" and
        "partials".

        Gradients are computed from the loss times `loss_scale`, and divided by it in FP32. If it is "dynamic", it
        begins with 65,536; a step with a gradient that is not finite changes no parameter and no optimizer's state and
        halves the scale, and after `scale_growth` good steps the scale doubles (`session.get("loss_scale")`).

        `numbers` names a combination of `partial_dtype`, `sum_dtype`, `state_dtype`, `rounding` and `loss_scale`, which
        are then not given:
        - "fp32"; and "bf16", which is the same for these options;
        - "mlperf-v1" and "mlperf-v2", as in Graphcore's submissions of BERT to MLPerf 1.0 and 2.0: FP16 partial sums
          and sums of gradients, stochastic rounding, FP32 or FP16 moments, a loss scale of 64 or 10;
        - "mlperf-slides", as in Graphcore's slides on these submissions: FP32 sums of gradients, FP16 moments, a loss
          scale of 64.

        The types of parameters and products are properties of the graph.
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
            _tessera.whole_number("micro_batches", micro_batches),
            *layer_stages(stages),
            str(pipeline),
            *recomputation(recompute),
            _tessera.whole_number("replicas", replicas),
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
    """A graph with a loss, gradients and updates: a run is one step of training of all parameters."""

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
                raise ValueError(f"the loss {loss!r} belongs to another graph")
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
            problem = "say which output the loss compares" if output is None else f"the graph has no output {output!r}"
            raise ValueError(f"{problem}: it has {', '.join(map(repr, outputs)) or 'none'}")
        return outputs[output]

    def _named_loss(self, loss: str, output: Value) -> Value:
        if loss == "cross_entropy":
            rows = int(np.prod(output.shape[:-1], dtype=np.int64))
            return cross_entropy(output, self.input("labels", (rows,), "u32"), ignored=_IGNORED)
        if loss == "mse":
            return mean_squared_error(output, self.input("target", output.shape, output.dtype))
        raise ValueError(f"unknown loss {loss!r} (choose from cross_entropy, mse, or a value of the graph)")


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
                "give either numbers or partial_dtype, sum_dtype, state_dtype, rounding and loss_scale, not both"
            )
        return _tessera.training_numbers(numbers, _tessera.whole_number("seed", seed))
    growth = _tessera.whole_number("scale_growth", scale_growth, 1)
    scale = None if loss_scale is None else native_scale(loss_scale, growth)
    roundings = native_roundings(rounding)
    partials = None if partial_dtype is None else value_type(partial_dtype)
    types = _type_or_f32(sum_dtype), _type_or_f32(state_dtype)
    return partials, *types, roundings, _tessera.whole_number("seed", seed), scale


def native_scale(loss_scale: float | Literal["dynamic"], growth: int = 2000) -> tuple[float, int]:
    """The first loss scale, and the number of good steps after which it grows; 0: never."""
    if not isinstance(loss_scale, str):
        return float(loss_scale), 0
    if loss_scale != "dynamic":
        raise ValueError(f"unknown loss_scale {loss_scale!r} (expected a number, or 'dynamic')")
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
    """Raise ValueError for integers that the type cannot represent, or FP32, in which they are passed."""
    if kind not in INTEGERS:
        return
    require_integers(numbers, kind)
    if (np.abs(numbers.astype(np.float64)) > MOST_EXACT).any():
        raise ValueError(f"{name}: initial integers beyond 2^24 are not possible")
