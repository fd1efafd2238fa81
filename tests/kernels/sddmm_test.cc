// SDDMM against a float64 reference, on every instruction set of the processor.
#include "kernels/host/sddmm/sddmm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/products.h"
#include "support/every_isa.h"

namespace tessera::kernels {
namespace {

using test::Dense;
using test::kNaN;
using test::Random;
using test::Scratch;

/// A random pattern in which some block rows are empty.
Pattern random_pattern(uint32_t m, uint32_t k, uint32_t b, double density, Random& random) {
  return test::random_pattern(m, k, b, random, [&] { return random.below(6) == 0 ? 0 : density; });
}

test::DenseLayout random_layout(Random& random) {
  return {random.coin(), random.below(4), random.below(4), 0};
}

/// Position of a stored element in the matrix, and in dW.
struct StoredElement {
  uint32_t row, col;
  uint64_t at;
};

struct Case {
  uint32_t m, k, n;
  float alpha, beta;
  test::DenseLayout x, dy;
  std::string text;

  explicit Case(uint64_t seed, Random& random)
      : m(random.one_of({1U, 3U, 32U, 50U + random.below(150)})),
        k(random.one_of({1U, 5U, 64U, 50U + random.below(250)})),
        n(random.one_of({1U, 2U, 7U, 16U, 1 + random.below(100), 1 + random.below(700)})),
        alpha(random.one_of({1.0F, -0.5F})),
        beta(random.one_of({0.0F, 1.0F, 0.25F})),
        x(random_layout(random)),
        dy(random_layout(random)),
        text(fmt::format("seed {}: {} x {} x {}, beta {}, X by columns {}, dY by columns {}", seed, m, k, n,
                         beta, x.by_columns, dy.by_columns)) {}
};

/// Runs an SDDMM and compares all of dW: stored elements with float64, everything else with 0.
template <class Run>
void check(const Case& c, const std::vector<StoredElement>& places, uint64_t size, Random& random,
           const Run& run) {
  Dense dy(c.m, c.n, c.dy, kNaN), x(c.k, c.n, c.x, kNaN);
  for (Dense* matrix : {&dy, &x}) matrix->fill([&](uint32_t, uint32_t) { return random.value(); });
  // Values at places without a stored element must not matter; neither must dW if it is not read.
  std::vector<float> dw(size, c.beta == 0 ? kNaN : 0.0F);
  if (c.beta != 0)
    for (const StoredElement& p : places) dw[p.at] = random.value();
  const std::vector<float> before = dw;
  SddmmOperands operands;
  operands.n = c.n;
  operands.dy = dy.const_view();
  operands.x = x.const_view();
  operands.dw = dw.data();
  operands.alpha = c.alpha;
  operands.beta = c.beta;
  run(operands);

  std::vector<bool> stored(size);
  for (const StoredElement& p : places) {
    stored[p.at] = true;
    test::ExactSum sum;
    for (uint32_t j = 0; j < c.n; ++j) sum.add(dy(p.row, j), x(p.col, j));
    const double old = c.beta == 0 ? 0 : double{c.beta} * before[p.at];
    ASSERT_NEAR(dw[p.at], c.alpha * sum.value + old, sum.tolerance(c.alpha, old))
        << "element " << p.row << ", " << p.col;
  }
  for (uint64_t i = 0; i < size; ++i) {
    if (!stored[i]) {
      ASSERT_EQ(dw[i], 0) << "place " << i << " holds no element";
    }
  }
}

void check_blocks(uint64_t seed, void (*kernel)(const BlockSddmmSlice&)) {
  Random random(seed);
  const Case c(seed, random);
  const auto b = random.one_of({4U, 8U, 16U, 32U});
  const Pattern pattern = random_pattern(c.m, c.k, b, random.one_of({0.05, 0.3, 1.0}), random);
  SCOPED_TRACE(fmt::format("{}, blocks of {}", c.text, b));
  const sparse::PackedBlocks packed(pattern, Type::f32);
  BlockSddmmSlice slice;
  slice.weight = view_of(packed);
  // With slots, the values of blocks are in another order.
  std::vector<uint32_t> slots;
  for (uint64_t i = 0; i < pattern.blocks(); ++i)
    slots.push_back(static_cast<uint32_t>(pattern.blocks() - 1 - i));
  const bool with_slots = random.coin();
  if (with_slots) slice.weight.slots = slots.data();
  slice.schedule.group_rows = random.one_of({1U, 32U, 96U, 5000U, UINT32_MAX});
  slice.schedule.panel_cols = random.one_of({1U, 64U, 128U, 512U});
  std::vector<StoredElement> places;
  for (uint32_t row = 0; row < pattern.block_rows(); ++row)
    for (uint64_t i = pattern.crow_indices[row]; i < pattern.crow_indices[row + 1]; ++i)
      for (uint32_t e = 0; e < b * b; ++e) {
        const StoredElement place{row * b + e / b, pattern.col_indices[i] * b + e % b,
                                  (with_slots ? slots[i] : i) * b * b + packed.order().offset(e / b, e % b)};
        if (place.row < c.m && place.col < c.k) places.push_back(place);
      }
  const uint32_t parts = random.one_of({1U, 2U, 3U});
  Scratch scratch(block_sddmm_scratch(slice.schedule, slice.weight, pattern.block_rows(), c.n, {}));
  check(c, places, pattern.blocks() * b * b, random, [&](const SddmmOperands& operands) {
    slice.operands = operands;
    slice.operands.scratch = scratch.data();
    for (uint32_t p = 0; p < parts; ++p) {
      slice.block_row_begin = pattern.block_rows() * p / parts;
      slice.block_row_end = pattern.block_rows() * (p + 1) / parts;
      kernel(slice);
    }
  });
}

void check_elements(uint64_t seed, void (*kernel)(const ElementSddmmSlice&)) {
  Random random(seed);
  const Case c(seed, random);
  SCOPED_TRACE(c.text + ", single elements");
  SparseMatrix w;
  w.pattern = random_pattern(c.m, c.k, 1, random.one_of({0.02, 0.2, 0.6, 1.0}), random);
  w.values.assign(w.pattern.blocks(), 1.0F);
  sparse::ElementPacking packing;
  packing.k_block = random.one_of({0U, 16U, 63U, 127U});
  packing.chunk_rows = random.one_of({0U, 16U, 100U});
  const sparse::PackedElements packed(w, Type::f32, packing);
  ElementSddmmSlice slice;
  slice.weight = view_of(packed);
  slice.schedule.panel_cols = random.one_of<uint16_t>({1, 16, 48, 64, 128, 1000});
  slice.schedule.group_panels = random.one_of<uint16_t>({1, 2, 7});
  const std::vector<uint64_t> places_of = packed.permutation();
  std::vector<StoredElement> places;
  for (uint32_t row = 0; row < c.m; ++row)
    for (uint64_t i = w.pattern.crow_indices[row]; i < w.pattern.crow_indices[row + 1]; ++i)
      places.push_back({row, w.pattern.col_indices[i], places_of[i]});
  const uint32_t parts = random.one_of({1U, 2U, 3U});
  const uint64_t size = packed.value_count() + 40;
  Scratch scratch(element_sddmm_scratch(slice.schedule, slice.weight, c.n));
  check(c, places, size, random, [&](const SddmmOperands& operands) {
    slice.operands = operands;
    slice.operands.scratch = scratch.data();
    for (uint32_t p = 0; p < parts; ++p) {
      slice.chunk_begin = packed.chunks() * p / parts;
      slice.chunk_end = packed.chunks() * (p + 1) / parts;
      slice.end_place = p + 1 == parts ? size : 0;
      kernel(slice);
    }
  });
}

TEST(SddmmTest, BlocksAgreeWithFloat64) {
  test::on_every_isa([] {
    for (uint64_t seed = 0; seed < 150 && !testing::Test::HasFatalFailure(); ++seed)
      check_blocks(seed, block_sddmm);
  });
  for (uint64_t seed = 0; seed < 40 && !HasFatalFailure(); ++seed) check_blocks(seed, block_sddmm_reference);
}

TEST(SddmmTest, ElementsAgreeWithFloat64) {
  test::on_every_isa([] {
    for (uint64_t seed = 0; seed < 150 && !testing::Test::HasFatalFailure(); ++seed)
      check_elements(seed, element_sddmm);
  });
  for (uint64_t seed = 0; seed < 40 && !HasFatalFailure(); ++seed)
    check_elements(seed, element_sddmm_reference);
}

/// X as the elements under a window, compared with X itself; with infinities, and without columns.
void check_images(uint64_t seed) {
  Random random(seed);
  test::Images images(random);
  if (seed % 20 == 7) images.n = 0;
  const uint32_t m = random.one_of({1U, 3U, 16U, 33U, 70U}), k = images.seen.rows();
  SCOPED_TRACE(fmt::format("seed {}: {} x {} x {}, from {}", seed, m, k, images.n, images.seen.first));
  const Pattern pattern = random_pattern(m, k, 1, random.one_of({0.05, 0.2, 0.6}), random);
  sparse::ElementPacking packing;
  packing.k_block = random.one_of({0U, 16U, 63U});
  packing.chunk_rows = random.one_of({0U, 16U});
  const sparse::PackedElements packed(SparseMatrix{pattern, std::vector<float>(pattern.blocks(), 1)},
                                      Type::f32, packing);
  Dense dy(m, images.n, {}, kNaN), seen(images.seen.channels, images.seen.positions, {}, kNaN);
  for (Dense* matrix : {&dy, &seen}) matrix->fill([&](uint32_t, uint32_t) { return random.value(); });
  if (seed % 4 == 0) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    dy(0, random.below(images.n)) = seen(0, random.below(images.seen.positions)) = kInfinity;
  }
  ElementSddmmSlice slice;
  slice.weight = view_of(packed);
  slice.chunk_end = packed.chunks();
  slice.schedule.panel_cols = random.one_of<uint16_t>({16, 48, 128});
  slice.schedule.group_panels = random.one_of<uint16_t>({1, 3});
  slice.operands = {.n = images.n, .dy = dy.const_view(), .x = seen.const_view(), .seen = images.seen};
  slice.operands.beta = random.one_of({0.0F, 1.0F});
  Scratch scratch(element_sddmm_scratch(slice.schedule, slice.weight, images.n, images.seen));
  slice.operands.scratch = scratch.data();
  std::vector<float> dw(packed.value_count()), expected;
  for (float& value : dw) value = random.value();
  expected = dw;
  slice.operands.dw = expected.data();
  element_sddmm_reference(slice);
  slice.operands.dw = dw.data();
  element_sddmm(slice);
  for (uint64_t i = 0; i < dw.size(); ++i) {
    ASSERT_EQ(std::isnan(dw[i]), std::isnan(expected[i])) << "place " << i;
    if (dw[i] != expected[i] && !std::isnan(dw[i])) {
      ASSERT_NEAR(dw[i], expected[i], 1e-6 * (images.n + 10)) << "place " << i;
    }
  }
}

TEST(SddmmTest, ElementsSeeImagesUnderWindows) {
  test::on_every_isa([] {
    for (uint64_t seed = 0; seed < 120 && !testing::Test::HasFatalFailure(); ++seed) check_images(seed);
  });
}

/// An infinite row of X or dY reaches the elements in its column or row, and no other places.
TEST(SddmmTest, InfinityStaysWhereItBelongs) {
  Random random(5);
  const Pattern pattern = random_pattern(40, 50, 1, 0.3, random);
  const sparse::PackedElements packed(SparseMatrix{pattern, std::vector<float>(pattern.blocks(), 1)},
                                      Type::f32);
  std::vector<float> dy(40 * 20, 1.0F), x(50 * 20, 1.0F), dw(packed.value_count(), kNaN);
  std::fill_n(x.begin() + 7 * 20, 20, std::numeric_limits<float>::infinity());
  std::fill_n(dy.begin() + 3 * 20, 20, -std::numeric_limits<float>::infinity());
  ElementSddmmSlice slice;
  slice.weight = view_of(packed);
  slice.chunk_end = packed.chunks();
  slice.operands = {.n = 20, .dy = {dy.data(), 20, 1}, .x = {x.data(), 20, 1}, .dw = dw.data()};
  Scratch scratch(element_sddmm_scratch(slice.schedule, slice.weight, 20));
  slice.operands.scratch = scratch.data();
  test::on_every_isa([&] {
    element_sddmm(slice);
    const std::vector<uint64_t> places = packed.permutation();
    std::vector<float> gradient;
    for (uint64_t place : places) gradient.push_back(dw[place]);
    double sum = 0;
    for (float value : dw) sum += std::isfinite(value) ? value : 0;
    double stored = 0;
    for (uint32_t row = 0; row < 40; ++row)
      for (uint64_t i = pattern.crow_indices[row]; i < pattern.crow_indices[row + 1]; ++i) {
        EXPECT_EQ(std::isfinite(gradient[i]), row != 3 && pattern.col_indices[i] != 7);
        if (std::isfinite(gradient[i])) stored += gradient[i];
      }
    EXPECT_EQ(sum, stored);
    for (float value : dw) EXPECT_FALSE(std::isnan(value));
  });
}

}  // namespace
}  // namespace tessera::kernels
