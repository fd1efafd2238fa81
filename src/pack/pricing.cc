#include "pack/pricing.h"

#include <algorithm>

namespace tessera::pack {
namespace {

/// to[i] = max(to[i], from[i] + weight), where the two do not overlap.
template <class Weight>
void raise(Weight* __restrict to, const Weight* __restrict from, size_t size, Weight weight) {
  for (size_t i = 0; i < size; ++i) {
    const Weight other = from[i] + weight;
    to[i] = to[i] > other ? to[i] : other;
  }
}

}  // namespace

template <class Weight>
Knapsack<Weight>::Knapsack(std::vector<uint32_t> lengths, uint32_t max_length, uint32_t depth_limit)
    : lengths_(std::move(lengths)), max_length_(max_length), depth_limit_(depth_limit) {
  deepest_ = lengths_.empty() ? 0 : max_length / lengths_.front();
  tables_.assign(is_layered() ? size_t{depth_limit_} + 1 : 1, {});
}

template <class Weight>
void Knapsack<Weight>::weigh(std::span<const Weight> weights) {
  weights_.assign(weights.begin(), weights.end());
  for (std::vector<Weight>& table : tables_) table.assign(size_t{max_length_} + 1, Weight{0});
  if (is_layered()) {
    for (size_t d = 1; d < tables_.size(); ++d)
      for (size_t row = 0; row < lengths_.size(); ++row)
        raise(tables_[d].data() + lengths_[row], tables_[d - 1].data(),
              max_length_ + 1 - lengths_[row], weights_[row]);
    return;
  }
  Weight* const table = tables_[0].data();
  for (size_t row = 0; row < lengths_.size(); ++row) {
    // Stretches as long as the sequence: each depends on the one before only.
    const size_t length = lengths_[row];
    for (size_t at = length; at <= max_length_; at += length)
      raise(table + at, table + at - length, std::min(length, max_length_ + 1 - at), weights_[row]);
  }
}

template <class Weight>
Weight Knapsack<Weight>::heaviest_with(uint32_t row) const {
  return weights_[row] + beside_one()[max_length_ - lengths_[row]];
}

template <class Weight>
Pattern Knapsack<Weight>::pack_with(uint32_t row) const {
  std::vector<uint32_t> rows = {row};
  uint32_t room = max_length_ - lengths_[row];
  size_t layer = is_layered() ? tables_.size() - 2 : 0;
  while (!is_layered() || layer > 0) {
    const std::vector<Weight>& rest = tables_[is_layered() ? layer - 1 : 0];
    uint32_t best = 0;
    Weight heaviest{0};
    for (uint32_t i = 0; i < lengths_.size() && lengths_[i] <= room; ++i) {
      const Weight weight = weights_[i] + rest[room - lengths_[i]];
      if (weights_[i] > Weight{0} && weight >= heaviest) {
        heaviest = weight;
        best = i + 1;
      }
    }
    if (best == 0) break;
    rows.push_back(best - 1);
    room -= lengths_[best - 1];
    --layer;
  }
  std::sort(rows.begin(), rows.end());
  Pattern pattern;
  for (const uint32_t r : rows) {
    if (pattern.empty() || pattern.back().row != r)
      pattern.push_back({r, 1});
    else
      ++pattern.back().copies;
  }
  return pattern;
}

template class Knapsack<double>;
template class Knapsack<uint64_t>;

}  // namespace tessera::pack
