#include "sparse/shuffle.h"

#include <cassert>
#include <numeric>
#include <utility>

namespace tessera::sparse {
namespace {

class MinimalStandard {
 public:
  explicit MinimalStandard(uint64_t seed) : state_(seed % kModulus == 0 ? 1 : seed % kModulus) {}

  /// Uniform from 0 to `most`: numbers beyond the largest multiple are rejected.
  uint64_t up_to(uint64_t most) {
    const uint64_t scale = kMostShuffled / (most + 1);
    const uint64_t end = scale * (most + 1);
    uint64_t number = next();
    while (number >= end) number = next();
    return number / scale;
  }

 private:
  static constexpr uint64_t kModulus = 2'147'483'647;

  uint64_t next() {
    state_ = state_ * 16807 % kModulus;
    return state_ - 1;
  }

  uint64_t state_;
};

}  // namespace

std::vector<uint32_t> first_of_shuffled(uint64_t all, uint64_t count, uint64_t seed) {
  assert(count <= all && all <= kMostShuffled);
  std::vector<uint32_t> first(count);
  std::iota(first.begin(), first.end(), 0U);
  MinimalStandard random(seed);
  // Each number is exchanged with one at the same or a lower position. Numbers at later positions have not
  // moved.
  uint64_t i = 1;
  const auto exchange = [&](uint64_t with) {
    if (with < count && i < count)
      std::swap(first[i], first[with]);
    else if (with < count)
      first[with] = static_cast<uint32_t>(i);
    ++i;
  };
  // If the square of the count is in the generator's range, two positions are drawn at once.
  const bool in_pairs = all > 0 && kMostShuffled / all >= all;
  if (in_pairs && all % 2 == 0) exchange(random.up_to(1));
  while (i < all) {
    if (!in_pairs) {
      exchange(random.up_to(i));
      continue;
    }
    const uint64_t both = random.up_to((i + 1) * (i + 2) - 1), second = i + 2;
    exchange(both / second);
    exchange(both % second);
  }
  return first;
}

}  // namespace tessera::sparse
