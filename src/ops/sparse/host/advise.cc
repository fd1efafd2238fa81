#include "ops/sparse/host/advise.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/common/cost.h"
#include "ops/dense/host/host_dense.h"
#include "ops/sparse/host/spmm.h"
#include "sparse/convolution_groups.h"
#include "sparse/pattern.h"

namespace tessera::ops {
namespace {

/// Above these densities products with single elements, and with blocks of other sizes than this one, are
/// slower than dense ones or as fast.
constexpr double kMostElements = 0.8;
constexpr double kFullBlocks = 0.99;
constexpr uint32_t kFullBlockSize = 16;

/// Strongest pruning that networks usually tolerate.
constexpr uint32_t kIdealBlockSize = 16;
constexpr uint32_t kIdealOneIn = 16;
/// What counts as more columns.
constexpr uint32_t kMoreColumns = 16;
/// Fraction of the dense product's time in which memory moves X and Y, from which on it leaves little to
/// gain.
constexpr double kMemoryBound = 1.0 / 3;

/// Non-zeros that are packed for a prediction: packing takes as long as dozens of products.
constexpr uint64_t kSampled = 32 << 10;

/// Block sizes of the block products.
constexpr std::array<uint32_t, 4> kBlockSizes = {4, 8, 16, 32};

/// Frameworks have activations [n, features].
constexpr HostLayouts kLayouts = {Layout::column_major, Layout::column_major};

double seconds_of(const PackedWeight& weight, uint32_t n, const machine::Machine& host) {
  const Type activations = takes_bf16(weight, kLayouts, host) ? Type::bf16 : Type::f32;
  const ProductProblem problem{.n = n, .type = weight.type(), .activations = activations};
  return plan_host_product(weight, problem, host, {}, kLayouts).chosen.total();
}

/// A pattern with one of every `kIdealOneIn` blocks.
Pattern ideal_pattern(uint32_t rows, uint32_t cols) {
  Pattern pattern{rows, cols, kIdealBlockSize, {0}, {}};
  for (uint32_t r = 0; r < pattern.block_rows(); ++r) {
    for (uint32_t c = r % kIdealOneIn; c < pattern.block_cols(); c += kIdealOneIn)
      pattern.col_indices.push_back(c);
    pattern.crow_indices.push_back(pattern.col_indices.size());
  }
  return pattern;
}

/// Bytes of values and index.
uint64_t bytes_of(const sparse::PackedElements& weight) {
  const sparse::ElementIndex& index = weight.index();
  return weight.places() * size_of(weight.type()) + index.blocks.back().index * sizeof(uint32_t) +
         index.row_groups.size() * sizeof(sparse::RowGroup) +
         index.blocks.size() * sizeof(sparse::ElementBlock);
}

}  // namespace

bool Advisor::supports(uint32_t rows, uint32_t cols) {
  constexpr uint32_t kLongest = 1 << 27;  // of dense weights in panels
  return rows > 0 && cols > 0 && std::max(rows, cols) <= kLongest;
}

double Advisor::dense_seconds(const Shape& shape) {
  const auto [known, is_new] = dense_.emplace(shape, 0);
  if (is_new)
    known->second =
        plan_host_dense(
            {.m = shape.rows, .k = shape.cols, .n = shape.n, .weights = shape.type, .values = shape.type},
            host_)
            .chosen.total();
  return known->second;
}

double Advisor::ideal_seconds(const Shape& shape) {
  const auto [known, is_new] = ideal_.emplace(shape, 0);
  if (is_new) known->second = blocks(shape, ideal_pattern(shape.rows, shape.cols)).seconds;
  return known->second;
}

SparseAdvice Advisor::blocks(const Shape& shape, const Pattern& pattern) const {
  const PackedWeight weight{sparse::PackedBlocks::without_values(pattern, shape.type, {})};
  const auto& packed = std::get<sparse::PackedBlocks>(weight.form);
  const uint64_t value_bytes = packed.blocks() * packed.order().block_values() * size_of(shape.type);
  return {pattern.block_size, seconds_of(weight, shape.n, host_), value_bytes + packed.bytes()};
}

SparseAdvice Advisor::full_blocks(const Shape& shape, uint32_t block_size) {
  const auto [known, is_new] = full_.emplace(std::pair(shape, block_size), SparseAdvice());
  if (is_new) known->second = blocks(shape, sparse::full_pattern(shape.rows, shape.cols, block_size));
  return known->second;
}

SparseAdvice Advisor::elements(const Shape& shape, const Pattern& pattern) const {
  const PackedWeight weight{sparse::PackedElements::for_planning(pattern, shape.type, kSampled)};
  return {1, seconds_of(weight, shape.n, host_), bytes_of(std::get<sparse::PackedElements>(weight.form))};
}

Obstacle Advisor::obstacle(const Shape& shape) {
  const auto pays = [&](const Shape& of) { return ideal_seconds(of) <= kMostOfDense * dense_seconds(of); };
  if (pays(shape)) return Obstacle::too_dense;
  Shape wider = shape;
  wider.n = static_cast<uint32_t>(std::min<uint64_t>(uint64_t{shape.n} * kMoreColumns, INT32_MAX));
  if (pays(wider)) return Obstacle::too_few_columns;
  const double bytes =
      sizeof(float) * double{1} * shape.n * (double{1} * shape.rows + shape.cols) / host_.tiles;
  const double moving = bytes / kernels::streaming_rate(bytes, host_.figures) / host_.clock_hz;
  return moving > kMemoryBound * dense_seconds(shape) ? Obstacle::memory_bound : Obstacle::too_small;
}

Advice Advisor::judged(Advice advice, const Shape& shape) {
  std::ranges::stable_sort(advice.sparse, {}, &SparseAdvice::seconds);
  if (advice.sparse.front().seconds > kMostOfDense * advice.dense_seconds) advice.obstacle = obstacle(shape);
  return advice;
}

Advice Advisor::advise(const sparse::NonZeros& non_zeros, const sparse::Inspection& inspection, Type type) {
  const Shape shape{inspection.rows, inspection.cols, type, n_};
  Advice advice;
  advice.dense_seconds = dense_seconds(shape);
  for (const sparse::BlockCovering& covering : inspection.coverings) {
    const uint32_t b = covering.block_size;
    if (b == 1) {
      if (covering.density <= kMostElements) advice.sparse.push_back(elements(shape, cover(non_zeros, 1)));
    } else if (covering.density < kFullBlocks) {
      advice.sparse.push_back(blocks(shape, cover(non_zeros, b)));
    } else if (b == kFullBlockSize) {
      advice.sparse.push_back(full_blocks(shape, b));
    }
  }
  return judged(std::move(advice), shape);
}

Advice Advisor::advise_groups(const Pattern& weight, const ConvolutionGroups& of, Type type) {
  const Pattern whole = sparse::ungrouped(weight, of);
  const Shape shape{whole.rows, whole.cols, type, n_}, own{weight.rows / of.groups, weight.cols, type, n_};
  Advice advice{.dense_seconds = of.groups * dense_seconds(own), .sparse = {elements(shape, whole)}};
  for (const uint32_t b : kBlockSizes)
    if (sparse::fits_groups(weight.rows, weight.cols, b, of))
      advice.sparse.push_back(blocks(shape, sparse::cover(whole, b)));
  return judged(std::move(advice), own);
}

}  // namespace tessera::ops
