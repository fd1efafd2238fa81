#include "report/interval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tessera::report {
namespace {

TEST(Interval, IsThatOfStudentsT) {
  const Interval two = interval_of({0.44, 0.46});
  EXPECT_NEAR(two.mean, 0.45, 1e-15);
  EXPECT_NEAR(two.margin, 12.7062 * 0.01, 1e-5);
  const Interval five = interval_of({1, 2, 3, 4, 5});
  EXPECT_EQ(five.mean, 3);
  EXPECT_NEAR(five.margin, 2.7764 * std::sqrt(2.5 / 5), 1e-3);
  EXPECT_EQ(interval_of({7, 7, 7}).margin, 0);
}

TEST(Interval, QuantilesOfManyValuesAreThoseOfTables) {
  const std::pair<size_t, double> table[] = {{11, 2.2010}, {15, 2.1314}, {30, 2.0423}, {999, 1.9623}};
  for (const auto& [freedom, quantile] : table) {
    std::vector<double> values(freedom + 1);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 2);
    double mean = 0, squares = 0;
    for (double value : values) mean += value / static_cast<double>(values.size());
    for (double value : values) squares += (value - mean) * (value - mean);
    const double error =
        std::sqrt(squares / static_cast<double>(freedom) / static_cast<double>(values.size()));
    EXPECT_NEAR(interval_of(values).margin / error, quantile, 1e-3) << freedom;
  }
}

TEST(Interval, ASingleValueSaysNothingAboutTheMean) {
  EXPECT_EQ(interval_of({0.3}).mean, 0.3);
  EXPECT_TRUE(std::isinf(interval_of({0.3}).margin));
}

}  // namespace
}  // namespace tessera::report
