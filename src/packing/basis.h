// Factorisation of a simplex basis.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::pack {

/// An entry of a sparse column (unlike Entry, an entry of a pack).
struct ColumnEntry {
  uint32_t row = 0;
  double value = 0;
};

using Column = std::span<const ColumnEntry>;

/// A square matrix of sparse columns as L · U, and its successors with single columns replaced, as factors on
/// top (the product form of the inverse).
class Basis {
 public:
  /// Factors the matrix with these columns, by position. False if it is singular.
  bool factor(std::span<const Column> columns);

  /// B⁻¹ · column, by position, into `out`.
  void solve(Column column, std::vector<double>& out) const;
  /// B⁻¹ · a dense vector by rows.
  void solve(std::vector<double>& rows_in, std::vector<double>& out) const;
  /// yᵀ = cᵀ · B⁻¹ for costs c by position, overwritten, into `out`, by rows.
  void solve_transposed(std::vector<double>& costs, std::vector<double>& out) const;

  /// Replaces the column at that position by one with B⁻¹ · column = `solved`.
  void replace(uint32_t position, const std::vector<double>& solved);

  /// Columns replaced since factor().
  size_t replaced() const { return etas_.size(); }
  size_t non_zeros() const { return lower_.size() + upper_.size() + eta_entries_.size(); }

 private:
  struct Eta {
    uint32_t position;
    double pivot;
    size_t end;  // end of its entries
  };
  struct Step {  // a step of the elimination
    uint32_t row;
    uint32_t position;
    double pivot;
    size_t lower_end;
    size_t upper_end;
  };

  std::vector<Step> steps_;
  std::vector<ColumnEntry> lower_;  // by columns; rows of the matrix
  std::vector<ColumnEntry> upper_;  // by columns; row is the step
  std::vector<Eta> etas_;
  std::vector<ColumnEntry> eta_entries_;  // row is the position
  mutable std::vector<double> work_;
};

}  // namespace tessera::pack
