// Block-sparse products against float64, over random shapes, layouts, schedules and instruction sets.
#include "kernels/host/block_sparse/block_sparse.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/random.h"
#include "kernels/products.h"
#include "sparse/blocks/packed_blocks.h"
#include "sparse/pattern.h"
#include "support/activations.h"
#include "support/every_isa.h"

namespace tessera::kernels {
namespace {

using test::Dense;
using test::kNaN;
using test::Random;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Everything about one product, drawn from a seed.
struct RandomProduct {
  explicit RandomProduct(uint64_t product_seed) : seed(product_seed), random(seed) {
    b = random.one_of({4U, 8U, 16U, 32U});
    type = random.one_of({Type::f32, Type::f16, Type::bf16});
    m = side(130);
    k = side(130);
    n = side(71);
    for (test::DenseLayout* layout : {&x, &y}) {
      layout->by_columns = random.coin();
      layout->gap = random.below(2) * random.below(20) + 1;
      layout->offset = random.below(2) * random.below(16);
      layout->behind = 64;
    }
    density = random.below(5) / 4.0;
    if (random.below(3) == 0) y.gap = 15 - ((y.by_columns ? m : n) + 15) % 16;
    epilogue.alpha = random.one_of({1.0F, -1.5F});
    epilogue.beta = random.one_of({0.0F, 0.5F});
    epilogue.activation = random.one_of(test::kActivations);
    has_bias = random.coin();
    transposed = random.coin();
    scattered = random.coin();
    schedule.kernel = random.one_of({BlockSchedule::Kernel::wide, BlockSchedule::Kernel::few_columns});
    schedule.micro_rows = random.coin() ? 8 : 4;
    schedule.micro_vectors = static_cast<uint8_t>(random.below(6) + 1);
    schedule.panel_cols = 16 * (random.below(5) + 1);
    schedule.copy_x = random.coin();
    schedule.stream_y = random.coin();
    row_split = random.below((m + b - 1) / b + 1);
    col_split = random.below(n + 1);
  }

  std::string describe() const {
    return fmt::format("seed {}: {} x {} x {}, b {}, {}{}{}{}{}, {}, panel {}, tile {} x {}", seed, m, k, n,
                       b, name_of(type), x.by_columns ? ", X by columns" : "",
                       y.by_columns ? ", Y by columns" : "", transposed ? ", transposed" : "",
                       scattered ? ", scattered" : "",
                       schedule.kernel == BlockSchedule::Kernel::wide ? "wide" : "few columns",
                       schedule.panel_cols, schedule.micro_rows, schedule.micro_vectors);
  }

  uint64_t seed;
  Random random;
  uint32_t b, m, k, n;
  Type type;
  test::DenseLayout x, y;
  double density;
  Epilogue epilogue;
  bool has_bias;
  bool transposed;  // the stored weight is k × m
  bool scattered;   // its blocks have slots in any order, with others between
  BlockSchedule schedule;
  uint32_t row_split = 0;  // block row and column where the slices meet
  uint32_t col_split = 0;

 private:
  // 0 and 1 are as likely as all multiples of the block size together.
  uint32_t side(uint32_t most) {
    switch (random.below(8)) {
      case 0: return random.below(2);
      case 1: return random.below(most / b + 1) * b;
      default: return random.below(most) + 1;
    }
  }
};

/// A product's arrays. Memory between and around rows, which the caller does not own, is NaN in X and must
/// not change in Y.
struct Arrays {
  explicit Arrays(RandomProduct& p)
      : weight(random_matrix(p), p.type), x(p.k, p.n, p.x, kNaN), y(p.m, p.n, p.y, -7.0F), bias(p.m) {
    weight.get_values(matrix.values);
    dense = sparse::to_dense(matrix);
    share_weight = view_of(weight, p.transposed);
    if (p.scattered) scatter(p);
    x.fill([&](uint32_t, uint32_t) { return p.random.value(); });
    y.fill([&](uint32_t, uint32_t) { return p.epilogue.beta == 0 ? kNaN : p.random.value(); });
    for (float& value : bias) value = p.random.value();
    if (p.has_bias) p.epilogue.bias = bias.data();
  }

  const SparseMatrix& random_matrix(RandomProduct& p) {
    matrix.pattern = test::random_pattern(p.transposed ? p.k : p.m, p.transposed ? p.m : p.k, p.b, p.random,
                                          [&] { return p.density; });
    matrix.values.resize(matrix.pattern.blocks() * p.b * p.b);
    base::RandomStream(p.seed, 2).fill_symmetric(matrix.values);
    return matrix;
  }

  // Moves each block to an unused slot; the other slots hold NaN.
  void scatter(RandomProduct& p) {
    const auto blocks = static_cast<uint32_t>(weight.blocks());
    std::vector<uint32_t> moved(2 * blocks + 3);
    std::iota(moved.begin(), moved.end(), 0U);
    for (uint32_t i = 0; i < blocks; ++i)
      std::swap(moved[i], moved[i + p.random.below(static_cast<uint32_t>(moved.size()) - i)]);
    const size_t bytes = size_t{p.b} * p.b * size_of(p.type);
    scattered_values = base::allocate_buffer(moved.size() * bytes);
    std::memset(scattered_values.get(), 0xFF, moved.size() * bytes);
    for (uint32_t i = 0; i < blocks; ++i)
      std::memcpy(scattered_values.get() + moved[i] * bytes, weight.values().data() + i * bytes, bytes);
    const sparse::BlockIndex& index = p.transposed ? weight.transposed_index() : weight.index();
    for (uint32_t i = 0; i < blocks; ++i) slots.push_back(moved[index.slot(i)]);
    share_weight.values = scattered_values.get();
    share_weight.slots = slots.data();
  }

  // Value (i, j) of the product's W, as rounded by the weight.
  float value(const RandomProduct& p, uint32_t i, uint32_t j) const {
    return p.transposed ? dense[size_t{j} * p.m + i] : dense[size_t{i} * p.k + j];
  }

  SparseMatrix matrix;  // the stored matrix
  sparse::PackedBlocks weight;
  std::vector<float> dense;
  base::Buffer scattered_values;
  std::vector<uint32_t> slots;
  BlockWeight share_weight;
  Dense x, y;
  std::vector<float> bias;
};

using Kernel = void (*)(const BlockSlice&);

// The product in up to four slices.
void multiply(const RandomProduct& p, Arrays& a, Kernel kernel) {
  const uint32_t rows[] = {0, p.row_split, (p.m + p.b - 1) / p.b};
  const uint32_t cols[] = {0, p.col_split, p.n};
  for (int r = 0; r < 2; ++r) {
    for (int c = 0; c < 2; ++c) {
      BlockSlice slice;
      slice.weight = a.share_weight;
      slice.block_row_begin = rows[r];
      slice.block_row_end = rows[r + 1];
      slice.col_begin = cols[c];
      slice.col_end = cols[c + 1];
      slice.x = a.x.const_view();
      slice.y = a.y.view();
      slice.epilogue = p.epilogue;
      slice.schedule = p.schedule;
      test::Scratch scratch(
          block_scratch_floats(p.schedule, p.k, p.b, slice.col_end - slice.col_begin, p.transposed));
      slice.scratch = scratch.data();
      kernel(slice);
    }
  }
}

void expect_right(const RandomProduct& p, Kernel kernel) {
  RandomProduct drawn = p;
  Arrays a(drawn);
  Dense before(p.m, p.n, p.y, 0);
  before.fill([&](uint32_t i, uint32_t j) { return a.y(i, j); });
  multiply(drawn, a, kernel);
  for (uint32_t i = 0; i < p.m; ++i)
    for (uint32_t j = 0; j < p.n; ++j) {
      test::ExactSum sum;
      for (uint32_t c = 0; c < p.k; ++c)
        if (const float value = a.value(drawn, i, c); value != 0) sum.add(value, a.x(c, j));
      ASSERT_NEAR(a.y(i, j), test::finished(drawn.epilogue, sum.value, before(i, j), i),
                  sum.tolerance(drawn.epilogue.alpha, 2))
          << p.describe() << " at (" << i << ", " << j << ")";
    }
  a.y.expect_only_margin_left(p.describe());
}

class BlockSparse : public test::EveryIsa {};

TEST_P(BlockSparse, MatchesFloat64OnRandomProducts) {
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    expect_right(RandomProduct(seed), block_spmm);
    if (HasFatalFailure()) return;
  }
}

TEST_P(BlockSparse, EveryWidthWithEveryBlockSize) {
  for (uint32_t n = 1; n <= 70; ++n) {
    for (uint32_t b : {4, 8, 16, 32}) {
      for (const auto kernel : {BlockSchedule::Kernel::wide, BlockSchedule::Kernel::few_columns}) {
        RandomProduct p(n * 100 + b);
        p.n = n;
        p.b = b;
        p.x.gap = 3;
        p.y.gap = 5;
        p.schedule.kernel = kernel;
        p.row_split = 0;
        p.col_split = 0;
        expect_right(p, block_spmm);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Rows of X and Y that begin anywhere in a cache line, all at the same offset.
TEST_P(BlockSparse, ReadsXInPlaceWhereverItsRowsBegin) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomProduct p(seed);
    p.n = 16 * (4 + p.random.below(6));
    p.k = p.b * (1 + p.random.below(8));
    p.x.by_columns = false;
    p.x.gap = 16 * p.random.below(3);
    p.x.offset = p.random.below(16);
    p.y.by_columns = false;
    p.y.gap = 16 * p.random.below(3);
    p.y.offset = p.random.below(2) == 0 ? p.x.offset : p.random.below(16);
    p.schedule.kernel = BlockSchedule::Kernel::wide;
    p.schedule.micro_rows = 8;
    p.schedule.panel_cols = p.n;
    p.schedule.copy_x = false;
    p.row_split = 0;
    p.col_split = p.random.below(2) == 0 ? 0 : 16;
    expect_right(p, block_spmm);
    if (HasFatalFailure()) return;
  }
}

// Rows of Y that begin anywhere in a cache line and are written with non-temporal stores.
TEST_P(BlockSparse, StreamsYWhereverItsRowsBegin) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomProduct p(seed);
    p.n = 16 * (1 + p.random.below(9));
    p.m = p.b * (1 + p.random.below(8));
    p.x.by_columns = false;
    p.x.gap = p.random.below(20);
    p.x.offset = p.random.below(16);
    p.y.by_columns = false;
    p.y.gap = 16 * p.random.below(3);
    p.y.offset = p.random.below(16);
    p.epilogue = {};
    p.has_bias = false;
    p.schedule.kernel = BlockSchedule::Kernel::wide;
    p.schedule.panel_cols = 16 * (1 + p.random.below(6));
    p.schedule.copy_x = true;
    p.schedule.stream_y = true;
    p.row_split = p.random.below(p.m / p.b + 1);
    p.col_split = 16 * p.random.below(p.n / 16 + 1);
    expect_right(p, block_spmm);
    if (HasFatalFailure()) return;
  }
}

// One 16-row strip of ones over 40 columns; the last 8 columns overhang a k of 32 + 3.
TEST_P(BlockSparse, OnlyStoredValuesContribute) {
  for (const auto kernel : {BlockSchedule::Kernel::wide, BlockSchedule::Kernel::few_columns}) {
    for (const uint32_t n : {1U, 5U, 16U, 48U}) {
      Pattern pattern{8, 35, 8, {0, 2}, {1, 4}};
      std::vector<float> values(2 * 64, 1.0F);
      values[3] = 0;  // row 0, column 8 + 3: stored, so 0 · inf counts there
      const sparse::PackedBlocks weight(SparseMatrix{pattern, values}, Type::f32);
      std::vector<float> x(35 * n + 64, kNaN);
      std::fill(x.begin(), x.begin() + 35 * n, 1.0F);
      std::fill(x.begin(), x.begin() + n, kInfinity);                // row 0: no block
      std::fill(x.begin() + 11 * n, x.begin() + 12 * n, kInfinity);  // row 11
      std::vector<float> y(8 * n, kNaN);
      BlockSlice slice;
      slice.weight = view_of(weight);
      slice.block_row_end = 1;
      slice.col_end = n;
      slice.x = row_major<const float>(x.data(), n);
      slice.y = row_major(y.data(), n);
      slice.schedule.kernel = kernel;
      slice.schedule.copy_x = false;
      std::vector<float> scratch(block_scratch_floats(slice.schedule, 35, 8, n) + 16);
      slice.scratch = scratch.data();
      block_spmm(slice);
      for (uint32_t j = 0; j < n; ++j) {
        EXPECT_TRUE(std::isnan(y[j])) << n;
        for (uint32_t i = 1; i < 8; ++i) EXPECT_EQ(y[i * n + j], kInfinity) << n;
      }
    }
  }
}

TESSERA_ON_EVERY_ISA(BlockSparse);

TEST(BlockSparseReference, MatchesFloat64OnRandomProducts) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    expect_right(RandomProduct(seed), block_spmm_reference);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tessera::kernels
