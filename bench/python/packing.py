"""Packing beside TRL: lengths to index arrays, and pack_dataset.

python bench/python/packing.py [--rows 100000] [--histogram wikipedia-512.csv]; needs trl and datasets.
"""

import argparse
import time
import warnings

import datasets
import numpy as np
import trl.data_utils

from tessera import pack


def fastest(run, rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def bench_index(histogram: str, rounds: int) -> None:
    table = np.loadtxt(histogram, delimiter=",", skiprows=1, dtype=np.int64)
    lengths = np.repeat(table[:, 0], table[:, 1])
    np.random.default_rng(0).shuffle(lengths)
    longest = int(table[:, 0].max())
    seconds = fastest(lambda: pack.index(lengths, longest), rounds)
    print(f"{len(lengths)} lengths to index arrays: {seconds:.3f} s, {pack.plan(lengths, longest)}")


def bench_data_set(rows: int, rounds: int) -> None:
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.lognormal(5.0, 0.8, rows).astype(int) + 1, 2048)
    data = datasets.Dataset.from_dict({"input_ids": [rng.integers(0, 32_000, n) for n in lengths]})
    uncached = {"load_from_cache_file": False}
    for strategy in ("bfd", "bfd_split", "wrapped"):
        ours, theirs = [], []
        for _ in range(rounds):  # interleaved
            ours.append(fastest(lambda: pack.pack_dataset(data, 1024, strategy, uncached), 1))
            theirs.append(fastest(lambda: trl.data_utils.pack_dataset(data, 1024, strategy, uncached), 1))
        print(f"{rows} rows, {strategy}: {min(ours):.3f} s, TRL {min(theirs):.3f} s: {min(theirs) / min(ours):.1f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--histogram", help="file of 'length,count' lines")
    options = parser.parse_args()
    warnings.simplefilter("ignore", pack.LostTokensWarning)
    datasets.disable_progress_bars()
    if options.histogram:
        bench_index(options.histogram, options.rounds)
    bench_data_set(options.rows, options.rounds)


if __name__ == "__main__":
    main()
