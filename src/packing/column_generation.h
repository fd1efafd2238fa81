// The linear relaxation of packing, by column generation (Gilmore and Gomory 1961).
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

/// What packs consist of, and how many of them the relaxation wants.
struct FractionalStrategy {
  std::vector<Part> parts;  ///< by descending length
  double count = 0;
};

/// Finds fractional counts of strategies that together cover the histogram with the fewest packs.
/// Strategies are generated where the duals show that they help: for each length the heaviest pack
/// that holds it, by duals between those of the strategies so far and the best known ones, which
/// steadies them (Wentges 1997).
class ColumnGeneration {
 public:
  /// `start` is a valid bound, whose weights are the first best known duals.
  ColumnGeneration(const Histogram& histogram, uint32_t max_per_pack, const Certificate& start);

  /// Whether the tables that solving needs are of a size that can be afforded.
  static bool is_affordable(const Histogram& histogram, uint32_t max_per_pack);

  /// Adds what a pack may consist of. Slots of lengths that do not occur become shorter ones.
  void add(std::span<const Part> parts);

  /// Solves until the fractional packs, rounded up, are proven to be fewest, or for about
  /// `most_work`. False when `stop` ended that.
  bool solve(double most_work, const std::function<bool()>& stop);

  /// Effort so far, in pivots times rows: as much for the same input on every computer.
  double work() const { return static_cast<double>(master_.pivots() * lengths_.size()); }

  double packs() const { return packs_; }  ///< fractional, of the strategies so far
  double bound() const { return bound_; }  ///< on fractional packs, up to rounding errors
  std::vector<FractionalStrategy> solution() const;

  /// The strategies so far whose reduced cost is at most this.
  std::vector<std::vector<Part>> strategies_within(double reduced_cost) const;

  /// Of the best bound, one a length that occurs, ascending.
  const std::vector<double>& best_duals() const { return best_duals_; }

  /// The best bound that the best duals, made integers, prove.
  Certificate certificate() const;

 private:
  void add_pattern(const Pattern& pattern);
  std::vector<Part> parts_of(const Pattern& pattern) const;
  bool is_solved() const;
  size_t add_heavy_packs(std::span<const double> duals, double least);
  size_t price(std::span<const double> duals, double fraction_of_best);

  Histogram histogram_;
  uint32_t max_per_pack_;
  std::vector<uint32_t> lengths_;  // that occur, ascending; one a row
  std::vector<double> demand_;
  Knapsack<double> knapsack_;
  Master master_;
  std::unordered_set<uint64_t> known_;  // hashes of the patterns
  std::vector<double> best_duals_;
  uint32_t turn_ = 0;  // of ties
  double bound_ = 0;
  double packs_ = 0;
};

}  // namespace tessera::pack
