"""Pack a tokenised data set for TRL's trainers, and say what it saves.

Run it with the package and its extra installed: pip install '.[packing]'; python examples/pack_for_trl.py [ROWS]
"""

import sys

import numpy as np
from datasets import Dataset

from tessera import pack


def synthetic_rows(count: int) -> Dataset:
    """Conversations with long-tailed lengths, as instruction data has."""
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.lognormal(5.5, 0.9, count).astype(int) + 1, 4000)
    return Dataset.from_dict({"input_ids": [rng.integers(0, 32_000, length).tolist() for length in lengths]})


def main(rows: int = 2_000, seq_length: int = 2_048) -> None:
    data = synthetic_rows(rows)
    tokens = sum(len(row) for row in data["input_ids"])

    # Instead of trl.pack_dataset; pass the result to SFTTrainer with packing switched off, and padding-free on.
    packed = pack.pack_dataset(data, seq_length, "bfd_split")
    used = tokens / (len(packed) * seq_length)
    print(f"{len(data)} rows of {tokens} tokens in {len(packed)} packs of {seq_length}: {100 * used:.2f} % used")

    # What attention needs to keep the sequences of a pack apart.
    inputs = pack.boundaries(packed[0]["seq_lengths"])
    print("first pack: cu_seq_lens_q", inputs["cu_seq_lens_q"].tolist(), "longest", inputs["max_length_q"])


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
