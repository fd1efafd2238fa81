#include "packing/assembly.h"

#include <tessera/error.h>

#include <algorithm>

#include "base/memory.h"

namespace tessera::pack {
namespace {

constexpr size_t kLengthsAtOnce = 2048;             // fit in the L1 cache
constexpr size_t kEntriesAtOnce = size_t{1} << 15;  // fit in the L2 cache, with all fields

constexpr uint64_t kPacksAhead = 16;
constexpr const char* kChanged = "changed while it was packed; run again when nothing writes to it";

[[noreturn]] void refuse_strangers() {
  throw UsageError(
      "the packing does not hold the lengths that were counted; plan the histogram of this input");
}

}  // namespace

Assembly::Assembly(const Packing& packing, const Input& input, const Lengths& lengths,
                   const OrderOptions& order)
    : policy_(input.overlong),
      max_length_(input.histogram.max_length()),
      lengths_(lengths),
      order_(packing, order),
      has_splits_(input.overlong_sequences > 0 && input.overlong != Overlong::drop),
      pieces_(input.histogram.sequences()) {
  if (lengths.size() != input.sequences) refuse_strangers();
  first_of_length_.assign(uint64_t{max_length_} + 2, 0);
  for (uint64_t length = 1; length <= max_length_; ++length)
    first_of_length_[length + 1] = first_of_length_[length] + input.histogram.counts[length];
  lay_out(packing);
  const uint64_t last_sequence = std::max<uint64_t>(lengths.size(), 1) - 1;
  base::require_memory(pieces_ * (last_sequence > UINT32_MAX ? 8 : 4), "sorting the sequences by length");
  sequence_of_ = IndexArray(pieces_, last_sequence);
  if (sequence_of_.width() == 8)
    sort<uint64_t, uint64_t>(lengths);
  else if (pieces_ > UINT32_MAX)
    sort<uint32_t, uint64_t>(lengths);
  else
    sort<uint32_t, uint32_t>(lengths);
}

// Assigns each group its pieces of each length.
void Assembly::lay_out(const Packing& packing) {
  std::vector<uint64_t> next(first_of_length_.begin(), first_of_length_.end() - 1);
  first_column_ = {0};
  for (const Strategy& strategy : packing.strategies) {
    uint32_t start = 0;
    for (const Part& part : strategy.parts) {
      if (part.length == 0 || part.length > max_length_) refuse_strangers();
      columns_.push_back({next[part.length], part.copies, part.length, start});
      next[part.length] += strategy.count * part.copies;
      start += part.length * part.copies;
    }
    deepest_ = std::max(deepest_, strategy.depth());
    first_column_.push_back(columns_.size());
  }
  for (uint64_t length = 0; length < next.size(); ++length)
    if (next[length] != first_of_length_[length + 1]) refuse_strangers();
}

// Counting sort. Each length has its own write position; these positions stay in the caches. At: a position
// among the pieces.
template <class Id, class At>
void Assembly::sort(const Lengths& lengths) {
  struct Bucket {
    At next;
    At end;
  };
  std::vector<Bucket> buckets(uint64_t{max_length_} + 1);
  for (uint64_t length = 1; length <= max_length_; ++length)
    buckets[length] = {static_cast<At>(first_of_length_[length]),
                       static_cast<At>(first_of_length_[length + 1])};
  Id* pieces = reinterpret_cast<Id*>(sequence_of_.data());
  const auto put = [&](uint64_t length, uint64_t sequence) {
    Bucket& bucket = buckets[length];
    if (bucket.next == bucket.end) [[unlikely]]
      lengths.fail_at(sequence, kChanged);
    pieces[bucket.next++] = static_cast<Id>(sequence);
  };
  const auto put_overlong = [&](uint64_t length, uint64_t sequence) {
    longest_ = std::max(longest_, length);
    if (policy_ == Overlong::truncate) put(max_length_, sequence);
    if (policy_ != Overlong::split) return;
    for (uint64_t piece = 0; piece < length / max_length_; ++piece) put(max_length_, sequence);
    if (length % max_length_ != 0) put(length % max_length_, sequence);
  };
  std::vector<uint64_t> block(kLengthsAtOnce);
  for (uint64_t first = 0; first < lengths.size(); first += block.size()) {
    block.resize(std::min<uint64_t>(kLengthsAtOnce, lengths.size() - first));
    lengths.read(first, block);
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i] <= max_length_) [[likely]]
        put(block[i], first + i);
      else
        put_overlong(block[i], first + i);
    }
  }
  for (const Bucket& bucket : buckets)
    if (bucket.next != bucket.end) lengths.fail_at(lengths.size() - 1, kChanged);
}

uint64_t Assembly::fill(uint64_t first_pack, EntryBlock& block) {
  const size_t room = kEntriesAtOnce + deepest_;
  block.sequence.resize(room);
  block.start.resize(room);
  if (has_splits_) block.begin.resize(room);
  if (has_splits_) block.length.resize(room);
  block.ends.clear();
  if (first_pack == 0) entries_done_ = 0;
  const std::byte* pieces = sequence_of_.data();
  return sequence_of_.width() == 4 ? fill_from(reinterpret_cast<const uint32_t*>(pieces), first_pack, block)
                                   : fill_from(reinterpret_cast<const uint64_t*>(pieces), first_pack, block);
}

// Prefetches the pieces of a few packs while others are assembled.
template <class Id>
void Assembly::prefetch(const Id* pieces, uint64_t first_pack) const {
  for (uint64_t at = first_pack; at < std::min(first_pack + kPacksAhead, packs()); ++at) {
    const PackOrder::Pack place = order_[at];
    for (uint64_t c = first_column_[place.group]; c < first_column_[place.group + 1]; ++c)
      __builtin_prefetch(pieces + columns_[c].first + place.pack * columns_[c].copies);
  }
}

template <class Id>
uint64_t Assembly::fill_from(const Id* pieces, uint64_t first_pack, EntryBlock& block) {
  uint64_t* const sequence = block.sequence.data();
  uint32_t* const start = block.start.data();
  size_t entry = 0;
  uint64_t at = first_pack;
  while (at < packs() && entry < kEntriesAtOnce) {
    if (order_.permuted() && at % kPacksAhead == 0) prefetch(pieces, at + kPacksAhead);
    const PackOrder::Pack place = order_[at];
    const std::span<const Column> columns(columns_.data() + first_column_[place.group],
                                          columns_.data() + first_column_[place.group + 1]);
    const uint64_t run = order_.run(at, place);
    for (uint64_t i = 0; i < run && entry < kEntriesAtOnce; ++i, ++at) {
      for (const Column& column : columns) {
        const uint64_t piece = column.first + (place.pack + i) * column.copies;
        for (uint32_t copy = 0; copy < column.copies; ++copy, ++entry) {
          sequence[entry] = pieces[piece + copy];
          start[entry] = column.start + copy * column.length;
          if (has_splits_) [[unlikely]]
            add_piece(pieces, column, piece + copy, block, entry);
        }
      }
      block.ends.push_back(entries_done_ + entry);
    }
  }
  entries_done_ += entry;
  block.sequence.resize(entry);
  block.start.resize(entry);
  if (has_splits_) block.begin.resize(entry);
  if (has_splits_) block.length.resize(entry);
  return at;
}

// The tokens of its sequence that a piece has. The full pieces of a sequence are adjacent and in order; its
// remainder is shorter than the maximum.
template <class Id>
void Assembly::add_piece(const Id* pieces, const Column& column, uint64_t piece, EntryBlock& block,
                         size_t entry) const {
  const uint64_t length = lengths_[pieces[piece]];
  block.length[entry] = column.length;
  block.begin[entry] = 0;
  if (length <= max_length_ || policy_ != Overlong::split) return;
  if (column.length < max_length_) {
    block.begin[entry] = length - column.length;
    return;
  }
  const Id* first = std::lower_bound(pieces + first_of_length_[max_length_], pieces + piece, pieces[piece]);
  block.begin[entry] = static_cast<uint64_t>(pieces + piece - first) * max_length_;
}

}  // namespace tessera::pack
