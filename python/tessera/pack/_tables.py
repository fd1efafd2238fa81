"""Packed tables of PyArrow and data sets of Hugging Face, instead of TRL's functions."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from tessera import _tessera
from tessera._arguments import chosen
from tessera.pack._plan import Overlong, index

if TYPE_CHECKING:
    import pyarrow as pa

Strategy: TypeAlias = Literal["bfd", "bfd_split", "wrapped"]
DatasetType = TypeVar("DatasetType")

_OVERLONG: dict[str, Overlong] = {"bfd": "truncate", "bfd_split": "split"}


class LostTokensWarning(UserWarning):
    """Tokens beyond `seq_length` were dropped."""


def pack_table(table: pa.Table | pa.RecordBatch, seq_length: int, strategy: Strategy = "bfd") -> pa.Table:
    """Pack the rows of a table whose columns are lists of tokens.

    "bfd" truncates rows that are longer than `seq_length` and warns of the tokens lost; "bfd_split" packs their
    remainders elsewhere. Both are best-fit decreasing, leave out empty rows, and add a column `seq_lengths` with the
    tokens of each piece. "wrapped" cuts the stream of all rows into rows of `seq_length`. Raises TypeError for
    arguments that are not tables and columns that are not lists, ValueError for columns whose rows differ in length or
    are null.
    """
    import pyarrow as pa

    seq_length = _checked(seq_length, strategy)
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise TypeError(f"a {type(table).__name__} cannot be packed: take a Table or RecordBatch of PyArrow")
    columns = [_combined(table, name) for name in table.column_names]
    if not columns:
        raise ValueError("the table has no columns to pack")
    lengths = _lengths_of(columns[0])
    for name, column in zip(table.column_names[1:], columns[1:], strict=True):
        if not np.array_equal(_lengths_of(column), lengths):
            raise ValueError(f"rows of column {name!r} differ in length from rows of {table.column_names[0]!r}")
    if strategy == "wrapped":
        total = int(lengths.sum())
        ends = np.append(np.arange(0, total, seq_length), total)
        return pa.Table.from_arrays([_lists(c, c.flatten(), ends) for c in columns], names=table.column_names)

    row_begin = prefix_sums(lengths)
    rows = np.flatnonzero(lengths)
    packs = index(lengths[rows], seq_length, "lpfhp", overlong=_OVERLONG[strategy])
    if packs.lost_tokens:
        warnings.warn(
            f"{packs.lost_tokens} tokens of {packs.plan.overlong_sequences} rows longer than {seq_length} are lost; "
            "strategy 'bfd_split' keeps them",
            LostTokensWarning,
            stacklevel=2,
        )
    begin = row_begin[rows[packs.sequence]] + (0 if packs.begin is None else packs.begin)
    pieces = packs.lengths_of(lengths[rows]).astype(np.int64)
    ends = prefix_sums(pieces)[packs.offsets]
    packed = [_lists(column, _gathered(column.flatten(), begin, pieces), ends) for column in columns]
    of_pieces = pa.ListArray.from_arrays(pa.array(packs.offsets.astype(np.int32)), pa.array(pieces.astype(np.int32)))
    return pa.Table.from_arrays([*packed, of_pieces], names=[*table.column_names, "seq_lengths"])


def pack_dataset(
    dataset: DatasetType,
    seq_length: int,
    strategy: Strategy = "bfd",
    map_kwargs: dict[str, Any] | None = None,
) -> DatasetType:
    """Pack the rows of a data set (or of each of a DatasetDict), as TRL's function of this name does.

    `map_kwargs` are arguments of `Dataset.map`. Rows are packed in batches of `batch_size`, 100,000 by default.
    """
    source: Any = dataset
    seq_length = _checked(seq_length, strategy)
    if not hasattr(source, "with_format") or not hasattr(source, "map"):
        raise TypeError(f"a {type(source).__name__} cannot be packed: take a Dataset or DatasetDict of `datasets`")
    formats = _formats_of(source)
    packed = source.with_format("arrow").map(
        pack_table,
        batched=True,
        fn_kwargs={"seq_length": seq_length, "strategy": strategy},
        **{"batch_size": 100_000, **(map_kwargs or {})},
    )
    return _with_formats(packed, formats, [] if strategy == "wrapped" else ["seq_lengths"])  # type: ignore[no-any-return]


def _checked(seq_length: int, strategy: str) -> int:
    chosen("strategy", strategy, get_args(Strategy))
    return _tessera.whole_number("seq_length", seq_length, 1)


def _combined(table: pa.Table, name: str) -> Any:
    """Return a column as one array of lists."""
    import pyarrow as pa

    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        raise TypeError(f"column {name!r} is {column.type}; only columns of lists can be packed: remove it first")
    if column.null_count:
        raise ValueError(f"column {name!r} has rows without a list; remove them first")
    return column


def _lengths_of(column: Any) -> NDArray[np.int64]:
    offsets: NDArray[np.int64] = column.offsets.to_numpy().astype(np.int64)
    return np.diff(offsets)


def prefix_sums(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of the lengths before each one, and the sum of all lengths."""
    sums = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=sums[1:])
    return sums


def _lists(like: Any, values: Any, ends: NDArray[Any]) -> Any:
    """Return an array of lists of the type of another, from its values and where they end."""
    offsets = ends.astype(like.offsets.type.to_pandas_dtype())
    return type(like).from_arrays(offsets, values, type=like.type)


def _gathered(values: Any, begin: NDArray[np.int64], length: NDArray[np.int64]) -> Any:
    """Return values[begin : begin + length] of all pieces, one after another."""
    import pyarrow as pa

    is_plain = pa.types.is_primitive(values.type) and not pa.types.is_boolean(values.type)
    if is_plain and values.null_count == 0 and not pa.types.is_temporal(values.type):
        return pa.array(_tessera.gather(values.to_numpy(), begin, length), values.type)
    starts = prefix_sums(length)
    places = np.repeat(begin - starts[:-1], length) + np.arange(starts[-1])
    return values.take(pa.array(places))


def _formats_of(dataset: Any) -> Any:
    if isinstance(dataset, dict):
        return {name: _formats_of(part) for name, part in dataset.items()}
    known = getattr(dataset, "format", None)
    return dict(known) if isinstance(known, dict) else None


def _with_formats(dataset: Any, formats: Any, added: list[str]) -> Any:
    """Give a data set its former format, with the new columns added."""
    if isinstance(dataset, dict):
        return type(dataset)({name: _with_formats(part, formats[name], added) for name, part in dataset.items()})
    if formats is None:
        return dataset.with_format(None)
    columns = [*(name for name in formats["columns"] if name in dataset.column_names), *added]
    return dataset.with_format(formats["type"], columns=columns, **formats["format_kwargs"])
