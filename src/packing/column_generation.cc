#include "packing/column_generation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "packing/certificate.h"
#include "packing/greedy.h"

namespace tessera::pack {
namespace {

constexpr double kAttractive = 1e-9;     // minimum reduced cost of a useful pack
constexpr double kFractionOfBest = 0.5;  // weight of the best known duals when generating strategies
constexpr double kDisturbance = 1e-3;    // sequences; breaks ties between rows, which would cause cycling
constexpr double kMostSteps = 2e8;       // per dynamic program

std::vector<double> demand_of(const Histogram& histogram) {
  std::vector<double> demand;
  for (const uint64_t count : histogram.counts)
    if (count > 0) demand.push_back(static_cast<double>(count));
  return demand;
}

/// Golden-ratio steps: all distinct, all small.
std::vector<double> disturbed(std::vector<double> demand) {
  for (size_t i = 0; i < demand.size(); ++i)
    demand[i] += kDisturbance * std::fmod(static_cast<double>(i + 1) * 0.6180339887498949, 1.0);
  return demand;
}

std::vector<uint32_t> most_copies(std::span<const uint32_t> lengths, uint32_t max_length, uint32_t limit) {
  std::vector<uint32_t> copies;
  for (const uint32_t length : lengths) copies.push_back(std::min(limit, max_length / length));
  return copies;
}

uint64_t hash_of(const Pattern& pattern) {
  uint64_t hash = 0x9E3779B97F4A7C15U;
  for (const Slot& slot : pattern) {
    hash ^= (uint64_t{slot.row} << 32 | slot.copies) + 0x9E3779B97F4A7C15U;
    hash *= 0xBF58476D1CE4E5B9U;
    hash ^= hash >> 29;
  }
  return hash;
}

double weight_of(const Pattern& pattern, std::span<const double> duals) {
  double weight = 0;
  for (const Slot& slot : pattern) weight += duals[slot.row] * slot.copies;
  return weight;
}

double weight_of(std::span<const double> demand, std::span<const double> duals) {
  return std::inner_product(demand.begin(), demand.end(), duals.begin(), 0.0);
}

}  // namespace

ColumnGeneration::ColumnGeneration(const Histogram& histogram, uint32_t max_per_pack,
                                   const Certificate& start)
    : histogram_(histogram),
      max_per_pack_(max_per_pack),
      lengths_(lengths_of(histogram)),
      demand_(demand_of(histogram)),
      knapsack_(lengths_, histogram.max_length(), depth_limit(max_per_pack)),
      master_(disturbed(demand_), most_copies(lengths_, histogram.max_length(), depth_limit(max_per_pack))) {
  const std::vector<uint32_t> copies =
      most_copies(lengths_, histogram.max_length(), depth_limit(max_per_pack));
  for (uint32_t row = 0; row < lengths_.size(); ++row) known_.insert(hash_of({{row, copies[row]}}));
  for (const uint32_t length : lengths_)
    best_duals_.push_back(static_cast<double>(start.weights[length]) / static_cast<double>(start.heaviest));
  bound_ = weight_of(demand_, best_duals_);
  packs_ = demand_.empty() ? 0 : std::numeric_limits<double>::infinity();
}

bool ColumnGeneration::is_affordable(const Histogram& histogram, uint32_t max_per_pack) {
  const std::vector<uint32_t> lengths = lengths_of(histogram);
  if (lengths.empty()) return false;
  const auto deepest = static_cast<double>(histogram.max_length() / lengths.front());
  const double layers = depth_limit(max_per_pack) < deepest ? max_per_pack : 1;
  return layers * static_cast<double>(lengths.size()) * histogram.max_length() <= kMostSteps;
}

void ColumnGeneration::add(std::span<const Part> parts) {
  Pattern pattern;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    const auto above = std::upper_bound(lengths_.begin(), lengths_.end(), part->length);
    if (above == lengths_.begin()) continue;
    const uint32_t row = static_cast<uint32_t>(above - lengths_.begin()) - 1;
    if (!pattern.empty() && pattern.back().row == row)
      pattern.back().copies += part->copies;
    else
      pattern.push_back({row, part->copies});
  }
  if (!pattern.empty()) add_pattern(pattern);
}

void ColumnGeneration::add_pattern(const Pattern& pattern) {
  if (known_.insert(hash_of(pattern)).second) master_.add(pattern);
}

bool ColumnGeneration::is_solved() const {
  return std::ceil(packs_ - kRounding) <= std::ceil(bound_ - kRounding);
}

size_t ColumnGeneration::add_heavy_packs(std::span<const double> duals, double least) {
  const size_t before = master_.patterns();
  for (uint32_t row = 0; row < lengths_.size(); ++row) {
    turn_ += 0x9E3779B9U;
    const Pattern pattern = knapsack_.pack_with(row, turn_);
    if (weight_of(pattern, duals) > least) add_pattern(pattern);
  }
  return master_.patterns() - before;
}

size_t ColumnGeneration::price(std::span<const double> duals, double fraction_of_best) {
  std::vector<double> between(duals.size());
  for (size_t i = 0; i < duals.size(); ++i)
    between[i] = fraction_of_best * best_duals_[i] + (1 - fraction_of_best) * duals[i];
  knapsack_.solve(between);
  const size_t added = add_heavy_packs(duals, 1 + kAttractive);
  const double heaviest = knapsack_.heaviest();
  const double bound = heaviest > 0 ? weight_of(demand_, between) / heaviest : 0;
  if (bound > bound_) {
    bound_ = bound;
    for (double& dual : between) dual /= heaviest;
    best_duals_ = std::move(between);
  }
  return added;
}

bool ColumnGeneration::solve(double most_work, const std::function<bool()>& stop) {
  if (lengths_.empty()) return true;
  const auto is_enough = [&] { return work() >= most_work || stop(); };
  knapsack_.solve(best_duals_);
  add_heavy_packs(best_duals_, 0);
  double fraction_of_best = kFractionOfBest;
  for (;;) {
    const bool is_optimal = master_.optimize(is_enough);
    packs_ = weight_of(demand_, master_.duals());
    if (!is_optimal) return !stop();
    if (is_solved()) return true;
    if (price(master_.duals(), fraction_of_best) > 0)
      fraction_of_best = std::min(kFractionOfBest, fraction_of_best + 0.1);
    else if (fraction_of_best > 0)
      fraction_of_best = fraction_of_best < 0.3 ? 0 : fraction_of_best / 2;
    else
      return true;
  }
}

std::vector<Part> ColumnGeneration::parts_of(const Pattern& pattern) const {
  std::vector<Part> parts;
  for (auto slot = pattern.rbegin(); slot != pattern.rend(); ++slot)
    parts.push_back({lengths_[slot->row], slot->copies});
  return parts;
}

std::vector<FractionalStrategy> ColumnGeneration::solution() const {
  std::vector<FractionalStrategy> result;
  for (const Master::Use& use : master_.solution())
    result.push_back({parts_of(master_.pattern(use.pattern)), use.count});
  return result;
}

std::vector<std::vector<Part>> ColumnGeneration::strategies_within(double reduced_cost) const {
  std::vector<std::vector<Part>> result;
  for (uint32_t i = 0; i < master_.patterns(); ++i) {
    const Pattern pattern = master_.pattern(i);
    if (1 - weight_of(pattern, master_.duals()) <= reduced_cost) result.push_back(parts_of(pattern));
  }
  return result;
}

Certificate ColumnGeneration::certificate() const {
  return integer_certificate(histogram_, max_per_pack_, best_duals_);
}

}  // namespace tessera::pack
