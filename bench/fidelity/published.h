// Published measurements, as tables.
#pragma once

#include <tessera/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace tessera::fidelity {

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

/// Best over n of static against best over n of dense, m = k = 4096, density 1/16 (PopSparse, table
/// 3).
struct BestCell {
  uint32_t block = 1;
  Type type = Type::f16;
  double speedup = 0;
};

// Tables of a folder, by their files' names. All throw Error naming file, line and field.
std::vector<RatioCell> read_ratios(
    const std::filesystem::path& folder);  // static-vs-dense-bow-fp16.csv
std::vector<DenseCell> read_dense(const std::filesystem::path& folder);  // dense-bow.csv
std::vector<BestCell> read_best(const std::filesystem::path& folder);    // popsparse-table3.csv

}  // namespace tessera::fidelity
