#include "sparse/moves.h"

#include <cstring>
#include <memory>

#include "sparse/parts.h"

namespace tessera::sparse {
namespace {

void follow(const Moves& moves, Moves::Range range, float* state, const base::ParallelFor& parallel) {
  const uint64_t count = range.end - range.begin;
  const auto former = std::make_unique_for_overwrite<float[]>(count);
  copy_bytes(state + range.begin, former.get(), count * sizeof(float), parallel);
  for_each_part(count, parts_for(count * sizeof(float)), parallel,
                [&](uint32_t, uint64_t begin, uint64_t end) {
                  for (uint64_t i = range.begin + begin; i < range.begin + end; ++i)
                    state[i] = moves.former[i] == moves.none ? 0.0F : former[moves.former[i] - range.begin];
                });
}

}  // namespace

void follow(const Moves& moves, std::span<float> state, const base::ParallelFor& parallel) {
  if (moves.ranges.size() == 1) return follow(moves, moves.ranges[0], state.data(), parallel);
  parallel(static_cast<uint32_t>(moves.ranges.size()),
           [&](uint32_t i) { follow(moves, moves.ranges[i], state.data(), base::serial_for); });
}

void copy_bytes(const void* from, void* to, size_t bytes, const base::ParallelFor& parallel) {
  if (bytes == 0) return;
  for_each_part(bytes, parts_for(bytes), parallel, [&](uint32_t, size_t begin, size_t end) {
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                end - begin);
  });
}

}  // namespace tessera::sparse
