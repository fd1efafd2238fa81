// What training takes from packs: boundaries, positions and masks of a batch, and work that is even
// over ranks.
#pragma once

#include <tessera/pack_index.h>

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::pack {

/// Tokens of each entry of `packs` packs from `first_pack` on. `lengths` are those that were indexed.
/// Throws UsageError for packs that there are not.
std::vector<uint32_t> entry_lengths(const PackIndex& index, const Lengths& lengths, uint64_t first_pack,
                                    uint64_t packs = 1);

/// Prefix sums of lengths, from 0 on, as attention kernels for variable lengths take them. Throws
/// Error where the sum is above 2^31 − 1.
std::vector<int32_t> cu_seqlens(std::span<const uint32_t> lengths);

/// Positions of the tokens of a pack of out.size() tokens: they begin at `offset` in each sequence
/// (RoBERTa: 2), and are `padding` after the last. Throws UsageError where the sequences are longer
/// than the pack, Error where a position is above 2^31 − 1.
void position_ids(std::span<const uint32_t> lengths, std::span<int32_t> out, int32_t offset = 0,
                  int32_t padding = 0);

/// For each token of a pack the number of its sequence in the pack, from 1 on; 0 for padding. Tokens
/// with the same number, not 0, see one another: the block-diagonal mask. Throws as position_ids().
void sequence_ids(std::span<const uint32_t> lengths, std::span<int32_t> out);

/// A rank for each pack such that their costs are even: packs by descending cost, one to each rank
/// in turn, the dearest to the rank that has least (Graham 1969, with equal numbers of packs).
/// `costs` may be Σ length². Throws UsageError for no ranks.
std::vector<uint32_t> assign_to_ranks(std::span<const uint64_t> costs, uint32_t ranks);

/// How even attention's work, Σ length² of each pack, is over ranks that take packs in turn: pack i
/// goes to rank i mod ranks.
struct RankBalance {
  double spread = 0;  ///< (largest − smallest) / mean of the ranks' sums
  double idle = 0;    ///< share of all time that ranks wait for the slowest of their step, 0 to 1
};

/// Of all packs in this order. Throws UsageError for no ranks.
RankBalance rank_balance(const Packing& packing, const Order& order, uint32_t ranks);

}  // namespace tessera::pack
