#include <tessera/packing.h>

#include <algorithm>
#include <cstring>

#include "base/buffer.h"
#include "base/memory.h"
#include "packing/assembly.h"
#include "packing/smallest_type.h"

namespace tessera::pack {
namespace {

// Copies values, which fit, to a position of an array.
template <class From>
void put(std::span<const From> values, IndexArray& out, uint64_t first) {
  visit(out, [&](auto all) {
    using To = typename decltype(all)::value_type;
    std::transform(values.begin(), values.end(), all.begin() + static_cast<std::ptrdiff_t>(first),
                   [](From value) { return static_cast<To>(value); });
  });
}

}  // namespace

IndexArray::IndexArray(uint64_t size, uint64_t largest) : size_(size), width_(largest > UINT32_MAX ? 8 : 4) {
  base::require_memory(size * width_, "an index array");
  bytes_.reset(base::allocate_buffer(size * width_).release());
}

void IndexArray::Free::operator()(std::byte* bytes) const { base::FreeBuffer()(bytes); }

uint64_t IndexArray::operator[](uint64_t i) const {
  if (width_ == 4) {
    uint32_t value = 0;
    std::memcpy(&value, bytes_.get() + i * 4, 4);
    return value;
  }
  uint64_t value = 0;
  std::memcpy(&value, bytes_.get() + i * 8, 8);
  return value;
}

PackIndex index_packs(const Packing& packing, const Input& input, const Lengths& lengths,
                      const OrderOptions& order) {
  Assembly assembly(packing, input, lengths, order);
  const uint64_t entries = assembly.entries();
  PackIndex index;
  index.offsets = IndexArray(assembly.packs() + 1, entries);
  index.sequence = IndexArray(entries, std::max<uint64_t>(lengths.size(), 1) - 1);
  index.start = IndexArray(entries, packing.max_length);
  if (assembly.has_splits()) index.begin = IndexArray(entries, assembly.longest_sequence());
  if (assembly.has_splits()) index.length = IndexArray(entries, packing.max_length);
  put<uint64_t>(std::vector<uint64_t>{0}, index.offsets, 0);
  uint64_t pack = 0;
  uint64_t entry = 0;
  assembly.for_each_block([&](const EntryBlock& block) {
    put<uint64_t>(block.ends, index.offsets, pack + 1);
    put<uint64_t>(block.sequence, index.sequence, entry);
    put<uint32_t>(block.start, index.start, entry);
    if (assembly.has_splits()) put<uint64_t>(block.begin, index.begin, entry);
    if (assembly.has_splits()) put<uint32_t>(block.length, index.length, entry);
    pack += block.ends.size();
    entry += block.sequence.size();
  });
  return index;
}

}  // namespace tessera::pack
