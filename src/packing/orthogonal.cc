#include "packing/orthogonal.h"

#include <cmath>
#include <utility>

namespace tessera::pack {
namespace {

constexpr double kDependent = 1e-10;  // minimum independent part of a column, relative to its norm

void add_multiple(double* __restrict to, const double* __restrict from, size_t size, double factor) {
  for (size_t i = 0; i < size; ++i) to[i] += factor * from[i];
}

}  // namespace

Orthogonal::Orthogonal(std::vector<double> b)
    : size_(b.size()), transposed_(size_ * size_), projected_(std::move(b)) {
  for (size_t i = 0; i < size_; ++i) row(i)[i] = 1;
}

bool Orthogonal::append(Column column) {
  if (columns_ == size_) return false;
  std::vector<double> image(size_);  // Qᵀ · column
  for (size_t i = 0; i < size_; ++i)
    for (const ColumnEntry& entry : column) image[i] += row(i)[entry.row] * entry.value;
  double norm = 0;
  double rest = 0;
  for (size_t i = 0; i < size_; ++i) (i < columns_ ? norm : rest) += image[i] * image[i];
  if (rest <= kDependent * kDependent * (norm + rest)) return false;

  // A Householder reflection I − v·vᵀ/h of the rows below reduces the rest to one entry.
  const size_t first = columns_;
  const double diagonal = image[first] > 0 ? -std::sqrt(rest) : std::sqrt(rest);
  const double h = rest - image[first] * diagonal;
  std::vector<double> v(image.begin() + static_cast<ptrdiff_t>(first), image.end());
  v[0] -= diagonal;
  std::vector<double> combined(size_);
  double projection = 0;
  for (size_t i = first; i < size_; ++i) {
    if (v[i - first] == 0) continue;
    add_multiple(combined.data(), row(i), size_, v[i - first]);
    projection += v[i - first] * projected_[i];
  }
  for (size_t i = first; i < size_; ++i) {
    if (v[i - first] == 0) continue;
    add_multiple(row(i), combined.data(), size_, -v[i - first] / h);
    projected_[i] -= v[i - first] / h * projection;
  }
  image.resize(first);
  image.push_back(diagonal);
  upper_.push_back(std::move(image));
  ++columns_;
  return true;
}

void Orthogonal::rotate(size_t i, double cosine, double sine) {
  double* const a = row(i);
  double* const b = row(i + 1);
  for (size_t k = 0; k < size_; ++k) {
    const double above = a[k];
    a[k] = cosine * above + sine * b[k];
    b[k] = cosine * b[k] - sine * above;
  }
  const double above = projected_[i];
  projected_[i] = cosine * above + sine * projected_[i + 1];
  projected_[i + 1] = cosine * projected_[i + 1] - sine * above;
}

void Orthogonal::remove(size_t position) {
  upper_.erase(upper_.begin() + static_cast<ptrdiff_t>(position));
  --columns_;
  for (size_t i = position; i < columns_; ++i) {
    const double length = std::hypot(upper_[i][i], upper_[i][i + 1]);
    const double cosine = upper_[i][i] / length;
    const double sine = upper_[i][i + 1] / length;
    for (size_t k = i; k < columns_; ++k) {
      const double above = upper_[k][i];
      upper_[k][i] = cosine * above + sine * upper_[k][i + 1];
      upper_[k][i + 1] = cosine * upper_[k][i + 1] - sine * above;
    }
    upper_[i].resize(i + 1);
    rotate(i, cosine, sine);
  }
}

std::vector<double> Orthogonal::solve() const {
  std::vector<double> x(projected_.begin(), projected_.begin() + static_cast<ptrdiff_t>(columns_));
  for (size_t k = columns_; k-- > 0;) {
    x[k] /= upper_[k][k];
    for (size_t i = 0; i < k; ++i) x[i] -= upper_[k][i] * x[k];
  }
  return x;
}

std::vector<double> Orthogonal::residual() const {
  std::vector<double> result(size_);
  for (size_t i = columns_; i < size_; ++i) add_multiple(result.data(), row(i), size_, projected_[i]);
  return result;
}

}  // namespace tessera::pack
