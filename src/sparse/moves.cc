#include "sparse/moves.h"

#include <algorithm>
#include <cstring>

namespace tessera::sparse {
namespace {

constexpr uint64_t kPlacesAtATime = 1 << 15;

/// Calls job(begin, end) for parts of [0, count).
template <class Job>
void for_parts(uint64_t count, const base::ParallelFor& parallel, const Job& job) {
  parallel(static_cast<uint32_t>((count + kPlacesAtATime - 1) / kPlacesAtATime),
           [&](uint32_t part) { job(part * kPlacesAtATime, std::min(count, (part + 1) * kPlacesAtATime)); });
}

template <class T>
void take_elements(std::span<const uint32_t> places, const std::byte* in, std::byte* out,
                   const base::ParallelFor& parallel) {
  const auto* from = reinterpret_cast<const T*>(in);
  auto* to = reinterpret_cast<T*>(out);
  for_parts(places.size(), parallel, [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) to[i] = from[places[i]];
  });
}

}  // namespace

void take(std::span<const uint32_t> places, Type type, const std::byte* in, std::byte* out,
          const base::ParallelFor& parallel) {
  if (type == Type::f32)
    take_elements<uint32_t>(places, in, out, parallel);
  else
    take_elements<uint16_t>(places, in, out, parallel);
}

void copy_bytes(const void* from, void* to, size_t bytes, const base::ParallelFor& parallel) {
  for_parts(bytes, parallel, [&](uint64_t begin, uint64_t end) {
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                end - begin);
  });
}

}  // namespace tessera::sparse
