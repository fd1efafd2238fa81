// The linear program over strategies.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "packing/basis.h"

namespace tessera::pack {

/// So many slots for sequences of the row's length.
struct Slot {
  uint32_t row = 0;
  uint32_t copies = 0;
  bool operator==(const Slot&) const = default;
};

/// A strategy in terms of rows, ascending.
using Pattern = std::vector<Slot>;

/// min Σ x over patterns that together have slots for `demand` sequences of each row's length; rows
/// ascend in length. A slot may also take a shorter sequence, which keeps the duals ascending and
/// so steadies them (dual-optimal inequalities, Valério de Carvalho 2005). Solved by the revised
/// primal simplex method.
class Master {
 public:
  /// Starts from homogeneous patterns, `copies[i]` slots for row i each.
  Master(std::vector<double> demand, std::span<const uint32_t> copies);

  /// Adds a pattern, which must differ from those there are.
  void add(const Pattern& pattern);

  /// Optimises over the patterns there are. False when `stop` ended that.
  bool optimize(const std::function<bool()>& stop);

  double objective() const;
  const std::vector<double>& duals() const { return duals_; }  ///< by rows

  struct Use {
    uint32_t pattern;
    double count;
  };
  /// Patterns that are used, and how often.
  std::vector<Use> solution() const;
  Pattern pattern(uint32_t index) const;
  size_t patterns() const { return begins_.size() - 1 - demand_.size(); }
  uint64_t pivots() const { return pivots_; }

 private:
  Column column(uint32_t index) const {
    return {entries_.data() + begins_[index], entries_.data() + begins_[index + 1]};
  }
  double cost(uint32_t index) const { return index < demand_.size() ? 0.0 : 1.0; }
  double reduced_cost(uint32_t index) const;
  bool factor_basis();
  void make_homogeneous();
  void refactor();
  void update_duals();
  bool find_candidates();
  bool enter(uint32_t index);

  std::vector<double> demand_;
  std::vector<ColumnEntry> entries_;  // of the columns: first demand_.size() exchanges, then patterns
  std::vector<size_t> begins_ = {0};
  std::vector<uint32_t> basic_;  // column at each position
  std::vector<uint8_t> is_basic_;
  std::vector<double> values_;  // of the basic columns
  std::vector<double> duals_;
  std::vector<uint32_t> candidates_;
  uint32_t next_ = 0;  // column to look at for candidates
  Basis basis_;
  std::vector<double> direction_;
  std::vector<double> work_;
  uint64_t pivots_ = 0;
};

}  // namespace tessera::pack
