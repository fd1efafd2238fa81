#include "packing/master.h"

#include <algorithm>
#include <numeric>

namespace tessera::pack {
namespace {

constexpr double kEntering = 1e-10;  // minimum reduced cost for a pivot
constexpr double kSmallestPivot = 1e-9;
constexpr size_t kRefactorAfter = 64;
constexpr size_t kFound = 100;      // number of candidates after which the search ends
constexpr size_t kCandidates = 40;  // number of these that are tried

}  // namespace

Master::Master(std::vector<double> demand, std::span<const uint32_t> copies) : demand_(std::move(demand)) {
  const uint32_t rows = static_cast<uint32_t>(demand_.size());
  for (uint32_t row = 0; row < rows; ++row) {  // slots of this row, given to the preceding one
    if (row > 0) entries_.push_back({row - 1, 1.0});
    entries_.push_back({row, -1.0});
    begins_.push_back(entries_.size());
  }
  is_basic_.assign(rows, 0);
  for (uint32_t row = 0; row < rows; ++row) add({{row, copies[row]}});
  make_homogeneous();
  refactor();
  update_duals();
}

void Master::add(const Pattern& pattern) {
  for (const Slot& slot : pattern) entries_.push_back({slot.row, static_cast<double>(slot.copies)});
  begins_.push_back(entries_.size());
  is_basic_.push_back(0);
}

double Master::reduced_cost(uint32_t index) const {
  double value = cost(index);
  for (const ColumnEntry& entry : column(index)) value -= duals_[entry.row] * entry.value;
  return value;
}

bool Master::factor_basis() {
  std::vector<Column> columns;
  for (const uint32_t index : basic_) columns.push_back(column(index));
  return basis_.factor(columns);
}

void Master::make_homogeneous() {
  const uint32_t rows = static_cast<uint32_t>(demand_.size());
  basic_.resize(rows);
  std::iota(basic_.begin(), basic_.end(), rows);
  std::fill(is_basic_.begin(), is_basic_.end(), uint8_t{0});
  for (const uint32_t index : basic_) is_basic_[index] = 1;
}

void Master::refactor() {
  if (!factor_basis()) {  // singular because of rounding errors
    make_homogeneous();
    factor_basis();
  }
  work_ = demand_;
  basis_.solve(work_, values_);
  for (double& value : values_) value = std::max(value, 0.0);
}

void Master::update_duals() {
  work_.resize(basic_.size());
  for (size_t i = 0; i < basic_.size(); ++i) work_[i] = cost(basic_[i]);
  basis_.solve_transposed(work_, duals_);
}

bool Master::find_candidates() {
  std::vector<std::pair<double, uint32_t>> found;
  const uint32_t columns = static_cast<uint32_t>(begins_.size()) - 1;
  for (uint32_t seen = 0; seen < columns && found.size() < kFound; ++seen) {
    if (++next_ >= columns) next_ = 0;
    if (is_basic_[next_]) continue;
    const double value = reduced_cost(next_);
    if (value < -kEntering) found.emplace_back(value, next_);
  }
  const size_t kept = std::min(found.size(), kCandidates);
  std::partial_sort(found.begin(), found.begin() + static_cast<ptrdiff_t>(kept), found.end());
  candidates_.clear();
  for (size_t i = 0; i < kept; ++i) candidates_.push_back(found[i].second);
  return !candidates_.empty();
}

bool Master::enter(uint32_t index) {
  basis_.solve(column(index), direction_);
  size_t leaving = basic_.size();
  double step = 0;
  for (size_t i = 0; i < basic_.size(); ++i) {
    if (direction_[i] <= kSmallestPivot) continue;
    const double ratio = values_[i] / direction_[i];
    if (leaving == basic_.size() || ratio < step || (ratio == step && direction_[i] > direction_[leaving])) {
      leaving = i;
      step = ratio;
    }
  }
  if (leaving == basic_.size()) return false;
  for (size_t i = 0; i < basic_.size(); ++i) values_[i] = std::max(0.0, values_[i] - step * direction_[i]);
  values_[leaving] = step;
  is_basic_[basic_[leaving]] = 0;
  is_basic_[index] = 1;
  basic_[leaving] = index;
  basis_.replace(static_cast<uint32_t>(leaving), direction_);
  if (basis_.replaced() >= kRefactorAfter) refactor();
  ++pivots_;
  return true;
}

bool Master::optimize(const std::function<bool()>& stop) {
  while (find_candidates()) {
    const uint64_t before = pivots_;
    while (!candidates_.empty()) {
      if (stop && stop()) return false;
      size_t best = 0;
      double best_value = -kEntering;
      size_t kept = 0;
      for (const uint32_t index : candidates_) {
        const double value = reduced_cost(index);
        if (value >= -kEntering) continue;
        if (value < best_value) {
          best_value = value;
          best = kept;
        }
        candidates_[kept++] = index;
      }
      candidates_.resize(kept);
      if (kept == 0) break;
      const uint32_t index = candidates_[best];
      candidates_.erase(candidates_.begin() + static_cast<ptrdiff_t>(best));
      if (enter(index)) update_duals();
    }
    if (pivots_ == before) break;  // the apparent improvement is a rounding error
  }
  return true;
}

std::vector<Master::Use> Master::solution() const {
  const uint32_t rows = static_cast<uint32_t>(demand_.size());
  std::vector<Use> uses;
  for (size_t i = 0; i < basic_.size(); ++i)
    if (basic_[i] >= rows && values_[i] > 0) uses.push_back({basic_[i] - rows, values_[i]});
  return uses;
}

Pattern Master::pattern(uint32_t index) const {
  Pattern result;
  for (const ColumnEntry& entry : column(index + static_cast<uint32_t>(demand_.size())))
    result.push_back({entry.row, static_cast<uint32_t>(entry.value)});
  return result;
}

}  // namespace tessera::pack
