"""The operators `torch.ops.tessera.*` for structured matrices: products with batch-major activations.

    butterfly   (x, twiddle, out_features, increasing_stride)
    kronecker   (x, weight, a, b, c, d, out_features)
    circulant   (x, c, out_features)
    toeplitz    (x, c)
    fastfood    (x, S, G, B, P, out_features)

They compute the same as the functions of these names in `tessera.nn.formulas`, by compiled code in FP32; `x` is [...,
in_features], and results have its type. Complex butterflies have a trailing dimension of 2 in x, twiddle and result;
the `weight` of a Kronecker-sparse factor may have any shape of a · d · b · c elements. The gradients of x and the
parameters are computed by the operators `butterfly_backward(dy, x, twiddle, out_features, increasing_stride, needs_x,
needs_parameters)` and so on, and are empty where they are not needed; the derivatives of these operators follow from
the formulas.

Names and arguments are stable: checkpoints and selective activation checkpointing may refer to them.
"""

from __future__ import annotations

import atexit
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tessera import _eager
from tessera import _structured_products as products
from tessera._eager import is_eager
from tessera._operators import check_devices, implement, library
from tessera._planned import Planned
from tessera._prepared import check_real
from tessera.nn import formulas


# Not frozen: PyTorch 2.6 compiles all fields of a frozen one, and even the keys of its dictionaries.
@dataclass(eq=False)
class _Map:
    """A structured map: an operator's arguments are x, the parameters, and further arguments."""

    name: str
    #: The operator's arguments after x, as a schema declares them.
    arguments: str
    #: The number of parameters, which are the first arguments.
    parameters: int
    #: Describes the structure for x and these arguments.
    structure: Callable[..., tuple[Any, ...]]
    #: The last dimensions of the result, for x and these arguments.
    result: Callable[..., tuple[int, ...]]
    #: The product in PyTorch's operations, for x and these arguments.
    formula: Callable[..., Tensor]
    #: The values on which a product depends besides the parameters' shapes, given the other arguments.
    others: Callable[..., tuple[Any, ...]] = lambda *others: others
    #: The number of tensors, which are the first arguments.
    tensors: int = 1
    #: Whether parameters may have other shapes with the same number of elements.
    takes_any_shape: bool = False
    #: Products, by the values on which they depend.
    calls: Planned[tuple[Any, ...], products.Call] = field(default_factory=lambda: Planned(products.MOST_PRODUCTS))
    #: Products of layers: by whether there is a bias, and by `others`.
    layer_calls: Planned[tuple[Any, ...], Any] = field(default_factory=lambda: Planned(products.MOST_PRODUCTS))

    def check_sizes(self, arguments: Sequence[Any]) -> None:
        for size in arguments[self.parameters :]:
            if isinstance(size, int) and not isinstance(size, bool) and size < 1:
                raise ValueError(f"{self.name} has a size of {size}; sizes must be at least 1")

    def leading(self, x: Tensor, result: tuple[int, ...]) -> torch.Size:
        """The batch dimensions of x; x has as many further dimensions as `result`."""
        if x.dim() < len(result):
            raise ValueError(f"x has shape {tuple(x.shape)}; {self.name} needs at least {len(result)} dimensions")
        return x.shape[: x.dim() - len(result)]

    def call(self, x: Tensor, arguments: Sequence[Any], bias_shape: tuple[int, ...] | None = None) -> products.Call:
        """The product for arguments of these shapes, which were checked when it was planned."""
        count = self.parameters
        shapes = [parameter.shape for parameter in arguments[:count]]
        key = (x.shape, bias_shape, products.default_threads(), *shapes, *self.others(*arguments[count:]))
        found = self.calls.get(key)
        return found if found is not None else self._plan(key, x, arguments, bias_shape)

    def _plan(
        self, key: tuple[Any, ...], x: Tensor, arguments: Sequence[Any], bias_shape: tuple[int, ...] | None
    ) -> products.Call:
        self.check_sizes(arguments)
        result = self.result(x, *arguments)
        leading = self.leading(x, result)
        batch = leading.numel()
        product = products.product_for(self.structure(x, *arguments), batch or 1, bias_shape is not None)
        shapes = tuple(product.parameters.values())
        for parameter, shape in zip(arguments, shapes[: self.parameters], strict=False):
            if parameter.shape != shape and not (self.takes_any_shape and parameter.numel() == math.prod(shape)):
                raise ValueError(
                    f"a parameter of {self.name} has shape {tuple(parameter.shape)}; for an x of shape "
                    f"{tuple(x.shape)} it is {tuple(shape)}"
                )
        if bias_shape not in (None, result):
            raise ValueError(f"the bias has shape {bias_shape}; for {self.name} it is {result}")
        return self.calls.add(key, products.Call(product, batch, (*leading, *result)))


# The kernels.


def _forward_cpu(kind: _Map, x: Tensor, *arguments: Any) -> Tensor:
    y = kind.call(x, arguments).forward(x, arguments[: kind.parameters])
    return y if x.dtype is torch.float32 else y.to(x.dtype)


def _backward_cpu(kind: _Map, dy: Tensor, x: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    *arguments, needs_x, needs_parameters = arguments  # type: ignore[assignment]
    call = kind.call(x, arguments)
    if dy.shape != call.result:
        raise ValueError(f"dy has shape {tuple(dy.shape)}; the result of {kind.name} has {call.result}")
    return call.gradients(x, dy, arguments[: kind.parameters], needs_x, needs_parameters)


# What the compiler sees: shapes and types.


def _forward_fake(kind: _Map, x: Tensor, *arguments: Any) -> Tensor:
    check_devices(x, *arguments)
    check_real(x, *arguments[: kind.parameters])
    kind.check_sizes(arguments)
    result = kind.result(x, *arguments)
    return x.new_empty((*kind.leading(x, result), *result))


def _backward_fake(kind: _Map, dy: Tensor, x: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    check_devices(dy, x, *arguments)
    *arguments, needs_x, needs_parameters = arguments  # type: ignore[assignment]
    parameters = arguments[: kind.parameters]
    check_real(dy, x, *parameters)
    dx = x.new_empty(x.shape if needs_x else (0,))
    return dx, *(p.new_empty(p.shape if needs_parameters else (0,)) for p in parameters)


# Derivatives.


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*(each for each in inputs if isinstance(each, Tensor)))
    ctx.others = [None if isinstance(each, Tensor) else each for each in inputs]


def _derivative(derivative: Callable[..., tuple[Tensor | None, ...]]) -> Callable[..., tuple[Tensor | None, ...]]:
    """The derivative of an operator with saved arguments."""

    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        tensors = iter(ctx.saved_tensors)
        arguments = [next(tensors) if other is None else other for other in ctx.others]
        return derivative(arguments, ctx.needs_input_grad[:-1], *gradients)

    return backward


def _first_derivative(
    kind: _Map, inputs: Sequence[Any], needed: Sequence[bool], dy: Tensor
) -> tuple[Tensor | None, ...]:
    x, *arguments = inputs
    needs_x, *needs = needed[: 1 + kind.parameters]
    backward = getattr(torch.ops.tessera, f"{kind.name}_backward").default
    dx, *gradients = backward(dy, x, *arguments, needs_x, any(needs))
    of_parameters = (g if wanted else None for g, wanted in zip(gradients, needs, strict=True))
    return dx if needs_x else None, *of_parameters, *([None] * (len(arguments) - kind.parameters))


def _second_derivative(
    kind: _Map, inputs: Sequence[Any], needed: Sequence[bool], g_dx: Tensor, *g_parameters: Tensor
) -> tuple[Tensor | None, ...]:
    dy, x, *arguments, needs_x, needs_parameters = inputs
    tensors, others = (dy, x, *arguments[: kind.parameters]), arguments[kind.parameters :]
    wanted = [*([0] if needs_x else []), *(range(1, len(tensors) - 1) if needs_parameters else [])]
    # Like the kernels, whose operands may have different types, compute at least in FP32.
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)

    def first(*given: Tensor) -> tuple[Tensor, ...]:
        dy, *operands = (each.to(dtype) for each in given)
        gradients = torch.func.vjp(lambda *each: kind.formula(*each, *others), *operands)[1](dy)
        return tuple(gradients[i] for i in wanted)

    directions = tuple((g_dx, *g_parameters)[i].to(dtype) for i in wanted)
    found = torch.func.vjp(first, *tensors)[1](directions)
    return *found, *([None] * (len(arguments) - kind.parameters + 2))


# Autocast: results have 16 bits, as with nn.Linear; parameters are not converted.


def _autocast(operator: Any, x: Tensor, *arguments: Any) -> Tensor:
    check_real(x)
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
        y: Tensor = operator(x.to(torch.get_autocast_dtype("cpu")), *arguments)
        return y


# The maps.


def _butterfly_result(x: Tensor, twiddle: Tensor, out_features: int, increasing_stride: bool) -> tuple[int, ...]:
    if not 4 <= twiddle.dim() <= 7 or (products.is_complex_butterfly(twiddle) and x.shape[-1] != 2):
        raise ValueError(
            f"twiddle has shape {tuple(twiddle.shape)}, and x {tuple(x.shape)}; twiddle is [stacks, blocks, log N, "
            "N/2, 2, 2], or tied [stacks, N - 1, 2, 2]; complex x and twiddle have another dimension of 2 at the end"
        )
    return (out_features, 2) if products.is_complex_butterfly(twiddle) else (out_features,)


def _butterfly_formula(x: Tensor, twiddle: Tensor, out_features: int, increasing_stride: bool) -> Tensor:
    if not products.is_complex_butterfly(twiddle):
        return formulas.butterfly(x, twiddle, out_features, increasing_stride=increasing_stride)
    z, factors = torch.view_as_complex(x.contiguous()), torch.view_as_complex(twiddle)
    return torch.view_as_real(formulas.butterfly(z, factors, out_features, increasing_stride=increasing_stride))


def _kronecker_formula(x: Tensor, weight: Tensor, a: int, b: int, c: int, d: int, out_features: int) -> Tensor:
    return formulas.kronecker(x, weight.reshape(a, d, b, c), out_features)


def _toeplitz_result(x: Tensor, c: Tensor) -> tuple[int, ...]:
    outputs = c.shape[0] - x.shape[-1] + 1
    torch._check(outputs > 0, lambda: f"c has {c.shape[0]} elements, fewer than the {x.shape[-1]} inputs")
    return (outputs,)


def _out_features(*arguments: Any) -> tuple[int, ...]:
    return (arguments[-1],)


_MAPS = (
    _Map(
        name="butterfly",
        arguments="Tensor twiddle, SymInt out_features, bool increasing_stride",
        parameters=1,
        structure=products.butterfly,
        result=_butterfly_result,
        formula=_butterfly_formula,
    ),
    _Map(
        name="kronecker",
        arguments="Tensor weight, SymInt a, SymInt b, SymInt c, SymInt d, SymInt out_features",
        parameters=1,
        structure=products.kronecker,
        result=_out_features,
        formula=_kronecker_formula,
        takes_any_shape=True,
    ),
    _Map(
        name="circulant",
        arguments="Tensor c, SymInt out_features",
        parameters=1,
        structure=products.circulant,
        result=_out_features,
        formula=formulas.circulant,
    ),
    _Map(
        name="toeplitz",
        arguments="Tensor c",
        parameters=1,
        structure=products.toeplitz,
        result=_toeplitz_result,
        formula=formulas.toeplitz,
    ),
    _Map(
        name="fastfood",
        arguments="Tensor S, Tensor G, Tensor B, Tensor P, SymInt out_features",
        parameters=3,
        structure=products.fastfood,
        result=_out_features,
        formula=formulas.fastfood,
        others=lambda P, out_features: (products.permutation_of(P), out_features),
        tensors=4,
    ),
)


def _define(kind: _Map) -> None:
    results = ", ".join(["Tensor"] * (1 + kind.parameters))
    tags = (torch.Tag.pt2_compliant_tag,)
    backward = f"{kind.name}_backward"
    library.define(f"{kind.name}(Tensor x, {kind.arguments}) -> Tensor", tags=tags)
    library.define(
        f"{backward}(Tensor dy, Tensor x, {kind.arguments}, bool needs_x, bool needs_parameters) -> ({results})",
        tags=tags,
    )
    for name, cpu, fake, derivative in (
        (kind.name, _forward_cpu, _forward_fake, _first_derivative),
        (backward, _backward_cpu, _backward_fake, _second_derivative),
    ):
        implement(name, partial(cpu, kind), partial(fake, kind), _save, _derivative(partial(derivative, kind)))
    operator = getattr(torch.ops.tessera, kind.name).default
    library.impl(kind.name, partial(_autocast, operator), "AutocastCPU")


# Layers have a bias, and skip the dispatcher and Python where these have nothing to do.


class _Layer(torch.autograd.Function):
    """Records a layer's result, which is already computed, for autograd."""

    @staticmethod
    def forward(
        ctx: Any, state: tuple[Any, ...], y: list[Tensor], bias: Tensor | None, x: Tensor, *tensors: Tensor
    ) -> Tensor:
        ctx.state = state
        ctx.bias_shape = None if bias is None else bias.shape
        ctx.save_for_backward(x, *tensors)
        return y.pop()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        kind, calls, others = ctx.state
        saved, needed = ctx.saved_tensors, ctx.needs_input_grad[2:]
        if not (torch.compiler.is_compiling() or torch.is_grad_enabled()):
            found = calls.gradients(dy, saved, needed)
            if found is not None:
                return None, None, *found
        of_map = _first_derivative(kind, (*saved, *others), needed[1:], dy)
        db = dy.reshape(-1, *ctx.bias_shape).sum(0) if needed[0] else None
        return None, None, db, *of_map[: len(saved)]


def _layer(kind: _Map) -> Callable[..., Tensor]:
    operator, count, parameters = getattr(torch.ops.tessera, kind.name).default, kind.tensors, kind.parameters
    transforms = torch._C._are_functorch_transforms_active

    def layer(bias: Tensor | None, x: Tensor, *arguments: Any) -> Tensor:
        if _eager.reader is None or torch.compiler.is_compiling() or transforms():
            return with_dispatcher(bias, x, arguments)
        key = (bias is None, *kind.others(*arguments[parameters:]))
        calls = kind.layer_calls.get(key)
        tensors = arguments[:count]
        y = None if calls is None else calls.forward(x, tensors, bias)
        if y is None:
            calls = _plan_layer(kind, key, bias, x, arguments)
            if calls is None:
                return with_dispatcher(bias, x, arguments)
            y = calls.forward(x, tensors, bias)
        if torch.is_grad_enabled():
            y = _Layer.apply((kind, calls, arguments[count:]), [y], bias, x, *tensors)
        return y  # type: ignore[no-any-return]

    def with_dispatcher(bias: Tensor | None, x: Tensor, arguments: tuple[Any, ...]) -> Tensor:
        y: Tensor = operator(x, *arguments)
        return y if bias is None else y.add_(bias)

    return layer


def _plan_layer(kind: _Map, key: tuple[Any, ...], bias: Tensor | None, x: Tensor, arguments: tuple[Any, ...]) -> Any:
    """Plan the product for a layer's arguments; None: the call has to go through the dispatcher."""
    tensors = [each for each in (*arguments[: kind.parameters], bias) if each is not None]
    if not is_eager(x, *tensors) or any(
        each.dtype is not torch.float32 or not each.is_contiguous() for each in (x, *tensors)
    ):
        return None
    call = kind.call(x, arguments, None if bias is None else tuple(bias.shape))
    if not call.batch:
        return None
    calls = kind.layer_calls.get(key)
    if calls is None:
        calls = kind.layer_calls.add(key, products.layer_calls(kind.parameters, bias is not None))
    calls.add(call.native, tuple(x.shape), call.result, [tuple(each.shape) for each in tensors])
    return calls


for _kind in _MAPS:
    _define(_kind)
    atexit.register(_kind.calls.clear)
    atexit.register(_kind.layer_calls.clear)

#: Each takes a bias, or None, and its operator's arguments.
butterfly, kronecker, circulant, toeplitz, fastfood = (_layer(kind) for kind in _MAPS)
