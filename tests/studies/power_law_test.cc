// Fitted power laws.
#include "studies/popsparse/power_law.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/random.h"
#include "support/error_of.h"

namespace tessera::studies::popsparse {
namespace {

/// The grid of a benchmark: sizes, densities, blocks.
std::vector<PowerLawSample> grid(const PowerLaw& law) {
  std::vector<PowerLawSample> samples;
  for (double m : {256., 512., 1024., 2048., 4096., 8192.})
    for (double d : {1. / 4, 1. / 8, 1. / 16, 1. / 32})
      for (double b : {1., 4., 8., 16.}) samples.push_back({{m, d, b}, law.at(std::vector<double>{m, d, b})});
  return samples;
}

const PowerLaw kLaw{0.0013, {0.59, -0.54, 0.50}};

TEST(PowerLaw, FindsALawAgain) {
  const auto fit = fit_power_law(grid(kLaw));
  ASSERT_TRUE(fit);
  EXPECT_NEAR(fit->law.scale, kLaw.scale, 1e-12);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(fit->law.exponents[i], kLaw.exponents[i], 1e-12);
  EXPECT_EQ(fit->samples, 96U);
  EXPECT_NEAR(fit->r_squared, 1, 1e-12);
  EXPECT_LT(fit->typical_error, 1e-12);
}

TEST(PowerLaw, NoLawIsNearerToNoisySamples) {
  const uint64_t seed = 20261121;
  SCOPED_TRACE(seed);
  std::vector<float> noise(96);
  base::RandomStream(seed, 0, 0).fill_symmetric(noise);
  std::vector<PowerLawSample> samples = grid(kLaw);
  for (size_t i = 0; i < samples.size(); ++i) samples[i].value *= std::exp(0.3 * noise[i]);
  const auto fit = fit_power_law(samples);
  ASSERT_TRUE(fit);
  const auto squares = [&](const PowerLaw& law) {
    double sum = 0;
    for (const PowerLawSample& s : samples) sum += std::pow(std::log(s.value / law.at(s.factors)), 2);
    return sum;
  };
  const double least = squares(fit->law);
  EXPECT_NEAR(fit->typical_error, std::sqrt(least / 96), 1e-12);
  EXPECT_LT(fit->r_squared, 1);
  for (double step : {-1e-4, 1e-4}) {
    PowerLaw scaled = fit->law;
    scaled.scale *= 1 + step;
    EXPECT_GT(squares(scaled), least);
    for (size_t i = 0; i < 3; ++i) {
      PowerLaw turned = fit->law;
      turned.exponents[i] += step;
      EXPECT_GT(squares(turned), least) << i;
    }
  }
}

TEST(PowerLaw, IsNoneWhereSamplesDoNotDetermineIt) {
  EXPECT_FALSE(fit_power_law({}));
  std::vector<PowerLawSample> few = grid(kLaw);
  few.resize(3);
  EXPECT_FALSE(fit_power_law(few));
  std::vector<PowerLawSample> one_block;
  for (const PowerLawSample& s : grid(kLaw))
    if (s.factors[2] == 4) one_block.push_back(s);
  EXPECT_FALSE(fit_power_law(one_block));
  for (const double m : {512., 768., 1000.}) {  // the mean of whose logarithms is rounded
    std::vector<PowerLawSample> one_size;
    for (const double d : {1. / 4, 1. / 16})
      for (const double b : {4., 16.})
        for (const double value : {0.9, 1.1}) one_size.push_back({{m, d, b}, value});
    EXPECT_FALSE(fit_power_law(one_size)) << m;
  }
  std::vector<PowerLawSample> dependent = grid(kLaw);
  for (PowerLawSample& s : dependent) s.factors[2] = s.factors[0] * s.factors[0] / s.factors[1];
  EXPECT_FALSE(fit_power_law(dependent));
}

TEST(PowerLaw, RefusesWhatHasNoLogarithm) {
  for (double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    std::vector<PowerLawSample> samples = grid(kLaw);
    samples[7].value = bad;
    EXPECT_USAGE_ERROR("sample 7: a power law is for", fit_power_law(samples));
    samples = grid(kLaw);
    samples[7].factors[1] = bad;
    EXPECT_USAGE_ERROR("sample 7: a power law is for", fit_power_law(samples));
  }
  std::vector<PowerLawSample> samples = grid(kLaw);
  samples[7].factors.pop_back();
  EXPECT_USAGE_ERROR("sample 7 has 2 factors", fit_power_law(samples));
}

}  // namespace
}  // namespace tessera::studies::popsparse
