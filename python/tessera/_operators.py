"""The operators `torch.ops.tessera.*`: products of a sparse weight with batch-major activations.

    linear             y  = activation(x · Wᵀ + bias)      x: […, in_features]
    linear_input_grad  dx = dy · W                         dy: […, out_features]
    sddmm              dW = dyᵀ · x at the pattern of W, in packed order

`weight` is a one-dimensional tensor of values in packed order (docs/training.md). The pattern is given as for a CSR or
BSR matrix: `crow_indices` (int32, one entry more than there are block rows) and `col_indices` (int32, ascending in a
row; for a dynamic weight as long as its capacity, with unused entries at the end). `packed_format` holds the number of
the weight's packed format; formats that the kernels do not read are refused. Each operator has a fake implementation
and a derivative, which is an operator again.

Names and arguments are stable: checkpoints and selective activation checkpointing may refer to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from tessera._arguments import chosen
from tessera._autograd import differentiable
from tessera._eager import is_eager, is_in_dual_level
from tessera._prepared import STORED_TYPES, Operand, Prepared, check_real, floats, prepared_for
from tessera._threads import share_threads

_INDEX = (
    "Tensor crow_indices, Tensor col_indices, Tensor packed_format, SymInt out_features, SymInt in_features, "
    "int block_size, bool dynamic"
)

library = torch.library.Library("tessera", "DEF")
library.define(
    f"linear(Tensor x, Tensor weight, {_INDEX}, Tensor? bias, str activation) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
library.define(
    f"linear_input_grad(Tensor dy, Tensor weight, {_INDEX}) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
library.define(
    f"sddmm(Tensor dy, Tensor x, {_INDEX}, SymInt packed_size) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
linear = torch.ops.tessera.linear.default
linear_input_grad = torch.ops.tessera.linear_input_grad.default
sddmm = torch.ops.tessera.sddmm.default

ACTIVATIONS = ("none", "relu", "gelu")


# The kernels. `index` stands for the arguments from crow_indices to dynamic.


def checked_shape(name: str, tensor: Tensor, features: int) -> torch.Size:
    """The shape of a tensor, whose last dimension must be `features`."""
    shape = tensor.shape
    if not shape or shape[-1] != features:
        raise ValueError(f"{name} has shape {tuple(shape)}; its last dimension must be {features}")
    return shape


def _checked_weight(weight: Tensor, packed_size: int) -> Tensor:
    """A weight of a type that the kernels read."""
    if weight.numel() != packed_size or not weight.is_contiguous():
        raise ValueError(
            f"the weight has shape {tuple(weight.shape)}; with this pattern it is one contiguous dimension of "
            f"{packed_size} values in packed order"
        )
    return weight if weight.dtype in STORED_TYPES else floats(weight)


def _checked_bias(bias: Tensor, features: int) -> Tensor:
    if bias.shape != (features,):
        raise ValueError(f"the bias has shape {tuple(bias.shape)}; the layer has {features} outputs")
    return bias if bias.dtype is torch.float32 and bias.is_contiguous() else bias.to(torch.float32).contiguous()


def _linear_cpu(x: Tensor, weight: Tensor, *arguments: Any) -> Tensor:
    *index, bias, activation = arguments
    return _linear_of(prepared_for(*index), x, weight, bias, activation)


def _linear_of(prepared: Prepared, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    out_features, in_features, *_ = prepared.shape
    shape = checked_shape("x", x, in_features)
    weight = _checked_weight(weight, prepared.packed_size)
    if bias is not None:
        bias = _checked_bias(bias, out_features)
    operand = Operand(x)
    y = torch.empty((*shape[:-1], out_features), dtype=torch.float32)
    if operand.n > 0:
        prepared.linear(operand, weight, bias, activation, y)
    return y if x.dtype is torch.float32 else y.to(x.dtype)


def _linear_input_grad_cpu(dy: Tensor, weight: Tensor, *index: Any) -> Tensor:
    return _input_grad_of(prepared_for(*index), dy, weight)


def _input_grad_of(prepared: Prepared, dy: Tensor, weight: Tensor) -> Tensor:
    out_features, in_features, *_ = prepared.shape
    shape = checked_shape("dy", dy, out_features)
    weight = _checked_weight(weight, prepared.packed_size)
    operand = Operand(dy)
    dx = torch.empty((*shape[:-1], in_features), dtype=torch.float32)
    if operand.n > 0:
        prepared.input_grad(operand, weight, dx)
    return dx if dy.dtype is torch.float32 else dx.to(dy.dtype)


def _sddmm_cpu(dy: Tensor, x: Tensor, *arguments: Any) -> Tensor:
    *index, packed_size = arguments
    return _sddmm_of(prepared_for(*index), dy, x, packed_size)


def _sddmm_of(prepared: Prepared, dy: Tensor, x: Tensor, packed_size: int) -> Tensor:
    out_features, in_features, *_ = prepared.shape
    leading = checked_shape("dy", dy, out_features)[:-1]
    if prepared.packed_size != packed_size or checked_shape("x", x, in_features)[:-1] != leading:
        raise ValueError(
            f"dy has shape {tuple(dy.shape)} and x {tuple(x.shape)}, for {packed_size} values in packed order; this "
            f"pattern has {prepared.packed_size}, and leading dimensions must be equal"
        )
    dys, xs = Operand(dy), Operand(x)
    if dys.n == 0:
        return torch.zeros(packed_size, dtype=torch.float32)
    dw = torch.empty(packed_size, dtype=torch.float32)
    prepared.sddmm(dys, xs, dw)
    return dw


def refuse_device(*arguments: Any) -> Tensor:
    devices = {a.device.type for a in arguments if isinstance(a, Tensor)}
    raise RuntimeError(
        f"the kernels of Tessera run on the CPU, not on {', '.join(sorted(devices - {'cpu'}))}: move the layer and its "
        "input to the CPU, or use to_dense()"
    )


# What the compiler sees: shapes and types. Calls with tensors on meta come here too.


def check_devices(*arguments: Any) -> None:
    """Refuse tensors on several devices: results of meta and other tensors together would be uninitialised."""
    devices = {a.device.type for a in arguments if isinstance(a, Tensor)}
    if len(devices) > 1:
        raise RuntimeError(
            f"tensors on different devices, {' and '.join(sorted(devices))}: move the layer and its input to one"
        )


def _linear_fake(x: Tensor, weight: Tensor, *arguments: Any) -> Tensor:
    *index, _, activation = arguments
    check_devices(x, weight, *arguments)
    chosen("activation", activation, ACTIVATIONS)
    check_real(x, weight)
    return x.new_empty((*checked_shape("x", x, index[4])[:-1], index[3]))


def _linear_input_grad_fake(dy: Tensor, weight: Tensor, *index: Any) -> Tensor:
    check_devices(dy, weight, *index)
    check_real(dy, weight)
    return dy.new_empty((*checked_shape("dy", dy, index[3])[:-1], index[4]))


def _sddmm_fake(dy: Tensor, x: Tensor, *arguments: Any) -> Tensor:
    check_devices(dy, x, *arguments)
    check_real(dy, x)
    checked_shape("dy", dy, arguments[3])
    checked_shape("x", x, arguments[4])
    return dy.new_empty((arguments[-1],), dtype=torch.float32)


# Derivatives. All three products are bilinear, so the derivatives of each one are the other two.

_NO_INDEX = (None,) * 7


def _save(ctx: Any, inputs: tuple[Any, ...], *more: Tensor | None) -> None:
    crow, col, packed_format, *ctx.sizes = inputs[2:9]
    ctx.save_for_backward(inputs[0], inputs[1], crow, col, packed_format, *more)


def _saved(ctx: Any) -> tuple[Tensor, Tensor, tuple[Any, ...], tuple[Tensor | None, ...]]:
    first, second, crow, col, packed_format, *more = ctx.saved_tensors
    return first, second, (crow, col, packed_format, *ctx.sizes), tuple(more)


def _linear_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *_, bias, activation = inputs
    ctx.activation = activation
    ctx.bias_type = None if bias is None else bias.dtype
    # What the activation's derivative is computed from: its result, or the bias to compute its argument again.
    _save(ctx, inputs, output if activation == "relu" else bias if activation == "gelu" else None)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _save(ctx, inputs)


def _linear_backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, index, (kept,) = _saved(ctx)
    if ctx.activation == "relu":
        dy = torch.ops.aten.threshold_backward(dy, kept, 0)
    elif ctx.activation == "gelu":
        dy = torch.ops.aten.gelu_backward(dy, linear(x, weight, *index, kept, "none"))
    needs_x, needs_weight, needs_bias = (ctx.needs_input_grad[i] for i in (0, 1, 9))
    dx = linear_input_grad(dy, weight, *index) if needs_x else None
    dw = sddmm(dy, x, *index, weight.shape[0]).to(weight.dtype) if needs_weight else None
    db = dy.reshape(-1, dy.shape[-1]).sum(0, dtype=ctx.bias_type) if needs_bias else None
    return dx, dw, *_NO_INDEX, db, None


def _linear_input_grad_backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    dy, weight, index, _ = _saved(ctx)
    g_dy = linear(g, weight, *index, None, "none") if ctx.needs_input_grad[0] else None
    g_weight = sddmm(dy, g, *index, weight.shape[0]).to(weight.dtype) if ctx.needs_input_grad[1] else None
    return g_dy, g_weight, *_NO_INDEX


def _sddmm_backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    dy, x, index, _ = _saved(ctx)
    g = g.contiguous()
    g_dy = linear(x, g, *index, None, "none").to(dy.dtype) if ctx.needs_input_grad[0] else None
    g_x = linear_input_grad(dy, g, *index).to(x.dtype) if ctx.needs_input_grad[1] else None
    return g_dy, g_x, *_NO_INDEX, None


# Autocast: like nn.Linear, compute from 16-bit operands; sums are FP32 inside.


def _linear_autocast(x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    check_real(x, weight)
    dtype = torch.get_autocast_dtype("cpu")
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
        y: Tensor = linear(x.to(dtype), weight.to(dtype), *rest)
        return y


def implement(
    name: str,
    cpu: Callable[..., Any],
    fake: Callable[..., Any],
    setup: Callable[..., None],
    derivative: Callable[..., tuple[Tensor | None, ...]],
) -> None:
    """Implement an operator of the library, with its derivative as `differentiable` takes it."""
    library.impl(name, cpu, "CPU")
    library.impl(name, refuse_device, "CUDA")
    torch.library.register_fake(f"tessera::{name}", fake, lib=library)
    operator = getattr(torch.ops.tessera, name).default
    library.impl(name, differentiable(operator, cpu, setup, derivative), "Autograd", with_keyset=True)


library.impl("linear", _linear_autocast, "AutocastCPU")
implement("linear", _linear_cpu, _linear_fake, _linear_setup, _linear_backward)
implement(
    "linear_input_grad", _linear_input_grad_cpu, _linear_input_grad_fake, _setup, _linear_input_grad_backward
)
implement("sddmm", _sddmm_cpu, _sddmm_fake, _setup, _sddmm_backward)

# Layers skip the dispatcher where it has nothing to do.


class _Layer(torch.autograd.Function):
    """`linear` with a prepared pattern and without GELU; called if is_eager()."""

    @staticmethod
    def forward(
        ctx: Any, prepared: Prepared, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, *index: Any
    ) -> Tensor:
        y = _linear_of(prepared, x, weight, bias, activation)
        ctx.prepared, ctx.sizes, ctx.bias_type = prepared, index[3:], None if bias is None else bias.dtype
        # The index tensors too, so that a pattern changed before the backward pass is noticed.
        ctx.save_for_backward(x, weight, *index[:3], y if activation == "relu" else None)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, crow, col, packed_format, y = ctx.saved_tensors
        _, needs_x, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        if y is not None:
            dy = torch.ops.aten.threshold_backward(dy, y, 0)
        dx = dw = db = None
        if torch.is_grad_enabled() or not is_eager(dy, x):
            index = (crow, col, packed_format, *ctx.sizes)
            dx = linear_input_grad(dy, weight, *index) if needs_x else None
            dw = sddmm(dy, x, *index, weight.shape[0]) if needs_weight else None
        else:
            dx = _input_grad_of(ctx.prepared, dy, weight) if needs_x else None
            dw = _sddmm_of(ctx.prepared, dy, x, weight.shape[0]) if needs_weight else None
        if dw is not None and dw.dtype is not weight.dtype:
            dw = dw.to(weight.dtype)
        if needs_bias:
            db = dy.reshape(-1, dy.shape[-1]).sum(0, dtype=ctx.bias_type)
        return None, dx, dw, db, None, *_NO_INDEX


def _with_tangents(
    x: Tensor, weight: Tensor, index: tuple[Any, ...], bias: Tensor | None, activation: str
) -> Tensor:
    """`linear` with its forward-mode derivative, which PyTorch has no place for in an operator."""
    x, dx = forward_ad.unpack_dual(x)
    weight, dw = forward_ad.unpack_dual(weight)
    bias, db = (None, None) if bias is None else forward_ad.unpack_dual(bias)
    y: Tensor = linear(x, weight, *index, bias, "none")
    terms = [] if dx is None else [linear(dx, weight, *index, None, "none")]
    terms += [] if dw is None else [linear(x, dw, *index, None, "none")]
    terms += [] if db is None else [db.to(y.dtype).expand_as(y)]
    if terms:
        y = forward_ad.make_dual(y, sum(terms[1:], start=terms[0]))
    return y if activation == "none" else getattr(torch.nn.functional, activation)(y)


def layer(x: Tensor, weight: Tensor, index: tuple[Any, ...], bias: Tensor | None, activation: str) -> Tensor:
    """`linear`, for layers."""
    # The derivative of GELU needs its argument, which a fused product does not keep.
    separate = activation == "gelu" and torch.is_grad_enabled()
    fused = "none" if separate else activation
    if not is_eager(x, weight, bias):
        if is_in_dual_level():
            return _with_tangents(x, weight, index, bias, activation)
        y: Tensor = linear(x, weight, *index, bias, fused)
    elif torch.is_grad_enabled():
        y = _Layer.apply(prepared_for(*index), x, weight, bias, fused, *index)
    else:
        y = _linear_of(prepared_for(*index), x, weight, bias, fused)
    return torch.nn.functional.gelu(y) if separate else y


share_threads()
