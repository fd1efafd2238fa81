// Published measurements of sparse products (PopSparse, Li et al. 2023): its tables, and values read off its
// figures.
#pragma once

#include <tessera/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "studies/common/published.h"

namespace tessera::studies::popsparse {

/// Speed-up of the static sparse product over the dense one, on Bow in FP16, m = k (PopSparse,
/// figure 7).
struct RatioCell {
  uint32_t block = 1;
  uint32_t inverse_density = 1;
  uint32_t size = 0;  ///< m = k
  uint32_t n = 0;
  std::optional<double> speedup;  ///< none: the vendor's library had no plan for one processor
};

/// Dense TFLOP/s on Bow, m = k (PopSparse, figure 2).
struct DenseCell {
  Type type = Type::f16;
  uint32_t size = 0;
  uint32_t n = 0;
  double tflops = 0;
};

/// TFLOP/s of operations on stored elements, on Bow in FP16, m = k = 4096, best over n.
struct RateCell {
  bool dynamic = false;
  uint32_t block = 1;
  uint32_t inverse_density = 1;
  double tflops = 0;
};

/// Figures 3a and 4a, read off.
std::span<const RateCell> published_rates();

/// Best over n of a sparse product against best over n of the dense one, on Bow, m = k = 4096, d =
/// 1/16.
struct BestCell {
  uint32_t block = 1;
  Type type = Type::f32;
  double dynamic_speedup = 0;
  double static_speedup = 0;
};

/// Table 3.
std::span<const BestCell> published_best();

/// Section 5.3: how much faster static products of blocks are than those of single elements (m = k
/// = 4096, d = 1/16, FP16, best over n).
struct BlockGain {
  uint32_t block = 1;
  double gain = 1;
};
std::span<const BlockGain> published_block_gains();

/// The tables that are committed with this study, generated from published/.
extern const std::span<const PublishedFile> kPublishedFiles;

// Tables of a folder, by file name, empty if the folder lacks the file; "" stands for those of
// kPublishedFiles. All throw Error naming file, line and column, and UsageError if the folder does not exist.
std::vector<RatioCell> read_ratios(const std::filesystem::path& folder = {});  // static-vs-dense-bow-fp16.csv
std::vector<DenseCell> read_dense(const std::filesystem::path& folder = {});   // dense-bow.csv

}  // namespace tessera::studies::popsparse
