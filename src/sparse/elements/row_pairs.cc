#include "sparse/elements/row_pairs.h"

#include <algorithm>
#include <bit>
#include <span>

namespace tessera::sparse {
namespace {

/// Number of slices among which a partner is searched. Twice as many raise the overlap by a few per cent.
constexpr size_t kWindow = 96;

/// Value of a partner: a shared column saves loading a row of X and an index, and each element of the partner
/// saves filler. In loads, at four vectors of columns.
constexpr uint32_t kSharedColumn = 9;
constexpr uint32_t kPartnerElement = 11;

/// One bit per column, for each slice.
class ColumnSets {
 public:
  ColumnSets(std::span<const RowSlice> slices, uint32_t first_column, uint32_t width)
      : words_((width + 63) / 64), bits_(slices.size() * words_) {
    for (size_t s = 0; s < slices.size(); ++s) {
      for (uint32_t i = 0; i < slices[s].count; ++i) {
        const uint32_t column = slices[s].columns[i] - first_column;
        bits_[s * words_ + column / 64] |= uint64_t{1} << (column % 64);
      }
    }
  }

  uint32_t overlap(size_t s, size_t t) const {
    uint32_t common = 0;
    for (size_t w = 0; w < words_; ++w) {
      common += std::popcount(bits_[s * words_ + w] & bits_[t * words_ + w]);
    }
    return common;
  }

 private:
  size_t words_;
  std::vector<uint64_t> bits_;
};

}  // namespace

std::vector<RowPair> pair_rows(std::vector<RowSlice> slices, uint32_t first_column, uint32_t width) {
  std::stable_sort(slices.begin(), slices.end(),
                   [](const RowSlice& a, const RowSlice& b) { return a.count > b.count; });
  const ColumnSets sets(slices, first_column, width);
  std::vector<uint32_t> waiting(slices.size());
  for (uint32_t s = 0; s < slices.size(); ++s) waiting[s] = s;

  std::vector<RowPair> pairs;
  pairs.reserve((slices.size() + 1) / 2);
  size_t head = 0;
  for (; head + 1 < waiting.size(); head += 2) {
    const size_t end = std::min(waiting.size(), head + 1 + kWindow);
    size_t best = head + 1;
    uint32_t best_overlap = 0;
    uint32_t best_worth = 0;
    for (size_t candidate = head + 1; candidate < end; ++candidate) {
      const uint32_t overlap = sets.overlap(waiting[head], waiting[candidate]);
      const uint32_t worth = kSharedColumn * overlap + kPartnerElement * slices[waiting[candidate]].count;
      if (worth > best_worth) {
        best = candidate;
        best_overlap = overlap;
        best_worth = worth;
      }
    }
    const uint32_t partner = waiting[best];
    // Shift the skipped ones, so that the following ones keep their order.
    std::move_backward(waiting.begin() + head + 1, waiting.begin() + best, waiting.begin() + best + 1);
    pairs.push_back({slices[waiting[head]], slices[partner], static_cast<uint16_t>(best_overlap)});
  }
  if (head < waiting.size()) {
    pairs.push_back({slices[waiting[head]], RowSlice{0, 0, nullptr}, 0});
  }
  return pairs;
}

}  // namespace tessera::sparse
