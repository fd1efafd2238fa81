// What the sources of PackedBlocks share.
#pragma once

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <type_traits>
#include <utility>

#include "base/half.h"
#include "base/parallel.h"
#include "sparse/packed_blocks.h"

namespace tessera::sparse {

/// The transposed index, built by whoever needs it first.
struct PackedBlocks::Transposed {
  std::mutex mutex;
  std::atomic<bool> is_current = false;
  bool is_allocated = false;
  BlockIndex index;
};

template <class... Args>
[[noreturn]] void malformed(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError("block-sparse weight: " + fmt::format(format, std::forward<Args>(args)...));
}

/// Calls visit with the packed values as the array that they are.
template <class Weight, class Visit>
void with_values(Weight& weight, const Visit& visit) {
  const auto as = [&]<class T>(T) {
    using Element = std::conditional_t<std::is_const_v<Weight>, const T, T>;
    visit(reinterpret_cast<Element*>(weight.values().data()));
  };
  switch (weight.type()) {
    case Type::f16: return as(base::Half{});
    case Type::bf16: return as(base::Bfloat16{});
    default: return as(float{});
  }
}

/// Parts of work on so many bytes that are worth a thread's while.
inline uint32_t parts_for(uint64_t bytes) {
  constexpr uint64_t kPartBytes = 128 << 10;
  constexpr uint64_t kMostParts = 16;
  return static_cast<uint32_t>(std::clamp<uint64_t>(bytes / kPartBytes, 1, kMostParts));
}

/// Calls job(part, begin, end) for equal parts of `units`.
template <class Job>
void for_each_part(uint32_t units, uint32_t parts, const base::ParallelFor& parallel, const Job& job) {
  const auto border = [&](uint32_t part) { return static_cast<uint32_t>(uint64_t{units} * part / parts); };
  if (parts == 1) return job(0, 0, units);
  parallel(parts, [&](uint32_t part) { job(part, border(part), border(part + 1)); });
}

}  // namespace tessera::sparse
