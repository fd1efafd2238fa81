// The linear program over strategies (the master problem).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "packing/basis.h"

namespace tessera::pack {

/// Slots for sequences of the row's length.
struct Slot {
  uint32_t row = 0;
  uint32_t copies = 0;
  bool operator==(const Slot&) const = default;
};

/// A strategy by rows, ascending.
using Pattern = std::vector<Slot>;

/// min Σ x over patterns that together have slots for `demand` sequences of each row's length; rows ascend in
/// length. A slot may also take a shorter sequence, which keeps the duals ascending and thus stable
/// (dual-optimal inequalities, Valério de Carvalho 2005). Solved by the revised primal simplex method.
class Master {
 public:
  /// Starts from homogeneous patterns with `copies[i]` slots for row i.
  Master(std::vector<double> demand, std::span<const uint32_t> copies);

  /// Adds a pattern, which must differ from the existing ones.
  void add(const Pattern& pattern);

  /// Optimises over the existing patterns. False if `stop` ended it.
  bool optimize(const std::function<bool()>& stop);

  const std::vector<double>& duals() const { return duals_; }  ///< by rows

  struct Use {
    uint32_t pattern;
    double count;
  };
  /// The patterns in use, and how often.
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
  std::vector<ColumnEntry> entries_;  // entries of the columns: first the demand_.size() exchanges, then the
                                      // patterns
  std::vector<size_t> begins_ = {0};
  std::vector<uint32_t> basic_;  // column at each position
  std::vector<uint8_t> is_basic_;
  std::vector<double> values_;  // values of the basic columns
  std::vector<double> duals_;
  std::vector<uint32_t> candidates_;
  uint32_t next_ = 0;  // column at which the search for candidates resumes
  Basis basis_;
  std::vector<double> direction_;
  std::vector<double> work_;
  uint64_t pivots_ = 0;
};

}  // namespace tessera::pack
