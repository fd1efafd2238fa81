"""Layers with sparse weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from tessera import _blocks, _distributed, _operators
from tessera._arguments import chosen
from tessera._conv1d import as_linear, is_conv1d
from tessera._prepared import Prepared, known, prepared_for, remember, stored
from tessera._saved import SavedWeight, sizes_of
from tessera._tessera import whole_number


#: FP32 represents all integers up to this one.
_EXACT = 1 << 24


class SparseLinear(nn.Module):
    """y = activation(x · Wᵀ + bias) with a sparse W, in place of `torch.nn.Linear`.

    `weight` is a one-dimensional tensor of the stored values in packed order, the order in which kernels read them.
    Optimizers take it like any other parameter; padding between values stays 0. The pattern is in the buffers
    `crow_indices` and `col_indices` (CSR, or BSR for blocks). The initial pattern is random, and covers the fraction
    `density` of the matrix in aligned blocks of `block_size` (1, 4, 8, 16 or 32). `dtype` is float32, float16 or
    bfloat16; float64 is converted in each call.

    A `dynamic` layer can change its pattern: `set_pattern`, `tessera.sparse`. Its tensors have a capacity of `dynamic`
    blocks, with `dynamic=True` of as many blocks as at the beginning, so that their shapes never change (a number that
    exceeds the blocks of the matrix means all of them). A static layer needs less memory and is slightly faster.
    `activation` is "relu" or "gelu", computed while the results are in registers.

    Change `crow_indices` and `col_indices` by `set_pattern` or `load_state_dict` only, never by way of `.data`, which
    the kernels would not notice. On the device "meta" a layer has only shapes; it gets its pattern and values from
    `load_state_dict`, with `assign=True` or after `to_empty`.
    """

    in_features: int
    out_features: int
    block_size: int
    dynamic: bool
    activation: str
    weight: nn.Parameter
    bias: nn.Parameter | None
    crow_indices: Tensor
    col_indices: Tensor
    packed_format: Tensor
    sizes: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        density: float,
        block_size: int = 1,
        dynamic: bool | int = False,
        activation: str | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        _blocks.check_block_size(block_size)
        check_layer(in_features, out_features, None)
        rows, cols = _blocks.grid_of(out_features, in_features, block_size)
        count = _blocks.count_for(density, rows * cols)
        with made_on_cpu(self, device):
            positions = _blocks.random_positions(count, rows * cols)
            self._build((out_features, in_features), positions, bias, block_size, dynamic, activation, dtype)
            self.reset_parameters()

    def _build(
        self,
        shape: tuple[int, int],
        positions: Tensor,
        bias: bool,
        block_size: int,
        dynamic: bool | int,
        activation: str | None,
        dtype: torch.dtype | None,
    ) -> None:
        if positions.device.type != "cpu":
            raise RuntimeError(f"the kernels of Tessera run on the CPU, not on {positions.device}: make it there")
        self.out_features, self.in_features = shape
        self.block_size = block_size
        grid = _blocks.grid_of(*shape, block_size)
        self.dynamic, capacity = _capacity(dynamic, positions.numel(), math.prod(grid))
        _check_type(torch.get_default_dtype() if dtype is None else dtype)
        self.activation = chosen("activation", activation or "none", _operators.ACTIVATIONS)
        with torch.inference_mode(False):  # tensors whose changes are counted
            crow, col = _blocks.csr_of(positions, grid, capacity)
            prepared = Prepared(crow, col, *shape, block_size, self.dynamic)
            self.register_buffer("crow_indices", crow)
            self.register_buffer("col_indices", col)
            self.register_buffer("packed_format", torch.tensor([prepared.packed_format], dtype=torch.int32))
            self.register_buffer("sizes", sizes_of((*shape, block_size)))
        remember(prepared, self.crow_indices, self.col_indices, self.packed_format)
        self.weight = nn.Parameter(torch.zeros(prepared.packed_size, dtype=dtype))
        if bias:
            self.bias = nn.Parameter(torch.zeros(self.out_features, dtype=dtype))
        else:
            self.register_parameter("bias", None)

    @classmethod
    def from_dense(
        cls,
        linear: nn.Module,
        *,
        density: float | None = None,
        mask: ArrayLike | Tensor | None = None,
        block_size: int = 1,
        dynamic: bool | int = False,
        activation: str | None = None,
    ) -> SparseLinear:
        """Make a sparse layer from a dense one: keep the blocks of largest norm, up to a density, or the blocks of a
        mask [out, in].

        The layer is a `torch.nn.Linear`, or a `Conv1D` of `transformers`, whose weight is [in, out].

        With neither, present zeros stay zeros: the zeros of a mask of `torch.nn.utils.prune`, whether `remove` was
        called or not, or else of the weight. All blocks with a non-zero are kept, and at least one block.
        """
        if is_conv1d(linear):
            linear = as_linear(linear)
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"from_dense() takes a torch.nn.Linear, not a {type(linear).__name__}")
        matrix = _pruned(linear, "weight").detach()
        _blocks.check_block_size(block_size)
        check_layer(linear.in_features, linear.out_features, matrix.device)
        if mask is not None:
            if density is not None:
                raise ValueError("pass a density or a mask, not both")
            mask = torch.as_tensor(mask, device="cpu")
            if mask.shape != matrix.shape:
                raise ValueError(f"a mask of {tuple(mask.shape)} for a weight of {tuple(matrix.shape)}")
            positions = _blocks.positions_in_mask(mask, block_size)
        elif density is not None:
            scores = _blocks.block_norms(matrix.float(), block_size)
            positions = _blocks.largest(scores, _blocks.count_for(density, scores.numel()))
        else:
            pruned = getattr(linear, "weight_mask", None)
            positions = _blocks.positions_with_any(matrix if pruned is None else pruned.detach(), block_size)
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        shape = (linear.out_features, linear.in_features)
        has_bias = linear.bias is not None
        layer._build(shape, positions, has_bias, block_size, dynamic, activation, matrix.dtype)
        layer._pack(_blocks.gather_blocks(matrix, positions, block_size))
        layer.weight.requires_grad_(getattr(linear, "weight_orig", linear.weight).requires_grad)
        if layer.bias is not None:
            layer.bias.data.copy_(_pruned(linear, "bias").detach())
            layer.bias.requires_grad_(getattr(linear, "bias_orig", linear.bias).requires_grad)
        layer.train(linear.training)
        return layer

    def reset_parameters(self) -> None:
        """Draw values uniformly, as `torch.nn.Linear` does, for the inputs that an output has on average."""
        if self.crow_indices.is_meta:
            return
        try:
            self._prepared()
        except ValueError as error:
            raise RuntimeError(
                "the layer has no pattern to draw values for, as after to_empty(): load a state dict instead"
            ) from error
        bound = 1 / math.sqrt(max(1.0, self.density * self.in_features))
        self._pack(torch.empty(self._stored_values()).uniform_(-bound, bound))
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        if not isinstance(x, Tensor) and not hasattr(x, "__torch_function__"):
            raise TypeError(f"the input is a {type(x).__name__}; it must be a tensor")
        return self._product(x, self.bias)

    def _product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        buffers = self._buffers  # read directly: attributes of modules take longer to find
        index = (
            buffers["crow_indices"],
            buffers["col_indices"],
            buffers["packed_format"],
            self.out_features,
            self.in_features,
            self.block_size,
            self.dynamic,
        )
        return _operators.layer(x, self.weight, index, bias, self.activation)

    def extra_repr(self) -> str:
        parts = [f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"]
        if not self.crow_indices.is_meta:
            parts.append(f"density={self.density:.4g}")
        parts.append(f"block_size={self.block_size}, dynamic={self.dynamic}")
        if self.activation != "none":
            parts.append(f"activation={self.activation}")
        return ", ".join(parts)

    # The pattern.

    @property
    def blocks(self) -> int:
        """Number of stored blocks."""
        return int(self.crow_indices[-1])

    @property
    def capacity(self) -> int:
        """Maximum number of blocks of a pattern."""
        return self.col_indices.numel()

    @property
    def density(self) -> float:
        """The fraction of blocks that are stored."""
        rows, cols = self._grid()
        return self.blocks / (rows * cols)

    def mask(self) -> Tensor:
        """The positions of stored values: a boolean matrix [out_features, in_features]."""
        marks = torch.ones(self._stored_values(), dtype=torch.bool)
        return _blocks.scatter_blocks(marks, self._positions(), self._shape(), self.block_size)

    def to_dense(self) -> nn.Linear:
        """The same layer as a `torch.nn.Linear` (without the activation, if it has one)."""
        linear = nn.Linear(self.in_features, self.out_features, self.bias is not None, dtype=self.weight.dtype)
        linear.weight.data = self.dense_weight().contiguous()
        linear.weight.requires_grad_(self.weight.requires_grad)
        if self.bias is not None:
            linear.bias.data.copy_(self.bias.detach())
            linear.bias.requires_grad_(self.bias.requires_grad)
        return linear.train(self.training)

    def dense_weight(self) -> Tensor:
        """W as a matrix [out_features, in_features], a copy without gradient."""
        values = self.unpack(self.weight).to(self.weight.dtype)
        return _blocks.scatter_blocks(values, self._positions(), self._shape(), self.block_size)

    def _matrix(self) -> Tensor:
        """W with its gradient."""
        places = torch.arange(self.weight.numel())
        # Where each value lies, unpacked in two parts that FP32 holds exactly.
        low, high = (self.unpack(part).to(torch.int64) for part in (places % _EXACT, places // _EXACT))
        values = self.weight[low + _EXACT * high]
        return _blocks.scatter_blocks(values, self._positions(), self._shape(), self.block_size)

    def set_pattern(self, crow_indices: Tensor, col_indices: Tensor, state: Iterable[Tensor] = ()) -> None:
        """Change the pattern of a dynamic layer: blocks in both patterns keep their values, new blocks are 0.

        `state` are other tensors in packed order that are rearranged in the same way, such as an optimizer's state; so
        is the gradient. Shapes do not change, so that nothing is compiled again. Raises TypeError or ValueError, and
        changes nothing, if the pattern or a tensor of `state` does not fit.
        """
        if not self.dynamic:
            raise ValueError("the pattern of a static layer is fixed: make it with dynamic=True, or a capacity")
        for name, tensor in (("crow_indices", crow_indices), ("col_indices", col_indices)):
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{name} is a {type(tensor).__name__}; it must be a tensor of integers")
        col = stored(crow_indices, col_indices)
        if col.numel() > self.capacity:
            raise ValueError(f"a pattern of {col.numel()} blocks; the layer has room for {self.capacity}")
        followers = self._followers(state)
        prepared = self._prepared()
        relocation = prepared.set_pattern(crow_indices, col)
        with torch.no_grad():
            self.crow_indices.copy_(crow_indices)
            self.col_indices[: col.numel()] = col
            remember(prepared, self.crow_indices, self.col_indices, self.packed_format)
            for tensor in (self.weight, *followers):
                moved = _distributed.whole(tensor).detach().to(torch.float32, copy=True)
                relocation.apply(moved)
                _distributed.assign(tensor, moved)

    def _followers(self, state: Iterable[Tensor]) -> list[Tensor]:
        followers = list(state)
        for tensor in followers:
            if not isinstance(tensor, Tensor):
                raise TypeError(f"state has a {type(tensor).__name__}; it takes tensors in packed order")
            if tensor.shape != self.weight.shape:
                raise ValueError(
                    f"state has a tensor of shape {tuple(tensor.shape)}; in packed order it has the shape of the "
                    f"weight, {tuple(self.weight.shape)}"
                )
        return followers

    # Packed order.

    def pack(self, values: Tensor) -> Tensor:
        """Values in the order of the pattern (blocks one after another, each row by row) in packed order, FP32."""
        return torch.from_numpy(self._native().pack(values.detach().float().reshape(-1).contiguous()))

    def unpack(self, packed: Tensor) -> Tensor:
        """The inverse of `pack`, for the weight, its gradient, or an optimizer's state."""
        return torch.from_numpy(self._native().unpack(_distributed.whole(packed).detach().float().contiguous()))

    def _pack(self, values: Tensor) -> None:
        self.weight.data.copy_(self.pack(values))

    def _shape(self) -> tuple[int, int]:
        return self.out_features, self.in_features

    def _grid(self) -> tuple[int, int]:
        return _blocks.grid_of(self.out_features, self.in_features, self.block_size)

    def _stored_values(self) -> int:
        return self.blocks * self.block_size**2

    def _positions(self) -> Tensor:
        return _blocks.positions_of(self.crow_indices, self.col_indices, self._grid()[1])

    def _prepared(self) -> Prepared:
        return prepared_for(
            self.crow_indices,
            self.col_indices,
            self.packed_format,
            self.out_features,
            self.in_features,
            self.block_size,
            self.dynamic,
        )

    def _native(self) -> Any:
        return self._prepared().weight(torch.float32)

    # Loading.

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        former = known(self.col_indices)
        prepared = None
        try:
            saved = SavedWeight.of((*self._shape(), self.block_size), state_dict, prefix)
            if saved is not None:
                prepared = self._convert(saved, state_dict, prefix)
        except (TypeError, ValueError) as error:
            error_msgs.append(f"{prefix.removesuffix('.') or 'the layer'}: {error}")
            return
        state_dict.setdefault(prefix + "sizes", sizes_of((*self._shape(), self.block_size)))
        before = len(error_msgs)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if prepared is not None and len(error_msgs) == before and not self.col_indices.is_meta:
            self._adopt(prepared, former)

    def _convert(self, saved: SavedWeight, state_dict: dict[str, Any], prefix: str) -> Prepared:
        """Replace entries of a state dict by tensors that can be copied to the layer; return the weight they describe.
        """
        prepared = self._prepared_for(saved)
        room = self.capacity if self.dynamic else saved.col.numel()
        has_layout = saved.format == prepared.packed_format and saved.capacity == room
        weight = saved.weight
        if not (has_layout and weight.shape == (prepared.packed_size,)):
            weight = torch.from_numpy(prepared.weight(torch.float32).pack(saved.unpack(weight))).to(weight.dtype)
        if not self.dynamic and prepared is not known(self.col_indices):
            self._resize(room, prepared.packed_size)
        state_dict[prefix + "weight"] = weight
        state_dict[prefix + "crow_indices"] = saved.crow
        state_dict[prefix + "col_indices"] = nn.functional.pad(saved.col, (0, room - saved.col.numel()))
        state_dict[prefix + "packed_format"] = torch.tensor([prepared.packed_format], dtype=torch.int32, device="cpu")
        return prepared

    def _prepared_for(self, saved: SavedWeight) -> Prepared:
        if self.dynamic:
            if saved.col.numel() > self.capacity:
                raise ValueError(f"a pattern of {saved.col.numel()} blocks; the layer has room for {self.capacity}")
            return saved.prepared(True, self.capacity)
        if not self.crow_indices.is_meta and known(self.col_indices) is not None:
            if torch.equal(saved.crow, self.crow_indices) and torch.equal(saved.col, self.col_indices):
                return self._prepared()
        return saved.prepared(False)

    def _adopt(self, prepared: Prepared, former: Prepared | None) -> None:
        """Let products find the loaded pattern."""
        if former is not None:
            prepared.go_on_collecting(former)
        for name in ("crow_indices", "col_indices", "packed_format"):
            if self.get_buffer(name).is_inference():  # assigned: let changes be counted
                with torch.inference_mode(False):
                    setattr(self, name, self.get_buffer(name).clone())
        remember(prepared, self.crow_indices, self.col_indices, self.packed_format)

    def _resize(self, blocks: int, packed_size: int) -> None:
        """Size the tensors of a static layer for another pattern."""
        if blocks != self.col_indices.numel():
            with torch.inference_mode(False):
                self.col_indices = torch.zeros(blocks, dtype=torch.int32, device=self.col_indices.device)
        if packed_size != self.weight.numel():
            self.weight.data = torch.zeros(packed_size, dtype=self.weight.dtype, device=self.weight.device)
        self.weight.grad = None

    def _packed_for(self, saved: SavedWeight, values: Tensor) -> Tensor:
        """Values of a saved pattern in the packed order that this layer has for it."""
        capacity = self.capacity if self.dynamic else None
        return torch.from_numpy(saved.prepared(self.dynamic, capacity).weight(torch.float32).pack(values))


def load_optimizer_state(
    optimizer: torch.optim.Optimizer,
    state: Mapping[str, Any],
    model: nn.Module,
    model_state: Mapping[str, Any],
) -> None:
    """Load an optimizer's `state_dict()` that was saved together with a model's, even if packed formats differ.

    Call it after `model.load_state_dict(model_state)`. The optimizer's state for a sparse weight, such as a momentum,
    is converted to the layer's present packed order. Raises ValueError for a state that is not an optimizer's state, or
    does not fit.
    """
    groups = state.get("param_groups") if isinstance(state, Mapping) else None
    if groups is None or not isinstance(state.get("state"), Mapping):
        raise ValueError("the state is not an optimizer's state: it has no 'state' and 'param_groups'")
    layers = {id(m.weight): (name, m) for name, m in model.named_modules() if isinstance(m, SparseLinear)}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = [number for group in groups for number in group["params"]]
    if len(parameters) != len(numbers):
        raise ValueError(f"the saved optimizer has {len(numbers)} parameters, this one {len(parameters)}")
    converted = dict(state["state"])
    for number, parameter in zip(numbers, parameters, strict=True):
        if number not in converted or id(parameter) not in layers:
            continue
        if not isinstance(converted[number], Mapping):
            raise ValueError(f"the optimizer's state of parameter {number} is {converted[number]!r}, not a dictionary")
        name, layer = layers[id(parameter)]
        saved = SavedWeight.of((*layer._shape(), layer.block_size), model_state, f"{name}." if name else "")
        if saved is None:
            raise ValueError(f"the model's state has no sparse weight for {name or 'the layer'}")
        converted[number] = {
            key: layer._packed_for(saved, saved.unpack(value)).to(value.dtype)
            if isinstance(value, Tensor) and value.shape == saved.weight.shape
            else value
            for key, value in converted[number].items()
        }
    optimizer.load_state_dict({**state, "state": converted})


@contextmanager
def made_on_cpu(layer: nn.Module, device: Any) -> Iterator[None]:
    """Make a layer on the CPU, where its indices have values, and move it to its device: `meta`, or the CPU."""
    # torch.get_default_device() of PyTorch 2.6 does not see `with torch.device(…)`.
    chosen = torch.empty(0).device if device is None else torch.device(device)
    if chosen.type not in ("cpu", "meta"):
        raise RuntimeError(f"the kernels of Tessera run on the CPU, not on {chosen}: make the layer there")
    with torch.device("cpu"):
        yield
    layer.to(chosen)


def check_layer(in_features: int, out_features: int, device: Any) -> None:
    """Refuse sizes and devices for which there can be no layer."""
    for name, size in (("in_features", in_features), ("out_features", out_features)):
        whole_number(name, size, 1)
    if device is not None and torch.device(device).type != "cpu":
        raise RuntimeError(f"the kernels of Tessera run on the CPU, not on {device}: make or move the layer there")


def _check_type(dtype: torch.dtype) -> None:
    if not dtype.is_floating_point:
        raise TypeError(f"a weight of {dtype}: use a floating-point type")


def _pruned(linear: nn.Linear, name: str) -> Tensor:
    """A parameter as the layer uses it: under `torch.nn.utils.prune`, the masked value that the next call computes."""
    original, mask = getattr(linear, f"{name}_orig", None), getattr(linear, f"{name}_mask", None)
    found: Tensor = getattr(linear, name) if original is None or mask is None else original * mask.to(original.dtype)
    return found


def _capacity(dynamic: bool | int, blocks: int, most: int) -> tuple[bool, int]:
    """Whether a layer is dynamic, and its capacity in blocks, at most the `most` blocks of the matrix."""
    if isinstance(dynamic, (bool, np.bool_)):
        return bool(dynamic), blocks
    if not isinstance(dynamic, (int, np.integer)):
        raise TypeError(f"dynamic is {dynamic!r}; it must be True, False, or a number of blocks")
    return True, min(int(dynamic), most)
