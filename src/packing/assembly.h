// Assigns sequences to packs, piece by piece: the input of index arrays and files.
#pragma once

#include <tessera/packing.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "packing/pack_order.h"

namespace tessera::pack {

/// Entries of a few packs, one array per field.
struct EntryBlock {
  std::vector<uint64_t> sequence;
  std::vector<uint32_t> start;
  std::vector<uint64_t> begin;   ///< only if sequences are truncated or split
  std::vector<uint32_t> length;  ///< only if sequences are truncated or split
  std::vector<uint64_t> ends;    ///< per pack: entries up to its end, counted from the first pack
};

/// The pieces of all sequences sorted by length, and the groups of equal packs that they fill.
class Assembly {
 public:
  /// Sorts the pieces. Throws as index_packs() does.
  Assembly(const Packing& packing, const Input& input, const Lengths& lengths, const OrderOptions& order);

  uint64_t packs() const { return order_.packs(); }
  uint64_t entries() const { return pieces_; }
  bool has_splits() const { return has_splits_; }
  uint64_t longest_sequence() const { return longest_; }  ///< if sequences are truncated or split

  /// Calls f(block) for all packs in order, some tens of thousands of entries at a time. The block is reused.
  template <class F>
  void for_each_block(F f) {
    EntryBlock block;
    for (uint64_t pack = 0; pack < packs();) {
      pack = fill(pack, block);
      f(std::as_const(block));
    }
  }

 private:
  /// A part of a group's packs: copies · packs adjacent pieces of one length.
  struct Column {
    uint64_t first = 0;   // piece of the first pack
    uint32_t copies = 0;  // pieces per pack
    uint32_t length = 0;
    uint32_t start = 0;  // start of its first piece in each pack
  };

  void lay_out(const Packing& packing);
  template <class Id, class At>
  void sort(const Lengths& lengths);
  uint64_t fill(uint64_t first_pack, EntryBlock& block);
  template <class Id>
  uint64_t fill_from(const Id* pieces, uint64_t first_pack, EntryBlock& block);
  template <class Id>
  void prefetch(const Id* pieces, uint64_t first_pack) const;
  template <class Id>
  void add_piece(const Id* pieces, const Column& column, uint64_t piece, EntryBlock& block,
                 size_t entry) const;

  Overlong policy_;
  uint32_t max_length_;
  const Lengths& lengths_;
  PackOrder order_;
  bool has_splits_ = false;
  uint64_t longest_ = 0;
  uint64_t pieces_ = 0;
  uint64_t entries_done_ = 0;
  uint64_t deepest_ = 1;
  std::vector<uint64_t> first_of_length_;  // piece, by length; plus one at the end
  std::vector<Column> columns_;
  std::vector<uint64_t> first_column_;  // per group, plus one
  IndexArray sequence_of_;              // piece → sequence
};

}  // namespace tessera::pack
