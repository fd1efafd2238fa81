"""Packed tables and data sets, beside TRL's own functions."""

import warnings
from collections import Counter

import numpy as np
import pytest

from tessera import pack

pa = pytest.importorskip("pyarrow")
datasets = pytest.importorskip("datasets")


def rows_of(rng, count=400, longest=60):
    """Rows of distinct tokens, some empty, with a second column of the same lengths."""
    lengths = rng.integers(0, longest, count)
    ends = np.cumsum(lengths)
    ids = [list(range(end - length, end)) for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]
    return {"input_ids": ids, "labels": [[-token for token in row] for row in ids]}


def pieces_of(table):
    """Each piece of packed rows with its labels."""
    found = Counter()
    for ids, labels, lengths in zip(*(table[name] for name in ("input_ids", "labels", "seq_lengths")), strict=True):
        assert len(ids) == sum(lengths)
        assert labels == [-token for token in ids]
        ends = np.cumsum([0, *lengths]).tolist()
        found.update(tuple(ids[a:b]) for a, b in zip(ends, ends[1:], strict=False))
    return found


def pieces_wanted(rows, seq_length, splits):
    pieces = Counter()
    for row in rows:
        stops = range(0, len(row), seq_length) if splits else range(0, min(len(row), 1))
        pieces.update(tuple(row[i : i + seq_length]) for i in stops)
    return pieces


@pytest.mark.parametrize("type_of", [pa.list_, pa.large_list])
@pytest.mark.parametrize("strategy", ["bfd", "bfd_split"])
def test_tables(rng, type_of, strategy):
    rows = rows_of(rng)
    table = pa.table({name: pa.array(column, type_of(pa.int32())) for name, column in rows.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pack.LostTokensWarning)
        packed = pack.pack_table(table, 32, strategy)
    assert packed.schema.field("input_ids").type == type_of(pa.int32())
    assert packed.schema.field("seq_lengths").type == pa.list_(pa.int32())
    columns = packed.to_pydict()
    assert all(len(row) <= 32 for row in columns["input_ids"])
    assert pieces_of(columns) == pieces_wanted(rows["input_ids"], 32, strategy == "bfd_split")


def test_lost_tokens_are_reported(rng):
    rows = rows_of(rng)
    lost = sum(max(0, len(row) - 32) for row in rows["input_ids"])
    with pytest.warns(pack.LostTokensWarning, match=f"^{lost} tokens of"):
        pack.pack_table(pa.table(rows), 32, "bfd")


def test_wrapped_keeps_the_stream(rng):
    rows = rows_of(rng)
    packed = pack.pack_table(pa.table(rows), 32, "wrapped").to_pydict()
    assert "seq_lengths" not in packed
    assert all(len(row) == 32 for row in packed["input_ids"][:-1])
    assert [t for row in packed["input_ids"] for t in row] == [t for row in rows["input_ids"] for t in row]


@pytest.mark.parametrize("strategy", ["bfd_split", "wrapped"])
def test_slices_and_chunks(rng, strategy):
    table = pa.table(rows_of(rng))
    chunks = pa.concat_tables([table.slice(0, 7), table.slice(7, 50), table.slice(57)])
    assert pack.pack_table(chunks, 32, strategy).equals(pack.pack_table(table, 32, strategy))
    part = table.slice(30, 40)
    copied = pa.table({name: part[name].to_pylist() for name in part.column_names})
    assert pack.pack_table(part, 32, strategy).equals(pack.pack_table(copied, 32, strategy))


def test_values_of_any_type():
    table = pa.table({"words": [["a", "b", "c"], ["d"]], "some": [[1, None, 3], [4]]})
    assert pack.pack_table(table, 4).to_pydict() == {
        "words": [["a", "b", "c", "d"]],
        "some": [[1, None, 3, 4]],
        "seq_lengths": [[3, 1]],
    }


def test_empty_tables():
    empty = pa.table({"input_ids": pa.array([], pa.list_(pa.int64()))})
    assert pack.pack_table(empty, 4).num_rows == 0
    assert pack.pack_table(pa.table({"input_ids": [[], []]}).cast(empty.schema), 4).num_rows == 0
    assert pack.pack_table(empty, 4, "wrapped").num_rows in (0, 1)


@pytest.mark.parametrize(
    ("table", "arguments", "error", "message"),
    [
        ({"a": [[1]], "b": [1]}, (4,), TypeError, "column 'b' is int64"),
        ({"a": [[1]], "b": [[1, 2]]}, (4,), ValueError, "rows of column 'b' differ in length from rows of 'a'"),
        ({"a": [[1], None]}, (4,), ValueError, "without a list"),
        ({}, (4,), ValueError, "no columns"),
        ({"a": [[1]]}, (0,), ValueError, "seq_length is 0"),
        ({"a": [[1]]}, (2.5, "wrapped"), TypeError, "seq_length must be a whole number, not 2.5"),
        ({"a": [[1]]}, (4, "ffd"), ValueError, "bfd, bfd_split, wrapped"),
    ],
)
def test_bad_tables(table, arguments, error, message):
    with pytest.raises(error, match=message):
        pack.pack_table(pa.table(table), *arguments)


def test_record_batches_and_what_is_no_table():
    batch = pa.record_batch({"a": [[1, 2], [3]]})
    assert pack.pack_table(batch, 4).equals(pack.pack_table(pa.Table.from_batches([batch]), 4))
    with pytest.raises(TypeError, match="a dict cannot be packed: take a Table or RecordBatch"):
        pack.pack_table({"a": [[1]]}, 4)
    with pytest.raises(TypeError, match="a list cannot be packed: take a Dataset"):
        pack.pack_dataset([[1]], 4)
    with pytest.raises(TypeError, match="seq_length must be a whole number"):
        pack.pack_dataset(datasets.Dataset.from_dict({"a": [[1]]}), 2.5, "wrapped")


@pytest.mark.parametrize("strategy", ["bfd", "bfd_split", "wrapped"])
def test_data_sets_have_the_pieces_of_trl(rng, strategy):
    trl = pytest.importorskip("trl.data_utils")
    data = datasets.Dataset.from_dict(rows_of(rng, 3000))
    ours = pack.pack_dataset(data, 32, strategy)
    theirs = trl.pack_dataset(data, 32, strategy)
    assert ours.features == theirs.features
    if strategy == "wrapped":
        stream = [[t for row in packed["input_ids"] for t in row] for packed in (ours, theirs)]
        assert stream[0] == stream[1]
    else:
        assert pieces_of(ours[:]) == pieces_of(theirs[:])
        assert len(ours) <= len(theirs)


def test_data_sets_keep_their_format(rng):
    data = datasets.Dataset.from_dict(rows_of(rng)).with_format("numpy", columns=["input_ids"])
    packed = pack.pack_dataset(data, 64, map_kwargs={"batch_size": 50})
    assert packed.format["type"] == "numpy"
    assert packed.format["columns"] == ["input_ids", "seq_lengths"]
    both = datasets.DatasetDict({"train": data, "test": data})
    assert set(pack.pack_dataset(both, 64)) == {"train", "test"}


def assemble(shard, plan, max_length):
    """The packs of one process, by the plan for all."""
    ids = shard["input_ids"]
    lengths = np.fromiter((len(row) for row in ids), np.int64)
    index = plan.shard(pack.histogram(lengths)).index(lengths)
    ends = index.offsets.tolist()
    packs = [index.sequence[a:b].tolist() for a, b in zip(ends, ends[1:], strict=False)]
    return {
        "input_ids": [[token for i in members for token in ids[i]] for members in packs],
        "seq_lengths": [[len(ids[i]) for i in members] for members in packs],
    }


def test_one_plan_for_processes(rng):
    data = datasets.Dataset.from_dict({"input_ids": [row for row in rows_of(rng, 2000)["input_ids"] if row]})
    shards = [data.shard(2, i) for i in range(2)]
    together = sum((pack.histogram([len(r) for r in s["input_ids"]]) for s in shards), pack.Histogram())
    plan = pack.plan(together, 64)
    packed = data.map(
        assemble,
        batched=True,
        batch_size=len(data) // 2,
        num_proc=2,
        fn_kwargs={"plan": plan, "max_length": 64},
    )
    assert Counter(t for row in packed["input_ids"] for t in row) == Counter(t for row in data["input_ids"] for t in row)
    assert all(len(row) <= 64 for row in packed["input_ids"])
    assert len(packed) <= plan.packs + 30
