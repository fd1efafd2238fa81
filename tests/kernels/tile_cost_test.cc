// Cycles of codelets on a tile of bow, computed by hand from the published formulas.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/common/element.h"
#include "kernels/map/elementwise/codelet.h"
#include "kernels/map/reduce/codelet.h"
#include "kernels/tile/bucket/codelet.h"
#include "kernels/tile/bucket/cost.h"
#include "kernels/tile/row_epilogue/codelet.h"
#include "kernels/tile/tile_product/codelet.h"
#include "kernels/tile/tile_product/cost.h"
#include "machine/model/machine.h"

namespace tessera::kernels {
namespace {

const machine::Machine& bow() {
  static const machine::Machine machine = machine::find("bow");
  return machine;
}

void expect_rates(const BlockRates& rates, double start, double per_row, double per_block) {
  EXPECT_EQ(rates.start, start);
  EXPECT_EQ(rates.per_row, per_row);
  EXPECT_EQ(rates.per_block, per_block);
}

void expect_rates(const ElementRates& rates, double start, double per_row, double per_further) {
  EXPECT_EQ(rates.start, start);
  EXPECT_EQ(rates.per_row, per_row);
  EXPECT_EQ(rates.per_further, per_further);
}

TEST(TileCost, BlocksOfHalves) {
  expect_rates(block_rates(bow(), Type::f16, 4, 4), 132, 23, 20 + 6 * 8);
  expect_rates(block_rates(bow(), Type::f16, 4, 18), 132, 23, 20 + 6 * (14 + 2));
  expect_rates(block_rates(bow(), Type::f16, 8, 24), 108, 23, 32 + 6 * (14 + 2 * 3));
  expect_rates(block_rates(bow(), Type::f16, 16, 96), 108, 23, 80 + 6 * (19 + 4 * 15));
  expect_rates(block_rates(bow(), Type::f16, 16, 96, true), 108, 23, 80 + 128 + 6 * (19 + 4 * 15));
}

TEST(TileCost, BlocksOfFloats) {
  expect_rates(block_rates(bow(), Type::f32, 4, 12), 108, 23, 24 + 6 * (12 + 4));
  expect_rates(block_rates(bow(), Type::f32, 8, 6), 108, 41, 48 + 6 * 19);
  expect_rates(block_rates(bow(), Type::f32, 16, 6), 126, 41, 144 + 6 * 58);
  expect_rates(block_rates(bow(), Type::f32, 16, 96), 126, 41, 144 + 6 * (74 + 16 * 15));
}

TEST(TileCost, OtherBlocksAreMadeOfThese) {
  expect_rates(block_rates(bow(), Type::f16, 32, 96), 108, 2 * 23, 4 * (80 + 6 * (19 + 4 * 15)));
  expect_rates(block_rates(bow(), Type::f16, 3, 4), 132, 23, 20 + 6 * 8);
  expect_rates(block_rates(bow(), Type::f16, 5, 24), 108, 23, 32 + 6 * (14 + 2 * 3));
}

TEST(TileCost, MultipliersOfAnotherRateScaleTheirPart) {
  machine::Machine slow = bow();
  slow.macs_per_cycle_f16 = 16;
  expect_rates(block_rates(slow, Type::f16, 16, 96), 108, 23, 80 + 6 * (19 + 4 * 4 * 15));
}

TEST(TileCost, SingleElements) {
  expect_rates(element_rates(Type::f16, 4), 31, 7, 2);
  expect_rates(element_rates(Type::f16, 8), 31, 8, 3);
  expect_rates(element_rates(Type::f16, 20), 33, 11 + 2 * 14 + 9, 2 * 3 + 2);
  expect_rates(element_rates(Type::f32, 2), 29, 5, 2);
  expect_rates(element_rates(Type::f32, 4), 30, 6, 3);
  expect_rates(element_rates(Type::f32, 10), 31, 12 + 2 * 10 + 10, 2 * 3 + 2);
}

TEST(TileCost, SddmmOfBlocksAndElements) {
  expect_rates(sddmm_block_rates(bow(), Type::f16, 16, 96), 108, 6 + 17 + 6 * 80, 6 * 6 * (19 + 4 * 2));
  expect_rates(sddmm_block_rates(bow(), Type::f16, 16, 97), 108, 6 + 17 + 7 * 80, 7 * 6 * (19 + 4 * 2));
  expect_rates(sddmm_element_rates(Type::f16, 20), 33, 11 + 19, 14 + 3 + 2);
  expect_rates(sddmm_element_rates(Type::f16, 8), 33, 11 + 14, 14);
}

TEST(TileCost, DenseProducts) {
  EXPECT_EQ(dense_cycles(bow(), Type::f16, 32, 48, 60), 57 + 2 * 19 + 6 * (64 + 6 * (26 + 4 * 10)));
  EXPECT_EQ(dense_cycles(bow(), Type::f16, 33, 48, 60), 57 + 3 * 19 + 9 * (64 + 6 * (26 + 4 * 10)));
  EXPECT_EQ(dense_cycles(bow(), Type::f16, 32, 49, 61), 57 + 2 * 19 + 8 * (64 + 6 * (26 + 4 * 11)));
  EXPECT_EQ(dense_cycles(bow(), Type::f32, 20, 9, 6), 57 + 2 * 19 + 4 * (64 + 6 * (22 + 8)));
}

program::FieldView field(Type type, uint32_t rows, uint32_t cols) {
  return {nullptr, type, rows, cols, cols, 1};
}

double cycles_of(const program::Codelet& codelet, std::vector<program::FieldView> fields,
                 std::vector<int64_t> params) {
  return codelet.cost({fields, params}, bow()).total();
}

TEST(TileCost, GradientsOfDenseProductsTransposeAFactor) {
  EXPECT_EQ(
      cycles_of(dense_input_gradient_codelet,
                {field(Type::f16, 1, 48 * 32), field(Type::f16, 1, 48 * 60), field(Type::f16, 1, 32 * 60)},
                {48, 32, 60}),
      dense_cycles(bow(), Type::f16, 32, 48, 60) + 2 * 48 * 32 * 2 / 8);
  EXPECT_EQ(
      cycles_of(dense_weight_gradient_codelet,
                {field(Type::f16, 1, 32 * 48), field(Type::f16, 1, 60 * 48), field(Type::f16, 1, 32 * 60)},
                {32, 60, 48}),
      dense_cycles(bow(), Type::f16, 32, 48, 60) + 2 * 60 * 48 * 2 / 8);
}

TEST(TileCost, Sums) {
  const int64_t one = param_of(1.0F);
  EXPECT_EQ(cycles_of(reduce_sum_codelet, {field(Type::f16, 4, 100), field(Type::f16, 1, 100)}, {one}),
            6 * (16 + 3 * (8 + 6 + 3)));
  EXPECT_EQ(cycles_of(reduce_sum_codelet, {field(Type::f32, 2, 100), field(Type::f16, 1, 100)}, {one}),
            6 * (16 + 5 * (5 + 6 + 1)));
  EXPECT_EQ(cycles_of(reduce_sum_codelet, {field(Type::f16, 1, 96), field(Type::f32, 1, 96)}, {one}),
            6 * (16 + 2 * (7 + 6)));
}

TEST(TileCost, ElementwiseFunctions) {
  const auto half = field(Type::f16, 4, 25);
  const auto single = field(Type::f32, 4, 25);
  EXPECT_EQ(cycles_of(codelet_of(Binary::add), {half, half, half}, {}), 11 + 6 * (26 + 3 * 5));
  EXPECT_EQ(cycles_of(codelet_of(Binary::add), {single, single, single}, {}), 11 + 6 * (29 + 3 * 9));
  EXPECT_EQ(cycles_of(codelet_of(Unary::gelu), {half, half}, {}), 11 + 6 * (26 + 24 * 5));
  EXPECT_EQ(cycles_of(row_epilogue_codelet, {field(Type::f32, 7, 1), half},
                      {static_cast<int64_t>(Activation::relu), 25, 0}),
            11 + 6 * (26 + 3 * 5 + 4 * 2));
  EXPECT_EQ(cycles_of(row_epilogue_codelet, {field(Type::f32, 0, 0), single},
                      {static_cast<int64_t>(Activation::gelu), 25, 0}),
            11 + 6 * (29 + 24 * 9));
}

/// A bucket without metadata is assumed to hold only blocks of its own partition.
TEST(TileCost, ABucketWithUnknownMetadataHasOneSubgroup) {
  const double one =
      cycles_of(bucket_pending_codelet, {field(Type::u16, 1, 100), field(Type::u32, 1, 1)}, {0, 4});
  EXPECT_EQ(one, 40 + 33);
}

TEST(TileCost, Buckets) {
  EXPECT_EQ(fill_cycles(bow(), 1000), 25 + 125);
  const double blocks = 6 * 22 + 10 * 23 + 40 * (15 + 64 + 6 * (23 + 4 * 15));
  EXPECT_EQ(bucket_cycles(bow(), Type::f16, Type::f16, 16, 96, {1, 1, 10, 40}), 40 + 46 + 56 + blocks);
  EXPECT_EQ(bucket_cycles(bow(), Type::f16, Type::f16, 16, 96, {3, 1, 10, 40}),
            40 + 2 * 33 + 2 * 46 + 56 + blocks);
}

// With FP32 sums, blocks of 16 × 16 take two passes; FP32 blocks are four of 8 × 8.
TEST(TileCost, BucketsWithFp32Sums) {
  EXPECT_EQ(bucket_cycles(bow(), Type::f16, Type::f32, 16, 96, {1, 1, 10, 40}),
            40 + 46 + 56 + 6 * 23 + 10 * 23 + 40 * (27 + 64 + 6 * 2 * (25 + 4 * 15)));
  const double eights = bucket_cycles(bow(), Type::f32, Type::f32, 8, 96, {1, 1, 20, 160});
  EXPECT_EQ(bucket_cycles(bow(), Type::f32, Type::f32, 16, 96, {1, 1, 10, 40}), eights);
}

// 32 × 32 blocks are 2 × 2 of the kernel's 16 × 16, and 40 columns three pieces of 16, of which a worker
// has 3.
TEST(TileCost, SddmmOfBuckets) {
  const std::vector<program::FieldView> fields = {field(Type::f16, 5, 32 * 32), field(Type::u16, 1, 100),
                                                  field(Type::f16, 96, 40), field(Type::f16, 96, 40)};
  const double rows = 3 * 2 * (6 + 17 + 3 * (15 + 64));
  const double blocks = 5 * 4 * 3 * 6 * (23 + 4 * 2);
  const double cycles = 40 + 46 + 56 + 6 * 22 + rows + blocks;
  EXPECT_EQ(cycles_of(bucket_sddmm_codelet, fields, {32, 0, 0}), cycles);
  EXPECT_EQ(cycles_of(bucket_sddmm_codelet, fields, {32, 0, 1}), cycles + 25 + 5 * 32 * 32 * 2 / 8);
}

}  // namespace
}  // namespace tessera::kernels
