#include "packing/pricing.h"

#include <algorithm>
#include <type_traits>

namespace tessera::pack {
namespace {

/// to[i] = max(to[i], from[i] + weight), without overlap of the two.
template <class Weight>
void raise(Weight* __restrict to, const Weight* __restrict from, size_t size, Weight weight) {
  for (size_t i = 0; i < size; ++i) {
    const Weight other = from[i] + weight;
    to[i] = to[i] > other ? to[i] : other;
  }
}

/// Weights that differ by at most this are equal.
template <class Weight>
constexpr Weight tie() {
  return std::is_floating_point_v<Weight> ? static_cast<Weight>(1e-9) : Weight{0};
}

/// Converts rows in ascending order to slots.
Pattern counted(std::span<const uint32_t> rows) {
  Pattern pattern;
  for (const uint32_t row : rows) {
    if (pattern.empty() || pattern.back().row != row)
      pattern.push_back({row, 1});
    else
      ++pattern.back().copies;
  }
  return pattern;
}

}  // namespace

template <class Weight>
Knapsack<Weight>::Knapsack(std::vector<uint32_t> lengths, uint32_t max_length, uint32_t depth_limit)
    : lengths_(std::move(lengths)), max_length_(max_length), depth_limit_(depth_limit) {
  deepest_ = lengths_.empty() ? 0 : max_length / lengths_.front();
  tables_.assign(is_layered() ? size_t{depth_limit_} + 1 : 1, {});
}

template <class Weight>
uint64_t Knapsack<Weight>::bytes_of(std::span<const uint32_t> lengths, uint32_t max_length,
                                    uint32_t depth_limit) {
  const uint32_t deepest = lengths.empty() ? 0 : max_length / lengths.front();
  const uint64_t tables = depth_limit < deepest ? uint64_t{depth_limit} + 1 : 1;
  return tables * (sizeof(std::vector<Weight>) + (uint64_t{max_length} + 1) * sizeof(Weight));
}

template <class Weight>
void Knapsack<Weight>::solve(std::span<const Weight> weights) {
  weights_.assign(weights.begin(), weights.end());
  for (std::vector<Weight>& table : tables_) table.assign(size_t{max_length_} + 1, Weight{0});
  if (is_layered()) {
    for (size_t d = 1; d < tables_.size(); ++d)
      for (size_t row = 0; row < lengths_.size(); ++row)
        raise(tables_[d].data() + lengths_[row], tables_[d - 1].data(), max_length_ + 1 - lengths_[row],
              weights_[row]);
    return;
  }
  Weight* const table = tables_[0].data();
  for (size_t row = 0; row < lengths_.size(); ++row) {
    // Stretches of the sequence's length: each depends only on the preceding one.
    const size_t length = lengths_[row];
    for (size_t at = length; at <= max_length_; at += length)
      raise(table + at, table + at - length, std::min(length, max_length_ + 1 - at), weights_[row]);
  }
}

template <class Weight>
std::optional<uint32_t> Knapsack<Weight>::heaviest_row(uint32_t room, const std::vector<Weight>& rest,
                                                       uint32_t seed) const {
  const auto fitting = std::upper_bound(lengths_.begin(), lengths_.end(), room) - lengths_.begin();
  std::optional<uint32_t> best;
  Weight heaviest{0};
  // Starts at a varying row and wraps around, so that ties are broken differently each time.
  uint32_t row = static_cast<uint32_t>(uint64_t{seed} * static_cast<uint64_t>(fitting) >> 32);
  for (ptrdiff_t i = 0; i < fitting; ++i, row = row + 1 == fitting ? 0 : row + 1) {
    const Weight weight = weights_[row] + rest[room - lengths_[row]];
    if (weights_[row] <= Weight{0} || weight <= heaviest + tie<Weight>()) continue;
    heaviest = weight;
    best = row;
  }
  return best;
}

template <class Weight>
Pattern Knapsack<Weight>::pack_with(uint32_t row, uint32_t seed) const {
  std::vector<uint32_t> rows = {row};
  uint32_t room = max_length_ - lengths_[row];
  size_t layer = is_layered() ? tables_.size() - 2 : 0;
  while (!is_layered() || layer > 0) {
    const std::vector<Weight>& rest = tables_[is_layered() ? layer - 1 : 0];
    seed = seed * 1664525U + 1013904223U;
    const std::optional<uint32_t> next = heaviest_row(room, rest, seed);
    if (!next) break;
    rows.push_back(*next);
    room -= lengths_[*next];
    --layer;
  }
  std::sort(rows.begin(), rows.end());
  return counted(rows);
}

template class Knapsack<double>;
template class Knapsack<uint64_t>;

}  // namespace tessera::pack
