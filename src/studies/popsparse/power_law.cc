#include "studies/popsparse/power_law.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cmath>
#include <cstddef>
#include <numeric>

namespace tessera::studies::popsparse {
namespace {

/// If a factor varies, after removing its dependence on the others, by less than this fraction of its sum of
/// squares, it depends on them or is constant: deviations from a rounded mean are not exactly 0.
constexpr double kIndependent = 1e-12;

double logarithm(double value, size_t sample) {
  if (!(value > 0) || !std::isfinite(value))
    throw UsageError(fmt::format("sample {}: a power law is for numbers above 0, not {}", sample, value));
  return std::log(value);
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The sum of products of deviations from the means.
double covariance(const std::vector<double>& a, const std::vector<double>& b) {
  const double of_a = mean(a), of_b = mean(b);
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - of_a) * (b[i] - of_b);
  return sum;
}

/// Solves the normal equations of columns for y by elimination.
std::optional<std::vector<double>> least_squares(const std::vector<std::vector<double>>& columns,
                                                 const std::vector<double>& y) {
  const size_t count = columns.size();
  std::vector<std::vector<double>> a(count, std::vector<double>(count + 1));
  for (size_t r = 0; r < count; ++r) {
    for (size_t c = 0; c < count; ++c) a[r][c] = covariance(columns[r], columns[c]);
    a[r][count] = covariance(columns[r], y);
  }
  for (size_t pivot = 0; pivot < count; ++pivot) {
    const std::vector<double>& column = columns[pivot];
    const double squares = std::inner_product(column.begin(), column.end(), column.begin(), 0.0);
    if (!(a[pivot][pivot] > kIndependent * squares)) return std::nullopt;
    for (size_t r = 0; r < count; ++r)
      for (size_t c = count + 1; r != pivot && c-- > pivot;)
        a[r][c] -= a[r][pivot] / a[pivot][pivot] * a[pivot][c];
  }
  std::vector<double> found;
  for (size_t r = 0; r < count; ++r) found.push_back(a[r][count] / a[r][r]);
  return found;
}

}  // namespace

double PowerLaw::at(std::span<const double> factors) const {
  double value = scale;
  for (size_t i = 0; i < exponents.size(); ++i) value *= std::pow(factors[i], exponents[i]);
  return value;
}

std::optional<PowerLawFit> fit_power_law(std::span<const PowerLawSample> samples) {
  if (samples.empty()) return std::nullopt;
  const size_t factors = samples.front().factors.size();
  std::vector<std::vector<double>> columns(factors);
  std::vector<double> y;
  for (size_t s = 0; s < samples.size(); ++s) {
    const PowerLawSample& sample = samples[s];
    if (sample.factors.size() != factors)
      throw UsageError(
          fmt::format("sample {} has {} factors, sample 0 has {}", s, sample.factors.size(), factors));
    for (size_t f = 0; f < factors; ++f) columns[f].push_back(logarithm(sample.factors[f], s));
    y.push_back(logarithm(sample.value, s));
  }
  if (samples.size() <= factors) return std::nullopt;
  const auto exponents = least_squares(columns, y);
  if (!exponents) return std::nullopt;
  double scale = mean(y), residual = 0;
  for (size_t f = 0; f < factors; ++f) scale -= (*exponents)[f] * mean(columns[f]);
  PowerLawFit fit{.law = {std::exp(scale), *exponents}, .samples = samples.size()};
  for (const PowerLawSample& s : samples) residual += std::pow(std::log(s.value / fit.law.at(s.factors)), 2);
  const double variance = covariance(y, y);
  fit.r_squared = variance > 0 ? 1 - residual / variance : 1;
  fit.typical_error = std::sqrt(residual / static_cast<double>(samples.size()));
  return fit;
}

}  // namespace tessera::studies::popsparse
