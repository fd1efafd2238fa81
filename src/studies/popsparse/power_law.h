// Power laws fitted to measurements: y = scale · x₁^p₁ · x₂^p₂ · …
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace tessera::studies::popsparse {

struct PowerLaw {
  double scale = 1;
  std::vector<double> exponents{};  ///< one per factor

  double at(std::span<const double> factors) const;
};

/// A law and its distance from the samples it was fitted to.
struct PowerLawFit {
  PowerLaw law{};
  size_t samples = 0;
  double r_squared = 0;      ///< of logarithms: the fraction of their variance that the law explains
  double typical_error = 0;  ///< root of the mean square of ln(measured / law)
};

struct PowerLawSample {
  std::vector<double> factors{};  ///< above 0
  double value = 0;               ///< above 0
};

/// Least-squares fit in logarithms. None if the samples do not determine the law: fewer samples than
/// coefficients, or a factor that depends on the others (or is constant). Throws UsageError for numbers
/// without a logarithm, and for samples with different numbers of factors.
std::optional<PowerLawFit> fit_power_law(std::span<const PowerLawSample> samples);

}  // namespace tessera::studies::popsparse
