// The library through its public API.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/io.h>
#include <tessera/spmm.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "support/error_of.h"

namespace tessera {
namespace {

SparseMatrix random_matrix(uint32_t m, uint32_t k, uint32_t block_size) {
  return generate({PatternKind::random, m, k, 0.3, block_size, 11});
}

TEST(Threads, AreOneWhereMoreDoNotPay) {
  const auto tiles_of = [](uint32_t size) {
    const std::vector<float> values(size_t{size} * size, 1);
    const Weight weight = Weight::dense({values.data(), size, 1}, size, size);
    const std::string plan = Spmm(weight, 1, {.threads = 2}).plan();
    return plan.find(" on 1 tiles") != std::string::npos ? 1 : 2;
  };
  EXPECT_EQ(tiles_of(16), 1);
  EXPECT_EQ(tiles_of(32), 1);
  EXPECT_EQ(tiles_of(2048), 2);
}

// Callers may place arrays anywhere in a buffer of bytes. Y is written with and without non-temporal stores.
TEST(Spmm, TakesArraysThatBeginAtAnyByte) {
  constexpr uint32_t kN = 128;
  for (const uint32_t block_size : {1U, 4U, 16U})
    for (const int64_t stream_y : {0, 1}) {
      const Weight weight(random_matrix(64, 96, block_size));
      const Spmm product(weight, kN, {.force = {{"stream_y", stream_y}}});
      std::vector<float> x(weight.cols() * kN), expected(weight.rows() * kN), y(expected.size());
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 13) - 6;
      product(x.data(), expected.data());
      for (const size_t offset : {1U, 2U, 4U, 16U, 63U}) {
        // Begins at a cache line, so that streaming stores are possible.
        const base::Buffer x_bytes = base::allocate_buffer(offset + sizeof(float) * x.size());
        const base::Buffer y_bytes = base::allocate_buffer(offset + sizeof(float) * y.size());
        std::memcpy(x_bytes.get() + offset, x.data(), sizeof(float) * x.size());
        product(reinterpret_cast<const float*>(x_bytes.get() + offset),
                reinterpret_cast<float*>(y_bytes.get() + offset));
        std::memcpy(y.data(), y_bytes.get() + offset, sizeof(float) * y.size());
        EXPECT_EQ(y, expected) << "blocks of " << block_size << ", stream_y " << stream_y << ", byte "
                               << offset;
      }
    }
}

TEST(Weight, DenseIsAPatternLikeAnyOther) {
  std::vector<float> w(20 * 33);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 13) - 6;
  const Weight weight = Weight::dense(row_major(static_cast<const float*>(w.data()), 33), 20, 33);
  EXPECT_TRUE(weight.is_dense());
  EXPECT_EQ(weight.non_zeros(), w.size());
  std::vector<float> back(w.size());
  weight.get_values(back);
  EXPECT_EQ(back, w);
  std::vector<float> x(33, 1.0F);
  std::vector<float> y(20);
  Spmm(weight, 1)(x.data(), y.data());
  for (uint32_t i = 0; i < 20; ++i) {
    float sum = 0;
    for (uint32_t j = 0; j < 33; ++j) sum += w[i * 33 + j];
    EXPECT_FLOAT_EQ(y[i], sum);
  }
}

TEST(Weight, ReplacedValuesReachEveryProduct) {
  for (uint32_t block_size : {1U, 8U}) {
    const SparseMatrix matrix = random_matrix(64, 64, block_size);
    Weight weight(matrix);
    const Spmm product(weight, 5);
    std::vector<float> values(matrix.values.size());
    weight.get_values(values);
    EXPECT_EQ(values, matrix.values);
    std::vector<float> x(64 * 5, 0.5F);
    std::vector<float> once(64 * 5);
    std::vector<float> twice(64 * 5);
    product(x.data(), once.data());
    for (float& v : values) v *= 2;
    weight.set_values(values);
    product(x.data(), twice.data());
    for (size_t i = 0; i < once.size(); ++i) EXPECT_FLOAT_EQ(twice[i], 2 * once[i]);
    EXPECT_USAGE_ERROR("3 values", weight.set_values({values.data(), 3}));
  }
}

TEST(Weight, RefusesWhatHasNoKernel) {
  EXPECT_THROW(Weight(random_matrix(64, 64, 7)), UsageError);
  EXPECT_THROW(Weight(random_matrix(64, 64, 8), Type::f64), UsageError);
  SparseMatrix broken = random_matrix(64, 64, 8);
  broken.pattern.col_indices[0] = 99;
  EXPECT_THROW(Weight{broken}, Error);
}

TEST(Spmm, OutlivesTheWeightAndMoves) {
  const SparseMatrix matrix = random_matrix(64, 64, 8);
  std::optional<Weight> weight(matrix);
  Spmm product(*weight, 3);
  weight.reset();
  Spmm moved = std::move(product);
  std::vector<float> x(64 * 3, 1.0F);
  std::vector<float> y(64 * 3);
  EXPECT_NO_THROW(moved(x.data(), y.data()));
  EXPECT_GT(moved.predicted_seconds(), 0);
  EXPECT_FALSE(moved.plan().empty());
}

TEST(Spmm, RefusesWrongArguments) {
  const Weight weight(random_matrix(64, 32, 8));
  const Spmm product(weight, 10);
  std::vector<float> x(32 * 10);
  std::vector<float> y(64 * 10);
  const auto message_of = [&](const SpmmArguments& a) {
    return test::error_of<UsageError>([&] { product(a); });
  };
  EXPECT_TRUE(test::says(message_of({.x = nullptr, .y = y.data()}), "X is null"));
  EXPECT_TRUE(test::says(message_of({.x = x.data(), .y = nullptr}), "Y is null"));
  EXPECT_TRUE(
      test::says(message_of({.x = x.data(), .x_leading = 9, .y = y.data()}), "leading dimension of X is 9"));
  EXPECT_TRUE(test::says(message_of({.x = x.data(), .y = y.data(), .bias = x.data()}), "without a bias"));
}

TEST(Spmm, GivesTheSameBitsToConcurrentCallers) {
  const Weight weight(random_matrix(256, 256, 4));
  const Spmm product(weight, 40);
  std::vector<float> x(256 * 40);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  std::vector<float> expected(256 * 40);
  product(x.data(), expected.data());
  std::vector<std::vector<float>> results(4, std::vector<float>(256 * 40));
  std::vector<std::thread> callers;
  for (auto& y : results)
    callers.emplace_back([&] {
      for (int i = 0; i < 20; ++i) product(x.data(), y.data());
    });
  for (std::thread& caller : callers) caller.join();
  for (const auto& y : results) EXPECT_EQ(y, expected);
}

}  // namespace
}  // namespace tessera
