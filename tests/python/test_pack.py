"""Sequence packing: plans, indices, shards, boundaries."""

import json
import pickle
from collections import Counter

import numpy as np
import pytest

from tessera import pack


@pytest.fixture
def lengths(rng):
    return rng.integers(1, 129, 5000)


def contents_of(index, lengths):
    """Check that no pack overflows and entries follow one another; return each sequence's pieces."""
    pieces = index.lengths_of(lengths).astype(np.int64)
    begins = np.zeros_like(pieces) if index.begin is None else index.begin.astype(np.int64)
    starts = np.concatenate(([0], np.cumsum(pieces)))
    first = index.offsets[:-1].astype(np.int64)
    wanted = starts[:-1] - np.repeat(starts[first], np.diff(index.offsets.astype(np.int64)))
    np.testing.assert_array_equal(index.start, wanted)
    assert np.all(np.diff(starts[index.offsets]) <= index.plan.max_length)
    return sorted(zip(index.sequence.tolist(), begins.tolist(), pieces.tolist(), strict=True))


@pytest.mark.parametrize("algorithm", ["best", "lpfhp", "spfhp", "ffd", "next-fit"])
def test_every_sequence_is_in_one_pack(lengths, algorithm):
    index = pack.index(lengths, 128, algorithm)
    assert contents_of(index, lengths) == [(i, 0, length) for i, length in enumerate(lengths.tolist())]
    assert index.packs == index.plan.packs >= index.plan.lower_bound
    assert index.begin is None and index.lost_tokens == 0


def test_plan_of_lengths_and_of_their_histogram_agree(lengths):
    of_lengths, of_histogram = pack.plan(lengths, 128), pack.plan(pack.histogram(lengths), 128)
    assert of_lengths.strategies == of_histogram.strategies
    assert sum(count for _, count in of_lengths.strategies) == of_lengths.packs
    assert sum(len(one) * count for one, count in of_lengths.strategies) == len(lengths) == of_lengths.sequences
    assert of_lengths.tokens == lengths.sum()
    assert of_lengths.padding == of_lengths.packs * 128 - lengths.sum()
    assert pack.plan(dict(Counter(lengths.tolist())), 128).packs == of_lengths.packs


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_every_integer_type(dtype):
    assert pack.plan(np.asarray([100, 28, 64, 64], dtype), 128).packs == 2


def test_lists_and_strided_arrays(lengths):
    assert pack.plan(np.array([100, 28], ">i4"), 128).packs == 1
    assert pack.plan([100, 28], 128).packs == 1
    assert pack.plan(lengths[::2], 128).strategies == pack.plan(lengths[::2].copy(), 128).strategies
    assert pack.plan([], 128).packs == 0


@pytest.mark.parametrize(
    ("overlong", "pieces", "lost"),
    [
        ("drop", [(0, 0, 5), (2, 0, 3)], 21),
        ("truncate", [(0, 0, 5), (1, 0, 10), (2, 0, 3)], 11),
        ("split", [(0, 0, 5), (1, 0, 10), (1, 10, 10), (1, 20, 1), (2, 0, 3)], 0),
    ],
)
def test_too_long_sequences(overlong, pieces, lost):
    index = pack.index([5, 21, 3], 10, overlong=overlong)
    assert contents_of(index, np.array([5, 21, 3])) == pieces
    assert index.lost_tokens == index.plan.lost_tokens == lost
    assert index.plan.overlong_sequences == 1
    assert f"{lost} tokens lost" in repr(index) or lost == 0


def test_options(lengths):
    assert max(len(one) for one, _ in pack.plan(lengths, 128, max_per_pack=2).strategies) == 2
    assert pack.plan(lengths, 128, time_limit=100).cut_short is False
    in_order, shuffled = pack.index(lengths, 128), pack.index(lengths, 128, shuffle=1)
    assert contents_of(in_order, lengths) == contents_of(shuffled, lengths)
    assert not np.array_equal(in_order.sequence, shuffled.sequence)
    np.testing.assert_array_equal(shuffled.sequence, pack.index(lengths, 128, shuffle=1).sequence)


def test_ranks_have_equal_costs(lengths):
    index = pack.index(lengths, 128, shuffle=1, ranks=4)
    costs = np.add.reduceat(lengths[index.sequence].astype(float) ** 2, index.offsets[:-1].astype(np.int64))
    costs = costs[: len(costs) // 4 * 4].reshape(-1, 4)
    assert np.mean(costs.max(1) - costs.min(1)) < 0.02 * costs.mean()


def test_certificates(tmp_path, lengths):
    path = tmp_path / "proof.json"
    planned = pack.plan(lengths, 128, "lpfhp", certify=True)
    planned.save_certificate(path)
    pack.verify_certificate(path)
    proof = json.loads(path.read_text())
    assert proof["lower_bound"] == planned.lower_bound
    proof["heaviest"] -= 1
    path.write_text(json.dumps(proof))
    with pytest.raises(RuntimeError, match="a pack can weigh"):
        pack.verify_certificate(path)


def test_shards_share_a_plan(lengths):
    shards = np.array_split(lengths, 3)
    together = sum((pack.histogram(shard) for shard in shards), pack.Histogram())
    assert together == pack.histogram(lengths)
    whole = pack.plan(together, 128)
    packs = 0
    for shard in shards:
        planned = whole.shard(pack.histogram(shard))
        index = planned.index(shard)
        assert contents_of(index, shard) == [(i, 0, length) for i, length in enumerate(shard.tolist())]
        packs += planned.packs
    assert packs <= 1.01 * whole.packs


def test_plans_can_be_pickled(lengths):
    planned = pack.plan(lengths, 100, overlong="split")
    copy = pickle.loads(pickle.dumps(planned))
    assert repr(copy) == repr(planned)
    assert copy.strategies == planned.strategies
    np.testing.assert_array_equal(copy.index(lengths).sequence, planned.index(lengths).sequence)
    state = list(planned._packing.__getstate__())
    for wrong in ([*state[:3], state[3][:-1], *state[4:]], [*state[:4], [], *state[5:]], [*state[:4], [0, 1], *state[5:]]):
        with pytest.raises((RuntimeError, ValueError)):
            type(planned._packing).__new__(type(planned._packing)).__setstate__(tuple(wrong))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pack.plan([1, 0, 2], 10), ValueError, "entry 1: 0 tokens"),
        (lambda: pack.plan([1, -5], 10), ValueError, "-5 tokens"),
        (lambda: pack.plan([11], 10), ValueError, "a sequence of 11 tokens, and a pack holds 10"),
        (lambda: pack.plan({11: 2}, 10), ValueError, "a sequence of 11 tokens"),
        (lambda: pack.plan({0: 2}, 10), ValueError, "0 tokens"),
        (lambda: pack.plan({5: -2}, 10), ValueError, "a count is -2"),
        (lambda: pack.plan([1.5], 10), TypeError, "lengths must be integers, not float64"),
        (lambda: pack.plan([[1]], 10), ValueError, "one-dimensional"),
        (lambda: pack.plan([1], 0), ValueError, "max_length is 0"),
        (lambda: pack.plan([1], 1 << 40), ValueError, "max_length is 1099511627776"),
        (lambda: pack.plan([1], 1.5), TypeError, "max_length must be a whole number"),
        (lambda: pack.plan([1], 10, "worst"), ValueError, "unknown packing algorithm 'worst'"),
        (lambda: pack.plan([1], 10, overlong="keep"), ValueError, "unknown policy 'keep' for overlong sequences"),
        (lambda: pack.plan([1], 10, time_limit=float("nan")), ValueError, "time limit"),
        (lambda: pack.plan([1], 10).index([1, 2]), ValueError, "does not hold the lengths that were counted"),
        (lambda: pack.plan([1, 2], 10).index([3, 4]), ValueError, "not the lengths that were planned"),
        (lambda: pack.plan([1, 2], 10).index([3, -4]), ValueError, "-4 tokens"),
        (lambda: pack.plan({1.5: 2}, 10), TypeError, "a length must be a whole number, not 1.5"),
        (lambda: pack.plan({3: 2.7}, 10), TypeError, "a count must be a whole number, not 2.7"),
        (lambda: pack.plan({3: 2**70}, 10), ValueError, "a count is 1180591620717411303424"),
        (lambda: pack.plan([1], 10, seed=-1), ValueError, "seed is -1"),
        (lambda: pack.plan([1], 10, overlong=None), TypeError, "overlong must be 'error'.*not None"),
        (lambda: pack.index([1], 10, shuffle=-1), ValueError, "shuffle is -1"),
        (lambda: pack.index([1], 10, ranks=1.5), TypeError, "ranks must be a whole number"),
        (lambda: pack.plan([1], 10).shard([11]), ValueError, "a pack holds 10"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_boundaries_of_one_pack():
    found = pack.boundaries([3, 2])
    np.testing.assert_array_equal(found["position_ids"], [[0, 1, 2, 0, 1]])
    np.testing.assert_array_equal(found["seq_idx"], [[0, 0, 0, 1, 1]])
    np.testing.assert_array_equal(found["cu_seq_lens_q"], [0, 3, 5])
    np.testing.assert_array_equal(found["cu_seq_lens_k"], [0, 3, 5])
    assert found["max_length_q"] == found["max_length_k"] == 3
    assert all(found[key].dtype == np.int32 for key in ("position_ids", "seq_idx", "cu_seq_lens_q"))


def test_boundaries_of_padded_packs():
    found = pack.boundaries([[3, 2], [4]], "megatron", length=6, position_offset=2, segment_mask=True)
    np.testing.assert_array_equal(found["cu_seqlens_q"], [0, 3, 5, 6, 10, 12])
    np.testing.assert_array_equal(found["cu_seqlens_kv"], found["cu_seqlens_q"])
    assert found["max_seqlen_q"] == found["max_seqlen_kv"] == 4
    assert found["qkv_format"] == "thd"
    np.testing.assert_array_equal(found["position_ids"], [[2, 3, 4, 2, 3, 2, 2, 3, 4, 5, 2, 3]])
    mask = found["attention_mask"]
    assert mask[0, 2] and not mask[2, 3] and not mask[3, 6] and mask[6, 9]
    assert not mask[5].any() and not mask[10:].any(), "padding attends to nothing"


def test_boundaries_of_nothing():
    assert pack.boundaries([])["cu_seq_lens_q"].tolist() == [0]
    assert pack.boundaries([[], [2]], length=2)["cu_seq_lens_q"].tolist() == [0, 2, 4]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pack.boundaries([3, 0]), ValueError, "at least 1"),
        (lambda: pack.boundaries([2.5]), TypeError, "integers"),
        (lambda: pack.boundaries([3, 4], length=6), ValueError, "7 tokens, more than the length of 6"),
        (lambda: pack.boundaries([3], "nemo"), ValueError, "hf, megatron"),
        (lambda: pack.boundaries([3], position_offset=2**31 - 2), ValueError, "32-bit"),
        (lambda: pack.boundaries([3], length=5.5), TypeError, "length must be a whole number"),
        (lambda: pack.boundaries([3], position_offset=1.5), TypeError, "position_offset must be a whole number"),
        (lambda: pack.boundaries([3], position_offset=-1), ValueError, "position_offset is -1"),
    ],
)
def test_bad_boundaries(call, error, message):
    with pytest.raises(error, match=message):
        call()


class TestBatchSampler:
    def epoch_of(self, ranks, lengths, **options):
        samplers = [pack.BatchSampler(lengths, 256, num_replicas=ranks, rank=r, **options) for r in range(ranks)]
        assert len({len(sampler) for sampler in samplers}) == 1
        return [list(sampler) for sampler in samplers]

    def test_every_sequence_once(self, lengths):
        (batches,) = self.epoch_of(1, lengths)
        assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
        assert all(lengths[batch].sum() <= 256 for batch in batches)

    @pytest.mark.parametrize("drop_last", [False, True])
    def test_ranks(self, lengths, drop_last):
        of_rank = self.epoch_of(3, lengths, drop_last=drop_last)
        assert len({len(batches) for batches in of_rank}) == 1
        seen = Counter(i for batches in of_rank for batch in batches for i in batch)
        if drop_last:
            assert max(seen.values()) == 1
        else:
            assert len(seen) == len(lengths)

    def test_epochs_differ_and_repeat(self, lengths):
        one, other = pack.BatchSampler(lengths, 256, seed=4), pack.BatchSampler(lengths, 256, seed=4)
        first, second = list(one), list(one)
        assert first != second
        other.set_epoch(1)
        assert list(other) == second
        assert list(pack.BatchSampler(lengths, 256, seed=5)) != first

    @pytest.mark.parametrize("ranks", [1, 2])
    def test_resumes_exactly(self, lengths, ranks):
        def new():
            return pack.BatchSampler(lengths, 256, num_replicas=ranks, rank=ranks - 1, seed=1)

        through = new()
        wanted = list(through) + list(through)
        for stop in (0, 1, 17, len(through), len(through) + 5):
            interrupted, taken = new(), []
            while len(taken) < stop:
                for batch in interrupted:
                    taken.append(batch)
                    if len(taken) == stop:
                        break
            state = json.loads(json.dumps(interrupted.state_dict()))
            resumed = new()
            resumed.load_state_dict(state)
            rest = list(resumed)
            if len(taken) < len(through):
                rest += list(resumed)
            assert taken + rest == wanted[: len(taken) + len(rest)]
            assert len(taken) + len(rest) >= len(through)

    def test_prefetched_batches(self, lengths):
        sampler = pack.BatchSampler(lengths, 256)
        taken = iter(sampler)
        batches = [next(taken) for _ in range(10)]
        resumed = pack.BatchSampler(lengths, 256)
        resumed.load_state_dict(sampler.state_dict(batches=4))
        assert next(iter(resumed)) == batches[4]

    def test_iterators_have_their_own_positions(self, lengths):
        sampler = pack.BatchSampler(lengths, 256)
        assert all(one == other for one, other in zip(sampler, sampler, strict=False))
        wanted = list(pack.BatchSampler(lengths, 256))
        sampler = pack.BatchSampler(lengths, 256)
        for _ in range(2):  # a loop that is left early
            assert next(iter(sampler)) == wanted[0]
        assert sampler.state_dict()["batches"] == 1
        assert list(sampler) == wanted
        assert list(sampler) != wanted, "the next epoch"

    def test_a_look_ahead_keeps_the_restored_position(self, lengths):
        wanted = list(pack.BatchSampler(lengths, 256))
        sampler = pack.BatchSampler(lengths, 256)
        sampler.load_state_dict({**sampler.state_dict(), "batches": 7})
        assert next(iter(sampler)) == wanted[7]
        assert list(sampler) == wanted[7:]

    def test_workers_may_have_taken_a_whole_epoch(self, lengths):
        sampler = pack.BatchSampler(lengths, 256)
        batches = list(sampler)
        state = sampler.state_dict(batches=len(batches) - 2)
        assert (state["epoch"], sampler.state_dict()["epoch"]) == (0, 1)
        resumed = pack.BatchSampler(lengths, 256)
        resumed.load_state_dict(state)
        assert list(resumed) == batches[-2:]

    def test_refuses_other_states(self, lengths):
        state = pack.BatchSampler(lengths, 256).state_dict()
        for other in (
            pack.BatchSampler(lengths, 256, algorithm="next-fit"),
            pack.BatchSampler(lengths, 256, max_per_batch=100),
            pack.BatchSampler(lengths, 256, overlong="drop"),
            pack.BatchSampler(lengths[::-1], 256),
            pack.BatchSampler(lengths, 250),
            pack.BatchSampler(lengths, 256, seed=1),
            pack.BatchSampler(lengths, 256, num_replicas=2),
        ):
            with pytest.raises(ValueError, match="the state is of a sampler with"):
                other.load_state_dict(state)
        own = pack.BatchSampler(lengths, 256)
        for wrong in ({}, {**state, "batches": -1}, {**state, "epoch": "x"}, {**state, "batches": 10**9}):
            with pytest.raises(ValueError, match="the state"):
                own.load_state_dict(wrong)

    def test_refuses_ranks_and_policies(self, lengths):
        with pytest.raises(ValueError, match="rank 2 of 2"):
            pack.BatchSampler(lengths, 256, num_replicas=2, rank=2)
        with pytest.raises(ValueError, match="num_replicas is 0"):
            pack.BatchSampler(lengths, 256, num_replicas=0)
        with pytest.raises(ValueError, match=r"unknown overlong 'split' \(choose from error, drop\)"):
            pack.BatchSampler(lengths, 256, overlong="split")
        assert pack.BatchSampler(lengths, 100, overlong="drop").lost_tokens == lengths[lengths > 100].sum()
