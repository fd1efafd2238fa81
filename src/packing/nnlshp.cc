#include "packing/nnlshp.h"

#include <algorithm>
#include <cmath>

#include "packing/greedy.h"
#include "packing/least_squares.h"
#include "packing/slots.h"

namespace tessera::pack {
namespace {

// A slot that stays empty costs its tokens, so short ones may stay empty.
constexpr uint32_t kLongestShort = 8;
constexpr double kWeightOfShort = 0.09;

double weight_of(uint32_t length) { return length <= kLongestShort ? kWeightOfShort : 1.0; }

std::vector<Part> parts_of(std::initializer_list<uint32_t> descending) {
  std::vector<Part> parts;
  for (const uint32_t length : descending) {
    if (!parts.empty() && parts.back().length == length)
      ++parts.back().copies;
    else if (length > 0)
      parts.push_back({length, 1});
  }
  return parts;
}

/// All packs of at most three sequences with exactly the maximum number of tokens.
std::vector<Strategy> full_packs(uint32_t max_length) {
  std::vector<Strategy> packs;
  for (uint32_t a = max_length; 3 * uint64_t{a} >= max_length && a > 0; --a) {
    const uint32_t rest = max_length - a;
    for (uint32_t b = std::min(a, rest); 2 * uint64_t{b} >= rest; --b) {
      packs.push_back({parts_of({a, b, rest - b}), 0});
      if (b == 0) break;
    }
  }
  return packs;
}

/// The packs as columns; rows are weighted lengths.
class Columns {
 public:
  explicit Columns(const std::vector<Strategy>& packs) {
    for (const Strategy& pack : packs) {
      for (const Part& part : pack.parts)
        entries_.push_back({part.length - 1, weight_of(part.length) * part.copies});
      ends_.push_back(entries_.size());
    }
  }

  std::vector<Column> views() const {
    std::vector<Column> views;
    size_t begin = 0;
    for (const size_t end : ends_) {
      views.emplace_back(entries_.data() + begin, end - begin);
      begin = end;
    }
    return views;
  }

 private:
  std::vector<ColumnEntry> entries_;
  std::vector<size_t> ends_;
};

}  // namespace

std::vector<Strategy> least_squares_packing(const Histogram& histogram, const std::function<bool()>& stop) {
  std::vector<Strategy> packs = full_packs(histogram.max_length());
  std::vector<double> wanted;
  for (uint32_t l = 1; l <= histogram.max_length(); ++l)
    wanted.push_back(weight_of(l) * static_cast<double>(histogram.counts[l]));
  const std::vector<double> counts = non_negative_least_squares(Columns(packs).views(), wanted, stop);
  for (size_t i = 0; i < packs.size(); ++i) packs[i].count = static_cast<uint64_t>(std::llround(counts[i]));
  Histogram left = histogram;
  std::vector<Strategy> filled = fill_slots(packs, left);
  return longest_pack_first(left, kLeastSquaresDepth, filled);
}

}  // namespace tessera::pack
