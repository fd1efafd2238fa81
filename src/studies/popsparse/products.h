// The products of a sweep on one machine, organised as in the paper.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "studies/popsparse/power_law.h"
#include "studies/popsparse/sweep.h"

namespace tessera::studies::popsparse {

class Products {
 public:
  Products(const Study& study, const Part& part);

  const Part& part() const { return part_; }
  /// The products that have a result.
  const std::map<Case, const Result*>& results() const { return results_; }
  std::set<Operand> operands() const;

  // The contents of the sweep, ascending. Figures with a fixed parameter use the paper's value, or the
  // nearest available one.
  const std::vector<Precision>& precisions() const { return precisions_; }
  const std::vector<uint32_t>& sizes() const { return sizes_; }
  const std::vector<uint32_t>& blocks() const { return blocks_; }
  const std::vector<double>& densities() const { return densities_; }  ///< descending
  const std::vector<uint32_t>& columns() const { return columns_; }    ///< columns of sparse products, if any
  Precision precision() const;                                         ///< FP16
  uint32_t size() const;                                               ///< 4096
  uint32_t block() const;                                              ///< 16
  double density() const;                                              ///< 1/16

  /// A weight of precision(); a dense weight depends on the size alone.
  Operand operand(Mode mode, uint32_t size, uint32_t block, double density) const;

  const Result* find(const Case& what) const;
  /// The n of columns() with most columns per second, among those that fit.
  std::optional<uint32_t> best_n(const Operand& operand) const;

  // Our numbers beside those published for a Bow.
  Comparison tflops(const Case& what) const;   ///< figure 2
  Comparison speedup(const Case& what) const;  ///< over dense at the same n: figure 7
  /// The rate of a sparse product itself: figure 7 times figure 2, where both have a number.
  Comparison rate(const Case& what) const;
  Comparison best_tflops(const Operand& operand) const;   ///< at the best n: figures 3a, 4a
  Comparison best_speedup(const Operand& operand) const;  ///< each at its best n: table 3
  const Published& published() const { return published_; }

  /// The density at which a mode and block are as fast as dense, each at its best n: interpolated between
  /// densities of the sweep, linearly in logarithms. None if dense is always faster or always slower.
  std::optional<double> break_even(Mode mode, uint32_t block) const;
  /// Samples for a power law of best_speedup() over products of a mode, like the paper's.
  std::vector<PowerLawSample> law_samples(Mode mode) const;
  std::optional<PowerLawFit> law(Mode mode) const { return fit_power_law(law_samples(mode)); }

 private:
  std::optional<double> value(const Case& what, const char* name) const;
  /// Seconds per column at the best n.
  std::optional<double> best_seconds(const Operand& operand) const;
  Comparison compare(const std::string& name, std::string group, std::optional<double> ours,
                     const char* table, const char* column) const;

  const Part& part_;
  const Published& published_;
  std::map<Case, const Result*> results_;
  std::vector<Precision> precisions_;
  std::vector<uint32_t> sizes_;
  std::vector<uint32_t> blocks_;
  std::vector<double> densities_;
  std::vector<uint32_t> columns_;
};

}  // namespace tessera::studies::popsparse
