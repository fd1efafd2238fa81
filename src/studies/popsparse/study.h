// The findings of `tessera reproduce popsparse`, organised as in the paper.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "studies/popsparse/power_law.h"
#include "studies/popsparse/published.h"
#include "studies/popsparse/sweep.h"

namespace tessera::studies::popsparse {

/// The dense weight that a sparse one is compared with.
Operand dense_of(const Operand& sparse);

/// The best n of an operand.
struct Best {
  uint32_t n = 0;
  double tflops = 0;
  double columns_per_second = 0;
};

/// The law of speed-ups that the paper gives: 0.0013 · m^0.59 · d^-0.54 · b^0.50 (section 5.3).
const PowerLaw& published_law();

/// "0.0013·m^0.59·d^-0.54·b^0.50"
std::string law_text(const PowerLaw& law);

class Study {
 public:
  /// Reads published tables from a folder, or uses those committed with the study if it is "".
  Study(Outcome outcome, const std::filesystem::path& published);

  const Outcome& outcome() const { return outcome_; }

  // The contents of the sweep, ascending. Figures with a fixed parameter use the paper's value, or the
  // nearest available one.
  const std::vector<Precision>& precisions() const { return precisions_; }
  const std::vector<uint32_t>& sizes() const { return sizes_; }
  const std::vector<uint32_t>& blocks() const { return blocks_; }
  const std::vector<double>& densities() const { return densities_; }  ///< descending
  const std::vector<uint32_t>& columns() const { return columns_; }    ///< of sparse products, if any
  bool has(Mode mode) const { return modes_.contains(mode); }
  Precision precision() const;  ///< FP16
  uint32_t size() const;        ///< 4096
  uint32_t block() const;       ///< 16
  double density() const;       ///< 1/16

  /// A weight of precision(); if it is dense, of that size alone.
  Operand operand(Mode mode, uint32_t size, uint32_t block, double density) const;

  const Result* find(const Cell& cell) const;
  std::optional<double> tflops(const Cell& cell) const;
  /// Over all columns() that fit.
  std::optional<Best> best(const Operand& operand) const;
  /// Speed-up of a sparse product over dense at the same n.
  std::optional<double> speedup(const Cell& cell) const;
  /// The same, each at its best n.
  std::optional<double> best_speedup(const Operand& operand) const;
  /// The density at which an operand's mode and block are as fast as dense, each at its best n: interpolated
  /// between densities of the sweep, linearly in logarithms. None if dense is always faster or always slower.
  std::optional<double> break_even(Mode mode, uint32_t block) const;
  /// Fitted to best_speedup() of static products, as the paper's.
  std::vector<PowerLawSample> law_samples(Mode mode) const;
  std::optional<PowerLawFit> law(Mode mode) const;

  // Published numbers, if any. All are for Bow.
  const std::vector<RatioCell>& published_ratio_cells() const { return ratios_; }
  const std::vector<DenseCell>& published_dense_cells() const { return dense_; }
  std::optional<double> published_dense(const Precision& precision, uint32_t size, uint32_t n) const;
  std::vector<uint32_t> published_dense_columns(const Precision& precision, uint32_t size) const;
  /// From a row of figure 7; a row without a number did not fit.
  const RatioCell* published_ratio(const Cell& cell) const;
  /// TFLOP/s at the best n; of dense ones over the columns of the sweep.
  std::optional<double> published_rate(const Operand& operand) const;
  /// Table 3.
  std::optional<double> published_best_speedup(const Operand& operand) const;

 private:
  std::optional<double> published_best_dense(const Operand& dense) const;

  Outcome outcome_;
  std::vector<RatioCell> ratios_;
  std::vector<DenseCell> dense_;
  std::set<Mode> modes_;
  std::vector<Precision> precisions_;
  std::vector<uint32_t> sizes_;
  std::vector<uint32_t> blocks_;
  std::vector<double> densities_;
  std::vector<uint32_t> columns_;
};

}  // namespace tessera::studies::popsparse
