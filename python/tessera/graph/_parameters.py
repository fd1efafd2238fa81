"""Types and parameters of PyTorch's modules as types and parameters of graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from tessera._matrices import Matrix
from tessera._prepared import STORED_TYPES
from tessera.graph._graph import Graph
from tessera.graph._values import Value

INTEGER_TYPES = {torch.int64: "i32", torch.int32: "i32", torch.uint32: "u32"}
#: The most groups of a batched product that become separate products, each an operation to compile: more groups than
#: models have experts. Predictions decide whether separate products pay.
_MOST_GROUPS = 1024


def type_of(dtype: torch.dtype | None, *, allow_integers: bool = False) -> str:
    """The library's name of a type; truth values are numbers. Raises ValueError for other types."""
    if allow_integers and dtype in INTEGER_TYPES:
        return INTEGER_TYPES[dtype]
    if dtype == torch.bool:
        return "f32"
    if dtype not in STORED_TYPES:
        raise ValueError(f"values of {dtype} are not possible: use float32, float16 or bfloat16")
    return STORED_TYPES[dtype]


class Groups(NamedTuple):
    """The groups of a convolution whose weight is [out, taps · channels per group]."""

    groups: int
    taps: int


class Weights(Protocol):
    """Decides in which form the weights of products are kept."""

    def form_of(
        self, name: str, weight: Tensor, rows: int, copy: str | None = None, of: Groups | None = None
    ) -> Matrix | None:
        """The sparse form of a weight [out, in], whose product has `rows` rows; None: dense.

        `copy` is the name of the form if other operations take the weight dense. A weight of a convolution in groups
        has all channels in this form.
        """

    def forms_of(self, names: Sequence[str], weights: Sequence[Tensor], rows: int) -> list[Matrix] | None:
        """The sparse forms of weights [out, in], of products of `rows` rows each; None: not all become sparse."""

    def note(self, name: str, matrix: Matrix, rows: int, dtype: torch.dtype) -> None:
        """Record a weight that is sparse already."""

    def leave(self, name: str, weight: Tensor, rows: int, reason: str) -> None:
        """Record a weight that stays dense; its product has `rows` rows (0: it is no product's weight)."""

    def name_of(self, name: str, weight: Tensor) -> str:
        """The name of a computed weight: the given name, unless another weight has it, as for other input sizes."""

    def name_of_parameter(self, name: str, contents: int | None, is_free: Callable[[str], bool]) -> str:
        """The name of a parameter of a whole graph, by its contents; None: the weight of this name, unchanged."""


class Parameter:
    """A parameter of the module, or, for inference, a weight that is computed only from parameters and constants."""

    def __init__(self, graph: Graph, name: str, tensor: Tensor, weights: Weights | None = None) -> None:
        self.name = name
        self.tensor = tensor.detach()
        self._trains = tensor.requires_grad
        self._graph = graph
        self._value: Value | None = None
        #: Decides its form; None: it keeps the module's form.
        self.weights = weights
        self._transposed: Value | None = None
        self._matrix: Value | None = None
        #: Forms for products only, by name; None: products take the same form as other operations.
        self._copies: dict[str, Value | None] = {}
        #: The weights of groups, by whether matrices are transposed; None: the groups stay together.
        self._groups: dict[bool, list[Value] | None] = {}
        #: Whether only products and convolutions take it, in any one order of its elements, and embeddings, if products
        #: take it in its own order.
        self.is_weight = True
        #: The rows of its first product, if embeddings take it too; None: there are no products or no embeddings.
        self.table_rows: int | None = None
        #: Whether only batched products take it, as the weights of their groups.
        self.is_stack = True
        #: Whether its zeros decided its form, or the form of a copy.
        self.is_decided = False
        #: Whether products take only parts of it, which are separate parameters.
        self.is_divided = False

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape) if self._value is None else self._value.shape

    @property
    def dtype(self) -> str:
        return type_of(self.tensor.dtype)

    def weight(self, rows: int, *, transposed: bool = False) -> Value:
        """Its value as [out, in], for products of `rows` rows; `transposed`: the parameter is [in, out]."""
        if not self.is_weight and (copy := self.sparse_copy(rows, transposed=transposed)) is not None:
            return copy
        value = self._transposed if transposed else self._value
        if value is not None or self.weights is None or not self.is_weight:
            return value or self.value()
        tensor, name = self._as_weight(transposed)
        self.is_decided = True
        matrix = self.weights.form_of(name, tensor, rows)
        if matrix is not None:
            value = self._graph.sparse_parameter(name, matrix, dtype=self.dtype)
        else:
            value = self._graph.parameter(name, initial=tensor.float().contiguous().numpy(), dtype=self.dtype)
        if transposed:
            self._transposed = value
        else:
            self._value = value
        return value

    def table(self) -> Value:
        """Its value as embeddings take it: the value of products that take it unchanged, if there are any."""
        return self.value() if self.table_rows is None else self.weight(self.table_rows)

    def sparse_copy(self, rows: int, *, transposed: bool = False) -> Value | None:
        """A form for products only, where other operations take it dense; None: the form does not pay."""
        if self.weights is None or self.tensor.dim() != 2:
            return None
        tensor, name = self._as_weight(transposed)
        copy = f"{name}.sparse"
        if copy not in self._copies:
            self.is_decided = True
            matrix = self.weights.form_of(name, tensor, rows, copy)
            sparse = None if matrix is None else self._graph.sparse_parameter(copy, matrix, dtype=self.dtype)
            self._copies[copy] = sparse
        return self._copies[copy]

    def left_factor(self, rows: int, *, transposed: bool = False) -> Value | None:
        """Its form as the first factor of a product with `rows` columns; None: there is no separate form."""
        if self.weights is None or self.tensor.dim() != 2:
            return None
        if not self.is_weight:
            return self.sparse_copy(rows, transposed=transposed)
        return self.weight(rows, transposed=transposed)

    def groups(self, rows: int, *, transposed: bool) -> list[Value] | None:
        """The weights of groups of `rows` rows each, if all become sparse; `transposed`: the matrices are [in, out]."""
        count = self.tensor.shape[0] if self.tensor.dim() == 3 else 0
        if self.weights is None or not self.is_stack or not 1 <= count <= _MOST_GROUPS:
            return None
        if transposed not in self._groups:
            end = ".transposed" if transposed else ""
            names = [f"{self.name}[{i}]{end}" for i in range(count)]
            matrices = self.weights.forms_of(names, list(self.tensor.mT if transposed else self.tensor), rows)
            self._groups[transposed] = None if matrices is None else self._sparse_parameters(names, matrices)
            self.is_divided = matrices is not None
        return self._groups[transposed]

    def _sparse_parameters(self, names: Sequence[str], matrices: Sequence[Matrix]) -> list[Value]:
        pairs = zip(names, matrices, strict=True)
        return [self._graph.sparse_parameter(name, matrix, dtype=self.dtype) for name, matrix in pairs]

    def _as_weight(self, transposed: bool) -> tuple[Tensor, str]:
        return (self.tensor.t(), f"{self.name}.transposed") if transposed else (self.tensor, self.name)

    def as_matrix(self, matrix: Tensor, rows: int, of: Groups | None = None, *, may_be_sparse: bool = True) -> Value:
        """Its value as the matrix [out, in] of a convolution, kept in the order of its channels and taps."""
        if self._matrix is not None:
            return self._matrix
        is_chosen = may_be_sparse and self.weights is not None
        self.is_decided = is_chosen
        chosen = None
        if is_chosen and self.weights is not None:
            chosen = self.weights.form_of(self.name, matrix, rows, of=of)
        if chosen is not None:
            self._matrix = self._graph.sparse_parameter(self.name, chosen, dtype=self.dtype)
        else:
            values = matrix.float().contiguous().numpy()
            self._matrix = self._graph.parameter(self.name, initial=values, dtype=self.dtype)
            self._note()
        return self._matrix

    def value(self, shape: Sequence[int] | None = None) -> Value:
        """Its value, in the shape in which it is first used."""
        if self._value is None:
            values = self.tensor.float().numpy()
            values = values if shape is None else values.reshape(tuple(shape))
            self._value = self._graph.parameter(self.name, initial=values, dtype=type_of(self.tensor.dtype))
            self._note()
        return self._value

    def sparse(self, matrix: Matrix, capacity: int | None) -> Value:
        if self._value is None:
            self._value = self._graph.sparse_parameter(
                self.name,
                matrix,
                dynamic=False if capacity is None else capacity,
                dtype=type_of(self.tensor.dtype),
            )
            self._note()
        return self._value

    def _note(self) -> None:
        if not self._trains:
            self._graph.freeze(self.name)
