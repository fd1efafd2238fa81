#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/ceil_divide.h"
#include "kernels/tile/tile_product/codelet.h"
#include "kernels/tile/tile_product/cost.h"
#include "ops/dense/dense.h"
#include "ops/plan.h"
#include "ops/tiles/vendor_limits.h"
#include "program/cycles.h"
#include "program/sizes.h"

namespace tessera::ops {
namespace {

using base::ceil_divide;
using machine::Machine;
using program::Phase;

constexpr uint32_t kMostSlices = 64;

/// Numbers of parts, up to `most`, that differ in the size of their largest part; and for each odd one the
/// next even one, which leaves no tile without a neighbour.
std::vector<uint32_t> part_counts(uint32_t units, uint32_t most) {
  std::vector<uint32_t> counts;
  uint32_t size = ~0U;
  for (uint32_t parts = 1; parts <= std::min(std::max(1U, units), most); ++parts) {
    const bool even_sibling = parts % 2 == 0 && !counts.empty() && counts.back() == parts - 1;
    if (ceil_divide(units, parts) == size && !even_sibling) continue;
    size = ceil_divide(units, parts);
    counts.push_back(parts);
  }
  return counts;
}

/// The expected cost of one partition in closed form: parts are as equal as possible.
class Estimate {
 public:
  Estimate(const DenseShape& s, const DensePartition& partition, const Machine& m)
      : s_(s), partition_(partition), m_(m) {
    const uint32_t grain = dense_inner_grain(s.numbers.operands);
    const auto largest = [](uint32_t total, uint32_t slices, uint32_t parts, uint32_t g) {
      const uint32_t units = ceil_divide(ceil_divide(total, slices), g);
      return std::min<uint32_t>(total, ceil_divide(units, parts) * g);
    };
    rows_ = largest(s.m, partition.m_slices, partition.m_parts, kDenseRowGrain);
    inner_ = largest(s.k, 1, partition.k_parts, grain);
    cols_ = largest(s.n, partition.n_slices, partition.n_parts, 1);
    const auto size = static_cast<double>(size_of(s.numbers.operands));
    w_ = size * rows_ * inner_;
    x_ = size * inner_ * cols_;
    y_ = size * rows_ * cols_;
    partial_ = y_ / size * static_cast<double>(size_of(s.numbers.partials));
  }

  Expected<DensePartition> all() const {
    program::PhaseTimes cycles;
    if (copies_w() || copies_x()) add_exchange(m_, broadcast_cycles(), cycles);
    cycles[Phase::compute] += kernels::dense_cycles(m_, s_.numbers.operands, rows_, inner_, cols_);
    cycles[Phase::control] += program::superstep_cycles(m_, partition_.tiles());
    if (partition_.k_parts > 1) add_reduction(cycles);
    if (partition_.slices() > 1) cycles[Phase::exchange] += y_ / partition_.k_parts / m_.load_bytes_per_cycle;
    return {partition_, cycles.scaled(partition_.slices()), bytes()};
  }

  double left_bytes() const { return w_; }
  double right_bytes() const { return x_; }

  /// The maximum alive at one time: factors and partials, or partials as computed and as received.
  double temporaries() const {
    const double multiplied = (copies_w() ? w_ : 0) + (copies_x() ? x_ : 0);
    return partition_.k_parts > 1 ? partial_ + std::max(multiplied, partial_) : multiplied;
  }

 private:
  bool copies_w() const { return partition_.n_parts > 1 || partition_.m_slices > 1; }
  bool copies_x() const { return partition_.m_parts > 1 || partition_.n_slices > 1; }

  /// A tile copies its own slice; it receives the rest, with its neighbour if they share it.
  double broadcast_cycles() const {
    program::TileTraffic t;
    const auto receive = [&](double bytes, uint32_t users, bool neighbours) {
      const double own = bytes / std::min(users, 16U);
      t.local += own;
      (neighbours && users % 2 == 0 ? t.paired_in : t.in) += bytes - own;
    };
    if (copies_w()) receive(w_, partition_.n_parts, !partition_.pairs_share_x);
    if (copies_x()) receive(x_, partition_.m_parts, partition_.pairs_share_x);
    return program::traffic_cycles(m_, t);
  }

  void add_reduction(program::PhaseTimes& cycles) const {
    double left = partition_.k_parts;
    if (partition_.staged_sums)
      for (uint32_t depth : vendor_sum_depths(partition_.k_parts)) {
        add_stage(std::ceil(left / depth), depth, s_.numbers.partials, cycles);
        left = depth;
      }
    add_stage(left, 1, s_.numbers.operands, cycles);
  }

  /// Each tile adds `partials` partial sums to its slice of `depth` sums.
  void add_stage(double partials, double depth, Type result, program::PhaseTimes& cycles) const {
    const double share = depth / partition_.k_parts;
    program::TileTraffic t;
    t.local = partial_ * share;
    t.in = t.out = t.local * (partials - 1);
    add_exchange(m_, program::traffic_cycles(m_, t), cycles);
    TiledNumbers numbers = s_.numbers;
    numbers.operands = result;
    cycles[Phase::reduce] +=
        reduce_cycles(m_, numbers, partials, std::ceil(double{1} * rows_ * cols_ * share));
    cycles[Phase::control] += program::superstep_cycles(m_, partition_.tiles());
  }

  double bytes() const {
    const double resident = w_ * partition_.m_slices / partition_.n_parts +
                            x_ * partition_.n_slices / partition_.m_parts +
                            y_ * partition_.slices() / partition_.k_parts;
    return resident + temporaries() + program::kStackBytes;
  }

  const DenseShape& s_;
  const DensePartition& partition_;
  const Machine& m_;
  uint32_t rows_ = 0;
  uint32_t inner_ = 0;
  uint32_t cols_ = 0;
  double w_ = 0;
  double x_ = 0;
  double y_ = 0;
  double partial_ = 0;
};

/// Searches the grids over the tiles for given slices, including gradients that are computed in the same
/// grid, if there are any.
class GridSearch {
 public:
  GridSearch(const DenseShape& shape, Planner planner, const Machine& m, const DensePartition& forced,
             bool has_gradients = false)
      : shape_(shape), planner_(planner), m_(m), forced_(forced), has_gradients_(has_gradients) {}

  std::vector<Expected<DensePartition>> search() {
    for (uint32_t slices = 1; slices <= kMostSlices; slices *= 2) {
      if (may_slice(shape_.n, slices, forced_.n_slices))
        search(forced_.m_slices == 0 ? 1 : forced_.m_slices, slices);
      if (slices > 1 && may_slice(shape_.m, slices, forced_.m_slices) && forced_.n_slices <= 1)
        search(slices, 1);
    }
    if (forced_.n_slices > 1) search(1, forced_.n_slices);
    if (forced_.m_slices > 1) search(forced_.m_slices, 1);
    keep_best(found_, m_);
    return std::move(found_);
  }

 private:
  static bool may_slice(uint32_t total, uint32_t slices, uint32_t forced) {
    return forced == 0 ? slices == 1 || slices <= total : slices == 1 && forced == 1;
  }

  std::vector<uint32_t> counts(uint32_t units, uint32_t forced, uint32_t most) const {
    if (forced != 0) return {std::min({forced, std::max(1U, units), most})};
    return part_counts(units, most);
  }

  void search(uint32_t m_slices, uint32_t n_slices) {
    const uint32_t m_units = ceil_divide(ceil_divide(shape_.m, m_slices), kDenseRowGrain);
    const uint32_t k_units = ceil_divide(shape_.k, dense_inner_grain(shape_.numbers.operands));
    const uint32_t n_units = ceil_divide(shape_.n, n_slices);
    for (uint32_t m : counts(m_units, forced_.m_parts, m_.tiles))
      for (uint32_t k : counts(k_units, forced_.k_parts, m_.tiles / m))
        for (uint32_t n : n_counts(n_units, m_.tiles / m / k))
          for (bool slice_x : {true, false}) consider({m, k, n, m_slices, n_slices, slice_x});
  }

  /// For n, only the maximum number of parts that the tiles allow, and small numbers.
  std::vector<uint32_t> n_counts(uint32_t units, uint32_t most) const {
    if (forced_.n_parts != 0) return counts(units, forced_.n_parts, most);
    const uint32_t all = std::min(std::max(1U, units), most);
    std::vector<uint32_t> parts = {all};
    if (all > 1 && all % 2 == 1) parts.push_back(all - 1);
    if (all > 1) parts.push_back(ceil_divide(units, ceil_divide(units, all)));
    if (all > 2) parts.push_back(1);
    std::sort(parts.begin(), parts.end());
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    return parts;
  }

  void consider(DensePartition partition) {
    if (!partition.pairs_share_x && partition.n_parts == 1) return;
    partition.staged_sums = planner_ == Planner::vendor && !vendor_sum_depths(partition.k_parts).empty();
    const Estimate estimate(shape_, partition, m_);
    Expected<DensePartition> expected = estimate.all();
    if (planner_ == Planner::vendor &&
        estimate.temporaries() > kVendorMemoryFraction * static_cast<double>(m_.tile_bytes))
      expected.bytes = std::max(expected.bytes, 1.0 + static_cast<double>(m_.tile_bytes));
    if (has_gradients_) add_gradients(partition, expected);
    found_.push_back(expected);
  }

  /// In a mirrored partition, gradients are products over m and over n, with Wᵀ and Xᵀ.
  void add_gradients(const DensePartition& p, Expected<DensePartition>& expected) const {
    const auto add = [&](const DenseShape& shape, const DensePartition& partition, bool transposes_left) {
      const Estimate estimate(shape, partition, m_);
      const Expected<DensePartition> gradient = estimate.all();
      const double transposed = transposes_left ? estimate.left_bytes() : estimate.right_bytes();
      const Type type = shape.numbers.operands;
      expected.cycles += gradient.cycles;
      expected.cycles[Phase::compute] +=
          kernels::transpose_cycles(m_, type, transposed / static_cast<double>(size_of(type)));
      expected.bytes = std::max(expected.bytes, gradient.bytes);
    };
    add({shape_.k, shape_.m, shape_.n, shape_.numbers},
        {p.k_parts, p.m_parts, p.n_parts, 1, 1, p.pairs_share_x}, true);
    add({shape_.m, shape_.n, shape_.k, shape_.numbers},
        {p.m_parts, p.n_parts, p.k_parts, 1, 1, p.pairs_share_x}, false);
  }

  const DenseShape& shape_;
  Planner planner_;
  const Machine& m_;
  const DensePartition& forced_;
  const bool has_gradients_;
  std::vector<Expected<DensePartition>> found_;
};

/// An operand is stored part by part as one row of a variable.
void check_sizes(const DenseShape& s, const Machine& machine) {
  constexpr uint64_t kMostElements = ~0U;
  const std::pair<uint32_t, uint32_t> operands[] = {{s.m, s.k}, {s.k, s.n}, {s.m, s.n}};
  for (const auto& [rows, cols] : operands)
    if (uint64_t{rows} * cols > kMostElements)
      throw TooLarge(
          fmt::format("a dense product of {} × {} with n = {} does not fit {}: an operand of {} × {} has {} "
                      "elements; on tiles it may have {}; use a smaller weight or fewer columns",
                      s.m, s.k, s.n, machine.name, rows, cols, uint64_t{rows} * cols, kMostElements));
}

}  // namespace

// The depths divide the messages that a tile receives evenly over the stages.
std::vector<uint32_t> vendor_sum_depths(uint32_t partials) {
  constexpr uint32_t kTwoStages = 16, kThreeStages = 125;  // least numbers of partial sums
  struct Stages {
    std::vector<uint32_t> depths;
    double messages = 0;
  };
  const auto divide = [](const auto& self, uint32_t left, uint32_t stages) -> Stages {
    if (stages == 1) return {{}, static_cast<double>(left)};
    const auto down = static_cast<uint32_t>(std::pow(double{1} * left, (stages - 1.0) / stages));
    Stages best;
    for (const uint32_t depth : {down + 1, down}) {
      Stages next = self(self, depth, stages - 1);
      next.messages += double{1} * left / depth;
      if (best.depths.empty() || next.messages < best.messages) {
        next.depths.insert(next.depths.begin(), depth);
        best = std::move(next);
      }
    }
    return best;
  };
  return divide(divide, partials,
                partials >= kThreeStages ? kMostSumStages
                : partials >= kTwoStages ? 2
                                         : 1)
      .depths;
}

std::string to_string(const DensePartition& partition) {
  return fmt::format("m_parts={} k_parts={} n_parts={} m_slices={} n_slices={} pairs_share={}{}",
                     partition.m_parts, partition.k_parts, partition.n_parts, partition.m_slices,
                     partition.n_slices, partition.pairs_share_x ? "x" : "w",
                     partition.staged_sums ? " staged_sums" : "");
}

std::vector<Expected<DensePartition>> dense_partitions(const DenseShape& shape, Planner planner,
                                                       const Machine& machine, const DensePartition& forced) {
  check_sizes(shape, machine);
  return GridSearch(shape, planner, machine, forced).search();
}

std::vector<DensePartition> partitions_with_gradients(const DenseShape& shape, const Machine& machine) {
  constexpr double kHardlyLonger = 1.05;
  check_sizes(shape, machine);
  const DensePartition without_slices{0, 0, 0, 1, 1};
  std::vector<Expected<DensePartition>> found =
      GridSearch(shape, Planner::best, machine, without_slices, true).search();
  const double longest = kHardlyLonger * found.front().cycles.total();
  std::erase_if(found, [&](const auto& expected) { return expected.cycles.total() > longest; });
  std::stable_sort(found.begin() + 1, found.end(),
                   [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  found.resize(std::min(found.size(), kRecounted));
  std::vector<DensePartition> partitions;
  for (const Expected<DensePartition>& expected : found) partitions.push_back(expected.partition);
  return partitions;
}

}  // namespace tessera::ops
