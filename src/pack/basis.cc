#include "pack/basis.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera::pack {
namespace {

constexpr double kDrop = 1e-14;          // smaller entries are rounding errors
constexpr double kSingular = 1e-9;       // a smaller pivot
constexpr double kPivotThreshold = 0.1;  // of the largest entry, for the sake of sparse rows

/// Columns with few entries first: the triangular part of the matrix then causes no fill-in.
std::vector<uint32_t> by_entries(std::span<const Column> columns) {
  std::vector<uint32_t> order(columns.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return columns[a].size() < columns[b].size();
  });
  return order;
}

}  // namespace

bool Basis::factor(std::span<const Column> columns) {
  const size_t size = columns.size();
  steps_.clear();
  lower_.clear();
  upper_.clear();
  etas_.clear();
  eta_entries_.clear();
  work_.assign(size, 0.0);
  std::vector<uint32_t> entries_in_row(size);
  for (const Column& column : columns)
    for (const Entry& entry : column) ++entries_in_row[entry.row];
  std::vector<uint8_t> done(size);
  for (const uint32_t position : by_entries(columns)) {
    for (const Entry& entry : columns[position]) work_[entry.row] = entry.value;
    size_t lower_begin = 0;
    for (uint32_t k = 0; k < steps_.size(); ++k) {
      const Step& step = steps_[k];
      double& value = work_[step.row];
      if (value != 0) {
        for (size_t i = lower_begin; i < step.lower_end; ++i)
          work_[lower_[i].row] -= lower_[i].value * value;
        if (std::abs(value) > kDrop) upper_.push_back({k, value});
        value = 0;
      }
      lower_begin = step.lower_end;
    }
    double largest = 0;
    for (size_t row = 0; row < size; ++row) largest = std::max(largest, std::abs(work_[row]));
    if (largest < kSingular) return false;
    uint32_t pivot_row = 0;
    uint32_t fewest = UINT32_MAX;
    for (uint32_t row = 0; row < size; ++row) {
      if (std::abs(work_[row]) >= kPivotThreshold * largest && entries_in_row[row] < fewest) {
        fewest = entries_in_row[row];
        pivot_row = row;
      }
    }
    const double pivot = work_[pivot_row];
    work_[pivot_row] = 0;
    for (uint32_t row = 0; row < size; ++row) {
      if (std::abs(work_[row]) > kDrop) lower_.push_back({row, work_[row] / pivot});
      work_[row] = 0;
    }
    steps_.push_back({pivot_row, position, pivot, lower_.size(), upper_.size()});
  }
  return true;
}

void Basis::solve(Column column, std::vector<double>& out) const {
  std::vector<double> rows(steps_.size());
  for (const Entry& entry : column) rows[entry.row] = entry.value;
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
      for (size_t i = begin; i < eta.end; ++i)
        out[eta_entries_[i].row] -= eta_entries_[i].value * value;
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
