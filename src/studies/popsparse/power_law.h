// Power laws through measurements: y = scale · x₁^p₁ · x₂^p₂ · …
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace tessera::studies::popsparse {

struct PowerLaw {
  double scale = 1;
  std::vector<double> exponents{};  ///< one a factor

  double at(std::span<const double> factors) const;
};

/// A law, and how near it comes to what it was fitted to.
struct PowerLawFit {
  PowerLaw law{};
  size_t samples = 0;
  double r_squared = 0;      ///< of logarithms: the share of their variance that the law explains
  double typical_error = 0;  ///< root of the mean square of ln(measured / law)
};

struct PowerLawSample {
  std::vector<double> factors{};  ///< above 0
  double value = 0;               ///< above 0
};

/// The law of least squares in logarithms. None where the samples do not determine it: fewer than
/// there are coefficients, or a factor that follows from the others (or never changes). Throws
/// UsageError for numbers that have no logarithm, and for samples with different numbers of
/// factors.
std::optional<PowerLawFit> fit_power_law(std::span<const PowerLawSample> samples);

}  // namespace tessera::studies::popsparse
