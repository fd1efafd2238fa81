"""Derivatives of operators, with less overhead than PyTorch's `register_autograd`, and for `torch.func` too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd.function import _SingleLevelFunction

from tessera._eager import kernel_is_next

_C = torch._C


def differentiable(
    operator: Any,
    kernel: Callable[..., Any],
    setup: Callable[..., None],
    derivative: Callable[..., tuple[Tensor | None, ...]],
) -> Callable[..., Any]:
    """The operator above autograd, for `library.impl(…, "Autograd", with_keyset=True)`.

    `kernel` is the CPU kernel; `setup(ctx, inputs, output)` and `derivative(ctx, *gradients)` are as for PyTorch's
    `register_autograd`, which takes 20 µs longer per call and does not support `torch.func`.
    """

    def below(keyset: Any, *arguments: Any) -> Any:
        """The operator without autograd: its kernel, if the dispatcher would call the kernel next."""
        with _C._AutoDispatchBelowAutograd():
            if kernel_is_next(keyset):
                return kernel(*arguments)
            return operator.redispatch(keyset, *arguments)

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            *inputs, keyset = arguments
            result = below(keyset, *inputs)
            setup(ctx, tuple(inputs), result)
            return result

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
            return *derivative(ctx, *gradients), None

    class Transformed(_SingleLevelFunction):
        """The operator at one level of nested transforms."""

        @staticmethod
        def forward(*arguments: Any) -> Any:
            *inputs, keyset = arguments
            with torch.enable_grad():  # for the levels below, as `apply` disables it
                return below(keyset, *inputs)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            setup(ctx, inputs[:-1], output)

        backward = Function.backward

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            raise NotImplementedError(
                f"{operator} has no forward derivatives (jvp, jacfwd, hessian): use grad, vjp or jacrev"
            )

    def above_autograd(keyset: Any, *arguments: Any) -> Any:
        keyset = keyset & _C._after_autograd_keyset
        if _C._are_functorch_transforms_active():
            # The dispatcher goes through the transforms one by one; torch.autograd.Function would begin again. Calls
            # without gradients go this way too, as it refuses forward derivatives.
            with enable_single_level_autograd_function():
                return Transformed.apply(*arguments, keyset)  # type: ignore[attr-defined]
        if torch.is_grad_enabled():
            for each in arguments:
                if isinstance(each, Tensor) and each.requires_grad:
                    return Function.apply(*arguments, keyset)
        return below(keyset, *arguments)

    return above_autograd
