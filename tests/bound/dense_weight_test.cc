// Dense weights through the public API: their three products in every layout, and packed order.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/io.h>
#include <tessera/product.h>
#include <tessera/spmm.h>

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "bound/expect_spmm.h"
#include "bound/product.h"
#include "bound/weight.h"
#include "sparse/pattern.h"
#include "support/error_of.h"
#include "support/number_of.h"

namespace tessera {
namespace {

using test::expect_gradient;
using test::expect_product;
using test::random_floats;

Weight random_weight(uint32_t m, uint32_t k, Type type, uint64_t seed) {
  const std::vector<float> w = random_floats(size_t{m} * k, seed);
  return Weight::dense({w.data(), k, 1}, m, k, type);
}

/// A dense weight, and a product with any options.
struct Drawn {
  explicit Drawn(uint64_t seed) : random(base::RandomStream(seed)) {
    static constexpr Type kTypes[] = {Type::f32, Type::f32, Type::f16, Type::bf16};
    static constexpr uint32_t kBatches[] = {1, 2, 8, 16, 17, 50, 64, 70, 400};
    m = random.below(5) == 0 ? 1000 + random.below(100) : 1 + random.below(90);
    k = random.below(5) == 0 ? 1000 + random.below(100) : 1 + random.below(90);
    n = kBatches[random.below(m > 200 && k > 200 ? 8 : 9)];
    type = kTypes[random.below(4)];
    test::draw_call(random, options, call);
    if (seed % 12 == 11) (options.transpose ? m : k) = 0;  // sums without terms
  }

  std::string describe() const {
    return fmt::format("{} × {}, n {}, {}{}{}{}", m, k, n, name_of(type),
                       options.transpose ? ", transposed" : "",
                       options.x_layout == Layout::row_major ? ", X by rows" : "",
                       options.y_layout == Layout::row_major ? ", Y by rows" : "");
  }

  base::RandomSequence random;
  uint32_t m, k, n;
  Type type;
  SpmmOptions options;
  test::ProductCall call;
};

TEST(DenseWeight, ProductsMatchFloat64) {
  for (uint64_t seed = 0; seed < test::number_of_cases(24, 120); ++seed) {
    const Drawn d(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, d.describe()));
    const Weight weight = random_weight(d.m, d.k, d.type, seed);
    expect_product(weight, Spmm(weight, d.n, d.options), d.n, d.options, seed, d.call);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(DenseWeight, GradientsMatchFloat64) {
  for (const auto& [m, k] : {std::pair(77U, 93U), {200U, 40U}, {3U, 5U}})
    for (const uint32_t n : {0U, 1U, 9U, 50U, 300U})
      for (const Layout dy : {Layout::row_major, Layout::column_major})
        for (const Layout x : {Layout::row_major, Layout::column_major}) {
          SCOPED_TRACE(fmt::format("{} × {}, n {}, layouts {} {}", m, k, n, static_cast<int>(dy),
                                   static_cast<int>(x)));
          const Weight weight = random_weight(m, k, n == 9 ? Type::bf16 : Type::f32, 4);
          const SddmmOptions options{.dy_layout = dy, .x_layout = x};
          const Sddmm gradient(weight, n, options);
          expect_gradient(weight, gradient, n, options, 1, 0);
          expect_gradient(weight, gradient, n, options, 1.5F, -0.5F);
          expect_gradient(weight, gradient, n, options, 1, 1);
          if (testing::Test::HasFailure()) return;
        }
}

TEST(DenseWeight, SetsAndGetsValues) {
  for (const Type type : {Type::f32, Type::f16, Type::bf16}) {
    Weight weight = random_weight(35, 21, type, 1);
    std::vector<float> values(35 * 21), got(values.size());
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 64) / 8;
    weight.set_values(values);
    weight.get_values(got);
    EXPECT_EQ(got, values);
    EXPECT_EQ(weight.bytes(), weight.packed_size() * size_of(type));
    expect_product(weight, Spmm(weight, 5), 5, {}, 2);
    EXPECT_USAGE_ERROR("3 values", weight.set_values({values.data(), 3}));
  }
}

TEST(DenseWeight, HasAPackedOrderOfItsOwn) {
  std::vector<float> w(20 * 33);
  base::RandomStream(1).fill_symmetric(w);
  const Weight weight = Weight::dense(row_major(static_cast<const float*>(w.data()), 33), 20, 33);
  std::vector<float> packed(weight.packed_size());
  weight.pack(w, packed);
  EXPECT_TRUE(std::equal(packed.begin(), packed.end(), weight.packed_values().begin()));
  std::vector<float> back(w.size());
  weight.unpack(packed, back);
  EXPECT_EQ(back, w);
}

// Products read what an optimizer writes in packed order.
TEST(DenseWeight, IsUpdatedInPackedOrder) {
  Weight weight = random_weight(35, 21, Type::f32, 1);
  const Spmm product(weight, 7);
  for (float& value : weight.packed_values()) value *= -2;
  expect_product(weight, product, 7, {}, 2);
}

TEST(DenseWeight, TakesStateSavedInAnotherFormat) {
  const Weight weight = random_weight(24, 128, Type::bf16, 1);
  ASSERT_EQ(weight.packed_format(), PackedFormat::panels);
  EXPECT_EQ(packed_size(PackedFormat::panels, weight.pattern()), weight.packed_size());
  const std::vector<float> values = random_floats(24 * 128, 3);
  std::vector<float> wanted(weight.packed_size());
  weight.pack(values, wanted);
  for (const PackedFormat saved :
       {PackedFormat::blocks, PackedFormat::rotated_blocks, PackedFormat::panels}) {
    std::vector<float> momentum(packed_size(saved, weight.pattern())), now(weight.packed_size());
    permute_packed(PackedFormat::panels, saved, weight.pattern(), wanted, momentum);
    permute_packed(saved, weight.packed_format(), weight.pattern(), momentum, now);
    EXPECT_EQ(now, wanted);
  }
}

TEST(DenseWeight, HasAPatternThatStays) {
  Weight weight = random_weight(20, 33, Type::f32, 1);
  EXPECT_FALSE(weight.is_dynamic());
  EXPECT_EQ(weight.block_size(), weight.pattern().block_size);
  EXPECT_EQ(weight.capacity(), weight.pattern().blocks());
  EXPECT_EQ(weight.non_zeros(), 20U * 33);
  EXPECT_USAGE_ERROR("its pattern is full", weight.set_pattern(weight.pattern()));
  EXPECT_USAGE_ERROR("its pattern is full", weight.replace({}, {}));
  EXPECT_USAGE_ERROR("only dynamic weights", weight.compact());
  EXPECT_USAGE_ERROR("unknown knob 'stream_y' (choose from row_parts, col_parts",
                     Spmm(weight, 4, {.force = {{"stream_y", 0}}}));
}

// A product that is planned dense takes a matrix of any pattern, and returns its gradient at the pattern.
TEST(DenseWeight, StandsForASparseOneWhereAskedTo) {
  constexpr uint32_t n = 12;
  const SparseMatrix weight = generate({PatternKind::random, 50, 42, 0.4, 8, 1});
  const Machine machine = Machine::find("host", 2);
  std::vector<float> x = random_floats(42 * n, 2), y = random_floats(50 * n, 3), sparse_y(y.size());
  Product(weight, n, machine, {.dense = true}).run({x.data(), n, 1}, {y.data(), n, 1});
  Product(weight, n, machine).run({x.data(), n, 1}, {sparse_y.data(), n, 1});
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], sparse_y[i], 1e-4);
  Product dense(weight, n, machine, {.kind = ProductKind::sddmm, .dense = true});
  Product sparse(weight, n, machine, {.kind = ProductKind::sddmm});
  dense.run({x.data(), n, 1}, {y.data(), n, 1});
  sparse.run({x.data(), n, 1}, {y.data(), n, 1});
  const std::vector<float> a = dense.gradient(), b = sparse.gradient();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4);
}

TEST(DenseWeight, SharedByProductsHasAGradientInTheOrderOfItsPattern) {
  constexpr uint32_t n = 6;
  const Weight weight = random_weight(20, 33, Type::f32, 1);
  bound::BoundProduct product(weight.storage()->packed, {.n = n, .product = ProductKind::sddmm},
                              machine::host(1));
  std::vector<float> x = random_floats(33 * n, 2), dy = random_floats(20 * n, 3);
  product.run({x.data(), n, 1}, {dy.data(), n, 1});
  const std::vector<float> dw = sparse::to_dense({weight.pattern(), product.gradient()});
  for (uint32_t i = 0; i < 20; ++i)
    for (uint32_t j = 0; j < 33; ++j) {
      double sum = 0;
      for (uint32_t c = 0; c < n; ++c) sum += double{dy[i * n + c]} * x[j * n + c];
      EXPECT_NEAR(dw[i * 33 + j], sum, 1e-5);
    }
}

// Matrices may lie in any strides, whatever layout was planned.
TEST(DenseWeight, MultipliesMatricesInAnyStrides) {
  constexpr uint32_t m = 40, k = 24, n = 20;
  const SparseMatrix weight = generate({PatternKind::random, m, k, 1, 8, 1});
  const Machine machine = Machine::find("host", 1);
  std::vector<float> x = random_floats(k * n * 3, 2), y(m * n), strided(m * n * 6);
  Product product(weight, n, machine, {.dense = true, .x_layout = Layout::column_major});
  product.run({x.data(), 3, 3 * k}, {strided.data(), 6 * n, 3});
  std::vector<float> rows(k * n);
  for (uint32_t i = 0; i < k; ++i)
    for (uint32_t j = 0; j < n; ++j) rows[i * n + j] = x[3 * i + 3 * k * j];
  product.run({rows.data(), n, 1}, {y.data(), n, 1});
  for (uint32_t i = 0; i < m; ++i)
    for (uint32_t j = 0; j < n; ++j) EXPECT_EQ(strided[6 * n * i + 3 * j], y[i * n + j]);
}

}  // namespace
}  // namespace tessera
