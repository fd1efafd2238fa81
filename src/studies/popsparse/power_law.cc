#include "studies/popsparse/power_law.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cmath>
#include <cstddef>

namespace tessera::studies::popsparse {
namespace {

/// Columns that retain less than this fraction of their length after projection depend on the others.
constexpr double kIndependent = 1e-9;

using Column = std::vector<double>;

double dot(const Column& a, const Column& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Subtracts `share` of `direction`.
void take_off(Column& column, double share, const Column& direction) {
  for (size_t i = 0; i < column.size(); ++i) column[i] -= share * direction[i];
}

double logarithm(double value) {
  if (!(value > 0) || !std::isfinite(value))
    throw UsageError(fmt::format("a power law is for numbers above 0, not {}", value));
  return std::log(value);
}

/// Least squares by modified Gram–Schmidt: orthonormalises the columns one after another and makes y
/// orthogonal to all of them, which leaves the residual in y.
std::optional<Column> least_squares(std::vector<Column> columns, Column& y) {
  const size_t count = columns.size();
  std::vector<Column> upper(count, Column(count, 0.0));
  Column shares(count);
  for (size_t c = 0; c < count; ++c) {
    const double whole = std::sqrt(dot(columns[c], columns[c]));
    for (size_t pass = 0; pass < 2; ++pass)  // twice is enough for full precision
      for (size_t b = 0; b < c; ++b) {
        const double share = dot(columns[b], columns[c]);
        take_off(columns[c], share, columns[b]);
        upper[b][c] += share;
      }
    const double left = std::sqrt(dot(columns[c], columns[c]));
    if (!(left > kIndependent * whole)) return std::nullopt;
    for (double& element : columns[c]) element /= left;
    upper[c][c] = left;
    shares[c] = dot(columns[c], y);
    take_off(y, shares[c], columns[c]);
  }
  for (size_t c = count; c-- > 0;) {
    for (size_t later = c + 1; later < count; ++later) shares[c] -= upper[c][later] * shares[later];
    shares[c] /= upper[c][c];
  }
  return shares;
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
  std::vector<Column> columns(factors + 1, Column(samples.size(), 1.0));  // the first is the scale's
  Column y(samples.size());
  for (size_t s = 0; s < samples.size(); ++s) {
    if (samples[s].factors.size() != factors)
      throw UsageError(
          fmt::format("sample {} has {} factors, the first has {}", s, samples[s].factors.size(), factors));
    for (size_t f = 0; f < factors; ++f) columns[f + 1][s] = logarithm(samples[s].factors[f]);
    y[s] = logarithm(samples[s].value);
  }
  if (samples.size() < columns.size()) return std::nullopt;

  double mean = 0;
  for (double v : y) mean += v / static_cast<double>(y.size());
  double variance = 0;
  for (double v : y) variance += (v - mean) * (v - mean);

  const std::optional<Column> coefficients = least_squares(std::move(columns), y);
  if (!coefficients) return std::nullopt;
  const double residual = dot(y, y);
  PowerLawFit fit;
  fit.law = {std::exp(coefficients->front()), {coefficients->begin() + 1, coefficients->end()}};
  fit.samples = samples.size();
  fit.r_squared = variance > 0 ? 1 - residual / variance : 1;
  fit.typical_error = std::sqrt(residual / static_cast<double>(samples.size()));
  return fit;
}

}  // namespace tessera::studies::popsparse
