// Products through the public interface, on the host and on modelled machines.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/io.h>
#include <tessera/product.h>

#include <algorithm>
#include <string>
#include <vector>

#include "check/verification.h"
#include "sparse/pattern.h"
#include "support/error_of.h"
#include "support/numbers.h"

namespace tessera {
namespace {

using test::random_floats;

constexpr uint32_t kRows = 48, kCols = 40, kColumns = 12;

SparseMatrix weight_of(uint32_t block_size, uint64_t seed = 1) {
  return generate({PatternKind::random, kRows, kCols, 0.4, block_size, seed});
}

MatrixView<float> rows_of(std::vector<float>& floats) { return {floats.data(), kColumns, 1}; }
MatrixView<const float> read_rows(const std::vector<float>& floats) { return {floats.data(), kColumns, 1}; }

/// Runs a product once, and compares it with float64.
void expect_right(Product& product, const SparseMatrix& weight, ProductKind kind) {
  std::vector<float> x = random_floats(size_t{kCols} * kColumns, 2);
  std::vector<float> y = random_floats(size_t{kRows} * kColumns, 3);
  product.run(rows_of(x), rows_of(y));
  check::Verification v;
  switch (kind) {
    case ProductKind::forward:
      v = check::verify_product({weight, read_rows(x), read_rows(y), kColumns}, check::Extent::full, 1, 1);
      break;
    case ProductKind::input_gradient:
      v = check::verify_product({sparse::transpose(weight), read_rows(y), read_rows(x), kColumns},
                                check::Extent::full, 1, 1);
      break;
    case ProductKind::sddmm: {
      const SparseMatrix dw{weight.pattern, product.gradient()};
      v = check::verify_sddmm({dw, read_rows(x), read_rows(y), kColumns}, check::Extent::full, 1, 1);
    }
  }
  EXPECT_TRUE(v.verified) << v.max_abs_error << " of " << v.tolerance;
}

TEST(PublicProduct, IsRightOnAnyMachineInAnyMode) {
  for (const char* name : {"host", "bow"}) {
    const Machine machine = Machine::find(name, 2);
    for (const ProductKind kind : {ProductKind::forward, ProductKind::input_gradient, ProductKind::sddmm})
      for (const uint32_t block_size : {1U, 8U}) {
        const SparseMatrix weight = weight_of(block_size);
        SCOPED_TRACE(std::string(name) + ", block size " + std::to_string(block_size));
        Product fixed(weight, kColumns, machine, {.kind = kind});
        expect_right(fixed, weight, kind);
        Product dynamic(weight, kColumns, machine, {.kind = kind, .capacity = weight.pattern.blocks() + 40});
        expect_right(dynamic, weight, kind);
        const SparseMatrix other = weight_of(block_size, 5);
        dynamic.set_matrix(other);
        expect_right(dynamic, other, kind);
      }
  }
}

TEST(PublicProduct, AddsABiasAndActivatesOnAnyMachine) {
  const SparseMatrix weight = weight_of(4);
  const std::vector<float> bias = random_floats(kRows, 5);
  for (const char* name : {"host", "bow"})
    for (const ProductKind kind : {ProductKind::forward, ProductKind::input_gradient}) {
      const bool is_forward = kind == ProductKind::forward;
      ProductOptions options{.kind = kind, .activation = Activation::relu, .bias = true};
      const Machine machine = Machine::find(name, 2);
      Product product(weight, kColumns, machine, options);
      std::vector<float> x = random_floats(size_t{kCols} * kColumns, 2);
      std::vector<float> y = random_floats(size_t{kRows} * kColumns, 3);
      product.run(rows_of(x), rows_of(y), bias.data());
      const std::vector<float> activated = is_forward ? y : x;
      options.activation = Activation::none;
      options.bias = false;
      Product plain(weight, kColumns, machine, options);
      plain.run(rows_of(x), rows_of(y));
      const std::vector<float>& sums = is_forward ? y : x;
      for (size_t i = 0; i < sums.size(); ++i)
        ASSERT_NEAR(activated[i], std::max(0.0F, sums[i] + bias[i / kColumns]), 1e-5) << name << ", " << i;
      EXPECT_GT(std::ranges::count(activated, 0.0F), 10) << name;
      EXPECT_USAGE_ERROR("without a bias", plain.run(rows_of(x), rows_of(y), bias.data()));
      EXPECT_USAGE_ERROR("pass one", product.run(rows_of(x), rows_of(y)));
      EXPECT_THROW(Product(weight, kColumns, machine, {.kind = ProductKind::sddmm, .bias = true}),
                   UsageError);
    }
}

TEST(PublicProduct, EstimatesWhatTheModelTakes) {
  const Machine bow = Machine::find("bow");
  Product product(weight_of(8), kColumns, bow);
  ASSERT_TRUE(product.fits());
  EXPECT_LE(product.predicted_seconds(),
            Product(weight_of(8), kColumns, bow, {.planner = Planner::vendor}).predicted_seconds());
  const ProductProfile estimate = product.estimate();
  std::vector<float> x(size_t{kCols} * kColumns), y(size_t{kRows} * kColumns);
  const ProductProfile run = product.run(rows_of(x), rows_of(y));
  EXPECT_EQ(estimate.cycles, run.cycles);
  EXPECT_EQ(estimate.seconds, run.seconds);
  EXPECT_NEAR(estimate.seconds, product.predicted_seconds(), 1e-9 * estimate.seconds);
  double total = 0, cycles = 0;
  for (const auto& [phase, seconds] : estimate.phases) total += seconds;
  for (const auto& [phase, count] : estimate.cycles) {
    cycles += count;
    EXPECT_NE(phase, "?");
  }
  EXPECT_NEAR(total, estimate.seconds, 1e-12);
  EXPECT_NEAR(cycles / bow.clock_hz(), estimate.seconds, 1e-12);
  EXPECT_GT(estimate.phases.at("compute"), 0);
  EXPECT_GT(estimate.phases.at("exchange"), 0);
}

TEST(PublicProduct, CountsBytesByTileUseAndPurpose) {
  const Product product(weight_of(8), kColumns, Machine::find("bow"));
  const TileBytes fullest = product.memory(product.fullest_tile());
  uint64_t sum = 0, data = 0;
  for (const auto& [use, bytes] : fullest.by_use) sum += bytes;
  for (const auto& [purpose, bytes] : fullest.by_purpose) data += bytes;
  EXPECT_EQ(sum, fullest.total);
  EXPECT_GT(data, 0U);
  EXPECT_LT(data, fullest.total);
  for (uint32_t tile = 0; tile < product.tiles(); ++tile)
    EXPECT_LE(product.memory(tile).total, fullest.total);
  EXPECT_USAGE_ERROR("there is no memory of a tile 1472: the machine has 1472", (void)product.memory(1472));
}

/// W and a bias are parameters and dW is a gradient; the rest are X, Y, alpha and beta, and scratch.
TEST(PublicProduct, CountsBytesOfAHostByPurpose) {
  constexpr uint64_t kActivations = sizeof(float) * (kCols * kColumns + kRows * kColumns + 2);
  const SparseMatrix full = generate({PatternKind::random, kRows, kCols, 1, 8, 1});
  for (const SparseMatrix& weight : {weight_of(8), full})
    for (const ProductKind kind : {ProductKind::forward, ProductKind::input_gradient, ProductKind::sddmm}) {
      const bool is_sddmm = kind == ProductKind::sddmm;
      const uint64_t result_rows = kind == ProductKind::forward ? kRows : kCols;
      const uint64_t values = sizeof(float) * weight.values.size();
      const uint64_t bias = is_sddmm ? 0 : sizeof(float) * result_rows;
      const Product product(weight, kColumns, Machine::host(1), {.kind = kind, .bias = !is_sddmm});
      TileBytes memory = product.memory(0);
      EXPECT_EQ(memory.by_purpose["parameter"], is_sddmm ? 0 : values + bias);
      EXPECT_EQ(memory.by_purpose["gradient"], is_sddmm ? values : 0);
      EXPECT_EQ(memory.by_purpose["activation"], kActivations + memory.by_use["temporaries"]);
    }
}

/// The input gradient of single elements has the values in the order of the transpose, too.
TEST(PublicProduct, CountsGatheredValuesOfAHostAsParameters) {
  const auto parameters = [](ProductKind kind) {
    const Product product(weight_of(1), kColumns, Machine::host(1), {.kind = kind});
    return product.memory(0).by_purpose.at("parameter");
  };
  EXPECT_GE(parameters(ProductKind::forward), sizeof(float) * weight_of(1).values.size());
  EXPECT_GE(parameters(ProductKind::input_gradient),
            parameters(ProductKind::forward) + sizeof(float) * weight_of(1).values.size());
}

TEST(PublicProduct, MeasuresOnAHost) {
  Product product(weight_of(8), kColumns, Machine::host(1));
  EXPECT_GT(product.memory(0).total, 0U);
  EXPECT_THROW((void)product.memory(1), UsageError);
  EXPECT_GT(product.predicted_seconds(), 0);
  EXPECT_FALSE(product.plan().empty());
  std::vector<float> x(size_t{kCols} * kColumns), y(size_t{kRows} * kColumns);
  EXPECT_GT(product.run(rows_of(x), rows_of(y)).seconds, 0);
  const ProductProfile estimate = product.estimate();
  EXPECT_NEAR(estimate.seconds, product.predicted_seconds(), 1e-9 * estimate.seconds);
  double total = 0;
  for (const auto& [phase, seconds] : estimate.phases) total += seconds;
  EXPECT_NEAR(total, estimate.seconds, 1e-12);
}

TEST(PublicProduct, SaysThatAPlanDoesNotFit) {
  const SparseMatrix large = generate({PatternKind::random, 512, 512, 1.0, 16, 1});
  const Machine small = Machine::find("bow").with("tiles", 2);
  Product product(large, 512, small);
  EXPECT_FALSE(product.fits());
  std::vector<float> x(512 * 512), y(512 * 512);
  const std::string message = test::error_of<Error>([&] {
    product.run({x.data(), 512, 1}, {y.data(), 512, 1});
  });
  EXPECT_TRUE(test::says(message, "tile"));
}

TEST(PublicProduct, RefusesWhatTheMachineLacks) {
  const auto message = [](const Machine& machine, const ProductOptions& options, uint32_t block_size = 8) {
    return test::error_of<UsageError>([&] { Product(weight_of(block_size), kColumns, machine, options); });
  };
  const Machine host = Machine::host(1), bow = Machine::find("bow");
  EXPECT_TRUE(test::says(message(host, {}, 5), "a block size of 5 has no kernel on a host"));
  EXPECT_TRUE(test::says(message(host, {.type = Type::f16, .partials = Type::bf16}), "a host sums in FP32"));
  EXPECT_TRUE(test::says(message(host, {.force = {{"colour", 1}}}), "unknown knob 'colour'"));
  EXPECT_TRUE(test::says(message(bow, {.type = Type::bf16}), "f32 or f16, not in bf16"));
  EXPECT_TRUE(test::says(message(bow, {.x_layout = Layout::column_major}), "layouts are for hosts"));
  EXPECT_EQ(message(bow, {.partials = Type::f64}), "partial sums of f32 are f32, not f64; use f32");
  for (const Machine& machine : {host, bow}) {
    EXPECT_TRUE(
        test::says(message(machine, {.kind = ProductKind(7)}), "unknown product kind 7 (choose from "));
    EXPECT_TRUE(
        test::says(message(machine, {.activation = Activation(7)}), "unknown activation 7 (choose from "));
    EXPECT_TRUE(test::says(message(machine, {.capacity = 2}), "at most 2 blocks cannot hold"));
    Product fixed(weight_of(8), kColumns, machine);
    EXPECT_USAGE_ERROR("the weight of this product is static", fixed.set_matrix(weight_of(8)));
    Product dynamic(weight_of(8), kColumns, machine, {.capacity = weight_of(8).pattern.blocks()});
    const SparseMatrix full = generate({PatternKind::random, kRows, kCols, 1.0, 8, 1});
    EXPECT_USAGE_ERROR("cannot hold 30", dynamic.set_matrix(full));
  }
}

TEST(PublicProduct, RefusesAMalformedMatrix) {
  const SparseMatrix right = weight_of(1);
  SparseMatrix outside = right, unsorted = right, decreasing = right, short_of_values = right, wider = right;
  outside.pattern.col_indices[0] = 1000;
  std::swap(unsorted.pattern.col_indices[0], unsorted.pattern.col_indices[1]);
  std::swap(decreasing.pattern.crow_indices[1], decreasing.pattern.crow_indices[2]);
  short_of_values.values.clear();
  ++wider.pattern.cols;
  for (const Machine& machine : {Machine::host(1), Machine::find("bow")}) {
    Product product(right, kColumns, machine, {.capacity = right.pattern.blocks() + 10});
    for (const SparseMatrix& wrong : {outside, unsorted, decreasing, short_of_values, wider})
      EXPECT_THROW(product.set_matrix(wrong), UsageError) << machine.name();
    expect_right(product, right, ProductKind::forward);
  }
}

TEST(PublicProduct, HasAGradientAfterARunOfAnSddmm) {
  std::vector<float> x(size_t{kCols} * kColumns), y(size_t{kRows} * kColumns);
  for (const Machine& machine : {Machine::host(1), Machine::find("bow")}) {
    Product forward(weight_of(1), kColumns, machine);
    forward.run(rows_of(x), rows_of(y));
    EXPECT_USAGE_ERROR("only an SDDMM", (void)forward.gradient());
    Product sddmm(weight_of(1), kColumns, machine, {.kind = ProductKind::sddmm});
    EXPECT_USAGE_ERROR("run the product", (void)sddmm.gradient());
    sddmm.run(rows_of(x), rows_of(y));
    EXPECT_EQ(sddmm.gradient().size(), weight_of(1).values.size());
  }
}

TEST(PublicProduct, KeepsItsGradientWhenItRefusesAMatrix) {
  std::vector<float> x = random_floats(size_t{kCols} * kColumns, 2);
  std::vector<float> y = random_floats(size_t{kRows} * kColumns, 3);
  const SparseMatrix other_shape = generate({PatternKind::random, kRows, kCols + 8, 0.1, 8, 1});
  for (const Machine& machine : {Machine::host(1), Machine::find("bow")}) {
    const SparseMatrix weight = weight_of(8);
    Product sddmm(weight, kColumns, machine,
                  {.kind = ProductKind::sddmm, .capacity = weight.pattern.blocks() + 40});
    sddmm.run(rows_of(x), rows_of(y));
    const std::vector<float> gradient = sddmm.gradient();
    EXPECT_USAGE_ERROR("for a weight of 48", sddmm.set_matrix(other_shape));
    EXPECT_EQ(sddmm.gradient(), gradient);
    sddmm.set_matrix(weight_of(8, 5));
    EXPECT_USAGE_ERROR("run the product", (void)sddmm.gradient());
  }
}

TEST(PublicProduct, RefusesArraysThatAreNoMatrices) {
  std::vector<float> x(size_t{kCols} * kColumns), y(size_t{kRows} * kColumns);
  const MatrixView<float> good_x = rows_of(x), good_y = rows_of(y);
  for (const Machine& machine : {Machine::host(2), Machine::find("bow")}) {
    Product product(weight_of(8), kColumns, machine);
    const auto message = [&](const MatrixView<float>& of_x, const MatrixView<float>& of_y) {
      return test::error_of<UsageError>([&] { product.run(of_x, of_y); });
    };
    EXPECT_TRUE(test::says(message({}, good_y), "X is null"));
    EXPECT_TRUE(test::says(message(good_x, {}), "Y is null"));
    EXPECT_TRUE(test::says(message({x.data(), kColumns - 1, 1}, good_y), "elements of X coincide"));
    EXPECT_TRUE(test::says(message(good_x, {y.data(), 0, 1}), "elements of Y coincide"));
    EXPECT_TRUE(test::says(message(good_x, {y.data(), 1, kRows - 1}), "elements of Y coincide"));
  }
}

TEST(PublicProduct, TakesMatricesWithAnyStrides) {
  const std::vector<float> x = test::random_floats(size_t{kCols} * kColumns, 5);
  std::vector<float> by_rows = x, reversed(x.rbegin(), x.rend()), by_columns(x.size());
  for (size_t i = 0; i < x.size(); ++i) by_columns[i % kColumns * kCols + i / kColumns] = x[i];
  for (const Machine& machine : {Machine::host(2), Machine::find("bow")}) {
    Product product(weight_of(8), kColumns, machine);
    std::vector<float> expected(size_t{kRows} * kColumns), apart(2 * expected.size());
    product.run(rows_of(by_rows), rows_of(expected));
    const MatrixView<float> views[] = {
        {by_columns.data(), 1, kCols}, {&reversed.back(), -int64_t{kColumns}, -1}, rows_of(by_rows)};
    for (const MatrixView<float>& view : views) {
      product.run(view, {apart.data(), 2 * kColumns, 2});
      for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(apart[2 * i], expected[i], 1e-4) << i;
    }
  }
}

TEST(PublicProduct, SaysThatItDoesNotFitBeforeItReadsArrays) {
  Product product(weight_of(8), 1 << 30, Machine::find("bow"));
  EXPECT_FALSE(product.fits());
  float one = 0;
  EXPECT_ERROR("does not fit", product.run({&one, 1 << 30, 1}, {&one, 1 << 30, 1}));
}

TEST(PublicProduct, TakesAtMostAFullPatternsCapacity) {
  const SparseMatrix one = generate({PatternKind::random, 16, 16, 1.0, 16, 1});
  Product product(one, kColumns, Machine::find("bow"), {.capacity = 4000});
  EXPECT_TRUE(product.fits());
}

TEST(PublicMachine, IsFoundChangedAndRead) {
  const std::vector<std::string> names = Machine::builtin_names();
  EXPECT_NE(std::find(names.begin(), names.end(), "bow"), names.end());
  const Machine bow = Machine::find("bow");
  EXPECT_FALSE(bow.is_host());
  EXPECT_EQ(bow.tiles(), 1472U);
  EXPECT_EQ(bow.tile_bytes(), 624U * 1024);
  EXPECT_EQ(bow.with("tiles", 100).tiles(), 100U);
  EXPECT_EQ(bow.tiles(), 1472U);
  EXPECT_TRUE(Machine::host(2).is_host());
  EXPECT_EQ(Machine::find("host", 2).tiles(), 2U);
  EXPECT_USAGE_ERROR("tractor", Machine::find("tractor"));
  EXPECT_USAGE_ERROR("bow: unknown figure 'colour'", bow.with("colour", 1));
  EXPECT_THROW(Machine::host(1).with("tiles", 2), UsageError);
  EXPECT_EQ(Machine::host(4096).tiles(), 4096U);
  EXPECT_USAGE_ERROR("at most 4096", Machine::host(4097));
}

}  // namespace
}  // namespace tessera
