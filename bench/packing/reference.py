"""A straightforward packing in Python and NumPy, as a comparison for bench_packing.

    python3 reference.py MAX_LENGTH HISTOGRAM      such as 512 wikipedia-512.csv
"""

import sys
import time

import numpy as np


def longest_pack_first(counts, max_length):
    """Best-fit decreasing on a histogram: [(packs, lengths)], longest-pack-first (LPFHP)."""
    open_packs = {room: [] for room in range(max_length + 1)}
    open_packs[max_length].append((int(counts.sum()), ()))
    for length in range(max_length, 0, -1):
        left = int(counts[length])
        room = length
        while left > 0:
            while not open_packs[room]:
                room += 1
            packs, lengths = open_packs[room].pop()
            copies = min(1 + (room - length) // length, left)
            used = min(packs, left // copies)
            left -= used * copies
            if used < packs:
                open_packs[room].append((packs - used, lengths))
            open_packs[room - copies * length].append((used, lengths + (length,) * copies))
    return [pack for packs in open_packs.values() for pack in packs if pack[1]]


def index_packs(strategies, lengths):
    """offsets, sequence and start of all packs."""
    order = np.argsort(lengths, kind="stable")
    first = np.searchsorted(lengths[order], np.arange(lengths.max() + 2))
    depths = np.concatenate([np.full(packs, len(parts)) for packs, parts in strategies])
    offsets = np.concatenate([[0], np.cumsum(depths)])
    sequence, start = [], []
    for packs, parts in strategies:
        columns = []
        for length in parts:
            columns.append(order[first[length]:first[length] + packs])
            first[length] += packs
        sequence.append(np.stack(columns, axis=1).ravel())
        start.append(np.tile(np.concatenate([[0], np.cumsum(parts)[:-1]]), packs))
    return offsets, np.concatenate(sequence), np.concatenate(start)


def seconds_of(work):
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def main():
    max_length = int(sys.argv[1])
    rows = np.loadtxt(sys.argv[2], delimiter=",", skiprows=1, dtype=np.int64)
    counts = np.zeros(max_length + 1, np.int64)
    counts[rows[:, 0]] = rows[:, 1]
    lengths = np.repeat(np.arange(max_length + 1), counts).astype(np.uint32)
    np.random.default_rng(1).shuffle(lengths)
    plan_seconds, strategies = seconds_of(lambda: longest_pack_first(counts, max_length))
    count_seconds, counted = seconds_of(lambda: np.bincount(lengths, minlength=max_length + 1))
    assert (counted == counts).all()
    index_seconds, (offsets, sequence, start) = seconds_of(lambda: index_packs(strategies, lengths))
    packs = sum(packs for packs, _ in strategies)
    assert len(offsets) == packs + 1 and len(np.unique(sequence)) == len(lengths)
    total = plan_seconds + count_seconds + index_seconds
    print(f"{packs} packs; plan {plan_seconds * 1e3:.1f} ms, count {count_seconds * 1e3:.1f} ms, "
          f"index {index_seconds * 1e3:.1f} ms: {len(lengths) / total / 1e6:.2f} M sequences/s")


main()
