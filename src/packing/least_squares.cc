#include "packing/least_squares.h"

#include <algorithm>
#include <cmath>

#include "packing/orthogonal.h"

namespace tessera::pack {
namespace {

constexpr double kUphill = 1e-10;  // smallest gradient worth a step, relative to the largest at the start
constexpr size_t kStepsPerRow = 10;

class ActiveSet {
 public:
  ActiveSet(std::span<const Column> columns, const std::vector<double>& b)
      : columns_(columns), factors_(b), values_(columns.size()), is_out_(columns.size()) {
    smallest_gradient_ = kUphill * gradient_of(steepest(b), b);
  }

  /// Adds the column along which the residual falls fastest. False if there is none.
  bool enter() {
    const std::vector<double> residual = factors_.residual();
    for (;;) {
      const size_t column = steepest(residual);
      if (gradient_of(column, residual) <= smallest_gradient_) return false;
      is_out_[column] = 1;  // a member, or of no use now
      if (!factors_.append(columns_[column])) continue;
      members_.push_back(column);
      return true;
    }
  }

  /// Moves towards the best values of the members, as far as none becomes negative; those that reach 0 leave,
  /// until the rest are optimal.
  void settle() {
    while (!members_.empty()) {
      const std::vector<double> wanted = factors_.solve();
      double share = 1;
      for (size_t i = 0; i < members_.size(); ++i) {
        const double value = values_[members_[i]];
        if (wanted[i] <= 0) share = std::min(share, value / (value - wanted[i]));
      }
      for (size_t i = 0; i < members_.size(); ++i) {
        double& value = values_[members_[i]];
        value = std::max(0.0, value + share * (wanted[i] - value));
      }
      if (share >= 1) break;
      drop_zeros(wanted);
    }
    std::fill(is_out_.begin(), is_out_.end(), uint8_t{0});
    for (const size_t column : members_) is_out_[column] = 1;
  }

  std::vector<double> values() && { return std::move(values_); }

 private:
  double gradient_of(size_t column, const std::vector<double>& residual) const {
    if (column == columns_.size()) return 0;
    double sum = 0;
    for (const ColumnEntry& entry : columns_[column]) sum += entry.value * residual[entry.row];
    return sum;
  }

  size_t steepest(const std::vector<double>& residual) const {
    size_t best = columns_.size();
    double largest = 0;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (is_out_[i] != 0) continue;
      const double gradient = gradient_of(i, residual);
      if (gradient <= largest) continue;
      largest = gradient;
      best = i;
    }
    return best;
  }

  void drop_zeros(const std::vector<double>& wanted) {
    for (size_t i = members_.size(); i-- > 0;) {
      if (values_[members_[i]] > 1e-12 * std::abs(wanted[i]) || wanted[i] > 0) continue;
      values_[members_[i]] = 0;
      factors_.remove(i);
      members_.erase(members_.begin() + static_cast<ptrdiff_t>(i));
    }
  }

  std::span<const Column> columns_;
  Orthogonal factors_;
  std::vector<double> values_;
  std::vector<uint8_t> is_out_;  // may not be added
  std::vector<size_t> members_;  // columns that may be positive, in the order of the factors
  double smallest_gradient_ = 0;
};

}  // namespace

std::vector<double> non_negative_least_squares(std::span<const Column> columns, const std::vector<double>& b,
                                               const std::function<bool()>& stop) {
  const size_t most_steps = kStepsPerRow * b.size();
  ActiveSet set(columns, b);
  for (size_t step = 0; step < most_steps && !stop() && set.enter(); ++step) set.settle();
  return std::move(set).values();
}

}  // namespace tessera::pack
