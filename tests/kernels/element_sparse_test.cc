// The unstructured product against a float64 reference, on every instruction set of the processor.
#include "kernels/host/element_sparse/element_sparse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/products.h"
#include "support/activations.h"
#include "support/every_isa.h"
#include "support/numbers.h"

namespace tessera::kernels {
namespace {

using test::Dense;
using test::kNaN;
using test::Random;
using test::rounded;

struct Case {
  uint32_t m = 0;
  uint32_t k = 0;
  uint32_t n = 0;
  SparseMatrix w;
  Type type = Type::f32;
  sparse::ElementPacking packing;
  bool dynamic = false;
  ElementSchedule schedule;
  Epilogue epilogue;
  bool has_bias = false;
  test::DenseLayout x, y;
  std::string text;
};

/// Each row has its own density, so some are empty and, with `skewed`, a few are nearly full.
SparseMatrix random_matrix(uint32_t m, uint32_t k, double density, bool skewed, Random& random) {
  SparseMatrix w;
  w.pattern = test::random_pattern(m, k, 1, random, [&] {
    const double empty = random.below(8) == 0 ? 0 : density;
    return skewed ? std::min(1.0, density / (0.02 + random.unit())) : empty;
  });
  for (uint64_t i = 0; i < w.pattern.blocks(); ++i) w.values.push_back(random.value());
  return w;
}

Case random_case(uint64_t seed) {
  Random random(seed);
  Case c;
  c.m = random.one_of({0U, 1U, 2U, 31U, 33U, 100U, 100U + random.below(200)});
  c.k = random.one_of({0U, 1U, 7U, 64U, 65U, 130U, 100U + random.below(300), 1000U + random.below(3200)});
  c.n = random.one_of(
      {0U, 1U, 2U, 3U, 4U, 8U, 9U, 1 + random.below(70), 1 + random.below(300), 16 * (1 + random.below(24))});
  c.w = random_matrix(c.m, c.k, random.one_of({0.0, 0.02, 0.1, 0.5, 1.0}), random.coin(), random);
  c.type = random.one_of({Type::f32, Type::f16, Type::bf16});
  c.packing.k_block = random.one_of({0U, 1U, 16U, 63U, 64U, 100U, 127U, 255U, 1024U, 5000U});
  c.packing.chunk_rows = random.one_of({0U, 1U, 16U, 64U, 1000U});
  c.schedule.panel_cols = random.one_of<uint16_t>({1, 2, 4, 8, 16, 48, 64, 128, 1000});
  c.schedule.group_chunks = random.one_of<uint16_t>({1, 2, 100});
  c.schedule.stream_y = random.below(2) == 0;
  c.epilogue.alpha = random.one_of({1.0F, -0.5F});
  c.epilogue.beta = random.one_of({0.0F, 1.0F, 0.25F});
  c.epilogue.activation = random.one_of(test::kActivations);
  c.has_bias = random.coin();
  c.x.by_columns = random.coin();
  c.y.by_columns = random.coin();
  c.dynamic = seed % 3 == 0;
  c.text = "seed " + std::to_string(seed) + ": " + std::to_string(c.m) + " x " + std::to_string(c.k) + " x " +
           std::to_string(c.n) + ", " + std::to_string(c.w.pattern.blocks()) + " non-zeros, " +
           std::string(name_of(c.type)) + ", k_block " + std::to_string(c.packing.k_block) + ", chunk_rows " +
           std::to_string(c.packing.chunk_rows) + ", panel " + std::to_string(c.schedule.panel_cols) +
           (c.dynamic ? ", dynamic" : "");
  return c;
}

/// A dynamic weight has held another pattern before, and has spare capacity.
sparse::PackedElements pack(const Case& c) {
  if (!c.dynamic) return sparse::PackedElements(c.w, c.type, c.packing);
  auto packed = sparse::PackedElements::dynamic(c.m, c.k, c.w.pattern.blocks() + 9, c.type, c.packing);
  SparseMatrix other = c.w;
  for (uint64_t& begin : other.pattern.crow_indices)
    begin = std::min<uint64_t>(begin, c.w.pattern.blocks() / 2);
  other.pattern.col_indices.resize(other.pattern.crow_indices.back());
  other.values.resize(other.pattern.crow_indices.back());
  packed.set_matrix(other);
  packed.set_pattern(c.w.pattern);
  packed.set_values(c.w.values.data());
  return packed;
}

struct Problem {
  Case c;
  sparse::PackedElements packed;
  Dense x, y;
  std::vector<float> bias;

  Problem(const Case& from, uint64_t seed)
      : c(from), packed(pack(from)), x(c.k, c.n, c.x, kNaN), y(c.m, c.n, c.y, 77.0F), bias(c.m) {
    Random random(seed);
    x.fill([&](uint32_t, uint32_t) { return random.value(); });
    // With beta = 0, Y may hold anything.
    y.fill([&](uint32_t, uint32_t) { return c.epilogue.beta == 0 ? kNaN : random.value(); });
    for (float& b : bias) b = random.value();
    if (c.has_bias) c.epilogue.bias = bias.data();
  }

  struct OfImages {
    MatrixView<const float> x;
    Seen seen;
  };

  /// Runs row_parts × column_parts slices, one after another, also of images instead of X.
  void run(void (*kernel)(const ElementSlice&), uint32_t row_parts, uint32_t col_parts,
           const OfImages& images = {}) {
    ElementSlice slice;
    slice.weight = view_of(packed);
    slice.x = images.seen ? images.x : x.const_view();
    slice.seen = images.seen;
    slice.y = y.view();
    slice.epilogue = c.epilogue;
    slice.schedule = c.schedule;
    test::Scratch scratch(element_scratch_floats(c.schedule, slice.weight, c.n, slice.seen));
    slice.scratch = scratch.data();
    for (uint32_t r = 0; r < row_parts; ++r) {
      for (uint32_t p = 0; p < col_parts; ++p) {
        slice.chunk_begin = packed.chunks() * r / row_parts;
        slice.chunk_end = packed.chunks() * (r + 1) / row_parts;
        slice.col_begin = c.n * p / col_parts;
        slice.col_end = c.n * (p + 1) / col_parts;
        kernel(slice);
      }
    }
  }
};

test::ExactSum exact_sum(const Problem& p, uint32_t row, uint32_t col) {
  const Pattern& pattern = p.c.w.pattern;
  test::ExactSum sum;
  for (uint64_t i = pattern.crow_indices[row]; i < pattern.crow_indices[row + 1]; ++i)
    sum.add(rounded(p.c.w.values[i], p.c.type), p.x(pattern.col_indices[i], col));
  return sum;
}

void check(const Case& c, uint64_t seed, void (*kernel)(const ElementSlice&), uint32_t row_parts,
           uint32_t col_parts) {
  Problem p(c, seed);
  const Problem before(c, seed);
  p.run(kernel, row_parts, col_parts);
  for (uint32_t i = 0; i < c.m; ++i)
    for (uint32_t j = 0; j < c.n; ++j) {
      const test::ExactSum sum = exact_sum(p, i, j);
      ASSERT_NEAR(p.y(i, j), test::finished(p.c.epilogue, sum.value, before.y(i, j), i), sum.tolerance(1, 2))
          << c.text << ", " << name_of(active_isa()) << ", element " << i << ", " << j;
    }
  p.y.expect_only_margin_left(c.text);
}

class ElementSparse : public test::EveryIsa {};

TEST_P(ElementSparse, AgreesWithFloat64) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const Case c = random_case(seed);
    check(c, seed, element_spmm, 1 + seed % 3, 1 + seed % 2);
    if (HasFatalFailure()) return;
  }
}

TEST_P(ElementSparse, TakesEveryNumberOfColumns) {
  Random random(7);
  Case c;
  c.m = 70;
  c.k = 150;
  c.w = random_matrix(c.m, c.k, 0.2, false, random);
  for (c.n = 1; c.n <= 70; ++c.n) {
    for (uint16_t panel : {1, 4, 8, 16, 64, 128}) {
      c.schedule.panel_cols = panel;
      c.text = std::to_string(c.n) + " columns, panel " + std::to_string(panel);
      check(c, c.n, element_spmm, 1, 1);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ElementSparse, StreamsYWhereverItsRowsBegin) {
  for (uint64_t seed = 1; seed <= 64; ++seed) {
    Case c = random_case(seed);
    c.n = 32 * (1 + seed % 5);
    c.x.offset = c.y.offset = seed % 16;
    c.x.gap = c.y.gap = 16 * (seed % 3);
    c.x.by_columns = c.y.by_columns = false;
    c.epilogue.beta = 0;
    c.schedule.panel_cols = static_cast<uint16_t>(seed % 4 == 0 ? 5 + seed % 11 : 16 * (1 + seed % 8));
    c.schedule.stream_y = true;
    check(c, seed, element_spmm, 1 + seed % 3, 1 + seed % 2);
    if (HasFatalFailure()) return;
  }
}

// X and Y that begin at cache lines, and all columns of W in one k-block.
TEST_P(ElementSparse, FinishesWholeRows) {
  for (uint64_t seed = 1; seed <= 96; ++seed) {
    Case c = random_case(seed);
    Random random(seed);
    c.n = 16 * (1 + random.below(16));
    c.x.offset = c.y.offset = 0;
    c.x.gap = c.y.gap = random.one_of({0U, 16U, 400U});
    c.x.by_columns = c.y.by_columns = false;
    c.packing.k_block = 1023;
    c.schedule.panel_cols = static_cast<uint16_t>(random.one_of({16U, 48U, 64U, 128U}));
    c.schedule.stream_y = random.below(4) == 0;
    if (random.coin()) {
      c.epilogue = {};
      c.has_bias = false;
    }
    check(c, seed, element_spmm, 1 + seed % 3, 1 + seed % 2);
    if (HasFatalFailure()) return;
  }
}

// An infinity in X reaches the rows of Y that have an element in its column, and no others.
TEST_P(ElementSparse, FillerTakesNoPart) {
  Random random(11);
  for (const auto& [n, k_block, offset] : {std::tuple{1U, 64U, 1U},
                                           {3U, 64U, 1U},
                                           {8U, 64U, 1U},
                                           {20U, 64U, 1U},
                                           {64U, 64U, 1U},
                                           {48U, 1023U, 1U},
                                           {48U, 1023U, 0U}}) {
    Case c;
    c.m = 90;
    c.k = 200;
    c.n = n;
    c.w = random_matrix(c.m, c.k, 0.1, true, random);
    c.schedule.panel_cols = static_cast<uint16_t>(n);
    c.packing.k_block = k_block;
    c.x.offset = c.y.offset = offset;
    c.x.gap = c.y.gap = 16 - n % 16;
    Problem p(c, 5);
    constexpr uint32_t kInfinite[] = {0, 63, 64, 199};
    for (const uint32_t column : kInfinite) {
      for (uint32_t j = 0; j < n; ++j) p.x(column, j) = std::numeric_limits<float>::infinity();
    }
    p.run(element_spmm, 1, 1);
    const Pattern& pattern = c.w.pattern;
    for (uint32_t row = 0; row < c.m; ++row) {
      const auto begin = pattern.col_indices.begin() + static_cast<int64_t>(pattern.crow_indices[row]);
      const auto end = pattern.col_indices.begin() + static_cast<int64_t>(pattern.crow_indices[row + 1]);
      const bool touched = std::any_of(std::begin(kInfinite), std::end(kInfinite),
                                       [&](uint32_t k) { return std::binary_search(begin, end, k); });
      for (uint32_t j = 0; j < n; ++j) {
        EXPECT_EQ(std::isfinite(p.y(row, j)), !touched) << "row " << row << " of " << n << " columns";
      }
    }
  }
}

// A stored zero times infinity is NaN, like any other stored value.
TEST_P(ElementSparse, StoredZerosTakePart) {
  for (const uint32_t n : {1U, 5U, 40U}) {
    Case c;
    c.m = 1;
    c.k = 3;
    c.n = n;
    c.w.pattern.rows = 1;
    c.w.pattern.cols = 3;
    c.w.pattern.col_indices = {1};
    c.w.pattern.crow_indices = {0, 1};
    c.w.values = {0.0F};
    Problem p(c, 5);
    for (uint32_t j = 0; j < n; ++j) p.x(1, j) = std::numeric_limits<float>::infinity();
    p.run(element_spmm, 1, 1);
    for (uint32_t j = 0; j < n; ++j) EXPECT_TRUE(std::isnan(p.y(0, j)));
  }
}

// Partitioning the rows of a product does not change a bit.
TEST_P(ElementSparse, SharesAgreeBitForBit) {
  for (uint64_t seed = 300; seed < 320; ++seed) {
    const Case c = random_case(seed);
    Problem whole(c, seed), parts(c, seed);
    whole.run(element_spmm, 1, 1);
    parts.run(element_spmm, 2, 1);
    for (uint32_t i = 0; i < c.m; ++i)
      for (uint32_t j = 0; j < c.n; ++j)
        ASSERT_EQ(std::bit_cast<uint32_t>(whole.y(i, j)), std::bit_cast<uint32_t>(parts.y(i, j))) << c.text;
  }
}

// X as the elements under a window, compared with X itself; with infinities.
TEST_P(ElementSparse, SeesImagesUnderWindows) {
  for (uint64_t seed = 400; seed < 560; ++seed) {
    Random random(seed);
    Case c = random_case(seed);
    const test::Images images(random);
    c.m = random.one_of({1U, 3U, 16U, 33U, 40U});
    c.k = images.seen.rows();
    c.n = images.n;
    c.w = random_matrix(c.m, c.k, random.one_of({0.05, 0.2, 0.6}), random.coin(), random);
    c.x.by_columns = c.y.by_columns = false;
    Problem p(c, seed), expected(c, seed);
    Dense seen(images.seen.channels, images.seen.positions, c.x, kNaN);
    seen.fill([&](uint32_t, uint32_t) { return random.value(); });
    if (seed % 4 == 0) seen(0, random.below(images.seen.positions)) = std::numeric_limits<float>::infinity();
    const std::vector<float> x = matrix_of(seen.const_view(), images.seen, c.n);
    expected.x.fill([&](uint32_t i, uint32_t j) { return x[size_t{i} * c.n + j]; });
    expected.run(element_spmm_reference, 1, 1);
    p.run(element_spmm, 1 + seed % 2, 1 + seed % 3, {seen.const_view(), images.seen});
    for (uint32_t i = 0; i < c.m; ++i)
      for (uint32_t j = 0; j < c.n; ++j) {
        const float value = p.y(i, j), other = expected.y(i, j);
        ASSERT_EQ(std::isnan(value), std::isnan(other)) << c.text << ", element " << i << ", " << j;
        if (value != other && !std::isnan(value)) {
          ASSERT_NEAR(value, other, 1e-5 * (c.k + 4)) << c.text << ", element " << i << ", " << j;
        }
      }
    p.y.expect_only_margin_left(c.text);
  }
}

TESSERA_ON_EVERY_ISA(ElementSparse);

TEST(ElementReference, AgreesWithFloat64) {
  for (uint64_t seed = 500; seed < 560; ++seed) {
    const Case c = random_case(seed);
    check(c, seed, element_spmm_reference, 1 + seed % 2, 1);
    if (HasFatalFailure()) return;
  }
}

TEST(PackedElements, ReturnsWhatItWasGiven) {
  for (uint64_t seed = 700; seed < 740; ++seed) {
    const Case c = random_case(seed);
    sparse::PackedElements packed(c.w, c.type, c.packing);
    ASSERT_EQ(packed.nonzeros(), c.w.values.size());
    std::vector<float> values(c.w.values.size());
    packed.get_values(values.data());
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], rounded(c.w.values[i], c.type)) << c.text;

    std::vector<float> others(values.size());
    for (size_t i = 0; i < others.size(); ++i) others[i] = static_cast<float>(i % 97);
    packed.set_values(others.data());
    packed.get_values(values.data());
    EXPECT_EQ(values, others) << c.text;

    std::vector<uint64_t> order = packed.permutation();
    std::sort(order.begin(), order.end());
    EXPECT_TRUE(std::adjacent_find(order.begin(), order.end()) == order.end()) << c.text;
    if (!order.empty()) {
      EXPECT_LT(order.back(), packed.value_count());
    }
  }
}

TEST(PackedElements, NeedsLittleFiller) {
  Random random(3);
  const SparseMatrix w = random_matrix(2048, 512, 0.125, false, random);
  const sparse::PackedElements packed(w, Type::f32);
  EXPECT_LT(static_cast<double>(packed.value_count()), 1.15 * static_cast<double>(packed.nonzeros()));
}

}  // namespace
}  // namespace tessera::kernels
