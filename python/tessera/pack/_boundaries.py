"""Boundaries of packed sequences in the formats of training frameworks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tessera import _tessera
from tessera._arguments import chosen

SeqLengths: TypeAlias = NDArray[Any] | Sequence[int] | Sequence[Sequence[int]]


def boundaries(
    seq_lengths: SeqLengths,
    style: Literal["hf", "megatron"] = "hf",
    *,
    length: int | None = None,
    position_offset: int = 0,
    segment_mask: bool = False,
) -> dict[str, Any]:
    """Describe the sequences of a pack, or of several packs one after another, for attention without mixing.

    `seq_lengths` has the number of tokens of each sequence of one pack, or a list of such numbers for each pack, as in
    the column of that name. With `length`, every pack is padded to that number of tokens, and the padding is one more
    segment.

    "hf" gives the arguments of Transformers' FlashAttention: `position_ids` (from `position_offset` in each sequence)
    and `seq_idx`, both 1 × tokens, `cu_seq_lens_q`, `cu_seq_lens_k`, `max_length_q`, `max_length_k`. "megatron" gives
    the fields of `PackedSeqParams`: `qkv_format`, `cu_seqlens_q`, `cu_seqlens_kv`, `max_seqlen_q`, `max_seqlen_kv`, and
    `position_ids`. Arrays are int32. `segment_mask` adds `attention_mask`, tokens × tokens: True where both tokens
    belong to the same sequence, and are not padding.
    """
    chosen("style", style, ("hf", "megatron"))
    packs = _packs_of(seq_lengths)
    position_offset = _tessera.whole_number("position_offset", position_offset)
    segments, is_padding = _segments(packs, None if length is None else _tessera.whole_number("length", length))
    ends = np.cumsum(segments, dtype=np.int64)
    tokens = int(ends[-1]) if len(ends) else 0
    longest = int(segments.max(initial=0))
    if tokens > np.iinfo(np.int32).max or position_offset + longest - 1 > np.iinfo(np.int32).max:
        raise ValueError(f"{tokens} tokens exceed 32-bit positions; take fewer packs at once")
    cu_seqlens = np.concatenate(([0], ends)).astype(np.int32)
    segment_of = np.repeat(np.arange(len(segments), dtype=np.int32), segments)
    position_ids = (np.arange(tokens, dtype=np.int32) - cu_seqlens[segment_of] + position_offset)[None]
    if style == "hf":
        described: dict[str, Any] = {
            "position_ids": position_ids.astype(np.int32, copy=False),
            "seq_idx": segment_of[None],
            "cu_seq_lens_q": cu_seqlens,
            "cu_seq_lens_k": cu_seqlens,
            "max_length_q": longest,
            "max_length_k": longest,
        }
    else:
        described = {
            "qkv_format": "thd",
            "cu_seqlens_q": cu_seqlens,
            "cu_seqlens_kv": cu_seqlens,
            "max_seqlen_q": longest,
            "max_seqlen_kv": longest,
            "position_ids": position_ids.astype(np.int32, copy=False),
        }
    if segment_mask:
        real = ~is_padding[segment_of]
        described["attention_mask"] = (segment_of[:, None] == segment_of) & real[:, None] & real
    return described


def _packs_of(seq_lengths: SeqLengths) -> list[NDArray[np.int64]]:
    """Return the lengths of each pack, checked."""
    is_flat = len(seq_lengths) > 0 and np.ndim(seq_lengths[0]) == 0
    packs = []
    for pack in [seq_lengths] if is_flat else seq_lengths:
        lengths = np.asarray(pack)
        if lengths.size and lengths.dtype.kind not in "iu":
            raise TypeError(f"sequence lengths must be integers, not {lengths.dtype}")
        if lengths.size and lengths.min() < 1:
            raise ValueError(f"a sequence of {lengths.min()} tokens; sequences have at least 1")
        packs.append(lengths.astype(np.int64))
    return packs


def _segments(packs: list[NDArray[np.int64]], length: int | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the lengths of all segments, and which are padding."""
    if length is None:
        segments = np.concatenate(packs) if packs else np.zeros(0, np.int64)
        return segments, np.zeros(len(segments), np.bool_)
    parts: list[int] = []
    is_padding: list[bool] = []
    for lengths in packs:
        used = int(lengths.sum())
        if used > length:
            raise ValueError(f"a pack has {used} tokens, more than the length of {length}")
        parts.extend(lengths.tolist())
        is_padding.extend([False] * len(lengths))
        if used < length:
            parts.append(length - used)
            is_padding.append(True)
    return np.asarray(parts, np.int64), np.asarray(is_padding, np.bool_)
