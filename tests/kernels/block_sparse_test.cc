// Block-sparse products against float64, over random shapes, layouts, schedules and instruction sets.
#include "kernels/host/block_sparse/block_sparse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/isa.h"
#include "base/random.h"
#include "sparse/blocks/packed_blocks.h"
#include "sparse/pattern.h"

namespace tessera::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Everything about one product, drawn from a seed.
struct Product {
  explicit Product(uint64_t product_seed) : seed(product_seed), random(base::RandomStream(seed)) {
    static constexpr uint32_t kBlocks[] = {4, 8, 16, 32};
    static constexpr Type kTypes[] = {Type::f32, Type::f16, Type::bf16};
    b = kBlocks[random.below(4)];
    type = kTypes[random.below(3)];
    m = side(130);
    k = side(130);
    n = side(71);
    x_columns = random.below(2) == 1;
    y_columns = random.below(2) == 1;
    density = static_cast<float>(random.below(5)) / 4;
    x_leading = (x_columns ? k : n) + random.below(2) * random.below(20) + 1;
    y_leading = (y_columns ? m : n) + random.below(2) * random.below(20) + 1;
    x_offset = random.below(2) * random.below(16);
    y_offset = random.below(2) * random.below(16);
    if (random.below(3) == 0) y_leading = (y_leading + 15) / 16 * 16;
    epilogue.alpha = random.below(2) == 0 ? 1.0F : -1.5F;
    epilogue.beta = random.below(2) == 0 ? 0.0F : 0.5F;
    epilogue.activation = static_cast<Activation>(random.below(3));
    has_bias = random.below(2) == 1;
    transposed = random.below(2) == 1;
    scattered = random.below(2) == 1;
    draw_split();
  }

  std::string describe() const {
    return "seed " + std::to_string(seed) + ": " + std::to_string(m) + " x " + std::to_string(k) + " x " +
           std::to_string(n) + ", b " + std::to_string(b) + ", " + std::string(name_of(type)) +
           (x_columns ? ", X by columns" : "") + (y_columns ? ", Y by columns" : "") +
           (transposed ? ", transposed" : "") + (scattered ? ", scattered" : "") +
           (schedule.kernel == BlockSchedule::Kernel::wide ? ", wide" : ", narrow") + ", panel " +
           std::to_string(schedule.panel_cols) + ", tile " + std::to_string(schedule.micro_rows) + " x " +
           std::to_string(schedule.micro_vectors);
  }

  uint64_t seed;
  base::RandomSequence random;
  uint32_t b, m, k, n;
  Type type;
  bool x_columns, y_columns;
  float density;
  uint32_t x_leading, y_leading, x_offset, y_offset;
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

  void draw_split() {
    schedule.kernel = random.below(2) == 0 ? BlockSchedule::Kernel::wide : BlockSchedule::Kernel::few_columns;
    schedule.micro_rows = random.below(2) == 0 ? 4 : 8;
    schedule.micro_vectors = static_cast<uint8_t>(random.below(6) + 1);
    schedule.panel_cols = 16 * (random.below(5) + 1);
    schedule.copy_x = random.below(2) == 0;
    schedule.stream_y = random.below(2) == 0;
    row_split = random.below((m + b - 1) / b + 1);
    col_split = random.below(n + 1);
  }
};

Pattern random_pattern(Product& p) {
  Pattern pattern{p.transposed ? p.k : p.m, p.transposed ? p.m : p.k, p.b, {0}, {}};
  for (uint32_t r = 0; r < pattern.block_rows(); ++r) {
    for (uint32_t c = 0; c < pattern.block_cols(); ++c) {
      if (static_cast<float>(p.random.below(1000)) < p.density * 1000) pattern.columns.push_back(c);
    }
    pattern.row_begin.push_back(pattern.columns.size());
  }
  return pattern;
}

/// A product's arrays. What the caller does not own, between rows and around, is NaN in X and must be
/// unchanged in Y.
struct Arrays {
  explicit Arrays(Product& p)
      : weight(random_matrix(p), p.type),
        x(p.x_offset + size_t{p.x_leading} * std::max(1U, p.x_columns ? p.n : p.k) + 64, kNaN),
        y(p.y_offset + size_t{p.y_leading} * std::max(1U, p.y_columns ? p.n : p.m) + 64, -7.0F),
        bias(p.m) {
    matrix.values.resize(weight.blocks() * p.b * p.b);
    weight.get_values(matrix.values);
    dense = sparse::to_dense(matrix);
    share_weight = view_of(weight, p.transposed);
    if (p.scattered) scatter(p);
    const base::RandomStream stream(p.seed, 1);
    for (uint32_t i = 0; i < p.k; ++i) {
      for (uint32_t j = 0; j < p.n; ++j) x_view(p)(i, j) = stream.symmetric(uint64_t{i} * p.n + j);
    }
    for (uint32_t i = 0; i < p.m; ++i) {
      for (uint32_t j = 0; j < p.n; ++j) {
        y_view(p)(i, j) = p.epilogue.beta == 0 ? kNaN : stream.symmetric(1000000 + i * 71 + j);
      }
      bias[i] = stream.symmetric(2000000 + i);
    }
    if (p.has_bias) p.epilogue.bias = bias.data();
  }

  MatrixView<float> x_view(const Product& p) { return view(x.data() + p.x_offset, p.x_leading, p.x_columns); }
  MatrixView<float> y_view(const Product& p) { return view(y.data() + p.y_offset, p.y_leading, p.y_columns); }

  static MatrixView<float> view(float* data, uint32_t leading, bool by_columns) {
    return by_columns ? column_major(data, leading) : row_major(data, leading);
  }

  const SparseMatrix& random_matrix(Product& p) {
    matrix.pattern = random_pattern(p);
    matrix.values.resize(matrix.pattern.blocks() * p.b * p.b);
    base::RandomStream(p.seed, 2).fill_symmetric(matrix.values);
    return matrix;
  }

  // Moves each block to an unused slot; the other slots hold NaN.
  void scatter(Product& p) {
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
  float value(const Product& p, uint32_t i, uint32_t j) const {
    return p.transposed ? dense[size_t{j} * p.m + i] : dense[size_t{i} * p.k + j];
  }

  SparseMatrix matrix;  // what is stored
  sparse::PackedBlocks weight;
  std::vector<float> dense;
  base::Buffer scattered_values;
  std::vector<uint32_t> slots;
  BlockWeight share_weight;
  std::vector<float> x;
  std::vector<float> y;
  std::vector<float> bias;
};

struct Sum {
  double value = 0;
  double magnitude = 0;
  uint32_t length = 0;
};

Sum sum_of(const Product& p, Arrays& a, uint32_t row, uint32_t col) {
  Sum sum;
  for (uint32_t i = 0; i < p.k; ++i) {
    const float value = a.value(p, row, i);
    if (value == 0) continue;
    const double product = double{value} * a.x_view(p)(i, col);
    sum.value += product;
    sum.magnitude += std::abs(product);
    ++sum.length;
  }
  return sum;
}

double finished(const Epilogue& e, double sum, double y, uint32_t row) {
  double value = e.alpha * sum;
  if (e.beta != 0) value += e.beta * y;
  if (e.bias != nullptr) value += e.bias[row];
  switch (e.activation) {
    case Activation::none: return value;
    case Activation::relu: return value < 0 ? 0 : value;
    case Activation::gelu: return value / 2 * (1 + std::erf(value / std::sqrt(2.0)));
  }
  return value;
}

using Kernel = void (*)(const BlockSlice&);

// The product in up to four slices.
void multiply(const Product& p, Arrays& a, Kernel kernel) {
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
      const MatrixView<float> x = a.x_view(p);
      slice.x = {x.data, x.row_stride, x.col_stride};
      slice.y = a.y_view(p);
      slice.epilogue = p.epilogue;
      slice.schedule = p.schedule;
      const size_t floats =
          block_scratch_floats(p.schedule, p.k, p.b, slice.col_end - slice.col_begin, p.transposed);
      std::vector<float> scratch(floats + 16, kNaN);
      void* aligned = scratch.data();
      size_t space = scratch.size() * sizeof(float);
      slice.scratch = static_cast<float*>(std::align(64, floats * sizeof(float), aligned, space));
      ASSERT_NE(slice.scratch, nullptr);
      kernel(slice);
    }
  }
}

void expect_right(const Product& p, Kernel kernel) {
  Product drawn = p;
  Arrays a(drawn);
  const std::vector<float> before = a.y;
  multiply(drawn, a, kernel);
  std::vector<bool> written(a.y.size());
  for (uint32_t i = 0; i < p.m; ++i) {
    for (uint32_t j = 0; j < p.n; ++j) {
      const float* at = &a.y_view(drawn)(i, j);
      const auto position = static_cast<size_t>(at - a.y.data());
      written[position] = true;
      const Sum sum = sum_of(drawn, a, i, j);
      const double want = finished(drawn.epilogue, sum.value, before[position], i);
      const double scale = std::abs(drawn.epilogue.alpha) * sum.magnitude + 2;
      ASSERT_NEAR(*at, want, (sum.length + 4) * 0x1p-24 * scale)
          << p.describe() << " at (" << i << ", " << j << ")";
    }
  }
  for (size_t i = 0; i < a.y.size(); ++i) {
    if (written[i]) continue;
    ASSERT_EQ(a.y[i], before[i]) << p.describe() << " wrote outside Y at " << i;
  }
}

class BlockSparse : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { restrict_isa(GetParam()); }
  void TearDown() override { restrict_isa(available_isas().back()); }
};

TEST_P(BlockSparse, MatchesFloat64OnRandomProducts) {
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    expect_right(Product(seed), block_spmm);
    if (HasFatalFailure()) return;
  }
}

TEST_P(BlockSparse, EveryWidthWithEveryBlockSize) {
  for (uint32_t n = 1; n <= 70; ++n) {
    for (uint32_t b : {4, 8, 16, 32}) {
      for (const auto kernel : {BlockSchedule::Kernel::wide, BlockSchedule::Kernel::few_columns}) {
        Product p(n * 100 + b);
        p.n = n;
        p.b = b;
        p.x_leading = std::max(p.k, n) + 3;
        p.y_leading = std::max(p.m, n) + 5;
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
    Product p(seed);
    p.n = 16 * (4 + p.random.below(6));
    p.k = p.b * (1 + p.random.below(8));
    p.x_columns = false;
    p.x_leading = p.n + 16 * p.random.below(3);
    p.x_offset = p.random.below(16);
    p.y_columns = false;
    p.y_leading = p.n + 16 * p.random.below(3);
    p.y_offset = p.random.below(2) == 0 ? p.x_offset : p.random.below(16);
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
    Product p(seed);
    p.n = 16 * (1 + p.random.below(9));
    p.m = p.b * (1 + p.random.below(8));
    p.x_columns = false;
    p.x_leading = p.n + p.random.below(20);
    p.x_offset = p.random.below(16);
    p.y_columns = false;
    p.y_leading = p.n + 16 * p.random.below(3);
    p.y_offset = p.random.below(16);
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

// One 16-row strip of ones over 40 columns, of which the last 8 overhang a k of 32 + 3.
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

INSTANTIATE_TEST_SUITE_P(EveryIsa, BlockSparse, testing::ValuesIn(available_isas()),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST(BlockSparseReference, MatchesFloat64OnRandomProducts) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    expect_right(Product(seed), block_spmm_reference);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tessera::kernels
