// The linear relaxation of packing by column generation (Gilmore and Gomory 1961).
#pragma once

#include <tessera/packing.h>

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_set>
#include <vector>

#include "packing/master.h"
#include "packing/pricing.h"

namespace tessera::pack {

inline constexpr double kRounding = 1e-6;  ///< tolerance for rounding errors, in packs

/// The contents of packs, and their fractional count in the relaxation.
struct FractionalStrategy {
  std::vector<Part> parts;  ///< by descending length
  double count = 0;
};

/// Finds fractional counts of strategies that cover the histogram with the fewest packs. Strategies are
/// generated where the duals show that they help: for each length the heaviest pack that contains it, with
/// duals between the present and the best known ones, for stabilisation (Wentges 1997).
class ColumnGeneration {
 public:
  /// `start` is a valid bound; its weights are the first best known duals.
  ColumnGeneration(const Histogram& histogram, uint32_t max_per_pack, const Certificate& start);

  /// Whether the tables needed for solving have an affordable size.
  static bool is_affordable(const Histogram& histogram, uint32_t max_per_pack);

  /// Adds a strategy. Slots of lengths that do not occur become slots of shorter ones.
  void add(std::span<const Part> parts);

  /// Solves until the fractional packs, rounded up, are proven minimal, or for about `most_work`. False if
  /// `stop` ended it.
  bool solve(double most_work, const std::function<bool()>& stop);

  /// Work so far, in pivots times rows: the same for the same input on every machine.
  double work() const { return static_cast<double>(master_.pivots() * lengths_.size()); }

  double packs() const { return packs_; }  ///< fractional, using the strategies so far
  double bound() const { return bound_; }  ///< lower bound on fractional packs, up to rounding errors
  std::vector<FractionalStrategy> solution() const;

  /// The strategies so far with at most this reduced cost.
  std::vector<std::vector<Part>> strategies_within(double reduced_cost) const;

  /// Duals of the best bound, one per occurring length, ascending.
  const std::vector<double>& best_duals() const { return best_duals_; }

  /// The best bound that the best duals, converted to integers, prove.
  Certificate certificate() const;

 private:
  void add_pattern(const Pattern& pattern);
  std::vector<Part> parts_of(const Pattern& pattern) const;
  bool is_solved() const;
  size_t add_heavy_packs(std::span<const double> duals, double least);
  size_t price(std::span<const double> duals, double fraction_of_best);

  Histogram histogram_;
  uint32_t max_per_pack_;
  std::vector<uint32_t> lengths_;  // occurring lengths, ascending; one per row
  std::vector<double> demand_;
  Knapsack<double> knapsack_;
  Master master_;
  std::unordered_set<uint64_t> known_;  // hashes of the patterns
  std::vector<double> best_duals_;
  uint32_t turn_ = 0;  // for breaking ties
  double bound_ = 0;
  double packs_ = 0;
};

}  // namespace tessera::pack
