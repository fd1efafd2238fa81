#include "bound/zeros.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include "sparse/convolution_groups.h"
#include "sparse/pattern.h"

namespace tessera {
namespace bound {
namespace {

uint32_t checked_n(const ZerosOptions& options) {
  if (options.n < 1 || options.n > sparse::kMaxDimension)
    throw UsageError(fmt::format("{} columns of X; there must be 1 to {}", options.n, sparse::kMaxDimension));
  return options.n;
}

Zeros zeros_from(const sparse::Inspection& in) {
  Zeros zeros{.rows = in.rows,
              .cols = in.cols,
              .non_zeros = in.non_zeros,
              .density = in.density,
              .blocks = {},
              .zero_rows = in.zero_rows,
              .zero_cols = in.zero_cols,
              .is_2_4 = in.is_2_4};
  for (const sparse::BlockCovering& c : in.coverings)
    zeros.blocks.push_back({c.block_size, c.blocks, c.density, c.fill_in});
  return zeros;
}

NoGain reason_of(ops::Obstacle obstacle) {
  switch (obstacle) {
    case ops::Obstacle::none: return NoGain::none;
    case ops::Obstacle::too_dense: return NoGain::too_dense;
    case ops::Obstacle::too_few_columns: return NoGain::too_few_columns;
    case ops::Obstacle::too_small: return NoGain::too_small;
    case ops::Obstacle::memory_bound: return NoGain::memory_bound;
  }
  return NoGain::none;
}

void add_advice(const ops::Advice& advice, Zeros& zeros) {
  zeros.dense_seconds = advice.dense_seconds;
  zeros.sparse_seconds = advice.sparse.front().seconds;
  zeros.best_block_size = advice.sparse.front().block_size;
  zeros.sparse_bytes = advice.sparse.front().bytes;
  zeros.reason = reason_of(advice.obstacle);
  for (BlockZeros& blocks : zeros.blocks)
    for (const ops::SparseAdvice& each : advice.sparse)
      if (each.block_size == blocks.block_size) blocks.seconds = each.seconds;
}

}  // namespace

ZerosAnalysis::ZerosAnalysis(const ZerosOptions& options)
    : advisor_(machine::host(options.threads), checked_n(options)) {}

Zeros ZerosAnalysis::analyse(const sparse::NonZeros& non_zeros, Type type, bool is_product) {
  const sparse::Inspection inspection = sparse::inspect(non_zeros);
  Zeros zeros = zeros_from(inspection);
  if (is_product && ops::Advisor::supports(zeros.rows, zeros.cols))
    add_advice(advisor_.advise(non_zeros, inspection, type), zeros);
  return zeros;
}

Zeros ZerosAnalysis::analyse_groups(const Pattern& weight, Type type, const ConvolutionGroups& of) {
  if (!sparse::fits_groups(weight.rows, weight.cols, 1, of))
    throw UsageError(fmt::format("a weight of {} × {} has no {} groups of {} taps", weight.rows, weight.cols,
                                 of.groups, of.taps));
  Zeros zeros = zeros_from(sparse::inspect(weight));
  const uint64_t cols = uint64_t{weight.cols} * of.groups;
  if (cols <= sparse::kMaxDimension && ops::Advisor::supports(zeros.rows, static_cast<uint32_t>(cols)))
    add_advice(advisor_.advise_groups(weight, of, type), zeros);
  return zeros;
}

}  // namespace bound

std::string_view name_of(NoGain reason) {
  switch (reason) {
    case NoGain::none: return "";
    case NoGain::not_a_product: return "not a product";
    case NoGain::too_dense: return "too dense";
    case NoGain::too_few_columns: return "too few columns";
    case NoGain::too_small: return "too small";
    case NoGain::memory_bound: return "bound by memory";
  }
  return "";
}

Zeros zeros_of(const void* weight, Type type, uint32_t rows, uint32_t cols, int64_t row_stride,
               const ZerosOptions& options) {
  sparse::validate_weight_type(type);
  sparse::validate_sizes(rows, cols, 1);
  bound::ZerosAnalysis analysis(options);
  sparse::BitMatrix bits(rows, cols);
  const auto* bytes = static_cast<const std::byte*>(weight);
  const auto size = static_cast<uint32_t>(size_of(type));
  for (uint32_t r = 0; r < rows; ++r)
    sparse::set_non_zeros({size, true}, bytes + r * row_stride * size, cols, bits.row(r));
  return analysis.analyse(std::move(bits), type);
}

Zeros zeros_of(const Pattern& pattern, Type type, const ZerosOptions& options) {
  sparse::validate_weight_type(type);
  sparse::validate(pattern);
  return bound::ZerosAnalysis(options).analyse(pattern, type);
}

Zeros zeros_of_groups(const Pattern& pattern, Type type, const ConvolutionGroups& of,
                      const ZerosOptions& options) {
  sparse::validate_weight_type(type);
  sparse::validate(pattern);
  return bound::ZerosAnalysis(options).analyse_groups(pattern, type, of);
}

}  // namespace tessera
