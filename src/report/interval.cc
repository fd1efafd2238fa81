#include "report/interval.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <numeric>

namespace tessera::report {
namespace {

/// The 0.975 quantile of Student's t.
double quantile_of(size_t freedom) {
  constexpr double kFew[] = {12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281};
  if (freedom <= std::size(kFew)) return kFew[freedom - 1];
  // The expansion of Fisher and Cornish; off by less than 0.0002 here.
  const double z = 1.959964, f = static_cast<double>(freedom), z2 = z * z;
  return z * (1 + (z2 + 1) / (4 * f) + ((5 * z2 + 16) * z2 + 3) / (96 * f * f) +
              (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * f * f * f));
}

}  // namespace

Moments moments_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (double value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / (count - 1))};
}

Interval interval_of(const std::vector<double>& values) {
  const Moments m = moments_of(values);
  if (values.size() < 2) return {m.mean, std::numeric_limits<double>::infinity()};
  return {m.mean,
          quantile_of(values.size() - 1) * m.deviation / std::sqrt(static_cast<double>(values.size()))};
}

std::string to_string(const Interval& interval, int decimals) {
  const std::string mean = fmt::format("{:.{}f}", interval.mean, decimals);
  return std::isfinite(interval.margin) ? fmt::format("{} ± {:.{}f}", mean, interval.margin, decimals) : mean;
}

}  // namespace tessera::report
