// The greedy algorithms against plain ones that pack sequence by sequence.
#include "packing/greedy.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "packing/dive.h"
#include "packing/histograms.h"
#include "packing/least_squares.h"

namespace tessera::pack {
namespace {

struct Pack {
  uint32_t room;
  uint32_t depth = 0;
};

/// Puts sequences in descending order of length into packs that `choose` selects from the open ones with room
/// and depth left, or into a new one. Returns the number of packs.
template <class Choose>
uint64_t packs_plainly(const Histogram& histogram, uint32_t max_per_pack, Choose choose) {
  const uint32_t limit = depth_limit(max_per_pack);
  std::vector<Pack> packs;
  for (uint32_t l = histogram.max_length(); l > 0; --l) {
    for (uint64_t i = 0; i < histogram.counts[l]; ++i) {
      const auto fits = [&](const Pack& pack) { return pack.room >= l && pack.depth < limit; };
      size_t at = choose(packs, fits);
      if (at == packs.size()) packs.push_back({histogram.max_length()});
      packs[at].room -= l;
      ++packs[at].depth;
    }
  }
  return packs.size();
}

template <class F>
void on_random_histograms(F f) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const uint32_t max_length = std::uniform_int_distribution<uint32_t>(1, 300)(random);
    for (const test::Shape shape : test::shapes)
      f(test::random_histogram(shape, max_length, 400, random), seed % 6);
  }
}

TEST(FirstFitDecreasing, EqualsThePlainAlgorithm) {
  on_random_histograms([](const Histogram& histogram, uint32_t max_per_pack) {
    const auto first = [](const std::vector<Pack>& packs, auto fits) {
      return static_cast<size_t>(std::find_if(packs.begin(), packs.end(), fits) - packs.begin());
    };
    EXPECT_EQ(packs_of(first_fit_decreasing(histogram, max_per_pack)),
              packs_plainly(histogram, max_per_pack, first));
  });
}

TEST(NextFitDecreasing, EqualsThePlainAlgorithm) {
  on_random_histograms([](const Histogram& histogram, uint32_t max_per_pack) {
    const auto last = [](const std::vector<Pack>& packs, auto fits) {
      return !packs.empty() && fits(packs.back()) ? packs.size() - 1 : packs.size();
    };
    EXPECT_EQ(packs_of(next_fit_decreasing(histogram, max_per_pack)),
              packs_plainly(histogram, max_per_pack, last));
  });
}

TEST(LongestPackFirst, EqualsBestFitDecreasingWithoutALimit) {
  on_random_histograms([](const Histogram& histogram, uint32_t) {
    const auto least_room = [](const std::vector<Pack>& packs, auto fits) {
      size_t best = packs.size();
      for (size_t i = 0; i < packs.size(); ++i)
        if (fits(packs[i]) && (best == packs.size() || packs[i].room < packs[best].room)) best = i;
      return best;
    };
    EXPECT_EQ(packs_of(longest_pack_first(histogram, 0)), packs_plainly(histogram, 0, least_room));
  });
}

TEST(LongestPackFirst, FillsPacksThatAreBegun) {
  Histogram histogram = Histogram::of_max_length(10);
  histogram.counts[7] = 2;
  const std::vector<Strategy> packs = longest_pack_first(histogram, 2, {{{{3, 1}}, 5}});
  EXPECT_EQ(packs_of(packs), 5U);
  const std::vector<Part> full = {{7, 1}, {3, 1}};
  EXPECT_EQ(std::count_if(packs.begin(), packs.end(),
                          [&](const Strategy& s) { return s.parts == full && s.count == 2; }),
            1);
}

/// The conditions of the optimum: no column has a gradient above 0, and the gradient of positive columns is
/// 0.
TEST(NonNegativeLeastSquares, MeetsTheConditionsOfTheOptimum) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    constexpr uint32_t kRows = 20;
    const size_t count = 5 + random() % 60;
    std::vector<std::vector<ColumnEntry>> entries(count);
    std::vector<Column> columns;
    for (std::vector<ColumnEntry>& column : entries) {
      for (uint32_t row = random() % 5; row < kRows; row += 1 + random() % 6)
        column.push_back({row, uniform(random)});
      columns.emplace_back(column);
    }
    std::vector<double> residual(kRows);
    for (double& value : residual) value = uniform(random);
    const std::vector<double> x = non_negative_least_squares(columns, residual, [] { return false; });
    for (size_t i = 0; i < count; ++i)
      for (const ColumnEntry& entry : columns[i]) residual[entry.row] -= entry.value * x[i];
    for (size_t i = 0; i < count; ++i) {
      double gradient = 0;
      for (const ColumnEntry& entry : columns[i]) gradient += entry.value * residual[entry.row];
      EXPECT_GE(x[i], 0);
      EXPECT_LT(gradient, 1e-8);
      EXPECT_LT(x[i] > 0 ? std::abs(gradient) : 0, 1e-8);
    }
  }
}

}  // namespace
}  // namespace tessera::pack
