"""Butterflies: products of log₂ N factors of 2 × 2 matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tessera import _structured as operators
from tessera._arguments import chosen
from tessera._prepared import check_real
from tessera._tessera import whole_number
from tessera.nn import _transforms, formulas
from tessera.nn._structured import StructuredLinear, checked_input, lr_scale, reordered

_INITS = ("randn", "ortho", "identity", "hadamard", "fft_no_br", "ifft_no_br", "dft", "idft", "dct", "empty")
_COMPLEX_INITS = ("fft_no_br", "ifft_no_br", "dft", "idft", "dct")
_REAL_TYPES = {torch.complex64: torch.float32, torch.complex128: torch.float64}


class ButterflyLinear(StructuredLinear):
    """A layer whose weight is a butterfly: a product of log₂ N factors, each of N/2 matrices 2 × 2 (Dao et al. 2019).

    N is the power of two that holds the inputs; for more outputs, butterflies of the same input are stacked. The
    parameter `twiddle` is laid out as in torch_butterfly: [stacks, nblocks, log₂ N, N/2, 2, 2] in order of application,
    where `nblocks` butterflies alternate between increasing and decreasing strides. `tied` shares matrices among the
    groups of a stride: [stacks, N - 1, 2, 2], by stride. A `complex` layer takes and returns complex values, and its
    parameters have a trailing dimension of 2.

    `init` is "randn", "ortho" (rotations and reflections; unitary), "identity", "hadamard", "fft_no_br" or "ifft_no_br"
    (Fourier transforms without their permutation), "dft", "idft" or "dct" (transforms with their permutation; the DCT
    is the real part of the result), or the values of `twiddle`. Transforms are orthogonal or unitary.

    `permutation` reorders the inputs first: "bit_reversal" of all N, zeros at the end included, or indices of the
    inputs. Two layers with permutations in sequence make the more expressive BPBP.
    """

    twiddle: nn.Parameter
    permutation: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        complex: bool = False,
        tied: bool = False,
        increasing_stride: bool = True,
        nblocks: int = 1,
        init: str | Tensor = "randn",
        permutation: str | Tensor | Sequence[int] | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, device)
        if whole_number("nblocks", nblocks, 1) > 1 and tied:
            raise ValueError(f"nblocks is {nblocks}; it must be 1 for tied factors")
        self.complex, self.tied, self.increasing_stride, self.nblocks = complex, tied, increasing_stride, nblocks
        levels = _transforms.levels_for(in_features)
        self.size = 1 << levels
        self.stacks = -(-out_features // self.size)
        shape = [self.stacks, self.size - 1, 2, 2]
        if not tied:
            shape = [self.stacks, nblocks, levels, self.size // 2, 2, 2]
        pair = [2] if complex else []
        self.twiddle = nn.Parameter(torch.empty(shape + pair, dtype=dtype))
        self._add_bias(bias, dtype, out_features, *pair)
        if isinstance(init, str):
            self.init = chosen("init", init, _INITS)
            self._check_init(permutation)
        else:
            self.init = "empty"
            self._assign(init)
        self.register_buffer("permutation", self._permutation(permutation))
        self.reset_parameters()

    def _check_init(self, permutation: str | Tensor | Sequence[int] | None) -> None:
        if self.init in _COMPLEX_INITS and not self.complex:
            raise ValueError(f"init {self.init!r} needs complex=True")
        if self.init in ("dft", "idft", "dct"):
            if self.in_features not in (1, self.size):
                raise ValueError(f"init {self.init!r} is for powers of two, not for {self.in_features} inputs")
            if permutation is not None or not self.increasing_stride or self.nblocks != 1:
                raise ValueError(f"init {self.init!r} sets the permutation; strides increase, in one block")

    def _permutation(self, given: str | Tensor | Sequence[int] | None) -> Tensor | None:
        if self.init == "dct":
            return _transforms.cosine_order(self.size)
        if self.init in ("dft", "idft"):
            return _transforms.bit_reversal(self.size)
        if isinstance(given, str):
            chosen("permutation", given, ("bit_reversal",))
            return _transforms.bit_reversal(self.size)
        if given is None:
            return None
        return _transforms.checked_permutation(given, (self.in_features,))

    def reset_parameters(self) -> None:
        """Initialise the layer again, as when it was made; given values of `twiddle` stay."""
        self._reset_bias()
        if self.init == "randn":
            nn.init.normal_(self.twiddle, std=0.5 if self.complex else math.sqrt(0.5))
        elif self.init == "ortho":
            self._assign(_random_unitary(self._matrices(), self.complex))
        elif self.init != "empty":
            self._assign(self._transform())

    def _matrices(self) -> torch.Size:
        """The shape of `twiddle` without the two dimensions of a matrix."""
        return self.twiddle.shape[:-3] if self.complex else self.twiddle.shape[:-2]

    def _transform(self) -> Tensor:
        levels = self.size.bit_length() - 1
        if self.init == "identity" or self.in_features == 1:  # all transforms of one feature are identities
            factors = _transforms.identity_factors(levels)
        elif self.init == "hadamard":
            factors = _transforms.hadamard_factors(levels)
        elif self.init == "dct":
            factors = _transforms.cosine_factors(levels)
        else:
            factors = _transforms.fourier_factors(levels, inverse=self.init.startswith("i"))
        first = self._of_block(factors if self.increasing_stride else _transforms.transposed(factors), 0)
        if self.nblocks == 1:
            return first
        rest = [self._of_block(_transforms.identity_factors(levels), block) for block in range(1, self.nblocks)]
        return torch.cat((first, *(block.to(first.dtype) for block in rest)), 1)

    def _of_block(self, factors: list[Tensor], block: int) -> Tensor:
        twiddle = _transforms.twiddle_of(factors, self.stacks, tied=self.tied)
        increases = self.increasing_stride == (block % 2 == 0)
        return twiddle if self.tied or increases else twiddle.flip(2)

    @torch.no_grad()
    def _assign(self, values: Tensor) -> None:
        if self.complex and (values.is_complex() or values.dim() < self.twiddle.dim()):
            pairs = values if values.is_complex() else torch.complex(values, torch.zeros_like(values))
            values = torch.view_as_real(pairs)
        if values.shape != self.twiddle.shape:
            raise ValueError(f"init has shape {tuple(values.shape)}; twiddle is {tuple(self.twiddle.shape)}")
        self.twiddle.copy_(values)

    def forward(self, x: Tensor) -> Tensor:
        if not self.complex:
            return super().forward(x)
        if not x.is_complex():
            x = _checked_parts(x)
            x = torch.complex(x, torch.zeros_like(x))
        return torch.view_as_complex(super().forward(x))

    def _product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        permutation = self._buffers.get("permutation")
        if permutation is not None:
            x = reordered(x, permutation)
        if self.complex:
            x = torch.view_as_real(x)
        return operators.butterfly(bias, x, self.twiddle, self.out_features, self.increasing_stride)

    def reference(self, x: Tensor) -> Tensor:
        y = self._formula(checked_input(x, self.in_features))
        if self.bias is None:
            return y
        return y + (_as_complex(self.bias, y.dtype) if self.complex else self.bias.to(y.dtype))

    def _formula(self, x: Tensor) -> Tensor:
        if self.permutation is not None:
            x = reordered(x, self.permutation)
        twiddle = self.twiddle.to(x.dtype) if not self.complex else _as_complex(self.twiddle, x.dtype)
        return formulas.butterfly(x, twiddle, self.out_features, increasing_stride=self.increasing_stride)

    def dense_weight(self) -> Tensor:
        if not self.complex:
            return super().dense_weight()
        with torch.no_grad():
            columns = self._formula(torch.eye(self.in_features, dtype=torch.complex128)).t()
            return torch.view_as_complex(torch.view_as_real(columns).to(self.twiddle.dtype).contiguous())

    def to_dense(self) -> nn.Linear:
        if not self.complex:
            return super().to_dense()
        weight = self.dense_weight()
        linear = nn.Linear(self.in_features, self.out_features, self.bias is not None, dtype=weight.dtype)
        linear.weight.data = weight
        if self.bias is not None:
            linear.bias.data.copy_(torch.view_as_complex(self.bias.detach()))
        return linear.train(self.training)

    def lr_scales(self) -> Mapping[str, float]:
        factors = self.nblocks * (self.size.bit_length() - 1)
        return {"twiddle": lr_scale(self.in_features, 2, factors)}

    def extra_repr(self) -> str:
        parts = [super().extra_repr(), f"complex={self.complex}, tied={self.tied}, nblocks={self.nblocks}"]
        return ", ".join([*parts, f"increasing_stride={self.increasing_stride}, init={self.init}"])

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        if self.permutation is not None:  # other implementations do not save it
            state_dict.setdefault(prefix + "permutation", self.permutation)
        for name in ("twiddle", "bias"):
            value = state_dict.get(prefix + name)
            if isinstance(value, Tensor) and value.is_complex():
                state_dict[prefix + name] = torch.view_as_real(value)
        super()._load_from_state_dict(state_dict, prefix, *arguments)


def _checked_parts(x: Tensor) -> Tensor:
    """Real parts of a type that has complex numbers."""
    check_real(x)
    return x.float() if x.dtype is torch.bfloat16 else x


def _as_complex(pairs: Tensor, like: torch.dtype) -> Tensor:
    return torch.view_as_complex(pairs.to(_REAL_TYPES.get(like, like)))


def _random_unitary(shape: torch.Size, complex: bool) -> Tensor:
    """Random 2 × 2 matrices, uniform among the orthogonal or unitary ones."""
    if not complex:
        angle = torch.rand(shape, dtype=torch.float64) * (2 * math.pi)
        sign = torch.randint(0, 2, shape).double() * 2 - 1
        cos, sin = angle.cos(), angle.sin()
        return torch.stack((torch.stack((sign * cos, -sign * sin), -1), torch.stack((sin, cos), -1)), -2)
    phi = torch.rand(shape, dtype=torch.float64).sqrt().asin()
    alpha, psi, chi = torch.rand((3, *shape), dtype=torch.float64) * (2 * math.pi)
    first = torch.stack((torch.polar(phi.cos(), alpha + psi), torch.polar(phi.sin(), alpha + chi)), -1)
    second = torch.stack((-torch.polar(phi.sin(), alpha - chi), torch.polar(phi.cos(), alpha - psi)), -1)
    return torch.stack((first, second), -2)
