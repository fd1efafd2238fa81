#include "packing/basis.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "packing/length_set.h"

namespace tessera::pack {
namespace {

constexpr double kDrop = 1e-14;          // smaller entries are rounding errors
constexpr double kSingular = 1e-9;       // a smaller pivot
constexpr double kPivotThreshold = 0.1;  // relative to the largest entry; prefers sparse rows

/// Columns with few entries first: the triangular part of the matrix then causes no fill-in.
std::vector<uint32_t> by_entries(std::span<const Column> columns) {
  std::vector<uint32_t> order(columns.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return columns[a].size() < columns[b].size(); });
  return order;
}

/// One column during elimination, and the step in which each row is the pivot.
class Elimination {
 public:
  explicit Elimination(std::span<const Column> columns)
      : values_(columns.size()),
        is_touched_(columns.size()),
        entries_in_row_(columns.size()),
        step_of_row_(columns.size(), kNone),
        pending_(static_cast<uint32_t>(columns.size())) {
    for (const Column& column : columns)
      for (const ColumnEntry& entry : column) ++entries_in_row_[entry.row];
  }

  void load(Column column) {
    for (const ColumnEntry& entry : column) add(entry.row, entry.value);
  }

  void add(uint32_t row, double value) {
    values_[row] += value;
    if (is_touched_[row]) return;
    is_touched_[row] = 1;
    touched_.push_back(row);
    if (step_of_row_[row] != kNone) pending_.insert(step_of_row_[row]);
  }

  /// The next step to apply to the column.
  std::optional<uint32_t> next_step() {
    const std::optional<uint32_t> step = pending_.at_least(0);
    if (step) pending_.erase(*step);
    return step;
  }

  double take(uint32_t row) { return std::exchange(values_[row], 0.0); }

  /// Among the rows with large enough values, the one with the fewest entries in the matrix.
  std::optional<uint32_t> pivot_row() const {
    double largest = 0;
    for (const uint32_t row : touched_) largest = std::max(largest, std::abs(values_[row]));
    if (largest < kSingular) return std::nullopt;
    uint32_t best = kNone;
    for (const uint32_t row : touched_) {
      if (std::abs(values_[row]) < kPivotThreshold * largest) continue;
      if (best == kNone || entries_in_row_[row] < entries_in_row_[best]) best = row;
    }
    return best;
  }

  /// Moves the column into entries, divided by the pivot.
  void unload(std::vector<ColumnEntry>& out, double pivot) {
    for (const uint32_t row : touched_) {
      const double value = take(row);
      if (std::abs(value) > kDrop) out.push_back({row, value / pivot});
      is_touched_[row] = 0;
    }
    touched_.clear();
  }

  void assign(uint32_t row, uint32_t step) { step_of_row_[row] = step; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  std::vector<double> values_;  // by rows
  std::vector<uint8_t> is_touched_;
  std::vector<uint32_t> touched_;
  std::vector<uint32_t> entries_in_row_;
  std::vector<uint32_t> step_of_row_;
  LengthSet pending_;
};

}  // namespace

bool Basis::factor(std::span<const Column> columns) {
  steps_.clear();
  lower_.clear();
  upper_.clear();
  etas_.clear();
  eta_entries_.clear();
  Elimination elimination(columns);
  for (const uint32_t position : by_entries(columns)) {
    elimination.load(columns[position]);
    while (const std::optional<uint32_t> k = elimination.next_step()) {
      const Step& step = steps_[*k];
      const double value = elimination.take(step.row);
      if (std::abs(value) <= kDrop) continue;
      upper_.push_back({*k, value});
      for (size_t i = *k == 0 ? 0 : steps_[*k - 1].lower_end; i < step.lower_end; ++i)
        elimination.add(lower_[i].row, -lower_[i].value * value);
    }
    const std::optional<uint32_t> row = elimination.pivot_row();
    if (!row) return false;
    const double pivot = elimination.take(*row);
    elimination.unload(lower_, pivot);
    elimination.assign(*row, static_cast<uint32_t>(steps_.size()));
    steps_.push_back({*row, position, pivot, lower_.size(), upper_.size()});
  }
  work_.assign(columns.size(), 0.0);
  return true;
}

void Basis::solve(Column column, std::vector<double>& out) const {
  std::vector<double> rows(steps_.size());
  for (const ColumnEntry& entry : column) rows[entry.row] = entry.value;
  solve(rows, out);
}

void Basis::solve(std::vector<double>& rows, std::vector<double>& out) const {
  const size_t size = steps_.size();
  out.assign(size, 0.0);
  size_t begin = 0;
  for (const Step& step : steps_) {
    const double value = rows[step.row];
    if (value != 0)
      for (size_t i = begin; i < step.lower_end; ++i) rows[lower_[i].row] -= lower_[i].value * value;
    begin = step.lower_end;
  }
  for (size_t k = size; k-- > 0;) {
    const Step& step = steps_[k];
    const double value = rows[step.row] / step.pivot;
    if (value == 0) continue;
    out[step.position] = value;
    for (size_t i = k == 0 ? 0 : steps_[k - 1].upper_end; i < step.upper_end; ++i)
      rows[steps_[upper_[i].row].row] -= upper_[i].value * value;
  }
  begin = 0;
  for (const Eta& eta : etas_) {
    const double value = out[eta.position] / eta.pivot;
    if (value != 0)
      for (size_t i = begin; i < eta.end; ++i) out[eta_entries_[i].row] -= eta_entries_[i].value * value;
    out[eta.position] = value;
    begin = eta.end;
  }
}

void Basis::solve_transposed(std::vector<double>& costs, std::vector<double>& out) const {
  const size_t size = steps_.size();
  for (size_t e = etas_.size(); e-- > 0;) {
    const Eta& eta = etas_[e];
    double value = costs[eta.position];
    for (size_t i = e == 0 ? 0 : etas_[e - 1].end; i < eta.end; ++i)
      value -= eta_entries_[i].value * costs[eta_entries_[i].row];
    costs[eta.position] = value / eta.pivot;
  }
  std::vector<double>& by_step = work_;
  size_t begin = 0;
  for (size_t k = 0; k < size; ++k) {
    const Step& step = steps_[k];
    double value = costs[step.position];
    for (size_t i = begin; i < step.upper_end; ++i) value -= upper_[i].value * by_step[upper_[i].row];
    by_step[k] = value / step.pivot;
    begin = step.upper_end;
  }
  out.resize(size);
  for (size_t k = size; k-- > 0;) {
    double value = by_step[k];
    for (size_t i = k == 0 ? 0 : steps_[k - 1].lower_end; i < steps_[k].lower_end; ++i)
      value -= lower_[i].value * out[lower_[i].row];
    out[steps_[k].row] = value;
  }
}

void Basis::replace(uint32_t position, const std::vector<double>& solved) {
  for (uint32_t i = 0; i < solved.size(); ++i)
    if (i != position && std::abs(solved[i]) > kDrop) eta_entries_.push_back({i, solved[i]});
  etas_.push_back({position, solved[position], eta_entries_.size()});
}

}  // namespace tessera::pack
